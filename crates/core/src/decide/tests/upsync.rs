//! The copy of a volume is as the host's is, and stands only where it may.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    claim_ref,
    decide::fixtures::{
        Actor, Stage, Thing, VOLUME, World, assert_done, assert_ignored, assert_refused,
        assert_waits, classes, created, entry, only_write, policy, policy_with, text,
    },
    names::{BETA_STORAGE_CLASS, Domain, PROVISIONED_BY, PROVISIONER},
    policy::{Binder, ClassRules},
    write::Kind,
};

/// At rest, with everything carried up.
fn at_rest() -> World {
    let mut world = World::at(Stage::Bound);
    world.settle(&Actor::SERVICES);
    world
}

/// With this diff on the host volume.
fn with_diff(diff: &Value) -> World {
    let mut world = World::at(Stage::Transformed);
    let annotations = json!({(world.policy.names.diff()): diff});
    world.merge(Thing::HostVolume, &json!({"metadata": {"annotations": annotations}}));
    world
}

#[test]
fn a_volume_that_is_not_marked_for_this_tenant_is_never_carried_up() {
    let names = World::new().policy.names.clone();
    let foreign = json!(World::new().policy.locator("team-a").to_json());
    for (map, key, value) in [
        ("labels", names.state(), json!(null)),
        ("labels", names.state(), json!("Sync")),
        ("labels", names.cluster(), json!(null)),
        ("labels", names.cluster(), json!("another")),
        ("annotations", names.locator(), json!(null)),
        ("annotations", names.locator(), json!("garbage")),
        ("annotations", names.locator(), foreign),
    ] {
        let mut world = World::at(Stage::Transformed);
        world.merge(Thing::HostVolume, &json!({"metadata": {(map): {(key.as_str()): value}}}));
        assert_ignored(&world.decide(Actor::Upsync));
    }
    assert_ignored(&World::at(Stage::HostBound).decide(Actor::Upsync));
}

#[test]
fn a_diff_that_is_more_or_other_than_this_claims_reference_is_refused() {
    let world = World::at(Stage::Transformed);
    let mut other = world.facts().live_tenant_claim().unwrap().clone();
    other.metadata.uid = Some("another".to_owned());
    let mut elsewhere = world.facts().live_tenant_claim().unwrap().clone();
    elsewhere.metadata.namespace = Some("team-b".to_owned());
    let name = r#"[{"op":"replace","path":"/metadata/name","value":"x"}]"#;
    let source = r#"[{"op":"replace","path":"/spec/csi/volumeHandle","value":"x"}]"#;
    for diff in [
        json!(null),
        json!("garbage"),
        json!(name),
        json!(source),
        json!(claim_ref::diff_for(&elsewhere)),
    ] {
        assert_refused(&with_diff(&diff).decide(Actor::Upsync), "DiffRefused");
    }
    // The transformer names the claim that is there now in a moment.
    let of_another = with_diff(&json!(claim_ref::diff_for(&other)));
    assert_waits(&of_another.decide(Actor::Upsync), "WaitingForClaim");
}

#[test]
fn a_volume_in_the_tenant_that_is_not_ours_is_never_touched() {
    let mut world = World::at(Stage::Transformed);
    let own = json!({"kind": "PersistentVolume", "metadata": {"name": VOLUME},
                     "spec": {"hostPath": {"path": "/own"}}});
    world.create(Thing::TenantVolume, own);
    let decision = world.decide(Actor::Upsync);
    assert_refused(&decision, "VolumeCollision");
    assert_eq!(decision.verdict.recheck(), Some(SignedDuration::from_secs(60)));
    assert_ignored(&world.decide(Actor::Status));
    // Nor one that takes its place unseen.
    let before = World::at(Stage::Transformed);
    let decision = before.decide(Actor::Upsync);
    assert!(world.apply(only_write(&decision)).is_err());
    assert_eq!(text(world.see(Thing::TenantVolume), "/spec/hostPath/path"), "/own");
}

#[test]
fn a_volume_of_the_tenants_own_is_not_ours_whatever_marks_it_carries() {
    let mut world = World::at(Stage::CarriedUp);
    // As another volume of that name would be: with all our marks, and its own source.
    world.merge(Thing::TenantVolume, &json!({"spec": {"csi": {"volumeHandle": "own"}}}));
    assert_refused(&world.decide(Actor::Upsync), "VolumeCollision");
    let mut world = World::at(Stage::CarriedUp);
    let bare = json!({
        "metadata": {"labels": null, "finalizers": null, "annotations": null},
        "spec": {"claimRef": null},
    });
    world.merge(Thing::TenantVolume, &bare);
    assert_refused(&world.decide(Actor::Upsync), "VolumeCollision");
}

