//! The downsyncer: carries the claims of tenants down to the host.
//!
//! Its rule is `carrick_core::decide::down`; the loop around it is the engine's.

use carrick_core::{Step, decide};
use carrick_engine::{Context, Role, Service, run_role};

/// The service, for its command line.
pub const SERVICE: Service = Service {
    name: "downsyncer",
    about: "Carries the claims of tenants down to the host",
    admin_address: "127.0.0.1:9462",
};

/// The service, for the loop.
pub const ROLE: Role = Role {
    name: SERVICE.name,
    step: Step::Claim,
    facets: &["tenant-claim", "tenant-namespace", "host-claim", "host-namespace", "tenant-class"],
    arrivals: &[],
    unhurried: &["host-claim"],
    outcomes: &[],
    reads_classes: true,
    steps: None,
    host_events: None,
    cleans_namespaces: true,
    writes_to_tenants: true,
    mismatched: None,
    claim: decide::down::decide,
    tenant: None,
};

/// Runs the service until its shutdown.
pub async fn run(context: Context) -> anyhow::Result<()> {
    run_role(context, ROLE).await
}
