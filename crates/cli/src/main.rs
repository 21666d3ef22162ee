//! `carrick`: adds tenants, and shows what becomes of their claims.

mod commands;
mod connect;
mod output;
mod selector;
mod table;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::commands::{dev, get, tap, tenant};

const VARIABLES: &str =
    "An option with [env: NAME] can be given by that environment variable; the option wins.";

/// Persistent storage across control planes.
///
/// Tenants are added to and removed from the host cluster; what becomes of their claims is read
/// from the bus, NATS JetStream.
#[derive(Debug, Parser)]
#[command(
    name = "carrick",
    version,
    after_help = "Examples:\n  \
        carrick tenant add acme --kubeconfig acme.yaml\n  \
        carrick get claims acme\n  \
        carrick tap acme/team-a/data\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong use."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add, list and remove tenants
    #[command(subcommand)]
    Tenant(tenant::Command),
    /// Show facts and steps as they happen, a line each, until Ctrl-C
    Tap(tap::Args),
    /// Show what there is
    #[command(subcommand)]
    Get(get::Command),
    /// Run all services in one process: to try Carrick, and to develop it
    Dev(Box<dev::Args>),
}

/// The command line; the help of every command tells of environment variables.
fn command_line() -> clap::Command {
    fn told(command: clap::Command) -> clap::Command {
        let help = command.get_after_help().map(|help| format!("{help}\n")).unwrap_or_default();
        command.after_help(format!("{help}{VARIABLES}")).mut_subcommands(told)
    }
    told(Cli::command())
}

fn main() -> ExitCode {
    let parsed = Cli::from_arg_matches(&command_line().get_matches());
    let command = match parsed.unwrap_or_else(|error| error.exit()).command {
        Command::Dev(args) => return dev::run(&args, &mut command_line()),
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
    if output::is_unread(&error) {
        return ExitCode::SUCCESS;
    }
    match error.downcast::<connect::WrongSettings>() {
        Ok(connect::WrongSettings(problems)) => {
            carrick_engine::wrong_settings(&mut command_line(), &problems).exit()
        }
        Err(error) => {
            eprintln!("carrick: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_commands_help_tells_of_variables() {
        for path in [&[][..], &["tenant", "add"], &["tenant", "list"], &["get", "claims"], &["dev"]]
        {
            let mut command = command_line();
            for name in path {
                command = command.find_subcommand(name).unwrap().clone();
            }
            let help = command.render_help().to_string();
            assert!(help.trim_end().ends_with(VARIABLES) && help.contains("Exit codes"), "{help}");
        }
    }

    #[test]
    fn wrong_use_is_told_before_anything_is_asked() {
        for (args, words) in [
            (&["tenant", "add", "Acme", "--kubeconfig", "f"][..], "no name for a tenant"),
            (&["tenant", "add", "acme"], "--kubeconfig"),
            (&["tenant", "add", "acme", "--kubeconfig", "f", "--class", "a="], "names no class"),
            (&["tenant", "add", "acme", "--kubeconfig", "f", "--wait", "soon"], "30s"),
            (&["tenant", "remove", "acme", "--context", "c"], "--kubeconfig"),
            (&["tap", "acme/*"], "TENANT[/NAMESPACE[/CLAIM]]"),
            (&["get", "volumes"], "unrecognized"),
        ] {
            let error = Cli::try_parse_from(["carrick"].iter().chain(args)).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{args:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
