//! The other spelling of kcp's names, and claims that somebody else carried down: the transformer,
//! the upsyncer and the status-syncer do their steps alone.

use anyhow::{Context as _, Result, ensure};
use carrick_core::{Names, names::Domain};
use carrick_e2e::{
    Binder, CLASS, Place, Stage, check_pair, claim, make_namespace, phase, until_ok,
};
use carrick_testbed::Testbed;
use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, api::PostParams};
use serde_json::json;

use crate::CAP;

const TENANTS: [(&str, Binder); 2] = [("kcp", Binder::Carrick), ("vc", Binder::Tenant)];
const NAMESPACE: &str = "team-a";

#[tokio::test]
async fn in_the_other_domain_and_without_a_downsyncer_claims_are_bound() -> Result<()> {
    Testbed::run("others", async |testbed| Box::pin(others(testbed)).await).await
}

async fn others(testbed: &Testbed) -> Result<()> {
    let mut stage = Stage::servers(testbed, &TENANTS).await?;
    stage.carrick = stage.carrick.with("CARRICK_DOMAIN", "kcp.io");
    stage.carrick.start_all("0")?;
    stage.carrick.until_all_ready("0", CAP).await?;
    stage.add_tenants().await?;
    let (target, dev) = stage.target();
    let names = (target.clone(), Names::new(Domain::KcpIo, dev.key()));
    for (tenant, _) in TENANTS {
        let place = Place::new(&stage, tenant, NAMESPACE).await?;
        make_namespace(&place.tenant, NAMESPACE).await?;
        let classes: Api<StorageClass> = Api::all(place.tenant.clone());
        until_ok("the class to be published", CAP, async || Ok(classes.get(CLASS).await?)).await?;
        place.claims().create(&PostParams::default(), &claim("data", CLASS)?).await?;
        let clients = (&place.host, &place.tenant);
        let check = || check_pair(clients, &names, tenant, (NAMESPACE, "data"));
        let pair = until_ok("the claim to be linked", CAP, check).await?;
        let everything = serde_json::to_string(&(&pair.host_claim, &pair.host_volume))?;
        ensure!(!everything.contains("kcp.dev"), "{everything}");
    }
    stage.carrick.kill("downsyncer", "0").await?;
    for (tenant, _) in TENANTS {
        let place = Place::new(&stage, tenant, "by-hand").await?;
        carried_by_hand(&stage, &names.1, tenant, &place).await.context(tenant)?;
    }
    Ok(())
}

/// What another syncer does: a namespace with our locator, and in it a claim with our label alone.
async fn carried_by_hand(
    stage: &Stage<'_>,
    names: &Names,
    tenant: &str,
    place: &Place,
) -> Result<()> {
    make_namespace(&place.tenant, &place.namespace).await?;
    place.claims().create(&PostParams::default(), &claim("data", CLASS)?).await?;
    let locator = stage.locator(tenant, &place.namespace);
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {
        "name": place.host_namespace,
        "labels": {(names.cluster()): names.key(), (names.tenant_id()): locator.tenant_id()},
        "annotations": {(names.locator()): locator.to_json()},
    }}))?;
    place.host_namespaces().create(&PostParams::default(), &namespace).await?;
    let mut down = claim("data", CLASS)?;
    down.metadata.labels = Some([(names.cluster(), names.key().to_owned())].into());
    place.host_claims().create(&PostParams::default(), &down).await?;
    let bound = until_ok("the claim to be bound", CAP, async || {
        let claim: PersistentVolumeClaim = place.claims().get("data").await?;
        ensure!(phase(&claim) == "Bound", "it is {}", phase(&claim));
        Ok(claim)
    })
    .await?;
    let spec = bound.spec.clone().unwrap_or_default();
    let volume = spec.volume_name.context("it names its volume")?;
    let host = place.host_claims().get("data").await?;
    ensure!(host.spec.unwrap_or_default().volume_name.as_ref() == Some(&volume), "{volume}");
    let held = host.metadata.annotations.unwrap_or_default().contains_key(&names.delay());
    ensure!(!held, "still held back");
    let copy = place.volumes().get(&volume).await?.spec.unwrap_or_default();
    let points_at = copy.claim_ref.and_then(|reference| reference.uid);
    ensure!(points_at == bound.metadata.uid, "the copy points at {points_at:?}");
    Ok(())
}
