//! The upsyncer: carries a transformed volume up, and keeps its copy as the host's is.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::{
    class_name,
    ownership::{annotation, is_copy, is_made_for, is_marked},
    volume_phase,
};
use crate::{
    claim_ref,
    fact::ClaimFacts,
    names::{PROVISIONED_BY, PROVISIONER},
    patch::PatchBuilder,
    policy::{Binder, Policy},
    step::{Reason, Step},
    write::{Action, Decision, Kind, ObjectRef, Side, Verdict, Write},
};

const STEP: Step = Step::Upsync;
/// A volume in the tenant that is in the way may go without any fact of the claim.
const COLLISION_RECHECK: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);
/// Annotations of a host's controllers, which mean nothing in the tenant, or worse.
const HOST_ONLY: [&str; 3] =
    ["pv.kubernetes.io/", "volume.kubernetes.io/", "kubectl.kubernetes.io/"];

/// Decides what the upsyncer does about a claim's volumes.
pub fn decide(facts: &ClaimFacts, policy: &Policy, _now: Timestamp) -> Decision {
    if policy.tenant.paused {
        return Decision::ignored(STEP);
    }
    let decisions: Vec<_> = facts
        .host_volumes
        .values()
        .filter_map(|fact| fact.live())
        .filter(|volume| is_marked(volume, policy))
        .filter(|volume| !is_left_over(facts, volume, policy))
        .map(|volume| carry_up(facts, volume, policy))
        .collect();
    // A volume that can't be carried up holds up no other one.
    let writes = decisions.iter().find(|decision| !decision.writes.is_empty());
    let open = decisions.iter().find(|decision| decision.verdict != Verdict::Done);
    let next = writes.or(open).or(decisions.first());
    next.cloned().unwrap_or_else(|| Decision::ignored(STEP))
}

/// Whether a volume was carried up for an earlier claim of this name and is not bound for the
/// claim that is there now: it says nothing about this one.
fn is_left_over(facts: &ClaimFacts, host: &PersistentVolume, policy: &Policy) -> bool {
    let Some(claim) = facts.live_tenant_claim() else {
        return false;
    };
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let bound_uid = host.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref());
    let bound_for_it = facts.live_host_claim().is_some_and(|host_claim| {
        is_made_for(host_claim, uid, policy) && host_claim.metadata.uid.as_ref() == bound_uid
    });
    let made_for = annotation(&host.metadata, &policy.names.diff())
        .and_then(|diff| claim_ref::parse_diff(diff).ok());
    !bound_for_it && made_for.is_some_and(|made_for| !claim_ref::names_claim(&made_for, claim))
}

fn carry_up(facts: &ClaimFacts, host: &PersistentVolume, policy: &Policy) -> Decision {
    let Some(claim) = facts.live_tenant_claim() else {
        return Decision::waiting(STEP, "WaitingForClaim", "waits to see the tenant's claim");
    };
    let copy = match copy_of(host, claim, policy) {
        Ok(copy) => copy,
        Err(reason) => return Decision::refused(STEP, reason),
    };
    let name = host.metadata.name.clone().unwrap_or_default();
    let write = |action, why| {
        let object = ObjectRef::cluster(Side::Tenant, Kind::Volume, &name);
        Decision::write(STEP, Write { object, action, why })
    };
    let Some(present) = facts.live_tenant_volume(&name) else {
        return write(Action::Create(json!(copy)), "volume carried up");
    };
    if !is_copy(present, host, claim, policy) {
        return Decision::refused(
            STEP,
            Reason::new(
                "VolumeCollision",
                format!("a volume {name} that is not Carrick's is in the way in the tenant"),
            ),
        )
        .recheck(COLLISION_RECHECK);
    }
    if present.metadata.deletion_timestamp.is_some() {
        return Decision::waiting(
            STEP,
            "VolumeTerminating",
            "waits for the tenant's volume, which is being deleted, to go",
        );
    }
    if let Some(patch) = repair(present, &copy) {
        return write(Action::Patch(patch), "volume put right");
    }
    match status(present, host, policy) {
        Some(patch) => write(Action::PatchStatus(patch), "volume status"),
        None => Decision::done(STEP),
    }
}

