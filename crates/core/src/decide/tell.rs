//! What the tenant is told: the condition `carrick.dev/Storage` and Events on its claim.
//!
//! A claim that simply binds gets none of it. It is told what a service refuses or holds, and what
//! a claim waits for once it has waited for [`PATIENCE`]; a bound one too, if its volume is missed.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha224};

use super::{
    claim_phase,
    host_events::{self, Said},
    ownership::annotation,
};
use crate::{
    fact::ClaimFacts,
    names::STORAGE_CONDITION,
    patch::PatchBuilder,
    policy::Policy,
    step::{Outcome, Step, StepRecord},
    write::{Action, Decision, Kind, ObjectRef, Side, Verdict, Write},
};

/// How long a claim may wait before the tenant is told what for.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(10);
/// How long it may take until it is noticed that what another service refused is over: a step that
/// is done asks for no look.
const STILL: SignedDuration = SignedDuration::from_secs(30);
/// How often it is asked at most and at least what the host says about a claim that it does not bind.
const HOST_ASKED: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(30), SignedDuration::from_mins(10));

/// What to tell about a claim that is not as it should be.
struct Problem {
    code: String,
    message: String,
    /// What is told as an Event too: what a person has to do something about, or the host's words.
    event: Option<Said>,
}

impl Problem {
    fn of(record: &StepRecord) -> Self {
        Self {
            code: record.code.clone(),
            message: record.message.clone(),
            event: (record.outcome == Outcome::Refused)
                .then(|| Self::warning(&record.code, &record.message)),
        }
    }

    fn warning(code: &str, message: &str) -> Said {
        Said { warning: true, reason: code.to_owned(), note: message.to_owned() }
    }
}

/// Adds what the tenant is to be told to a decision that has no writes of its own.
pub(super) fn decide(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
    mut decision: Decision,
    now: Timestamp,
) -> Decision {
    if leaves(claim, policy) {
        return leaving(facts, claim, decision, now);
    }
    // What this service itself refuses is seen now, and not as it once was.
    let others = standing(facts, false).filter(|record| record.step != Step::Status);
    let others = others.map(Problem::of);
    let stands = others.is_some();
    let problem = others.or_else(|| own(&decision));
    let problem = match (problem, waits_since(facts, claim, &decision, now)) {
        (None, Some(since)) => {
            let waited = now.duration_since(since).max(SignedDuration::ZERO);
            if waited < PATIENCE {
                decision.verdict = Verdict::Ignored(Some(PATIENCE - waited));
                return decision;
            }
            if host_events::waits_for_host(facts, claim, policy) {
                let (often, seldom) = HOST_ASKED;
                decision = decision.recheck((waited / 2).clamp(often, seldom));
            }
            Some(waiting(facts, claim, &decision, now))
        }
        (problem, _) => problem,
    };
    decision.writes = match &problem {
        Some(problem) => complain(claim, problem, now),
        None => all_clear(claim, now),
    };
    if stands && decision.writes.is_empty() {
        decision.verdict = match decision.verdict {
            Verdict::Done | Verdict::Ignored(None) => Verdict::Ignored(Some(STILL)),
            Verdict::Waiting(reason, None) => Verdict::Waiting(reason, Some(STILL)),
            other => other,
        };
    }
    decision
}

/// Of a claim that leaves it is told what holds or refuses that, and after a while what it waits for;
/// one that has left and stays in the tenant is told so.
fn leaving(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    mut decision: Decision,
    now: Timestamp,
) -> Decision {
    let record = steps_of(facts).find(|record| record.step == Step::Delete);
    let problem = match record {
        Some(record) if matches!(record.outcome, Outcome::Waiting | Outcome::Retrying) => {
            let waited = now.duration_since(record.time).max(SignedDuration::ZERO);
            if waited < PATIENCE {
                decision.verdict = Verdict::Ignored(Some(PATIENCE - waited));
                return decision;
            }
            Some(Problem::of(record))
        }
        Some(record) if record.outcome != Outcome::Done => Some(Problem::of(record)),
        _ => own(&decision),
    };
    let over = claim.metadata.deletion_timestamp.is_none() && is_told(claim);
    decision.writes = match &problem {
        Some(problem) => complain(claim, problem, now),
        None if over => {
            let message = "the claim was taken off this sync target";
            set_condition(claim, "True", "TakenOff", message, now).into_iter().collect()
        }
        None => Vec::new(),
    };
    if problem.is_some() && decision.writes.is_empty() {
        decision.verdict = match decision.verdict {
            Verdict::Done | Verdict::Ignored(None) => Verdict::Ignored(Some(STILL)),
            other => other,
        };
    }
    decision
}

