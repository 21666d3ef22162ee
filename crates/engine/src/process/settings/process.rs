//! Settings of the process and of the loop in it.

use std::{net::SocketAddr, time::Duration};

use rustix::system::uname;
use tracing_subscriber::EnvFilter;

use super::{
    Problems, Validate,
    problems::{address, duration, given, number},
};

/// How the process logs, shows its health and ends, as given.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Process")]
pub struct ProcessArgs {
    /// What is logged: off, error, warn, info, debug or trace, or such levels for parts of it, as
    /// info,carrick_engine=debug
    #[arg(long, value_name = "FILTER", env = "CARRICK_LOG_LEVEL", default_value = "info")]
    log_level: String,
    /// Form of the log on standard error: json (one object on each line) or plain
    #[arg(long, value_name = "FORMAT", env = "CARRICK_LOG_FORMAT", default_value = "json")]
    log_format: String,
    /// Address of /live, /ready and /metrics; with port 0 a free one is taken and logged
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "CARRICK_ADMIN_ADDRESS",
        default_value = "127.0.0.1:9460"
    )]
    admin_address: String,
    /// How long a shutdown may take before what still runs is aborted, as 20s
    #[arg(long, value_name = "DURATION", env = "CARRICK_SHUTDOWN_TIMEOUT", default_value = "20s")]
    shutdown_timeout: String,
    /// Name of this instance among its replicas. Without it: $POD_NAME, or the host's name and a
    /// random part
    #[arg(long, value_name = "NAME", env = "CARRICK_INSTANCE")]
    instance: Option<String>,
}

/// How the process logs, shows its health and ends.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSettings {
    /// The log.
    pub log: LogSettings,
    /// Address of `/live`, `/ready` and `/metrics`; port 0 takes a free one.
    pub admin_address: SocketAddr,
    /// How long a shutdown may take.
    pub shutdown_timeout: Duration,
    /// Name of this instance among its replicas.
    pub instance: String,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// A valid [`EnvFilter`].
    pub filter: String,
    /// The form.
    pub format: LogFormat,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object on each line.
    Json,
    /// For people.
    Plain,
}

impl Validate for ProcessArgs {
    type Settings = ProcessSettings;

    fn validate(&self) -> Result<ProcessSettings, Vec<String>> {
        let Self { log_level, log_format, admin_address, shutdown_timeout, instance } = self;
        let mut problems = Problems::default();
        let filter = problems.parse("log-level", log_level, log_filter);
        let format = problems.parse("log-format", log_format, |text| match text {
            "json" => Ok(LogFormat::Json),
            "plain" => Ok(LogFormat::Plain),
            _ => Err("use json or plain".to_owned()),
        });
        let admin_address = problems.parse("admin-address", admin_address, address);
        let shutdown_timeout = problems.parse("shutdown-timeout", shutdown_timeout, duration);
        let instance = match given(instance.as_deref()) {
            Some(name) => problems.parse("instance", name, instance_name),
            None => Some(default_instance()),
        };
        problems.finish(|| {
            Some(ProcessSettings {
                log: LogSettings { filter: filter?, format: format? },
                admin_address: admin_address?,
                shutdown_timeout: shutdown_timeout?,
                instance: instance?,
            })
        })
    }
}

/// A filter of log events. `EnvFilter` takes a misspelled level for the name of a module and then
/// logs nothing, so a word alone must be a level here.
fn log_filter(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let words = text.split(',').map(str::trim);
    let mut alone = words.filter(|word| !word.contains(['=', '[', ']']));
    let levels = alone.all(|word| LEVELS.contains(&word.to_ascii_lowercase().as_str()));
    if levels && EnvFilter::try_new(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err("use off, error, warn, info, debug or trace, also as info,carrick_engine=debug".to_owned())
}

/// A name that can stand in logs, leases and pod names.
fn instance_name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.len() <= 253 && text.bytes().all(allowed) {
        return Ok(text.to_owned());
    }
    Err("use at most 253 letters, digits, '-', '_' and '.'".to_owned())
}

/// The pod's name where there is one; elsewhere a name that no other process has.
fn default_instance() -> String {
    let pod = std::env::var("POD_NAME").ok();
    pod.filter(|name| !name.is_empty() && instance_name(name).is_ok()).unwrap_or_else(|| {
        let node = uname().nodename().to_string_lossy().into_owned();
        let host = instance_name(&node).unwrap_or_else(|_| "carrick".to_owned());
        format!("{host}-{:08x}", rand::random::<u32>())
    })
}

/// How the loop works on claims, as given.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Loop")]
pub struct LoopArgs {
    /// How many claims are worked on at the same time, 1 to 1024
    #[arg(long, value_name = "NUMBER", env = "CARRICK_CONCURRENCY", default_value = "16")]
    concurrency: String,
    /// How long one call to an API server or to NATS may take, as 10s
    #[arg(long, value_name = "DURATION", env = "CARRICK_CALL_TIMEOUT", default_value = "10s")]
    call_timeout: String,
    /// Pause before the first retry of a claim, as 100ms; it doubles with each retry
    #[arg(long, value_name = "DURATION", env = "CARRICK_RETRY_MIN", default_value = "100ms")]
    retry_min: String,
    /// Longest pause between retries of a claim, as 30s
    #[arg(long, value_name = "DURATION", env = "CARRICK_RETRY_MAX", default_value = "30s")]
    retry_max: String,
    /// Failures after which a claim is put on the dead stream, 1 to 1000; it is still retried, at
    /// the longest pause
    #[arg(long, value_name = "NUMBER", env = "CARRICK_DEAD_AFTER", default_value = "20")]
    dead_after: String,
    /// How long after its last claim an empty host namespace is deleted, as 30s; of use to the
    /// downsyncer alone
    #[arg(long, value_name = "DURATION", env = "CARRICK_NAMESPACE_GRACE", default_value = "30s")]
    namespace_grace: String,
}

/// How the loop works on claims.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopSettings {
    /// How many claims are worked on at the same time.
    pub concurrency: usize,
    /// How long one call may take.
    pub call_timeout: Duration,
    /// The first pause between retries.
    pub retry_min: Duration,
    /// The longest pause between retries, at least the first.
    pub retry_max: Duration,
    /// Failures after which a claim is put on the dead stream.
    pub dead_after: u32,
    /// How long after its last claim an empty host namespace is deleted.
    pub namespace_grace: Duration,
}

impl Validate for LoopArgs {
    type Settings = LoopSettings;

    fn validate(&self) -> Result<LoopSettings, Vec<String>> {
        let Self { concurrency, call_timeout, retry_min, retry_max, dead_after, namespace_grace } =
            self;
        let mut problems = Problems::default();
        let workers = problems.parse("concurrency", concurrency, number(1, 1024));
        let call_timeout = problems.parse("call-timeout", call_timeout, duration);
        let min = problems.parse("retry-min", retry_min, duration);
        let max = problems.parse("retry-max", retry_max, duration);
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            let allowed = format!("use a duration of at least --retry-min, {retry_min}");
            problems.add("retry-max", retry_max, &allowed);
        }
        let dead_after = problems.parse("dead-after", dead_after, number(1, 1000));
        let grace = problems.parse("namespace-grace", namespace_grace, duration);
        problems.finish(|| {
            Some(LoopSettings {
                concurrency: usize::try_from(workers?).ok()?,
                call_timeout: call_timeout?,
                retry_min: min?,
                retry_max: max?,
                dead_after: dead_after?,
                namespace_grace: grace?,
            })
        })
    }
}
