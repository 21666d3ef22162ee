//! A tenant's life: added, reported on, listed, removed.

use anyhow::{Context as _, Result, ensure};
use carrick_core::{Domain, Locator, Names, SyncTarget};
use carrick_testbed::{Testbed, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Secret};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{Bench, CAP, SYSTEM, condition, live, run};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_added_listed_and_removed() -> Result<()> {
    Testbed::run("cli-life", async |testbed| {
        let bench = Bench::start(testbed).await?;
        let absent = ["Carrick is not installed in the host at https://"];
        bench.carrick(&["tenant", "list"]).await?.expect(1, &absent)?;
        bench.carrick(&["tenant", "remove", "acme", "--yes"]).await?.expect(1, &absent)?;

        let said = bench.add("acme", &["--dry-run"]).await?;
        said.expect(0, &absent)?;
        said.expect(0, &["can be added", "carrick-system/carrick-tenant-acme", "every storage"])?;
        ensure!(bench.writes()?.is_empty(), "a dry run wrote: {:?}", bench.writes()?);

        let said = bench.add("acme", &["--wait", "1s", "--class", "fast=ssd"]).await?;
        said.expect(0, &["tenant acme added", "does the watcher run?"])?;
        ensure!(!said.out.contains("every storage"), "{said:?}");
        what_was_made(&bench).await?;
        twice_is_refused(&bench).await?;
        not_let_in(&bench).await?;
        listed(&bench).await?;
        removed(&bench).await
    })
    .await
}

async fn what_was_made(bench: &Bench<'_>) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(bench.on_host.clone(), SYSTEM);
    let secret = secrets.get("carrick-tenant-acme").await?;
    let data = secret.data.context("a Secret has data")?;
    let kubeconfig = String::from_utf8(data["kubeconfig"].0.clone())?;
    let admin = bench.tenant.kubeconfig();
    let token = admin.lines().find_map(|line| line.trim().strip_prefix("token: "));
    ensure!(!kubeconfig.contains(token.context("a token")?), "the administrator's token is kept");
    let tenant = bench.tenants().get("acme").await?;
    ensure!(tenant.spec.kubeconfig.secret_ref.name == "carrick-tenant-acme");
    ensure!(!tenant.spec.storage_classes.allow_all);
    ensure!(bench.account().await?.len() == 4, "{:?}", bench.account().await?);
    Ok(())
}

async fn twice_is_refused(bench: &Bench<'_>) -> Result<()> {
    let own: Api<Namespace> = Api::all(bench.in_tenant.clone());
    let identity = own.get("kube-system").await?.metadata.uid.context("a uid")?;
    bench.report("acme", json!({"identity": identity})).await?;
    let before = bench.writes()?;
    for (name, more, words) in [
        ("acme", &[][..], "tenant acme exists already"),
        ("other", &[], "this control plane is tenant acme already"),
    ] {
        bench.add(name, more).await?.expect(1, &[words])?;
    }
    bench.report("acme", json!({"identity": null})).await?;
    bench.add("other", &["--cluster", "acme"]).await?.expect(1, &["logical cluster acme"])?;
    bench.report("acme", json!({"identity": identity})).await?;
    ensure!(bench.writes()? == before, "a refusal wrote");
    Ok(())
}

/// Who is not let in is told what to do, and not to try again later.
async fn not_let_in(bench: &Bench<'_>) -> Result<()> {
    let token = bench.host.kubeconfig_with_token("wrong");
    let mut command = bench.program();
    command.args(["tenant", "list"]).env("CARRICK_KUBECONFIG", bench.file("wrong", &token)?);
    let said = run(command).await?;
    said.expect(1, &["does not know these credentials: check token"])?;
    ensure!(!said.err.contains("later"), "{said:?}");
    Ok(())
}

async fn listed(bench: &Bench<'_>) -> Result<()> {
    let conditions = [condition("Connected", "False", "the token\u{1b}[2J is refused")];
    bench.report("acme", json!({"conditions": conditions, "claims": {"Bound": 2}})).await?;
    let list = async |form: &str| bench.carrick(&["tenant", "list", "-o", form]).await;
    list("table").await?.expect(0, &["NAME", "False (Why)", "2 Bound"])?;
    list("wide").await?.expect(0, &["REASON", "the token\u{fffd}[2J is refused"])?;
    let paused = async |paused: bool| {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        bench.tenants().patch("acme", &PatchParams::default(), &patch).await
    };
    paused(true).await?;
    list("table").await?.expect(0, &["paused"])?;
    paused(false).await?;
    ensure!(list("name").await?.out == "acme\n");
    let json: Value = serde_json::from_str(&list("json").await?.out)?;
    ensure!(json[0]["metadata"]["name"] == "acme", "{json}");
    Ok(())
}

