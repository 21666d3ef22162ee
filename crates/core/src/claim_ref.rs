//! The `upsyncdiff` of a host volume: the JSON Patch that makes its copy point at the tenant's
//! claim. It is exactly one `replace` of `/spec/claimRef`; anything else is refused.

use json_patch::{Patch, PatchOperation};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

/// An `upsyncdiff` that is not applied.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// Not JSON, or not a JSON Patch.
    #[error("the upsyncdiff is not a JSON Patch: {0}")]
    NotAPatch(String),
    /// It touches what no transformation may.
    #[error("the upsyncdiff changes {0}; metadata, apiVersion and kind can't be transformed")]
    Forbidden(String),
    /// It is not one replacement of the claimRef.
    #[error("the upsyncdiff must be one replace of /spec/claimRef with a whole reference")]
    NotOneClaimRef,
    /// The volume has no claimRef to replace.
    #[error("the volume has no claimRef to replace")]
    NoClaimRef,
}

/// The reference to a tenant's claim that its volume gets.
pub fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// The `upsyncdiff` for a volume of this tenant claim.
pub fn diff_for(claim: &PersistentVolumeClaim) -> String {
    json!([{"op": "replace", "path": "/spec/claimRef", "value": reference_to(claim)}]).to_string()
}

/// The claimRef that an `upsyncdiff` sets.
pub fn parse_diff(diff: &str) -> Result<ObjectReference, DiffError> {
    let Patch(operations) =
        serde_json::from_str(diff).map_err(|error| DiffError::NotAPatch(error.to_string()))?;
    for operation in &operations {
        let path = operation.path().to_string();
        let lower = path.to_lowercase();
        if path.is_empty()
            || ["/metadata", "/apiversion", "/kind"].iter().any(|p| lower.starts_with(p))
        {
            return Err(DiffError::Forbidden(path));
        }
    }
    let [PatchOperation::Replace(replace)] = &operations[..] else {
        return Err(DiffError::NotOneClaimRef);
    };
    if replace.path != "/spec/claimRef" || !replace.value.is_object() {
        return Err(DiffError::NotOneClaimRef);
    }
    serde_json::from_value(replace.value.clone()).map_err(|_| DiffError::NotOneClaimRef)
}

/// Makes a volume point at a claim, as an `upsyncdiff` says: its claimRef is replaced whole.
pub fn point_at(
    volume: &mut PersistentVolume,
    reference: &ObjectReference,
) -> Result<(), DiffError> {
    let spec = volume.spec.as_mut().ok_or(DiffError::NoClaimRef)?;
    let claim_ref = spec.claim_ref.as_mut().ok_or(DiffError::NoClaimRef)?;
    claim_ref.clone_from(reference);
    Ok(())
}

/// Whether a reference names this very claim, by namespace, name and uid.
pub fn names_claim(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    let meta = &claim.metadata;
    meta.uid.is_some()
        && reference.uid == meta.uid
        && reference.namespace == meta.namespace
        && reference.name == meta.name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(volume: &mut PersistentVolume, diff: &str) -> Result<(), DiffError> {
        point_at(volume, &parse_diff(diff)?)
    }

    fn claim() -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {
            "namespace": "team-a", "name": "data", "uid": "u1", "resourceVersion": "5"
        }}))
        .unwrap()
    }

    fn volume() -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {"name": "pv"},
            "spec": {"capacity": {"storage": "1Gi"},
                     "claimRef": {"namespace": "kcp-1", "name": "data", "uid": "host"}}
        }))
        .unwrap()
    }

    #[test]
    fn the_diff_points_the_volume_at_the_tenants_claim() {
        let diff = diff_for(&claim());
        let value: serde_json::Value = serde_json::from_str(&diff).unwrap();
        assert_eq!(
            value,
            json!([{"op": "replace", "path": "/spec/claimRef", "value": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "team-a",
                "name": "data", "uid": "u1", "resourceVersion": "5"}}])
        );
        let mut volume = volume();
        apply(&mut volume, &diff).unwrap();
        let spec = volume.spec.unwrap();
        assert!(names_claim(spec.claim_ref.as_ref().unwrap(), &claim()));
        assert_eq!(spec.capacity.unwrap()["storage"].0, "1Gi", "nothing else changes");
    }

    #[test]
    fn anything_but_one_replace_of_the_claim_ref_is_refused() {
        let refused = [
            ("garbage", "not a JSON Patch"),
            (r#"[{"op":"replace","path":"/metadata/name","value":"x"}]"#, "can't be transformed"),
            (r#"[{"op":"replace","path":"/apiVersion","value":"x"}]"#, "can't be transformed"),
            (r#"[{"op":"replace","path":"/Kind","value":"x"}]"#, "can't be transformed"),
            (r#"[{"op":"replace","path":"","value":{}}]"#, "can't be transformed"),
            (r#"[{"op":"replace","path":"/spec","value":{}}]"#, "one replace"),
            (r#"[{"op":"add","path":"/spec/claimRef","value":{}}]"#, "one replace"),
            (r#"[{"op":"replace","path":"/spec/claimRef","value":null}]"#, "one replace"),
            (r#"[{"op":"replace","path":"/spec/claimRef/uid","value":"x"}]"#, "one replace"),
            (r#"[{"op":"replace","path":"/spec/hostPath","value":{"path":"/"}}]"#, "one replace"),
            ("[]", "one replace"),
        ];
        for (diff, expected) in refused {
            let mut changed = volume();
            let error = apply(&mut changed, diff).unwrap_err();
            assert!(error.to_string().contains(expected), "{diff}: {error}");
            assert_eq!(changed, volume(), "{diff}");
        }
        let mut bare = PersistentVolume::default();
        assert_eq!(apply(&mut bare, &diff_for(&claim())), Err(DiffError::NoClaimRef));
    }
}
