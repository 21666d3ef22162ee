//! What is known of a claim: the last state of each of its objects, as the watcher saw it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use k8s_openapi::{
    Metadata,
    api::{
        core::v1::{Event, Namespace, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Deserializer, de::DeserializeOwned};

use crate::{step::StepRecord, subject::Facet, write::ObjectRef};

/// A claim as both sides name it: by the tenant's namespace and claim name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimKey {
    /// The Tenant's name.
    pub tenant: String,
    /// The namespace in the tenant.
    pub namespace: String,
    /// The claim's name, the same on both sides.
    pub claim: String,
}

impl ClaimKey {
    /// The key of a claim.
    pub fn new(
        tenant: impl Into<String>,
        namespace: impl Into<String>,
        claim: impl Into<String>,
    ) -> Self {
        Self { tenant: tenant.into(), namespace: namespace.into(), claim: claim.into() }
    }
}

impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.namespace, self.claim)
    }
}

impl FromStr for ClaimKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [tenant, namespace, claim]
                if ![tenant, namespace, claim].iter().any(|part| part.is_empty()) =>
            {
                Ok(Self::new(tenant, namespace, claim))
            }
            _ => Err(format!("{text:?} is not TENANT/NAMESPACE/CLAIM")),
        }
    }
}

/// The last known state of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact<K> {
    /// The object; the last known one if it is gone.
    pub object: K,
    /// Whether the object is gone (a tombstone).
    pub deleted: bool,
}

impl<K: Metadata<Ty = ObjectMeta>> Fact<K> {
    /// The object, unless it is gone.
    pub fn live(&self) -> Option<&K> {
        (!self.deleted).then_some(&self.object)
    }

    /// The object's uid; empty if it has none.
    pub fn uid(&self) -> &str {
        self.object.metadata().uid.as_deref().unwrap_or_default()
    }

    /// The object's resourceVersion, see [`resource_version`].
    pub fn rv(&self) -> u64 {
        resource_version(self.object.metadata())
    }

    /// Whether this is a later state than `other` of the same name: a higher resourceVersion, or
    /// at the same one, a tombstone.
    pub fn newer_than(&self, other: &Self) -> bool {
        (self.rv(), self.deleted) > (other.rv(), other.deleted)
    }
}

/// A resourceVersion as the integer that it is by contract since Kubernetes 1.35; 0 if it is none.
pub fn resource_version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|rv| rv.parse().ok()).unwrap_or(0)
}

/// An object on the bus that does not fit its subject.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", if source.is_data() {
    format!("the {facet} fact is not a valid object")
} else {
    "its body is not JSON".to_owned()
})]
pub struct FactError {
    facet: &'static str,
    source: serde_json::Error,
}

/// All that is known of one claim.
#[derive(Clone, Debug)]
pub struct ClaimFacts {
    /// Which claim.
    pub key: ClaimKey,
    /// The claim in the tenant.
    pub tenant_claim: Option<Fact<PersistentVolumeClaim>>,
    /// The claim on the host.
    pub host_claim: Option<Fact<PersistentVolumeClaim>>,
    /// The claim's namespace in the tenant.
    pub tenant_namespace: Option<Fact<Namespace>>,
    /// The namespace on the host.
    pub host_namespace: Option<Fact<Namespace>>,
    /// Tenant volumes whose claimRef names the claim, or that stand where its volume would go.
    pub tenant_volumes: BTreeMap<String, Fact<PersistentVolume>>,
    /// Host volumes whose claimRef names the host claim.
    pub host_volumes: BTreeMap<String, Fact<PersistentVolume>>,
    /// Classes in the tenant; only for services that read them.
    pub tenant_classes: BTreeMap<String, Fact<StorageClass>>,
    /// The last step of each kind; only for services that read them.
    pub steps: Vec<StepRecord>,
    /// Events on the host claim; only for a decision that tells of them
    /// ([`host_events`](crate::decide::host_events)).
    pub host_events: Vec<Event>,
    /// What an API server itself said a moment ago, because the decision asked for it
    /// ([`Decision::asks`](crate::Decision::asks)). Of these, what is not there is gone for certain.
    pub confirmed: BTreeSet<Facet>,
}

impl ClaimFacts {
    /// Nothing known of `key` yet.
    pub fn new(key: ClaimKey) -> Self {
        Self {
            key,
            tenant_claim: None,
            host_claim: None,
            tenant_namespace: None,
            host_namespace: None,
            tenant_volumes: BTreeMap::new(),
            host_volumes: BTreeMap::new(),
            tenant_classes: BTreeMap::new(),
            steps: Vec::new(),
            host_events: Vec::new(),
            confirmed: BTreeSet::new(),
        }
    }

