//! The one loop of all services, and the process around it.

mod process;
mod run;
pub mod wiring;

pub use process::{
    AdminError, Context, Failure, Gate, MessageResult, Metrics, Program, Readiness, Service,
    ServiceArgs, Settings, SharedRegistry, Shutdown, Supervisor, Tasks, Validate, WriteResult,
    logs, service_main, settings, signals, wrong_settings,
};
pub use run::{Role, run_role};
