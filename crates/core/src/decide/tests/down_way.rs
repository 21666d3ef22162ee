//! What stands in a claim's way on the host, and what becomes of a host claim that goes.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    decide::fixtures::{
        Actor, CLAIM, NAMESPACE, Stage, Thing, VOLUME, World, assert_done, assert_refused,
        assert_waits, created, entry, only_write, text,
    },
    names::TENANT_CLAIM_UID,
    write::Kind,
};

fn host_namespace(world: &World, annotations: &Value) -> Value {
    let name = world.host_namespace();
    json!({"kind": "Namespace", "metadata": {"name": name, "annotations": annotations}})
}

#[test]
fn a_host_namespace_that_is_not_this_ones_is_never_used() {
    let finalized = World::at(Stage::Finalized);
    let locator = finalized.policy.names.locator();
    let mut other_target = finalized.policy.locator(NAMESPACE);
    other_target.target.uid = "another".to_owned();
    let mut other_tenant = finalized.policy.locator(NAMESPACE);
    other_tenant.cluster = "rival".to_owned();
    for annotations in [
        json!({}),
        json!({(locator.clone()): "garbage"}),
        json!({(locator.clone()): finalized.policy.locator("team-b").to_json()}),
        json!({(locator.clone()): finalized.policy.locator("").to_json()}),
        json!({(locator.clone()): other_target.to_json()}),
        json!({(locator.clone()): other_tenant.to_json()}),
    ] {
        let mut world = finalized.clone();
        let namespace = host_namespace(&world, &annotations);
        world.create(Thing::HostNamespace, namespace);
        let decision = world.decide(Actor::Down);
        assert_refused(&decision, "NamespaceCollision");
        assert_eq!(decision.verdict.recheck(), Some(SignedDuration::from_secs(60)));
    }
}

#[test]
fn a_host_namespace_of_ours_is_put_right_and_one_that_is_going_is_waited_for() {
    let mut world = World::at(Stage::Finalized);
    let names = world.policy.names.clone();
    let locator = world.policy.locator(NAMESPACE).to_json();
    let namespace = host_namespace(&world, &json!({(names.locator()): locator}));
    world.create(Thing::HostNamespace, namespace);
    assert!(world.step(Actor::Down));
    assert_eq!(world.written.last(), Some(&"labels of the host namespace"));
    assert_eq!(entry(world.see(Thing::HostNamespace), "labels", &names.cluster()), names.key());
    assert!(world.step(Actor::Down));
    assert_eq!(world.written.last(), Some(&"host claim"));

    let mut world = World::at(Stage::CarriedDown);
    let patch = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    world.merge(Thing::HostNamespace, &patch);
    let decision = world.decide(Actor::Down);
    assert_waits(&decision, "NamespaceTerminating");
}

#[test]
fn a_claim_of_a_stranger_in_our_namespace_is_never_touched() {
    let mut world = World::at(Stage::WithNamespace);
    let meta = json!({"name": CLAIM, "namespace": world.host_namespace(),
                      "annotations": {(TENANT_CLAIM_UID): world.uid()}});
    world.create(Thing::HostClaim, json!({"kind": "PersistentVolumeClaim", "metadata": meta}));
    let decision = world.decide(Actor::Down);
    assert_refused(&decision, "ClaimCollision");
    assert_eq!(decision.verdict.recheck(), Some(SignedDuration::from_secs(60)));
    // One that another syncer of ours carried down is ours, but not this service's to change.
    let labels = json!({(world.policy.names.cluster()): world.key()});
    let patch = json!({"metadata": {"labels": labels, "annotations": {(TENANT_CLAIM_UID): null}}});
    world.merge(Thing::HostClaim, &patch);
    assert_done(&world.decide(Actor::Down));
}

