//! The upsyncer: carries a transformed volume up, keeps its copy as the host's is, and takes it away
//! once the host's is gone.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::{
    claim_phase, class_name,
    down::host_claim_ref,
    ownership::{annotation, has_our_marks, is_copy, is_made_for, is_marked},
    volume_name, volume_phase,
};
use crate::{
    claim_ref,
    fact::{ClaimFacts, Fact},
    names::{PROVISIONED_BY, PROVISIONER, PV_IN_USE},
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
    let up = facts
        .host_volumes
        .values()
        .filter_map(Fact::live)
        .filter(|volume| is_marked(volume, policy) && !is_removed(facts, policy))
        .filter_map(|volume| carry_up(facts, volume, policy));
    let away = facts
        .tenant_volumes
        .iter()
        .filter_map(|(name, fact)| Some((name, fact.live()?)))
        .filter_map(|(name, copy)| take_away(facts, name, copy, policy));
    // A volume that can't be carried up or taken away holds up no other one.
    let decisions: Vec<_> = up.chain(away).collect();
    let acts = |decision: &&Decision| !decision.writes.is_empty() || !decision.asks.is_empty();
    let open = |decision: &&Decision| decision.verdict != Verdict::Done;
    let next = decisions.iter().find(acts).or_else(|| decisions.iter().find(open));
    let next = next.or(decisions.first());
    next.cloned().unwrap_or_else(|| Decision::ignored(STEP))
}

/// Whether the tenant is being removed and the claim's host side has gone: its copies go with it,
/// also where the host keeps the volume.
fn is_removed(facts: &ClaimFacts, policy: &Policy) -> bool {
    policy.tenant.removing && facts.live_host_claim().is_none()
}

/// The claim that a marked host volume was marked for.
fn marked_for(host: &PersistentVolume, policy: &Policy) -> Result<ObjectReference, Reason> {
    let refused = |message: String| Reason::new("DiffRefused", message);
    let diff = annotation(&host.metadata, &policy.names.diff())
        .ok_or_else(|| refused("the host volume is marked but has no upsyncdiff".to_owned()))?;
    claim_ref::parse_diff(diff).map_err(|error| refused(error.to_string()))
}

/// Whether the host has bound a volume to the host claim that is there now.
fn is_bound_here(facts: &ClaimFacts, host: &PersistentVolume) -> bool {
    let bound = host.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref());
    let claim = facts.live_host_claim().and_then(|claim| claim.metadata.uid.as_ref());
    bound.is_some() && bound == claim
}

/// What to do about a marked host volume; `None` if it has nothing to do with this claim.
fn carry_up(facts: &ClaimFacts, host: &PersistentVolume, policy: &Policy) -> Option<Decision> {
    let reference = match marked_for(host, policy) {
        Ok(reference) => reference,
        Err(reason) => return Some(Decision::refused(STEP, reason)),
    };
    let claim = facts.live_tenant_claim();
    if let Some(claim) = claim.filter(|claim| claim_ref::names_claim(&reference, claim)) {
        return Some(bring(facts, host, &reference, claim, policy));
    }
    let awaited = match claim {
        Some(claim) => facts.live_host_claim().is_some_and(|found| {
            is_made_for(found, claim.metadata.uid.as_deref().unwrap_or_default(), policy)
        }),
        None => facts.tenant_claim.is_none(),
    };
    if awaited && is_bound_here(facts, host) {
        let of_this_name = reference.namespace.as_ref() == Some(&facts.key.namespace)
            && reference.name.as_ref() == Some(&facts.key.claim);
        return Some(if of_this_name {
            let message = "waits to see the claim that the host volume was marked for";
            Decision::waiting(STEP, "WaitingForClaim", message)
        } else {
            let message = "the upsyncdiff of the volume names another claim";
            Decision::refused(STEP, Reason::new("DiffRefused", message))
        });
    }
    outlives(facts, host, &reference, policy)
}

