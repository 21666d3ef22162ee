//! Tenants made by hand, and what Carrick says about them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::wait::until_ok;

/// The Secret key of a kubeconfig.
pub const KUBECONFIG: &str = "kubeconfig";
const NAMESPACE: &str = "carrick-system";

/// The Tenants of a host.
pub fn tenants(host: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("carrick.dev", "v1alpha1", "Tenant");
    Api::all_with(host.clone(), &ApiResource::from_gvk(&kind))
}

/// Makes a Tenant by hand that may use every class, with the kubeconfig in a Secret of its name.
pub async fn make_tenant(host: &Client, name: &str, cluster: &str) -> Result<()> {
    let secret = json!({"namespace": NAMESPACE, "name": name, "key": KUBECONFIG});
    let tenant: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "carrick.dev/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {
            "cluster": cluster,
            "kubeconfig": {"secretRef": secret},
            "storageClasses": {"allowAll": true},
        },
    }))?;
    let made = tenants(host).create(&PostParams::default(), &tenant).await;
    made.map(|_| ()).with_context(|| format!("make Tenant {name}"))
}

/// Makes a Secret beside the Tenants of this name, or changes it to have this key alone.
pub async fn put_secret(host: &Client, name: &str, key: &str, text: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": {key: text},
    });
    let api: Api<Secret> = Api::namespaced(host.clone(), NAMESPACE);
    let params = PatchParams::apply("e2e").force();
    let put = api.patch(name, &params, &Patch::Apply(secret)).await;
    put.map(|_| ()).with_context(|| format!("put Secret {name}"))
}

/// A condition of a Tenant, as JSON; `null` if it has none of that type.
pub async fn tenant_condition(host: &Client, name: &str, type_: &str) -> Result<Value> {
    let tenant = tenants(host).get(name).await?;
    let conditions = tenant.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    Ok(found.unwrap_or_default())
}

/// Waits until a condition of a Tenant has this status, and gives its reason and message.
pub async fn until_condition(
    host: &Client,
    name: &str,
    (type_, status): (&str, &str),
    cap: Duration,
) -> Result<(String, String)> {
    let what = format!("{type_} of Tenant {name} to be {status}");
    let condition = until_ok(&what, cap, async || {
        let found = tenant_condition(host, name, type_).await?;
        ensure!(found["status"] == status, "it is {found}");
        Ok(found)
    })
    .await?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Ok((text("reason"), text("message")))
}
