//! Scratch.
use std::time::Duration;
use anyhow::Result;
use carrick_e2e::*;
use carrick_testbed::Testbed;

#[tokio::test]
async fn scratch() -> Result<()> {
    Testbed::run("scratch", async |testbed| {
        let stage = Stage::servers(testbed, &[("kcp", Binder::Carrick), ("vc", Binder::Tenant)]).await?;
        let host = stage.host.client().await?;
        stage.carrick.start_all("0")?;
        stage.carrick.until_all_ready("0", Duration::from_secs(30)).await?;
        for name in ["kcp", "vc"] {
            put_secret(&host, name, KUBECONFIG, &stage.tenant(name)?.kubeconfig()).await?;
            make_tenant(&host, name, name).await?;
        }
        let n: usize = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
        for name in ["kcp", "vc"] {
            let client = stage.client(name).await?;
            let names: Vec<_> = (0..n).map(|i| format!("data-{i}")).collect();
            let m = measure(&client, "team-a", names.clone(), CLASS, (Duration::from_secs(60), |_| {})).await?;
            println!("{name}: {:.1}/s p50 {:?} p90 {:?} p99 {:?}", m.rate(), m.percentile(50), m.percentile(90), m.percentile(99));
            let ps = std::process::Command::new("sh").args(["-c", "ps -eo rss,cputimes,args --sort=-cputimes | grep -E \"carrick-|kube-|etcd|nats-server\" | grep -v grep | cut -c1-110 | head -16; uptime"]).output()?;
            println!("{}", String::from_utf8_lossy(&ps.stdout));
            stage.linked(name, "team-a", &names).await?;
        }
        Ok(())
    }).await
}
