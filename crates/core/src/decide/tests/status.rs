//! What the tenant sees of the host's claim, and when.

use serde_json::json;

use crate::{
    decide::fixtures::{
        Actor, Refusal, Stage, Thing, World, assert_done, assert_ignored, assert_refused,
        assert_waits, only_write, policy_with, text,
    },
    names::Domain,
    policy::Binder,
    write::{Kind, Side},
};

fn phase(world: &World) -> &str {
    text(world.see(Thing::TenantClaim), "/status/phase")
}

fn with_binder() -> World {
    let mut world = World::of(policy_with(Domain::KcpDev, Binder::Tenant));
    let actors = world.actors();
    world.settle(&actors);
    world
}

#[test]
fn bound_is_not_seen_and_nothing_is_released_before_the_volume_is_up() {
    for stage in Stage::ALL.into_iter().filter(|stage| *stage < Stage::CarriedUp) {
        let world = World::at(stage);
        assert!(world.decide(Actor::Status).writes.is_empty(), "{stage:?}");
    }
    let mut world = World::at(Stage::CarriedUp);
    for expected in ["status released", "volume name", "claim status"] {
        assert_eq!(phase(&world), "Pending");
        assert!(world.step(Actor::Status));
        assert_eq!(world.written.last(), Some(&expected));
    }
    assert_eq!(phase(&world), "Bound");
    assert_done(&world.decide(Actor::Status));
}