/// Carries a volume up for the claim that it was marked for, or puts its copy right.
fn bring(
    facts: &ClaimFacts,
    host: &PersistentVolume,
    reference: &ObjectReference,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Decision {
    let Ok(mut copy) = copy_of(host, reference, class_of(host, claim, policy), policy) else {
        let message = "waits for the host volume to name a claim again";
        return Decision::waiting(STEP, "WaitingForVolume", message);
    };
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    name_attributes_class(&mut copy, named, policy);
    let name = host.metadata.name.clone().unwrap_or_default();
    let Some(present) = facts.live_tenant_volume(&name) else {
        if !is_bound_here(facts, host) {
            let message = "waits for the host to bind the claim to the volume";
            return Decision::waiting(STEP, "WaitingForHost", message);
        }
        return write(&name, Action::Create(json!(copy)), "volume carried up");
    };
    if !is_copy(present, host, reference.uid.as_deref(), policy) {
        return Decision::refused(
            STEP,
            Reason::new(
                "VolumeCollision",
                format!("a volume {name} that is not Carrick's is in the way in the tenant"),
            ),
        )
        .recheck(COLLISION_RECHECK);
    }
    let lost = is_lost_to_binder(facts, claim, &name, policy);
    if present.metadata.deletion_timestamp.is_some() && !lost {
        // It can't be undone: it goes, and is made again.
        return let_go(present, &[&policy.names.finalizer()]);
    }
    if lost {
        let asks = vec![host_claim_ref(facts, policy)];
        return if facts.knows(&asks) {
            send_away(present, policy)
        } else {
            Decision::ask(STEP, asks)
        };
    }
    keep_up(present, host, &copy, policy)
}

/// Whether a claim's host claim is gone although the claim stays, in a tenant whose own binder says
/// what phase the claim has: as long as the volume is there it says `Bound`.
fn is_lost_to_binder(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    volume: &str,
    policy: &Policy,
) -> bool {
    policy.tenant.binder == Binder::Tenant
        && facts.live_host_claim().is_none()
        && claim.metadata.deletion_timestamp.is_none()
        && claim_phase(claim) == "Bound"
        && volume_name(claim) == Some(volume)
}

/// The claim that a volume was marked for is gone, or another one, and the host keeps the volume:
/// its copy stays too, as it is on the host.
fn outlives(
    facts: &ClaimFacts,
    host: &PersistentVolume,
    reference: &ObjectReference,
    policy: &Policy,
) -> Option<Decision> {
    let name = host.metadata.name.as_deref().unwrap_or_default();
    let Some(present) = facts.live_tenant_volume(name) else {
        // Without its claimRef it is filed nowhere, and seems to be gone.
        let copy = vec![ObjectRef::cluster(Side::Tenant, Kind::Volume, name)];
        return (!facts.knows(&copy)).then(|| Decision::ask(STEP, copy));
    };
    if !is_copy(present, host, reference.uid.as_deref(), policy) {
        return None;
    }
    if present.metadata.deletion_timestamp.is_some() {
        return Some(let_go(present, &[&policy.names.finalizer()]));
    }
    let class = present.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    // Where the host's admin has taken the claimRef off, the volume is between two claims.
    let mut copy = copy_of(host, reference, class, policy).ok()?;
    let spec = present.spec.as_ref();
    let named = spec.and_then(|spec| spec.volume_attributes_class_name.as_deref());
    name_attributes_class(&mut copy, named, policy);
    Some(keep_up(present, host, &copy, policy)).filter(|decision| !decision.writes.is_empty())
}

fn keep_up(
    present: &PersistentVolume,
    host: &PersistentVolume,
    copy: &PersistentVolume,
    policy: &Policy,
) -> Decision {
    let name = present.metadata.name.clone().unwrap_or_default();
    if let Some(patch) = repair(present, copy) {
        return write(&name, Action::Patch(patch), "volume put right");
    }
    match status(present, host, policy) {
        Some(patch) => write(&name, Action::PatchStatus(patch), "volume status"),
        None => Decision::done(STEP),
    }
}

/// What to do about a volume in the tenant whose host volume is gone, or is not carried up any more;
/// `None` if it stays, or is not ours.
fn take_away(
    facts: &ClaimFacts,
    name: &str,
    copy: &PersistentVolume,
    policy: &Policy,
) -> Option<Decision> {
    let removed = is_removed(facts, policy);
    let ours = match facts.host_volumes.get(name) {
        None => has_our_marks(copy, policy),
        Some(Fact { object: host, deleted: true }) => {
            is_copy(copy, host, None, policy) || has_our_marks(copy, policy)
        }
        Some(Fact { object: host, .. }) if is_marked(host, policy) => {
            removed && is_copy(copy, host, None, policy)
        }
        // Marks that are missing on a bound volume come back.
        Some(Fact { object: host, .. }) => {
            !is_bound_here(facts, host) && has_our_marks(copy, policy)
        }
    };
    if !ours {
        return None;
    }
    let mut asks = vec![ObjectRef::cluster(Side::Host, Kind::Volume, name)];
    if removed {
        asks.push(host_claim_ref(facts, policy));
    }
    if !facts.knows(&asks) {
        return Some(Decision::ask(STEP, asks));
    }
    Some(send_away(copy, policy))
}

/// Deletes a copy. What protects a bound volume from its users protects nothing any more, and where
/// nobody unbinds it would keep the copy for ever.
fn send_away(copy: &PersistentVolume, policy: &Policy) -> Decision {
    if copy.metadata.deletion_timestamp.is_some() {
        return let_go(copy, &[&policy.names.finalizer(), PV_IN_USE]);
    }
    let name = copy.metadata.name.clone().unwrap_or_default();
    write(&name, Action::delete(&copy.metadata), "volume taken away")
}

/// Takes these finalizers off a volume that is going.
fn let_go(volume: &PersistentVolume, finalizers: &[&str]) -> Decision {
    let builder = PatchBuilder::new(&volume.metadata).test_version();
    let patch = builder.without_finalizers(finalizers).build();
    match patch {
        Some(patch) => {
            let name = volume.metadata.name.clone().unwrap_or_default();
            write(&name, Action::Patch(patch), "finalizer taken off a volume")
        }
        None => Decision::waiting(
            STEP,
            "VolumeTerminating",
            "waits for the tenant's volume, which is being deleted, to go",
        ),
    }
}

fn write(name: &str, action: Action, why: &'static str) -> Decision {
    let object = ObjectRef::cluster(Side::Tenant, Kind::Volume, name);
    Decision::write(STEP, Write { object, action, why })
}

/// The class of a claim's volume under the tenant's name for it, not under the host's, whatever the
/// rules are by now; `""` is left out of a volume.
fn class_of(
    host: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Option<String> {
    let on_host = host.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
    let classes = &policy.tenant.classes;
    let default = classes.default.as_deref().filter(|default| {
        let mapped = classes.mapped.get(*default);
        mapped.is_some() && mapped == on_host.as_ref()
    });
    match class_name(claim).or(default) {
        Some(class) => Some(class.to_owned()).filter(|class| !class.is_empty()),
        None => on_host,
    }
}

/// Names the attributes class of a copy as the tenant does, or not at all.
fn name_attributes_class(copy: &mut PersistentVolume, named: Option<&str>, policy: &Policy) {
    if let Some(spec) = &mut copy.spec {
        let on_host = spec.volume_attributes_class_name.take();
        let classes = &policy.tenant.attributes_classes;
        spec.volume_attributes_class_name =
            on_host.and_then(|class| classes.in_tenant(&class, named));
    }
}

/// The volume as it is to stand in the tenant, for the claim that it was marked for.
fn copy_of(
    host: &PersistentVolume,
    reference: &ObjectReference,
    class: Option<String>,
    policy: &Policy,
) -> Result<PersistentVolume, claim_ref::DiffError> {
    let names = &policy.names;
    let mut copy = PersistentVolume { spec: host.spec.clone(), ..PersistentVolume::default() };
    claim_ref::point_at(&mut copy, reference)?;
    if let Some(spec) = &mut copy.spec {
        spec.storage_class_name = class;
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
