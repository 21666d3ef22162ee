//! The upsyncer publishes the storage classes that a tenant may use.
//!
//! To a binder in the tenant Carrick is then what a CSI provisioner is: it waits for the
//! provisioner named by the class, binds the volume that comes, and leaves deletion to it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::storage::v1::StorageClass, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;

use super::ownership::{annotation, has_cluster_label};
use crate::{
    fact::{Fact, TenantFacts},
    names::{DEFAULT_CLASS, PROVISIONER},
    patch::PatchBuilder,
    policy::Policy,
    step::{Reason, Step},
    write::{Action, Decision, Kind, ObjectRef, Side, Verdict, Write},
};

const STEP: Step = Step::Class;

/// Decides which classes to publish in a tenant, or to put right.
pub fn decide(facts: &TenantFacts, policy: &Policy, _now: Timestamp) -> Decision {
    if policy.tenant.paused {
        return Decision::ignored(STEP);
    }
    let on_host: BTreeMap<&str, &StorageClass> = facts
        .host_classes
        .iter()
        .filter_map(|(name, fact)| fact.live().map(|class| (name.as_str(), class)))
        .collect();
    let mut writes = Vec::new();
    let mut collisions = Vec::new();
    for (name, host) in policy.tenant.classes.published(on_host.keys().copied()) {
        let class = published(&name, on_host[host.as_str()], policy);
        let object = ObjectRef::cluster(Side::Tenant, Kind::Class, &name);
        match facts.tenant_classes.get(&name).and_then(Fact::live) {
            None => {
                let action = Action::Create(json!(class));
                writes.push(Write { object, action, why: "storage class published" });
            }
            Some(present) if !is_published(present, policy) => collisions.push(name),
            Some(present) => {
                if let Some(patch) = repair(present, &class) {
                    let action = Action::Patch(patch);
                    writes.push(Write { object, action, why: "storage class put right" });
                }
            }
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

/// Whether a class in the tenant is one that this sync target published.
fn is_published(class: &StorageClass, policy: &Policy) -> bool {
    class.provisioner == PROVISIONER && has_cluster_label(&class.metadata, policy)
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
fn repair(present: &StorageClass, wanted: &StorageClass) -> Option<json_patch::Patch> {
    let mut patch = PatchBuilder::new(&present.metadata);
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
