//! `carrick tap`: facts and steps as they happen.

use anyhow::Result;
use carrick_bus::{FactMessage, Family, History, Tapped, TappedBody};
use carrick_core::subject::StepSubject;
use carrick_proto::v1;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::{
    connect::{self, BusChoice},
    output::{plain, say},
    selector::{Selector, named},
};

/// What to show, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  carrick tap\n  carrick tap acme/team-a --steps\n  \
                        carrick tap acme/team-a/data --history -o json\n\n\
                        Exit codes: 0 after Ctrl-C or when nobody reads, 1 failed, 2 wrong use.")]
pub(crate) struct Args {
    /// Which claims: TENANT[/NAMESPACE[/CLAIM]]; all without it
    claims: Option<Selector>,
    /// Show only steps
    #[arg(long)]
    steps: bool,
    /// Begin with what is still stored: the last fact of each object, and the steps of a day
    #[arg(long)]
    history: bool,
    /// One readable line for each message, or one JSON object
    #[arg(short, long, value_enum, default_value_t = Form::Line)]
    output: Form,
    #[clap(flatten)]
    bus: BusChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// A readable line.
    Line,
    /// A JSON object.
    Json,
}

/// Shows until Ctrl-C, or until nobody reads any more.
pub(crate) async fn run(args: Args) -> Result<()> {
    let Args { claims, steps, history, output, bus } = args;
    let bus = connect::bus(&bus).await?;
    let families = if steps { &[Family::Steps][..] } else { &[Family::Facts, Family::Steps] };
    let history = if history { History::All } else { History::Live };
    let mut messages = bus.tap(families, &Selector::filter(claims.as_ref()), history).await?;
    if let Some(scope) = claims.as_ref().map(Selector::scope)
        // Who may only listen can't ask, and is not kept from listening.
        && bus.scopes_in(Some(&scope)).await.is_ok_and(|known| known.is_empty())
    {
        let scope = named(&scope);
        eprintln!(
            "carrick: nothing is known of {scope} so far, waiting for it: `carrick tenant list` \
             and `carrick get claims` show what there is"
        );
    }
    loop {
        let message = tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            message = messages.next() => message,
        };
        let Some(message) = message else { anyhow::bail!("the connection to NATS ended") };
        let text = match output {
            Form::Line => line(&message?),
            Form::Json => object(&message?).to_string(),
        };
        say(&text)?;
    }
}

/// One readable line: time, which claim, what.
fn line(tapped: &Tapped) -> String {
    let time = tapped.time.strftime("%H:%M:%S%.3f");
    let (scope, what) = match &tapped.body {
        TappedBody::Fact(fact) => (fact.subject.scope.to_string(), fact_line(fact)),
        TappedBody::Step(step) => (step_scope(&tapped.subject), step_line(step)),
        TappedBody::Dead(dead) => {
            let claim = format!("{}/{}/{}", dead.tenant, dead.namespace, dead.claim);
            (claim, format!("dead       {}: {}", dead.service, dead.last_error))
        }
        TappedBody::Unreadable(error) => (tapped.subject.clone(), format!("unreadable {error}")),
    };
    plain(&format!("{time}  {scope:<28}  {what}"))
}

fn step_scope(subject: &str) -> String {
    StepSubject::parse(subject)
        .map_or_else(|| subject.to_owned(), |parsed| parsed.scope.to_string())
}

fn fact_line(fact: &FactMessage) -> String {
    let text = |pointer| fact.object.pointer(pointer).and_then(Value::as_str);
    let kind = fact.subject.facet.token();
    let name = fact.subject.facet.name().map(|name| format!(" {name}")).unwrap_or_default();
    let phase = text("/status/phase").map(|phase| format!(" {phase}")).unwrap_or_default();
    let state = if fact.meta.deleted { " gone" } else { phase.as_str() };
    format!("fact       {kind}{name}{state} (rv {})", fact.meta.rv)
}

fn step_line(step: &v1::Step) -> String {
    let kind = step.step().as_str_name().trim_start_matches("STEP_KIND_").to_lowercase();
    let outcome = step.outcome().as_str_name().trim_start_matches("OUTCOME_").to_lowercase();
    let what = match (step.reason.as_str(), step.message.as_str()) {
        ("", "") => step.writes.join(", "),
        ("", text) | (text, "") => text.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    };
    format!("{kind:<10} {outcome:<8} {what}").trim_end().to_owned()
}

/// The message as one JSON object, with its subject.
fn object(tapped: &Tapped) -> Value {
    let head = json!({"subject": tapped.subject, "time": tapped.time.to_string()});
    let body = match &tapped.body {
        TappedBody::Fact(fact) => json!({
            "fact": fact.object, "deleted": fact.meta.deleted, "uid": fact.meta.uid,
            "resourceVersion": fact.meta.rv.to_string(),
        }),
        TappedBody::Step(step) => json!({"step": step}),
        TappedBody::Dead(dead) => json!({"dead": dead}),
        TappedBody::Unreadable(error) => json!({"error": error}),
    };
    let (Value::Object(mut head), Value::Object(body)) = (head, body) else { return Value::Null };
    head.extend(body);
    Value::Object(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrick_bus::FactMeta;
    use carrick_core::FactSubject;
    use jiff::Timestamp;

    fn tapped() -> Tapped {
        Tapped {
            subject: "carrick.v1.carrick.step.acme.team-a.data_v1.bind.waiting".into(),
            time: Timestamp::from_millisecond(1_500).unwrap(),
            body: TappedBody::Step(Box::new(v1::Step {
                tenant: "acme".into(),
                step: v1::StepKind::Bind.into(),
                outcome: v1::Outcome::Waiting.into(),
                reason: "HostPending".into(),
                message: "waits for the\nhost".into(),
                ..v1::Step::default()
            })),
        }
    }

    #[test]
    fn a_step_is_one_readable_line() {
        assert_eq!(
            line(&tapped()),
            "00:00:01.500  acme/team-a/data.v1           bind       waiting  HostPending: waits \
             for the\u{fffd}host"
        );
    }

    #[test]
    fn a_fact_is_one_readable_line() {
        let fact = |facet: &str, deleted| {
            let subject = format!("carrick.v1.carrick.fact.acme.team-a.data.{facet}");
            let subject = FactSubject::parse(&subject).unwrap();
            let observed = Timestamp::UNIX_EPOCH;
            let meta = FactMeta { uid: "u".into(), rv: 7, observed, deleted };
            let object = json!({"status": {"phase": "Bound"}});
            fact_line(&FactMessage { subject, sequence: 1, meta, object })
        };
        assert_eq!(fact("tenant-claim", false), "fact       tenant-claim Bound (rv 7)");
        assert_eq!(fact("host-volume.pv-1", true), "fact       host-volume pv-1 gone (rv 7)");
    }

    #[test]
    fn a_step_as_json_has_its_subject() {
        let object = object(&tapped());
        assert_eq!(object["subject"], "carrick.v1.carrick.step.acme.team-a.data_v1.bind.waiting");
        assert_eq!(object["step"]["outcome"], "OUTCOME_WAITING");
    }
}
