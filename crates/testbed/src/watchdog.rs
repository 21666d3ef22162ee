//! The process that ends a testbed when its owner is done with it, or dead.
//!
//! It is the only place that kills and removes: an owner that ends in good order and one that is
//! killed by SIGKILL leave the same nothing behind.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// The variable by which the watchdog knows the testbed's processes; its value is the folder.
pub(crate) const MARK: &str = "CARRICK_TESTBED";

const SCRIPT: &str = include_str!("watchdog.sh");
const CAP: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Starts the watchdog of the testbed in `dir`. It lives until its standard input ends.
    pub(crate) fn start(dir: &Path, logs: &Path) -> Result<Self> {
        ensure!(Path::new("/proc/self/environ").exists(), "the testbed needs Linux's /proc");
        let child = Command::new("sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg("carrick-testbed-watchdog")
            .args([dir, logs])
            .env_remove(MARK)
            .current_dir("/")
            // Ctrl-C at a terminal goes to the owner's group: the watchdog has to outlive it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start the testbed's watchdog (sh)")?;
        Ok(Self(child))
    }

    /// Asks it to leave the logs when all else goes.
    pub(crate) fn keep_logs(&mut self) {
        if let Some(stdin) = &mut self.0.stdin {
            // A watchdog that is gone has nothing left to keep.
            let _ = stdin.write_all(b"keep\n");
        }
    }

    /// Ends every process of the testbed, removes its folder and waits until that is done.
    pub(crate) fn finish(&mut self) {
        drop(self.0.stdin.take());
        let deadline = Instant::now() + CAP;
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            sleep(POLL);
        }
    }
}
