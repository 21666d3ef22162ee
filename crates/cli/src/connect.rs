//! From the options to the host and the bus.

use std::time::Duration;

use anyhow::{Context as _, Result};
use carrick_bus::Bus;
use carrick_engine::{
    Validate,
    settings::HostSettings,
    wiring::{bus_settings, client_options, host_client},
};
use carrick_k8s::{Client, ClientOptions};

use crate::{BusChoice, HostChoice};

const NAME: &str = "cli";
/// How long a person waits for the bus.
const PATIENCE: Duration = Duration::from_secs(10);

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
pub(crate) async fn host(choice: &HostChoice) -> Result<(Client, HostSettings)> {
    let settings = choice.host.validate().map_err(WrongSettings)?;
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
