//! How a claim's host side ends: the downsyncer deletes it, unless something holds it.
//!
//! A claim leaves when it is deleted, taken off this sync target, or gone. While a soft finalizer of
//! it or of its namespace is not empty, it stays as it is and is kept in step (kcp #1528: the last
//! check before an item is deleted is on its namespace too). Nothing is deleted, and no finalizer is
//! taken off, but on what the API servers themselves say at that moment.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    down::{host_claim_ref, keep_in_step, tenant_claim_ref},
    ownership::{ClaimOwner, annotation, check_host_namespace, claim_owner, has_finalizer, label},
};
use crate::{
    fact::ClaimFacts,
    names::{IN_USE, SYNC},
    patch::PatchBuilder,
    policy::Policy,
    step::{Reason, Step},
    write::{Action, Decision, Kind, ObjectRef, Side, Write},
};

const STEP: Step = Step::Delete;

/// How a claim stands in the tenant.
enum Standing<'a> {
    /// It stays.
    Stays(&'a PersistentVolumeClaim),
    /// It is being deleted.
    Deleted(&'a PersistentVolumeClaim),
    /// It stays in the tenant, and nothing of it on the host.
    TakenOff(&'a PersistentVolumeClaim),
    /// Nothing is known of it, or that it is gone.
    Gone,
}

/// What is to be undone, if anything is.
pub(super) fn decide(facts: &ClaimFacts, policy: &Policy) -> Option<Decision> {
    let standing = match standing(facts, policy) {
        Ok(standing) => standing,
        Err(reason) => return Some(Decision::refused(STEP, reason)),
    };
    let host = facts.live_host_claim();
    let owner = host.map_or(ClaimOwner::Stranger, |host| claim_owner(host, policy));
    match (standing, host, owner) {
        (Standing::Gone, Some(host), ClaimOwner::Uid(_)) => Some(delete(facts, host, policy, STEP)),
        (Standing::Gone, _, _) => Some(Decision::ignored(STEP)),
        (Standing::Stays(claim), Some(host), ClaimOwner::Uid(uid)) if !is(claim, uid) => {
            Some(delete(facts, host, policy, Step::Claim))
        }
        (Standing::Stays(_), _, _) => None,
        (Standing::Deleted(claim), Some(host), ClaimOwner::Uid(uid)) if is(claim, uid) => {
            let in_use = has_finalizer(&claim.metadata, IN_USE);
            Some(leave(facts, claim, host, policy, in_use))
        }
        (Standing::TakenOff(claim), Some(host), ClaimOwner::Uid(uid)) if is(claim, uid) => {
            Some(leave(facts, claim, host, policy, false))
        }
        (Standing::Deleted(claim) | Standing::TakenOff(claim), _, owner) => {
            Some(let_go(facts, claim, owner, policy))
        }
    }
}

fn is(claim: &PersistentVolumeClaim, uid: &str) -> bool {
    claim.metadata.uid.as_deref() == Some(uid)
}

fn standing<'a>(facts: &'a ClaimFacts, policy: &Policy) -> Result<Standing<'a>, Reason> {
    let Some(claim) = facts.live_tenant_claim() else {
        return Ok(Standing::Gone);
    };
    if claim.metadata.deletion_timestamp.is_some() {
        return Ok(Standing::Deleted(claim));
    }
    match annotation(&claim.metadata, &policy.names.deletion()) {
        Some(mark) if mark.parse::<Timestamp>().is_err() => Err(Reason::new(
            "DeletionMarkInvalid",
            format!("the claim is marked as taken off at {mark:?}, which is no RFC 3339 time"),
        )),
        Some(_) => Ok(Standing::TakenOff(claim)),
        None if policy.tenant.removing => Ok(Standing::TakenOff(claim)),
        None => Ok(Standing::Stays(claim)),
    }
}

/// The claim is there and leaves, and its host claim stands.
fn leave(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
    policy: &Policy,
    in_use: bool,
) -> Decision {
    let instead = match held_by(facts, policy) {
        Some(reason) => Some(Decision::held(STEP, reason)),
        None if in_use => Some(Decision::waiting(
            STEP,
            "InUse",
            "the claim is in use in the tenant; its data stays until it is not",
        )),
        None => None,
    };
    match instead {
        Some(instead) => keep_in_step(facts, claim, host, policy).unwrap_or(instead),
        None => delete(facts, host, policy, STEP),
    }
}

