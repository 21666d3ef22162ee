//! Between the messages of `proto/carrick/v1` and the types of `carrick-core`.

use carrick_core::{ClaimKey, Outcome, Scope, Side, Step, StepRecord, step::trace_id};
use carrick_proto::v1;
use jiff::Timestamp;

use crate::{
    dead::DeadReport,
    steps::{ObjectVersion, StepReport},
};

/// A step as it is published.
pub(crate) fn step(target: &str, report: &StepReport) -> v1::Step {
    let (tenant, namespace, claim) = parts(&report.scope);
    let reason = report.reason.as_ref();
    v1::Step {
        sync_target: target.to_owned(),
        tenant: tenant.to_owned(),
        namespace: namespace.to_owned(),
        claim: claim.to_owned(),
        step: step_kind(report.step).into(),
        outcome: outcome(report.outcome).into(),
        service: report.service.clone(),
        reason: reason.map(|reason| reason.code.to_owned()).unwrap_or_default(),
        message: reason.map(|reason| reason.message.clone()).unwrap_or_default(),
        claim_uid: report.claim_uid.clone(),
        objects: report.objects.iter().map(object).collect(),
        writes: report.writes.clone(),
        duration: Some(pbjson_types::Duration {
            seconds: i64::try_from(report.took.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(report.took.subsec_nanos()).unwrap_or(0),
        }),
        time: Some(timestamp(report.time)),
        trace_id: trace_id(tenant, &report.claim_uid),
    }
}

/// A published step as the decisions take it.
pub(crate) fn record(step: &v1::Step) -> Result<StepRecord, String> {
    let unknown = |what: &str, value: i32| format!("its {what} {value} is not known here");
    let kinds = Step::ALL.into_iter();
    let kind = kinds.clone().find(|kind| step_kind(*kind) == step.step());
    let outcomes = Outcome::ALL.into_iter();
    let ended = outcomes.clone().find(|ended| outcome(*ended) == step.outcome());
    Ok(StepRecord {
        step: kind.ok_or_else(|| unknown("step", step.step))?,
        outcome: ended.ok_or_else(|| unknown("outcome", step.outcome))?,
        code: step.reason.clone(),
        message: step.message.clone(),
        claim_uid: step.claim_uid.clone(),
        time: time(step.time.as_ref())?,
    })
}

/// A dead claim as it is published.
pub(crate) fn dead(target: &str, report: &DeadReport) -> v1::DeadClaim {
    let (tenant, namespace, claim) = parts(&report.scope);
    v1::DeadClaim {
        sync_target: target.to_owned(),
        tenant: tenant.to_owned(),
        namespace: namespace.to_owned(),
        claim: claim.to_owned(),
        service: report.service.clone(),
        reason: report.reason.clone(),
        failures: report.failures,
        time: Some(timestamp(report.time)),
        last_error: report.last_error.clone(),
        trace_id: trace_id(tenant, &report.claim_uid),
    }
}

/// A published dead claim.
pub(crate) fn dead_report(scope: Scope, dead: v1::DeadClaim) -> Result<DeadReport, String> {
    Ok(DeadReport {
        scope,
        time: time(dead.time.as_ref())?,
        service: dead.service,
        reason: dead.reason,
        failures: dead.failures,
        last_error: dead.last_error,
        claim_uid: String::new(),
    })
}

fn parts(scope: &Scope) -> (&str, &str, &str) {
    match scope {
        Scope::Claim(ClaimKey { tenant, namespace, claim }) => (tenant, namespace, claim),
        Scope::Namespace { tenant, namespace } => (tenant, namespace, ""),
        Scope::Tenant { tenant } => (tenant, "", ""),
    }
}

fn object(version: &ObjectVersion) -> v1::ObjectVersion {
    let side = match version.object.side {
        Side::Host => v1::Side::Host,
        Side::Tenant => v1::Side::Tenant,
    };
    v1::ObjectVersion {
        side: side.into(),
        kind: version.object.kind.kind().to_owned(),
        namespace: version.object.namespace.clone().unwrap_or_default(),
        name: version.object.name.clone(),
        uid: version.uid.clone(),
        resource_version: version.rv.to_string(),
    }
}

fn step_kind(step: Step) -> v1::StepKind {
    match step {
        Step::Claim => v1::StepKind::Claim,
        Step::Bind => v1::StepKind::Bind,
        Step::Transform => v1::StepKind::Transform,
        Step::Upsync => v1::StepKind::Upsync,
        Step::Release => v1::StepKind::Release,
        Step::Status => v1::StepKind::Status,
        Step::Class => v1::StepKind::Class,
        Step::Delete => v1::StepKind::Delete,
    }
}

fn outcome(outcome: Outcome) -> v1::Outcome {
    match outcome {
        Outcome::Done => v1::Outcome::Done,
        Outcome::Waiting => v1::Outcome::Waiting,
        Outcome::Held => v1::Outcome::Held,
        Outcome::Refused => v1::Outcome::Refused,
        Outcome::Retrying => v1::Outcome::Retrying,
    }
}

fn timestamp(time: Timestamp) -> pbjson_types::Timestamp {
    pbjson_types::Timestamp { seconds: time.as_second(), nanos: time.subsec_nanosecond() }
}

fn time(time: Option<&pbjson_types::Timestamp>) -> Result<Timestamp, String> {
    let time = time.ok_or("it has no time")?;
    Timestamp::new(time.seconds, time.nanos).map_err(|error| format!("its time: {error}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carrick_core::{Kind, ObjectRef, Reason};

    use super::*;

    fn report(kind: Step, ended: Outcome) -> StepReport {
        StepReport {
            scope: Scope::Claim(ClaimKey::new("acme", "team-a", "data")),
            step: kind,
            outcome: ended,
            service: "upsyncer".into(),
            reason: Some(Reason::new("Collision", "a volume of that name is not ours")),
            claim_uid: "0f6c".into(),
            objects: vec![ObjectVersion {
                object: ObjectRef::cluster(Side::Host, Kind::Volume, "pvc-1"),
                uid: "u".into(),
                rv: 7,
            }],
            writes: vec!["create tenant PersistentVolume pvc-1".into()],
            took: Duration::from_millis(12),
            time: "2026-01-02T03:04:05.5Z".parse().unwrap(),
        }
    }

    #[test]
    fn every_step_and_outcome_is_read_as_it_was_written() {
        for kind in Step::ALL {
            for ended in Outcome::ALL {
                let report = report(kind, ended);
                let text = serde_json::to_string(&step("main", &report)).unwrap();
                let record = record(&serde_json::from_str(&text).unwrap()).unwrap();
                assert_eq!((record.step, record.outcome), (kind, ended));
                assert_eq!((record.code.as_str(), record.time), ("Collision", report.time));
            }
        }
    }

    #[test]
    fn a_step_reads_well() {
        let text = serde_json::to_string(&step("main", &report(Step::Upsync, Outcome::Refused)));
        assert_eq!(
            text.unwrap(),
            concat!(
                r#"{"syncTarget":"main","tenant":"acme","namespace":"team-a","claim":"data","#,
                r#""step":"STEP_KIND_UPSYNC","outcome":"OUTCOME_REFUSED","service":"upsyncer","#,
                r#""reason":"Collision","message":"a volume of that name is not ours","#,
                r#""claimUid":"0f6c","objects":[{"side":"SIDE_HOST","kind":"PersistentVolume","#,
                r#""name":"pvc-1","uid":"u","resourceVersion":"7"}],"#,
                r#""writes":["create tenant PersistentVolume pvc-1"],"duration":"0.012s","#,
                r#""time":"2026-01-02T03:04:05.500+00:00","#,
                r#""traceId":"5463cca35671b492e94ee0cb7af7b449"}"#,
            )
        );
    }

    #[test]
    fn a_step_of_a_later_version_is_not_guessed_at() {
        let mut message = step("main", &report(Step::Upsync, Outcome::Done));
        message.step = 99;
        assert!(record(&message).unwrap_err().contains("step 99"));
        message = v1::Step::default();
        assert!(record(&message).is_err());
    }
}
