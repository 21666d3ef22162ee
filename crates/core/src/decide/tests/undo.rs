//! How a claim's host side ends, and what holds it (kcp #1528).

use serde_json::{Value, json};

use crate::{
    decide::fixtures::{
        Actor, Stage, Thing, World, assert_done, assert_ignored, assert_refused, assert_waits,
        code, entry, has_finalizer, text,
    },
    names::{IN_USE, TENANT_CLAIM_UID},
    write::{Decision, Verdict},
};

/// A bound claim that its user deletes, and that no pod uses.
fn deleted() -> World {
    let mut world = World::at(Stage::Bound);
    delete_claim(&mut world);
    world
}

fn delete_claim(world: &mut World) {
    world.begin_delete(Thing::TenantClaim);
    let ours = world.policy.names.finalizer();
    world.merge(Thing::TenantClaim, &json!({"metadata": {"finalizers": [ours]}}));
}

fn annotate(world: &mut World, thing: Thing, key: &str, value: &Value) {
    world.merge(thing, &json!({"metadata": {"annotations": {(key): value}}}));
}

#[track_caller]
fn assert_held(decision: &Decision, expected: &str, by: &str) {
    assert_eq!((code(decision), decision.writes.len()), (expected, 0), "{decision:?}");
    match &decision.verdict {
        Verdict::Held(reason) => assert!(reason.message.contains(by), "{reason:?}"),
        other => panic!("not held: {other:?}"),
    }
}

#[test]
fn a_deleted_claim_takes_its_host_claim_with_it_and_then_goes() {
    let mut world = deleted();
    assert!(world.step(Actor::Down));
    assert!(world.get(Thing::HostClaim).is_none());
    assert!(world.step(Actor::Down));
    assert!(world.get(Thing::TenantClaim).is_none());
    let writes = world.written.len();
    assert_eq!(
        world.written[writes - 2..],
        ["host claim deleted", "finalizer taken off the tenant's claim"]
    );
    assert_ignored(&world.decide(Actor::Down));
}

#[test]
fn the_finalizer_stays_until_the_host_claim_is_really_gone() {
    let mut world = deleted();
    world.merge(Thing::HostClaim, &json!({"metadata": {"finalizers": [IN_USE]}}));
    assert!(world.step(Actor::Down));
    assert_waits(&world.decide(Actor::Down), "HostClaimTerminating");
    // Nothing is known of it: it is asked for.
    let mut facts = world.facts();
    facts.host_claim = None;
    assert_waits(&world.decide_on(Actor::Down, &facts), "HostClaimTerminating");
    world.delete(Thing::HostClaim);
    assert!(world.step(Actor::Down));
    assert!(world.get(Thing::TenantClaim).is_none());
}

#[test]
fn a_claim_that_never_came_down_is_left_alone_and_one_that_is_in_use_keeps_its_data() {
    let mut fresh = World::new();
    fresh.begin_delete(Thing::TenantClaim);
    assert_ignored(&fresh.decide(Actor::Down));
    let mut used = World::at(Stage::Bound);
    used.begin_delete(Thing::TenantClaim);
    assert_waits(&used.decide(Actor::Down), "InUse");
    let mut finalized = World::at(Stage::Finalized);
    delete_claim(&mut finalized);
    assert!(finalized.step(Actor::Down));
    assert!(finalized.get(Thing::TenantClaim).is_none());
}

