//! What must always hold (design section 5), as far as it speaks of one tenant.

use carrick_core::{
    Action, Facet, Kind, Side, Write, claim_ref, names::TENANT_CLAIM_UID, policy::Binder,
};
use serde_json::Value;
use stateright::{Model as _, Property};

use crate::{
    api::{entry, has_finalizer, is_going, text},
    world::{State, World},
};

/// What is decided and written keeps rules 1 to 7.
pub const WRITES: &str = "every write keeps the rules";
/// Rule 8.
pub const REST: &str = "at rest both sides agree";
/// That there is a path at all on which something happens.
pub const BOUND: &str = "a claim is bound on both sides";

/// Every write keeps the rules, and at rest both sides agree.
pub(crate) fn properties() -> Vec<Property<World>> {
    vec![
        Property::always(WRITES, |_, state: &State| state.broke.is_none()),
        Property::always(REST, |world: &World, state: &State| {
            !is_at_rest(world, state) || disagreement(world, state).is_none()
        }),
        Property::sometimes(BOUND, |_, state: &State| {
            let bound = |facet| {
                state.live.get(facet).is_some_and(|claim| text(claim, "/status/phase") == "Bound")
            };
            bound(&Facet::TenantClaim) && bound(&Facet::HostClaim)
        }),
    ]
}

/// The rule that a state's last step broke.
pub fn broken_rule(state: &State) -> Option<&'static str> {
    state.broke
}

/// The host has bound a claim.
pub(crate) fn bound(state: &mut State) {
    let Some(host) = state.live.get(&Facet::HostClaim) else { return };
    let uid = entry(host, "annotations", TENANT_CLAIM_UID).to_owned();
    let volume = text(host, "/spec/volumeName").to_owned();
    state.past.bound.insert(uid.clone());
    state.past.volumes.insert((uid, volume));
}

/// The rules of decisions: a delete on the host rests on what the tenant says at that moment, and
/// what is known to have been bound is not carried down again.
pub(crate) fn decided(world: &World, state: &mut State, writes: &[Write]) {
    let created = writes.iter().find_map(|write| match &write.action {
        Action::Create(claim) if write.object.facet() == Some(Facet::HostClaim) => Some(claim),
        _ => None,
    });
    if created.is_some_and(|claim| was_known_bound(state, claim)) {
        state.broke = Some("7: a second host claim for a claim that was bound");
        return;
    }
    let deletes = |write: &&Write| {
        write.object.side == Side::Host && matches!(write.action, Action::Delete { .. })
    };
    if writes.iter().find(deletes).is_none() {
        return;
    }
    let names = &world.policy.names;
    let held = |facet: &Facet| {
        state
            .live
            .get(facet)
            .is_some_and(|object| !entry(object, "annotations", &names.soft_finalizer()).is_empty())
    };
    if held(&Facet::TenantClaim) || held(&Facet::TenantNamespace) {
        state.broke = Some("3: a delete on the host while a soft finalizer is set");
        return;
    }
    let host = state.live.get(&Facet::HostClaim);
    let made_for = host.map_or("", |host| entry(host, "annotations", TENANT_CLAIM_UID));
    let claim = state.live.get(&Facet::TenantClaim);
    let stays = claim.is_some_and(|claim| {
        text(claim, "/metadata/uid") == made_for
            && !is_going(claim)
            && entry(claim, "annotations", &names.deletion()).is_empty()
    });
    if stays {
        state.broke = Some("4: a delete on the host of a claim that stays");
    }
}

/// Whether what is published tells that the claim that a new host claim is for was bound once.
fn was_known_bound(state: &State, new: &Value) -> bool {
    let uid = entry(new, "annotations", TENANT_CLAIM_UID);
    let seen = |facet| state.seen.0.get(facet).map(|version| &version.object.value);
    let claim = seen(&Facet::TenantClaim).filter(|claim| text(claim, "/metadata/uid") == uid);
    let host = seen(&Facet::HostClaim);
    let host = host.filter(|host| entry(host, "annotations", TENANT_CLAIM_UID) == uid);
    claim.is_some_and(|claim| matches!(text(claim, "/status/phase"), "Bound" | "Lost"))
        || host.is_some_and(|host| !text(host, "/spec/volumeName").is_empty())
}

/// The rules of single writes.
pub(crate) fn written(world: &World, state: &mut State, write: &Write, before: Option<&Value>) {
    let Some(facet) = write.object.facet() else { return };
    remember(world, state, &facet);
    let after = state.live.get(&facet);
    state.broke = match (write.object.side, write.object.kind) {
        (Side::Tenant, Kind::Claim) => after.and_then(|after| tenant_claim(state, before, after)),
        (Side::Tenant, Kind::Volume) => match (before, after) {
            (None, Some(after)) => carried_up(state, after),
            _ => None,
        },
        (Side::Host, Kind::Claim) => host_claim(world, before),
        _ => None,
    };
}