/// Whether the claim is being deleted, or taken off this sync target, by itself or with its tenant:
/// then what becomes of its host side is told, and nothing of how it got there.
pub(super) fn leaves(claim: &PersistentVolumeClaim, policy: &Policy) -> bool {
    policy.tenant.removing
        || claim.metadata.deletion_timestamp.is_some()
        || annotation(&claim.metadata, &policy.names.deletion()).is_some()
}

/// Whether the claim may have waited long enough to be told so.
pub(super) fn is_old(claim: &PersistentVolumeClaim, now: Timestamp) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref();
    created.is_none_or(|Time(created)| now.duration_since(*created) >= PATIENCE)
}

/// Whether the tenant was told that something is wrong with the claim, and not yet that it is over.
pub fn is_told(claim: &PersistentVolumeClaim) -> bool {
    find_condition(claim).is_some_and(|(_, condition)| condition.status != "True")
}

/// When something last happened to the claim: it was made, or another service took a step.
fn last_progress(facts: &ClaimFacts, claim: &PersistentVolumeClaim) -> Option<Timestamp> {
    let created = claim.metadata.creation_timestamp.as_ref().map(|Time(created)| *created);
    let steps = steps_of(facts).filter(|record| record.step < Step::Release);
    steps.map(|record| record.time).chain(created).max()
}

/// Since when the claim waits; `None` if it does not, or is not under way at all.
fn waits_since(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    decision: &Decision,
    now: Timestamp,
) -> Option<Timestamp> {
    let waits = matches!(decision.verdict, Verdict::Waiting(..));
    if claim_phase(claim) == "Bound" {
        // What was said of its volume may be over; it is not while this service misses it too.
        let record = latest_wait(facts).filter(|record| waits && record.step > Step::Bind);
        return record.map(|record| record.time);
    }
    let under_way = facts.host_claim.is_some() || waits || steps_of(facts).next().is_some();
    under_way.then(|| last_progress(facts, claim).unwrap_or(now))
}

/// How long ago something last happened to a claim.
pub(super) fn waited(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    now: Timestamp,
) -> SignedDuration {
    let since = last_progress(facts, claim).unwrap_or(now);
    now.duration_since(since).max(SignedDuration::ZERO)
}

/// The steps published for this very claim.
pub fn steps_of(facts: &ClaimFacts) -> impl Iterator<Item = &StepRecord> {
    let uid = facts.live_tenant_claim().and_then(|claim| claim.metadata.uid.as_deref());
    facts.steps.iter().filter(move |record| Some(record.claim_uid.as_str()) == uid)
}

/// What some service refuses or holds, the earliest step first: steps after it only wait. Of a claim
/// that leaves, just what stands in the way of that.
pub fn standing(facts: &ClaimFacts, leaves: bool) -> Option<&StepRecord> {
    steps_of(facts)
        .filter(|record| (record.step == Step::Delete) == leaves)
        .filter(|record| matches!(record.outcome, Outcome::Refused | Outcome::Held))
        .min_by_key(|record| record.step)
}

/// What the status-syncer itself refuses.
fn own(decision: &Decision) -> Option<Problem> {
    let Verdict::Refused(reason, _) = &decision.verdict else {
        return None;
    };
    let event = Some(Problem::warning(reason.code, &reason.message));
    Some(Problem { code: reason.code.to_owned(), message: reason.message.clone(), event })
}

/// The latest step on the claim's way that waits.
pub fn latest_wait(facts: &ClaimFacts) -> Option<&StepRecord> {
    let bound = facts.live_host_claim().is_some_and(|host| claim_phase(host) == "Bound");
    steps_of(facts)
        // Once the host has bound the claim, nobody waits for that any more, whatever was said.
        .filter(|record| !bound || record.step > Step::Bind)
        // What others wait for says more than what this service does, which is them.
        .filter(|record| record.step < Step::Release)
        .filter(|record| matches!(record.outcome, Outcome::Waiting | Outcome::Retrying))
        .max_by_key(|record| record.step)
}

/// What a claim waits for: as the step says that waits, else what is seen from here; and why, if it
/// is the host that it waits for and the host says so.
fn waiting(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    decision: &Decision,
    now: Timestamp,
) -> Problem {
    let (code, mut message) = match (&decision.verdict, latest_wait(facts)) {
        (_, Some(record)) => (record.code.clone(), record.message.clone()),
        (Verdict::Waiting(reason, _), None) => (reason.code.to_owned(), reason.message.clone()),
        _ => ("Waiting".to_owned(), "waits to be carried to the host".to_owned()),
    };
    let event = host_events::explanation(facts, claim, now);
    if let Some(Said { reason, note, .. }) = &event {
        message = format!("{message}; the host says: {reason}: {note}");
    }
    Problem { code, message, event }
}

