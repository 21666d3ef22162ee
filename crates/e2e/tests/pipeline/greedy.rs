//! What a hostile tenant asks for and may not have: each is refused with a reason to read, nothing
//! of it reaches the host, and nobody else notices. What it says in Carrick's name goes nowhere.

use anyhow::{Context as _, Result, ensure};
use carrick_core::names::{BETA_STORAGE_CLASS, TENANT_CLAIM_UID};
use carrick_e2e::{Binder, CLASS, Place, Stage, claim, make_claims, make_namespace, until_ok};
use carrick_testbed::Testbed;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{CAP, until_told};

const ATTACKER: &str = "mallory";
const VICTIM: &str = "acme";
const NAMESPACE: &str = "team-a";

#[tokio::test]
async fn what_a_tenant_may_not_have_is_refused_and_reaches_nobody() -> Result<()> {
    Testbed::run("greedy", async |testbed| Box::pin(attack(testbed)).await).await
}

async fn attack(testbed: &Testbed) -> Result<()> {
    let tenants = [(ATTACKER, Binder::Carrick), (VICTIM, Binder::Tenant)];
    let stage = Stage::servers(testbed, &tenants).await?;
    stage.carrick.start_all("0")?;
    stage.carrick.until_all_ready("0", CAP).await?;
    stage.carrick.add_tenant(ATTACKER, stage.tenant(ATTACKER)?, &["--class", CLASS]).await?;
    stage.carrick.add_tenant(VICTIM, stage.tenant(VICTIM)?, &[]).await?;
    stage.host.create_storage_class("secret", "example.com/nobody").await?;
    let victim = Place::new(&stage, VICTIM, NAMESPACE).await?;
    let data = ["data".to_owned()];
    make_claims(&victim.tenant, NAMESPACE, data.clone(), CLASS).await?;
    let theirs = stage.linked(VICTIM, NAMESPACE, &data).await?.remove(0);
    let theirs_name = theirs.host_volume.metadata.name.clone().context("a name")?;
    let foreign = make_foreign_volume(&victim, testbed).await?;

    let attacker = Place::new(&stage, ATTACKER, NAMESPACE).await?;
    make_namespace(&attacker.tenant, NAMESPACE).await?;
    let attacks = attacks(&theirs_name, &foreign);
    for (name, patch, _) in &attacks {
        make(&attacker, name, patch).await?;
    }
    make_signed(&stage, &attacker, &theirs.tenant_claim).await?;
    make_claims(&attacker.tenant, NAMESPACE, ["honest".to_owned()], CLASS).await?;
    let mut said = Vec::new();
    for (name, _, reason) in &attacks {
        let (_, told) = until_told(&attacker.tenant, NAMESPACE, name, reason)
            .await
            .with_context(|| (*name).to_owned())?;
        ensure!(attacker.host_claims().get_opt(name).await?.is_none(), "{name} went down");
        if *reason == "VolumeNameRefused" {
            said.push(told.message.unwrap_or_default());
        }
    }
    // Nobody learns from it which volumes there are.
    let alike = |message: &String| message.ends_with("which was not carried up to this tenant");
    ensure!(said.iter().all(alike), "{said:?}");
    stage.linked(ATTACKER, NAMESPACE, &["honest".to_owned(), "signed".to_owned()]).await?;
    check_signed(&stage, &attacker).await?;

    let again = stage.linked(VICTIM, NAMESPACE, &data).await?.remove(0);
    ensure!(again.host_claim == theirs.host_claim, "the victim's host claim was changed");
    let free: PersistentVolume = victim.host_volumes().get(&foreign).await?;
    let claimed = free.spec.and_then(|spec| spec.claim_ref);
    ensure!(claimed.is_none(), "the host's own volume was taken: {claimed:?}");
    let volumes = attacker.volumes().list(&ListParams::default()).await?.items;
    ensure!(volumes.len() == 2, "{} volumes for two claims", volumes.len());
    stage.carrick.check_alive()
}

