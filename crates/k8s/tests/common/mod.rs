//! A real control plane for each test, and clients of it.

#![allow(dead_code, reason = "every test uses some of it")]

use std::{fmt::Debug, time::Duration};

use anyhow::{Context as _, Result};
use carrick_k8s::{Change, Client, ClientOptions, WatchOptions};
use carrick_testbed::{ControlPlane, ControlPlaneOptions, Testbed};
use futures::{StreamExt as _, stream::BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Resource, api::PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long anything may take that has to happen.
pub(crate) const CAP: Duration = Duration::from_mins(1);

pub(crate) fn options() -> ClientOptions {
    ClientOptions::new("test", "1.0")
}

pub(crate) async fn plane(name: &str) -> Result<(Testbed, ControlPlane, Client)> {
    let testbed = Testbed::start(name).await?;
    let plane = testbed.control_plane(ControlPlaneOptions::new("host")).await?;
    let client = Client::from_kubeconfig(&plane.kubeconfig(), &options()).await?;
    Ok((testbed, plane, client))
}

pub(crate) fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).expect("an object of this type")
}

pub(crate) async fn create<K>(api: &Api<K>, json: Value) -> Result<K>
where
    K: Resource + Clone + Debug + serde::Serialize + DeserializeOwned,
{
    Ok(api.create(&PostParams::default(), &object(json)).await?)
}

pub(crate) async fn config_map(client: &Client, name: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(client.kube().clone(), "default");
    create(&api, json!({"metadata": {"name": name}, "data": {"key": "value"}})).await?;
    Ok(())
}

/// Watches with short pauses, for tests.
pub(crate) fn quick() -> WatchOptions {
    WatchOptions {
        first_retry: Duration::from_millis(50),
        longest_retry: Duration::from_millis(500),
        not_served_retry: Duration::from_millis(200),
        ..WatchOptions::default()
    }
}

/// Reads changes until one gives a value.
pub(crate) async fn until<T>(
    what: &str,
    changes: &mut BoxStream<'static, Change>,
    mut wanted: impl FnMut(Change) -> Option<T>,
) -> Result<T> {
    let found = async {
        loop {
            let change = changes.next().await.expect("a watch never ends");
            if let Some(found) = wanted(change) {
                return found;
            }
        }
    };
    timeout(CAP, found).await.with_context(|| format!("waited in vain for {what}"))
}

/// Reads changes until a list is complete; the names on it.
pub(crate) async fn synced(changes: &mut BoxStream<'static, Change>) -> Result<Vec<String>> {
    let keys = until("a complete list", changes, |change| match change {
        Change::Synced(keys) => Some(keys),
        _ => None,
    });
    Ok(keys.await?.into_iter().map(|key| key.name).collect())
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("objects have names")
}
