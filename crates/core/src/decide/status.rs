//! The status-syncer: lets the tenant see what the host has.
//!
//! `Bound` is held back until the tenant has the volume with its claimRef; every other phase
//! passes at once, at any time.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ModifyVolumeStatus, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition,
    PersistentVolumeClaimStatus,
};
use serde_json::json;

use super::{
    claim_phase,
    down::host_claim_ref,
    ownership::{annotation, has_finalizer, is_copy, is_exactly_for, is_made_for, is_marked},
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

/// What of a claim's status goes up.
const STATUS_FIELDS: [&str; 8] = [
    "phase",
    "accessModes",
    "capacity",
    "allocatedResources",
    "allocatedResourceStatuses",
    "currentVolumeAttributesClassName",
    "modifyVolumeStatus",
    "conditions",
];
/// What of it goes when the host has it no more.
const OF_THE_HOST_ALONE: [&str; 4] = [
    "allocatedResources",
    "allocatedResourceStatuses",
    "currentVolumeAttributesClassName",
    "modifyVolumeStatus",
];
/// Conditions of claims that Kubernetes itself sets on the host; others are somebody's own.
const HOST_CONDITIONS: [&str; 6] = [
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    "NodeResizeError",
    "ModifyingVolume",
    "ModifyVolumeError",
];

/// Decides what the status-syncer does about a claim, and what it tells the tenant.
pub fn decide(facts: &ClaimFacts, policy: &Policy, now: Timestamp) -> Decision {
    let Some(claim) = facts.live_tenant_claim() else {
        return Decision::ignored(Step::Status);
    };
    if policy.tenant.paused {
        return Decision::ignored(Step::Status);
    }
    let decision = progress(facts, claim, policy);
    if !decision.writes.is_empty() || !decision.asks.is_empty() {
        return decision;
    }
    tell::decide(facts, claim, policy, decision, now)
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
    match facts.live_host_claim() {
        None => gone(facts, claim, policy),
        Some(host) if !is_made_for(host, uid, policy) => Decision::ignored(Step::Status),
        Some(host) => match claim_phase(host) {
            "Bound" => bound(facts, claim, host, policy),
            phase => other_phase(claim, phase, policy),
        },
    }
}

/// Whether the tenant sees a claim bound that the host does not have bound, or to another volume:
/// `carrick_claim_phase_mismatch` counts these.
pub fn is_mismatched(facts: &ClaimFacts, policy: &Policy) -> bool {
    let Some(claim) = facts.live_tenant_claim().filter(|claim| claim_phase(claim) == "Bound")
    else {
        return false;
    };
    let carried = has_finalizer(&claim.metadata, &policy.names.finalizer());
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let host = facts.live_host_claim().filter(|host| is_made_for(host, uid, policy));
    carried
        && host.is_none_or(|host| {
            claim_phase(host) != "Bound"
                || (volume_name(claim).is_some() && volume_name(claim) != volume_name(host))
        })
}

/// The host claim is gone, or not seen: a claim that was bound is lost then, since nothing may take
/// the place of its data. One that never was is carried down again.
fn gone(facts: &ClaimFacts, claim: &PersistentVolumeClaim, policy: &Policy) -> Decision {
    let was_its = facts.host_claim.as_ref().is_some_and(|fact| {
        is_exactly_for(&fact.object, claim, policy) && volume_name(&fact.object).is_some()
    });
    let carried = has_finalizer(&claim.metadata, &policy.names.finalizer());
    let phase = claim_phase(claim);
    // Of a claim that is being deleted the host claim goes first.
    let leaves = claim.metadata.deletion_timestamp.is_some();
    if leaves || !(was_its || (carried && matches!(phase, "Bound" | "Lost"))) {
        return Decision::ignored(Step::Status);
    }
    let asks = vec![host_claim_ref(facts, policy)];
    if phase == "Bound" && !facts.knows(&asks) {
        return Decision::ask(Step::Status, asks);
    }
    other_phase(claim, "Lost", policy)
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
    if policy.tenant.binder == Binder::Tenant && claim_phase(claim) != "Bound" {
        return Decision::waiting(
            Step::Status,
            "WaitingForBinder",
            "the volume is there; waits for the tenant's own binder to bind the claim",
        );
    }
    let action = status_patch(claim, host, volume, policy).map(Action::PatchStatus);
    write_if(Step::Status, claim_object(claim), action, "claim status")
}

/// The status of a bound claim, where it differs from the host's. Where the tenant has a binder, the
/// phase and the access modes are the binder's; nobody else in the tenant resizes or changes the
/// volume, so the rest is ours there too.
fn status_patch(
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    policy: &Policy,
) -> Option<json_patch::Patch> {
    let present = claim.status.clone().unwrap_or_default();
    let wanted = wanted_status(claim, host, volume, policy);
    let mut patch = PatchBuilder::new(&claim.metadata);
    if let Some(name) = volume_name(claim) {
        patch = patch.test(&["spec", "volumeName"], json!(name));
    }
    if claim.status.is_none() {
        patch = patch.test_version().set(&["status"], json!({}));
    }
    let (present, wanted) = (json!(present), json!(wanted));
    for field in STATUS_FIELDS {
        let others = ["phase", "accessModes"].contains(&field);
        if others && policy.tenant.binder == Binder::Tenant {
            continue;
        }
        patch = match (present.get(field), wanted.get(field)) {
            (seen, Some(value)) if seen != Some(value) => {
                patch.change(&["status", field], seen.cloned(), value.clone())
            }
            (Some(seen), None) if OF_THE_HOST_ALONE.contains(&field) => {
                patch.remove(&["status", field], seen.clone())
            }
            _ => patch,
        };
    }
    patch.build()
}

/// The host's status in the tenant's words.
fn wanted_status(
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    policy: &Policy,
) -> PersistentVolumeClaimStatus {
    let host_namespace = host.metadata.namespace.clone().unwrap_or_default();
    let host = host.status.clone().unwrap_or_default();
    let spec = volume.spec.as_ref();
    let classes = &policy.tenant.attributes_classes;
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let modify = host.modify_volume_status.map(|status| ModifyVolumeStatus {
        target_volume_attributes_class_name: status
            .target_volume_attributes_class_name
            .and_then(|class| classes.in_tenant(&class, named)),
        ..status
    });
    PersistentVolumeClaimStatus {
        phase: Some("Bound".to_owned()),
        access_modes: host.access_modes.or_else(|| spec?.access_modes.clone()),
        capacity: host.capacity.or_else(|| spec?.capacity.clone()),
        allocated_resources: host.allocated_resources,
        allocated_resource_statuses: host.allocated_resource_statuses,
        current_volume_attributes_class_name: host
            .current_volume_attributes_class_name
            .and_then(|class| classes.in_tenant(&class, named)),
        modify_volume_status: modify,
        conditions: conditions(claim, host.conditions.unwrap_or_default(), &host_namespace),
        ..PersistentVolumeClaimStatus::default()
    }
}

/// The conditions of the tenant's claim: those that tell of resizing and changing the volume as the
/// host has them, all others as they are.
fn conditions(
    claim: &PersistentVolumeClaim,
    on_host: Vec<PersistentVolumeClaimCondition>,
    host_namespace: &str,
) -> Option<Vec<PersistentVolumeClaimCondition>> {
    let present = claim.status.as_ref().and_then(|status| status.conditions.clone());
    let is_hosts = |condition: &PersistentVolumeClaimCondition| {
        HOST_CONDITIONS.contains(&condition.type_.as_str())
    };
    let mut on_host: Vec<_> = on_host.into_iter().filter(is_hosts).collect();
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    for condition in &mut on_host {
        let message = condition.message.take();
        condition.message = message.map(|text| text.replace(host_namespace, namespace));
    }
    let mut wanted = Vec::new();
    for condition in present.iter().flatten() {
        if !is_hosts(condition) {
            wanted.push(condition.clone());
        } else if let Some(index) = on_host.iter().position(|c| c.type_ == condition.type_) {
            wanted.push(on_host.remove(index));
        }
    }
    wanted.append(&mut on_host);
    (present.is_some() || !wanted.is_empty()).then_some(wanted)
}

/// The host's phase is not `Bound`: the tenant's takes it at once.
fn other_phase(claim: &PersistentVolumeClaim, phase: &str, policy: &Policy) -> Decision {
    let binds = policy.tenant.binder == Binder::Tenant;
    let seen_bound = claim_phase(claim) == "Bound";
    let waiting = || match phase {
        "Pending" if seen_bound => Decision::refused(
            Step::Status,
            Reason::new(
                "PhaseMismatch",
                "the tenant's own controllers have bound the claim, and the host has not",
            ),
        ),
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
    // A binder in the tenant would put its own phase back at once. It changes its mind when the
    // volume goes, which is the upsyncer's to see to.
    if claim_phase(claim) == phase || binds {
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
