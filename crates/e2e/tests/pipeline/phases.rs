//! A tenant's claim is never better than the host's (`VirtualCluster` PR #351): whatever happens to
//! the host claim or volume of a bound claim, its tenant sees it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::{
    Binder, CLASS, Pair, Place, SERVICES, Stage, make_claims, phase, until_gone, until_no_writes,
    until_ok,
};
use carrick_testbed::Testbed;
use futures::future::try_join_all;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    events::v1::Event,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{CAP, until_told};

const TENANTS: [(&str, Binder); 2] = [("kcp", Binder::Carrick), ("vc", Binder::Tenant)];
const NAMESPACE: &str = "team-a";
/// A class that nobody provisions.
const STUCK: &str = "stuck";
const CLAIMS: [&str; 4] = ["volume-gone", "claim-gone", "while-away", "by-hand"];

#[tokio::test]
async fn a_bound_claim_whose_host_side_is_lost_or_gone_is_lost() -> Result<()> {
    Testbed::run("phases", async |testbed| {
        let stage = Stage::start(testbed, &TENANTS).await?;
        let mut places = Vec::new();
        for (tenant, _) in TENANTS {
            let place = Place::new(&stage, tenant, NAMESPACE).await?;
            let claims = CLAIMS.map(str::to_owned);
            make_claims(&place.tenant, NAMESPACE, claims.clone(), CLASS).await?;
            let pairs = stage.linked(tenant, NAMESPACE, &claims).await?;
            places.push((tenant, place, pairs));
        }
        let here = places.iter().map(async |(tenant, place, pairs)| {
            tokio::try_join!(
                volume_gone(place, &pairs[0]),
                claim_gone(place, &pairs[1]),
                edited_by_hand(&stage, tenant, place),
            )
        });
        try_join_all(here).await?;
        for service in SERVICES {
            stage.carrick.kill(service, "0").await?;
        }
        for (_, place, pairs) in &places {
            delete_host_volume(place, &pairs[2]).await?;
        }
        stage.carrick.start_all("1")?;
        for (_, place, _) in &places {
            until_phase(&place.claims(), "while-away", "Lost").await?;
            until_told(&place.tenant, NAMESPACE, "while-away", "VolumeLost").await?;
        }
        // Nobody fights: both sides rest.
        let all = [&stage.host, stage.tenant("kcp")?, stage.tenant("vc")?];
        until_no_writes(&all, Duration::from_secs(15), CAP).await
    })
    .await
}

async fn until_phase(
    claims: &Api<PersistentVolumeClaim>,
    claim: &str,
    expected: &str,
) -> Result<PersistentVolumeClaim> {
    until_ok(&format!("claim {claim} to be {expected}"), CAP, async || {
        let claim = claims.get(claim).await?;
        ensure!(phase(&claim) == expected, "it is {}", phase(&claim));
        Ok(claim)
    })
    .await
}

/// Somebody on the host takes a bound volume away.
async fn delete_host_volume(place: &Place, pair: &Pair) -> Result<()> {
    let name = pair.host_volume.metadata.name.as_deref().context("a name")?;
    let volumes = place.host_volumes();
    volumes.delete(name, &DeleteParams::default()).await?;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch(name, &PatchParams::default(), &free).await?;
    Ok(())
}

async fn volume_gone(place: &Place, pair: &Pair) -> Result<()> {
    delete_host_volume(place, pair).await?;
    until_phase(&place.host_claims(), "volume-gone", "Lost").await.context("on the host")?;
    until_phase(&place.claims(), "volume-gone", "Lost").await.context("in the tenant")?;
    until_told(&place.tenant, NAMESPACE, "volume-gone", "VolumeLost").await?;
    let name = pair.tenant_volume.metadata.name.as_deref().context("a name")?;
    until_gone(&place.volumes(), name).await
}

/// Somebody on the host deletes a bound claim: it is not made again with an empty volume.
async fn claim_gone(place: &Place, pair: &Pair) -> Result<()> {
    place.host_claims().delete("claim-gone", &DeleteParams::default()).await?;
    until_gone(&place.host_claims(), "claim-gone").await?;
    until_phase(&place.claims(), "claim-gone", "Lost").await?;
    until_told(&place.tenant, NAMESPACE, "claim-gone", "HostClaimGone").await?;
    ensure!(place.host_claims().get_opt("claim-gone").await?.is_none(), "it was made again");
    let name = pair.tenant_volume.metadata.name.as_deref().context("a name")?;
    until_gone(&place.volumes(), name).await
}

/// Where nobody but Carrick writes the status, an edit of it is put right.
async fn edited_by_hand(stage: &Stage<'_>, tenant: &str, place: &Place) -> Result<()> {
    let claims = place.claims();
    let pending = Patch::Merge(json!({"status": {"phase": "Pending", "capacity": null}}));
    claims.patch_status("by-hand", &PatchParams::default(), &pending).await?;
    until_phase(&claims, "by-hand", "Bound").await?;
    stage.linked(tenant, NAMESPACE, &["by-hand".to_owned()]).await.map(|_| ())
}

#[tokio::test]
async fn a_claim_that_is_bound_to_a_volume_of_the_tenants_own_is_told_and_not_fought() -> Result<()>
{
    Testbed::run("mismatch", async |testbed| {
        let stage = Stage::start(testbed, &[("vc", Binder::Tenant)]).await?;
        let place = Place::new(&stage, "vc", NAMESPACE).await?;
        stage.host.create_storage_class(STUCK, "example.com/nobody").await?;
        make_claims(&place.tenant, NAMESPACE, ["data".to_owned()], STUCK).await?;
        until_phase(&place.host_claims(), "data", "Pending").await?;
        // While the host has no volume for it, the tenant's binder takes this.
        let own: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": "own"},
            "spec": {
                "storageClassName": STUCK,
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": testbed.folder()},
                "claimRef": {"namespace": NAMESPACE, "name": "data"},
            },
        }))?;
        place.volumes().create(&PostParams::default(), &own).await?;
        until_phase(&place.claims(), "data", "Bound").await?;
        let (claim, _) = until_told(&place.tenant, NAMESPACE, "data", "PhaseMismatch").await?;
        let named = claim.spec.and_then(|spec| spec.volume_name);
        ensure!(named.as_deref() == Some("own"), "{named:?}");
        until_ok("an Event to tell of it", CAP, async || {
            let events: Api<Event> = Api::namespaced(place.tenant.clone(), NAMESPACE);
            let listed = events.list(&ListParams::default()).await?.items;
            let told = |e: &Event| {
                e.reason.as_deref() == Some("PhaseMismatch")
                    && e.type_.as_deref() == Some("Warning")
            };
            ensure!(listed.iter().any(told), "{listed:?}");
            Ok(())
        })
        .await?;
        until_ok("the metric to count it", CAP, async || {
            let metrics = stage.carrick.metrics("status-syncer", "0").await?;
            let line = metrics.lines().find(|l| l.starts_with("carrick_claim_phase_mismatch{"));
            let line = line.context("there is no such metric")?;
            ensure!(line.contains("tenant=\"vc\"") && line.ends_with(" 1"), "{line}");
            Ok(())
        })
        .await?;
        let planes = [&stage.host, stage.tenant("vc")?];
        until_no_writes(&planes, Duration::from_secs(15), CAP).await?;
        place.delete_claim("data").await?;
        place.until_claim_gone("data").await?;
        // The tenant's own volume is the tenant's.
        place.volumes().get("own").await?;
        stage.carrick.check_alive()
    })
    .await
}
