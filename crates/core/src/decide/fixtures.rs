//! Objects for tests: a tenant `acme` with one claim, at any stage of its way, on two tiny API
//! servers that check every write.

mod invariants;
mod server;
mod world;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub(crate) use self::{
    server::{Refusal, Server},
    world::{Actor, Stage, Thing, World},
};
use crate::{
    identity::SyncTarget,
    names::Domain,
    policy::{Binder, ClassRules, Policy, Selection, TenantRules},
    step::{Outcome, Step, StepRecord},
    write::{Action, Decision, Verdict, Write},
};

pub(crate) const TENANT: &str = "acme";
pub(crate) const NAMESPACE: &str = "team-a";
pub(crate) const CLAIM: &str = "data";
/// The volume that the host binder makes first.
pub(crate) const VOLUME: &str = "pv-data";

/// The policy of a tenant without a binder: class `fast` is `ssd` on the host.
pub(crate) fn policy() -> Policy {
    policy_with(Domain::KcpDev, Binder::Carrick)
}

pub(crate) fn policy_with(domain: Domain, binder: Binder) -> Policy {
    let target = SyncTarget {
        cluster: "root".to_owned(),
        name: "carrick".to_owned(),
        uid: "0b1c".to_owned(),
    };
    let rules = TenantRules {
        name: TENANT.to_owned(),
        cluster: TENANT.to_owned(),
        select: Selection { exclude: vec!["kube-*".to_owned()], ..Selection::default() },
        classes: classes(&[("fast", "ssd")]),
        binder,
        ..TenantRules::default()
    };
    Policy::new(target, domain, rules)
}

/// Only these classes, as (tenant, host).
pub(crate) fn classes(pairs: &[(&str, &str)]) -> ClassRules {
    let mapped: BTreeMap<_, _> =
        pairs.iter().map(|(tenant, host)| ((*tenant).to_owned(), (*host).to_owned())).collect();
    ClassRules { mapped, ..ClassRules::default() }
}

/// The claim as its user writes it.
pub(crate) fn user_claim() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": CLAIM, "namespace": NAMESPACE,
            "labels": {"app": "shop"},
            "annotations": {"note": "mine"},
            "finalizers": ["kubernetes.io/pvc-protection"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
        },
    })
}

/// A step that some service published for the claim with this uid.
pub(crate) fn record(step: Step, outcome: Outcome, code: &str, uid: &str) -> StepRecord {
    StepRecord {
        step,
        outcome,
        code: code.to_owned(),
        message: format!("because of {code}"),
        claim_uid: uid.to_owned(),
        time: "2026-01-01T00:00:00Z".parse().unwrap(),
    }
}

/// The code of what a decision refuses or waits for; empty if it does neither.
pub(crate) fn code(decision: &Decision) -> &'static str {
    match &decision.verdict {
        Verdict::Waiting(reason, _) | Verdict::Refused(reason, _) | Verdict::Held(reason) => {
            reason.code
        }
        Verdict::Ignored(_) | Verdict::Done => "",
    }
}

/// Asserts that a decision refuses with this code, and writes nothing.
#[track_caller]
pub(crate) fn assert_refused(decision: &Decision, expected: &str) {
    assert!(matches!(decision.verdict, Verdict::Refused(..)), "{expected}: {decision:?}");
    assert_eq!((code(decision), decision.writes.len()), (expected, 0), "{decision:?}");
}

/// Asserts that a decision waits with this code, and writes nothing.
#[track_caller]
pub(crate) fn assert_waits(decision: &Decision, expected: &str) {
    assert!(matches!(decision.verdict, Verdict::Waiting(..)), "{expected}: {decision:?}");
    assert_eq!((code(decision), decision.writes.len()), (expected, 0), "{decision:?}");
}

/// Asserts that a decision finds nothing to do and nothing to say.
#[track_caller]
pub(crate) fn assert_ignored(decision: &Decision) {
    assert!(matches!(decision.verdict, Verdict::Ignored(_)), "{decision:?}");
    assert!(decision.writes.is_empty(), "{decision:?}");
}

/// Asserts that nothing is left to do.
#[track_caller]
pub(crate) fn assert_done(decision: &Decision) {
    assert_eq!((&decision.verdict, decision.writes.len()), (&Verdict::Done, 0), "{decision:?}");
}

/// The only write of a decision.
#[track_caller]
pub(crate) fn only_write(decision: &Decision) -> &Write {
    assert_eq!(decision.writes.len(), 1, "{decision:?}");
    &decision.writes[0]
}

/// What a write creates.
#[track_caller]
pub(crate) fn created(write: &Write) -> &Value {
    match &write.action {
        Action::Create(object) => object,
        other => panic!("not a create: {other:?}"),
    }
}

/// A label's or annotation's value in JSON; empty if it has none.
pub(crate) fn entry<'a>(object: &'a Value, map: &str, key: &str) -> &'a str {
    object["metadata"][map][key].as_str().unwrap_or_default()
}

pub(crate) fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.contains(&json!(name)))
}

/// A field's text in JSON; empty if it has none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
