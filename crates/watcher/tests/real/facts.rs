//! What is published, and what never is.

use anyhow::{Context as _, Result};
use carrick_bus::Bus;
use carrick_testbed::{Stop, Testbed, eventually};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::support::{
    Bench, CAP, claim, claims, create, fact, facts, gone, live, namespace, sequence,
};

#[tokio::test(flavor = "multi_thread")]
async fn every_object_that_matters_is_a_fact_once() -> Result<()> {
    Testbed::run("watcher-facts", async |testbed| {
        let bench = Bench::start(testbed).await?;
        bench.host.create_storage_class("hp", "kubernetes.io/host-path").await?;
        let watcher = bench.watcher("watcher-1")?;
        bench.add_tenant("acme").await?;
        bench.add_secret("acme", "kubeconfig", &bench.tenant.kubeconfig()).await?;
        let bus = bench.bus().await?;
        let synced = bench.until("acme", "Synced", "True").await?;
        assert!(synced.is("Accepted") && synced.is("Connected"));

        tenant_objects(&bench, &bus).await?;
        host_objects(&bench, &bus).await?;
        outage(&bench, &bus).await?;
        watcher.kill().await?;
        restart(&bench, &bus).await
    })
    .await
}

async fn tenant_objects(bench: &Bench<'_>, bus: &Bus) -> Result<()> {
    namespace(&bench.in_tenant, json!({"metadata": {"name": "team-a"}})).await?;
    let claims = claims(&bench.in_tenant, "team-a");
    for name in ["data", "other"] {
        create(&claims, claim(name, "none")).await?;
    }
    let found = fact(bus, "acme.team-a.data.tenant-claim", live).await?;
    assert_eq!(found.object["kind"], "PersistentVolumeClaim");
    assert!(found.object["metadata"].get("managedFields").is_none());
    fact(bus, "acme.team-a.-.tenant-namespace", live).await?;
    fact(bus, "acme.team-a.other.tenant-claim", live).await?;
    claims.delete("other", &DeleteParams::default()).await?;
    let found = fact(bus, "acme.team-a.other.tenant-claim", gone).await?;
    assert_eq!(found.object["metadata"]["name"], "other", "the last state");
    Ok(())
}

async fn host_objects(bench: &Bench<'_>, bus: &Bus) -> Result<()> {
    fact(bus, "acme.-.-.host-class.hp", live).await?;
    let foreign = claims(&bench.on_host, "default");
    create(&foreign, claim("foreign", "hp")).await?;
    let host_namespace = bench.host_namespace("acme", "team-a").await?;
    let claims = claims(&bench.on_host, &host_namespace);
    create(&claims, claim("data", "hp")).await?;
    let bound =
        fact(bus, "acme.team-a.data.host-claim", |fact| fact.object["status"]["phase"] == "Bound")
            .await?;
    let volume = bound.object["spec"]["volumeName"].as_str().context("bound")?;
    fact(bus, &format!("acme.team-a.data.host-volume.{volume}"), live).await?;
    fact(bus, "acme.team-a.-.host-namespace", live).await?;
    // Only now a tenant's: its claim has been there for a while.
    let late = bench.host_namespace("stranger", "late").await?;
    create(&self::claims(&bench.on_host, &late), claim("late", "hp")).await?;
    for found in facts(bus, ">").await? {
        let subject = found.subject.to_string();
        assert!(!subject.contains("foreign") && !subject.contains("late"), "{subject}");
        assert!(subject.starts_with("carrick.v1.carrick.fact.acme."), "{subject}");
    }
    turn_foreign(bench, bus, &host_namespace).await
}

/// A namespace that loses its mark loses its facts, and has them again with it.
async fn turn_foreign(bench: &Bench<'_>, bus: &Bus, host_namespace: &str) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(bench.on_host.clone());
    let mark = async |value: Option<&str>| {
        let patch = json!({"metadata": {"labels": {bench.names.cluster(): value}}});
        let patch = Patch::Merge(patch);
        namespaces.patch(host_namespace, &PatchParams::default(), &patch).await
    };
    mark(None).await?;
    fact(bus, "acme.team-a.data.host-claim", gone).await?;
    fact(bus, "acme.team-a.-.host-namespace", gone).await?;
    mark(Some(bench.names.key())).await?;
    fact(bus, "acme.team-a.data.host-claim", live).await?;
    fact(bus, "acme.team-a.-.host-namespace", live).await?;
    Ok(())
}

/// A tenant that can't be reached has deleted nothing.
async fn outage(bench: &Bench<'_>, bus: &Bus) -> Result<()> {
    settled(bus).await?;
    let before = sequence(bus).await?;
    bench.tenant.stop_api_server(Stop::Kill).await?;
    bench.until("acme", "Connected", "Unreachable").await?;
    bench.tenant.start_api_server().await?;
    let back = bench.until("acme", "Connected", "True").await?;
    assert!(back.is("Synced") && back.is("Accepted"));
    let claims = claims(&bench.in_tenant, "team-a");
    create(&claims, claim("after", "none")).await?;
    fact(bus, "acme.team-a.after.tenant-claim", live).await?;
    for found in facts(bus, "acme.team-a.data.>").await? {
        assert!(live(&found), "{}", found.subject);
    }
    settled(bus).await?;
    let published = sequence(bus).await? - before;
    // The claim, and what the controllers still said about it; nothing anew.
    assert!(published <= 4, "{published} facts");
    Ok(())
}

/// After a restart only what has happened meanwhile is published.
async fn restart(bench: &Bench<'_>, bus: &Bus) -> Result<()> {
    let before = sequence(bus).await?;
    let claims = claims(&bench.in_tenant, "team-a");
    claims.delete("after", &DeleteParams::default()).await?;
    eventually("the claim to be gone", CAP, async || {
        Ok(claims.get_opt("after").await?.is_none().then_some(()))
    })
    .await?;
    let watcher = bench.watcher("watcher-1")?;
    let found = fact(bus, "acme.team-a.after.tenant-claim", gone).await?;
    assert_eq!(found.object["metadata"]["name"], "after", "as the bus had it");
    settled(bus).await?;
    assert_eq!(sequence(bus).await?, before + 1, "the tombstone alone");
    let writes = bench.host.audit_writes()?;
    let statuses = writes.iter().filter(|w| w.resource == "tenants" && w.code == 200);
    let statuses = statuses.count();
    assert!(statuses <= 12, "{statuses} writes of the Tenant's status");
    watcher.kill().await
}

/// Waits until nothing is published any more.
async fn settled(bus: &Bus) -> Result<()> {
    let mut last = (0, tokio::time::Instant::now());
    eventually("the facts to settle", CAP, async || {
        let now = sequence(bus).await?;
        if now != last.0 {
            last = (now, tokio::time::Instant::now());
        }
        Ok((last.1.elapsed().as_secs() >= 2).then_some(()))
    })
    .await
}
