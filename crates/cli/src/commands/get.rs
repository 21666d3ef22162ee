//! `carrick get claims`: both sides of every claim, side by side.

use anyhow::{Result, bail};
use carrick_bus::Bus;
use carrick_core::{
    ClaimFacts, ClaimKey, Fact, Scope, StepRecord,
    decide::{claim_phase, tell, volume_name},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use crate::{
    connect::{self, BusChoice},
    output::say,
    selector::{Selector, named},
    table::{Form, Listed, age, list},
};

/// Claims read at a time.
const AT_ONCE: usize = 32;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show both sides of claims: phases, volume, step, age
    #[command(
        alias = "claim",
        after_help = "Examples:\n  carrick get claims\n  carrick get claims acme/team-a -o wide\n\n\
                      STEP is what a service refuses or holds, or what the claim waits for, or \
                      else its last step.\n\
                      A dash stands for what is not known.\n\
                      Exit codes: 0 shown, 1 failed or nothing is known of it, 2 wrong use."
    )]
    Claims(Args),
}

/// What to show, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which claims: TENANT[/NAMESPACE[/CLAIM]]; all without it
    claims: Option<Selector>,
    /// How to show them; wide adds the reason of the step
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    output: Form,
    #[clap(flatten)]
    bus: BusChoice,
}

pub(crate) async fn run(Command::Claims(args): Command) -> Result<()> {
    let Args { claims, output, bus } = args;
    let bus = connect::bus(&bus).await?;
    let scope = claims.as_ref().map(Selector::scope);
    let keys = match &scope {
        Some(Scope::Claim(key)) => vec![key.clone()],
        scope => bus.claims_in(scope.as_ref()).await?,
    };
    let rows: Vec<Option<Row>> =
        stream::iter(keys).map(|key| row(&bus, key)).buffered(AT_ONCE).try_collect().await?;
    let rows: Vec<_> = rows.into_iter().flatten().collect();
    if rows.is_empty() {
        check_known(&bus, scope.as_ref()).await?;
        eprintln!("there are no claims");
    }
    say(&list(&rows, output, Timestamp::now())?)
}

/// Where there is no claim, whether there may be one.
async fn check_known(bus: &Bus, scope: Option<&Scope>) -> Result<()> {
    let Some(scope) = scope else { return Ok(()) };
    // What is gone leaves facts for a while; of a claim that was asked for that is not enough.
    if matches!(scope, Scope::Claim(_)) || bus.scopes_in(Some(scope)).await?.is_empty() {
        bail!(
            "nothing is known of {}: check the name with `carrick tenant list` or \
             `carrick get claims`, and whether the watcher runs",
            named(scope)
        );
    }
    Ok(())
}

/// One claim, as it is shown.
struct Row {
    key: ClaimKey,
    tenant_phase: String,
    host_phase: String,
    volume: String,
    step: String,
    reason: String,
    created: Option<Timestamp>,
}

async fn row(bus: &Bus, key: ClaimKey) -> Result<Option<Row>> {
    let view = bus.claim_facts(&key, false, 0).await?;
    for poison in view.poison {
        eprintln!("carrick: left out, for it can't be read: {}: {}", poison.subject, poison.error);
    }
    let steps = bus.last_steps(&Scope::Claim(key)).await?;
    Ok(summary(&ClaimFacts { steps, ..view.facts }))
}

/// `None` for a claim that is gone on both sides.
fn summary(facts: &ClaimFacts) -> Option<Row> {
    let phase = |fact: Option<&Fact<PersistentVolumeClaim>>| match fact {
        None => String::new(),
        Some(fact) if fact.deleted => "(gone)".to_owned(),
        Some(fact) if fact.object.metadata.deletion_timestamp.is_some() => {
            format!("{} (deleting)", claim_phase(&fact.object))
        }
        Some(fact) => claim_phase(&fact.object).to_owned(),
    };
    let (tenant, host) = (facts.live_tenant_claim(), facts.live_host_claim());
    let any = tenant.or(host)?;
    let volume = host.and_then(volume_name).or_else(|| tenant.and_then(volume_name));
    let told = telling(facts);
    Some(Row {
        key: facts.key.clone(),
        tenant_phase: phase(facts.tenant_claim.as_ref()),
        host_phase: phase(facts.host_claim.as_ref()),
        volume: volume.unwrap_or_default().to_owned(),
        step: told.map(|told| format!("{} {}", told.step, told.outcome)).unwrap_or_default(),
        reason: told.map(|told| told.message.clone()).unwrap_or_default(),
        created: any.metadata.creation_timestamp.as_ref().map(|time| time.0),
    })
}

/// What a row says of the claim's way, much as the tenant is told it: what some service refuses or
/// holds, else what a claim that is not bound waits for, else the newest step.
fn telling(facts: &ClaimFacts) -> Option<&StepRecord> {
    let bound = facts.live_tenant_claim().is_some_and(|claim| claim_phase(claim) == "Bound");
    let leaves = facts.live_tenant_claim().is_some_and(leaves);
    tell::standing(facts, leaves)
        .or_else(|| tell::latest_wait(facts).filter(|_| !bound))
        .or_else(|| tell::steps_of(facts).max_by_key(|record| record.time))
}

/// Whether a claim is being deleted, or taken off whatever sync target this is.
fn leaves(claim: &PersistentVolumeClaim) -> bool {
    let meta = &claim.metadata;
    let mut keys = meta.annotations.iter().flatten().map(|(key, _)| key);
    meta.deletion_timestamp.is_some()
        || keys.any(|key| key.starts_with("deletion.internal.workload."))
}

