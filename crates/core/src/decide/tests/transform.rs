//! The host volume is marked for this tenant's claim, and for nobody else's.

use serde_json::json;

use crate::{
    claim_ref,
    decide::fixtures::{
        Actor, Stage, Thing, World, assert_done, assert_ignored, assert_refused, assert_waits,
        entry, only_write,
    },
    names::TENANT_CLAIM_UID,
    write::Action,
};

/// A pending host claim that another syncer carried down: without the uid, without the mark.
fn unrecorded() -> World {
    let mut world = World::at(Stage::CarriedDown);
    let annotations = json!({(TENANT_CLAIM_UID): null, (world.policy.names.delay()): null});
    world.merge(Thing::HostClaim, &json!({"metadata": {"annotations": annotations}}));
    world
}

#[test]
fn a_pending_claim_is_waited_for_and_told_by_its_own_words() {
    let decision = World::at(Stage::CarriedDown).decide(Actor::Transform);
    assert_waits(&decision, "WaitingForHost");
    assert_ignored(&World::at(Stage::WithNamespace).decide(Actor::Transform));
}

#[test]
fn a_claim_that_somebody_else_carried_down_is_held_back_before_it_is_bound() {
    let mut world = unrecorded();
    assert!(world.step(Actor::Transform));
    assert_eq!(world.written.last(), Some(&"status held back"));
    let delay = world.policy.names.delay();
    assert_eq!(entry(world.see(Thing::HostClaim), "annotations", &delay), "true");
    assert_waits(&world.decide(Actor::Transform), "WaitingForHost");
    world.settle(&[Actor::HostBinder, Actor::Transform, Actor::Upsync, Actor::Status]);
    assert_eq!(entry(world.see(Thing::HostClaim), "annotations", &delay), "");
    assert_eq!(world.see(Thing::TenantClaim)["status"]["phase"], "Bound");
}

#[test]
fn the_mark_never_comes_back_once_there_is_a_volume() {
    let delay = World::new().policy.names.delay();
    let mut named_by_tenant = unrecorded();
    named_by_tenant.merge(Thing::TenantClaim, &json!({"spec": {"volumeName": "pv-data"}}));
    let mut named_by_host = unrecorded();
    named_by_host.merge(Thing::HostClaim, &json!({"spec": {"volumeName": "pv-data"}}));
    // Carried down by this installation, and released by hand.
    let mut ours = World::at(Stage::CarriedDown);
    ours.merge(Thing::HostClaim, &json!({"metadata": {"annotations": {(delay): null}}}));
    for world in [named_by_tenant, named_by_host, ours] {
        assert_waits(&world.decide(Actor::Transform), "WaitingForHost");
    }
    for stage in [Stage::Released, Stage::Linked, Stage::Bound] {
        assert_done(&World::at(stage).decide(Actor::Transform));
        assert!(
            !World::at(stage)
                .decide(Actor::Down)
                .writes
                .iter()
                .any(|write| { format!("{write:?}").contains("delaystatussyncing") })
        );
    }
    // On old facts the version test stops it.
    let mut world = unrecorded();
    let before = world.decide(Actor::Transform);
    world.bind_on_host();
    assert!(world.apply(only_write(&before)).is_err());
}

#[test]
fn a_volume_is_marked_once_and_not_again_for_another_version_of_the_claim() {
    let mut world = World::at(Stage::Transformed);
    let marked = world.see(Thing::HostVolume).clone();
    world.merge(Thing::TenantClaim, &json!({"metadata": {"labels": {"late": "too"}}}));
    assert_done(&world.decide(Actor::Transform));
    // A locator that means the same in other words stays too.
    let (names, target) = (world.policy.names.clone(), world.policy.target.clone());
    let locator = json!({
        "namespace": "", "cluster": "acme",
        "syncTarget": {"uid": target.uid, "name": target.name, "path": target.cluster},
    });
    let annotations = json!({(names.locator()): locator.to_string()});
    world.merge(Thing::HostVolume, &json!({"metadata": {"annotations": annotations}}));
    assert_done(&world.decide(Actor::Transform));
    // Each mark that goes is put back.
    for (map, key) in [
        ("labels", names.cluster()),
        ("labels", names.state()),
        ("annotations", names.locator()),
        ("annotations", names.diff()),
    ] {
        world.merge(Thing::HostVolume, &json!({"metadata": {(map): {(key.as_str()): null}}}));
        assert!(world.step(Actor::Transform), "{key}");
        let back = entry(world.see(Thing::HostVolume), map, &key);
        assert!(!back.is_empty(), "{key}");
        if key != names.diff() {
            assert_eq!(back, entry(&marked, map, &key));
        }
    }
}

