//! The bus: everything that Carrick says over NATS `JetStream`, and nothing that it decides.
//!
//! One [`Bus`] per process. The watcher makes the streams and publishes facts; the services consume
//! them ([`Consumer`]), read all that is known of a claim at once ([`Bus::claim_facts`]) and publish
//! steps. What the subjects mean is in [`carrick_core::subject`].

mod claim;
mod connect;
mod consumer;
mod convert;
mod dead;
mod error;
mod facts;
mod index;
mod read;
mod server_url;
mod settings;
mod steps;
mod streams;
mod tap;

pub use claim::ClaimView;
pub use connect::Bus;
pub use consumer::{Consumer, ConsumerLag, ConsumerSettings, Delivered, Delivery};
pub use dead::DeadReport;
pub use error::{Class, Error, Result};
pub use facts::{FactMeta, PublishOutcome};
pub use index::IndexEntry;
pub use read::{FactMessage, Facts, Poison};
pub use settings::{
    BusSettings, DEFAULT_STEP_BYTES, DEFAULT_STEP_RETENTION, DEFAULT_TOMBSTONE_TTL,
};
pub use steps::{ObjectVersion, StepReport};
pub use streams::{Ensured, Family, Incarnation};
pub use tap::{History, Tapped, TappedBody};
