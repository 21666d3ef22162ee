//! The downsyncer: carries a tenant's claim down to the host.
//!
//! Finalizer on the tenant claim first, then the host namespace, then the host claim, created
//! whole: with the mark that holds back `Bound` and the uid of the tenant claim. Afterwards only
//! what differs is patched, and never that mark: putting it back would hide a bound claim again.

use std::{cmp::Ordering, collections::BTreeMap};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{
        Namespace, PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
        VolumeResourceRequirements,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::json;

use super::{
    claim_phase, class_name,
    ownership::{
        ClaimOwner, VolumeLocator, annotation, check_host_namespace, claim_owner, has_finalizer,
        volume_locator,
    },
    volume_name,
};
use crate::{
    fact::ClaimFacts,
    names::{DELAYED, PROVISIONER, TENANT_CLAIM_UID, is_reserved},
    patch::PatchBuilder,
    policy::{Binder, HostClass, Policy},
    quantity,
    step::{Reason, Step},
    write::{Action, Decision, Kind, ObjectRef, Side, Write},
};

const STEP: Step = Step::Claim;
/// What stands in the way on a host may go without any fact of the claim.
const COLLISION_RECHECK: SignedDuration = SignedDuration::from_secs(60);

/// Decides what the downsyncer does about a claim.
pub fn decide(facts: &ClaimFacts, policy: &Policy, _now: Timestamp) -> Decision {
    let Some(claim) = facts.live_tenant_claim() else {
        return Decision::ignored(STEP);
    };
    let meta = &claim.metadata;
    let selected =
        policy.tenant.select.selects(&policy.names, &facts.key.namespace, meta.labels.as_ref());
    if policy.tenant.paused || !selected || meta.deletion_timestamp.is_some() {
        return Decision::ignored(STEP);
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
        Ok(Desired::NotSeenYet) => wait_to_see(),
        Err(reason) => Decision::refused(STEP, reason),
    }
}

fn wait_to_see() -> Decision {
    let message = "the claim has its volume already; waits to see its host claim again";
    Decision::waiting(STEP, "WaitingForHostClaim", message)
}

/// What is to stand on the host for a claim.
enum Desired {
    /// A claim with this spec.
    Spec(Box<PersistentVolumeClaimSpec>),
    /// Nothing: the claim's class is the tenant's own.
    TenantsOwn,
    /// Nothing yet: the tenant's binder does not know the class so far.
    NotPublishedYet(String),
    /// Nothing yet: the tenant has a class of that name of its own, and maybe a binder for it.
    BinderUnknown(String),
    /// Not known: the claim names a volume, and nothing of the host's side is seen so far.
    NotSeenYet,
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
        if was_bound(facts, claim) {
            return lost_sight(facts);
        }
        let host = json!(host_claim(&namespace, claim, spec, policy));
        return write(object, Action::Create(host), "host claim");
    };
    match claim_owner(host, policy) {
        ClaimOwner::Uid(uid) if Some(uid) == claim.metadata.uid.as_deref() => {
            keep_up(object, claim, host, spec)
        }
        ClaimOwner::Unrecorded => Decision::done(STEP),
        ClaimOwner::Uid(_) => Decision::waiting(
            STEP,
            "OlderClaim",
            "waits for the host claim of an earlier claim of this name to go",
        ),
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
fn lost_sight(facts: &ClaimFacts) -> Decision {
    if facts.host_claim.is_none() {
        return wait_to_see();
    }
    Decision::refused(
        STEP,
        Reason::new(
            "HostClaimGone",
            "the claim was bound and its host claim is gone; it is not made again, since an empty \
         volume would take the place of its data",
        ),
    )
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
    match requested(spec).zip(host.spec.as_ref().and_then(requested)) {
        None => {}
        Some((wanted, present)) => match quantity::compare(wanted, present) {
            Some(Ordering::Greater) if claim_phase(host) == "Bound" => {
                patch = patch
                    .test(&["spec", "resources", "requests", "storage"], json!(present))
                    .replace(&["spec", "resources", "requests", "storage"], json!(wanted));
            }
            Some(Ordering::Less) => {
                return Decision::refused(
                    STEP,
                    Reason::new(
                        "ShrinkRefused",
                        format!(
                            "a claim can't shrink: {} are requested, the host has {}",
                            wanted.0, present.0
                        ),
                    ),
                );
            }
            _ => {}
        },
    }
    match patch.build() {
        None => Decision::done(STEP),
        Some(patch) => write(object, Action::Patch(patch), "changes of the tenant's claim"),
    }
}

/// Whether a host claim was made for this very claim.
fn is_carried_for(
    host: &PersistentVolumeClaim,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> bool {
    matches!(claim_owner(host, policy), ClaimOwner::Uid(uid)
        if Some(uid) == claim.metadata.uid.as_deref())
}

/// Whether a claim was carried down and bound, and nothing is known of its host claim so far.
fn is_bound_unseen(facts: &ClaimFacts, claim: &PersistentVolumeClaim, policy: &Policy) -> bool {
    facts.host_claim.is_none()
        && claim_phase(claim) == "Bound"
        && has_finalizer(&claim.metadata, &policy.names.finalizer())
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

/// What of the tenant's spec goes down: a list of what may, everything else is left out or refused.
fn desired_spec(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Result<Desired, Reason> {
    let Some(spec) = &claim.spec else {
        return Err(Reason::new("NoSpec", "the claim has no spec"));
    };
    // What is carried down stays so, whatever the rules are by now.
    let on_host = facts.live_host_claim().filter(|host| is_carried_for(host, claim, policy));
    let class = match on_host {
        Some(host) => host.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()),
        None => match host_class(facts, claim, policy)? {
            Ok(class) => class,
            Err(instead) => return Ok(instead),
        },
    };
    if spec.selector.is_some() {
        return Err(Reason::new(
            "SelectorRefused",
            "spec.selector would choose among the host's volumes; leave it out",
        ));
    }
    let volume = match named_volume(facts, claim, policy)? {
        Ok(volume) => volume,
        Err(instead) => return Ok(instead),
    };
    let size = spec.resources.as_ref().and_then(|r| r.requests.as_ref()?.get("storage"));
    let attributes = spec.volume_attributes_class_name.as_deref().filter(|name| !name.is_empty());
    let attributes = match attributes {
        None => None,
        Some(name) => match policy.tenant.attributes_classes.on_host(Some(name)) {
            HostClass::Named(host) => Some(host),
            HostClass::NotAllowed => {
                return Err(Reason::new(
                    "AttributesClassNotAllowed",
                    format!("volume attributes class {name} is not allowed for this tenant"),
                ));
            }
        },
    };
    Ok(Desired::Spec(Box::new(PersistentVolumeClaimSpec {
        access_modes: spec.access_modes.clone(),
        volume_mode: spec.volume_mode.clone(),
        resources: size.map(|size| VolumeResourceRequirements {
            requests: Some(BTreeMap::from([("storage".to_owned(), size.clone())])),
            limits: None,
        }),
        storage_class_name: class,
        volume_attributes_class_name: attributes,
        data_source: data_source(spec, &facts.key.namespace)?,
        volume_name: volume,
        ..PersistentVolumeClaimSpec::default()
    })))
}

/// The class that the host claim names, or what becomes of the claim instead.
fn host_class(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Result<Result<Option<String>, Desired>, Reason> {
    let named = class_name(claim);
    let rules = &policy.tenant.classes;
    let in_tenant = named.and_then(|name| facts.live_tenant_class(name));
    if let Some(class) = in_tenant.filter(|class| class.provisioner != PROVISIONER) {
        let not_allowed = rules.on_host(named) == HostClass::NotAllowed;
        match policy.tenant.binder {
            Binder::Tenant => return Ok(Err(Desired::TenantsOwn)),
            _ if not_allowed => return Ok(Err(Desired::TenantsOwn)),
            // Its own provisioner may be about to make a volume for the claim, too.
            Binder::Unknown => {
                let name = class.metadata.name.clone().unwrap_or_default();
                return Ok(Err(Desired::BinderUnknown(name)));
            }
            Binder::Carrick => {}
        }
    }
    let class = match rules.on_host(named) {
        HostClass::Named(class) => Some(class),
        // Where facts are still coming in, a claim that was carried down is not refused for it.
        HostClass::NotAllowed if is_bound_unseen(facts, claim, policy) => {
            return Ok(Err(Desired::NotSeenYet));
        }
        HostClass::NotAllowed => {
            let message = match named {
                Some(name) => format!("storage class {name:?} is not allowed for this tenant"),
                None => "the claim names no storage class and the tenant has no default".to_owned(),
            };
            return Err(Reason::new("ClassNotAllowed", message));
        }
    };
    let waits_for_class = policy.tenant.binder == Binder::Tenant
        && named.is_some_and(|name| !name.is_empty())
        && in_tenant.is_none();
    Ok(match named {
        Some(name) if waits_for_class => Err(Desired::NotPublishedYet(name.to_owned())),
        _ => Ok(class),
    })
}

/// A volume may be named only if it was carried up for this very claim name; then the host claim
/// names it too, so that no other one can take its place.
fn named_volume(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Result<Result<Option<String>, Desired>, Reason> {
    let Some(name) = volume_name(claim) else {
        return Ok(Ok(None));
    };
    let volume = facts.host_volumes.get(name);
    let carried_up =
        volume.is_some_and(|fact| volume_locator(&fact.object, policy) == VolumeLocator::Ours);
    let bound_to_it = facts.host_claim.as_ref().is_some_and(|fact| {
        volume_name(&fact.object) == Some(name) && is_carried_for(&fact.object, claim, policy)
    });
    if carried_up || bound_to_it {
        return Ok(Ok(Some(name.to_owned())));
    }
    // Where facts are still coming in, a claim that was carried down is not refused for it.
    let carried_down = has_finalizer(&claim.metadata, &policy.names.finalizer());
    if carried_down && volume.is_none() && facts.host_claim.is_none() {
        return Ok(Err(Desired::NotSeenYet));
    }
    Err(Reason::new(
        "VolumeNameRefused",
        format!("spec.volumeName names {name}, which was not carried up to this tenant"),
    ))
}

/// A data source goes down only if it is a claim of the same namespace.
fn data_source(
    spec: &PersistentVolumeClaimSpec,
    own: &str,
) -> Result<Option<TypedLocalObjectReference>, Reason> {
    let is_claim = |group: Option<&str>, kind: &str| {
        group.is_none_or(str::is_empty) && kind == "PersistentVolumeClaim"
    };
    let refused = |what: &str| {
        Err(Reason::new(
            "DataSourceRefused",
            format!("{what} can't be a data source: only a claim of the same namespace can"),
        ))
    };
    if let Some(reference) = &spec.data_source_ref {
        let elsewhere = |namespace: &str| !namespace.is_empty() && namespace != own;
        if reference.namespace.as_deref().is_some_and(elsewhere) {
            return refused("an object of another namespace");
        }
        if !is_claim(reference.api_group.as_deref(), &reference.kind) {
            return refused(&format!("a {}", reference.kind));
        }
    }
    if let Some(source) = &spec.data_source
        && !is_claim(source.api_group.as_deref(), &source.kind)
    {
        return refused(&format!("a {}", source.kind));
    }
    let name = spec.data_source_ref.as_ref().map(|reference| reference.name.clone());
    let name = name.or_else(|| spec.data_source.as_ref().map(|source| source.name.clone()));
    Ok(name.map(|name| TypedLocalObjectReference {
        api_group: None,
        kind: "PersistentVolumeClaim".to_owned(),
        name,
    }))
}

fn tenant_claim_ref(facts: &ClaimFacts) -> ObjectRef {
    ObjectRef::namespaced(Side::Tenant, Kind::Claim, &facts.key.namespace, &facts.key.claim)
}

fn write(object: ObjectRef, action: Action, why: &'static str) -> Decision {
    Decision::write(STEP, Write { object, action, why })
}
