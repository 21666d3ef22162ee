//! What the tests share.

use std::time::Duration;

use anyhow::{Context as _, Result};
use carrick_bus::{Bus, BusSettings, Delivered, Delivery, FactMeta};
use carrick_core::{ClaimKey, Facet, FactSubject, Scope};
use carrick_testbed::{Nats, NatsOptions, Testbed};
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::timeout;

/// Longer than anything here takes.
pub(crate) const CAP: Duration = Duration::from_secs(30);

pub(crate) const TARGET: &str = "main";

pub(crate) struct Server {
    /// The server ends with it.
    _testbed: Testbed,
    pub(crate) nats: Nats,
    pub(crate) bus: Bus,
}

/// One server, with streams.
pub(crate) async fn one(name: &str) -> Result<Server> {
    start(name, NatsOptions::default(), |_| {}).await
}

/// A server or a cluster, with streams.
pub(crate) async fn start(
    name: &str,
    options: NatsOptions,
    change: impl Fn(&mut BusSettings),
) -> Result<Server> {
    let testbed = Testbed::start(name).await?;
    let nats = testbed.nats(options).await?;
    let mut settings = BusSettings::new(nats.url(), "watcher", TARGET);
    change(&mut settings);
    let bus = Bus::connect(settings).await?;
    assert!(bus.ensure_streams().await?.facts_are_new);
    assert!(!bus.ensure_streams().await?.facts_are_new);
    Ok(Server { _testbed: testbed, nats, bus })
}

/// A connection that bypasses the bus.
pub(crate) async fn raw(nats: &Nats) -> Result<async_nats::Client> {
    let urls: Vec<async_nats::ServerAddr> =
        nats.url().split(',').map(str::parse).collect::<Result<_, _>>()?;
    Ok(async_nats::connect(urls).await?)
}

pub(crate) fn key(claim: &str) -> ClaimKey {
    ClaimKey::new("acme", "team-a", claim)
}

pub(crate) fn subject(claim: &str, facet: Facet) -> FactSubject {
    FactSubject { target: TARGET.to_owned(), scope: Scope::Claim(key(claim)), facet }
}

pub(crate) fn claim(name: &str, rv: u64) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "uid": format!("uid-{name}"),
            "resourceVersion": rv.to_string(),
            "managedFields": [{"manager": "kubectl"}],
        },
    })
}

pub(crate) fn meta(rv: u64, deleted: bool) -> FactMeta {
    FactMeta { uid: "uid".to_owned(), rv, observed: Timestamp::now(), deleted }
}

/// The next message; a reset is an error.
pub(crate) async fn message(
    deliveries: &mut (impl Stream<Item = Delivery> + Unpin),
) -> Result<Delivered> {
    match next(deliveries).await? {
        Delivery::Message(message) => Ok(*message),
        Delivery::Reset => anyhow::bail!("a reset, not a message"),
    }
}

pub(crate) async fn next<T>(stream: &mut (impl Stream<Item = T> + Unpin)) -> Result<T> {
    let next = timeout(CAP, stream.next()).await;
    next.context("nothing came in time")?.context("it ended")
}

/// Another process's bus.
pub(crate) async fn other(nats: &Nats) -> Result<Bus> {
    Ok(Bus::connect(BusSettings::new(nats.url(), "other", TARGET)).await?)
}
