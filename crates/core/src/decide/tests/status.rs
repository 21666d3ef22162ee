//! What the tenant sees of the host's claim, and when.

use serde_json::{Value, json};

use crate::{
    decide::fixtures::{
        Actor, Refusal, Stage, Thing, World, assert_done, assert_ignored, assert_refused,
        assert_waits, classes, only_write, policy_with, text,
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

/// With this status on the host claim.
fn with_host_status(world: &mut World, status: &Value) {
    world.merge(Thing::HostClaim, &json!({"status": status}));
}

#[test]
fn a_bound_claim_whose_host_claim_is_gone_is_lost_and_one_that_never_was_is_not() {
    let mut world = World::at(Stage::Bound);
    // Not seen is not gone.
    let mut facts = world.facts();
    facts.host_claim = None;
    assert!(world.decide_on(Actor::Status, &facts).writes.is_empty());
    world.delete(Thing::HostClaim);
    let mut forgotten = world.facts();
    forgotten.host_claim = None;
    assert_eq!(only_write(&world.decide_on(Actor::Status, &forgotten)).why, "host's phase");
    assert!(world.step(Actor::Status));
    assert_eq!(text(world.see(Thing::TenantClaim), "/status/phase"), "Lost");
    world.settle(&Actor::SERVICES);
    assert_eq!(text(world.see(Thing::TenantClaim), "/status/phase"), "Lost");
    let mut never = World::at(Stage::CarriedDown);
    never.delete(Thing::HostClaim);
    assert!(never.decide(Actor::Status).writes.is_empty());
    // Of one that is being deleted the host claim goes first.
    let mut leaving = World::at(Stage::Bound);
    leaving.begin_delete(Thing::TenantClaim);
    leaving.delete(Thing::HostClaim);
    assert!(leaving.decide(Actor::Status).writes.is_empty());
    // A claim of the tenant's own is none of this.
    let mut own = World::new();
    own.merge(Thing::TenantClaim, &json!({"status": {"phase": "Bound"}}));
    assert_ignored(&own.decide(Actor::Status));
}

#[test]
fn the_whole_status_goes_up_and_what_is_the_tenants_own_survives() {
    for binder in [Binder::Carrick, Binder::Tenant] {
        let mut world = World::of(policy_with(Domain::KcpDev, binder));
        let actors = world.actors();
        world.settle(&actors);
        world.policy.tenant.attributes_classes = classes(&[("gold", "iops")]);
        let own = json!({"type": "example.org/Backup", "status": "True"});
        world.merge(Thing::TenantClaim, &json!({"status": {"conditions": [own]}}));
        let namespace = world.host_namespace();
        let resizing = json!({"type": "Resizing", "status": "True",
                              "message": format!("in {namespace}")});
        let other = json!({"type": "example.org/OfTheHost", "status": "True"});
        let modify = json!({"status": "InProgress", "targetVolumeAttributesClassName": "iops"});
        with_host_status(
            &mut world,
            &json!({
                "capacity": {"storage": "2Gi"}, "allocatedResources": {"storage": "3Gi"},
                "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
                "currentVolumeAttributesClassName": "iops", "modifyVolumeStatus": modify,
                "conditions": [resizing, other],
            }),
        );
        assert!(world.step(Actor::Status));
        let status = world.see(Thing::TenantClaim)["status"].clone();
        assert_eq!(status["capacity"]["storage"], "2Gi");
        assert_eq!(status["allocatedResources"]["storage"], "3Gi");
        assert_eq!(status["allocatedResourceStatuses"]["storage"], "ControllerResizeInProgress");
        assert_eq!(status["currentVolumeAttributesClassName"], "gold");
        assert_eq!(status["modifyVolumeStatus"]["targetVolumeAttributesClassName"], "gold");
        let message = format!("in {}", crate::decide::fixtures::NAMESPACE);
        let resizing = json!({"type": "Resizing", "status": "True", "message": message});
        assert_eq!(status["conditions"], json!([own, resizing]));
        assert_done(&world.decide(Actor::Status));
        with_host_status(
            &mut world,
            &json!({
                "allocatedResources": null, "allocatedResourceStatuses": null,
                "modifyVolumeStatus": null, "conditions": null,
            }),
        );
        assert!(world.step(Actor::Status));
        let status = &world.see(Thing::TenantClaim)["status"];
        assert_eq!(status["conditions"], json!([own]));
        assert!(status.get("allocatedResources").is_none(), "{status}");
        assert!(status.get("modifyVolumeStatus").is_none(), "{status}");
        assert_done(&world.decide(Actor::Status));
    }
}

#[test]
fn a_claim_that_the_tenants_own_binder_has_bound_to_something_else_is_told_and_not_written() {
    let mut world = World::of(policy_with(Domain::KcpDev, Binder::Tenant));
    world.settle(&[Actor::Down]);
    let own = json!({"spec": {"volumeName": "own"}, "status": {"phase": "Bound"}});
    world.merge(Thing::TenantClaim, &own);
    let facts = world.facts();
    assert!(crate::decide::status::is_mismatched(&facts, &world.policy));
    world.step(Actor::Status);
    let condition = &world.see(Thing::TenantClaim)["status"]["conditions"][0];
    assert_eq!(condition["reason"], "PhaseMismatch");
    assert_eq!(world.tenant.list(crate::write::Kind::Event).count(), 1);
    assert_eq!(text(world.see(Thing::TenantClaim), "/status/phase"), "Bound", "not fought");
    assert!(world.decide(Actor::Status).writes.is_empty());
    let bound = World::at(Stage::Bound);
    assert!(!crate::decide::status::is_mismatched(&bound.facts(), &bound.policy));
}
