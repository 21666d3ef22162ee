//! What the host's controllers say, in Events on the host claim, about why a claim is not bound yet,
//! in the tenant's words.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};

use super::{claim_phase, class_name, ownership::is_made_for, tell, volume_name};
use crate::{fact::ClaimFacts, policy::Policy};

/// Reasons of the Events that are passed on: those of kube-controller-manager's volume binder and of
/// the external provisioners. What else somebody says on the host is not the tenant's to read.
const EXPLAINING: [&str; 9] = [
    "ClaimMisbound",
    "ExternalProvisioning",
    "FailedBinding",
    "Provisioning",
    "ProvisioningCleanupFailed",
    "ProvisioningFailed",
    "VolumeMismatch",
    "WaitForFirstConsumer",
    "WaitForPodScheduled",
];
/// How long a warning counts more than what is said after it: a provisioner says before each of its
/// attempts that it makes one.
const WARNED: SignedDuration = SignedDuration::from_mins(10);
/// The longest text that is passed on, in characters; the API server allows 1024 bytes in a note.
const LONGEST: usize = 250;

/// What the host says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Whether it is a warning.
    pub(super) warning: bool,
    /// The reason of its Event.
    pub(super) reason: String,
    /// Its text, without names of the host.
    pub(super) note: String,
}

/// Whether [`status::decide`](super::status::decide) needs what the host's Events say: the claim has
/// waited for the host for long enough to be told so.
pub fn needed(facts: &ClaimFacts, policy: &Policy, now: Timestamp) -> bool {
    let waits = |claim: &PersistentVolumeClaim| {
        let waited = tell::waited(facts, claim, now);
        waits_for_host(facts, claim, policy) && waited >= tell::PATIENCE
    };
    !policy.tenant.paused && facts.live_tenant_claim().is_some_and(waits)
}

