//! How claims end: deleted, held by soft finalizers (kcp #1528), taken off, and made again under the
//! same name; and what is cleaned up after them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use carrick_core::names::TENANT_CLAIM_UID;
use carrick_e2e::{
    Binder, CLASS, Pair, Place, SERVICES, Stage, check_stays, claim, make_claims, until_gone,
    until_no_writes, until_ok,
};
use carrick_testbed::{Testbed, throughout};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, PostParams, Preconditions},
};
use serde_json::json;

use crate::{CAP, until_shown, until_told};

const TENANTS: [(&str, Binder); 2] = [("kcp", Binder::Carrick), ("vc", Binder::Tenant)];
/// How long it is watched that something held stays.
const HELD: Duration = Duration::from_secs(4);
const GRACE: &str = "3s";

async fn start(testbed: &Testbed) -> Result<Stage<'_>> {
    let mut stage = Stage::servers(testbed, &TENANTS).await?;
    stage.carrick = stage.carrick.with("CARRICK_NAMESPACE_GRACE", GRACE);
    stage.carrick.start_all("0")?;
    stage.carrick.until_all_ready("0", CAP).await?;
    stage.add_tenants().await?;
    Ok(stage)
}

/// Claims in a namespace, bound.
async fn bound(
    stage: &Stage<'_>,
    tenant: &str,
    namespace: &str,
    claims: &[&str],
) -> Result<(Place, Vec<Pair>)> {
    let place = Place::new(stage, tenant, namespace).await?;
    let claims: Vec<_> = claims.iter().map(|claim| (*claim).to_owned()).collect();
    make_claims(&place.tenant, namespace, claims.clone(), CLASS).await?;
    let pairs = stage.linked(tenant, namespace, &claims).await?;
    Ok((place, pairs))
}

#[tokio::test]
async fn what_is_deleted_goes_on_both_sides_and_what_is_held_stays() -> Result<()> {
    Testbed::run("deletion", async |testbed| {
        let stage = start(testbed).await?;
        let each = TENANTS.map(|(tenant, _)| {
            let stage = &stage;
            async move {
                let (a, b, c, d) = tokio::join!(
                    all_goes(stage, tenant),
                    the_claim_holds(stage, tenant),
                    the_namespace_holds(stage, tenant),
                    taken_off(stage, tenant),
                );
                a.context("all goes")?;
                b.context("the claim holds")?;
                c.context("the namespace holds")?;
                d.context("taken off")
            }
        });
        try_join_all(each).await?;
        stage.carrick.check_alive()
    })
    .await
}

/// Claim, volume and namespace go on both sides; a host namespace with anything else in it stays.
async fn all_goes(stage: &Stage<'_>, tenant: &str) -> Result<()> {
    let (place, pairs) = bound(stage, tenant, "team-goes", &["a", "b"]).await?;
    for (claim, pair) in ["a", "b"].iter().zip(&pairs) {
        place.delete_claim(claim).await?;
        place.until_claim_gone(claim).await?;
        let volume = pair.host_volume.metadata.name.as_deref().context("a name")?;
        until_gone(&place.host_volumes(), volume).await.context("the host's volume")?;
        until_gone(&place.volumes(), volume).await.context("the tenant's volume")?;
    }
    until_gone(&place.host_namespaces(), &place.host_namespace).await?;
    // Made again, with something of the host's in it.
    let (place, _) = bound(stage, tenant, "team-goes", &["c"]).await?;
    let own = claim("of-the-host", "none")?;
    place.host_claims().create(&PostParams::default(), &own).await?;
    place.namespaces().delete("team-goes", &DeleteParams::default()).await?;
    place.until_claim_gone("c").await?;
    until_gone(&place.namespaces(), "team-goes").await?;
    throughout(HELD + HELD, async || {
        check_stays(&place.host_namespaces(), &place.host_namespace, None).await?;
        check_stays(&place.host_claims(), "of-the-host", None).await
    })
    .await?;
    place.host_namespaces().delete(&place.host_namespace, &DeleteParams::default()).await?;
    Ok(())
}

