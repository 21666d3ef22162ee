//! The storage-transformer: makes host volumes point at the claims of their tenants.
//!
//! Its rule is `carrick_core::decide::transform`; the loop around it is the engine's.

use carrick_core::{Step, decide};
use carrick_engine::{Context, Role, Service, run_role};

/// The service, for its command line.
pub const SERVICE: Service = Service {
    name: "storage-transformer",
    about: "Makes host volumes point at the claims of their tenants",
    admin_address: "127.0.0.1:9463",
};

/// The service, for the loop.
pub const ROLE: Role = Role {
    name: SERVICE.name,
    step: Step::Transform,
    facets: &["host-claim", "host-volume", "tenant-claim", "host-namespace"],
    arrivals: &["tenant-claim"],
    unhurried: &[],
    outcomes: &[],
    reads_classes: false,
    steps: None,
    host_events: None,
    cleans_namespaces: false,
    writes_to_tenants: false,
    mismatched: None,
    claim: decide::transform::decide,
    tenant: None,
};

/// Runs the service until its shutdown.
pub async fn run(context: Context) -> anyhow::Result<()> {
    run_role(context, ROLE).await
}
