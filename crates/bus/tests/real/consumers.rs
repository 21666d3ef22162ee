//! Consumers: shared, delivered again, and mended whatever happens.

use std::time::{Duration, Instant};

use anyhow::Result;
use carrick_bus::{Bus, Consumer, ConsumerSettings, Delivery, Family, PublishOutcome};
use carrick_core::{Facet, Scope};
use carrick_testbed::eventually;
use futures::StreamExt as _;
use tokio::time::timeout;

use crate::support::{CAP, claim, key, message, meta, next, one, other, raw, subject};

async fn consumer(bus: &Bus, ack_wait: Duration) -> Result<Consumer> {
    let filters = vec![
        bus.filter(Family::Facts, "*.*.*.tenant-claim"),
        bus.filter(Family::Facts, "*.*.*.host-volume.*"),
    ];
    let settings =
        ConsumerSettings { ack_wait, ..ConsumerSettings::new("upsyncer", Family::Facts, filters) };
    Ok(bus.consumer(settings).await?)
}

async fn publish(bus: &Bus, name: &str, rv: u64) -> Result<PublishOutcome> {
    let subject = subject(name, Facet::TenantClaim);
    Ok(bus.publish_fact(&subject, &claim(name, rv), &meta(rv, false), 0).await?)
}

#[tokio::test]
async fn a_consumer_delivers_what_there_is_and_again_what_is_not_acked() -> Result<()> {
    let server = one("bus-consume").await?;
    let bus = &server.bus;
    publish(bus, "data", 1).await?;
    publish(bus, "data", 2).await?;
    let host = subject("data", Facet::HostClaim);
    bus.publish_fact(&host, &claim("data", 1), &meta(1, false), 0).await?;
    let mut messages = consumer(bus, Duration::from_secs(2)).await?.messages();
    let first = message(&mut messages).await?;
    assert_eq!((first.sequence, first.delivered), (2, 1));
    assert_eq!(first.meta.rv, 2);
    assert_eq!(first.scope(), Some(Scope::Claim(key("data"))));
    // A sign of life keeps it; without one it comes again.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        first.progress().await?;
        let quiet = timeout(Duration::from_millis(500), messages.next()).await;
        assert!(quiet.is_err(), "delivered again in spite of a sign of life");
    }
    let second = message(&mut messages).await?;
    assert_eq!((second.sequence, second.delivered), (2, 2));
    second.nak(Duration::from_millis(300)).await?;
    let nak = Instant::now();
    let third = message(&mut messages).await?;
    assert_eq!((third.sequence, third.delivered), (2, 3));
    assert!(nak.elapsed() >= Duration::from_millis(250));
    // What is replaced is not delivered again.
    publish(bus, "data", 3).await?;
    third.nak(Duration::from_millis(100)).await?;
    let newer = message(&mut messages).await?;
    assert_eq!((newer.meta.rv, newer.delivered), (3, 1));
    newer.ack().await?;
    eventually("nothing to be left", CAP, async || {
        let lag = bus.consumer_lag(Family::Facts, "upsyncer").await?;
        Ok((lag.pending == 0 && lag.ack_pending == 0).then_some(()))
    })
    .await
}

#[tokio::test]
async fn replicas_share_a_consumer() -> Result<()> {
    let server = one("bus-share").await?;
    let other = other(&server.nats).await?;
    let mut one = consumer(&server.bus, CAP).await?.messages();
    let mut two = consumer(&other, CAP).await?.messages();
    for n in 0..200 {
        publish(&server.bus, &format!("data-{n}"), 1).await?;
    }
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 200 {
        let delivery = tokio::select! {
            delivery = message(&mut one) => delivery?,
            delivery = message(&mut two) => delivery?,
        };
        delivery.ack().await?;
        assert!(seen.insert(delivery.subject), "delivered to both");
    }
    Ok(())
}

#[tokio::test]
async fn a_consumer_survives_a_restart_of_the_server() -> Result<()> {
    let server = one("bus-restart").await?;
    let mut messages = consumer(&server.bus, CAP).await?.messages();
    publish(&server.bus, "before", 1).await?;
    message(&mut messages).await?.ack().await?;
    let reading = async {
        loop {
            // What was acked just before the crash may come again.
            let delivery = message(&mut messages).await?;
            delivery.ack().await?;
            if delivery.subject.contains(".after.") {
                return anyhow::Ok(());
            }
        }
    };
    let restarting = async {
        server.nats.kill(0).await?;
        server.nats.start(0).await?;
        let publish = async || Ok(publish(&server.bus, "after", 1).await.ok());
        eventually("a publish", CAP, publish).await?;
        anyhow::Ok(())
    };
    tokio::try_join!(reading, restarting)?;
    Ok(())
}

#[tokio::test]
async fn a_lost_consumer_is_made_again_and_the_caller_told() -> Result<()> {
    let server = one("bus-lost").await?;
    let bus = &server.bus;
    let mut messages = consumer(bus, CAP).await?.messages();
    publish(bus, "data", 1).await?;
    message(&mut messages).await?.ack().await?;
    let jetstream = async_nats::jetstream::new(raw(&server.nats).await?);
    let facts = Family::Facts.stream("main");

    let deleting = async {
        let stream = jetstream.get_stream(&facts).await?;
        stream.delete_consumer("upsyncer").await?;
        anyhow::Ok(())
    };
    let (delivery, ()) = tokio::try_join!(next(&mut messages), deleting)?;
    assert!(matches!(delivery, Delivery::Reset), "{delivery:?}");
    // The new one begins with what there is.
    message(&mut messages).await?.ack().await?;

    let before = bus.facts_incarnation().await?;
    let deleting = async {
        jetstream.delete_stream(&facts).await?;
        assert!(bus.facts_incarnation().await.is_err());
        assert!(bus.ensure_streams().await?.facts_are_new);
        assert!(before.lost_by(&bus.facts_incarnation().await?));
        publish(bus, "data", 2).await
    };
    let (delivery, _) = tokio::try_join!(next(&mut messages), deleting)?;
    assert!(matches!(delivery, Delivery::Reset), "{delivery:?}");
    assert_eq!(message(&mut messages).await?.meta.rv, 2);
    Ok(())
}

#[tokio::test]
async fn every_replica_is_told_of_a_lost_consumer() -> Result<()> {
    let server = one("bus-told").await?;
    let other = other(&server.nats).await?;
    let mut one = consumer(&server.bus, CAP).await?.messages();
    let mut two = consumer(&other, CAP).await?.messages();
    let jetstream = async_nats::jetstream::new(raw(&server.nats).await?);
    let deleting = async {
        // Both must be waiting before it goes.
        eventually("both to wait", CAP, async || {
            let stream = jetstream.get_stream(Family::Facts.stream("main")).await?;
            let info = stream.consumer_info("upsyncer").await?;
            Ok((info.num_waiting >= 2).then_some(()))
        })
        .await?;
        let stream = jetstream.get_stream(Family::Facts.stream("main")).await?;
        stream.delete_consumer("upsyncer").await?;
        anyhow::Ok(())
    };
    let (one, two, ()) = tokio::try_join!(next(&mut one), next(&mut two), deleting)?;
    assert!(matches!((one, two), (Delivery::Reset, Delivery::Reset)));
    Ok(())
}
