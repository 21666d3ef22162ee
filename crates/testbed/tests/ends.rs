//! A testbed leaves nothing, however its owner ends, and says why a process did not start.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use carrick_testbed::{Testbed, eventually};

const CAP: Duration = Duration::from_secs(30);

/// The processes that carry the mark of the testbed in `folder`.
fn marked(folder: &Path) -> Vec<PathBuf> {
    let mark = format!("CARRICK_TESTBED={}", folder.display());
    let carries = |process: &PathBuf| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    all.filter(carries).collect()
}

fn sleeper() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo started; sleep 1000 & wait"]);
    command
}

#[tokio::test]
async fn killed_owner_leaves_nothing() -> Result<()> {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_carrick-testbed"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let said: Vec<String> = lines.map(Result::unwrap).take_while(|line| line != "ready").collect();
    let folder = |key: &str| {
        let line = said.iter().find_map(|line| line.strip_prefix(key));
        PathBuf::from(line.unwrap_or_else(|| panic!("{key} in {said:?}")))
    };
    let (home, logs) = (folder("folder "), folder("logs "));
    assert!(home.is_dir() && logs.is_dir());
    // Two control planes of three processes each, and NATS.
    assert_eq!(marked(&home).len(), 7);

    owner.kill()?;
    owner.wait()?;
    eventually("the end of all processes and folders", CAP, async || {
        let gone = marked(&home).is_empty() && !home.exists() && !logs.exists();
        Ok(gone.then_some(()))
    })
    .await
}

#[tokio::test]
async fn dropping_ends_processes_and_their_children() -> Result<()> {
    let testbed = Testbed::start("drop").await?;
    let (home, logs) = (testbed.folder().to_owned(), testbed.log_folder().to_owned());
    let process = testbed.spawn("sleeper", sleeper())?;
    eventually("both processes", CAP, async || {
        let both = process.log() == "started\n" && marked(&home).len() == 2;
        Ok(both.then_some(()))
    })
    .await?;
    process.pause()?;
    drop(testbed);
    assert!(!process.is_running());
    assert_eq!(marked(&home), Vec::<PathBuf>::new());
    assert!(!home.exists() && !logs.exists());
    Ok(())
}

#[tokio::test]
async fn logs_of_a_failure_are_kept() -> Result<()> {
    let testbed = Testbed::start("failure").await?;
    let (home, logs) = (testbed.folder().to_owned(), testbed.log_folder().to_owned());
    let process = testbed.spawn("sleeper", sleeper())?;
    eventually("its log", CAP, async || Ok((!process.log().is_empty()).then_some(()))).await?;
    let panicked = std::thread::spawn(move || {
        let _testbed = testbed;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert!(!home.exists() && marked(&home).is_empty());
    assert_eq!(fs::read_to_string(logs.join("sleeper.log"))?, "started\n");
    fs::remove_dir_all(logs)?;
    Ok(())
}

#[tokio::test]
async fn error_of_a_test_says_where_the_logs_are() -> Result<()> {
    let mut logs = PathBuf::new();
    let result: Result<()> = Testbed::run("error", async |testbed| {
        logs = testbed.log_folder().to_owned();
        let process = testbed.spawn("words", Command::new("date"))?;
        process.wait(CAP).await?;
        bail!("on purpose")
    })
    .await;
    let error = format!("{:#}", result.expect_err("the test failed"));
    assert!(error.contains(&logs.display().to_string()), "{error}");
    assert!(logs.join("words.log").exists());
    fs::remove_dir_all(logs)?;
    Ok(())
}

#[tokio::test]
async fn processes_end_as_they_are_told() -> Result<()> {
    let testbed = Testbed::start("signals").await?;
    let killed = testbed.spawn("killed", sleeper())?;
    killed.kill().await?;
    assert!(!killed.is_running());
    killed.terminate().await?;

    let mut polite = Command::new("sh");
    polite.args(["-c", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done"]);
    let polite = testbed.spawn("polite", polite)?;
    eventually("its trap", CAP, async || Ok(polite.log().contains("up").then_some(()))).await?;
    polite.terminate().await?;
    assert_eq!(polite.wait(CAP).await?.code(), Some(3));
    assert_eq!(polite.log(), "up\nbye\n");

    let again = testbed.spawn("polite", Command::new("true"))?;
    again.wait(CAP).await?;
    assert_eq!(again.log(), "");
    Ok(())
}
