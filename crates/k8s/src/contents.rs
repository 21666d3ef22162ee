//! What is in a namespace, whatever its kind: asked before a namespace is deleted, which would take
//! all of it along.

use kube::{
    api::{Api, ListParams},
    core::{ApiResource, DynamicObject},
    discovery::{Discovery, Scope, verbs},
};

use crate::{client::Client, error::Error};

/// What every namespace has: made anew wherever it is missing, and told by nobody.
const OF_EVERY_NAMESPACE: [(&str, &str); 2] =
    [("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")];
/// So many objects of one kind are named at most.
const NAMED: u32 = 3;

/// The objects in a namespace as `resource/name`, a few of each kind; events, and what every
/// namespace has, don't count. An error if anything can't be listed: then nothing is known.
pub async fn contents(client: &Client, namespace: &str) -> Result<Vec<String>, Error> {
    let what = || format!("the contents of namespace {namespace}");
    let discovery = client.call(Discovery::new(client.kube().clone()).run_aggregated()).await;
    let discovery = discovery.map_err(|error| Error::of(what(), &error))?;
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let listed = capabilities.scope == Scope::Namespaced
                && capabilities.supports_operation(verbs::LIST)
                && resource.plural != "events";
            if listed {
                found.extend(names(client, namespace, &resource).await?);
            }
        }
    }
    Ok(found)
}

async fn names(
    client: &Client,
    namespace: &str,
    resource: &ApiResource,
) -> Result<Vec<String>, Error> {
    let plural = &resource.plural;
    let api: Api<DynamicObject> = Api::namespaced_with(client.kube().clone(), namespace, resource);
    let params = ListParams::default().limit(NAMED);
    let list = match client.call(api.list_metadata(&params)).await {
        Ok(list) => list,
        // Listed by the discovery, and not to be listed.
        Err(kube::Error::Api(status)) if [404, 405].contains(&status.code) => return Ok(Vec::new()),
        Err(error) => return Err(Error::of(format!("{plural} of namespace {namespace}"), &error)),
    };
    let names = list.items.into_iter().filter_map(|object| object.metadata.name);
    Ok(names
        .filter(|name| !OF_EVERY_NAMESPACE.contains(&(plural.as_str(), name.as_str())))
        .map(|name| format!("{plural}/{name}"))
        .collect())
}
