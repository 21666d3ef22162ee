//! Steps, dead claims, and listening in.

use std::time::Duration;

use anyhow::Result;
use carrick_bus::{DeadReport, Family, History, StepReport, TappedBody};
use carrick_core::{Facet, Outcome, Reason, Scope, Step};
use carrick_testbed::Nats;
use futures::StreamExt as _;
use jiff::Timestamp;

use crate::support::{claim, key, meta, next, one, raw, subject};

fn step(step: Step, outcome: Outcome) -> StepReport {
    StepReport {
        scope: Scope::Claim(key("data")),
        step,
        outcome,
        service: "upsyncer".into(),
        reason: (outcome != Outcome::Done).then(|| Reason::new("Because", "of that")),
        claim_uid: "0f6c".into(),
        objects: Vec::new(),
        writes: Vec::new(),
        took: Duration::from_millis(3),
        time: Timestamp::now(),
    }
}

async fn stored(nats: &Nats, family: Family) -> Result<u64> {
    let jetstream = async_nats::jetstream::new(raw(nats).await?);
    let stream = jetstream.get_stream(family.stream("main")).await?;
    Ok(stream.cached_info().state.messages)
}

#[tokio::test]
async fn the_last_step_of_each_kind_is_known() -> Result<()> {
    let server = one("bus-steps").await?;
    let bus = &server.bus;
    let scope = Scope::Claim(key("data"));
    assert!(bus.last_steps(&scope).await?.is_empty());
    let steps = [
        (Step::Upsync, Outcome::Done),
        (Step::Claim, Outcome::Refused),
        (Step::Claim, Outcome::Done),
        (Step::Upsync, Outcome::Waiting),
    ];
    for (n, (kind, outcome)) in steps.into_iter().enumerate() {
        for _ in 0..2 {
            bus.publish_step(&step(kind, outcome), &format!("id-{n}")).await?;
        }
    }
    assert_eq!(stored(&server.nats, Family::Steps).await?, 4);
    let last = bus.last_steps(&scope).await?;
    let last: Vec<_> =
        last.iter().map(|record| (record.step, record.outcome, record.code.as_str())).collect();
    let expected = [(Step::Claim, Outcome::Done, ""), (Step::Upsync, Outcome::Waiting, "Because")];
    assert_eq!(last, expected);
    let tenant = Scope::Tenant { tenant: "acme".into() };
    assert!(bus.last_steps(&tenant).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_dead_claim_stays_until_it_is_dropped() -> Result<()> {
    let server = one("bus-dead").await?;
    let bus = &server.bus;
    let mut report = DeadReport {
        scope: Scope::Claim(key("data")),
        service: "upsyncer".into(),
        reason: "Unreachable".into(),
        failures: 20,
        time: "2026-01-02T03:04:05Z".parse()?,
        last_error: "connection refused".into(),
        claim_uid: String::new(),
    };
    bus.publish_dead(&report).await?;
    report.failures = 21;
    bus.publish_dead(&report).await?;
    let tenant = Scope::Tenant { tenant: "acme".into() };
    assert_eq!(bus.dead_claims(Some(&tenant)).await?, [report.clone()]);
    bus.drop_dead(&report.scope, "downsyncer").await?;
    assert_eq!(bus.dead_claims(None).await?.len(), 1);
    bus.drop_dead(&report.scope, &report.service).await?;
    assert!(bus.dead_claims(None).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_tap_shows_what_was_and_what_comes() -> Result<()> {
    let server = one("bus-tap").await?;
    let bus = &server.bus;
    let tenant_claim = subject("data", Facet::TenantClaim);
    bus.publish_fact(&tenant_claim, &claim("data", 1), &meta(1, false), 0).await?;
    bus.publish_step(&step(Step::Claim, Outcome::Done), "a").await?;
    bus.publish_step(&step(Step::Claim, Outcome::Done), "b").await?;
    let families = [Family::Facts, Family::Steps];
    let of_claim = "acme.team-a.data.>";
    let mut all = bus.tap(&families, of_claim, History::All).await?;
    let mut last = bus.tap(&families, of_claim, History::Last).await?;
    let live = bus.tap(&families, of_claim, History::Live).await?;
    let mut steps = 0;
    for _ in 0..3 {
        match next(&mut all).await??.body {
            TappedBody::Fact(fact) => assert_eq!(fact.subject, tenant_claim),
            TappedBody::Step(step) => steps += i32::from(step.claim == "data"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(steps, 2);
    next(&mut last).await??;
    next(&mut last).await??;
    bus.publish_step(&step(Step::Bind, Outcome::Waiting), "c").await?;
    for tap in [&mut all.boxed(), &mut last.boxed(), &mut live.boxed()] {
        let tapped = next(tap).await??;
        assert!(tapped.subject.ends_with(".data.bind.waiting"), "{tapped:?}");
        assert!(matches!(tapped.body, TappedBody::Step(_)));
    }
    Ok(())
}
