//! A step as it is published.

use std::time::Instant;

use carrick_bus::{ObjectVersion, StepReport};
use carrick_core::{
    ClaimFacts, Fact, Kind, ObjectRef, Scope, Side, decide::ownership::annotation,
    names::TENANT_CLAIM_UID,
};
use jiff::Timestamp;
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::journal::Entry;

/// The report of a step, and the id by which two replicas that say the same say it once.
pub(super) fn report(
    service: &str,
    scope: &Scope,
    facts: &ClaimFacts,
    (begun, entry): (Instant, &Entry),
) -> (StepReport, String) {
    let claim_uid = claim_uid(facts).unwrap_or_default().to_owned();
    let objects = versions(facts);
    let versions: Vec<_> = objects.iter().map(|object| object.rv.to_string()).collect();
    let reason = entry.reason.as_ref();
    let said = reason.map(|reason| format!("{}: {}", reason.code, reason.message));
    let id = format!(
        "{service}/{scope}/{claim_uid}/{}/{}/{}/{}",
        entry.step,
        entry.outcome,
        versions.join("."),
        said.unwrap_or_default()
    );
    let report = StepReport {
        scope: scope.clone(),
        step: entry.step,
        outcome: entry.outcome,
        service: service.to_owned(),
        reason: entry.reason.clone(),
        claim_uid,
        objects,
        writes: entry.writes.iter().map(|why| (*why).to_owned()).collect(),
        took: begun.elapsed(),
        time: Timestamp::now(),
    };
    (report, id)
}

/// The tenant claim that it is about; one that is gone may be known by its host claim alone.
fn claim_uid(facts: &ClaimFacts) -> Option<&str> {
    let claim = facts.tenant_claim.as_ref().map(Fact::uid);
    let made_for = || annotation(&facts.live_host_claim()?.metadata, TENANT_CLAIM_UID);
    claim.or_else(made_for)
}

/// The objects of a claim, as they are known.
fn versions(facts: &ClaimFacts) -> Vec<ObjectVersion> {
    let tenant_claim = facts.tenant_claim.as_ref().map(|f| version(Side::Tenant, Kind::Claim, f));
    let host_claim = facts.host_claim.as_ref().map(|f| version(Side::Host, Kind::Claim, f));
    let host_volumes = facts.host_volumes.values().map(|f| version(Side::Host, Kind::Volume, f));
    let volumes = facts.tenant_volumes.values().map(|f| version(Side::Tenant, Kind::Volume, f));
    tenant_claim.into_iter().chain(host_claim).chain(host_volumes).chain(volumes).collect()
}

fn version<K: Metadata<Ty = ObjectMeta>>(side: Side, kind: Kind, fact: &Fact<K>) -> ObjectVersion {
    let meta = fact.object.metadata();
    ObjectVersion {
        object: ObjectRef {
            side,
            kind,
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
        },
        uid: fact.uid().to_owned(),
        rv: fact.rv(),
    }
}