#[test]
fn a_diff_for_another_claim_is_replaced_and_one_that_cant_be_read_too() {
    let world = World::at(Stage::Transformed);
    let key = world.policy.names.diff();
    let mut other = world.facts().live_tenant_claim().unwrap().clone();
    other.metadata.uid = Some("another".to_owned());
    for diff in [claim_ref::diff_for(&other), "garbage".to_owned(), "[]".to_owned()] {
        let mut world = world.clone();
        let annotations = json!({(key.as_str()): diff});
        world.merge(Thing::HostVolume, &json!({"metadata": {"annotations": annotations}}));
        assert!(world.step(Actor::Transform));
        let found = entry(world.see(Thing::HostVolume), "annotations", &key);
        assert_eq!(claim_ref::parse_diff(found).unwrap().uid, Some(world.uid()));
    }
}

#[test]
fn a_volume_that_carries_a_foreign_locator_is_refused() {
    let world = World::at(Stage::HostBound);
    let mut rival = world.policy.locator("");
    rival.cluster = "rival".to_owned();
    for locator in [rival.to_json(), world.policy.locator("team-a").to_json(), "{".to_owned()] {
        let mut world = world.clone();
        let annotations = json!({(world.policy.names.locator()): locator});
        world.merge(Thing::HostVolume, &json!({"metadata": {"annotations": annotations}}));
        assert_refused(&world.decide(Actor::Transform), "ForeignVolume");
    }
}

#[test]
fn it_waits_for_what_it_does_not_see_yet() {
    let world = World::at(Stage::HostBound);
    let mut facts = world.facts();
    facts.host_volumes.clear();
    assert_waits(&world.decide_on(Actor::Transform, &facts), "WaitingForVolume");
    let mut facts = world.facts();
    facts.tenant_claim = None;
    assert_waits(&world.decide_on(Actor::Transform, &facts), "WaitingForClaim");
    let mut stolen = world.clone();
    stolen.merge(Thing::HostVolume, &json!({"spec": {"claimRef": {"uid": "another"}}}));
    assert_waits(&stolen.decide(Actor::Transform), "WaitingForVolume");
    let mut unclaimed = world.clone();
    unclaimed.merge(Thing::HostVolume, &json!({"spec": {"claimRef": {"uid": null}}}));
    assert_waits(&unclaimed.decide(Actor::Transform), "WaitingForVolume");
    let mut again = world;
    again.make_claim_again();
    assert_waits(&again.decide(Actor::Transform), "OlderClaim");
}

#[test]
fn what_is_not_ours_and_what_is_lost_is_left_alone() {
    let mut stranger = World::at(Stage::HostBound);
    let labels = json!({(stranger.policy.names.cluster()): "another"});
    stranger.merge(Thing::HostClaim, &json!({"metadata": {"labels": labels}}));
    let mut elsewhere = World::at(Stage::HostBound);
    let annotations = json!({(elsewhere.policy.names.locator()): "garbage"});
    elsewhere.merge(Thing::HostNamespace, &json!({"metadata": {"annotations": annotations}}));
    let mut lost = World::at(Stage::Bound);
    lost.merge(Thing::HostClaim, &json!({"status": {"phase": "Lost"}}));
    for world in [stranger, elsewhere, lost] {
        assert_ignored(&world.decide(Actor::Transform));
    }
}

#[test]
fn of_two_sync_targets_only_one_takes_a_volume() {
    let mut world = World::at(Stage::HostBound);
    let decision = world.decide(Actor::Transform);
    let mut rival = world.policy.locator("");
    rival.cluster = "rival".to_owned();
    let annotations = json!({(world.policy.names.locator()): rival.to_json()});
    world.merge(Thing::HostVolume, &json!({"metadata": {"annotations": annotations}}));
    assert!(world.apply(only_write(&decision)).is_err(), "it was faster");
    assert_refused(&world.decide(Actor::Transform), "ForeignVolume");
}

#[test]
fn marks_are_written_only_while_the_volume_is_bound_to_this_claim() {
    let mut world = World::at(Stage::HostBound);
    let decision = world.decide(Actor::Transform);
    let write = only_write(&decision);
    assert!(matches!(&write.action, Action::Patch(_)));
    world.merge(Thing::HostVolume, &json!({"spec": {"claimRef": {"uid": "another"}}}));
    assert!(world.apply(write).is_err(), "its tests fail");
}
