//! The upsyncer: carries host volumes up to their tenants, and publishes storage classes there.
//!
//! Its rule is `carrick_core::decide::upsync`; the loop around it is the engine's.

use carrick_core::{Step, decide};
use carrick_engine::{Context, Role, Service, run_role};

/// The service, for its command line.
pub const SERVICE: Service = Service {
    name: "upsyncer",
    about: "Carries host volumes up to their tenants, and publishes storage classes there",
    admin_address: "127.0.0.1:9464",
};

/// The service, for the loop.
pub const ROLE: Role = Role {
    name: SERVICE.name,
    step: Step::Upsync,
    facets: &[
        "host-volume",
        "tenant-volume",
        "tenant-claim",
        "host-claim",
        "tenant-class",
        "host-class",
    ],
    arrivals: &["tenant-claim", "host-claim"],
    unhurried: &["tenant-volume"],
    outcomes: &[],
    reads_classes: false,
    steps: None,
    host_events: None,
    cleans_namespaces: false,
    writes_to_tenants: true,
    mismatched: None,
    claim: decide::upsync::decide,
    tenant: Some(decide::classes::decide),
};

/// Runs the service until its shutdown.
pub async fn run(context: Context) -> anyhow::Result<()> {
    run_role(context, ROLE).await
}
