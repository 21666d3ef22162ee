//! Build, test, demo: `cargo xtask`.

#![allow(clippy::print_stdout, reason = "what it shows is what it is for")]

mod demo;
mod test;

use std::io;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use carrick_testbed::Tools;
use clap::{Parser, Subcommand};

/// What people and CI do with this repository besides plain cargo.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build the pinned servers and tools that tests and demo run, as far as they are missing.
    Tools,
    /// Run all tests: the unit tests, then those that need real servers.
    Test(test::Args),
    /// Go through the model's small worlds on every path, and say how many states they have.
    Model {
        /// The large ones instead, each until its states run out, or memory or ten minutes do.
        #[arg(long)]
        deep: bool,
    },
    /// Show claims travelling between real control planes.
    Demo(demo::Args),
}

fn main() -> ExitCode {
    match run(&Args::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    match task {
        Task::Tools => Tools::ensure(&mut io::stderr()).map(|_| ()),
        Task::Test(args) => test::run(args),
        Task::Model { deep } => {
            let args = ["run", "--locked", "-p", "carrick-model"];
            let deep: &[&str] = if *deep { &["--deep"] } else { &[] };
            ensure!(test::cargo(&args, deep)?, "the model breaks a rule, or could not run");
            Ok(())
        }
        Task::Demo(args) => demo::run(args),
    }
}