/// The volume as it is to stand in the tenant.
fn copy_of(
    host: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Result<PersistentVolume, Reason> {
    let names = &policy.names;
    let refused = |message: String| Reason::new("DiffRefused", message);
    let diff = annotation(&host.metadata, &names.diff())
        .ok_or_else(|| refused("the host volume is marked but has no upsyncdiff".to_owned()))?;
    let reference = claim_ref::parse_diff(diff).map_err(|error| refused(error.to_string()))?;
    if !claim_ref::names_claim(&reference, claim) {
        return Err(refused("the upsyncdiff of the volume names another claim".to_owned()));
    }
    let mut copy = PersistentVolume { spec: host.spec.clone(), ..PersistentVolume::default() };
    claim_ref::apply_diff(&mut copy, diff).map_err(|error| refused(error.to_string()))?;
    if let Some(spec) = &mut copy.spec {
        // The class under the tenant's name for it, not under the host's, whatever the rules are by
        // now; `""` is left out of a volume.
        let classes = &policy.tenant.classes;
        let default = classes.default.as_deref().filter(|default| {
            let mapped = classes.mapped.get(*default);
            mapped.is_some() && mapped == spec.storage_class_name.as_ref()
        });
        if let Some(class) = class_name(claim).or(default) {
            spec.storage_class_name = Some(class.to_owned()).filter(|class| !class.is_empty());
        }
    }
    let meta = &mut copy.metadata;
    meta.name.clone_from(&host.metadata.name);
    meta.finalizers = Some(vec![names.finalizer()]);
    let labels = host.metadata.labels.clone().unwrap_or_default();
    meta.labels = Some(labels.into_iter().filter(|(key, _)| *key != names.cluster()).collect());
    let annotations = host.metadata.annotations.clone().unwrap_or_default();
    let goes_up = |key: &str| {
        key != names.locator()
            && key != names.diff()
            && !HOST_ONLY.iter().any(|prefix| key.starts_with(prefix))
    };
    let annotations =
        meta.annotations.insert(annotations.into_iter().filter(|(key, _)| goes_up(key)).collect());
    annotations.insert(PROVISIONED_BY.to_owned(), PROVISIONER.to_owned());
    annotations
        .insert(names.carried_rv(), host.metadata.resource_version.clone().unwrap_or_default());
    Ok(copy)
}

/// The patch that makes a copy what it is to be. What others added to its metadata stays.
fn repair(present: &PersistentVolume, copy: &PersistentVolume) -> Option<json_patch::Patch> {
    let mut patch = PatchBuilder::new(&present.metadata);
    for (key, value) in copy.metadata.labels.iter().flatten() {
        patch = patch.label(key, value);
    }
    for (key, value) in copy.metadata.annotations.iter().flatten() {
        patch = patch.annotation(key, value);
    }
    for finalizer in copy.metadata.finalizers.iter().flatten() {
        patch = patch.finalizer(finalizer);
    }
    let (present, wanted) = (json!(present.spec), json!(copy.spec));
    let (Value::Object(present), Value::Object(wanted)) = (present, wanted) else {
        return patch.build();
    };
    for (field, value) in &wanted {
        let same = match field.as_str() {
            "claimRef" => same_claim(present.get(field), value),
            _ => present.get(field) == Some(value),
        };
        if !same {
            patch = patch.set(&["spec", field], value.clone());
        }
    }
    for (field, value) in present.iter().filter(|(field, _)| !wanted.contains_key(*field)) {
        patch = patch.remove(&["spec", field], value.clone());
    }
    patch.build()
}

/// Whether a claimRef names the same claim; its resourceVersion is the binder's to change.
fn same_claim(present: Option<&Value>, wanted: &Value) -> bool {
    present.is_some_and(|present| {
        ["namespace", "name", "uid"].iter().all(|field| present.get(field) == wanted.get(field))
    })
}

/// The volume's phase, where no binder in the tenant writes it.
fn status(
    present: &PersistentVolume,
    host: &PersistentVolume,
    policy: &Policy,
) -> Option<json_patch::Patch> {
    if policy.tenant.binder == Binder::Tenant {
        return None;
    }
    let wanted = volume_phase(host)?;
    if volume_phase(present) == Some(wanted) {
        return None;
    }
    let patch = PatchBuilder::new(&present.metadata);
    match present.status {
        Some(_) => {
            let seen = volume_phase(present).map(|phase| json!(phase));
            patch.change(&["status", "phase"], seen, json!(wanted)).build()
        }
        None => patch.test_version().set(&["status"], json!({"phase": wanted})).build(),
    }
}
