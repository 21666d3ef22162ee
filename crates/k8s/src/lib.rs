//! Kubernetes: clients, watches, writes with preconditions, the Lease, and the Tenant type with
//! its pool of clients.
//!
//! Nothing here knows NATS or decides anything about a claim. No call is unbounded, none is
//! repeated unseen, and no token or kubeconfig ever reaches a log, an error or a `Debug` output.

pub mod access;
mod bound;
pub mod client;
mod contents;
pub mod crd;
pub mod error;
pub mod events;
pub mod lease;
pub mod leftovers;
pub mod pool;
pub mod problem;
pub mod resource;
mod secrets;
pub mod status;
#[cfg(test)]
mod stub;
pub mod target;
pub mod tenant;
pub mod watch;
pub mod write;

pub use client::{Client, ClientOptions, identity};
pub use contents::contents;
pub use error::{Class, Error};
pub use events::events_on;
pub use lease::{Leader, LeaseOptions};
pub use pool::{Pool, PoolOptions, TenantEvent, TenantHandle};
pub use problem::ConnectionProblem;
pub use resource::Resource;
pub use tenant::{Tenant, TenantSpec, TenantStatus};
pub use watch::{Change, ObjectKey, WatchOptions, watch};
pub use write::{Written, execute, get};
