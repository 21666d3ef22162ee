//! The status-syncer: lets the tenant see what the host has.
//!
//! `Bound` is held back until the tenant has the volume with its claimRef; every other phase
//! passes at once, at any time.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::{
    claim_phase,
    ownership::{annotation, is_copy, is_made_for, is_marked},
    tell, volume_name,
};
use crate::{
    claim_ref,
    fact::ClaimFacts,
    patch::PatchBuilder,
    policy::{Binder, Policy},
    step::{Reason, Step},
    write::{Action, Decision, Kind, ObjectRef, Side, Verdict, Write},
};

/// Decides what the status-syncer does about a claim, and what it tells the tenant.
pub fn decide(facts: &ClaimFacts, policy: &Policy, now: Timestamp) -> Decision {
    let Some(claim) = facts.live_tenant_claim() else {
        return Decision::ignored(Step::Status);
    };
    if policy.tenant.paused {
        return Decision::ignored(Step::Status);
    }
    let decision = progress(facts, claim, policy);
    if decision.writes.is_empty() { tell::decide(facts, claim, decision, now) } else { decision }
}

/// Whether [`decide`] needs the last steps although nothing but facts has changed. A step that is to
/// be told asks for a look by itself; else a young claim is told nothing, and of a bound one only
/// what this service waits for too, or has told before.
pub fn needs_steps(facts: &ClaimFacts, policy: &Policy, now: Timestamp) -> bool {
    let Some(claim) = facts.live_tenant_claim() else {
        return false;
    };
    let waits = || match claim_phase(claim) {
        "Bound" => matches!(progress(facts, claim, policy).verdict, Verdict::Waiting(..)),
        _ => tell::is_old(claim, now),
    };
    tell::is_told(claim) || waits()
}

fn progress(facts: &ClaimFacts, claim: &PersistentVolumeClaim, policy: &Policy) -> Decision {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let Some(host) = facts.live_host_claim().filter(|host| is_made_for(host, uid, policy)) else {
        return Decision::ignored(Step::Status);
    };
    match claim_phase(host) {
        "Bound" => bound(facts, claim, host, policy),
        phase => other_phase(claim, phase, policy),
    }
}

/// The way to `Bound`: release, then link, then status.
fn bound(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    policy: &Policy,
) -> Decision {
    let Some(name) = volume_name(host) else {
        return Decision::waiting(Step::Status, "WaitingForVolume", "waits for the volume's name");
    };
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let copied = |volume: &&PersistentVolume| {
        let on_host = facts.live_host_volume(name);
        on_host.is_some_and(|on_host| {
            is_copy(volume, on_host, Some(uid), policy) && is_marked(on_host, policy)
        })
    };
    let volume = facts.live_tenant_volume(name).filter(copied).filter(|v| points_at(v, claim));
    let Some(volume) = volume else {
        return Decision::waiting(
            Step::Release,
            "WaitingForVolume",
            "the host has bound the claim; waits for its volume to be carried up",
        );
    };
    let delay = policy.names.delay();
    if let Some(value) = annotation(&host.metadata, &delay) {
        let path = ["metadata", "annotations", delay.as_str()];
        let release = PatchBuilder::new(&host.metadata).remove(&path, json!(value)).build();
        let namespace = host.metadata.namespace.clone().unwrap_or_default();
        let object = ObjectRef::namespaced(Side::Host, Kind::Claim, namespace, &facts.key.claim);
        return write_if(Step::Release, object, release.map(Action::Patch), "status released");
    }
    link(claim, host, volume, name, policy)
}

/// Whether a volume in the tenant is there to stay and points at this very claim.
fn points_at(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    volume.metadata.deletion_timestamp.is_none()
        && reference.is_some_and(|reference| claim_ref::names_claim(reference, claim))
}

