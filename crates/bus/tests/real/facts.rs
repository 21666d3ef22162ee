//! Facts: the newer one wins, tombstones go, the index is complete.

use std::time::Duration;

use anyhow::Result;
use carrick_bus::{Bus, PublishOutcome};
use carrick_core::{Facet, FactSubject};
use carrick_testbed::{NatsOptions, eventually};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::support::{CAP, claim, key, meta, one, start, subject};

#[tokio::test]
async fn an_older_fact_never_replaces_a_newer_one() -> Result<()> {
    let server = one("bus-newer").await?;
    let bus = &server.bus;
    let subject = subject("data", Facet::TenantClaim);
    let publish = async |rv, deleted, expected| {
        bus.publish_fact(&subject, &claim("data", rv), &meta(rv, deleted), expected).await
    };
    let first = publish(9, false, 0).await?;
    assert_eq!(first, PublishOutcome::Stored { sequence: 1 });
    // 10 is newer than 9 as a number, and the expected sequence may be wrong either way.
    assert_eq!(publish(10, false, 0).await?.sequence(), 2);
    assert_eq!(publish(11, false, 77).await?.sequence(), 3);
    let outdated = |deleted| PublishOutcome::Outdated {
        sequence: if deleted { 4 } else { 3 },
        rv: 11,
        deleted,
    };
    assert_eq!(publish(10, true, 0).await?, outdated(false));
    assert_eq!(publish(11, false, 0).await?, outdated(false));
    // At the same version the tombstone is later.
    assert_eq!(publish(11, true, 0).await?, PublishOutcome::Stored { sequence: 4 });
    assert_eq!(publish(11, false, 3).await?, outdated(true));
    assert_eq!(publish(12, false, 4).await?.sequence(), 5);
    let view = bus.claim_facts(&key("data"), false, 5).await?;
    let fact = view.facts.tenant_claim.unwrap();
    assert_eq!((fact.rv(), fact.deleted, view.sequence), (12, false, 5));
    assert!(fact.object.metadata.managed_fields.is_none());
    Ok(())
}

#[tokio::test]
async fn a_tombstone_goes_by_itself() -> Result<()> {
    let server = start("bus-tombstone", NatsOptions::default(), |settings| {
        settings.tombstone_ttl = Duration::from_secs(1);
    })
    .await?;
    let bus = &server.bus;
    let subject = subject("data", Facet::HostClaim);
    let stored = bus.publish_fact(&subject, &claim("data", 3), &meta(3, true), 0).await?;
    let view = bus.claim_facts(&key("data"), false, 0).await?;
    assert!(view.facts.host_claim.unwrap().deleted);
    eventually("the tombstone to go", CAP, async || {
        let view = bus.claim_facts(&key("data"), false, 1).await?;
        Ok(view.facts.host_claim.is_none().then_some(()))
    })
    .await?;
    assert!(bus.claims_in(None).await?.is_empty());
    // What was expected before it went is no hindrance.
    let again =
        bus.publish_fact(&subject, &claim("data", 2), &meta(2, false), stored.sequence()).await?;
    assert_eq!(again, PublishOutcome::Stored { sequence: 2 });
    Ok(())
}

#[tokio::test]
async fn the_index_is_complete() -> Result<()> {
    const COUNT: u64 = 1500;
    let server = one("bus-index").await?;
    let bus = &server.bus;
    assert!(bus.fact_index("acme").await?.is_empty());
    stream::iter(0..COUNT)
        .map(|n| async move {
            let name = format!("data-{n}");
            let subject = subject(&name, Facet::TenantClaim);
            bus.publish_fact(&subject, &claim(&name, n + 1), &meta(n + 1, n % 7 == 0), 0).await
        })
        .buffer_unordered(256)
        .try_for_each(async |outcome| {
            assert!(matches!(outcome, PublishOutcome::Stored { .. }));
            Ok(())
        })
        .await?;
    let index = bus.fact_index("acme").await?;
    assert_eq!(index.len(), usize::try_from(COUNT)?);
    for entry in index {
        let FactSubject { scope, .. } = &entry.subject;
        let rv = entry.meta.rv;
        assert_eq!(scope.to_string(), format!("acme/team-a/data-{}", rv - 1));
        assert_eq!(entry.meta.deleted, (rv - 1) % 7 == 0);
        assert!(entry.sequence > 0 && entry.sequence <= COUNT);
    }
    assert!(bus.fact_index("acm").await?.is_empty());
    Ok(())
}

/// Many versions at once, in any order, by two publishers: the highest stays.
pub(crate) async fn race(watchers: [&Bus; 2], rounds: u64) -> Result<()> {
    const VERSIONS: u64 = 25;
    for round in 1..=rounds {
        let name = format!("data-{round}");
        let subject = subject(&name, Facet::TenantClaim);
        let races = (1..=VERSIONS).flat_map(|rv| watchers.map(|watcher| (rv * 7 % 26, watcher)));
        let stored: Vec<u64> = stream::iter(races)
            .map(|(rv, watcher)| {
                let (subject, name) = (&subject, &name);
                async move {
                    let (object, meta) = (claim(name, rv), meta(rv, false));
                    let done = watcher.publish_fact(subject, &object, &meta, 0).await?;
                    anyhow::Ok(match done {
                        PublishOutcome::Stored { .. } => rv,
                        PublishOutcome::Outdated { rv: stored, .. } => {
                            assert!(stored >= rv, "{stored} stood in the way of {rv}");
                            0
                        }
                    })
                }
            })
            .buffer_unordered(64)
            .try_collect()
            .await?;
        assert_eq!(stored.iter().max(), Some(&VERSIONS));
        let once = stored.iter().filter(|rv| **rv == VERSIONS).count();
        assert_eq!(once, 1, "the same version is stored once");
        let view = watchers[0].claim_facts(&key(&name), false, 0).await?;
        // On a replica that lags it may be an older one; the index says what is stored.
        assert!(view.facts.tenant_claim.is_some());
        let read = eventually("the newest", CAP, async || {
            let view = watchers[1].claim_facts(&key(&name), false, 0).await?;
            let rv = view.facts.tenant_claim.map_or(0, |fact| fact.rv());
            Ok((rv == VERSIONS).then_some(rv))
        });
        read.await?;
    }
    Ok(())
}

#[tokio::test]
async fn of_racing_publishers_the_newest_wins() -> Result<()> {
    let server = one("bus-race").await?;
    let other = crate::support::other(&server.nats).await?;
    race([&server.bus, &other], 10).await
}
