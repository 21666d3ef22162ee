//! The downsyncer: carries a tenant's claim down to the host.
//!
//! Finalizer on the tenant claim first, then the host namespace, then the host claim, created
//! whole: with the mark that holds back `Bound` and the uid of the tenant claim. Afterwards only
//! what differs is patched, and never that mark: putting it back would hide a bound claim again.

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Namespace, PersistentVolumeClaim, PersistentVolumeClaimSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::json;

use super::{
    claim_phase,
    ownership::{
        ClaimOwner, annotation, check_host_namespace, claim_owner, has_finalizer, is_exactly_for,
    },
    spec::{Desired, desired_spec},
    undo, volume_name,
};
use crate::{
    fact::ClaimFacts,
    names::{DELAYED, TENANT_CLAIM_UID, is_reserved},
    patch::PatchBuilder,
    policy::Policy,
    quantity,
    step::{Reason, Step},
    subject::Facet,
    write::{Action, Decision, Kind, ObjectRef, Side, Write},
};

const STEP: Step = Step::Claim;
/// What stands in the way on a host may go without any fact of the claim.
const COLLISION_RECHECK: SignedDuration = SignedDuration::from_secs(60);

/// Decides what the downsyncer does about a claim.
pub fn decide(facts: &ClaimFacts, policy: &Policy, _now: Timestamp) -> Decision {
    if policy.tenant.paused {
        return Decision::ignored(STEP);
    }
    if let Some(undoing) = undo::decide(facts, policy) {
        return undoing;
    }
    let Some(claim) = facts.live_tenant_claim() else {
        return Decision::ignored(STEP);
    };
    let meta = &claim.metadata;
    let select = &policy.tenant.select;
    let selected = select.selects(&policy.names, &facts.key.namespace, meta.labels.as_ref());
    // What is carried down stays so, whatever is selected by now; the host says what is.
    let is_its = |host: &PersistentVolumeClaim| is_exactly_for(host, claim, policy);
    if !selected && !facts.live_host_claim().is_some_and(is_its) {
        return Decision::ignored(STEP);
    }
    if has_finalizer(meta, &policy.names.finalizer())
        && was_bound(facts, claim)
        && let Some(lost) = lost_sight(facts, policy)
    {
        return lost;
    }
    match desired_spec(facts, claim, policy) {
        Ok(Desired::Spec(spec)) => carry_down(facts, claim, &spec, policy),
        Ok(Desired::TenantsOwn) => Decision::ignored(STEP),
        Ok(Desired::NotPublishedYet(class)) => Decision::waiting(
            STEP,
            "ClassNotPublished",
            format!("waits for storage class {class} to be published in the tenant"),
        ),
        Ok(Desired::BinderUnknown(class)) => Decision::waiting(
            STEP,
            "BinderUnknown",
            format!(
                "storage class {class} is the tenant's own: waits to see whether the tenant binds \
                 claims by itself; an operator can say so by the Tenant's spec.volumeBinder"
            ),
        ),
        Ok(Desired::Ask(object)) => Decision::ask(STEP, vec![object]),
        Err(reason) => Decision::refused(STEP, reason),
    }
}

/// Writes that keep a claim's host side in step while it can't be undone yet; `None` if nothing
/// differs, or nothing may be changed.
pub(super) fn keep_in_step(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    policy: &Policy,
) -> Option<Decision> {
    let Ok(Desired::Spec(spec)) = desired_spec(facts, claim, policy) else {
        return None;
    };
    let object = host_claim_ref(facts, policy);
    Some(keep_up(object, claim, host, &spec)).filter(|decision| !decision.writes.is_empty())
}