/// Volume name, then status; where the tenant has a binder, both are the binder's to write.
fn link(
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    name: &str,
    policy: &Policy,
) -> Decision {
    match volume_name(claim) {
        Some(found) if found != name => {
            return Decision::refused(
                Step::Status,
                Reason::new(
                    "VolumeMismatch",
                    format!("the claim names volume {found}, but its own volume is {name}"),
                ),
            );
        }
        None if policy.tenant.binder != Binder::Tenant => {
            let patch = PatchBuilder::new(&claim.metadata)
                .test_version()
                .set(&["spec", "volumeName"], json!(name))
                .build();
            let action = patch.map(Action::Patch);
            return write_if(Step::Status, claim_object(claim), action, "volume name");
        }
        _ => {}
    }
    if policy.tenant.binder == Binder::Tenant {
        if claim_phase(claim) == "Bound" {
            return Decision::done(Step::Status);
        }
        return Decision::waiting(
            Step::Status,
            "WaitingForBinder",
            "the volume is there; waits for the tenant's own binder to bind the claim",
        );
    }
    let action = status_patch(claim, host, volume, name).map(Action::PatchStatus);
    write_if(Step::Status, claim_object(claim), action, "claim status")
}

/// The status of a bound claim, where it differs from the host's.
fn status_patch(
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    name: &str,
) -> Option<json_patch::Patch> {
    let present = claim.status.clone().unwrap_or_default();
    let wanted = host.status.clone().unwrap_or_default();
    let capacity = wanted.capacity.or_else(|| volume.spec.as_ref()?.capacity.clone());
    let modes = wanted.access_modes.or_else(|| volume.spec.as_ref()?.access_modes.clone());
    let mut patch = PatchBuilder::new(&claim.metadata).test(&["spec", "volumeName"], json!(name));
    if claim.status.is_none() {
        patch = patch.test_version().set(&["status"], json!({}));
    }
    if present.phase.as_deref() != Some("Bound") {
        let seen = present.phase.map(|phase| json!(phase));
        patch = patch.change(&["status", "phase"], seen, json!("Bound"));
    }
    if modes.is_some() && present.access_modes != modes {
        patch = patch.set(&["status", "accessModes"], json!(modes));
    }
    if capacity.is_some() && present.capacity != capacity {
        patch = patch.set(&["status", "capacity"], json!(capacity));
    }
    patch.build()
}

/// The host's phase is not `Bound`: the tenant's takes it at once.
fn other_phase(claim: &PersistentVolumeClaim, phase: &str, policy: &Policy) -> Decision {
    let waiting = || match phase {
        "Pending" => Decision::waiting(
            Step::Status,
            "WaitingForHost",
            "waits for the host to bind the claim to a volume",
        ),
        _ => Decision::refused(
            Step::Status,
            Reason::new("VolumeLost", "the host has lost the volume that the claim was bound to"),
        ),
    };
    // A binder in the tenant would put its own phase back: only one of them can write it.
    if claim_phase(claim) == phase || policy.tenant.binder == Binder::Tenant {
        return waiting();
    }
    let mut patch = PatchBuilder::new(&claim.metadata);
    if claim.status.is_none() {
        patch = patch.test_version().set(&["status"], json!({}));
    }
    let seen = claim.status.as_ref().and_then(|status| status.phase.as_ref());
    let seen = seen.map(|phase| json!(phase));
    let patch = patch.change(&["status", "phase"], seen, json!(phase)).build();
    write_if(Step::Status, claim_object(claim), patch.map(Action::PatchStatus), "host's phase")
}

fn claim_object(claim: &PersistentVolumeClaim) -> ObjectRef {
    let meta = &claim.metadata;
    ObjectRef::namespaced(
        Side::Tenant,
        Kind::Claim,
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn write_if(step: Step, object: ObjectRef, action: Option<Action>, why: &'static str) -> Decision {
    match action {
        Some(action) => Decision::write(step, Write { object, action, why }),
        None => Decision::done(step),
    }
}
