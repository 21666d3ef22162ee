//! Real control planes, a real nats-server and the processes under test, for tests, demo and
//! benchmarks.
//!
//! A [`Testbed`] owns one temporary folder and every process started through it. All of it listens
//! on 127.0.0.1 only and ends with the testbed, even if the owning process is killed. This crate
//! knows nothing of Carrick itself: the services are just processes to it.

mod audit;
mod control_plane;
mod flags;
mod nats;
mod pki;
mod ports;
mod probe;
mod process;
mod shared;
mod testbed;
pub mod tools;
mod watchdog;

pub use audit::AuditWrite;
pub use control_plane::{ControlPlane, ControlPlaneOptions};
pub use nats::{Nats, NatsAuth, NatsOptions};
pub use probe::{eventually, throughout};
pub use process::{Process, Stop};
pub use testbed::Testbed;
pub use tools::Tools;