    /// Takes in one object, parsed or as JSON, unless a newer state of it is known already.
    pub fn insert<'de>(
        &mut self,
        facet: &Facet,
        deleted: bool,
        object: impl Deserializer<'de, Error = serde_json::Error>,
    ) -> Result<(), FactError> {
        match facet {
            Facet::TenantClaim => keep(&mut self.tenant_claim, read(facet, deleted, object)?),
            Facet::HostClaim => keep(&mut self.host_claim, read(facet, deleted, object)?),
            Facet::TenantNamespace => {
                keep(&mut self.tenant_namespace, read(facet, deleted, object)?);
            }
            Facet::HostNamespace => keep(&mut self.host_namespace, read(facet, deleted, object)?),
            Facet::TenantVolume(name) => {
                keep_named(&mut self.tenant_volumes, name, read(facet, deleted, object)?);
            }
            Facet::HostVolume(name) => {
                keep_named(&mut self.host_volumes, name, read(facet, deleted, object)?);
            }
            Facet::TenantClass(name) => {
                keep_named(&mut self.tenant_classes, name, read(facet, deleted, object)?);
            }
            Facet::HostClass(_) => {}
        }
        Ok(())
    }

    /// Takes in what an API server said of an object just now: it, or that there is none. It counts
    /// more than what was known, until something is written.
    pub fn confirm<'de>(
        &mut self,
        facet: &Facet,
        object: Option<impl Deserializer<'de, Error = serde_json::Error>>,
    ) -> Result<(), FactError> {
        match object {
            Some(object) => {
                self.forget(facet);
                self.insert(facet, false, object)?;
            }
            None => self.bury(facet),
        }
        self.confirmed.insert(facet.clone());
        Ok(())
    }

    /// Whether all these objects were confirmed.
    pub fn knows(&self, objects: &[ObjectRef]) -> bool {
        let confirmed = |facet: &Facet| self.confirmed.contains(facet);
        objects.iter().all(|object| object.facet().as_ref().is_some_and(confirmed))
    }

    /// An object is gone: its last known state is kept.
    pub fn bury(&mut self, facet: &Facet) {
        match facet {
            Facet::TenantClaim => bury(self.tenant_claim.as_mut()),
            Facet::HostClaim => bury(self.host_claim.as_mut()),
            Facet::TenantNamespace => bury(self.tenant_namespace.as_mut()),
            Facet::HostNamespace => bury(self.host_namespace.as_mut()),
            Facet::TenantVolume(name) => bury(self.tenant_volumes.get_mut(name)),
            Facet::HostVolume(name) => bury(self.host_volumes.get_mut(name)),
            Facet::TenantClass(name) => bury(self.tenant_classes.get_mut(name)),
            Facet::HostClass(_) => {}
        }
    }

    fn forget(&mut self, facet: &Facet) {
        match facet {
            Facet::TenantClaim => self.tenant_claim = None,
            Facet::HostClaim => self.host_claim = None,
            Facet::TenantNamespace => self.tenant_namespace = None,
            Facet::HostNamespace => self.host_namespace = None,
            Facet::TenantVolume(name) => drop(self.tenant_volumes.remove(name)),
            Facet::HostVolume(name) => drop(self.host_volumes.remove(name)),
            Facet::TenantClass(name) => drop(self.tenant_classes.remove(name)),
            Facet::HostClass(_) => {}
        }
    }

    /// The tenant's claim, unless it is unknown or gone.
    pub fn live_tenant_claim(&self) -> Option<&PersistentVolumeClaim> {
        self.tenant_claim.as_ref().and_then(Fact::live)
    }

    /// The host's claim, unless it is unknown or gone.
    pub fn live_host_claim(&self) -> Option<&PersistentVolumeClaim> {
        self.host_claim.as_ref().and_then(Fact::live)
    }

    /// The tenant's namespace, unless it is unknown or gone.
    pub fn live_tenant_namespace(&self) -> Option<&Namespace> {
        self.tenant_namespace.as_ref().and_then(Fact::live)
    }

    /// The host namespace, unless it is unknown or gone.
    pub fn live_host_namespace(&self) -> Option<&Namespace> {
        self.host_namespace.as_ref().and_then(Fact::live)
    }

    /// A volume of the host, unless it is unknown or gone.
    pub fn live_host_volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.host_volumes.get(name).and_then(Fact::live)
    }

    /// A volume in the tenant, unless it is unknown or gone.
    pub fn live_tenant_volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.tenant_volumes.get(name).and_then(Fact::live)
    }

    /// A class in the tenant, unless it is unknown or gone.
    pub fn live_tenant_class(&self, name: &str) -> Option<&StorageClass> {
        self.tenant_classes.get(name).and_then(Fact::live)
    }
}

