//! What happens to a tenant stays with it: one that does not answer delays no other, one that
//! takes the marks off its volumes gets them back, and nothing is written to a control plane that
//! a changed kubeconfig leads to.

use anyhow::{Context as _, Result, ensure};
use carrick_core::names::PROVISIONED_BY;
use carrick_e2e::{
    Binder, CLASS, Stage, make_claims, numbered, put_secret, tenants, until_bound, until_ok,
};
use carrick_testbed::{Stop, Testbed, eventually};
use k8s_openapi::api::core::v1::{PersistentVolume, Secret};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{CAP, until_shown};

const SILENT: &str = "silent";
const QUIET: &str = "quiet";
/// More than one service looks at, at a time.
const MANY: usize = 40;
const FEW: usize = 5;

#[tokio::test]
async fn a_tenant_that_does_not_answer_delays_no_other_and_is_complained_of_once() -> Result<()> {
    Testbed::run("silent", async |testbed| {
        let tenants = [(SILENT, Binder::Carrick), (QUIET, Binder::Carrick)];
        let mut stage = Stage::servers(testbed, &tenants).await?;
        // A call that hangs does so for longer than anything here may take.
        stage.carrick = stage.carrick.with("CARRICK_CALL_TIMEOUT", "2m");
        stage.carrick.start_all("0")?;
        stage.carrick.until_all_ready("0", CAP).await?;
        stage.add_tenants().await?;
        let (silent, quiet) = (stage.client(SILENT).await?, stage.client(QUIET).await?);

        // It is the calls that are to hang, not the making of connections: these are there by now.
        make_claims(&silent, "before", numbered("data", MANY), CLASS).await?;
        until_bound(&silent, "before", MANY, CAP).await?;
        let server = stage.tenant(SILENT)?.api_server().context("it runs")?;
        let downsyncer = stage.carrick.process("downsyncer", "0")?;
        downsyncer.pause()?;
        make_known(&stage, "hangs").await?;
        server.pause()?;
        downsyncer.resume()?;
        make_claims(&quiet, "while-it-hangs", numbered("data", FEW), CLASS).await?;
        until_bound(&quiet, "while-it-hangs", FEW, CAP).await?;
        server.resume()?;
        until_bound(&silent, "hangs", MANY, CAP).await?;

        stage.carrick.kill("downsyncer", "0").await?;
        make_known(&stage, "is-down").await?;
        stage.tenant(SILENT)?.stop_api_server(Stop::Kill).await?;
        let downsyncer = stage.carrick.start("downsyncer", "0")?;
        make_claims(&quiet, "while-it-is-down", numbered("data", FEW), CLASS).await?;
        until_bound(&quiet, "while-it-is-down", FEW, CAP).await?;
        let complaints = || {
            let log = downsyncer.log();
            let of = |text: &str| log.lines().filter(|line| line.contains(text)).count();
            (of("does not answer"), of("A look failed"))
        };
        ensure!(complaints() == (1, 0), "it was complained {:?} times", complaints());
        stage.tenant(SILENT)?.start_api_server().await?;
        let silent = stage.client(SILENT).await?;
        until_bound(&silent, "is-down", MANY, CAP).await?;
        stage.carrick.check_alive()
    })
    .await
}

/// Makes claims in the silent tenant, and waits until the watcher has seen them.
async fn make_known(stage: &Stage<'_>, namespace: &str) -> Result<()> {
    let client = stage.client(SILENT).await?;
    make_claims(&client, namespace, numbered("data", MANY), CLASS).await?;
    until_ok("the claims to be known", CAP, async || {
        let below = format!("{SILENT}/{namespace}");
        let said = stage.carrick.carrick(&["get", "claims", &below, "-o", "name"]).await?;
        ensure!(said.out.lines().count() == MANY, "{}{}", said.out, said.err);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_copy_that_its_tenant_takes_the_marks_off_gets_them_back() -> Result<()> {
    Testbed::run("stripped", async |testbed| {
        let stage = Stage::start(testbed, &[(QUIET, Binder::Tenant)]).await?;
        let client = stage.client(QUIET).await?;
        let claims = numbered("data", 1);
        make_claims(&client, "team-a", claims.clone(), CLASS).await?;
        until_bound(&client, "team-a", 1, CAP).await?;
        let pairs = stage.linked(QUIET, "team-a", &claims).await?;
        let name = pairs[0].host_volume.metadata.name.clone().context("a volume has a name")?;
        let volumes: Api<PersistentVolume> = Api::all(client);
        for marks in [
            json!({"labels": null, "finalizers": null}),
            json!({"annotations": {PROVISIONED_BY: null}}),
            json!({"labels": null, "finalizers": null, "annotations": {PROVISIONED_BY: "other"}}),
        ] {
            let patch = Patch::Merge(json!({"metadata": marks}));
            volumes.patch(&name, &PatchParams::default(), &patch).await?;
            stage.linked(QUIET, "team-a", &claims).await?;
        }
        stage.carrick.check_alive()
    })
    .await
}

#[tokio::test]
async fn nothing_is_written_to_a_control_plane_that_a_changed_secret_leads_to() -> Result<()> {
    const OTHER: &str = "other";
    Testbed::run("swapped", async |testbed| {
        let tenants = [(QUIET, Binder::Carrick), (OTHER, Binder::Carrick)];
        let stage = Stage::start(testbed, &tenants).await?;
        let (host, client) = (stage.host.client().await?, stage.client(QUIET).await?);
        // The volume is ready to be carried up, and nobody is there to notice the swap.
        stage.carrick.kill("upsyncer", "0").await?;
        let claims = numbered("data", 1);
        make_claims(&client, "team-a", claims.clone(), CLASS).await?;
        until_shown(&stage, &format!("{QUIET}/team-a"), "transform").await?;
        stage.carrick.kill("watcher", "0").await?;
        let (secret, key, before) = secret_of(&host, QUIET).await?;
        put_secret(&host, &secret, &key, &stage.tenant(OTHER)?.kubeconfig()).await?;

        let upsyncer = stage.carrick.start("upsyncer", "0")?;
        eventually("the other control plane to be noticed", CAP, async || {
            Ok(upsyncer.log().contains("IdentityChanged").then_some(()))
        })
        .await?;
        let volumes: Api<PersistentVolume> = Api::all(stage.client(OTHER).await?);
        let found = volumes.list(&ListParams::default()).await?.items;
        ensure!(found.is_empty(), "carried up to a stranger: {found:?}");

        put_secret(&host, &secret, &key, &before).await?;
        stage.carrick.start("watcher", "0")?;
        until_bound(&client, "team-a", 1, CAP).await?;
        stage.linked(QUIET, "team-a", &claims).await?;
        stage.carrick.check_alive()
    })
    .await
}

/// Name, key and text of the Secret that a Tenant names.
async fn secret_of(host: &Client, tenant: &str) -> Result<(String, String, String)> {
    let tenant = tenants(host).get(tenant).await?;
    let named = &tenant.data["spec"]["kubeconfig"]["secretRef"];
    let text = |field: &str| named[field].as_str().unwrap_or_default().to_owned();
    let (namespace, name, key) = (text("namespace"), text("name"), text("key"));
    let secret = Api::<Secret>::namespaced(host.clone(), &namespace).get(&name).await?;
    let kubeconfig =
        secret.data.and_then(|mut data| data.remove(&key)).context("it has the key")?;
    Ok((name, key, String::from_utf8(kubeconfig.0)?))
}