#[test]
fn a_volume_that_is_another_ones_releases_nothing() {
    for patch in [
        json!({"spec": {"claimRef": {"uid": "another"}}}),
        json!({"spec": {"claimRef": {"uid": null}}}),
        json!({"spec": {"claimRef": {"namespace": "team-b"}}}),
        json!({"spec": {"claimRef": {"name": "other"}}}),
        json!({"spec": {"claimRef": null}}),
        // All our marks on a volume of the tenant's own.
        json!({"spec": {"csi": {"volumeHandle": "own"}}}),
        json!({"spec": {"csi": null, "hostPath": {"path": "/"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    ] {
        for stage in [Stage::CarriedUp, Stage::Released, Stage::Linked] {
            let mut world = World::at(stage);
            world.merge(Thing::TenantVolume, &patch);
            world.pass(1);
            let decision = world.decide(Actor::Status);
            assert!(decision.writes.is_empty(), "{stage:?} {patch}: {decision:?}");
        }
    }
}

#[test]
fn a_volume_in_the_tenant_says_nothing_without_the_hosts_marked_for_it() {
    let state = World::new().policy.names.state();
    for stage in [Stage::CarriedUp, Stage::Released, Stage::Linked] {
        let mut world = World::at(stage);
        let mut unseen = world.facts();
        unseen.host_volumes.clear();
        assert!(world.decide_on(Actor::Status, &unseen).writes.is_empty(), "{stage:?}");
        world.merge(Thing::HostVolume, &json!({"metadata": {"labels": {(state.as_str()): null}}}));
        assert!(world.decide(Actor::Status).writes.is_empty(), "{stage:?}");
    }
}

#[test]
fn a_copy_that_lost_its_marks_still_counts() {
    let mut world = World::at(Stage::CarriedUp);
    world.merge(Thing::TenantVolume, &json!({"metadata": {"labels": null, "finalizers": null}}));
    assert!(world.step(Actor::Status));
    assert_eq!(world.written.last(), Some(&"status released"));
}

#[test]
fn every_phase_but_bound_passes_at_once() {
    for expected in ["Pending", "Lost"] {
        for stage in [Stage::Linked, Stage::Bound] {
            let mut world = World::at(stage);
            world.merge(Thing::TenantClaim, &json!({"status": {"phase": "Bound"}}));
            world.merge(Thing::HostClaim, &json!({"status": {"phase": expected}}));
            assert!(world.step(Actor::Status));
            assert_eq!(phase(&world), expected);
            // And back, once the host says so.
            world.merge(Thing::HostClaim, &json!({"status": {"phase": "Bound"}}));
            world.settle(&[Actor::Status]);
            assert_eq!(phase(&world), "Bound");
        }
    }
    let mut world = World::at(Stage::Bound);
    world.merge(Thing::TenantVolume, &json!({"metadata": {"annotations": {"x": "y"}}}));
    world.merge(Thing::HostClaim, &json!({"status": {"phase": "Lost"}}));
    world.settle(&[Actor::Status]);
    assert_eq!(world.tenant.list(Kind::Event).count(), 1, "a loss is told");
    assert_refused(&world.decide(Actor::Status), "VolumeLost");
}

#[test]
fn a_claim_without_any_status_gets_one() {
    for (host, expected) in [("Bound", "Bound"), ("Lost", "Lost")] {
        let mut world = World::at(Stage::Linked);
        world.merge(Thing::TenantClaim, &json!({"status": null}));
        world.merge(Thing::HostClaim, &json!({"status": {"phase": host}}));
        assert!(world.step(Actor::Status));
        assert_eq!(phase(&world), expected);
    }
}

#[test]
fn with_a_binder_neither_volume_name_nor_phase_are_written() {
    let mut world = World::of(policy_with(Domain::KcpDev, Binder::Tenant));
    world.settle(&[Actor::Down, Actor::HostBinder, Actor::Transform, Actor::Upsync, Actor::Status]);
    let claim = world.see(Thing::TenantClaim);
    assert_eq!(text(claim, "/spec/volumeName"), "");
    assert_eq!(phase(&world), "Pending");
    assert_eq!(world.written.last(), Some(&"status released"));
    for host in ["Pending", "Lost", "Bound"] {
        let mut world = with_binder();
        world.merge(Thing::HostClaim, &json!({"status": {"phase": host}}));
        world.pass(60);
        for write in &world.decide(Actor::Status).writes {
            assert!(matches!(write.why, "condition" | "event on the tenant's claim"), "{write:?}");
        }
        world.settle(&[Actor::Status]);
        assert_eq!(phase(&world), "Bound", "the binder's to say");
    }
}

#[test]
fn what_the_host_reports_of_a_bound_claim_follows() {
    let mut world = World::at(Stage::Bound);
    let status = json!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteMany"]});
    world.merge(Thing::HostClaim, &json!({"status": status}));
    assert!(world.step(Actor::Status));
    let claim = world.see(Thing::TenantClaim);
    assert_eq!(claim["status"]["capacity"], status["capacity"]);
    assert_eq!(claim["status"]["accessModes"], status["accessModes"]);
    assert_done(&world.decide(Actor::Status));
    // A host that reports nothing: the volume's own values stand.
    let mut world = World::at(Stage::Linked);
    let patch = json!({"status": {"capacity": null, "accessModes": null}});
    world.merge(Thing::HostClaim, &patch);
    world.settle(&[Actor::Status]);
    let claim = world.see(Thing::TenantClaim);
    assert_eq!(claim["status"]["capacity"]["storage"], "1Gi");
    assert_eq!(claim["status"]["accessModes"], json!(["ReadWriteOnce"]));
}

#[test]
fn a_claim_that_names_another_volume_is_refused_and_its_name_never_replaced() {
    let mut world = World::at(Stage::Released);
    world.merge(Thing::TenantClaim, &json!({"spec": {"volumeName": "own"}}));
    let decision = world.decide(Actor::Status);
    assert!(decision.writes.iter().all(|write| write.object.side == Side::Tenant));
    world.settle(&[Actor::Status]);
    assert_refused(&world.decide(Actor::Status), "VolumeMismatch");
    assert_eq!(text(world.see(Thing::TenantClaim), "/spec/volumeName"), "own");
    assert_eq!(phase(&world), "Pending");
    // Nor where it was named between the look and the write.
    let mut world = World::at(Stage::Released);
    let before = world.decide(Actor::Status);
    world.merge(Thing::TenantClaim, &json!({"spec": {"volumeName": "own"}}));
    let refusal = world.apply(only_write(&before)).unwrap_err();
    assert!(matches!(refusal, Refusal::Conflict), "its own tests fail: {refusal:?}");
}

#[test]
fn the_host_claim_of_somebody_else_says_nothing() {
    let mut world = World::at(Stage::Bound);
    world.make_claim_again();
    world.merge(Thing::HostClaim, &json!({"status": {"phase": "Lost"}}));
    assert_ignored(&world.decide(Actor::Status));
    assert_eq!(phase(&world), "Pending");
    let mut world = World::at(Stage::Bound);
    let labels = json!({(world.policy.names.cluster()): "another"});
    let patch = json!({"metadata": {"labels": labels}, "status": {"phase": "Lost"}});
    world.merge(Thing::HostClaim, &patch);
    assert!(world.decide(Actor::Status).writes.is_empty());
    let mut facts = World::at(Stage::Bound).facts();
    facts.tenant_claim = None;
    assert_ignored(&world.decide_on(Actor::Status, &facts));
    let mut world = World::at(Stage::HostBound);
    world.merge(Thing::HostClaim, &json!({"spec": {"volumeName": null}}));
    world.pass(11);
    let decision = world.decide(Actor::Status);
    assert_eq!(only_write(&decision).why, "condition");
    let mut world = World::at(Stage::HostBound);
    world.pass(11);
    world.step(Actor::Status);
    assert_waits(&world.decide(Actor::Status), "WaitingForVolume");
}
