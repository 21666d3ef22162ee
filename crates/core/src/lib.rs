//! The rules of Carrick, without any I/O: who an object belongs to ([`identity`]), what things are
//! called ([`names`], [`subject`]), what is known of a claim ([`fact`]), what a tenant may do
//! ([`policy`]), and what each service does about it ([`decide`]).
//!
//! Nothing here talks to NATS or Kubernetes. A decision takes facts and gives back writes as data
//! ([`mod@write`]), so the services, the tests and the model checker run the very same functions.

pub mod claim_ref;
pub mod decide;
pub mod fact;
pub mod identity;
pub mod names;
pub mod patch;
pub mod policy;
pub mod quantity;
pub mod quiet;
pub mod step;
pub mod subject;
pub mod write;

pub use fact::{ClaimFacts, ClaimKey, Fact, TenantFacts};
pub use identity::{Locator, SyncTarget};
pub use names::{Domain, Names};
pub use policy::Policy;
pub use step::{Outcome, Reason, Step, StepRecord};
pub use subject::{Facet, FactSubject, Scope};
pub use write::{Action, Decision, Kind, ObjectRef, Side, Verdict, Write};
