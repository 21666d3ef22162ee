//! Claims of a tenant, as its users make them.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result};
use carrick_testbed::eventually;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::json;

/// A claim of 1 MiB of this class.
pub fn claim(name: &str, class: &str) -> Result<PersistentVolumeClaim> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }))?)
}

/// Makes these claims in a namespace, which is made if it is missing. Several are on their way at
/// a time.
pub async fn make_claims(
    client: &Client,
    namespace: &str,
    names: impl IntoIterator<Item = String>,
    class: &str,
) -> Result<()> {
    make_namespace(client, namespace).await?;
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let mut making = tokio::task::JoinSet::new();
    for name in names {
        let (api, body) = (api.clone(), claim(&name, class)?);
        if making.len() >= 16 {
            making.join_next().await.context("one is on its way")???;
        }
        making.spawn(async move {
            let made = api.create(&PostParams::default(), &body).await;
            made.map(|_| ()).with_context(|| format!("make claim {name}"))
        });
    }
    while let Some(made) = making.join_next().await {
        made??;
    }
    Ok(())
}

/// Makes a namespace, if it is missing.
pub async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let api: Api<Namespace> = Api::all(client.clone());
    match api.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(|_| ()).with_context(|| format!("make namespace {name}")),
    }
}

/// Waits until so many claims of a namespace are `Bound`.
pub async fn until_bound(
    client: &Client,
    namespace: &str,
    count: usize,
    cap: Duration,
) -> Result<Vec<PersistentVolumeClaim>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let mut last = String::new();
    let found =
        eventually(&format!("{count} claims of {namespace} to be Bound"), cap, async || {
            // A server that is being restarted is waited for.
            let Ok(listed) = api.list(&ListParams::default()).await else {
                return Ok(None);
            };
            let bound: Vec<_> =
                listed.items.iter().filter(|claim| phase(claim) == "Bound").cloned().collect();
            let others: BTreeSet<_> = listed
                .items
                .iter()
                .filter(|claim| phase(claim) != "Bound")
                .filter_map(|claim| claim.metadata.name.clone())
                .take(5)
                .collect();
            last = format!("{} Bound, not: {others:?}", bound.len());
            Ok((bound.len() >= count).then_some(bound))
        })
        .await;
    found.with_context(|| last)
}

/// A claim's phase.
pub fn phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}
