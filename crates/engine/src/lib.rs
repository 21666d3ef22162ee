//! The one loop of all services, and the process around it.

mod process;

pub use process::{
    AdminError, Cadence, Context, Failure, Gate, MessageResult, Metrics, Program, Readiness,
    Service, ServiceArgs, Settings, SharedRegistry, Shutdown, Supervisor, Tasks, Validate,
    WriteResult, logs, service_main, settings, signals, wrong_settings,
};
