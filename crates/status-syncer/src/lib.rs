//! The status-syncer: lets tenants see what became of their claims.
//!
//! Its rule is `carrick_core::decide::status`; the loop around it is the engine's.

use carrick_core::{Outcome, Step, decide};
use carrick_engine::{Context, Role, Service, run_role};

/// The service, for its command line.
pub const SERVICE: Service = Service {
    name: "status-syncer",
    about: "Lets tenants see what became of their claims",
    admin_address: "127.0.0.1:9465",
};

/// The service, for the loop.
pub const ROLE: Role = Role {
    name: SERVICE.name,
    step: Step::Status,
    facets: &["host-claim", "tenant-claim", "tenant-volume", "host-volume"],
    arrivals: &["host-volume"],
    unhurried: &["tenant-claim"],
    outcomes: &[Outcome::Refused, Outcome::Held, Outcome::Waiting],
    reads_classes: false,
    steps: Some(decide::status::needs_steps),
    host_events: Some(decide::host_events::needed),
    cleans_namespaces: false,
    writes_to_tenants: true,
    mismatched: Some(decide::status::is_mismatched),
    claim: decide::status::decide,
    tenant: None,
};

/// Runs the service until its shutdown.
pub async fn run(context: Context) -> anyhow::Result<()> {
    run_role(context, ROLE).await
}
