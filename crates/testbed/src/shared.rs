//! What the parts of one testbed have in common: its folders, and starting processes in it.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};

use crate::probe::eventually;
use crate::process::{Process, size};
use crate::tools::Tools;
use crate::watchdog::MARK;

/// How long a server may take until it answers.
const READY_CAP: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) tools: Tools,
    pub(crate) failed: AtomicBool,
    processes: Mutex<Vec<Process>>,
}

impl Shared {
    pub(crate) fn new(dir: PathBuf, logs: PathBuf, tools: Tools) -> Self {
        let failed = AtomicBool::new(false);
        Self { dir, logs, tools, failed, processes: Mutex::default() }
    }

    /// Makes the folder of a part, which has to be a new one.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        fs::create_dir(&dir)
            .with_context(|| format!("make the folder of {name} in the testbed"))?;
        Ok(dir)
    }

    /// Starts a process that carries the testbed's mark and logs to `<logs>/<name>.log`.
    pub(crate) fn spawn(&self, name: &str, mut command: Command) -> Result<Process> {
        let log = self.logs.join(format!("{name}.log"));
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("open {}", log.display()))?;
        let log_start = size(&log);
        let child = command
            .env(MARK, &self.dir)
            // Ctrl-C at a terminal is for the owner, who then ends the testbed.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("start {name} ({})", command.get_program().display()))?;
        let process = Process::new(name, child, log, log_start);
        self.processes().push(process.clone());
        Ok(process)
    }

    /// Starts a server and waits until `ready` says so.
    pub(crate) async fn serve(
        &self,
        name: &str,
        program: &Path,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        mut ready: impl AsyncFnMut(&Process) -> Result<bool>,
    ) -> Result<Process> {
        let mut command = Command::new(program);
        command.args(args);
        let process = self.spawn(name, command)?;
        let waited = eventually("its readiness", READY_CAP, async || {
            if ready(&process).await? {
                return Ok(Some(()));
            }
            if process.is_running() { Ok(None) } else { Err(anyhow!("it ended")) }
        })
        .await;
        match waited {
            Ok(()) => Ok(process),
            Err(error) => Err(self.fault(&process, &format!("did not get ready: {error:#}"))),
        }
    }

    /// An error about one of the processes; from here on the logs are kept.
    pub(crate) fn fault(&self, process: &Process, what: &str) -> Error {
        self.failed.store(true, Ordering::Relaxed);
        process.fault(what)
    }

    /// Collects the exit states of all processes, which have been ended.
    pub(crate) fn reap(&self) {
        self.processes().iter().for_each(Process::reap);
    }

    fn processes(&self) -> std::sync::MutexGuard<'_, Vec<Process>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a server did not start because something listened on its port.
pub(crate) fn port_was_taken(error: &Error) -> bool {
    format!("{error:#}").contains("address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(dir: &Path) -> Shared {
        let tool = PathBuf::new;
        let tools = Tools {
            kube_apiserver: tool(),
            kube_controller_manager: tool(),
            etcd: tool(),
            nats_server: tool(),
            nats: tool(),
            helm: tool(),
        };
        Shared::new(dir.to_owned(), dir.to_owned(), tools)
    }

    #[tokio::test]
    async fn server_that_dies_at_start_is_told_with_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let shared = shared(dir.path());
        let script = "seq 100; echo bind: address already in use; exit 1";
        let error = shared
            .serve("doomed", "sh".as_ref(), ["-c", script], async |_| Ok(false))
            .await
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.starts_with("doomed did not get ready: "), "{text}");
        assert!(text.contains(&dir.path().join("doomed.log").display().to_string()), "{text}");
        assert!(text.ends_with("100\n  bind: address already in use"), "{text}");
        assert!(!text.contains("\n  81\n") && text.contains("\n  82\n"), "{text}");
        assert!(port_was_taken(&error));
        assert!(shared.failed.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn folders_are_new_ones() {
        let dir = tempfile::tempdir().unwrap();
        let shared = shared(dir.path());
        assert!(shared.folder("host").unwrap().is_dir());
        assert!(shared.folder("host").is_err());
    }
}