/// Keeps what rules speak of later.
fn remember(world: &World, state: &mut State, facet: &Facet) {
    let Some(object) = state.live.get(facet) else { return };
    match facet {
        Facet::TenantVolume(_) => {
            let uid = text(object, "/spec/claimRef/uid").to_owned();
            state.past.carried_up.insert(uid);
        }
        Facet::HostVolume(name) => {
            let diff = entry(object, "annotations", &world.policy.names.diff());
            let marked = claim_ref::parse_diff(diff).ok().and_then(|reference| reference.uid);
            state.past.marked.extend(marked.map(|uid| (name.clone(), uid)));
        }
        _ => {}
    }
}

fn tenant_claim(state: &State, before: Option<&Value>, after: &Value) -> Option<&'static str> {
    let before = before?;
    let uid = text(after, "/metadata/uid").to_owned();
    let became = |pointer: &str| text(before, pointer) != text(after, pointer);
    if became("/status/phase")
        && text(after, "/status/phase") == "Bound"
        && !(state.past.bound.contains(&uid) && state.past.carried_up.contains(&uid))
    {
        return Some("1: Bound without a bound host claim and a volume");
    }
    let volume = text(after, "/spec/volumeName").to_owned();
    if became("/spec/volumeName") && !state.past.volumes.contains(&(uid, volume)) {
        return Some("2: a volume that is not the host claim's is named");
    }
    None
}

fn carried_up(state: &State, after: &Value) -> Option<&'static str> {
    let name = text(after, "/metadata/name").to_owned();
    let uid = text(after, "/spec/claimRef/uid").to_owned();
    let marked = state.past.marked.contains(&(name, uid));
    (!marked).then_some("6: a volume that was not marked for the claim is carried up")
}

fn host_claim(world: &World, before: Option<&Value>) -> Option<&'static str> {
    let names = &world.policy.names;
    let ours = |claim: &Value| entry(claim, "labels", &names.cluster()) == names.key();
    before.is_some_and(|before| !ours(before)).then_some("5: a stranger's claim is written")
}

/// Whether nobody but a person can do anything any more.
fn is_at_rest(world: &World, state: &State) -> bool {
    if !state.pending.is_empty() || state.live != state.seen || state.broke.is_some() {
        return false;
    }
    let mut acts = Vec::new();
    world.machines(state, &mut acts);
    acts.into_iter().all(|act| world.next_state(state, act).is_none())
}

/// Rule 8: what the two sides do not agree on.
fn disagreement(world: &World, state: &State) -> Option<&'static str> {
    let names = &world.policy.names;
    let soft = |facet: &Facet| {
        state
            .live
            .get(facet)
            .is_some_and(|object| !entry(object, "annotations", &names.soft_finalizer()).is_empty())
    };
    let held = soft(&Facet::TenantClaim) || soft(&Facet::TenantNamespace);
    let ours = |claim: &&Value| entry(claim, "labels", &names.cluster()) == names.key();
    let host = state.live.get(&Facet::HostClaim);
    let stranger = host.is_some_and(|host| !ours(&host));
    let host = host.filter(ours);
    for (facet, version) in state.live.0.iter().filter(|(_, version)| !version.deleted) {
        if let Facet::TenantVolume(name) = facet
            && state.live.get(&Facet::HostVolume(name.clone())).is_none()
            && has_finalizer(&version.object.value, &names.finalizer())
        {
            return Some("a copy of a volume that is gone");
        }
    }
    let Some(claim) = state.live.get(&Facet::TenantClaim) else {
        return (host.is_some() && !held).then_some("a host claim without a claim");
    };
    let uid = text(claim, "/metadata/uid");
    let phase = text(claim, "/status/phase");
    if is_going(claim) {
        return (!held).then_some("a claim that nobody holds does not go");
    }
    let its = host.filter(|host| entry(host, "annotations", TENANT_CLAIM_UID) == uid);
    if !entry(claim, "annotations", &names.deletion()).is_empty() {
        return (its.is_some() && !held).then_some("a claim that is taken off is on the host");
    }
    match its {
        Some(host) if text(host, "/status/phase") == phase => {
            let delayed = !entry(host, "annotations", &names.delay()).is_empty();
            let linked = text(claim, "/spec/volumeName") == text(host, "/spec/volumeName");
            match phase {
                "Bound" if delayed || !linked => Some("bound, and not linked"),
                _ => None,
            }
        }
        // A binder in the tenant says `Pending` as long as no volume has come.
        Some(_) if world.policy.tenant.binder == Binder::Tenant && phase == "Pending" => None,
        Some(_) => Some("the two phases differ"),
        None if stranger || held => None,
        None if state.past.bound.contains(uid) => (phase == "Bound").then_some("bound to nothing"),
        None => Some("a claim is not carried down"),
    }
}