fn carry_down(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    spec: &PersistentVolumeClaimSpec,
    policy: &Policy,
) -> Decision {
    if let Some(patch) =
        PatchBuilder::new(&claim.metadata).finalizer(&policy.names.finalizer()).build()
    {
        let object = tenant_claim_ref(facts);
        return write(object, Action::Patch(patch), "finalizer on the tenant's claim");
    }
    let namespace = match host_namespace(facts, policy) {
        Ok(namespace) => namespace,
        Err(decision) => return *decision,
    };
    let object = ObjectRef::namespaced(Side::Host, Kind::Claim, &namespace, &facts.key.claim);
    let Some(host) = facts.live_host_claim() else {
        if was_bound(facts, claim)
            && let Some(lost) = lost_sight(facts, policy)
        {
            return lost;
        }
        let host = json!(host_claim(&namespace, claim, spec, policy));
        return write(object, Action::Create(host), "host claim");
    };
    match claim_owner(host, policy) {
        ClaimOwner::Uid(_) if host.metadata.deletion_timestamp.is_some() => Decision::waiting(
            STEP,
            "HostClaimTerminating",
            "waits for a host claim of this name, which is being deleted, to go",
        ),
        // One of an earlier claim is not left standing: see `undo`.
        ClaimOwner::Uid(_) => keep_up(object, claim, host, spec),
        ClaimOwner::Unrecorded => Decision::done(STEP),
        ClaimOwner::Stranger => Decision::refused(
            STEP,
            Reason::new(
                "ClaimCollision",
                "a claim of this name that is not Carrick's is in the way on the host",
            ),
        )
        .recheck(COLLISION_RECHECK),
    }
}

/// A claim that was bound is not carried down anew: an empty volume would take its data's place.
/// `None` if its host claim is there.
fn lost_sight(facts: &ClaimFacts, policy: &Policy) -> Option<Decision> {
    if facts.live_host_claim().is_some() {
        return None;
    }
    if facts.host_claim.is_none() && !facts.confirmed.contains(&Facet::HostClaim) {
        return Some(Decision::ask(STEP, vec![host_claim_ref(facts, policy)]));
    }
    Some(Decision::refused(
        STEP,
        Reason::new(
            "HostClaimGone",
            "the claim was bound and its host claim is gone; it is not made again, since an empty \
             volume would take the place of its data",
        ),
    ))
}

/// The name of the host namespace, once it stands there and is ours.
fn host_namespace(facts: &ClaimFacts, policy: &Policy) -> Result<String, Box<Decision>> {
    let locator = policy.locator(&facts.key.namespace);
    let names = &policy.names;
    let Some(host) = facts.live_host_namespace() else {
        let name = locator.host_namespace();
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(BTreeMap::from([
                    (names.cluster(), names.key().to_owned()),
                    (names.tenant_id(), locator.tenant_id()),
                ])),
                annotations: Some(BTreeMap::from([(names.locator(), locator.to_json())])),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let object = ObjectRef::cluster(Side::Host, Kind::Namespace, name);
        let create = Action::Create(json!(namespace));
        return Err(Box::new(write(object, create, "host namespace")));
    };
    check_host_namespace(host, policy, &facts.key.namespace)
        .map_err(|reason| Box::new(Decision::refused(STEP, reason).recheck(COLLISION_RECHECK)))?;
    if host.metadata.deletion_timestamp.is_some() {
        return Err(Box::new(Decision::waiting(
            STEP,
            "NamespaceTerminating",
            "waits for the host namespace, which is being deleted, to go",
        )));
    }
    let name = host.metadata.name.clone().unwrap_or_default();
    let labels = PatchBuilder::new(&host.metadata)
        .label(&names.cluster(), names.key())
        .label(&names.tenant_id(), &locator.tenant_id())
        .build();
    match labels {
        None => Ok(name),
        Some(patch) => {
            let object = ObjectRef::cluster(Side::Host, Kind::Namespace, name);
            Err(Box::new(write(object, Action::Patch(patch), "labels of the host namespace")))
        }
    }
}

