//! Build, test, demo: `cargo xtask`.

#![allow(clippy::print_stdout, reason = "what it shows is what it is for")]

mod demo;
mod test;

use std::io;
use std::process::ExitCode;

use anyhow::Result;
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
        Task::Demo(args) => demo::run(args),
    }
}
