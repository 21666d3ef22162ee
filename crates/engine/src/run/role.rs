//! What makes a service out of the loop: which facts it listens to, and its decision.

use carrick_core::{ClaimFacts, Decision, Outcome, Policy, Step, TenantFacts};
use jiff::Timestamp;

/// One service, as the loop sees it.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// Its name, as in subjects, consumers and field managers: `upsyncer`.
    pub name: &'static str,
    /// The step that is said to be tried again when it fails.
    pub step: Step,
    /// Tokens of the facets whose facts make it look at a claim
    /// ([`Facet::token`](carrick_core::Facet::token)).
    pub facets: &'static [&'static str],
    /// Those of them of which only coming and going matters, and being made anew; not each change.
    pub arrivals: &'static [&'static str],
    /// Those of them of which nobody waits for what it does about a change: repairs.
    pub unhurried: &'static [&'static str],
    /// Outcomes of any service's steps that make it look at a claim, in no hurry.
    pub outcomes: &'static [Outcome],
    /// Whether its decision reads the tenant's classes.
    pub reads_classes: bool,
    /// Whether its decision needs the last steps of all services although nothing but facts has
    /// changed; `None`: it never reads them.
    pub steps: Option<fn(&ClaimFacts, &Policy, Timestamp) -> bool>,
    /// Whether its decision needs what Events on the host claim say; `None`: never.
    pub host_events: Option<fn(&ClaimFacts, &Policy, Timestamp) -> bool>,
    /// Whether it cleans up host namespaces that have no claims any more.
    pub cleans_namespaces: bool,
    /// Whether it has credentials for tenants.
    pub writes_to_tenants: bool,
    /// Whether a claim counts as seen bound by its tenant and not so on the host; `None`: another
    /// service counts these.
    pub mismatched: Option<fn(&ClaimFacts, &Policy) -> bool>,
    /// What it does about a claim.
    pub claim: fn(&ClaimFacts, &Policy, Timestamp) -> Decision,
    /// What it does about a tenant as a whole, if anything.
    pub tenant: Option<fn(&TenantFacts, &Policy, Timestamp) -> Decision>,
}
