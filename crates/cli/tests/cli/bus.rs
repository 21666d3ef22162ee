//! What is shown from the bus.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use carrick_bus::{Bus, BusSettings, FactMeta, StepReport};
use carrick_core::{ClaimKey, Facet, FactSubject, Outcome, Reason, Scope, Step};
use carrick_testbed::{Nats, NatsOptions, Testbed, eventually};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{CAP, Said, program, run};

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_of_a_claim_are_shown_and_what_happens_is_tapped() -> Result<()> {
    Testbed::run("cli-bus", async |testbed| {
        let nats = testbed.nats(NatsOptions::default()).await?;
        let bus = Bus::connect(BusSettings::new(nats.url(), "test", "carrick")).await?;
        for what in [&["get", "claims"][..], &["tap"]] {
            let mut command = program();
            command.args(what).args(["--sync-target", "other", "--nats-url", &nats.url()]);
            let none = "no Carrick watcher has made its streams for sync target other";
            run(command).await?.expect(1, &[none, "carrick-watcher", "--sync-target"])?;
        }
        bus.ensure_streams().await?;
        get(&nats, &["claims"]).await?.expect(0, &["there are no claims"])?;
        get(&nats, &["claims", "acme"]).await?.expect(1, &["nothing is known of tenant acme"])?;

        // Only a namespace: the tenant is known, and has no claims.
        let namespace = Scope::Namespace { tenant: "acme".into(), namespace: "team-a".into() };
        fact(&bus, namespace, Facet::TenantNamespace, "").await?;
        get(&nats, &["claims", "acme"]).await?.expect(0, &["there are no claims"])?;
        get(&nats, &["claims", "acme/none"]).await?.expect(1, &["of namespace acme/none"])?;

        let claim = Scope::Claim(ClaimKey::new("acme", "team-a", "data"));
        fact(&bus, claim.clone(), Facet::TenantClaim, "Pending").await?;
        fact(&bus, claim.clone(), Facet::HostClaim, "Bound").await?;
        step(&bus, claim.clone()).await?;
        shown(&nats).await?;
        tapped(&nats, &bus, &claim).await
    })
    .await
}

async fn shown(nats: &Nats) -> Result<()> {
    let line = ["acme/team-a/data", "Pending", "Bound", "upsync waiting"];
    get(nats, &["claims", "acme/team-a"]).await?.expect(0, &line)?;
    get(nats, &["claims", "-o", "wide"]).await?.expect(0, &["REASON", "not yet"])?;
    ensure!(get(nats, &["claims", "-o", "name"]).await?.out == "acme/team-a/data\n");
    let said = get(nats, &["claims", "acme/team-a/data", "-o", "json"]).await?;
    let json: Value = serde_json::from_str(&said.out)?;
    ensure!(json[0]["hostPhase"] == "Bound" && json[0]["volume"].is_null(), "{json}");
    let none = get(nats, &["claims", "acme/team-a/none"]).await?;
    none.expect(1, &["nothing is known of claim acme/team-a/none"])
}

async fn tapped(nats: &Nats, bus: &Bus, claim: &Scope) -> Result<()> {
    let (mut tap, mut lines) = tap(nats, &["acme", "--history"])?;
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.push(lines.next().context("the tap has ended")??);
    }
    for what in ["tenant-claim Pending (rv 1)", "host-claim Bound (rv 1)", "waiting  Why: not yet"]
    {
        ensure!(seen.iter().any(|line| line.contains(what)), "no {what:?} in {seen:?}");
    }
    // Ctrl-C ends it cleanly.
    let interrupted = Command::new("kill").args(["-INT", &tap.0.id().to_string()]).status()?;
    ensure!(interrupted.success());
    ensure!(ended(&mut tap.0).await? == Some(0), "after Ctrl-C");

    let (mut tap, mut lines) = self::tap(nats, &["--history", "--steps", "-o", "json"])?;
    let first: Value = serde_json::from_str(&lines.next().context("the tap has ended")??)?;
    ensure!(first["subject"] == "carrick.v1.carrick.step.acme.team-a.data.upsync.waiting");
    ensure!(first["step"]["reason"] == "Why", "{first}");
    // Not known so far: told once, and waited for.
    let (mut unknown, mut later) = self::tap(nats, &["nosuch"])?;
    let mut said = BufReader::new(unknown.0.stderr.take().context("a pipe")?).lines();
    let said = said.next().context("nothing is said")??;
    ensure!(said.contains("nothing is known of tenant nosuch so far, waiting for it"), "{said}");
    let claim_of_it = Scope::Claim(ClaimKey::new("nosuch", "team-a", "data"));
    step(bus, claim_of_it).await?;
    ensure!(later.next().context("the tap has ended")??.contains("nosuch/team-a/data"));

    // Nobody reads any more: it ends with the next line, and says nothing.
    drop(lines);
    step(bus, claim.clone()).await?;
    ensure!(ended(&mut tap.0).await? == Some(0), "after the reader has gone");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut tap.0.stderr.take().context("a pipe")?, &mut said)?;
    ensure!(said.is_empty(), "it said {said:?}");
    Ok(())
}

async fn get(nats: &Nats, args: &[&str]) -> Result<Said> {
    let mut command = program();
    command.arg("get").args(args).env("CARRICK_NATS_URL", nats.url());
    run(command).await
}

/// Ends with the test, however that ends.
struct Tap(Child);

impl Drop for Tap {
    fn drop(&mut self) {
        // One that has ended already is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Lines = std::io::Lines<BufReader<std::process::ChildStdout>>;

fn tap(nats: &Nats, args: &[&str]) -> Result<(Tap, Lines)> {
    let mut command = program();
    command.arg("tap").args(args).env("CARRICK_NATS_URL", nats.url());
    let mut tap = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let lines = BufReader::new(tap.stdout.take().context("a pipe")?).lines();
    Ok((Tap(tap), lines))
}

/// How it ended.
async fn ended(child: &mut Child) -> Result<Option<i32>> {
    let status = eventually("the end of carrick tap", CAP, async || Ok(child.try_wait()?)).await;
    Ok(status?.code())
}

async fn fact(bus: &Bus, scope: Scope, facet: Facet, phase: &str) -> Result<()> {
    let subject = FactSubject { target: "carrick".into(), scope, facet };
    let object = json!({
        "metadata": {"name": "data", "uid": "t", "resourceVersion": "1"},
        "status": {"phase": phase},
    });
    let meta = FactMeta { uid: "t".into(), rv: 1, observed: Timestamp::now(), deleted: false };
    bus.publish_fact(&subject, &object, &meta, 0).await?;
    Ok(())
}

async fn step(bus: &Bus, scope: Scope) -> Result<()> {
    let report = StepReport {
        scope,
        step: Step::Upsync,
        outcome: Outcome::Waiting,
        service: "upsyncer".into(),
        reason: Some(Reason::new("Why", "not yet")),
        claim_uid: "t".into(),
        objects: Vec::new(),
        writes: Vec::new(),
        took: std::time::Duration::ZERO,
        time: Timestamp::now(),
    };
    let id = format!("{}", report.time.as_nanosecond());
    bus.publish_step(&report, &id).await?;
    Ok(())
}
