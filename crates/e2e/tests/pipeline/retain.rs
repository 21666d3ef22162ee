//! A volume that its host keeps outlives its claim on both sides, and is claimed again as
//! `docs/retain.md` says, and in no other way (loft-sh/vcluster#1464, #600, `VirtualCluster` PR #351).

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::{Binder, HOST_PATH, Pair, Place, Stage, claim, make_claims, phase, until_ok};
use carrick_testbed::{Testbed, throughout};
use futures::future::try_join_all;
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::StorageClass};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{CAP, WINDOW};

const TENANTS: [(&str, Binder); 2] = [("kcp", Binder::Carrick), ("vc", Binder::Tenant)];
const NAMESPACE: &str = "team-a";
const KEPT: &str = "kept";

#[tokio::test]
async fn a_retained_volume_outlives_its_claim_and_can_be_claimed_again() -> Result<()> {
    Testbed::run("retain", async |testbed| {
        let stage = Stage::start(testbed, &TENANTS).await?;
        let classes: Api<StorageClass> = Api::all(stage.host.client().await?);
        let class = json!({
            "metadata": {"name": KEPT}, "provisioner": HOST_PATH, "reclaimPolicy": "Retain",
        });
        classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
        let each = TENANTS.map(|(tenant, _)| {
            let stage = &stage;
            async move {
                let place = Place::new(stage, tenant, NAMESPACE).await?;
                let claims = ["same", "other"].map(str::to_owned);
                make_claims(&place.tenant, NAMESPACE, claims.clone(), KEPT).await?;
                let pairs = stage.linked(tenant, NAMESPACE, &claims).await?;
                Box::pin(again(stage, tenant, &place, &pairs[0], "same")).await.context("same")?;
                Box::pin(again(stage, tenant, &place, &pairs[1], "renamed"))
                    .await
                    .context("renamed")
            }
        });
        try_join_all(each).await?;
        stage.carrick.check_alive()
    })
    .await
}

/// A claim goes, its volume stays, and a claim of this name gets it.
async fn again(
    stage: &Stage<'_>,
    tenant: &str,
    place: &Place,
    before: &Pair,
    name: &str,
) -> Result<()> {
    let former = before.tenant_claim.metadata.name.as_deref().context("a name")?;
    let volume = before.host_volume.metadata.name.as_deref().context("a name")?;
    place.delete_claim(former).await?;
    place.until_claim_gone(former).await?;
    for (side, volumes) in [("host", place.host_volumes()), ("tenant", place.volumes())] {
        until_released(&volumes, volume).await.with_context(|| format!("on the {side}"))?;
    }
    // The tenant frees its copy, and asks for it: the copy is put back, and nothing is bound.
    let free = Patch::Merge(json!({"spec": {"claimRef": null}}));
    place.volumes().patch(volume, &PatchParams::default(), &free).await?;
    let mut wanted = claim(name, KEPT)?;
    wanted.spec.get_or_insert_default().volume_name = Some(volume.to_owned());
    place.claims().create(&PostParams::default(), &wanted).await?;
    until_ok("the claimRef to be put back", CAP, async || {
        let reference = place.volumes().get(volume).await?.spec.and_then(|spec| spec.claim_ref);
        let uid = reference.and_then(|reference| reference.uid);
        ensure!(uid == before.tenant_claim.metadata.uid, "it names {uid:?}");
        Ok(())
    })
    .await?;
    until_ok("the host claim to name the volume", CAP, async || {
        let spec = place.host_claims().get(name).await?.spec.unwrap_or_default();
        ensure!(spec.volume_name.as_deref() == Some(volume), "{:?}", spec.volume_name);
        Ok(())
    })
    .await?;
    // A binder of the tenant's may have been faster, and sees then that it was wrong.
    let not_bound = async || {
        let claim = place.claims().get(name).await?;
        ensure!(phase(&claim) != "Bound", "bound before the host has it bound");
        Ok(())
    };
    until_ok("the claim not to be bound", CAP, not_bound).await?;
    throughout(WINDOW, not_bound).await?;
    // The host's admin frees the volume for whoever names it.
    place.host_volumes().patch(volume, &PatchParams::default(), &free).await?;
    let pair = stage.linked(tenant, NAMESPACE, &[name.to_owned()]).await?.remove(0);
    let uid = |pair: &Pair| pair.host_volume.metadata.uid.clone();
    ensure!(uid(&pair) == uid(before), "another volume");
    if former != name {
        ensure!(place.claims().get_opt(former).await?.is_none(), "the former claim is back");
    }
    Ok(())
}

async fn until_released(volumes: &Api<PersistentVolume>, name: &str) -> Result<()> {
    until_ok("the volume to be released", CAP, async || {
        let status = volumes.get(name).await?.status.unwrap_or_default();
        ensure!(status.phase.as_deref() == Some("Released"), "it is {:?}", status.phase);
        Ok(())
    })
    .await
}