async fn removed(bench: &Bench<'_>) -> Result<()> {
    let finalizer = claim_on_host(&bench.on_host).await?;
    let held: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data", "finalizers": [finalizer, "example.org/other"]},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }))?;
    let in_tenant = Api::namespaced(bench.in_tenant.clone(), "default");
    in_tenant.create(&PostParams::default(), &held).await?;
    let remove = async |more: &[&str]| {
        let args = ["tenant", "remove", "acme"];
        bench.carrick(&args.iter().chain(more).collect::<Vec<_>>()).await
    };
    let before = bench.writes()?;
    remove(&[]).await?.expect(1, &["needs --yes", "nothing was changed"])?;
    let host = bench.host.kubeconfig_path();
    let host = host.to_str().context("a path is text")?;
    remove(&["--yes", "--kubeconfig", host]).await?.expect(1, &["is the host itself"])?;
    ensure!(bench.writes()? == before, "a refusal wrote");

    let tenant = bench.tenant.kubeconfig_path();
    let tenant = tenant.to_str().context("a path is text")?;
    let said = remove(&["--yes", "--kubeconfig", tenant]).await?;
    said.expect(0, &["tenant acme removed\non the host: 1 claim stays, with its volume"])?;
    said.expect(0, &["finalizer stays on claims (1) and volumes (0)", "account in the tenant"])?;
    finalizer_comes_off(bench, &said.out).await?;
    ensure!(bench.tenants().get_opt("acme").await?.is_none());
    let secrets: Api<Secret> = Api::namespaced(bench.on_host.clone(), SYSTEM);
    ensure!(secrets.get_opt("carrick-tenant-acme").await?.is_none());
    let left = bench.account().await?;
    ensure!(left == ["namespace"].into(), "left in the tenant: {left:?}");
    let claims: Api<PersistentVolumeClaim> = Api::all(bench.on_host.clone());
    ensure!(claims.list(&ListParams::default()).await?.items.len() == 2, "a claim went");
    ensure!(live(&bench.on_host, SYSTEM).await?);
    remove(&["--yes"]).await?.expect(1, &["there is no tenant acme"])
}

/// What is said to take the finalizer off does, and leaves others.
async fn finalizer_comes_off(bench: &Bench<'_>, said: &str) -> Result<()> {
    let patch = said.split("--patch '").nth(1).and_then(|rest| rest.split('\'').next());
    let patch = patch.context("a patch between quotes")?;
    let patch: Value = serde_json::from_str(patch)?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(bench.in_tenant.clone(), "default");
    let patched = claims.patch("data", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let left = patched.metadata.finalizers.unwrap_or_default();
    ensure!(left.contains(&"example.org/other".to_owned()), "{left:?}");
    ensure!(!left.iter().any(|left| left.starts_with("workload.")), "{left:?}");
    Ok(())
}

/// A claim of the tenant on the host, as the downsyncer makes it, and one of another tenant; the
/// installation's finalizer.
async fn claim_on_host(host: &Client) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(host.clone());
    let uid = namespaces.get("kube-system").await?.metadata.uid.context("a uid")?;
    let target = SyncTarget { cluster: "root".into(), name: "carrick".into(), uid: uid.clone() };
    let names = Names::new(Domain::KcpDev, target.key());
    let params = PostParams::default();
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "carrick-sync-target"},
        "data": {"cluster": "root", "name": "carrick", "uid": uid, "domain": "kcp.dev"},
    }))?;
    Api::namespaced(host.clone(), SYSTEM).create(&params, &map).await?;
    for cluster in ["acme", "other"] {
        let locator =
            Locator { target: target.clone(), cluster: cluster.into(), namespace: "team-a".into() };
        let labels = json!({names.cluster(): names.key()});
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {
            "name": locator.host_namespace(), "labels": labels,
            "annotations": {names.locator(): locator.to_json()},
        }}))?;
        namespaces.create(&params, &namespace).await?;
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": "data", "labels": labels},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "resources": {"requests": {"storage": "1Mi"}},
            },
        }))?;
        let claims = Api::namespaced(host.clone(), &locator.host_namespace());
        claims.create(&params, &claim).await?;
    }
    Ok(names.finalizer())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reported_on_a_new_tenant_decides_how_it_ends() -> Result<()> {
    Testbed::run("cli-reported", async |testbed| {
        let bench = Bench::start(testbed).await?;
        let good = [condition("Connected", "True", ""), condition("Accepted", "True", "")];
        let refused =
            [condition("Connected", "True", ""), condition("Accepted", "False", "no room")];
        let unknown =
            [condition("Connected", "False", "it is gone"), condition("Accepted", "Unknown", "")];
        for (name, conditions, code, words) in [
            ("good", good, 0, "connected and accepted"),
            ("refused", refused, 1, "no room"),
            ("unknown", unknown, 1, "it is gone"),
        ] {
            let report = async {
                eventually("the Tenant", CAP, async || Ok(bench.tenants().get(name).await.ok()))
                    .await?;
                bench.report(name, json!({"conditions": conditions})).await
            };
            let more = ["--wait", if name == "unknown" { "5s" } else { "1m" }];
            let (said, reported) = tokio::join!(bench.add(name, &more), report);
            reported?;
            said?.expect(code, &["added", words])?;
        }
        // Not waited for, it is not asked for either.
        let said = bench.add("hasty", &["--wait", "0s"]).await?;
        said.expect(0, &["tenant hasty added"])?;
        ensure!(!said.out.contains("watcher"), "{said:?}");
        Ok(())
    })
    .await
}
