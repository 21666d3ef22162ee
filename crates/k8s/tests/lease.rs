//! One leader at a time, and another one soon.

mod common;

use std::time::Duration;

use anyhow::{Context as _, Result};
use carrick_k8s::{Client, Leader, LeaseOptions};
use common::{CAP, plane};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use tokio::time::{Instant, timeout};

fn leader(client: &Client, identity: &str) -> Leader {
    let options = LeaseOptions::new("default", "carrick-test", identity);
    let (duration, renew) = (Duration::from_secs(3), Duration::from_millis(500));
    Leader::new(client.clone(), LeaseOptions { duration, renew, ..options })
}

async fn acquired(leader: &Leader) -> Result<Duration> {
    let start = Instant::now();
    timeout(CAP, leader.acquire()).await.context("the lease was not had")?;
    assert!(leader.is_leader());
    Ok(start.elapsed())
}

#[tokio::test]
async fn the_lease_passes_on() -> Result<()> {
    let (_testbed, _host, client) = plane("lease").await?;
    let (one, two) = (leader(&client, "one"), leader(&client, "two"));
    assert!(!one.is_leader());
    acquired(&one).await?;

    // Held while renewed.
    let waited = timeout(Duration::from_secs(5), async {
        tokio::join!(one.hold(), two.acquire());
    });
    assert!(waited.await.is_err() && one.is_leader() && !two.is_leader());

    // Given back: no need to wait until it runs out.
    one.release().await;
    assert!(!one.is_leader());
    let waited = acquired(&two).await?;
    assert!(waited < Duration::from_millis(2500), "{waited:?}");

    // Not renewed any more, as after a crash: the other one waits until it has run out.
    let waited = acquired(&one).await?;
    assert!(waited > Duration::from_millis(2500), "{waited:?}");
    assert!(!two.is_leader(), "two at a time");

    // Come back under the same identity.
    let again = leader(&client, "one");
    let waited = acquired(&again).await?;
    assert!(waited < Duration::from_millis(1500), "{waited:?}");
    Ok(())
}

#[tokio::test]
async fn a_lost_lease_is_noticed() -> Result<()> {
    let (_testbed, host, client) = plane("lease-lost").await?;
    let (one, two) = (leader(&client, "one"), leader(&client, "two"));
    acquired(&one).await?;
    let leases: Api<Lease> = Api::namespaced(client.kube().clone(), "default");
    leases.delete("carrick-test", &DeleteParams::default()).await?;
    acquired(&two).await?;
    timeout(CAP, one.hold()).await.context("the loss was not noticed")?;
    assert!(!one.is_leader() && two.is_leader());

    // A frozen API server: it must not believe that it leads for longer than the lease lasts.
    let server = host.api_server().context("it runs")?;
    server.pause()?;
    let start = Instant::now();
    let held = timeout(CAP, two.hold()).await;
    server.resume()?;
    held.context("a lease that cannot be renewed is held")?;
    assert!(start.elapsed() < Duration::from_secs(5) && !two.is_leader());
    Ok(())
}
