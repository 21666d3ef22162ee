//! Which objects of an API: a resource, and the namespace if only one is meant.

use carrick_core::{Kind, ObjectRef};
use kube::{
    Resource as KubeResource,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};

/// A resource of a control plane's API, in all namespaces or in one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    api: ApiResource,
    namespace: Option<String>,
}

impl Resource {
    /// The resource of a type.
    pub fn of<K: KubeResource<DynamicType = ()>>() -> Self {
        Self { api: ApiResource::erase::<K>(&()), namespace: None }
    }

    /// Only in this namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Path of the API.
    pub fn path(&self) -> String {
        DynamicObject::url_path(&self.api, self.namespace.as_deref())
    }

    /// `apiVersion` as it stands in objects.
    pub fn api_version(&self) -> &str {
        &self.api.api_version
    }

    /// `kind` as it stands in objects.
    pub fn kind(&self) -> &str {
        &self.api.kind
    }

    /// The plural, as in paths.
    pub fn plural(&self) -> &str {
        &self.api.plural
    }
}

impl From<Kind> for Resource {
    fn from(kind: Kind) -> Self {
        let gvk = GroupVersionKind::gvk(kind.group(), "v1", kind.kind());
        Self { api: ApiResource::from_gvk_with_plural(&gvk, kind.plural()), namespace: None }
    }
}

impl From<&ObjectRef> for Resource {
    fn from(object: &ObjectRef) -> Self {
        Self { namespace: object.namespace.clone(), ..Self::from(object.kind) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrick_core::Side;
    use k8s_openapi::api::{
        core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim},
        events::v1::Event,
        storage::v1::StorageClass,
    };

    #[test]
    fn kinds_are_spelled_as_their_types() {
        for (kind, expected) in [
            (Kind::Claim, Resource::of::<PersistentVolumeClaim>()),
            (Kind::Volume, Resource::of::<PersistentVolume>()),
            (Kind::Namespace, Resource::of::<Namespace>()),
            (Kind::Class, Resource::of::<StorageClass>()),
            (Kind::Event, Resource::of::<Event>()),
        ] {
            assert_eq!(Resource::from(kind), expected);
            assert_eq!(kind.api_version(), expected.api_version());
        }
    }

    #[test]
    fn paths_are_those_of_the_api() {
        let claim = ObjectRef::namespaced(Side::Host, Kind::Claim, "team", "data");
        let path = Resource::from(&claim).path();
        assert_eq!(path, "/api/v1/namespaces/team/persistentvolumeclaims");
        let classes = Resource::from(Kind::Class).path();
        assert_eq!(classes, "/apis/storage.k8s.io/v1/storageclasses");
    }
}
