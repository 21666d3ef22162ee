//! What a service decides from what is published, and rules broken on purpose.

use carrick_core::{
    Action, ClaimFacts, ClaimKey, Decision, Facet, Policy, Write,
    decide::{down, status, transform, upsync},
    names::TENANT_CLAIM_UID,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    api::text,
    world::{CLAIM, NAMESPACE, NOW, State, TENANT},
};

/// A service that decides about claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// The downsyncer.
    Down,
    /// The storage-transformer.
    Transform,
    /// The upsyncer.
    Upsync,
    /// The status-syncer.
    Status,
}

impl Service {
    /// All of them, in the order of a claim's way.
    pub const ALL: [Self; 4] = [Self::Down, Self::Transform, Self::Upsync, Self::Status];
}

/// A rule that is broken on purpose, for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// `Bound` as soon as the host is, without a volume in the tenant.
    BoundWithoutVolume,
    /// Another volume's name is written to the claim.
    OtherVolumeNamed,
    /// The soft finalizer of the namespace holds nothing.
    NamespaceHoldsNothing,
    /// What is published counts as what the tenant says.
    NobodyIsAsked,
    /// A tombstone alone deletes the host side.
    TombstonesAreTrusted,
    /// Whatever host claim has the name is ours.
    StrangersAreOurs,
    /// A volume is carried up before it is marked.
    UnmarkedIsCarriedUp,
    /// A claim that was bound is carried down again.
    LostIsMadeAgain,
    /// The finalizer stays on a claim that is deleted.
    FinalizerStays,
    /// The tenant sees `Bound` for ever.
    LostIsNotTold,
}

/// The writes that a service decides on now, with what it asks for answered.
pub(crate) fn decide(
    state: &State,
    service: Service,
    policy: &Policy,
    broken: Option<Broken>,
) -> Vec<Write> {
    let mut facts = facts(state);
    let now: Timestamp = NOW.parse().unwrap_or_default();
    for _ in 0..4 {
        let mut seen = facts.clone();
        match broken {
            // Only where it can do harm: the others see a stranger as they should.
            Some(Broken::StrangersAreOurs) if service != Service::Down => {}
            Some(broken) => distort(&mut seen, policy, broken),
            None => {}
        }
        let decision = match service {
            Service::Down => down::decide(&seen, policy, now),
            Service::Transform => transform::decide(&seen, policy, now),
            Service::Upsync => upsync::decide(&seen, policy, now),
            Service::Status => status::decide(&seen, policy, now),
        };
        if decision.asks.is_empty() {
            return writes(decision, state, broken);
        }
        for object in &decision.asks {
            if let Some(facet) = object.facet() {
                answer(&mut facts, state, &facet, broken);
            }
        }
    }
    Vec::new()
}

/// What is published.
fn facts(state: &State) -> ClaimFacts {
    let mut facts = ClaimFacts::new(ClaimKey::new(TENANT, NAMESPACE, CLAIM));
    for (facet, version) in &state.seen.0 {
        let taken = facts.insert(facet, version.deleted, &version.object.value);
        taken.expect("the model's objects are objects");
    }
    facts
}

fn answer(facts: &mut ClaimFacts, state: &State, facet: &Facet, broken: Option<Broken>) {
    let trusted = match broken {
        Some(Broken::NobodyIsAsked) => true,
        Some(Broken::TombstonesAreTrusted) => *facet == Facet::TenantClaim,
        Some(Broken::NamespaceHoldsNothing) if *facet == Facet::TenantNamespace => {
            facts.tenant_namespace = None;
            true
        }
        _ => false,
    };
    if trusted {
        facts.confirmed.insert(facet.clone());
    } else {
        let taken = facts.confirm(facet, state.live.get(facet));
        taken.expect("the model's objects are objects");
    }
}

/// What a broken service sees.
fn distort(facts: &mut ClaimFacts, policy: &Policy, broken: Broken) {
    let key = policy.names.key().to_owned();
    match broken {
        Broken::StrangersAreOurs => {
            let uid = facts.tenant_claim.as_ref().map(|fact| fact.uid().to_owned());
            if let (Some(host), Some(uid)) = (&mut facts.host_claim, uid) {
                let meta = &mut host.object.metadata;
                meta.labels.get_or_insert_default().insert(policy.names.cluster(), key);
                let annotations = meta.annotations.get_or_insert_default();
                annotations.entry(TENANT_CLAIM_UID.to_owned()).or_insert(uid);
            }
        }
        Broken::UnmarkedIsCarriedUp => {
            let diff = facts.live_tenant_claim().map(carrick_core::claim_ref::diff_for);
            for (volume, diff) in facts.host_volumes.values_mut().zip(diff) {
                let meta = &mut volume.object.metadata;
                let labels = meta.labels.get_or_insert_default();
                labels.insert(policy.names.cluster(), key.clone());
                labels.insert(policy.names.state(), "Upsync".to_owned());
                let annotations = meta.annotations.get_or_insert_default();
                annotations.insert(policy.names.locator(), policy.locator("").to_json());
                annotations.insert(policy.names.diff(), diff);
            }
        }
        Broken::LostIsMadeAgain if facts.live_host_claim().is_none() => {
            facts.host_claim = None;
            if let Some(claim) = &mut facts.tenant_claim {
                claim.object.status = None;
                if let Some(spec) = &mut claim.object.spec {
                    spec.volume_name = None;
                }
            }
        }
        _ => {}
    }
}

/// The writes of a decision; Events leave nothing behind in the model.
fn writes(decision: Decision, state: &State, broken: Option<Broken>) -> Vec<Write> {
    let known = |write: &Write| write.object.facet().is_some();
    let mut writes: Vec<_> = decision.writes.into_iter().filter(known).collect();
    match broken {
        Some(Broken::FinalizerStays) => {
            writes.retain(|write| !write.why.contains("taken off the tenant"));
        }
        Some(Broken::LostIsNotTold) => writes.retain(|write| write.why != "host's phase"),
        Some(Broken::OtherVolumeNamed) => {
            for write in writes.iter_mut().filter(|write| write.why == "volume name") {
                rename(write);
            }
        }
        Some(Broken::BoundWithoutVolume) if writes.is_empty() => {
            let host = state.live.get(&Facet::HostClaim);
            let claim = state.live.get(&Facet::TenantClaim);
            let bound = |value: &Value| text(value, "/status/phase") == "Bound";
            if host.is_some_and(bound) && claim.is_some_and(|claim| !bound(claim)) {
                writes.push(early());
            }
        }
        _ => {}
    }
    writes
}

fn rename(write: &mut Write) {
    if let Action::Patch(patch) = &mut write.action
        && let Some(json_patch::PatchOperation::Add(add)) = patch.0.last_mut()
    {
        add.value = json!("another");
    }
}

fn early() -> Write {
    let bound = json!([{"op": "replace", "path": "/status/phase", "value": "Bound"}]);
    Write {
        object: carrick_core::ObjectRef::namespaced(
            carrick_core::Side::Tenant,
            carrick_core::Kind::Claim,
            NAMESPACE,
            CLAIM,
        ),
        action: Action::PatchStatus(serde_json::from_value(bound).expect("a patch")),
        why: "claim status",
    }
}
