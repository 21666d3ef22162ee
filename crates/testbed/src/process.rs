//! A process of the testbed: signals, its end, its log.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};

use crate::probe::eventually;

/// How long a process may take to end after SIGTERM before that counts as a failure.
const GRACE: Duration = Duration::from_secs(30);
const TAIL: usize = 20;

/// How to stop a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGKILL: a crash.
    Kill,
    /// SIGTERM, and wait for its orderly end.
    Graceful,
}

/// A process started by a testbed. Clones are handles to the same process; dropping them does not
/// end it, the testbed does.
#[derive(Clone, Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Arc<Mutex<Child>>,
    log: PathBuf,
    /// Where this run starts in a log that earlier runs have written to.
    log_start: u64,
}

impl Process {
    pub(crate) fn new(name: &str, child: Child, log: PathBuf, log_start: u64) -> Self {
        let pid = child.id();
        Self { name: name.to_owned(), pid, child: Arc::new(Mutex::new(child)), log, log_start }
    }

    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not ended yet. A paused process is running.
    pub fn is_running(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    /// Ends it at once (SIGKILL) and waits until it is gone.
    pub async fn kill(&self) -> Result<()> {
        self.stop(Stop::Kill).await
    }

    /// Asks it to end (SIGTERM) and waits until it has, at most 30 s.
    pub async fn terminate(&self) -> Result<()> {
        self.stop(Stop::Graceful).await
    }

    /// Ends it in the given way and waits until it is gone. One that has ended already is fine.
    pub async fn stop(&self, how: Stop) -> Result<()> {
        self.signal(match how {
            Stop::Kill => Signal::KILL,
            Stop::Graceful => Signal::TERM,
        })?;
        self.wait(GRACE).await.map(|_| ())
    }

    /// Freezes it (SIGSTOP): its connections stay open and nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen process go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits for its end, at most `cap`.
    pub async fn wait(&self, cap: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {} (pid {})", self.name, self.pid);
        eventually(&what, cap, async || Ok(self.child().try_wait()?)).await
    }

    /// What it has written since it was started, standard output and standard error together.
    pub fn log(&self) -> String {
        self.read_log().unwrap_or_default()
    }

    /// The file that its output goes to, after that of earlier runs under the same name.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// An error about this process: what is wrong, where its log is, and the end of that.
    pub(crate) fn fault(&self, what: &str) -> anyhow::Error {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n  ");
        anyhow!("{} {what}; the end of its log {}:\n  {tail}", self.name, self.log.display())
    }

    pub(crate) fn reap(&self) {
        // Only so that no zombie stays: the watchdog has ended it.
        let _ = self.child().try_wait();
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child();
        // Asked under the lock: a child that is not reaped yet keeps its pid.
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).with_context(|| format!("signal {} ({pid:?})", self.name))
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_log(&self) -> Result<String> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.log_start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The place of a server that can be stopped and started again.
#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<Option<Process>>);

impl Slot {
    pub(crate) fn get(&self) -> Option<Process> {
        self.lock().clone()
    }

    pub(crate) fn put(&self, process: Process) {
        *self.lock() = Some(process);
    }

    /// Stops what is there. A server that is stopped already is fine.
    pub(crate) async fn stop(&self, how: Stop) -> Result<()> {
        let process = self.lock().take();
        match process {
            Some(process) => process.stop(how).await,
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of the file, 0 if there is none.
pub(crate) fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}
