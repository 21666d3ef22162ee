//! The testbed itself: its folder, its parts, its end.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context as _, Result, ensure};

use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::nats::{Nats, NatsOptions};
use crate::process::Process;
use crate::shared::{Shared, port_was_taken};
use crate::tools::Tools;
use crate::watchdog::Watchdog;

/// Set to 1, it keeps the logs also of what went well.
const KEEP: &str = "CARRICK_KEEP";

/// A set of real servers and processes that end together.
///
/// Dropping it ends all of them at once and removes every file they made. If the test panics, a
/// server has failed, [`Testbed::keep_logs`] was called or `CARRICK_KEEP=1` is set, the logs stay
/// under `testbed-logs/` in the target folder and their place is printed. If the owning process
/// dies, the same happens without it.
#[derive(Debug)]
pub struct Testbed {
    shared: Arc<Shared>,
    watchdog: Watchdog,
}

impl Testbed {
    /// Makes an empty testbed. `name` tells people whose folder and logs these are: the test's name.
    #[expect(clippy::unused_async, reason = "callers need not change when starting has to wait")]
    pub async fn start(name: &str) -> Result<Self> {
        let name_is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        ensure!(name_is_plain && !name.is_empty(), "{name:?} is no name for a folder");
        let tools = Tools::locate()?;
        let dir = tempfile::Builder::new()
            .prefix(&format!("carrick-testbed-{name}-{}-", process::id()))
            .tempdir()
            .context("make the testbed's folder")?;
        let logs = logs_for(dir.path());
        let mut watchdog = Watchdog::start(dir.path(), &logs)?;
        // From here on removing it is the watchdog's.
        let dir = dir.keep();
        fs::create_dir_all(&logs).with_context(|| format!("make {}", logs.display()))?;
        if env::var_os(KEEP).is_some_and(|value| value == "1") {
            watchdog.keep_logs();
        }
        Ok(Self { shared: Arc::new(Shared::new(dir, logs, tools)), watchdog })
    }

    /// Runs a test on a testbed of its own. If the test returns an error, the logs are kept and the
    /// error says where.
    pub async fn run<T>(name: &str, test: impl AsyncFnOnce(&Self) -> Result<T>) -> Result<T> {
        let testbed = Self::start(name).await?;
        let result = test(&testbed).await;
        if result.is_err() {
            testbed.keep_logs();
        }
        result.with_context(|| format!("test {name}, logs in {}", testbed.log_folder().display()))
    }

    /// Starts an etcd, an API server and the controllers, and waits until they are at work. Several
    /// at a time start faster together: `tokio::join!`.
    pub async fn control_plane(&self, options: ControlPlaneOptions) -> Result<ControlPlane> {
        match ControlPlane::start(Arc::clone(&self.shared), &options).await {
            Err(error) if port_was_taken(&error) => {
                fs::remove_dir_all(self.shared.dir.join(&options.name))?;
                ControlPlane::start(Arc::clone(&self.shared), &options).await
            }
            started => started,
        }
    }

    /// Starts one nats-server or a cluster of three, and waits until `JetStream` answers.
    pub async fn nats(&self, options: NatsOptions) -> Result<Nats> {
        match Nats::start_all(Arc::clone(&self.shared), &options).await {
            Err(error) if port_was_taken(&error) => {
                fs::remove_dir_all(self.shared.dir.join(&options.name))?;
                Nats::start_all(Arc::clone(&self.shared), &options).await
            }
            started => started,
        }
    }

    /// Starts any other process, with its output in `<name>.log`. Its standard streams and process
    /// group are set here; arguments, environment and folder are the caller's.
    pub fn spawn(&self, name: &str, command: Command) -> Result<Process> {
        self.shared.spawn(name, command)
    }

    /// The temporary folder, for whatever files a test needs; gone with the testbed.
    pub fn folder(&self) -> &Path {
        &self.shared.dir
    }

    /// Where the logs of all processes are, while the testbed lives and if they are kept.
    pub fn log_folder(&self) -> &Path {
        &self.shared.logs
    }

    /// Where the binaries of the tools are.
    pub fn tools(&self) -> &Tools {
        &self.shared.tools
    }

    /// Keeps the logs when the testbed ends: for a test that returns an error rather than panics.
    pub fn keep_logs(&self) {
        self.shared.failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        let failed = thread::panicking() || self.shared.failed.load(Ordering::Relaxed);
        if failed {
            self.watchdog.keep_logs();
        }
        self.watchdog.finish();
        self.shared.reap();
        if self.shared.logs.exists() {
            eprintln!("testbed: logs kept in {}", self.shared.logs.display());
        }
    }
}

/// The folder of the logs: in the target folder that the running program was built into, so that
/// kept ones are found and cleaned with it; for a program elsewhere, in the testbed's own folder.
fn logs_for(dir: &Path) -> PathBuf {
    let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or("testbed");
    let name = name.strip_prefix("carrick-testbed-").unwrap_or(name);
    let exe = env::current_exe().unwrap_or_default();
    let target = exe.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.map_or_else(|| dir.join("logs"), |target| target.join("testbed-logs").join(name))
}