/// Whether nobody but the host can get on with the claim.
pub(super) fn waits_for_host(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> bool {
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let pending = |host: &PersistentVolumeClaim| {
        is_made_for(host, uid, policy) && claim_phase(host) == "Pending"
    };
    !tell::leaves(claim, policy)
        && claim_phase(claim) == "Pending"
        && facts.live_host_claim().is_some_and(pending)
}

/// The latest warning, or else what was said last.
pub(super) fn explanation(
    facts: &ClaimFacts,
    claim: &PersistentVolumeClaim,
    now: Timestamp,
) -> Option<Said> {
    let host = facts.live_host_claim()?;
    let of_claim = |event: &&Event| {
        event.involved_object.uid.is_some() && event.involved_object.uid == host.metadata.uid
    };
    let explains =
        |event: &&Event| event.reason.as_deref().is_some_and(|reason| EXPLAINING.contains(&reason));
    let order = |event: &&Event| {
        let warns = is_warning(event) && now.duration_since(time(event)) < WARNED;
        (warns, time(event))
    };
    let event = facts.host_events.iter().filter(of_claim).filter(explains).max_by_key(order)?;
    Some(Said {
        warning: is_warning(event),
        reason: event.reason.clone().unwrap_or_default(),
        note: in_tenants_words(event.message.as_deref().unwrap_or_default(), claim, host),
    })
}

fn is_warning(event: &Event) -> bool {
    event.type_.as_deref() == Some("Warning")
}

/// When it was said last.
fn time(event: &Event) -> Timestamp {
    let repeated = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let times = [
        repeated.map(|time| time.0),
        event.last_timestamp.as_ref().map(|time| time.0),
        event.event_time.as_ref().map(|time| time.0),
        event.metadata.creation_timestamp.as_ref().map(|time| time.0),
    ];
    times.into_iter().flatten().max().unwrap_or_default()
}

/// The host's namespace, volume and class by their names in the tenant.
fn in_tenants_words(
    text: &str,
    claim: &PersistentVolumeClaim,
    host: &PersistentVolumeClaim,
) -> String {
    let namespace = host.metadata.namespace.as_deref().unwrap_or_default();
    let ours = claim.metadata.namespace.as_deref().unwrap_or_default();
    let mut text = text.to_owned();
    if !namespace.is_empty() {
        text = text.replace(namespace, ours);
    }
    if let (Some(on_host), Some(named)) = (class_name(host), class_name(claim)) {
        text = text.replace(&format!("{on_host:?}"), &format!("{named:?}"));
    }
    if let Some(volume) = volume_name(host).filter(|_| volume_name(claim).is_none()) {
        text = text.replace(volume, "a volume");
    }
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::fixtures::{Actor, Stage, Thing, World, text};
    use crate::names::STORAGE_CONDITION;
    use crate::write::Kind;
    use serde_json::{Value, json};

    /// A claim that the host has not bound for a minute, and what the host said this long ago.
    fn waiting(said: &[(&str, &str, &str, i64)]) -> World {
        let mut world = World::at(Stage::CarriedDown);
        world.pass(60);
        let uid = text(world.see(Thing::HostClaim), "/metadata/uid").to_owned();
        let events = said.iter().map(|(type_, reason, message, ago)| {
            let when = world.now - SignedDuration::from_secs(*ago);
            serde_json::from_value(json!({
                "metadata": {}, "type": type_, "reason": reason, "message": message,
                "involvedObject": {"uid": uid}, "lastTimestamp": when,
            }))
        });
        world.host_events = events.collect::<Result<_, _>>().unwrap();
        world
    }

    fn condition(world: &World) -> Value {
        let list = &world.see(Thing::TenantClaim)["status"]["conditions"];
        let ours = |condition: &&Value| condition["type"] == STORAGE_CONDITION;
        list.as_array().and_then(|list| list.iter().find(ours)).cloned().unwrap_or_default()
    }

    #[test]
    fn the_host_explains_in_the_condition_and_in_one_event() {
        let mut world = waiting(&[("Normal", "ExternalProvisioning", "waits for example.com", 5)]);
        assert!(needed(&world.facts(), &world.policy, world.now));
        let decision = world.decide(Actor::Status);
        world.apply_all(&decision);
        let message = condition(&world)["message"].as_str().unwrap().to_owned();
        let said = "the host says: ExternalProvisioning: waits for example.com";
        assert!(message.ends_with(said), "{message}");
        let events: Vec<_> = world.tenant.list(Kind::Event).cloned().collect();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["type"], "Normal");
        assert_eq!(events[0]["reason"], "ExternalProvisioning");
        assert_eq!(events[0]["note"], "waits for example.com");
        let decision = world.decide(Actor::Status);
        assert_eq!(decision.writes, [], "it is told once");
        assert_eq!(decision.verdict.recheck(), Some(SignedDuration::from_secs(30)));
        world.pass(600);
        let recheck = world.decide(Actor::Status).verdict.recheck();
        assert_eq!(recheck, Some(SignedDuration::from_secs(330)), "less and less often");
        world.pass(7 * 24 * 3600);
        let recheck = world.decide(Actor::Status).verdict.recheck();
        assert_eq!(recheck, Some(SignedDuration::from_mins(10)));
    }

    #[test]
    fn a_warning_counts_more_for_a_while_and_others_are_not_passed_on() {
        let failed = ("Warning", "ProvisioningFailed", "no room", 20);
        let tries = ("Normal", "Provisioning", "tries", 1);
        let secret = ("Warning", "AuditFinding", "of the host's own", 0);
        for (said, expected) in [
            (vec![tries, failed, secret], Some("ProvisioningFailed")),
            (vec![("Warning", "ProvisioningFailed", "", 700), tries], Some("Provisioning")),
            (vec![secret], None),
            (vec![], None),
        ] {
            let world = waiting(&said);
            let facts = world.facts();
            let claim = facts.live_tenant_claim().unwrap();
            let found = explanation(&facts, claim, world.now).map(|said| said.reason);
            assert_eq!(found.as_deref(), expected);
        }
        let mut world = waiting(&[failed]);
        world.host_events[0].involved_object.uid = Some("another".to_owned());
        let facts = world.facts();
        assert_eq!(explanation(&facts, facts.live_tenant_claim().unwrap(), world.now), None);
    }

    #[test]
    fn names_of_the_host_are_not_passed_on() {
        let mut world = waiting(&[]);
        world.merge(Thing::HostClaim, &json!({"spec": {"storageClassName": "ssd"}}));
        world.merge(Thing::TenantClaim, &json!({"spec": {"storageClassName": "fast"}}));
        let namespace = world.host_namespace();
        let facts = world.facts();
        let (claim, host) = (facts.live_tenant_claim().unwrap(), facts.live_host_claim().unwrap());
        let said = format!("claim \"{namespace}/data\": class \"ssd\" in {namespace}");
        let told = in_tenants_words(&said, claim, host);
        assert_eq!(told, "claim \"team-a/data\": class \"fast\" in team-a");
        assert_eq!(in_tenants_words(&"x".repeat(5000), claim, host).len(), LONGEST);
    }

    #[test]
    fn they_are_read_only_while_the_claim_waits_for_the_host() {
        let asks = |world: &World| needed(&world.facts(), &world.policy, world.now);
        let mut world = World::at(Stage::CarriedDown);
        world.pass(9);
        assert!(!asks(&world), "it is young");
        world.pass(1);
        assert!(asks(&world));
        world.policy.tenant.paused = true;
        assert!(!asks(&world));
        world.policy.tenant.paused = false;
        world.begin_delete(Thing::TenantClaim);
        assert!(!asks(&world), "it leaves");
        for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::CarriedDown) {
            let mut world = World::at(stage);
            world.pass(3600);
            assert!(!asks(&world), "{stage:?}");
        }
    }
}
