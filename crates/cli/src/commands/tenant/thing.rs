//! An object by its name alone, of any kind: to look for, to make and to delete.

use std::fmt;

use carrick_k8s::{Client, Error};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{
    Api, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions},
};
use serde_json::{Value, json};

/// An object that may be there.
#[derive(Clone, Debug)]
pub(super) struct Thing {
    shown: String,
    name: String,
    resource: ApiResource,
    api: Api<DynamicObject>,
    field_manager: String,
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Thing {
    /// One without a namespace.
    pub(super) fn cluster<K>(client: &Client, name: &str) -> Self
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
    {
        let resource = ApiResource::erase::<K>(&());
        Self {
            shown: format!("{} {name}", resource.kind),
            name: name.to_owned(),
            api: Api::all_with(client.kube().clone(), &resource),
            resource,
            field_manager: client.field_manager().to_owned(),
        }
    }

    /// One in a namespace.
    pub(super) fn namespaced<K>(client: &Client, namespace: &str, name: &str) -> Self
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let resource = ApiResource::erase::<K>(&());
        Self {
            shown: format!("{} {namespace}/{name}", resource.kind),
            name: name.to_owned(),
            api: Api::namespaced_with(client.kube().clone(), namespace, &resource),
            resource,
            field_manager: client.field_manager().to_owned(),
        }
    }

    /// Whether it is there.
    pub(super) async fn exists(&self) -> Result<bool, Error> {
        let found = self.api.get_metadata_opt(&self.name).await;
        found.map(|found| found.is_some()).map_err(|error| Error::of(self, &error))
    }

    /// Makes it, with this beside its type and name; its uid.
    pub(super) async fn create(&self, rest: &Value) -> Result<Option<String>, kube::Error> {
        let mut object = rest.clone();
        object["apiVersion"] = json!(self.resource.api_version);
        object["kind"] = json!(self.resource.kind);
        object["metadata"]["name"] = json!(self.name);
        let object: DynamicObject =
            serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let params =
            PostParams { field_manager: Some(self.field_manager.clone()), ..PostParams::default() };
        Ok(self.api.create(&params, &object).await?.metadata.uid)
    }

    /// Deletes it, if it is there, and still the one with this uid.
    pub(super) async fn delete(&self, uid: Option<&str>) -> Result<(), Error> {
        let only_this =
            uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
        let params = DeleteParams { preconditions: only_this, ..DeleteParams::default() };
        match self.api.delete(&self.name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(Error::of(self, &error)),
            Ok(_) => Ok(()),
        }
    }
}