async fn the_claim_holds(stage: &Stage<'_>, tenant: &str) -> Result<()> {
    let (place, pairs) = bound(stage, tenant, "team-claim", &["before", "after"]).await?;
    let soft = stage.names().soft_finalizer();
    let other = format!("{soft}x");
    place.annotate_claim("before", &soft, json!("backup-of-night")).await?;
    place.annotate_claim("before", &other, json!("of another sync target")).await?;
    place.delete_claim("before").await?;
    until_told(&place.tenant, "team-claim", "before", "HeldByClaim").await.and_then(
        |(_, told)| {
            let message = told.message.unwrap_or_default();
            ensure!(message.contains("backup-of-night"), "{message}");
            Ok(())
        },
    )?;
    until_shown(stage, &format!("{tenant}/team-claim"), "delete held").await?;
    // While it is held it is kept in step.
    place.merge_claim("before", json!({"metadata": {"labels": {"late": "too"}}})).await?;
    until_ok("a label to go down", CAP, async || {
        let labels = place.host_claims().get("before").await?.metadata.labels;
        ensure!(labels.unwrap_or_default().contains_key("late"), "not yet");
        Ok(())
    })
    .await?;
    let uid = pairs[0].host_claim.metadata.uid.as_deref();
    throughout(HELD, async || check_stays(&place.host_claims(), "before", uid).await).await?;
    place.annotate_claim("before", &soft, json!("")).await?;
    place.until_claim_gone("before").await?;
    // Of another sync target's it takes no notice.
    place.annotate_claim("after", &other, json!("of another sync target")).await?;
    place.delete_claim("after").await?;
    place.until_claim_gone("after").await
}

async fn the_namespace_holds(stage: &Stage<'_>, tenant: &str) -> Result<()> {
    let (place, pairs) = bound(stage, tenant, "team-held", &["a", "b"]).await?;
    let soft = stage.names().soft_finalizer();
    place.annotate_namespace(&soft, json!("migration")).await?;
    place.delete_claim("a").await?;
    // The namespace goes with what is in it.
    place.namespaces().delete("team-held", &DeleteParams::default()).await?;
    for claim in ["a", "b"] {
        until_told(&place.tenant, "team-held", claim, "HeldByNamespace").await.and_then(
            |(_, told)| {
                let message = told.message.unwrap_or_default();
                ensure!(message.contains("migration"), "{message}");
                Ok(())
            },
        )?;
    }
    throughout(HELD, async || {
        for (claim, pair) in ["a", "b"].iter().zip(&pairs) {
            check_stays(&place.host_claims(), claim, pair.host_claim.metadata.uid.as_deref())
                .await?;
        }
        check_stays(&place.host_namespaces(), &place.host_namespace, None).await
    })
    .await?;
    place.annotate_namespace(&soft, json!(null)).await?;
    until_gone(&place.namespaces(), "team-held").await?;
    until_gone(&place.host_namespaces(), &place.host_namespace).await
}

