//! `carrick`: adds tenants, and shows what becomes of their claims.

#![allow(clippy::print_stdout, reason = "what it prints is what it is for")]

mod commands;
mod connect;
mod selector;
mod table;

use std::process::ExitCode;

use carrick_engine::settings::{BusArgs, HostArgs, TargetArgs};
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::commands::{dev, get, tap, tenant};

/// Persistent storage across control planes.
#[derive(Debug, Parser)]
#[command(
    name = "carrick",
    version,
    after_help = "Every option can be given by its environment variable; the option wins.\n\
                  Exit codes: 0 done, 1 failed, 2 wrong use."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add, list and remove tenants.
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Show facts and steps as they happen, a line each, until Ctrl-C.
    Tap(tap::Args),
    /// Show what there is.
    #[command(subcommand)]
    Get(get::Command),
    /// Run all services in one process: to try Carrick, and to develop it.
    Dev(Box<dev::Args>),
}

/// Where the host is, and which installation is meant.
#[derive(Args, Debug)]
struct HostChoice {
    #[clap(flatten)]
    host: HostArgs,
}

/// Where the bus is, and which installation is meant.
#[derive(Args, Debug)]
struct BusChoice {
    #[clap(flatten)]
    target: TargetArgs,
    #[clap(flatten)]
    bus: BusArgs,
}

fn main() -> ExitCode {
    let command = match Cli::parse().command {
        Command::Dev(args) => return dev::run(&args, &mut Cli::command()),
        command => command,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("carrick: the runtime could not be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(async {
        match command {
            Command::Tenant(command) => tenant::run(command).await,
            Command::Tap(args) => tap::run(args).await,
            Command::Get(command) => get::run(command).await,
            Command::Dev(_) => Ok(()),
        }
    });
    let Err(error) = ended else { return ExitCode::SUCCESS };
    match error.downcast::<connect::WrongSettings>() {
        Ok(connect::WrongSettings(problems)) => {
            carrick_engine::wrong_settings(&mut Cli::command(), &problems).exit()
        }
        Err(error) => {
            eprintln!("carrick: {error:#}");
            ExitCode::FAILURE
        }
    }
}
