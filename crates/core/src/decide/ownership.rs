//! Whose an object is. Carrick never writes to an object that these rules do not call its own,
//! save the listed fields of a tenant's claim and a host volume whose claimRef is, by uid, one of
//! its host claims (design section 5, rule 5).

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::{
    identity::Locator,
    names::{PROVISIONED_BY, PROVISIONER, TENANT_CLAIM_UID, UPSYNC},
    policy::Policy,
    step::Reason,
};

/// What a volume's spec says besides where its data is; every other field is its source.
const NOT_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// An annotation's value.
pub fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// A label's value.
pub fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether an object carries a finalizer.
pub fn has_finalizer(meta: &ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|found| found == name)
}

/// Whether a host object carries this sync target's label.
pub fn has_cluster_label(meta: &ObjectMeta, policy: &Policy) -> bool {
    label(meta, &policy.names.cluster()) == Some(policy.names.key())
}

/// Whether a host namespace is the one of the tenant's `namespace`; the reason if it is not.
pub fn check_host_namespace(
    host: &Namespace,
    policy: &Policy,
    namespace: &str,
) -> Result<(), Reason> {
    let collision = |what: &str| {
        Err(Reason::new(
            "NamespaceCollision",
            format!("the host namespace for namespace {namespace} exists already and {what}"),
        ))
    };
    let Some(text) = annotation(&host.metadata, &policy.names.locator()) else {
        return collision("belongs to nobody that Carrick knows");
    };
    match Locator::parse(text) {
        Ok(found) if found == policy.locator(namespace) => Ok(()),
        Ok(_) => collision("belongs to somebody else"),
        Err(_) => collision("has a locator that can't be read"),
    }
}

/// The tenant claim that a host claim was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOwner<'a> {
    /// The tenant claim with this uid.
    Uid(&'a str),
    /// One of this sync target's, carried down by somebody who does not record the uid.
    Unrecorded,
    /// None of ours.
    Stranger,
}

/// Whose a host claim in one of our host namespaces is.
pub fn claim_owner<'a>(claim: &'a PersistentVolumeClaim, policy: &Policy) -> ClaimOwner<'a> {
    if !has_cluster_label(&claim.metadata, policy) {
        return ClaimOwner::Stranger;
    }
    match annotation(&claim.metadata, TENANT_CLAIM_UID) {
        Some(uid) => ClaimOwner::Uid(uid),
        None => ClaimOwner::Unrecorded,
    }
}

/// Whether a host claim was made for this very tenant claim, or may have been.
pub fn is_made_for(host: &PersistentVolumeClaim, tenant_uid: &str, policy: &Policy) -> bool {
    match claim_owner(host, policy) {
        ClaimOwner::Uid(uid) => uid == tenant_uid,
        ClaimOwner::Unrecorded => true,
        ClaimOwner::Stranger => false,
    }
}

/// Whether a host claim was made for this very tenant claim, as it says itself.
pub fn is_exactly_for(
    host: &PersistentVolumeClaim,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> bool {
    matches!(claim_owner(host, policy), ClaimOwner::Uid(uid)
        if Some(uid) == claim.metadata.uid.as_deref())
}

/// Whose a host volume is, by its locator.
pub fn volume_locator(volume: &PersistentVolume, policy: &Policy) -> VolumeLocator {
    match annotation(&volume.metadata, &policy.names.locator()) {
        None => VolumeLocator::Absent,
        Some(text) if Locator::parse(text).is_ok_and(|found| found == policy.locator("")) => {
            VolumeLocator::Ours
        }
        Some(_) => VolumeLocator::Foreign,
    }
}

/// See [`volume_locator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeLocator {
    /// It has none.
    Absent,
    /// This tenant's, carried by this sync target.
    Ours,
    /// Somebody else's, or unreadable.
    Foreign,
}

/// Whether a host volume is marked to be carried up to this tenant.
pub fn is_marked(volume: &PersistentVolume, policy: &Policy) -> bool {
    label(&volume.metadata, &policy.names.state()) == Some(UPSYNC)
        && has_cluster_label(&volume.metadata, policy)
        && volume_locator(volume, policy) == VolumeLocator::Ours
}

/// Whether a volume in the tenant is the copy of this host volume, as it was marked for the claim
/// with this uid.
///
/// The tenant can write and remove every mark on it, but not change its source, which is immutable.
/// So it needs the host's source; then one sign of ours that is left is enough, and without that
/// source none is.
pub fn is_copy(
    volume: &PersistentVolume,
    host: &PersistentVolume,
    claim_uid: Option<&str>,
    policy: &Policy,
) -> bool {
    let (meta, names) = (&volume.metadata, &policy.names);
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let points_at = reference.and_then(|reference| reference.uid.as_deref());
    let signed = label(meta, &names.state()) == Some(UPSYNC)
        || has_finalizer(meta, &names.finalizer())
        || annotation(meta, PROVISIONED_BY) == Some(PROVISIONER)
        || (points_at.is_some() && points_at == claim_uid);
    signed && volume_locator(host, policy) == VolumeLocator::Ours && stands_for(volume, host)
}

/// Whether a volume in the tenant says itself that it is a copy: for where nothing is known of the
/// host's volume any more. The tenant can forge that, to its own loss alone.
pub fn has_our_marks(volume: &PersistentVolume, policy: &Policy) -> bool {
    let (meta, names) = (&volume.metadata, &policy.names);
    label(meta, &names.state()) == Some(UPSYNC)
        && has_finalizer(meta, &names.finalizer())
        && annotation(meta, PROVISIONED_BY) == Some(PROVISIONER)
}

/// Whether a volume in the tenant has the name and the source of this host volume.
fn stands_for(volume: &PersistentVolume, host: &PersistentVolume) -> bool {
    volume.metadata.name == host.metadata.name && has_source_of(volume, host)
}

fn has_source_of(volume: &PersistentVolume, host: &PersistentVolume) -> bool {
    let (present, wanted) = (json!(volume.spec), json!(host.spec));
    let mut source = wanted
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(field, _)| !NOT_SOURCE.contains(&field.as_str()))
        .peekable();
    source.peek().is_some() && source.all(|(field, value)| covers(&present[field], value))
}

/// Whether all of `wanted` is in `present`, which an API server may have filled in. References to
/// secrets don't count: they may change, and say nothing about where the data is.
fn covers(present: &Value, wanted: &Value) -> bool {
    let Value::Object(fields) = wanted else {
        return present == wanted;
    };
    let counts = |field: &str| !field.to_lowercase().ends_with("secretref");
    let mut fields = fields.iter().filter(|(field, _)| counts(field));
    present.is_object() && fields.all(|(field, value)| covers(&present[field], value))
}
