//! The process around the loop: settings, logs, tasks and their end, health, metrics. It knows
//! nothing of claims.

mod admin;
pub mod logs;
mod metrics;
mod program;
mod readiness;
pub mod settings;
mod tasks;

pub use admin::AdminError;
pub use metrics::{MessageResult, Metrics, SharedRegistry, WriteResult};
pub use program::{Context, Program, Service, service_main, wrong_settings};
pub use readiness::{Gate, Readiness};
pub use settings::{ServiceArgs, Settings, Validate};
pub use tasks::{Failure, Shutdown, Supervisor, Tasks, signals};
