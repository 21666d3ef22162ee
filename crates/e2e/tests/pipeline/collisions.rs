//! What stands in the way and is not Carrick's: a volume of the tenant, a namespace of the host.
//! Carrick refuses the claim, tells its user why, and overwrites nothing; once it is out of the way
//! the claim is bound.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::{Binder, CLASS, Stage, make_claims, phase, until_bound};
use carrick_testbed::Testbed;
use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim},
    events::v1::Event,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

use crate::until_told;

const TENANT: &str = "kcp";
const CLAIM: &str = "data";
/// Names that nothing made at random has.
const VOLUME: &str = "in-the-way";
/// What is in the way of nobody's watch is looked at again after a minute.
const LOOKED_AGAIN: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_foreign_volume_or_namespace_in_the_way_is_refused_and_not_overwritten() -> Result<()> {
    Testbed::run("collisions", async |testbed| {
        let stage = Stage::start(testbed, &[(TENANT, Binder::Carrick)]).await?;
        let (host, tenant) = (stage.host.client().await?, stage.client(TENANT).await?);
        let volumes: Api<PersistentVolume> = Api::all(tenant.clone());
        let volume = put_volume_in_the_way(&stage, testbed, &volumes).await?;
        let nobodys = put_namespace_in_the_way(&stage, "team-nobody", None).await?;
        let others = put_namespace_in_the_way(&stage, "team-other", Some("stranger")).await?;

        for (namespace, reason) in [
            ("team-volume", "VolumeCollision"),
            ("team-nobody", "NamespaceCollision"),
            ("team-other", "NamespaceCollision"),
        ] {
            make_claims(&tenant, namespace, [CLAIM.to_owned()], CLASS).await?;
            check_refused(&tenant, namespace, reason).await?;
        }
        check_held_back(&stage).await?;
        for namespace in [nobodys, others] {
            check_untouched(&host, &namespace).await?;
        }
        ensure!(volumes.get(VOLUME).await? == volume, "the foreign volume was changed");
        volumes.delete(VOLUME, &DeleteParams::default()).await?;

        for namespace in ["team-volume", "team-nobody", "team-other"] {
            until_bound(&tenant, namespace, 1, LOOKED_AGAIN).await?;
            stage.linked(TENANT, namespace, &[CLAIM.to_owned()]).await?;
            until_told(&tenant, namespace, CLAIM, "Bound").await?;
        }
        stage.carrick.check_alive()
    })
    .await
}

/// A host volume that will be bound to the claim, and a volume of the tenant's own of that name.
async fn put_volume_in_the_way(
    stage: &Stage<'_>,
    testbed: &Testbed,
    in_tenant: &Api<PersistentVolume>,
) -> Result<PersistentVolume> {
    let volume = |class: &str| {
        json!({
            "metadata": {"name": VOLUME},
            "spec": {
                "storageClassName": class,
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": testbed.folder()},
            },
        })
    };
    let mut on_host = volume(CLASS);
    let namespace = stage.host_namespace(TENANT, "team-volume");
    on_host["spec"]["claimRef"] = json!({"namespace": namespace, "name": CLAIM});
    let host: Api<PersistentVolume> = Api::all(stage.host.client().await?);
    host.create(&PostParams::default(), &serde_json::from_value(on_host)?).await?;
    let foreign = serde_json::from_value(volume("of-the-tenant"))?;
    in_tenant.create(&PostParams::default(), &foreign).await.context("the tenant's own volume")
}

/// A host namespace of the name computed for the tenant's, of nobody or of another tenant.
async fn put_namespace_in_the_way(
    stage: &Stage<'_>,
    namespace: &str,
    owner: Option<&str>,
) -> Result<Namespace> {
    let name = stage.host_namespace(TENANT, namespace);
    let mut made = json!({"metadata": {"name": name}});
    if let Some(owner) = owner {
        let locator = stage.locator(owner, namespace).to_json();
        made["metadata"]["annotations"] = json!({stage.names().locator(): locator});
    }
    let namespaces: Api<Namespace> = Api::all(stage.host.client().await?);
    let made = serde_json::from_value(made)?;
    namespaces.create(&PostParams::default(), &made).await.context("the host's own namespace")
}

/// The namespace is as it was made, and empty; then it goes out of the way.
async fn check_untouched(host: &Client, namespace: &Namespace) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(host.clone());
    let name = namespace.metadata.name.as_deref().context("a namespace has a name")?;
    let found = namespaces.get(name).await?;
    ensure!(found == *namespace, "{name} was changed: {found:?}");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(host.clone(), name);
    let found = claims.list(&ListParams::default()).await?.items;
    ensure!(found.is_empty(), "claims were made in {name}: {found:?}");
    namespaces.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// The claim's user is told by the condition, and by an Event.
async fn check_refused(client: &Client, namespace: &str, reason: &str) -> Result<()> {
    let (claim, told) = until_told(client, namespace, CLAIM, reason).await?;
    ensure!(told.status == "False", "{told:?}");
    ensure!(!told.message.unwrap_or_default().is_empty(), "nothing is said");
    ensure!(phase(&claim) == "Pending", "its phase is {}", phase(&claim));
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let listed = events.list(&ListParams::default()).await?.items;
    let ours: Vec<_> = listed
        .iter()
        .filter(|event| event.reason.as_deref() == Some(reason))
        .filter(|event| {
            event.regarding.as_ref().and_then(|object| object.uid.as_deref())
                == claim.metadata.uid.as_deref()
        })
        .collect();
    ensure!(ours.len() == 1, "{} events of {reason}: {listed:?}", ours.len());
    ensure!(ours[0].type_.as_deref() == Some("Warning"), "{:?}", ours[0]);
    Ok(())
}

/// The host has bound the claim; it is held back while the tenant has no volume for it.
async fn check_held_back(stage: &Stage<'_>) -> Result<()> {
    let host_namespace = stage.host_namespace(TENANT, "team-volume");
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(stage.host.client().await?, &host_namespace);
    let claim = claims.get(CLAIM).await?;
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    ensure!(phase(&claim) == "Bound" && volume == Some(VOLUME), "{claim:?}");
    let annotations = claim.metadata.annotations.unwrap_or_default();
    ensure!(annotations.contains_key(&stage.names().delay()), "{annotations:?}");
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(stage.client(TENANT).await?, "team-volume");
    let named = claims.get(CLAIM).await?.spec.and_then(|spec| spec.volume_name);
    ensure!(named.is_none(), "the tenant's claim names {named:?}");
    Ok(())
}