#[test]
fn what_a_tenant_changes_on_its_copy_is_undone() {
    let rest = at_rest();
    let names = rest.policy.names.clone();
    for patch in [
        json!({"metadata": {"labels": {(names.state()): null}}}),
        json!({"metadata": {"labels": {"zone": "z2"}}}),
        json!({"metadata": {"labels": null}}),
        json!({"metadata": {"annotations": {(PROVISIONED_BY): "csi.example"}}}),
        json!({"metadata": {"annotations": {(PROVISIONED_BY): null}}}),
        json!({"metadata": {"annotations": null}}),
        json!({"metadata": {"annotations": {(names.carried_rv()): "0"}}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}}),
        json!({"metadata": {"labels": null, "finalizers": null}}),
        json!({"metadata": {"labels": null, "finalizers": null, "annotations": null}}),
        json!({"metadata": {"labels": null, "finalizers": null}, "spec": {"claimRef": null}}),
        json!({"spec": {"claimRef": null}}),
        json!({"spec": {"claimRef": {"uid": "another"}}}),
        json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}),
        json!({"spec": {"capacity": {"storage": "9Gi"}}}),
        json!({"spec": {"mountOptions": ["rw"]}}),
        json!({"spec": {"storageClassName": "ssd"}}),
        json!({"status": {"phase": "Available"}}),
        json!({"status": null}),
    ] {
        let mut world = rest.clone();
        world.merge(Thing::TenantVolume, &patch);
        world.settle(&[Actor::Upsync]);
        assert_eq!(world.written.len(), rest.written.len() + 1, "{patch}");
        for part in ["/spec", "/status", "/metadata/labels", "/metadata/annotations"] {
            let part = |world: &World| world.see(Thing::TenantVolume).pointer(part).cloned();
            assert_eq!(part(&world), part(&rest), "{patch}");
        }
        let finalizers = &world.see(Thing::TenantVolume)["metadata"]["finalizers"];
        assert!(finalizers.as_array().unwrap().contains(&json!(names.finalizer())), "{patch}");
    }
}

#[test]
fn what_others_add_to_the_copy_stays_and_costs_no_write() {
    let mut world = at_rest();
    world.merge(
        Thing::TenantVolume,
        &json!({
            "metadata": {
                "labels": {"team": "x"}, "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
                "finalizers": ["kubernetes.io/pv-protection", world.policy.names.finalizer()],
            },
            "spec": {"claimRef": {"resourceVersion": "9", "fieldPath": "x"}},
        }),
    );
    assert_done(&world.decide(Actor::Upsync));
}

#[test]
fn what_the_host_changes_follows() {
    let mut world = at_rest();
    let spec = json!({
        "capacity": {"storage": "2Gi"}, "persistentVolumeReclaimPolicy": "Retain",
        "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
    });
    let meta = json!({"annotations": {"volume.kubernetes.io/x": "y", "kubectl.kubernetes.io/x": "y"},
                      "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1"}]});
    world.merge(Thing::HostVolume, &json!({"spec": spec, "metadata": meta}));
    assert!(world.step(Actor::Upsync));
    let volume = world.see(Thing::TenantVolume);
    for field in ["capacity", "persistentVolumeReclaimPolicy", "nodeAffinity"] {
        assert_eq!(volume["spec"][field], spec[field], "{field}");
    }
    for key in ["volume.kubernetes.io/x", "kubectl.kubernetes.io/x"] {
        assert_eq!(entry(volume, "annotations", key), "", "{key}");
    }
    assert!(volume["metadata"].get("ownerReferences").is_none());
    assert_eq!(text(volume, "/spec/claimRef/uid"), world.uid());
    world.merge(Thing::HostVolume, &json!({"status": {"phase": "Released"}}));
    world.settle(&[Actor::Upsync]);
    assert_eq!(text(world.see(Thing::TenantVolume), "/status/phase"), "Released");
}

#[test]
fn a_binder_in_the_tenant_writes_the_volumes_status_itself() {
    let mut world = World::of(policy_with(Domain::KcpDev, Binder::Tenant));
    world.settle(&[Actor::Down, Actor::HostBinder, Actor::Transform, Actor::Upsync]);
    assert_eq!(text(world.see(Thing::TenantVolume), "/status/phase"), "Pending");
    assert_done(&world.decide(Actor::Upsync));
}