#[test]
fn of_a_claim_made_again_the_host_claim_of_its_forerunner_goes_first() {
    let mut world = World::at(Stage::Bound);
    world.merge(Thing::HostClaim, &json!({"metadata": {"finalizers": ["a/b"]}}));
    world.make_claim_again();
    assert!(world.step(Actor::Down));
    assert_eq!(world.written.last(), Some(&"host claim deleted"));
    assert_waits(&world.decide(Actor::Down), "HostClaimTerminating");
    for actor in [Actor::Transform, Actor::Upsync, Actor::Status] {
        assert!(world.decide(actor).writes.is_empty(), "{actor:?}");
    }
    world.delete(Thing::HostClaim);
    assert!(world.step(Actor::Down), "the finalizer");
    let decision = world.decide(Actor::Down);
    let host = created(only_write(&decision));
    assert_eq!(entry(host, "annotations", TENANT_CLAIM_UID), world.uid());
}

#[test]
fn a_host_claim_that_goes_is_made_again_only_if_it_was_never_bound() {
    let mut world = World::at(Stage::CarriedDown);
    world.delete(Thing::HostClaim);
    assert!(world.step(Actor::Down));
    assert_eq!(world.written.last(), Some(&"host claim"));
    for stage in Stage::ALL.into_iter().filter(|stage| *stage >= Stage::HostBound) {
        let mut world = World::at(stage);
        world.delete(Thing::HostClaim);
        println!("{stage:?}");
        assert_refused(&world.decide(Actor::Down), "HostClaimGone");
    }
}

#[test]
fn a_host_claim_that_is_not_seen_is_not_gone() {
    let world = World::at(Stage::Bound);
    let mut facts = world.facts();
    facts.host_claim = None;
    assert_done(&world.decide_on(Actor::Down, &facts));
    // Nothing of the host's volumes is known, as while a stream is filled again: still no refusal.
    facts.host_volumes.clear();
    assert_done(&world.decide_on(Actor::Down, &facts));
    let linked = World::at(Stage::Linked);
    let mut facts = linked.facts();
    facts.host_volumes.clear();
    assert_done(&linked.decide_on(Actor::Down, &facts));
}

#[test]
fn a_claim_that_names_a_volume_is_never_given_an_empty_one() {
    // It has its volume's name, but not its status yet, and nothing tells of its host claim.
    let world = World::at(Stage::Linked);
    let mut facts = world.facts();
    facts.host_claim = None;
    let decision = world.decide_on(Actor::Down, &facts);
    let host = created(only_write(&decision));
    assert_eq!(text(host, "/spec/volumeName"), VOLUME, "bound to its own volume or to none");
    // The name of a volume of another tenant does not help.
    let mut world = World::at(Stage::Linked);
    let mut foreign = world.policy.locator("");
    foreign.cluster = "rival".to_owned();
    let annotations = json!({(world.policy.names.locator()): foreign.to_json()});
    world.merge(Thing::HostVolume, &json!({"metadata": {"annotations": annotations}}));
    let mut facts = world.facts();
    facts.host_claim = None;
    assert_refused(&world.decide_on(Actor::Down, &facts), "VolumeNameRefused");
}

#[test]
fn a_namespace_or_claim_that_is_there_unseen_is_not_made_twice() {
    for stage in [Stage::WithNamespace, Stage::CarriedDown] {
        let mut world = World::at(stage);
        let facts = match stage {
            Stage::WithNamespace => World::at(Stage::Finalized).facts(),
            _ => World::at(Stage::WithNamespace).facts(),
        };
        let decision = world.decide_on(Actor::Down, &facts);
        let refusal = world.apply(only_write(&decision)).unwrap_err();
        assert!(matches!(refusal, crate::decide::fixtures::Refusal::Exists), "{refusal:?}");
        assert!(world.host.list(Kind::Claim).count() <= 1);
    }
}

#[test]
fn a_volume_that_a_carried_claim_names_later_is_not_the_downsyncers_to_judge() {
    let mut world = World::at(Stage::CarriedDown);
    let bound = json!({"spec": {"volumeName": "own"}, "status": {"phase": "Bound"}});
    world.merge(Thing::TenantClaim, &bound);
    assert_done(&world.decide(Actor::Down));
}