fn complain(claim: &PersistentVolumeClaim, problem: &Problem, now: Timestamp) -> Vec<Write> {
    let Some(condition) = set_condition(claim, "False", &problem.code, &problem.message, now)
    else {
        return Vec::new();
    };
    let event = problem.event.as_ref().map(|said| event(claim, said, now));
    event.into_iter().chain([condition]).collect()
}

/// A problem that was told and is over is taken back.
fn all_clear(claim: &PersistentVolumeClaim, now: Timestamp) -> Vec<Write> {
    match find_condition(claim) {
        Some((_, condition)) if condition.status != "True" && claim_phase(claim) == "Bound" => {
            let message = "the claim is bound to its volume";
            set_condition(claim, "True", "Bound", message, now).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn find_condition(
    claim: &PersistentVolumeClaim,
) -> Option<(usize, &PersistentVolumeClaimCondition)> {
    let conditions = claim.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().enumerate().find(|(_, condition)| condition.type_ == STORAGE_CONDITION)
}

/// Writes our condition among those of others; `None` if it says this already.
fn set_condition(
    claim: &PersistentVolumeClaim,
    status: &str,
    code: &str,
    message: &str,
    now: Timestamp,
) -> Option<Write> {
    let mut condition = PersistentVolumeClaimCondition {
        type_: STORAGE_CONDITION.to_owned(),
        status: status.to_owned(),
        reason: Some(code.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(Time(now)),
        last_probe_time: None,
    };
    let builder = PatchBuilder::new(&claim.metadata);
    let listed = claim.status.as_ref().and_then(|status| status.conditions.as_ref());
    let patch = match (find_condition(claim), listed) {
        (Some((_, found)), _)
            if found.status == condition.status
                && found.reason == condition.reason
                && found.message == condition.message =>
        {
            return None;
        }
        (Some((index, found)), _) => {
            if found.status == condition.status {
                condition.last_transition_time.clone_from(&found.last_transition_time);
            }
            let index = index.to_string();
            builder
                .test(&["status", "conditions", &index, "type"], json!(STORAGE_CONDITION))
                .replace(&["status", "conditions", &index], json!(condition))
        }
        (None, Some(list)) if !list.is_empty() => {
            // At this very version only: on older facts it would be appended a second time.
            builder.test_version().set(&["status", "conditions", "-"], json!(condition))
        }
        (None, _) if claim.status.is_none() => {
            builder.test_version().set(&["status"], json!({"conditions": [condition]}))
        }
        (None, _) => builder.test_version().set(&["status", "conditions"], json!([condition])),
    };
    let action = Action::PatchStatus(patch.build()?);
    Some(Write { object: object(claim, Kind::Claim, &name_of(claim)), action, why: "condition" })
}

/// An Event that says the same of the same claim has the same name, so it is made only once.
fn event(claim: &PersistentVolumeClaim, said: &Said, now: Timestamp) -> Write {
    let Said { warning, reason, note } = said;
    let meta = &claim.metadata;
    let uid = meta.uid.clone().unwrap_or_default();
    let hash = Sha224::digest(format!("{uid}\n{reason}\n{note}"));
    let hash = hash.iter().take(8).fold(0_u64, |hash, byte| (hash << 8) | u64::from(*byte));
    let claim_name = name_of(claim);
    let head: String = claim_name.chars().take(200).collect();
    let name = format!("{}.{hash:016x}", head.trim_end_matches(['.', '-']));
    let note: String = note.chars().take(1000).collect();
    let body: Value = json!({
        "apiVersion": Kind::Event.api_version(),
        "kind": Kind::Event.kind(),
        "metadata": {"name": name, "namespace": meta.namespace},
        "eventTime": k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(now),
        "reportingController": "carrick.dev/status-syncer",
        "reportingInstance": "status-syncer",
        "action": "Sync",
        "type": if *warning { "Warning" } else { "Normal" },
        "reason": reason,
        "note": note,
        "regarding": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
            "namespace": meta.namespace, "name": claim_name,
        },
    });
    Write {
        object: object(claim, Kind::Event, &name),
        action: Action::Create(body),
        why: "event on the tenant's claim",
    }
}

fn name_of(claim: &PersistentVolumeClaim) -> String {
    claim.metadata.name.clone().unwrap_or_default()
}

fn object(claim: &PersistentVolumeClaim, kind: Kind, name: &str) -> ObjectRef {
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    ObjectRef::namespaced(Side::Tenant, kind, namespace, name)
}
