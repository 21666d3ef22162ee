//! Carrick's own account in a tenant can do what it has to, and nothing else.

mod common;

use anyhow::Result;
use carrick_core::{Action, Kind, ObjectRef, Side, Write};
use carrick_k8s::{Client, Written, access, execute, identity, watch};
use common::{options, plane, quick, synced};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::ListParams};
use serde_json::json;

#[tokio::test]
async fn an_account_is_given() -> Result<()> {
    let (_testbed, _tenant, admin) = plane("access").await?;
    access::grant(&admin).await?;
    let granted = access::grant(&admin).await?;
    let left = granted.expires.expect("the server says it").duration_since(Timestamp::now());
    assert!(left > SignedDuration::from_hours(24 * 364), "{left}");
    let client = Client::from_kubeconfig(&granted.kubeconfig, &options()).await?;
    assert_eq!(identity(&client).await?, identity(&admin).await?);

    it_can_do_just_what_it_has_to(&client).await
}

async fn it_can_do_just_what_it_has_to(client: &Client) -> Result<()> {
    for kind in [Kind::Claim, Kind::Volume, Kind::Namespace, Kind::Class] {
        synced(&mut watch(client, kind, quick())).await?;
    }
    let class = ObjectRef::cluster(Side::Tenant, Kind::Class, "fast");
    let body = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "carrick.dev/host",
    });
    let write = Write { object: class, action: Action::Create(body), why: "test" };
    assert!(matches!(execute(client, &write).await?, Written::Applied(_)));

    let secrets: Api<Secret> = Api::all(client.kube().clone());
    assert!(secrets.list(&ListParams::default()).await.is_err(), "it can read secrets");
    let claim = ObjectRef::namespaced(Side::Tenant, Kind::Claim, "default", "data");
    let body =
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}});
    let write = Write { object: claim, action: Action::Create(body), why: "test" };
    let error = execute(client, &write).await.expect_err("it can make claims");
    assert_eq!(error.problem().map(|problem| problem.reason), Some("Forbidden"), "{error}");
    Ok(())
}