#[test]
fn a_soft_finalizer_of_the_claim_or_its_namespace_holds_everything() {
    let both = [Thing::TenantClaim, Thing::TenantNamespace];
    for (things, expected, by) in [
        (&both[..1], "HeldByClaim", "of the claim (backup)"),
        (&both[1..], "HeldByNamespace", "of its namespace (backup)"),
        (&both[..], "HeldByClaim", "and of its namespace (backup)"),
    ] {
        for before in [true, false] {
            let mut world = if before { World::at(Stage::Bound) } else { deleted() };
            let soft = world.policy.names.soft_finalizer();
            for thing in things {
                annotate(&mut world, *thing, &soft, &json!("backup"));
            }
            if before {
                assert_done(&world.decide(Actor::Down));
                delete_claim(&mut world);
            }
            assert_held(&world.decide(Actor::Down), expected, by);
            // It is kept in step.
            world.merge(Thing::TenantClaim, &json!({"metadata": {"labels": {"late": "too"}}}));
            assert!(world.step(Actor::Down));
            assert_eq!(entry(world.see(Thing::HostClaim), "labels", "late"), "too");
            assert_held(&world.decide(Actor::Down), expected, by);
            // The old facts do not say that it is held: the tenant does.
            let mut facts = world.facts();
            facts.tenant_namespace = None;
            if let Some(claim) = &mut facts.tenant_claim {
                claim.object.metadata.annotations = None;
            }
            assert_held(&world.decide_on(Actor::Down, &facts), expected, by);
            // Cleared by "" and by going.
            for (thing, value) in things.iter().zip([json!(""), json!(null)]) {
                annotate(&mut world, *thing, &soft, &value);
            }
            assert!(world.step(Actor::Down), "{expected}");
            assert_eq!(world.written.last(), Some(&"host claim deleted"));
        }
    }
}

#[test]
fn the_soft_finalizer_of_another_sync_target_holds_nothing() {
    let mut world = deleted();
    let other = format!("{}x", world.policy.names.soft_finalizer());
    annotate(&mut world, Thing::TenantClaim, &other, &json!("backup"));
    annotate(&mut world, Thing::TenantNamespace, &other, &json!("backup"));
    assert!(world.step(Actor::Down));
    assert!(world.get(Thing::HostClaim).is_none());
}

#[test]
fn old_facts_delete_nothing() {
    let world = World::at(Stage::Bound);
    // A tombstone of a claim that is there; one of an older uid; nothing at all.
    let mut facts = world.facts();
    facts.tenant_claim.as_mut().unwrap().deleted = true;
    assert_done(&world.decide_on(Actor::Down, &facts));
    let mut facts = world.facts();
    facts.tenant_claim.as_mut().unwrap().object.metadata.uid = Some("older".to_owned());
    assert_done(&world.decide_on(Actor::Down, &facts));
    let mut facts = world.facts();
    facts.tenant_claim = None;
    assert_done(&world.decide_on(Actor::Down, &facts));
}

#[test]
fn a_claim_that_is_gone_takes_its_host_claim_with_it_unless_its_namespace_holds_it() {
    let mut world = World::at(Stage::Bound);
    let soft = world.policy.names.soft_finalizer();
    world.delete(Thing::TenantClaim);
    annotate(&mut world, Thing::TenantNamespace, &soft, &json!("backup"));
    assert_held(&world.decide(Actor::Down), "HeldByNamespace", "backup");
    // Also where nothing is known of the claim any more.
    let mut facts = world.facts();
    facts.tenant_claim = None;
    facts.tenant_namespace = None;
    assert_held(&world.decide_on(Actor::Down, &facts), "HeldByNamespace", "backup");
    world.delete(Thing::TenantNamespace);
    assert!(world.step(Actor::Down));
    assert!(world.get(Thing::HostClaim).is_none());
}

#[test]
fn the_host_claim_of_a_forerunner_is_held_by_the_namespace() {
    let mut world = World::at(Stage::Bound);
    let soft = world.policy.names.soft_finalizer();
    world.make_claim_again();
    annotate(&mut world, Thing::TenantNamespace, &soft, &json!("backup"));
    assert_held(&world.decide(Actor::Down), "HeldByNamespace", "backup");
    annotate(&mut world, Thing::TenantNamespace, &soft, &json!(""));
    assert!(world.step(Actor::Down));
    assert_eq!(world.written.last(), Some(&"host claim deleted"));
}