#[test]
fn the_copy_has_the_class_under_the_tenants_name() {
    let default = ClassRules { default: Some("fast".to_owned()), ..classes(&[("fast", "ssd")]) };
    let all = ClassRules { allow_all: true, ..ClassRules::default() };
    let beta = json!({"metadata": {"annotations": {(BETA_STORAGE_CLASS): "fast"}},
                      "spec": {"storageClassName": null}});
    let absent = json!({"spec": {"storageClassName": null}});
    let empty = json!({"spec": {"storageClassName": ""}});
    for (rules, patch, expected) in [
        (classes(&[("fast", "ssd")]), json!({}), "fast"),
        (classes(&[("fast", "ssd")]), beta, "fast"),
        (default, absent, "fast"),
        (all, json!({"spec": {"storageClassName": "slow"}}), "slow"),
        (classes(&[("", "ssd")]), empty, ""),
    ] {
        let mut policy = policy();
        policy.tenant.classes = rules;
        let mut world = World::of(policy);
        world.merge(Thing::TenantClaim, &patch);
        let world = world.brought_to(Stage::CarriedUp);
        let volume = world.see(Thing::TenantVolume);
        assert_eq!(text(volume, "/spec/storageClassName"), expected);
        let named = volume["spec"].get("storageClassName").is_some();
        assert_eq!(named, !expected.is_empty(), "an empty one would be dropped, and put back");
    }
}

#[test]
fn a_copy_that_is_going_and_a_claim_that_is_not_seen_are_waited_for() {
    let mut world = at_rest();
    let others = json!(["kubernetes.io/pv-protection", world.policy.names.finalizer()]);
    world.merge(Thing::TenantVolume, &json!({"metadata": {"finalizers": others}}));
    world.begin_delete(Thing::TenantVolume);
    assert!(world.step(Actor::Upsync), "our finalizer");
    assert_waits(&world.decide(Actor::Upsync), "VolumeTerminating");
    world.delete(Thing::TenantVolume);
    world.settle(&Actor::SERVICES);
    assert_eq!(text(world.see(Thing::TenantVolume), "/spec/claimRef/uid"), world.uid());
    let world = World::at(Stage::Transformed);
    let mut facts = world.facts();
    facts.tenant_claim = None;
    assert_waits(&world.decide_on(Actor::Upsync, &facts), "WaitingForClaim");
}

