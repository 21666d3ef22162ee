//! All tests, in parts: what needs no servers with every core, then what starts servers with few at
//! a time, since each takes some hundred megabytes and seconds of a core.

use std::env;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use carrick_testbed::Tools;
use clap::ValueEnum;

/// Tests at a time where each starts servers.
const SERVER_TESTS: &str = "--test-threads=2";

/// Which tests to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run one part only.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Run only tests whose name contains this.
    filter: Option<String>,
    /// Passed on to the test programs, e.g. `-- --nocapture`.
    #[arg(last = true)]
    rest: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The unit tests, beside the code.
    Unit,
    /// Everything that starts servers, the whole included.
    Servers,
    /// The whole, on the testbed.
    E2e,
    /// The examples in the documentation.
    Doc,
}

impl Part {
    /// What is run if nothing else is said: each test once.
    const ALL: [Self; 3] = [Self::Unit, Self::Servers, Self::Doc];

    fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Servers => "servers",
            Self::E2e => "e2e",
            Self::Doc => "doc",
        }
    }

    /// Always the whole workspace: with fewer packages cargo would build their dependencies anew,
    /// with other features.
    fn targets(self) -> &'static [&'static str] {
        match self {
            Self::Unit => &["--workspace", "--lib", "--bins"],
            Self::Servers => &["--workspace", "--test", "*"],
            Self::E2e => &["--workspace", "--test", "pipeline", "--test", "layers"],
            Self::Doc => &["--workspace", "--doc"],
        }
    }
}

/// How one part went.
struct Outcome {
    name: &'static str,
    time: Duration,
    passed: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut outcomes = vec![timed("tools", || {
        Tools::ensure(&mut io::stderr())?;
        Ok(true)
    })?];
    let parts: Vec<Part> = args.only.map_or_else(|| Part::ALL.to_vec(), |only| vec![only]);
    if parts.iter().any(|part| matches!(part, Part::Servers | Part::E2e)) {
        // The whole is the services as the processes that users run, and cargo builds no other
        // package's programs for a test.
        let build = ["build", "--workspace", "--bins", "--locked"];
        outcomes.push(timed("build", || cargo(&build, &[]))?);
    }
    if outcomes.iter().all(|outcome| outcome.passed) {
        for part in parts {
            outcomes.push(timed(part.name(), || test(part, args))?);
        }
    }
    report(&outcomes)
}

fn test(part: Part, args: &Args) -> Result<bool> {
    let Args { only: _, filter, rest } = args;
    let mut cargo_args = vec!["test", "--locked", "--no-fail-fast"];
    cargo_args.extend(part.targets());
    cargo_args.extend(filter.as_deref());
    let mut test_args: Vec<&str> = rest.iter().map(String::as_str).collect();
    let caller_says = rest.iter().any(|arg| arg.starts_with("--test-threads"));
    if matches!(part, Part::Servers | Part::E2e) && !caller_says {
        test_args.push(SERVER_TESTS);
    }
    cargo(&cargo_args, &test_args)
}

fn timed(name: &'static str, task: impl FnOnce() -> Result<bool>) -> Result<Outcome> {
    eprintln!("== {name}");
    let start = Instant::now();
    let passed = task().with_context(|| name)?;
    Ok(Outcome { name, time: start.elapsed(), passed })
}

pub(crate) fn cargo(args: &[&str], program_args: &[&str]) -> Result<bool> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args);
    if !program_args.is_empty() {
        command.arg("--").args(program_args);
    }
    Ok(command.status().context("run cargo")?.success())
}

fn report(outcomes: &[Outcome]) -> Result<()> {
    eprintln!("\n{:<10} {:>8}  result", "part", "time");
    for Outcome { name, time, passed } in outcomes {
        let result = if *passed { "ok" } else { "FAILED" };
        eprintln!("{name:<10} {:>6.1} s  {result}", time.as_secs_f64());
    }
    let failed: Vec<_> = outcomes.iter().filter(|o| !o.passed).map(|o| o.name).collect();
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
