//! A claim that the host cannot bind: its user sees `Pending` and, after a while, what it waits
//! for; nobody's log tells of it again and again; and it binds once the host can.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::{Binder, Place, Stage, make_claims, phase};
use carrick_testbed::Testbed;
use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::json;

use crate::{logs_stay_quiet, until_told};

const NAMESPACE: &str = "team-a";
const STUCK: &str = "stuck";
/// Seconds that a claim may wait before its user is told.
const PATIENCE: i64 = 10;
const WINDOW: Duration = Duration::from_secs(20);
const FEW_LINES: usize = 3;

#[tokio::test]
async fn a_pending_claim_says_what_it_waits_for_and_nobody_makes_noise() -> Result<()> {
    Testbed::run("pending", async |testbed| {
        let stage = Stage::start(testbed, &[("kcp", Binder::Carrick)]).await?;
        stage.host.create_storage_class(STUCK, "example.com/nobody").await?;
        let client = stage.client("kcp").await?;
        let claims = ["data".to_owned()];
        make_claims(&client, NAMESPACE, claims.clone(), STUCK).await?;

        let (claim, told) = until_told(&client, NAMESPACE, "data", "WaitingForHost").await?;
        ensure!(phase(&claim) == "Pending", "its phase is {}", phase(&claim));
        ensure!(told.status == "False", "{told:?}");
        let message = told.message.clone().unwrap_or_default();
        ensure!(message.contains(STUCK), "{message:?} does not say which class");
        ensure!(message.contains("the host says: ExternalProvisioning"), "{message:?}");
        host_is_passed_on(&stage, &client).await?;
        let made = claim.metadata.creation_timestamp.context("a claim has a time")?.0;
        let since = told.last_transition_time.clone().context("a condition has a time")?.0;
        // Times of objects are in whole seconds.
        let after = since.duration_since(made).as_secs();
        ensure!(after + 1 >= PATIENCE, "told after {after} s already");

        logs_stay_quiet(&stage.carrick, "0", (WINDOW, FEW_LINES)).await?;
        let (claim, again) = until_told(&client, NAMESPACE, "data", "WaitingForHost").await?;
        ensure!(phase(&claim) == "Pending" && again == told, "{again:?} after {told:?}");

        let volumes: Api<PersistentVolume> = Api::all(stage.host.client().await?);
        volumes.create(&PostParams::default(), &volume(testbed)?).await?;
        stage.linked("kcp", NAMESPACE, &claims).await?;
        let (_, told) = until_told(&client, NAMESPACE, "data", "Bound").await?;
        ensure!(told.status == "True", "{told:?}");
        Ok(())
    })
    .await
}

/// What the host's controllers say of the claim stands on the tenant's claim, without names of the host.
async fn host_is_passed_on(stage: &Stage<'_>, client: &Client) -> Result<()> {
    let place = Place::new(stage, "kcp", NAMESPACE).await?;
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let events = events.list(&ListParams::default()).await?.items;
    let said = events.iter().find(|e| e.reason.as_deref() == Some("ExternalProvisioning"));
    let said = said.with_context(|| format!("no Event among {events:?}"))?;
    let note = said.message.clone().unwrap_or_default();
    ensure!(said.type_.as_deref() == Some("Normal"), "{said:?}");
    ensure!(said.involved_object.name.as_deref() == Some("data"), "{said:?}");
    ensure!(note.contains("example.com/nobody"), "{note:?}");
    ensure!(!note.contains(&place.host_namespace), "{note:?}");
    Ok(())
}

/// A volume that fits, as an operator of the host would make it.
fn volume(testbed: &Testbed) -> Result<PersistentVolume> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "by-hand"},
        "spec": {
            "storageClassName": STUCK,
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": testbed.folder()},
        },
    }))?)
}
