use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use futures::{StreamExt, stream};
use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::process::settings::Problems;

const SERVICE: Service = Service {
    name: "upsyncer",
    about: "Carries bound volumes up to their tenants",
    admin_address: "127.0.0.1:9464",
};

#[derive(clap::Args, Clone, Debug)]
struct OwnArgs {
    /// How many lanes there are
    #[arg(long, env = "CARRICK_LANES", default_value = "1")]
    lanes: String,
}

impl Validate for OwnArgs {
    type Settings = u32;

    fn validate(&self) -> Result<u32, Vec<String>> {
        let mut problems = Problems::default();
        let lanes = problems.parse("lanes", &self.lanes, crate::process::settings::number(1, 8));
        problems.finish(|| lanes)
    }
}

fn parse(args: &[&str]) -> Result<(Settings, u32), clap::Error> {
    SERVICE.parse::<OwnArgs>(["upsyncer"].iter().chain(args).map(Into::into))
}

/// Settings with any free admin port.
fn settings() -> Settings {
    parse(&["--admin-address=127.0.0.1:0"]).unwrap().0
}

#[test]
fn common_and_own_settings_are_parsed_and_their_problems_told_together() {
    let (settings, lanes) = parse(&["--lanes=4"]).unwrap();
    assert_eq!(lanes, 4);
    assert_eq!(settings.process.admin_address.port(), 9464);

    let error = parse(&["--lanes=9", "--domain=x", "--step-bytes=y"]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    for flag in ["--lanes (CARRICK_LANES)", "--domain (", "--step-bytes ("] {
        assert!(text.contains(flag), "{text}");
    }
}

#[test]
fn help_version_and_unknown_flags_are_claps() {
    let help = parse(&["--help"]).unwrap_err();
    assert_eq!(help.exit_code(), 0);
    let text = help.to_string();
    for part in ["Carries bound volumes up", "carrick-upsyncer", "127.0.0.1:9464", "Exit codes"] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
    let version = parse(&["--version"]).unwrap_err();
    assert_eq!(version.to_string(), format!("upsyncer {}\n", env!("CARGO_PKG_VERSION")));
    let unknown = parse(&["--unknown"]).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownArgument);
    assert_eq!(unknown.exit_code(), 2);
}

async fn with_own(context: Context<OwnArgs>) -> anyhow::Result<()> {
    anyhow::ensure!(context.own == 3 && context.service == "upsyncer");
    context.readiness.gate("consumer").open();
    context.started.open();
    context.shutdown.cancelled().await;
    Ok(())
}

async fn without_own(context: Context) -> anyhow::Result<()> {
    context.started.open();
    context.metrics.swept();
    context.shutdown.cancelled().await;
    Ok(())
}

async fn failing(_context: Context) -> anyhow::Result<()> {
    anyhow::bail!("the bus is gone")
}

#[tokio::test]
async fn services_share_a_process_and_end_together() {
    let mut program = Program::new("dev", settings().process);
    program.add("upsyncer", settings(), 3, with_own);
    program.add("watcher", settings(), (), without_own);
    let readiness = program.readiness().clone();
    assert_eq!(readiness.waiting_for(), ["upsyncer: start", "watcher: start"]);
    let signal = stream::once(async {
        while !readiness.waiting_for().is_empty() {
            tokio::task::yield_now().await;
        }
        "SIGTERM"
    });
    program.run(signal.boxed()).await.unwrap();
}

#[tokio::test]
async fn a_service_that_fails_ends_the_process_and_is_named() {
    let mut program = Program::new("watcher", settings().process);
    program.add("watcher", settings(), (), failing);
    assert_eq!(program.readiness().waiting_for(), ["start"]);
    let failure = program.run(stream::pending()).await.unwrap_err();
    assert_eq!(failure.exit_code(), 1);
    let text = format!("{:#}", anyhow::Error::new(failure));
    assert_eq!(text, "task watcher ended with an error: the bus is gone");
}

#[tokio::test]
async fn an_admin_address_in_use_ends_the_process() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut process = settings().process;
    process.admin_address = taken.local_addr().unwrap();
    let failure = Program::new("watcher", process).run(stream::pending()).await.unwrap_err();
    assert!(matches!(failure, Failure::Admin(_)), "{failure:?}");
}

async fn never_ending(context: Context) -> anyhow::Result<()> {
    context.started.open();
    tracing::info!("Working");
    context.shutdown.cancelled().await;
    tracing::info!("Not ending");
    std::future::pending().await
}

/// Signals belong to the whole process, so this runs in a process of its own: this test, run again.
#[test]
fn a_real_second_signal_ends_a_process_that_does_not_end() {
    if std::env::var_os("CARRICK_INSTANCE").is_some_and(|name| name == "signalled") {
        let settings = settings();
        logs::init(&settings.process.log).unwrap();
        let mut program = Program::new("watcher", settings.process.clone());
        program.add("watcher", settings, (), never_ending);
        assert_eq!(program.main(), ExitCode::from(130));
        return;
    }
    let name = "process::program::tests::a_real_second_signal_ends_a_process_that_does_not_end";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env("CARRICK_INSTANCE", "signalled")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut until = |text: &str| {
        let mut others = Vec::new();
        for line in lines.by_ref().map(Result::unwrap) {
            if line.contains(text) {
                return line;
            }
            others.push(line);
        }
        panic!("it ended without {text:?}, after {others:?}")
    };
    let serving = until("Serving health and metrics");
    assert!(serving.contains("\"admin_address\":\"127.0.0.1:"), "{serving}");
    // A task that has not begun would end at the first signal.
    until("Working");
    kill_process(pid, Signal::TERM).unwrap();
    let waiting = until("Not ending");
    assert!(waiting.contains("\"instance\":\"signalled\""), "{waiting}");
    kill_process(pid, Signal::INT).unwrap();
    let ended = until("Ended by a failure");
    assert!(ended.contains("ended at once by a second signal, SIGINT"), "{ended}");
    assert!(child.wait().unwrap().success());
}