/// Name of a claim, what is changed of an honest one, and the reason that it is refused with.
fn attacks(theirs: &str, foreign: &str) -> Vec<(&'static str, Value, &'static str)> {
    let named = |volume: &str| json!({"spec": {"volumeName": volume}});
    let snapshot =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    let unknown = json!({"apiGroup": "example.org", "kind": "Backup", "name": "b"});
    vec![
        ("volume-of-the-victim", named(theirs), "VolumeNameRefused"),
        ("volume-of-the-host", named(foreign), "VolumeNameRefused"),
        ("volume-of-nobody", named("no-such-volume"), "VolumeNameRefused"),
        (
            "selector",
            json!({"spec": {"selector": {"matchLabels": {"kept": "for-others"}}}}),
            "SelectorRefused",
        ),
        ("snapshot", json!({"spec": {"dataSource": snapshot}}), "DataSourceRefused"),
        ("populator", json!({"spec": {"dataSourceRef": unknown}}), "DataSourceRefused"),
        ("class", json!({"spec": {"storageClassName": "secret"}}), "ClassNotAllowed"),
        ("no-class", json!({"spec": {"storageClassName": null}}), "ClassNotAllowed"),
        ("empty-class", json!({"spec": {"storageClassName": ""}}), "ClassNotAllowed"),
        (
            "beta-class",
            json!({"metadata": {"annotations": {(BETA_STORAGE_CLASS): "secret"}},
                   "spec": {"storageClassName": null}}),
            "ClassNotAllowed",
        ),
    ]
}

async fn make(place: &Place, name: &str, patch: &Value) -> Result<PersistentVolumeClaim> {
    let mut made = json!(claim(name, CLASS)?);
    json_patch::merge(&mut made, patch);
    let made = serde_json::from_value(made)?;
    let made = place.claims().create(&PostParams::default(), &made).await;
    made.with_context(|| format!("make claim {name}"))
}

/// A volume of the host's admin that would fit a claim without a class.
async fn make_foreign_volume(place: &Place, testbed: &Testbed) -> Result<String> {
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": "of-the-host", "labels": {"kept": "for-others"}},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": testbed.folder()},
        },
    }))?;
    let made: Api<PersistentVolume> = place.host_volumes();
    made.create(&PostParams::default(), &volume).await?;
    Ok("of-the-host".to_owned())
}

/// A claim and its namespace that say in Carrick's name whatever Carrick could say, of the victim.
async fn make_signed(
    stage: &Stage<'_>,
    place: &Place,
    theirs: &PersistentVolumeClaim,
) -> Result<()> {
    let names = stage.names();
    let victims = stage.locator(VICTIM, NAMESPACE);
    let diff = carrick_core::claim_ref::diff_for(theirs);
    let uid = theirs.metadata.uid.clone().unwrap_or_default();
    let annotations = json!({
        (names.locator()): victims.to_json(), (names.diff()): diff, (names.delay()): "false",
        (TENANT_CLAIM_UID): uid, "pv.kubernetes.io/bind-completed": "yes", "mine": "goes-down",
    });
    let labels = json!({
        (names.cluster()): "stolen", (names.tenant_id()): victims.tenant_id(),
        (names.state()): "Upsync", "mine": "goes-down",
    });
    for (key, value) in annotations.as_object().into_iter().flatten() {
        place.annotate_namespace(key, value.clone()).await?;
    }
    let metadata = json!({"labels": labels, "annotations": annotations});
    make(place, "signed", &json!({"metadata": metadata})).await.map(|_| ())
}

/// Of all that the claim says only what is the tenant's own went down.
async fn check_signed(stage: &Stage<'_>, place: &Place) -> Result<()> {
    let names = stage.names();
    until_ok("the host claim to be Carrick's alone", CAP, async || {
        let claim = place.host_claims().get("signed").await?;
        let labels = claim.metadata.labels.unwrap_or_default();
        let ours: Vec<_> =
            labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let (cluster, key) = (names.cluster(), names.key());
        ensure!(ours == [(cluster.as_str(), key), ("mine", "goes-down")], "{ours:?}");
        let annotations = claim.metadata.annotations.unwrap_or_default();
        for key in [names.locator(), names.diff(), names.delay()] {
            ensure!(!annotations.contains_key(&key), "{annotations:?}");
        }
        Ok(())
    })
    .await
}
