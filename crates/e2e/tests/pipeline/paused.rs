//! A paused Tenant: nothing is done for it, what was said of its claims stands, and it goes on where
//! it was.

use std::time::Duration;

use anyhow::{Result, ensure};
use carrick_e2e::{
    Binder, CLASS, Stage, claim, make_claims, make_namespace, tenants, until_bound, until_condition,
};
use carrick_testbed::{Testbed, throughout};
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{CAP, until_shown, until_told};

const TENANT: &str = "kcp";
const WINDOW: Duration = Duration::from_secs(5);

#[tokio::test]
async fn nothing_is_done_for_a_paused_tenant_and_what_was_said_stands() -> Result<()> {
    Testbed::run("paused", async |testbed| {
        let stage = Stage::start(testbed, &[(TENANT, Binder::Carrick)]).await?;
        let (host, client) = (stage.host.client().await?, stage.client(TENANT).await?);
        make_refused(&client).await?;
        until_told(&client, "team-refused", "data", "SelectorRefused").await?;

        pause(&host, true).await?;
        let (reason, _) = until_condition(&host, TENANT, ("Synced", "False"), CAP).await?;
        ensure!(reason == "Paused", "it is {reason}");
        make_claims(&client, "team-new", ["data".to_owned()], CLASS).await?;
        until_shown(&stage, &format!("{TENANT}/team-new"), "Pending").await?;
        let carried: Api<PersistentVolumeClaim> =
            Api::namespaced(host.clone(), &stage.host_namespace(TENANT, "team-new"));
        throughout(WINDOW, async || {
            let found = carried.list(&ListParams::default()).await?.items;
            ensure!(found.is_empty(), "carried down while paused: {found:?}");
            Ok(())
        })
        .await?;
        until_shown(&stage, &format!("{TENANT}/team-refused"), "claim refused").await?;

        pause(&host, false).await?;
        until_bound(&client, "team-new", 1, CAP).await?;
        stage.linked(TENANT, "team-new", &["data".to_owned()]).await?;
        until_shown(&stage, &format!("{TENANT}/team-refused"), "claim refused").await?;
        stage.carrick.check_alive()
    })
    .await
}

async fn pause(host: &Client, paused: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
    tenants(host).patch(TENANT, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A claim that chooses among the host's volumes, which no tenant may.
async fn make_refused(client: &Client) -> Result<()> {
    make_namespace(client, "team-refused").await?;
    let mut refused = claim("data", CLASS)?;
    if let Some(spec) = &mut refused.spec {
        spec.selector = Some(LabelSelector::default());
    }
    let claims = Api::namespaced(client.clone(), "team-refused");
    claims.create(&PostParams::default(), &refused).await?;
    Ok(())
}
