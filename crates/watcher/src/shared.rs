//! What all parts of the watcher share.

use std::sync::Arc;

use carrick_bus::Bus;
use carrick_core::{Kind, Names, Side, SyncTarget, quiet::Quiet};
use carrick_engine::{Gate, Readiness};
use carrick_k8s::{Client, ConnectionProblem, Pool, WatchOptions, watch};
use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use tokio::time::{Instant, sleep_until};

use crate::{metrics::Metrics, publisher::Means};

/// Changes of several kinds, in one stream.
pub(crate) type Changes = SelectAll<BoxStream<'static, (Kind, carrick_k8s::Change)>>;

/// What all parts of the watcher share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The host.
    pub(crate) host: Client,
    /// The bus.
    pub(crate) bus: Bus,
    /// The Tenants.
    pub(crate) pool: Arc<Pool>,
    /// This installation.
    pub(crate) target: SyncTarget,
    /// Its names.
    pub(crate) names: Names,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// What publishers need.
    pub(crate) means: Means,
    /// When trouble with a watch was last logged.
    pub(crate) said: Quiet,
}

impl Shared {
    /// A watch of one kind.
    pub(crate) fn watch(
        client: &Client,
        kind: Kind,
        labels: Option<String>,
    ) -> BoxStream<'static, (Kind, carrick_k8s::Change)> {
        let options = WatchOptions { labels, ..WatchOptions::default() };
        watch(client, kind, options).map(move |change| (kind, change)).boxed()
    }

    /// Counts trouble with a watch, and says so now and then.
    pub(crate) fn trouble(&self, whose: &str, origin: (Side, Kind), problem: &ConnectionProblem) {
        self.metrics.problem(origin, problem.reason);
        if self.said.due() {
            let kind = origin.1.plural();
            tracing::warn!(whose, kind, %problem, "A watch does not work and is tried again");
        }
    }
}

/// What the process must have before it is ready.
#[derive(Clone, Debug)]
pub(crate) struct Gates {
    /// The sync target is fixed.
    pub(crate) target: Gate,
    /// The bus is there.
    pub(crate) bus: Gate,
    /// The Tenants are known.
    pub(crate) tenants: Gate,
    /// This process leads, or stands by.
    pub(crate) leader: Gate,
    /// While it leads: all that matters of the host is known.
    pub(crate) host_objects: Gate,
    /// While it leads: so is all of each tenant that can be reached.
    pub(crate) tenant_objects: Gate,
}

impl Gates {
    /// Registers them, all closed.
    pub(crate) fn register(readiness: &Readiness) -> Self {
        Self {
            target: readiness.gate("sync target"),
            bus: readiness.gate("bus"),
            tenants: readiness.gate("tenants"),
            leader: readiness.gate("leader"),
            host_objects: readiness.gate("host objects"),
            tenant_objects: readiness.gate("tenant objects"),
        }
    }
}

/// Sleeps until then; for ever if there is nothing to wait for.
pub(crate) async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
