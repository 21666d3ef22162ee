//! A Tenant that is removed: with `onRemoval: Retain` nothing on the host is touched, with `Delete`
//! its host side goes first, and a soft finalizer holds that up.

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::{
    Binder, CLASS, Pair, Place, SERVICES, Stage, check_stays, make_claims, phase, tenant_condition,
    until_gone, until_ok,
};
use carrick_testbed::{Testbed, throughout};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{CAP, WINDOW, until_told};

const TENANTS: [(&str, Binder); 4] = [
    ("kcp", Binder::Carrick),
    ("vc", Binder::Tenant),
    ("keeps", Binder::Carrick),
    ("silent", Binder::Carrick),
];
const NAMESPACE: &str = "team-a";
const FINALIZER: &str = "carrick.dev/tenant";

#[tokio::test]
async fn a_removed_tenants_host_side_goes_only_if_that_is_asked_for() -> Result<()> {
    Testbed::run("removal", async |testbed| Box::pin(removal(testbed)).await).await
}

async fn removal(testbed: &Testbed) -> Result<()> {
    let stage = Stage::start(testbed, &TENANTS).await?;
    let tenants = carrick_e2e::tenants(&stage.host.client().await?);
    let mut places = Vec::new();
    for (tenant, _) in TENANTS {
        let place = Place::new(&stage, tenant, NAMESPACE).await?;
        let claims = ["data", "held"].map(str::to_owned);
        make_claims(&place.tenant, NAMESPACE, claims.clone(), CLASS).await?;
        places.push((place, stage.linked(tenant, NAMESPACE, &claims).await?));
        if tenant != "keeps" {
            ask_for_deletion(&tenants, tenant).await?;
        }
    }
    let [(kcp, _), (vc, _), (keeps, kept), (silent, left)] =
        <[_; 4]>::try_from(places).map_err(|_| anyhow::anyhow!("four tenants"))?;
    deleted(&stage, &tenants, "kcp", &kcp).await.context("without a binder")?;
    deleted(&stage, &tenants, "vc", &vc).await.context("with a binder")?;
    // By default, or where the tenant can't be asked and its operator says so, all stays.
    stage.tenant("silent")?.stop_api_server(carrick_testbed::Stop::Kill).await?;
    tenants.delete("silent", &DeleteParams::default()).await?;
    until_waits(&tenants, "silent", "NotConnected").await?;
    set_on_removal(&tenants, "silent", "Retain").await?;
    until_gone(&tenants, "silent").await?;
    let said = stage.carrick.carrick(&["tenant", "remove", "keeps", "--yes"]).await?;
    ensure!(said.out.contains("on the host: 2 claims stay"), "{}{}", said.out, said.err);
    throughout(WINDOW, async || {
        for (place, pairs) in [(&keeps, &kept), (&silent, &left)] {
            on_host_stays(place, pairs).await?;
        }
        Ok(())
    })
    .await
}

async fn on_host_stays(place: &Place, pairs: &[Pair]) -> Result<()> {
    for pair in pairs {
        let meta = &pair.host_claim.metadata;
        let name = meta.name.as_deref().context("a name")?;
        check_stays(&place.host_claims(), name, meta.uid.as_deref()).await?;
        let meta = &pair.host_volume.metadata;
        let name = meta.name.as_deref().context("a name")?;
        check_stays(&place.host_volumes(), name, meta.uid.as_deref()).await?;
    }
    Ok(())
}

async fn set_on_removal(tenants: &Api<DynamicObject>, name: &str, value: &str) -> Result<()> {
    let patch: Patch<Value> = Patch::Merge(json!({"spec": {"onRemoval": value}}));
    tenants.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn ask_for_deletion(tenants: &Api<DynamicObject>, name: &str) -> Result<()> {
    set_on_removal(tenants, name, "Delete").await?;
    until_ok("the Tenant to be kept until then", CAP, async || {
        let finalizers = tenants.get(name).await?.metadata.finalizers.unwrap_or_default();
        ensure!(finalizers == [FINALIZER], "{finalizers:?}");
        Ok(())
    })
    .await
}

/// Waits until a Tenant that is being deleted says for this reason why it is still there; its words.
async fn until_waits(tenants: &Api<DynamicObject>, name: &str, reason: &str) -> Result<String> {
    until_ok(&format!("{reason} to be told of Tenant {name}"), CAP, async || {
        let told = tenant_condition(&tenants.clone().into_client(), name, "Removed").await?;
        ensure!(told["reason"] == reason, "told is {told}");
        Ok(told["message"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

/// One claim is held, the other goes at once; then all does.
async fn deleted(
    stage: &Stage<'_>,
    tenants: &Api<DynamicObject>,
    tenant: &str,
    place: &Place,
) -> Result<()> {
    let soft = stage.names().soft_finalizer();
    place.annotate_claim("held", &soft, json!("backup")).await?;
    let before = place.host_claims().get("held").await?.metadata.uid;
    // What was deleted while no service ran counts when they do again.
    for service in SERVICES {
        stage.carrick.kill(service, if tenant == "kcp" { "0" } else { "1" }).await?;
    }
    tenants.delete(tenant, &DeleteParams::default()).await?;
    stage.carrick.start_all(if tenant == "kcp" { "1" } else { "2" })?;
    until_gone(&place.host_claims(), "data").await?;
    until_told(&place.tenant, NAMESPACE, "held", "HeldByClaim").await?;
    let said = until_ok("what is left to be told", CAP, async || {
        let said = until_waits(tenants, tenant, "Remaining").await?;
        ensure!(said.starts_with("on the host: 1 claim, 1 namespace;"), "{said}");
        Ok(said)
    })
    .await?;
    ensure!(said.contains("carrick.dev/Storage"), "{said}");
    throughout(WINDOW, async || {
        check_stays(&place.host_claims(), "held", before.as_deref()).await?;
        tenants.get(tenant).await.map(|_| ()).context("the Tenant went before its host side")
    })
    .await?;
    let waited = async {
        let args = ["tenant", "remove", tenant, "--yes", "--wait", "1m"];
        let said = stage.carrick.carrick(&args).await?;
        ensure!(said.out.contains("and all that Carrick had of it"), "{}{}", said.out, said.err);
        Ok(())
    };
    let freed = place.annotate_claim("held", &soft, json!(""));
    tokio::try_join!(waited, freed)?;
    until_gone(tenants, tenant).await?;
    nothing_is_left(stage, place).await
}

/// On the host nothing, in the tenant its own claims alone.
async fn nothing_is_left(stage: &Stage<'_>, place: &Place) -> Result<()> {
    ensure!(place.host_claims().list(&ListParams::default()).await?.items.is_empty());
    ensure!(place.host_namespaces().get_opt(&place.host_namespace).await?.is_none());
    ensure!(place.volumes().list(&ListParams::default()).await?.items.is_empty());
    let classes: Api<StorageClass> = Api::all(place.tenant.clone());
    ensure!(classes.get_opt(CLASS).await?.is_none(), "the class is still published");
    for claim in ["data", "held"] {
        let claim = place.claims().get(claim).await?;
        ensure!(phase(&claim) == "Lost", "it is {}", phase(&claim));
        let finalizers = claim.metadata.finalizers.unwrap_or_default();
        ensure!(!finalizers.contains(&stage.names().finalizer()), "{finalizers:?}");
    }
    Ok(())
}