/// The host side goes, the tenant's claim stays without our marks; held as a deletion is.
async fn taken_off(stage: &Stage<'_>, tenant: &str) -> Result<()> {
    let (place, pairs) = bound(stage, tenant, "team-off", &["data"]).await?;
    let names = stage.names();
    place.annotate_claim("data", &names.soft_finalizer(), json!("backup")).await?;
    place.annotate_claim("data", &names.deletion(), json!("2026-01-01T00:00:00Z")).await?;
    until_told(&place.tenant, "team-off", "data", "HeldByClaim").await?;
    let uid = pairs[0].host_claim.metadata.uid.as_deref();
    throughout(HELD, async || check_stays(&place.host_claims(), "data", uid).await).await?;
    place.annotate_claim("data", &names.soft_finalizer(), json!(null)).await?;
    until_gone(&place.host_claims(), "data").await?;
    until_ok("our marks to go", CAP, async || {
        let claim = place.claims().get("data").await?;
        let finalizers = claim.metadata.finalizers.unwrap_or_default();
        ensure!(!finalizers.contains(&names.finalizer()), "{finalizers:?}");
        Ok(())
    })
    .await?;
    throughout(HELD, async || {
        check_stays(&place.claims(), "data", pairs[0].tenant_claim.metadata.uid.as_deref()).await?;
        ensure!(place.host_claims().get_opt("data").await?.is_none(), "carried down again");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_claim_made_again_is_never_linked_to_the_volume_of_its_forerunner() -> Result<()> {
    Testbed::run("again", async |testbed| {
        let stage = start(testbed).await?;
        let again = TENANTS.map(|(tenant, _)| again_and_again(&stage, tenant));
        try_join_all(again).await?;
        held_while_nobody_was_there(&stage).await?;
        held_while_the_tenant_does_not_answer(&stage).await?;
        let planes = [&stage.host, stage.tenant("kcp")?, stage.tenant("vc")?];
        until_no_writes(&planes, Duration::from_secs(10), CAP).await
    })
    .await
}

/// Deleted and made again at once, in a loop.
async fn again_and_again(stage: &Stage<'_>, tenant: &str) -> Result<()> {
    let (place, mut pairs) = bound(stage, tenant, "team-again", &["data"]).await?;
    let claims = place.claims();
    let mut before = pairs.remove(0);
    for round in 0..4 {
        make_again(&claims, &before.tenant_claim).await?;
        if round % 2 == 0 {
            // At once again, however far it has come.
            let young = claims.get("data").await?;
            make_again(&claims, &young).await?;
        }
        let pair = stage.linked(tenant, "team-again", &["data".to_owned()]).await?.remove(0);
        let uid = |pair: &Pair| pair.host_volume.metadata.uid.clone();
        ensure!(uid(&pair) != uid(&before), "round {round}: the old volume");
        let old = before.host_volume.metadata.name.as_deref().context("a name")?;
        until_gone(&place.host_volumes(), old).await?;
        before = pair;
    }
    Ok(())
}

/// Waits until just this claim is gone, and makes it again at once.
async fn make_again(
    claims: &Api<PersistentVolumeClaim>,
    old: &PersistentVolumeClaim,
) -> Result<()> {
    let uid = old.metadata.uid.clone();
    let only = Preconditions { uid, resource_version: None };
    claims.delete("data", &DeleteParams::default().preconditions(only)).await?;
    let again = claim("data", CLASS)?;
    until_ok("the claim to be made again", CAP, async || {
        Ok(claims.create(&PostParams::default(), &again).await?)
    })
    .await
    .map(|_| ())
}

/// What happens to a claim and its namespace while no service runs counts when they do again.
async fn held_while_nobody_was_there(stage: &Stage<'_>) -> Result<()> {
    let (tenant, soft) = ("kcp", stage.names().soft_finalizer());
    let (held, held_pairs) = bound(stage, tenant, "team-down-held", &["data"]).await?;
    let (freed, _) = bound(stage, tenant, "team-down-freed", &["data"]).await?;
    let (again, again_pairs) = bound(stage, tenant, "team-down-again", &["data"]).await?;
    freed.annotate_namespace(&soft, json!("backup")).await?;
    freed.delete_claim("data").await?;
    until_told(&freed.tenant, "team-down-freed", "data", "HeldByNamespace").await?;
    for service in SERVICES {
        stage.carrick.kill(service, "0").await?;
    }
    held.annotate_namespace(&soft, json!("backup")).await?;
    held.delete_claim("data").await?;
    freed.annotate_namespace(&soft, json!(null)).await?;
    // Somebody takes our finalizer off, and makes the claim again.
    again.delete_claim("data").await?;
    again.merge_claim("data", json!({"metadata": {"finalizers": null}})).await?;
    until_ok("the claim to be made again", CAP, async || {
        let made = claim("data", CLASS)?;
        Ok(again.claims().create(&PostParams::default(), &made).await?)
    })
    .await?;
    stage.carrick.start_all("1")?;
    freed.until_claim_gone("data").await?;
    until_told(&held.tenant, "team-down-held", "data", "HeldByNamespace").await?;
    let uid = held_pairs[0].host_claim.metadata.uid.as_deref();
    throughout(HELD, async || check_stays(&held.host_claims(), "data", uid).await).await?;
    held.annotate_namespace(&soft, json!("")).await?;
    held.until_claim_gone("data").await?;
    let pair = stage.linked(tenant, "team-down-again", &["data".to_owned()]).await?.remove(0);
    let (old, new) = (&again_pairs[0], &pair);
    ensure!(old.host_volume.metadata.uid != new.host_volume.metadata.uid, "the old volume");
    let made_for = new.host_claim.metadata.annotations.clone().unwrap_or_default();
    ensure!(made_for.get(TENANT_CLAIM_UID) == new.tenant_claim.metadata.uid.as_ref());
    Ok(())
}

/// Whether something holds a claim is the tenant's to say: while it can't be asked, nothing goes.
async fn held_while_the_tenant_does_not_answer(stage: &Stage<'_>) -> Result<()> {
    let tenant = "kcp";
    let (place, pairs) = bound(stage, tenant, "team-silent", &["data"]).await?;
    stage.carrick.kill("downsyncer", "1").await?;
    let tap = stage.carrick.tap("tap-silent", &format!("{tenant}/team-silent/data"))?;
    place.delete_claim("data").await?;
    // All but the tenant's own answer says that it may go.
    until_ok("the bus to know that no pod uses the claim", CAP, async || {
        let may_go = |line: &str| {
            line.contains("deletionTimestamp") && !line.contains("kubernetes.io/pvc-protection")
        };
        ensure!(tap.log().lines().any(may_go), "not yet");
        Ok(())
    })
    .await?;
    tap.kill().await?;
    let server = stage.tenant(tenant)?.api_server().context("it runs")?;
    server.pause()?;
    stage.carrick.start("downsyncer", "2")?;
    let uid = pairs[0].host_claim.metadata.uid.as_deref();
    let held = async {
        until_shown(stage, &format!("{tenant}/team-silent"), "delete held").await?;
        check_stays(&place.host_claims(), "data", uid).await
    };
    let held = held.await;
    server.resume()?;
    held?;
    place.until_claim_gone("data").await
}