#[test]
fn a_claim_that_is_taken_off_stays_in_the_tenant_without_our_marks() {
    for labeled in [false, true] {
        let mut world = World::at(Stage::Bound);
        let names = world.policy.names.clone();
        world.policy.tenant.select.labeled = labeled;
        let sync = json!({"metadata": {"labels": {(names.state()): "Sync"}}});
        world.merge(Thing::TenantClaim, &sync);
        let (soft, mark) = (names.soft_finalizer(), names.deletion());
        annotate(&mut world, Thing::TenantClaim, &soft, &json!("backup"));
        annotate(&mut world, Thing::TenantClaim, &mark, &json!("2026-01-01T00:00:00Z"));
        assert_held(&world.decide(Actor::Down), "HeldByClaim", "backup");
        annotate(&mut world, Thing::TenantClaim, &soft, &json!(null));
        assert!(world.step(Actor::Down));
        assert!(world.get(Thing::HostClaim).is_none());
        assert!(world.step(Actor::Down));
        let claim = world.see(Thing::TenantClaim);
        assert!(!has_finalizer(claim, &names.finalizer()));
        assert_eq!(entry(claim, "labels", &names.state()), "");
        // Where all claims are carried down, only the mark keeps this one off.
        assert_eq!(entry(claim, "annotations", &mark).is_empty(), labeled);
        assert_ignored(&world.decide(Actor::Down));
    }
}

#[test]
fn a_mark_that_is_no_time_deletes_nothing() {
    let mut world = World::at(Stage::Bound);
    let mark = world.policy.names.deletion();
    for text in ["", "soon"] {
        annotate(&mut world, Thing::TenantClaim, &mark, &json!(text));
        assert_refused(&world.decide(Actor::Down), "DeletionMarkInvalid");
    }
}

#[test]
fn with_a_tenant_that_is_removed_all_of_its_host_side_goes() {
    let mut world = World::at(Stage::Bound);
    world.policy.tenant.removing = true;
    assert!(world.step(Actor::Down) && world.step(Actor::Down));
    assert!(world.get(Thing::HostClaim).is_none());
    let ours = world.policy.names.finalizer();
    assert!(!has_finalizer(world.see(Thing::TenantClaim), &ours));
    assert_ignored(&world.decide(Actor::Down));
    let mut fresh = World::new();
    fresh.policy.tenant.removing = true;
    assert_ignored(&fresh.decide(Actor::Down));
}

#[test]
fn only_what_was_made_for_a_claim_is_deleted_with_it() {
    // Somebody else carried it down: whoever did deletes it, and the claim waits for that.
    let mut world = World::at(Stage::Bound);
    annotate(&mut world, Thing::HostClaim, TENANT_CLAIM_UID, &json!(null));
    delete_claim(&mut world);
    assert_waits(&world.decide(Actor::Down), "HostClaimStays");
    world.delete(Thing::TenantClaim);
    assert_ignored(&world.decide(Actor::Down));
    // A stranger's is nobody's concern.
    let mut world = World::at(Stage::Bound);
    world.merge(Thing::HostClaim, &json!({"metadata": {"labels": null}}));
    delete_claim(&mut world);
    assert!(world.step(Actor::Down));
    assert!(world.get(Thing::TenantClaim).is_none());
    assert_ignored(&world.decide(Actor::Down));
    // Nor is anything in a namespace that is not this tenant's.
    let mut world = deleted();
    let locator = world.policy.names.locator();
    annotate(&mut world, Thing::HostNamespace, &locator, &json!(null));
    assert_waits(&world.decide(Actor::Down), "WaitingForNamespace");
}

#[test]
fn a_host_claim_that_changed_meanwhile_is_not_deleted() {
    let mut world = deleted();
    let decision = world.decide(Actor::Down);
    world.merge(Thing::HostClaim, &json!({"metadata": {"labels": {"new": "pod"}}}));
    assert!(world.apply(&decision.writes[0]).is_err());
    assert_eq!(text(world.see(Thing::HostClaim), "/status/phase"), "Bound");
}
