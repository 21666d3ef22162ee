//! One instance is active; another one takes over, and a lost stream is filled again.

use anyhow::Result;
use carrick_core::names::Domain;
use carrick_testbed::{Testbed, eventually};
use serde_json::json;

use crate::support::{Bench, CAP, claim, claims, create, fact, live, namespace};

#[tokio::test(flavor = "multi_thread")]
async fn another_instance_takes_over_and_a_lost_stream_is_filled_again() -> Result<()> {
    Testbed::run("watcher-lead", async |testbed| {
        let bench = Bench::start(testbed).await?;
        let first = bench.watcher("watcher-1")?;
        bench.add_tenant("acme").await?;
        bench.add_secret("acme", "kubeconfig", &bench.tenant.kubeconfig()).await?;
        bench.until("acme", "Synced", "True").await?;
        let bus = bench.bus().await?;
        let second = bench.watcher("watcher-2")?;
        eventually("the second to stand by", CAP, async || {
            Ok(second.log().contains("Standing by").then_some(()))
        })
        .await?;
        assert!(!second.log().contains("Active"));
        first.kill().await?;
        namespace(&bench.in_tenant, json!({"metadata": {"name": "team-a"}})).await?;
        create(&claims(&bench.in_tenant, "team-a"), claim("data", "none")).await?;
        fact(&bus, "acme.team-a.data.tenant-claim", live).await?;
        assert!(second.log().contains("Active"));

        let raw = async_nats::connect(bench.nats.url()).await?;
        let jetstream = async_nats::jetstream::new(raw);
        jetstream.delete_stream("CARRICK_carrick_FACTS").await?;
        fact(&bus, "acme.team-a.data.tenant-claim", live).await?;
        fact(&bus, "acme.team-a.-.tenant-namespace", live).await?;
        let stream = jetstream.get_stream("CARRICK_carrick_FACTS").await?;
        stream.purge().await?;
        fact(&bus, "acme.team-a.data.tenant-claim", live).await?;

        bench.nats.kill(0).await?;
        create(&claims(&bench.in_tenant, "team-a"), claim("meanwhile", "none")).await?;
        bench.nats.start(0).await?;
        fact(&bus, "acme.team-a.meanwhile.tenant-claim", live).await?;
        second.kill().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn another_sync_target_ends_the_process_with_a_clear_error() -> Result<()> {
    Testbed::run("watcher-target", async |testbed| {
        let bench = Bench::start(testbed).await?;
        let fixed = json!({
            "metadata": {"name": "carrick-sync-target"},
            "data": {
                "cluster": "root", "name": "elsewhere", "uid": bench.target.uid,
                "domain": Domain::KcpDev.as_str(),
            },
        });
        let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube::Api::namespaced(bench.on_host.clone(), crate::support::SYSTEM);
        create(&maps, fixed).await?;
        let watcher = bench.watcher("watcher-1")?;
        eventually("the process to end", CAP, async || Ok((!watcher.is_running()).then_some(())))
            .await?;
        let log = watcher.log();
        assert!(log.contains("name was fixed as"), "{log}");
        Ok(())
    })
    .await
}
