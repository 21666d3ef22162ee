//! What of a tenant's claim goes down: a list of what may, everything else is left out or refused
//! (design section 7). What is carried down stays so, whatever the rules are by now.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
    VolumeResourceRequirements,
};

use super::{
    class_name,
    ownership::{VolumeLocator, is_exactly_for, volume_locator},
    volume_name,
};
use crate::{
    fact::{ClaimFacts, Fact},
    names::PROVISIONER,
    policy::{Binder, HostClass, Policy},
    step::Reason,
    subject::Facet,
    write::{Kind, ObjectRef, Side},
};

/// What is to stand on the host for a claim.
pub(super) enum Desired {
    /// A claim with this spec.
    Spec(Box<PersistentVolumeClaimSpec>),
    /// Nothing: the claim's class is the tenant's own.
    TenantsOwn,
    /// Nothing yet: the tenant's binder does not know the class so far.
    NotPublishedYet(String),
    /// Nothing yet: the tenant has a class of that name of its own, and maybe a binder for it.
    BinderUnknown(String),
    /// Not known: this object has to be read first.
    Ask(ObjectRef),
}

/// What is to stand on the host for a claim.
pub(super) fn desired_spec(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Result<Desired, Reason> {
    let Some(spec) = &claim.spec else {
        return Err(Reason::new("NoSpec", "the claim has no spec"));
    };
    // What is carried down stays so, whatever the rules are by now.
    let on_host = facts.live_host_claim().filter(|host| is_exactly_for(host, claim, policy));
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
    let volume = match on_host {
        // What the claim names by now is what somebody has bound it to.
        Some(host) => host.spec.as_ref().and_then(|spec| spec.volume_name.clone()),
        None => match named_volume(facts, claim, policy)? {
            Ok(volume) => volume,
            Err(instead) => return Ok(instead),
        },
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

/// A volume may be named only if it was carried up to this tenant; then the host claim names it too,
/// so that no other one can take its place.
fn named_volume(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Result<Result<Option<String>, Desired>, Reason> {
    let Some(name) = volume_name(claim) else {
        return Ok(Ok(None));
    };
    let volume = facts.host_volumes.get(name);
    let carried_up = volume
        .and_then(Fact::live)
        .is_some_and(|volume| volume_locator(volume, policy) == VolumeLocator::Ours);
    let bound_to_it = facts.host_claim.as_ref().is_some_and(|fact| {
        volume_name(&fact.object) == Some(name) && is_exactly_for(&fact.object, claim, policy)
    });
    if carried_up || bound_to_it {
        return Ok(Ok(Some(name.to_owned())));
    }
    // It may have been carried up for another claim of this tenant.
    if volume.is_none() && !facts.confirmed.contains(&Facet::HostVolume(name.to_owned())) {
        let volume = ObjectRef::cluster(Side::Host, Kind::Volume, name);
        return Ok(Err(Desired::Ask(volume)));
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