/// Deletes a host claim that its tenant claim does not need any more.
fn delete(
    facts: &ClaimFacts,
    host: &PersistentVolumeClaim,
    policy: &Policy,
    step: Step,
) -> Decision {
    let ours = facts
        .live_host_namespace()
        .is_some_and(|found| check_host_namespace(found, policy, &facts.key.namespace).is_ok());
    if !ours {
        let message = "waits to see that the host namespace is this tenant's";
        return Decision::waiting(step, "WaitingForNamespace", message);
    }
    if host.metadata.deletion_timestamp.is_some() {
        let message = "the host claim is being deleted; waits for it to go";
        return Decision::waiting(step, "HostClaimTerminating", message);
    }
    if let Some(reason) = held_by(facts, policy) {
        return Decision::held(step, reason);
    }
    if let Some(ask) = ask(facts, policy, step) {
        return ask;
    }
    let (object, action) = (host_claim_ref(facts, policy), Action::delete(&host.metadata));
    Decision::write(step, Write { object, action, why: "host claim deleted" })
}

/// The claim leaves and has no host claim: it loses our marks.
fn let_go(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    owner: ClaimOwner<'_>,
    policy: &Policy,
) -> Decision {
    let finalizer = policy.names.finalizer();
    if !has_finalizer(&claim.metadata, &finalizer) {
        return Decision::ignored(STEP);
    }
    if owner == ClaimOwner::Unrecorded {
        let message = "waits for whoever carried the claim to the host to delete it there";
        return Decision::waiting(STEP, "HostClaimStays", message);
    }
    if let Some(reason) = held_by(facts, policy) {
        return Decision::held(STEP, reason);
    }
    if let Some(ask) = ask(facts, policy, STEP) {
        return ask;
    }
    let patch = PatchBuilder::new(&claim.metadata).test_version().without_finalizers(&[&finalizer]);
    let patch = match &claim.metadata.deletion_timestamp {
        Some(_) => patch,
        None => without_marks(patch, &claim.metadata, policy),
    };
    match patch.build().map(Action::Patch) {
        Some(action) => {
            let object = tenant_claim_ref(facts);
            let why = "finalizer taken off the tenant's claim";
            Decision::write(STEP, Write { object, action, why })
        }
        None => Decision::done(STEP),
    }
}

/// A claim that was marked to be carried down is not any more; then nothing has to keep it off.
fn without_marks<'a>(
    patch: PatchBuilder<'a>,
    meta: &ObjectMeta,
    policy: &Policy,
) -> PatchBuilder<'a> {
    let names = &policy.names;
    if label(meta, &names.state()) != Some(SYNC) {
        return patch;
    }
    let patch = patch.without_label(&names.state());
    if policy.tenant.select.labeled { patch.without_annotation(&names.deletion()) } else { patch }
}

/// What holds the claim's host side, as far as known; see [`ask`] for how far that is.
fn held_by(facts: &ClaimFacts, policy: &Policy) -> Option<Reason> {
    let key = policy.names.soft_finalizer();
    let of = |meta: Option<&ObjectMeta>| {
        let text = meta.and_then(|meta| annotation(meta, &key));
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let on_claim = of(facts.live_tenant_claim().map(|claim| &claim.metadata));
    let on_namespace = of(facts.live_tenant_namespace().map(|namespace| &namespace.metadata));
    let (code, who) = match (on_claim, on_namespace) {
        (None, None) => return None,
        (Some(claim), None) => ("HeldByClaim", format!("of the claim ({claim})")),
        (None, Some(namespace)) => ("HeldByNamespace", format!("of its namespace ({namespace})")),
        (Some(claim), Some(namespace)) => {
            ("HeldByClaim", format!("of the claim ({claim}) and of its namespace ({namespace})"))
        }
    };
    Some(Reason::new(code, format!("a soft finalizer {who} holds the claim's volume")))
}

/// Asks both sides for what a deletion rests on; `None` if they were asked just now.
fn ask(facts: &ClaimFacts, policy: &Policy, step: Step) -> Option<Decision> {
    let asks = vec![
        host_claim_ref(facts, policy),
        ObjectRef::cluster(Side::Tenant, Kind::Namespace, &facts.key.namespace),
        tenant_claim_ref(facts),
    ];
    (!facts.knows(&asks)).then(|| Decision::ask(step, asks))
}
