//! What is said about Tenants that can't be used, or may not be.

use std::time::Duration;

use anyhow::Result;
use carrick_k8s::tenant::DetectedBinder;
use carrick_testbed::{Testbed, eventually, throughout};
use kube::api::DeleteParams;
use serde_json::json;

use crate::support::{Bench, CAP, claim, claims, create, facts, namespace};

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_ends_as_a_clear_condition() -> Result<()> {
    Testbed::run("watcher-tenants", async |testbed| {
        let bench = Bench::start(testbed).await?;
        let watcher = bench.watcher("watcher-1")?;
        let good = bench.tenant.kubeconfig();
        let nothing_there = good.replace(&bench.tenant.url(), "https://127.0.0.1:1");
        let other_ca = bench.host.kubeconfig().replace(&bench.host.url(), &bench.tenant.url());
        for (name, reason, kubeconfig) in [
            ("wrong-token", "Unauthorized", bench.tenant.kubeconfig_with_token("no")),
            ("wrong-ca", "CertificateInvalid", other_ca),
            ("nothing-there", "Unreachable", nothing_there),
            ("no-kubeconfig", "KubeconfigInvalid", "{}".to_owned()),
        ] {
            bench.add_tenant(name).await?;
            bench.add_secret(name, "kubeconfig", &kubeconfig).await?;
            let tenant = bench.until(name, "Connected", reason).await?;
            assert!(!tenant.is("Accepted") && !tenant.is("Synced"), "{name}");
        }
        bench.add_tenant("no-secret").await?;
        bench.until("no-secret", "Connected", "SecretMissing").await?;
        bench.add_tenant("no-key").await?;
        bench.add_secret("no-key", "other", &good).await?;
        bench.until("no-key", "Connected", "KeyMissing").await?;

        whose_control_plane(&bench, &good).await?;
        counts_and_binder(&bench).await?;
        rest(&bench).await?;
        watcher.kill().await
    })
    .await
}

async fn whose_control_plane(bench: &Bench<'_>, good: &str) -> Result<()> {
    bench.add_tenant("first").await?;
    bench.add_secret("first", "kubeconfig", good).await?;
    let first = bench.until("first", "Synced", "True").await?;
    let identity = first.status.and_then(|status| status.identity);
    assert!(identity.is_some_and(|identity| identity != bench.target.uid));
    for (name, kubeconfig, reason) in [
        ("second", good, "DuplicateControlPlane"),
        ("mirror", &bench.host.kubeconfig(), "HostItself"),
    ] {
        bench.add_tenant(name).await?;
        bench.add_secret(name, "kubeconfig", kubeconfig).await?;
        let refused = bench.until(name, "Accepted", reason).await?;
        assert!(refused.is("Connected") && !refused.is("Synced"), "{name}");
        assert_eq!(refused.status.unwrap_or_default().identity, None);
    }
    // Who is not accepted has no facts; who goes makes room.
    let bus = bench.bus().await?;
    assert_eq!(facts(&bus, "second.>").await?, []);
    assert_eq!(facts(&bus, "mirror.>").await?, []);
    let before = facts(&bus, "first.>").await?;
    assert!(!before.is_empty());
    bench.tenants().delete("first", &DeleteParams::default()).await?;
    bench.until("second", "Synced", "True").await?;
    let after = facts(&bus, "first.>").await?;
    assert_eq!(after, before, "a removed Tenant's facts stay as they are");
    Ok(())
}

async fn counts_and_binder(bench: &Bench<'_>) -> Result<()> {
    bench.tenant.create_storage_class("hp", "kubernetes.io/host-path").await?;
    namespace(&bench.in_tenant, json!({"metadata": {"name": "team-a"}})).await?;
    let claims = claims(&bench.in_tenant, "team-a");
    create(&claims, claim("bound", "hp")).await?;
    create(&claims, claim("waits", "none")).await?;
    let status = eventually("the counts", CAP, async || {
        let tenant = bench.tenants().get("second").await?;
        let status = tenant.status.unwrap_or_default();
        let counted = status.claims.get("Bound") == Some(&1);
        Ok((counted && status.claims.get("Pending") == Some(&1)).then_some(status))
    })
    .await?;
    assert_eq!(status.binder, Some(DetectedBinder::Tenant));
    Ok(())
}

/// Nothing is written when nothing happens, although some Tenants are tried again all the time.
async fn rest(bench: &Bench<'_>) -> Result<()> {
    let writes = || -> Result<usize> {
        let writes = bench.host.audit_writes()?;
        Ok(writes.iter().filter(|w| w.resource == "tenants").count())
    };
    let before = writes()?;
    throughout(Duration::from_secs(12), async || {
        assert_eq!(writes()?, before);
        Ok(())
    })
    .await
}
