//! Whether a tenant has a volume binder of its own: told by who manages the fields that only a
//! binder writes. Pure.

use carrick_core::Kind;
use serde_json::Value;

/// The field manager of a binder.
const MANAGER: &str = "kube-controller-manager";

/// Annotations on a claim that only a binder writes.
const ANNOTATIONS: [&str; 4] = [
    "f:volume.kubernetes.io/storage-provisioner",
    "f:volume.beta.kubernetes.io/storage-provisioner",
    "f:pv.kubernetes.io/bind-completed",
    "f:pv.kubernetes.io/bound-by-controller",
];

/// Whether an object shows that the tenant's kube-controller-manager binds there.
pub(super) fn shows_binder(kind: Kind, object: &Value) -> bool {
    let managed = object.pointer("/metadata/managedFields");
    let managed = managed.and_then(Value::as_array).into_iter().flatten();
    managed
        .filter(|entry| entry.get("manager").and_then(Value::as_str) == Some(MANAGER))
        .filter_map(|entry| entry.get("fieldsV1"))
        .any(|fields| binds(kind, fields))
}

fn binds(kind: Kind, fields: &Value) -> bool {
    match kind {
        Kind::Claim => {
            let annotations = fields.pointer("/f:metadata/f:annotations");
            fields.pointer("/f:spec/f:volumeName").is_some()
                || annotations.is_some_and(|a| ANNOTATIONS.iter().any(|key| a.get(key).is_some()))
        }
        Kind::Volume => {
            fields.pointer("/f:status/f:phase").is_some()
                || fields.pointer("/f:spec/f:claimRef").is_some()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_binders_own_fields_show_it() {
        let finalizers = json!({"f:metadata": {"f:finalizers": {}}});
        let provisioner = json!({"f:metadata": {"f:annotations": {ANNOTATIONS[0]: {}}}});
        let bound = json!({"f:metadata": {"f:annotations": {ANNOTATIONS[2]: {}}}});
        let volume_name = json!({"f:spec": {"f:volumeName": {}}});
        let phase = json!({"f:status": {"f:phase": {}}});
        let reference = json!({"f:spec": {"f:claimRef": {"f:uid": {}}}});
        for (kind, manager, fields, expected) in [
            (Kind::Claim, MANAGER, &finalizers, false),
            (Kind::Claim, MANAGER, &provisioner, true),
            (Kind::Claim, "kubectl", &provisioner, false),
            (Kind::Claim, MANAGER, &bound, true),
            (Kind::Claim, MANAGER, &volume_name, true),
            (Kind::Claim, "carrick-status-syncer", &volume_name, false),
            (Kind::Claim, MANAGER, &phase, false),
            (Kind::Volume, MANAGER, &phase, true),
            (Kind::Volume, MANAGER, &reference, true),
            (Kind::Volume, MANAGER, &finalizers, false),
            (Kind::Namespace, MANAGER, &phase, false),
        ] {
            let object = json!({"metadata": {"managedFields": [
                {"manager": "first", "fieldsV1": {}},
                {"manager": manager, "fieldsV1": fields},
            ]}});
            assert_eq!(shows_binder(kind, &object), expected, "{kind:?} {fields}");
        }
        assert!(!shows_binder(Kind::Claim, &json!({"metadata": {}})));
    }
}