/// Patches what differs on a host claim that is there.
fn keep_up(
    object: ObjectRef,
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    spec: &PersistentVolumeClaimSpec,
) -> Decision {
    let mut patch = PatchBuilder::new(&host.metadata);
    for (key, value) in carried(claim.metadata.labels.as_ref()) {
        patch = patch.label(key, value);
    }
    for (key, value) in carried(claim.metadata.annotations.as_ref()) {
        patch = patch.annotation(key, value);
    }
    let wanted = spec.volume_attributes_class_name.as_deref();
    let present = host.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    if let Some(wanted) = wanted.filter(|wanted| Some(*wanted) != present) {
        let field = ["spec", "volumeAttributesClassName"];
        patch = patch.change(&field, present.map(|name| json!(name)), json!(wanted));
    }
    let mut shrinks = None;
    if let Some((wanted, present)) = requested(spec).zip(host.spec.as_ref().and_then(requested)) {
        let field = ["spec", "resources", "requests", "storage"];
        match quantity::compare(wanted, present) {
            Some(Ordering::Greater) if claim_phase(host) == "Bound" => {
                patch = patch.change(&field, Some(json!(present)), json!(wanted));
            }
            Some(Ordering::Less) => shrinks = Some((wanted, present)),
            _ => {}
        }
    }
    match (patch.build(), shrinks) {
        (Some(patch), _) => write(object, Action::Patch(patch), "changes of the tenant's claim"),
        (None, Some((wanted, present))) => Decision::refused(
            STEP,
            Reason::new(
                "ShrinkRefused",
                format!(
                    "a claim can't shrink: {} are requested, the host has {}",
                    wanted.0, present.0
                ),
            ),
        ),
        (None, None) => Decision::done(STEP),
    }
}

type Size = k8s_openapi::apimachinery::pkg::api::resource::Quantity;

fn requested(spec: &PersistentVolumeClaimSpec) -> Option<&Size> {
    spec.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// Whether the claim was bound at some time, as far as anything still tells.
fn was_bound(facts: &ClaimFacts, claim: &PersistentVolumeClaim) -> bool {
    let gone = facts.host_claim.as_ref().filter(|fact| {
        annotation(&fact.object.metadata, TENANT_CLAIM_UID) == claim.metadata.uid.as_deref()
    });
    matches!(claim_phase(claim), "Bound" | "Lost")
        || gone.is_some_and(|fact| volume_name(&fact.object).is_some())
}

fn host_claim(
    namespace: &str,
    claim: &PersistentVolumeClaim,
    spec: &PersistentVolumeClaimSpec,
    policy: &Policy,
) -> PersistentVolumeClaim {
    let owned = |(key, value): (&String, &String)| (key.clone(), value.clone());
    let names = &policy.names;
    let mut labels: BTreeMap<_, _> = carried(claim.metadata.labels.as_ref()).map(owned).collect();
    labels.insert(names.cluster(), names.key().to_owned());
    let mut annotations: BTreeMap<_, _> =
        carried(claim.metadata.annotations.as_ref()).map(owned).collect();
    annotations.insert(names.delay(), DELAYED.to_owned());
    annotations.insert(TENANT_CLAIM_UID.to_owned(), claim.metadata.uid.clone().unwrap_or_default());
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: claim.metadata.name.clone(),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(spec.clone()),
        status: None,
    }
}

/// Labels or annotations that a tenant may set on the host.
fn carried(map: Option<&BTreeMap<String, String>>) -> impl Iterator<Item = (&String, &String)> {
    map.into_iter().flatten().filter(|(key, _)| !is_reserved(key))
}

/// The tenant's claim.
pub(super) fn tenant_claim_ref(facts: &ClaimFacts) -> ObjectRef {
    ObjectRef::namespaced(Side::Tenant, Kind::Claim, &facts.key.namespace, &facts.key.claim)
}

/// The claim on the host: where it is, or would be.
pub(super) fn host_claim_ref(facts: &ClaimFacts, policy: &Policy) -> ObjectRef {
    let known = facts.live_host_namespace().and_then(|namespace| namespace.metadata.name.clone());
    let namespace = known.unwrap_or_else(|| policy.locator(&facts.key.namespace).host_namespace());
    ObjectRef::namespaced(Side::Host, Kind::Claim, namespace, &facts.key.claim)
}

fn write(object: ObjectRef, action: Action, why: &'static str) -> Decision {
    Decision::write(STEP, Write { object, action, why })
}