#[test]
fn a_volume_left_over_from_an_earlier_claim_of_the_name_holds_up_nothing() {
    let mut world = at_rest();
    world.merge(Thing::HostVolume, &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    world.settle(&Actor::SERVICES);
    world.make_claim_again();
    assert_ignored(&world.decide(Actor::Upsync));
    world.delete(Thing::HostClaim);
    world.merge(Thing::HostVolume, &json!({"status": {"phase": "Released"}}));
    world.settle(&[Actor::Upsync]);
    assert_eq!(text(world.see(Thing::TenantVolume), "/status/phase"), "Released");
    assert_ignored(&world.decide(Actor::Upsync));
    world.settle(&Actor::SERVICES);
    world.bind_on_host();
    world.settle(&Actor::SERVICES);
    let claim = world.see(Thing::TenantClaim);
    assert_eq!(text(claim, "/status/phase"), "Bound");
    assert_ne!(text(claim, "/spec/volumeName"), VOLUME, "the old data is not the new claim's");
    assert!(claim["status"].get("conditions").is_none(), "nothing to complain about: {claim}");
    assert_eq!(world.tenant.list(Kind::Volume).count(), 2, "the old volume stays");
    assert_eq!(world.tenant.list(Kind::Event).count(), 0);
}

#[test]
fn a_volume_that_cant_be_carried_up_holds_up_no_other_one() {
    let mut world = World::at(Stage::Transformed);
    let mut other = world.see(Thing::HostVolume).clone();
    other["metadata"]["name"] = json!("a-first");
    other["metadata"]["annotations"][world.policy.names.diff()] = json!("garbage");
    world.host.put((Kind::Volume, None, "a-first".to_owned()), other);
    let decision = world.decide(Actor::Upsync);
    assert_eq!(text(created(only_write(&decision)), "/metadata/name"), VOLUME);
    world.settle(&[Actor::Upsync]);
    assert_refused(&world.decide(Actor::Upsync), "DiffRefused");
}

#[test]
fn a_volume_is_created_already_safe_from_the_tenants_controllers() {
    let decision = World::at(Stage::Transformed).decide(Actor::Upsync);
    let volume = created(only_write(&decision));
    assert_eq!(entry(volume, "annotations", PROVISIONED_BY), PROVISIONER);
    assert!(!text(volume, "/spec/claimRef/uid").is_empty());
    assert!(volume["metadata"].get("uid").is_none());
    assert!(volume["metadata"].get("resourceVersion").is_none());
}

/// What stays of a claim that was deleted, with its host claim.
fn without_claims(world: &mut World) {
    world.delete(Thing::TenantClaim);
    world.delete(Thing::HostClaim);
}

#[test]
fn a_copy_goes_when_the_hosts_volume_is_gone_and_not_before() {
    for bound in [true, false] {
        let mut world = at_rest();
        let protected = json!(["kubernetes.io/pv-protection", world.policy.names.finalizer()]);
        world.merge(Thing::TenantVolume, &json!({"metadata": {"finalizers": protected}}));
        if !bound {
            without_claims(&mut world);
        }
        assert_eq!(world.decide(Actor::Upsync).writes, []);
        // Not seen is not gone, nor is a tombstone alone proof.
        let mut facts = world.facts();
        facts.host_volumes.clear();
        assert_eq!(world.decide_on(Actor::Upsync, &facts).writes, []);
        let mut facts = world.facts();
        facts.host_volumes.get_mut(VOLUME).unwrap().deleted = true;
        assert_eq!(world.decide_on(Actor::Upsync, &facts).writes, []);
        world.delete(Thing::HostVolume);
        let mut forgotten = world.facts();
        forgotten.host_volumes.clear();
        let decision = world.decide_on(Actor::Upsync, &forgotten);
        assert_eq!(only_write(&decision).why, "volume taken away");
        assert!(world.step(Actor::Upsync) && world.step(Actor::Upsync));
        assert!(world.get(Thing::TenantVolume).is_none());
    }
}

#[test]
fn a_volume_of_the_tenants_own_does_not_go_with_the_hosts() {
    let mut world = at_rest();
    world.merge(
        Thing::TenantVolume,
        &json!({"spec": {"csi": {"volumeHandle": "own"}},
                                             "metadata": {"labels": null}}),
    );
    world.delete(Thing::HostVolume);
    assert_ignored(&world.decide(Actor::Upsync));
}

#[test]
fn a_copy_goes_when_the_host_takes_its_marks_off_and_not_from_a_bound_claim() {
    let mut world = at_rest();
    world.merge(Thing::HostVolume, &json!({"metadata": {"labels": null}}));
    assert_eq!(world.decide(Actor::Upsync).writes, [], "the transformer puts them back");
    without_claims(&mut world);
    assert!(world.step(Actor::Upsync));
    assert_eq!(world.written.last(), Some(&"volume taken away"));
}

#[test]
fn a_retained_volume_outlives_its_claim_and_stays_in_step() {
    let mut world = at_rest();
    world.merge(Thing::HostVolume, &json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}));
    without_claims(&mut world);
    world.merge(Thing::HostVolume, &json!({"status": {"phase": "Released"}}));
    world.settle(&Actor::SERVICES);
    let copy = world.see(Thing::TenantVolume);
    assert_eq!(text(copy, "/spec/persistentVolumeReclaimPolicy"), "Retain");
    assert_eq!(text(copy, "/status/phase"), "Released");
    let former = text(copy, "/spec/claimRef/uid").to_owned();
    // The tenant frees it for a claim of its own: it is not the tenant's to free.
    world.merge(Thing::TenantVolume, &json!({"spec": {"claimRef": null}}));
    let mut facts = world.facts();
    facts.tenant_volumes.get_mut(VOLUME).unwrap().deleted = true;
    let decision = world.decide_on(Actor::Upsync, &facts);
    assert_eq!(only_write(&decision).why, "volume put right", "it only seems to be gone");
    world.settle(&Actor::SERVICES);
    assert_eq!(text(world.see(Thing::TenantVolume), "/spec/claimRef/uid"), former);
    // Somebody on the host frees it: nothing is written until it is bound again.
    world.merge(Thing::HostVolume, &json!({"spec": {"claimRef": null}}));
    assert_eq!(world.decide(Actor::Upsync).writes, []);
    // It is not made again for a claim that is gone.
    let mut gone = at_rest();
    without_claims(&mut gone);
    gone.delete(Thing::TenantVolume);
    assert_ignored(&gone.decide(Actor::Upsync));
}

#[test]
fn with_a_removed_tenant_the_copies_go_too() {
    let mut world = at_rest();
    world.policy.tenant.removing = true;
    assert_done(&world.decide(Actor::Upsync));
    without_claims(&mut world);
    assert!(world.step(Actor::Upsync) && world.step(Actor::Upsync));
    assert!(world.get(Thing::TenantVolume).is_none());
    assert!(world.get(Thing::HostVolume).is_some());
}
