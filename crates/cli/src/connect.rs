//! From the options to the host and the bus.

use std::time::Duration;

use anyhow::{Context as _, Result};
use carrick_bus::Bus;
use carrick_engine::{
    Validate,
    settings::{BusArgs, HostArgs, HostSettings, TargetArgs},
    wiring::{bus_settings, client_options, host_client},
};
use carrick_k8s::{Client, ClientOptions};
use clap::{Arg, ArgMatches, Args, FromArgMatches};

const NAME: &str = "cli";
/// How long a person waits for the bus.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the bus is, and which installation is meant.
#[derive(Args, Debug)]
pub(crate) struct BusChoice {
    #[clap(flatten)]
    target: TargetArgs,
    #[clap(flatten)]
    bus: BusArgs,
}

/// Where the host is, for a command that reads a tenant's kubeconfig too: that one has the flags
/// `--kubeconfig` and `--context`, the host's are `--host-kubeconfig` and `--host-context`.
#[derive(Debug)]
pub(crate) struct HostBeside(HostArgs);

impl HostBeside {
    const RENAMED: [(&str, &str); 2] =
        [("kubeconfig", "host-kubeconfig"), ("context", "host-context")];

    fn rename(command: clap::Command) -> clap::Command {
        Self::RENAMED.into_iter().fold(command, |command, (flag, renamed)| {
            command.mut_arg(flag, |arg: Arg| arg.long(renamed))
        })
    }

    /// The host's client; nothing is asked yet.
    pub(crate) async fn connect(&self) -> Result<(Client, HostSettings)> {
        let renamed = |problem: &String| {
            Self::RENAMED.into_iter().fold(problem.clone(), |text, (flag, renamed)| {
                text.replace(&format!("--{flag} ("), &format!("--{renamed} ("))
            })
        };
        let settings = self.0.validate();
        connect(settings.map_err(|problems| problems.iter().map(renamed).collect())).await
    }
}

impl Args for HostBeside {
    fn augment_args(command: clap::Command) -> clap::Command {
        Self::rename(HostArgs::augment_args(command))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::rename(HostArgs::augment_args_for_update(command))
    }
}

impl FromArgMatches for HostBeside {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        HostArgs::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// All that is wrong with the options.
#[derive(Debug)]
pub(crate) struct WrongSettings(pub(crate) Vec<String>);

impl std::fmt::Display for WrongSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for WrongSettings {}

/// How the CLI talks to control planes.
pub(crate) fn options() -> ClientOptions {
    client_options(NAME)
}

/// The host's client; nothing is asked yet.
pub(crate) async fn host(args: &HostArgs) -> Result<Client> {
    Ok(connect(args.validate()).await?.0)
}

async fn connect(settings: Result<HostSettings, Vec<String>>) -> Result<(Client, HostSettings)> {
    let settings = settings.map_err(WrongSettings)?;
    let client = host_client(&settings, &options()).await.context("the host")?;
    Ok((client, settings))
}

/// The bus.
pub(crate) async fn bus(choice: &BusChoice) -> Result<Bus> {
    let BusChoice { target, bus } = choice;
    let (target, bus) = match (target.validate(), bus.validate()) {
        (Ok(target), Ok(bus)) => (target, bus),
        (target, bus) => {
            let mut problems = target.err().unwrap_or_default();
            problems.extend(bus.err().unwrap_or_default());
            return Err(WrongSettings(problems).into());
        }
    };
    let urls = bus.urls.join(", ");
    let settings = bus_settings(&bus, &target, NAME)?;
    let connected = tokio::time::timeout(PATIENCE, Bus::connect(settings)).await;
    let no_answer =
        || format!("no answer from NATS at {urls}: check --nats-url (CARRICK_NATS_URL)");
    connected.with_context(no_answer)?.context("the bus")
}
