//! What was made is taken back when a later step fails, and nothing that was there before.

use anyhow::{Context as _, Result, ensure};
use carrick_testbed::Testbed;
use k8s_openapi::{
    api::{
        authentication::v1::TokenRequest,
        core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::support::{Bench, SYSTEM, live};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_is_taken_back_when_a_later_step_fails() -> Result<()> {
    Testbed::run("cli-undone", async |testbed| {
        let bench = Bench::start(testbed).await?;
        // May do everything on the host but make a Tenant, which is the last step.
        let host = bench.file("host.yaml", &almost_admin(&bench).await?)?;
        let host = host.to_str().context("a path is text")?;
        let fails = async || -> Result<()> {
            let said = bench.add("acme", &["--host-kubeconfig", host]).await?;
            said.expect(1, &["was not added, nothing is left", "Tenant acme", "forbidden"])
        };
        fails().await?;
        ensure!(!live(&bench.on_host, SYSTEM).await?, "the namespace on the host is left");
        let definitions: Api<CustomResourceDefinition> = Api::all(bench.on_host.clone());
        let definition = definitions.get_opt("tenants.carrick.dev").await?;
        let live = |d: &CustomResourceDefinition| d.metadata.deletion_timestamp.is_none();
        ensure!(!definition.as_ref().is_some_and(live), "the definition is left");
        let left = bench.account().await?;
        ensure!(left.is_empty(), "left in the tenant: {left:?}");

        what_was_there_stays(&bench, fails).await
    })
    .await
}

/// Another installation's account and namespace, and what is in it.
async fn what_was_there_stays(
    bench: &Bench<'_>,
    fails: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    // Both namespaces may still be on their way out.
    for client in [&bench.on_host, &bench.in_tenant] {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        carrick_testbed::eventually("the namespace to go", crate::support::CAP, async || {
            Ok(namespaces.get_opt(SYSTEM).await?.is_none().then_some(()))
        })
        .await?;
        let namespace = serde_json::from_value(json!({"metadata": {"name": SYSTEM}}))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "precious"}}))?;
        Api::namespaced(client.clone(), SYSTEM).create(&PostParams::default(), &map).await?;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(bench.in_tenant.clone(), SYSTEM);
    let account = serde_json::from_value(json!({"metadata": {"name": "carrick"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    fails().await?;
    let left = bench.account().await?;
    ensure!(left == ["account", "namespace"].into(), "in the tenant: {left:?}");
    for client in [&bench.on_host, &bench.in_tenant] {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM);
        ensure!(maps.get_opt("precious").await?.is_some());
    }
    let secrets: Api<Secret> = Api::namespaced(bench.on_host.clone(), SYSTEM);
    ensure!(secrets.get_opt("carrick-tenant-acme").await?.is_none());
    Ok(())
}

/// A kubeconfig of the host.
async fn almost_admin(bench: &Bench<'_>) -> Result<String> {
    let (client, params) = (|| bench.on_host.clone(), PostParams::default());
    let accounts: Api<ServiceAccount> = Api::namespaced(client(), "default");
    let named = json!({"metadata": {"name": "almost"}});
    accounts.create(&params, &serde_json::from_value(named)?).await?;
    let all = ["get", "list", "create", "patch", "delete"];
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "almost"},
        "rules": [
            {"apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": all},
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"], "verbs": all,
            },
            {"apiGroups": ["carrick.dev"], "resources": ["tenants"], "verbs": ["get", "list"]},
        ],
    }))?;
    Api::all(client()).create(&params, &role).await?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "almost"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "almost",
        },
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "almost"}],
    }))?;
    Api::all(client()).create(&params, &binding).await?;
    let request = TokenRequest::default();
    let token = accounts.create_token_request("almost", &params, &request).await?;
    let token = token.status.context("a token is answered")?.token;
    Ok(bench.host.kubeconfig_with_token(&token.context("a token")?))
}
