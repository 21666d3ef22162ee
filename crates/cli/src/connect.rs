//! From the options to the host and the bus.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use carrick_bus::Bus;
use carrick_engine::{
    Validate,
    settings::{BusArgs, HostArgs, HostSettings, TargetArgs},
    wiring::{bus_settings, client_options},
};
use carrick_k8s::{Client, ClientOptions};
use clap::{Arg, ArgMatches, Args, FromArgMatches};
use kube::config::{Kubeconfig, KubeconfigError};

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
    let HostSettings { kubeconfig, context, system_namespace: _ } = &settings;
    let client = client(kubeconfig.as_deref(), context.as_deref()).await.context("the host")?;
    Ok((client, settings))
}

/// A client of a control plane, as a kubeconfig names it; without a file as `kubectl` would. Nothing
/// is asked yet.
pub(crate) async fn client(file: Option<&Path>, context: Option<&str>) -> Result<Client> {
    match Client::connect(file, context, &options()).await {
        Ok(client) => Ok(client),
        Err(error) => {
            Err(unusable(file, context).map_or_else(|| error.into(), |text| anyhow!(text)))
        }
    }
}

/// Which file or context it is that can't be used.
fn unusable(file: Option<&Path>, context: Option<&str>) -> Option<String> {
    match file {
        Some(file) => {
            why(&format!("kubeconfig {}", file.display()), Kubeconfig::read_from(file), context)
        }
        None => why("the kubeconfig of $KUBECONFIG or ~/.kube/config", Kubeconfig::read(), context)
            .map(|text| format!("{text}; or name a file by CARRICK_KUBECONFIG")),
    }
}

/// Why a kubeconfig can't be used. What can't be parsed is not shown, for it may be a token.
fn why(
    shown: &str,
    read: Result<Kubeconfig, KubeconfigError>,
    context: Option<&str>,
) -> Option<String> {
    let config = match read {
        Ok(config) => config,
        Err(KubeconfigError::ReadConfig(error, path)) => {
            return Some(format!("kubeconfig {} can't be read: {error}", path.display()));
        }
        Err(KubeconfigError::FindPath) => return None,
        Err(_) => return Some(format!("{shown} is not the YAML of a kubeconfig")),
    };
    let names: Vec<_> = config.contexts.iter().map(|context| context.name.as_str()).collect();
    let there = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
    Some(match context.or(config.current_context.as_deref()).filter(|name| !name.is_empty()) {
        None => format!("{shown} has no current context: name one of its contexts ({there})"),
        Some(name) if !names.contains(&name) => {
            format!("{shown} has no context {name:?}: name one of its contexts ({there})")
        }
        Some(name) => format!(
            "{shown}: context {name:?} has no cluster with a server and a valid authority, or no \
             user with valid credentials"
        ),
    })
}

/// The bus, where a watcher has been.
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
    let (urls, name) = (bus.urls.join(", "), target.name.clone());
    let settings = bus_settings(&bus, &target, NAME)?;
    let connected = tokio::time::timeout(PATIENCE, Bus::connect(settings)).await;
    let no_answer =
        || format!("no answer from NATS at {urls}: check --nats-url (CARRICK_NATS_URL)");
    let bus = connected.with_context(no_answer)?.context("the bus")?;
    match bus.facts_incarnation().await {
        Err(carrick_bus::Error::StreamMissing { .. }) => bail!(
            "no Carrick watcher has made its streams for sync target {name} in NATS at {urls}: \
             start carrick-watcher (or all services: carrick dev), or name another sync target by \
             --sync-target (CARRICK_SYNC_TARGET) or another server by --nats-url (CARRICK_NATS_URL)"
        ),
        Err(error) if has_no_jetstream(&error) => {
            bail!("NATS at {urls} has no JetStream: start nats-server with --jetstream")
        }
        // Whoever may not look at the stream may still be allowed to listen.
        _ => Ok(bus),
    }
}

/// Nobody answers where only JetStream does.
fn has_no_jetstream(error: &carrick_bus::Error) -> bool {
    matches!(error, carrick_bus::Error::Server { code: None, source, .. }
        if source.to_string().contains("JetStream resource does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_context_that_can_not_be_used_are_told_apart() {
        let good = "{current-context: a, contexts: [{name: a, context: {cluster: c, user: u}}]}";
        for (text, context, words) in [
            ("s3cr3t: [", None, "F is not the YAML of a kubeconfig"),
            ("no: kubeconfig", None, "F has no current context"),
            (good, Some("b"), "F has no context \"b\": name one of its contexts (a)"),
            (good, None, "F: context \"a\" has no cluster"),
        ] {
            let said = why("F", Kubeconfig::from_yaml(text), context).unwrap();
            assert!(said.contains(words) && !said.contains("s3cr3t"), "{said}");
        }
        let said = unusable(Some(Path::new("/nowhere/a.yaml")), None).unwrap();
        assert!(said.contains("kubeconfig /nowhere/a.yaml can't be read: No such file"), "{said}");
    }
}
