//! The watcher: puts on the bus, as facts, the last state of every object that matters, of the
//! host and of every tenant, and says in each Tenant's status how it stands. It alone makes the
//! streams, and of several instances one is active.
//!
//! It decides nothing about a claim, and the only objects that it writes are the Tenants' status and
//! finalizer, its Lease, the sync target and the Tenants' definition.

mod acceptance;
mod host;
mod lead;
mod ledger;
mod metrics;
mod placement;
mod places;
mod publisher;
mod removal;
mod report;
mod session;
mod shared;
mod start;
mod status;
mod tenant;

use carrick_engine::{Context, Service};
use carrick_k8s::{Leader, LeaseOptions};

use crate::shared::Gates;

/// The service, for its command line.
pub const SERVICE: Service = Service {
    name: "watcher",
    about: "Publishes the state of claims and volumes of the host and all tenants on the bus",
    admin_address: "127.0.0.1:9461",
};

/// The Lease of the active instance, in Carrick's own namespace.
const LEASE: &str = "carrick-watcher";

/// Runs the service until its shutdown.
pub async fn run(context: Context) -> anyhow::Result<()> {
    let gates = Gates::register(&context.readiness);
    context.started.open();
    let shutdown = context.shutdown.clone();
    let shared = tokio::select! {
        () = shutdown.cancelled() => return Ok(()),
        shared = start::start(&context, &gates) => shared?,
    };
    let settings = &context.settings;
    let options =
        LeaseOptions::new(&settings.host.system_namespace, LEASE, &settings.process.instance);
    let leader = Leader::new(shared.host.clone(), options);
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = lead::lead(&leader, &shared, &gates) => {}
    }
    leader.release().await;
    if let Err(error) = shared.bus.close().await {
        tracing::debug!(%error, "The bus was not closed in good order");
    }
    Ok(())
}