/// What is known of a tenant as a whole: its classes, and those of the host that it may use.
#[derive(Clone, Debug, Default)]
pub struct TenantFacts {
    /// The Tenant's name.
    pub tenant: String,
    /// Classes in the tenant.
    pub tenant_classes: BTreeMap<String, Fact<StorageClass>>,
    /// Classes of the host that the tenant may use.
    pub host_classes: BTreeMap<String, Fact<StorageClass>>,
}

impl TenantFacts {
    /// Nothing known of `tenant` yet.
    pub fn new(tenant: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), ..Self::default() }
    }

    /// Takes in one object, parsed or as JSON, unless a newer state of it is known already.
    pub fn insert<'de>(
        &mut self,
        facet: &Facet,
        deleted: bool,
        object: impl Deserializer<'de, Error = serde_json::Error>,
    ) -> Result<(), FactError> {
        match facet {
            Facet::TenantClass(name) => {
                keep_named(&mut self.tenant_classes, name, read(facet, deleted, object)?);
            }
            Facet::HostClass(name) => {
                keep_named(&mut self.host_classes, name, read(facet, deleted, object)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// An object is gone: its last known state is kept.
    pub fn bury(&mut self, facet: &Facet) {
        match facet {
            Facet::TenantClass(name) => bury(self.tenant_classes.get_mut(name)),
            Facet::HostClass(name) => bury(self.host_classes.get_mut(name)),
            _ => {}
        }
    }
}

fn read<'de, K: DeserializeOwned>(
    facet: &Facet,
    deleted: bool,
    object: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<Fact<K>, FactError> {
    K::deserialize(object)
        .map(|object| Fact { object, deleted })
        .map_err(|source| FactError { facet: facet.token(), source })
}

fn bury<K>(fact: Option<&mut Fact<K>>) {
    if let Some(fact) = fact {
        fact.deleted = true;
    }
}

fn keep<K: Metadata<Ty = ObjectMeta>>(slot: &mut Option<Fact<K>>, fact: Fact<K>) {
    if slot.as_ref().is_none_or(|known| fact.newer_than(known)) {
        *slot = Some(fact);
    }
}

fn keep_named<K: Metadata<Ty = ObjectMeta>>(
    map: &mut BTreeMap<String, Fact<K>>,
    name: &str,
    fact: Fact<K>,
) {
    if map.get(name).is_none_or(|known| fact.newer_than(known)) {
        map.insert(name.to_owned(), fact);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(rv: u64, phase: &str) -> Value {
        json!({"metadata": {"name": "data", "resourceVersion": rv.to_string()},
               "status": {"phase": phase}})
    }

    fn phase(facts: &ClaimFacts) -> (&str, bool) {
        let fact = facts.tenant_claim.as_ref().unwrap();
        (fact.object.status.as_ref().unwrap().phase.as_deref().unwrap(), fact.deleted)
    }

    #[test]
    fn an_older_state_never_replaces_a_newer_one() {
        let mut facts = ClaimFacts::new(ClaimKey::new("acme", "team-a", "data"));
        facts.insert(&Facet::TenantClaim, false, claim(10, "Bound")).unwrap();
        facts.insert(&Facet::TenantClaim, false, claim(9, "Pending")).unwrap();
        assert_eq!(phase(&facts), ("Bound", false), "9 is older, as a number and not as a text");
        facts.insert(&Facet::TenantClaim, true, claim(10, "Bound")).unwrap();
        assert_eq!(phase(&facts), ("Bound", true), "a tombstone of the same version is later");
        facts.insert(&Facet::TenantClaim, false, claim(10, "Bound")).unwrap();
        assert_eq!(phase(&facts), ("Bound", true));
        assert!(facts.live_tenant_claim().is_none());
        facts.insert(&Facet::TenantClaim, false, claim(11, "Pending")).unwrap();
        assert_eq!(phase(&facts), ("Pending", false));
    }

    #[test]
    fn an_object_that_does_not_fit_is_an_error_that_names_it() {
        let mut facts = ClaimFacts::new(ClaimKey::new("acme", "team-a", "data"));
        let error = facts.insert(&Facet::HostClaim, false, json!({"metadata": 1})).unwrap_err();
        assert!(error.to_string().contains("host-claim"), "{error}");
    }

    #[test]
    fn a_key_is_read_as_it_is_written() {
        let key = ClaimKey::new("acme", "team-a", "data");
        assert_eq!("acme/team-a/data".parse(), Ok(key));
        for wrong in ["acme", "acme/team-a", "acme//data", "a/b/c/d"] {
            assert!(wrong.parse::<ClaimKey>().is_err(), "{wrong}");
        }
    }
}