impl Listed for Row {
    const HEAD: &[&str] = &["CLAIM", "TENANT", "HOST", "VOLUME", "STEP", "AGE", "REASON"];

    fn name(&self) -> String {
        self.key.to_string()
    }

    fn json(&self) -> Result<Value> {
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok(json!({
            "tenant": self.key.tenant, "namespace": self.key.namespace, "claim": self.key.claim,
            "tenantPhase": known(&self.tenant_phase), "hostPhase": known(&self.host_phase),
            "volume": known(&self.volume), "step": known(&self.step), "reason": known(&self.reason),
            "created": self.created.map(|created| created.to_string()),
        }))
    }

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.key.to_string(),
            self.tenant_phase.clone(),
            self.host_phase.clone(),
            self.volume.clone(),
            self.step.clone(),
            self.created.map(|created| age(created, now)).unwrap_or_default(),
            self.reason.clone(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrick_core::{Facet, Outcome, Step};

    fn show(rows: &[Row], form: Form, now: Timestamp) -> String {
        list(rows, form, now).unwrap()
    }

    fn facts() -> ClaimFacts {
        bound("Pending", "Bound")
    }

    fn bound(in_tenant: &str, on_host: &str) -> ClaimFacts {
        let mut facts = ClaimFacts::new(ClaimKey::new("acme", "team-a", "data"));
        let claim = |uid: &str, phase: &str, volume: Option<&str>| {
            json!({
                "metadata": {"name": "data", "uid": uid, "resourceVersion": "1",
                             "creationTimestamp": "1970-01-01T00:00:00Z"},
                "spec": {"volumeName": volume}, "status": {"phase": phase},
            })
        };
        facts.insert(&Facet::TenantClaim, false, claim("t", in_tenant, None)).unwrap();
        facts.insert(&Facet::HostClaim, false, claim("h", on_host, Some("pv-1"))).unwrap();
        facts
    }

    fn step(uid: &str, second: i64, step: Step, outcome: Outcome) -> StepRecord {
        StepRecord {
            step,
            outcome,
            code: "Code".into(),
            message: "waits".into(),
            claim_uid: uid.into(),
            time: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn both_sides_stand_side_by_side_with_the_step() {
        let steps = [
            step("t", 2, Step::Upsync, Outcome::Waiting),
            step("t", 1, Step::Claim, Outcome::Done),
            step("an earlier claim", 3, Step::Status, Outcome::Done),
        ];
        let rows = [summary(&ClaimFacts { steps: steps.into(), ..facts() }).unwrap()];
        let now = Timestamp::from_second(9).unwrap();
        assert_eq!(
            show(&rows, Form::Wide, now),
            "CLAIM             TENANT   HOST   VOLUME  STEP            AGE  REASON\n\
             acme/team-a/data  Pending  Bound  pv-1    upsync waiting  9s   waits"
        );
        assert_eq!(show(&rows, Form::Name, now), "acme/team-a/data");
        assert!(show(&rows, Form::Json, now).contains(r#""hostPhase": "Bound""#));
    }

    #[test]
    fn a_refusal_stands_before_what_waits_and_that_before_what_is_newest() {
        use Outcome::{Done, Held, Refused, Retrying, Waiting};
        let told = |(in_tenant, on_host), steps: &[(Step, Outcome)]| {
            let steps = steps.iter().zip(1..);
            let steps = steps.map(|((s, outcome), second)| step("t", second, *s, *outcome));
            let facts = ClaimFacts { steps: steps.collect(), ..bound(in_tenant, on_host) };
            summary(&facts).unwrap().step
        };
        let waits = ("Pending", "Pending");
        let refused = [(Step::Claim, Refused), (Step::Transform, Held), (Step::Status, Done)];
        assert_eq!(told(waits, &refused), "claim refused");
        assert_eq!(told(("Bound", "Bound"), &refused[1..]), "transform held");
        let on_its_way = [
            (Step::Transform, Retrying),
            (Step::Bind, Waiting),
            (Step::Release, Waiting),
            (Step::Status, Done),
        ];
        assert_eq!(told(waits, &on_its_way), "transform retrying");
        assert_eq!(told(waits, &on_its_way[1..]), "bind waiting");
        assert_eq!(told(("Pending", "Bound"), &on_its_way[1..]), "status done");
        assert_eq!(told(("Bound", "Bound"), &on_its_way), "status done");
        let steps = vec![step("an earlier claim", 1, Step::Claim, Refused)];
        assert_eq!(summary(&ClaimFacts { steps, ..facts() }).unwrap().step, "");
    }

    #[test]
    fn what_is_not_known_is_a_dash_and_in_json_null() {
        let mut facts = ClaimFacts::new(ClaimKey::new("acme", "team-a", "data"));
        let claim = json!({"metadata": {"name": "data", "uid": "t", "resourceVersion": "1"}});
        facts.insert(&Facet::TenantClaim, false, claim).unwrap();
        let rows = [summary(&facts).unwrap()];
        let now = Timestamp::UNIX_EPOCH;
        let shown = show(&rows, Form::Table, now);
        let cells: Vec<_> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells[0], "acme/team-a/data");
        assert_eq!(cells[2..], ["-", "-", "-", "-"], "{shown}");
        let shown: Value = serde_json::from_str(&show(&rows, Form::Json, now)).unwrap();
        assert_eq!(shown[0]["hostPhase"], Value::Null);
        assert_eq!(show(&[], Form::Json, now), "[]");
        assert_eq!(show(&[], Form::Table, now), "");
    }

    #[test]
    fn a_claim_that_is_gone_is_not_shown() {
        assert!(summary(&ClaimFacts::new(ClaimKey::new("a", "b", "c"))).is_none());
    }
}
