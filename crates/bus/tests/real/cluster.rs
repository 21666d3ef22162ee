//! Three servers, three replicas of everything.

use anyhow::Result;
use carrick_bus::{Bus, ConsumerSettings, Family, PublishOutcome};
use carrick_core::Facet;
use carrick_testbed::{NatsOptions, eventually};

use crate::{
    facts::race,
    support::{CAP, Server, claim, key, message, meta, other, start, subject},
};

async fn cluster(name: &str) -> Result<Server> {
    start(name, NatsOptions::cluster(), |settings| settings.replicas = 3).await
}

async fn publish(bus: &Bus, rv: u64) -> Result<PublishOutcome> {
    let subject = subject("data", Facet::TenantClaim);
    Ok(bus.publish_fact(&subject, &claim("data", rv), &meta(rv, false), 0).await?)
}

/// The sequence of a publish. On a busy machine a stream may lose its leader for a moment.
async fn published(bus: &Bus, rv: u64) -> Result<u64> {
    eventually("a publish", CAP, async || match publish(bus, rv).await {
        Ok(outcome) => Ok(Some(outcome.sequence())),
        Err(error) => match error.downcast_ref::<carrick_bus::Error>() {
            Some(carrick_bus::Error::StreamSilent { .. }) => Ok(None),
            _ => Err(error),
        },
    })
    .await
}

#[tokio::test]
async fn of_racing_publishers_the_newest_wins() -> Result<()> {
    let server = cluster("bus-r3-race").await?;
    let other = other(&server.nats).await?;
    race([&server.bus, &other], 10).await?;
    assert_eq!(server.bus.fact_index("acme").await?.len(), 10);
    Ok(())
}

#[tokio::test]
async fn a_read_is_never_older_than_asked_for() -> Result<()> {
    let server = cluster("bus-r3-fresh").await?;
    for rv in 1..=200 {
        let sequence = published(&server.bus, rv).await?;
        let view = server.bus.claim_facts(&key("data"), false, sequence).await?;
        assert_eq!(view.facts.tenant_claim.unwrap().rv(), rv);
    }
    Ok(())
}

#[tokio::test]
async fn facts_flow_while_each_server_restarts_in_turn() -> Result<()> {
    let server = cluster("bus-r3-restart").await?;
    let bus = &server.bus;
    let filters = vec![bus.filter(Family::Facts, ">")];
    let settings = ConsumerSettings::new("upsyncer", Family::Facts, filters);
    let mut messages = bus.consumer(settings).await?.messages();
    let mut rv = 0;
    for n in 0..3 {
        server.nats.kill(n).await?;
        rv += 1;
        let publish = async || Ok(publish(bus, rv).await.ok());
        eventually("a publish with one server less", CAP, publish).await?;
        let delivered = eventually("its delivery", CAP, async || {
            let delivery = message(&mut messages).await?;
            delivery.ack().await?;
            Ok((delivery.meta.rv == rv).then_some(delivery))
        })
        .await?;
        let view = bus.claim_facts(&key("data"), false, delivered.sequence).await?;
        assert_eq!(view.facts.tenant_claim.unwrap().rv(), rv);
        server.nats.start(n).await?;
    }
    Ok(())
}
