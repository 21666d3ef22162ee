//! The upsyncer publishes the storage classes that a tenant may use.
//!
//! To a binder in the tenant Carrick is then what a CSI provisioner is: it waits for the
//! provisioner named by the class, binds the volume that comes, and leaves deletion to it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::storage::v1::StorageClass, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;

use super::ownership::{annotation, has_cluster_label, label};
use crate::{
    fact::{Fact, TenantFacts},
    names::{DEFAULT_CLASS, PROVISIONER},
    patch::PatchBuilder,
    policy::{HostClass, Policy},
    step::{Reason, Step},
    write::{Action, Decision, Kind, ObjectRef, Side, Verdict, Write},
};

const STEP: Step = Step::Class;

/// Decides which classes to publish in a tenant, to put right, or to withdraw.
pub fn decide(facts: &TenantFacts, policy: &Policy, _now: Timestamp) -> Decision {
    if policy.tenant.paused {
        return Decision::ignored(STEP);
    }
    let on_host: BTreeMap<&str, &StorageClass> = facts
        .host_classes
        .iter()
        .filter_map(|(name, fact)| fact.live().map(|class| (name.as_str(), class)))
        .collect();
    let rules = &policy.tenant.classes;
    let mut wanted = rules.published(on_host.keys().copied());
    if policy.tenant.removing {
        wanted.clear();
    }
    let mut writes = Vec::new();
    let mut collisions = Vec::new();
    for (name, host) in &wanted {
        let class = published(name, on_host[host.as_str()], policy);
        let present = facts.tenant_classes.get(name).and_then(Fact::live);
        let action = match present {
            None => Some((Action::Create(json!(class)), "storage class published")),
            Some(present) if !is_published(present, policy) => {
                collisions.push(name.as_str());
                None
            }
            // What can't be changed of a class is changed by making it anew.
            Some(present) if present.reclaim_policy != class.reclaim_policy => {
                Some((Action::delete(&present.metadata), "storage class made anew"))
            }
            Some(present) => repair(present, &class, policy)
                .map(|patch| (Action::Patch(patch), "storage class put right")),
        };
        writes.extend(action.map(|(action, why)| write(name, action, why)));
    }
    for (name, present) in &facts.tenant_classes {
        let ours = present.live().filter(|class| {
            // Of the host's classes nothing may be known yet; what it had and has not is gone.
            is_published(class, policy) && has_cluster_label(&class.metadata, policy)
        });
        if let Some(class) =
            ours.filter(|_| !wanted.contains_key(name) && is_over(facts, name, policy))
        {
            writes.push(write(name, Action::delete(&class.metadata), "storage class withdrawn"));
        }
    }
    let verdict = if collisions.is_empty() {
        Verdict::Done
    } else {
        let names = collisions.join(", ");
        let message = format!("storage classes of the tenant's own have these names: {names}");
        Verdict::Refused(Reason::new("ClassCollision", message), None)
    };
    Decision { step: STEP, asks: Vec::new(), writes, verdict }
}

/// Whether a class that is published is over: it is not allowed any more, or gone from the host.
fn is_over(facts: &TenantFacts, name: &str, policy: &Policy) -> bool {
    match policy.tenant.classes.on_host(Some(name)) {
        _ if policy.tenant.removing => true,
        HostClass::NotAllowed => true,
        HostClass::Named(host) => facts.host_classes.get(&host).is_some_and(|fact| fact.deleted),
    }
}

fn write(name: &str, action: Action, why: &'static str) -> Write {
    Write { object: ObjectRef::cluster(Side::Tenant, Kind::Class, name), action, why }
}

/// Whether a class in the tenant is one that this sync target published. Its provisioner can't be
/// changed, its label can be taken off; another sync target's has another one.
fn is_published(class: &StorageClass, policy: &Policy) -> bool {
    class.provisioner == PROVISIONER
        && label(&class.metadata, &policy.names.cluster())
            .is_none_or(|key| key == policy.names.key())
}

/// A class as it is to stand in the tenant. It binds at once: when to bind is decided on the host.
fn published(name: &str, host: &StorageClass, policy: &Policy) -> StorageClass {
    let default = policy.tenant.classes.default.as_deref() == Some(name);
    let annotations =
        default.then(|| BTreeMap::from([(DEFAULT_CLASS.to_owned(), "true".to_owned())]));
    StorageClass {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(BTreeMap::from([(policy.names.cluster(), policy.names.key().to_owned())])),
            annotations,
            ..ObjectMeta::default()
        },
        provisioner: PROVISIONER.to_owned(),
        reclaim_policy: host.reclaim_policy.clone(),
        allow_volume_expansion: host.allow_volume_expansion,
        volume_binding_mode: Some("Immediate".to_owned()),
        ..StorageClass::default()
    }
}

/// What can be changed of a class that is published already.
fn repair(
    present: &StorageClass,
    wanted: &StorageClass,
    policy: &Policy,
) -> Option<json_patch::Patch> {
    let mut patch =
        PatchBuilder::new(&present.metadata).label(&policy.names.cluster(), policy.names.key());
    let is_default = annotation(&present.metadata, DEFAULT_CLASS) == Some("true");
    let to_be_default = annotation(&wanted.metadata, DEFAULT_CLASS).is_some();
    if is_default != to_be_default {
        patch = patch.annotation(DEFAULT_CLASS, if to_be_default { "true" } else { "false" });
    }
    let expands = wanted.allow_volume_expansion.unwrap_or(false);
    if present.allow_volume_expansion.unwrap_or(false) != expands {
        patch = patch.set(&["allowVolumeExpansion"], json!(expands));
    }
    patch.build()
}
