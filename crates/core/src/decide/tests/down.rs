//! What of a tenant's claim goes down, and what is refused.

use serde_json::{Value, json};

use crate::{
    decide::fixtures::{
        Actor, Stage, Thing, World, assert_done, assert_ignored, assert_refused, assert_waits,
        classes, entry, policy, policy_with, text,
    },
    names::{BETA_STORAGE_CLASS, Domain, PROVISIONER, TENANT_CLAIM_UID},
    policy::{Binder, ClassRules, Selection},
    subject::Facet,
    write::Decision,
};

/// What becomes of a fresh claim with this changed.
fn decide_with(patch: &Value) -> Decision {
    let mut world = World::new();
    world.merge(Thing::TenantClaim, patch);
    world.decide(Actor::Down)
}

/// The host claim that is made for a claim with this changed.
fn carried_down(rules: ClassRules, patch: &Value) -> Value {
    let mut policy = policy();
    policy.tenant.classes = rules;
    let mut world = World::of(policy);
    world.merge(Thing::TenantClaim, patch);
    world.brought_to(Stage::CarriedDown).see(Thing::HostClaim).clone()
}

#[test]
fn what_a_tenant_may_not_have_is_refused_before_anything_is_written() {
    let beta = |class: &str| json!({"metadata": {"annotations": {(BETA_STORAGE_CLASS): class}}});
    let snapshot =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
    let populator =
        json!({"apiGroup": "example.org", "kind": "PersistentVolumeClaim", "name": "s"});
    let elsewhere = json!({"kind": "PersistentVolumeClaim", "name": "s", "namespace": "team-b"});
    for (name, patch, expected) in [
        ("class", json!({"spec": {"storageClassName": "slow"}}), "ClassNotAllowed"),
        ("the host's own name", json!({"spec": {"storageClassName": "ssd"}}), "ClassNotAllowed"),
        ("class by annotation", beta("slow"), "ClassNotAllowed"),
        ("no class", json!({"spec": {"storageClassName": null}}), "ClassNotAllowed"),
        ("empty class", json!({"spec": {"storageClassName": ""}}), "ClassNotAllowed"),
        ("selector", json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}), "SelectorRefused"),
        ("empty selector", json!({"spec": {"selector": {}}}), "SelectorRefused"),
        ("snapshot", json!({"spec": {"dataSource": snapshot}}), "DataSourceRefused"),
        (
            "snapshot by reference",
            json!({"spec": {"dataSourceRef": snapshot}}),
            "DataSourceRefused",
        ),
        ("populator", json!({"spec": {"dataSourceRef": populator}}), "DataSourceRefused"),
        ("other namespace", json!({"spec": {"dataSourceRef": elsewhere}}), "DataSourceRefused"),
        ("volume", json!({"spec": {"volumeName": "pv-of-others"}}), "VolumeNameRefused"),
        (
            "attributes class",
            json!({"spec": {"volumeAttributesClassName": "gold"}}),
            "AttributesClassNotAllowed",
        ),
        ("no spec", json!({"spec": null}), "NoSpec"),
    ] {
        let decision = decide_with(&patch);
        println!("{name}");
        assert_refused(&decision, expected);
    }
}

#[test]
fn the_class_goes_down_under_its_name_on_the_host_and_an_absent_one_is_not_an_empty_one() {
    let all = || ClassRules { allow_all: true, ..classes(&[("fast", "ssd")]) };
    let default = || ClassRules { default: Some("fast".to_owned()), ..classes(&[("fast", "ssd")]) };
    let class = |class: Value| json!({"spec": {"storageClassName": class}});
    let beta = json!({"metadata": {"annotations": {(BETA_STORAGE_CLASS): "fast"}},
                      "spec": {"storageClassName": "other"}});
    for (rules, patch, expected) in [
        (classes(&[("fast", "ssd")]), class(json!("fast")), Some("ssd")),
        (classes(&[("fast", "ssd")]), beta, Some("ssd")),
        (all(), class(json!("slow")), Some("slow")),
        (default(), class(json!(null)), Some("ssd")),
        (classes(&[("", "")]), class(json!("")), Some("")),
    ] {
        let host = carried_down(rules, &patch);
        let found = host["spec"].get("storageClassName").and_then(Value::as_str);
        assert_eq!(found, expected, "{patch}");
        assert_eq!(entry(&host, "annotations", BETA_STORAGE_CLASS), "");
    }
}

#[test]
fn only_what_may_go_down_does() {
    let source = json!({"kind": "PersistentVolumeClaim", "name": "other", "namespace": "team-a"});
    let mut policy = policy();
    policy.tenant.attributes_classes = classes(&[("gold", "iops")]);
    let mut world = World::of(policy);
    world.merge(
        Thing::TenantClaim,
        &json!({"spec": {
            "dataSourceRef": source, "volumeAttributesClassName": "gold",
            "resources": {"limits": {"storage": "9Gi"}, "requests": {"cpu": "1"}},
        }, "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]}}),
    );
    let host = world.brought_to(Stage::CarriedDown).see(Thing::HostClaim).clone();
    assert_eq!(
        host["spec"],
        json!({
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "ssd", "volumeAttributesClassName": "iops",
            "dataSource": {"kind": "PersistentVolumeClaim", "name": "other"},
        })
    );
    assert!(host["metadata"].get("ownerReferences").is_none());
    assert!(host["metadata"].get("finalizers").is_none());
}

#[test]
fn reserved_labels_and_annotations_never_go_down() {
    for domain in [Domain::KcpDev, Domain::KcpIo] {
        let mut world = World::of(policy_with(domain, Binder::Carrick));
        let names = world.policy.names.clone();
        let tricks = json!({
            (names.cluster()): "stolen", (names.locator()): "{}", (names.delay()): "false",
            (names.diff()): "[]", (names.state()): "Upsync", (names.tenant_id()): "x",
            "workload.kcp.dev/any": "x", "workload.kcp.io/any": "x", (TENANT_CLAIM_UID): "u",
            "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n",
            "volume.beta.kubernetes.io/storage-provisioner": "x",
            "kubectl.kubernetes.io/last-applied-configuration": "{}", "fine/one": "ok",
        });
        let patch = json!({"metadata": {"labels": tricks, "annotations": tricks}});
        world.merge(Thing::TenantClaim, &patch);
        let mut world = world.brought_to(Stage::CarriedDown);
        world.merge(Thing::TenantClaim, &json!({"metadata": {"labels": {"late": "too"}}}));
        world.merge(Thing::TenantClaim, &json!({"metadata": {"annotations": {"late": "too"}}}));
        assert!(world.step(Actor::Down));
        let meta = &world.see(Thing::HostClaim)["metadata"];
        let labels = json!({
            "app": "shop", "fine/one": "ok", "late": "too", (names.cluster()): names.key(),
        });
        assert_eq!(meta["labels"], labels);
        let annotations = json!({
            "note": "mine", "fine/one": "ok", "late": "too",
            (names.delay()): "true", (TENANT_CLAIM_UID): world.uid(),
        });
        assert_eq!(meta["annotations"], annotations);
        assert_done(&world.decide(Actor::Down));
    }
}

#[test]
fn a_claim_that_is_not_to_be_carried_down_is_left_alone() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_ignored(&decide_with(&deleting));
    let mut gone = World::new();
    gone.delete(Thing::TenantClaim);
    assert_ignored(&gone.decide(Actor::Down));
    let mut facts = World::new().facts();
    facts.tenant_claim = None;
    assert_ignored(&World::new().decide_on(Actor::Down, &facts));
    let selections = [
        Selection { exclude: vec!["team-*".to_owned()], ..Selection::default() },
        Selection { include: vec!["other".to_owned()], ..Selection::default() },
        Selection { labeled: true, ..Selection::default() },
    ];
    for select in selections {
        let mut world = World::new();
        world.policy.tenant.select = select.clone();
        assert_ignored(&world.decide(Actor::Down));
        // Our finalizer is the tenant's to forge; a host claim is not.
        let ours = world.policy.names.finalizer();
        world.merge(Thing::TenantClaim, &json!({"metadata": {"finalizers": [ours]}}));
        assert_ignored(&world.decide(Actor::Down));
        let mut carried = World::at(Stage::Bound);
        carried.policy.tenant.select = select;
        carried.merge(Thing::TenantClaim, &json!({"metadata": {"labels": {"late": "too"}}}));
        assert!(carried.step(Actor::Down), "what is carried stays in step");
    }
    for actor in Actor::SERVICES {
        for stage in Stage::ALL {
            let mut world = World::at(stage);
            world.policy.tenant.paused = true;
            assert_ignored(&world.decide(actor));
        }
    }
}

#[test]
fn a_finalizer_is_never_added_to_a_claim_that_is_being_deleted() {
    let mut world = World::new();
    let decided_before = world.decide(Actor::Down);
    let patch = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    world.merge(Thing::TenantClaim, &patch);
    assert_ignored(&world.decide(Actor::Down));
    for write in &decided_before.writes {
        assert!(world.apply(write).is_err(), "the API server would not let it");
    }
}

#[test]
fn a_finalizer_is_added_only_once_also_on_old_facts() {
    let mut world = World::new();
    let decided_before = world.decide(Actor::Down);
    assert!(world.step(Actor::Down));
    for write in &decided_before.writes {
        assert!(world.apply(write).is_err());
    }
    let finalizers = &world.see(Thing::TenantClaim)["metadata"]["finalizers"];
    assert_eq!(finalizers.as_array().unwrap().len(), 2);
}

#[test]
fn with_a_binder_a_class_of_the_tenants_own_is_left_to_its_provisioner() {
    let own = json!({"metadata": {"name": "fast", "uid": "c"}, "provisioner": "own.example"});
    let class = crate::subject::Facet::TenantClass("fast".to_owned());
    let with_binder = policy_with(Domain::KcpDev, Binder::Tenant);
    let world = World::of(with_binder);
    let published = world.facts();
    assert_eq!(published.live_tenant_class("fast").unwrap().provisioner, PROVISIONER);
    assert_eq!(world.decide(Actor::Down).writes.len(), 1);
    let mut facts = world.facts();
    facts.tenant_classes.clear();
    let decision = world.decide_on(Actor::Down, &facts);
    assert_waits(&decision, "ClassNotPublished");
    facts.insert(&class, false, own.clone()).unwrap();
    assert_ignored(&world.decide_on(Actor::Down, &facts));
    // Without a binder nobody else binds it: an allowed name is carried down, another one ignored.
    let mut world = World::new();
    let mut facts = world.facts();
    facts.insert(&class, false, own).unwrap();
    assert_eq!(world.decide_on(Actor::Down, &facts).writes.len(), 1);
    world.policy.tenant.classes = classes(&[]);
    assert_ignored(&world.decide_on(Actor::Down, &facts));
}

#[test]
fn a_class_that_is_no_longer_allowed_is_so_only_for_new_claims() {
    let label = json!({"metadata": {"labels": {"late": "too"}}});
    for binder in [Binder::Carrick, Binder::Tenant] {
        for end in [Actor::Down, Actor::Status] {
            let mut world = World::of(policy_with(Domain::KcpDev, binder));
            let actors = world.actors();
            world.settle(if end == Actor::Down { &[Actor::Down] } else { &actors });
            let writes = world.written.len();
            world.policy.tenant.classes = classes(&[("other", "ssd")]);
            world.settle(&actors);
            world.merge(Thing::TenantClaim, &label);
            world.merge(Thing::TenantClaim, &json!({"metadata": {"labels": {"app": "inn"}}}));
            let size = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
            world.merge(Thing::TenantClaim, &size);
            world.settle(&actors);
            let host = world.see(Thing::HostClaim);
            assert_eq!(entry(host, "labels", "late"), "too");
            assert_eq!(text(host, "/spec/resources/requests/storage"), "2Gi");
            let volume = world.see(Thing::TenantVolume);
            assert_eq!(text(volume, "/spec/storageClassName"), "fast", "as the claim calls it");
            assert_eq!(text(world.see(Thing::TenantClaim), "/status/phase"), "Bound");
            if end == Actor::Status {
                assert_eq!(world.written[writes..], ["changes of the tenant's claim"]);
            }
            // Nor is it refused while its host claim is not seen again.
            let mut facts = world.facts();
            facts.host_claim = None;
            assert_done(&world.decide_on(Actor::Down, &facts));
        }
    }
    let mut new = World::at(Stage::WithNamespace);
    new.policy.tenant.classes = classes(&[]);
    assert_refused(&new.decide(Actor::Down), "ClassNotAllowed");
    let mut again = World::at(Stage::Bound);
    again.policy.tenant.classes = classes(&[]);
    again.make_claim_again();
    assert!(again.step(Actor::Down), "the host claim of its forerunner goes");
    assert_refused(&again.decide(Actor::Down), "ClassNotAllowed");
}

#[test]
fn a_changed_label_or_annotation_goes_down_and_is_put_back() {
    let mut world = World::at(Stage::Bound);
    let changed = json!({"labels": {"app": "inn"}, "annotations": {"note": "yours"}});
    world.merge(Thing::TenantClaim, &json!({"metadata": changed}));
    for _ in 0..2 {
        assert!(world.step(Actor::Down));
        let host = world.see(Thing::HostClaim);
        assert_eq!(entry(host, "labels", "app"), "inn");
        assert_eq!(entry(host, "annotations", "note"), "yours");
        assert_done(&world.decide(Actor::Down));
        let other = json!({"labels": {"app": "x"}, "annotations": {"note": "x"}});
        world.merge(Thing::HostClaim, &json!({"metadata": other}));
    }
}

#[test]
fn growth_goes_down_once_the_host_claim_is_bound_and_shrinking_is_refused() {
    let ask = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let size = "/spec/resources/requests/storage";
    let mut world = World::at(Stage::CarriedDown);
    world.merge(Thing::TenantClaim, &ask("2Gi"));
    assert_done(&world.decide(Actor::Down));
    world.bind_on_host();
    assert!(world.step(Actor::Down));
    assert_eq!(text(world.see(Thing::HostClaim), size), "2Gi");
    assert_done(&world.decide(Actor::Down));
    world.merge(Thing::TenantClaim, &ask("2048Mi"));
    assert_done(&world.decide(Actor::Down));
    world.merge(Thing::TenantClaim, &ask("1Gi"));
    // It holds up nothing else.
    world.merge(Thing::TenantClaim, &json!({"metadata": {"labels": {"late": "too"}}}));
    assert!(world.step(Actor::Down));
    assert_eq!(entry(world.see(Thing::HostClaim), "labels", "late"), "too");
    let decision = world.decide(Actor::Down);
    assert_refused(&decision, "ShrinkRefused");
    world.merge(Thing::TenantClaim, &ask("much"));
    assert_done(&world.decide(Actor::Down));
}

#[test]
fn another_attributes_class_goes_down_under_its_name_on_the_host() {
    let class = "/spec/volumeAttributesClassName";
    let mut world = World::at(Stage::Bound);
    world.policy.tenant.attributes_classes = classes(&[("gold", "iops"), ("tin", "slow")]);
    for (tenant, host) in [("gold", "iops"), ("tin", "slow")] {
        let patch = json!({"spec": {"volumeAttributesClassName": tenant}});
        world.merge(Thing::TenantClaim, &patch);
        assert!(world.step(Actor::Down));
        assert_eq!(text(world.see(Thing::HostClaim), class), host);
        assert_done(&world.decide(Actor::Down));
    }
    world.merge(Thing::TenantClaim, &json!({"spec": {"volumeAttributesClassName": "iops"}}));
    assert_refused(&world.decide(Actor::Down), "AttributesClassNotAllowed");
}

#[test]
fn while_nobody_knows_who_binds_a_class_of_the_tenants_own_waits() {
    let own = json!({"metadata": {"name": "fast", "uid": "c", "resourceVersion": "999999"},
                     "provisioner": "own.example"});
    for (binder, expected) in
        [(Binder::Unknown, Some("BinderUnknown")), (Binder::Carrick, None), (Binder::Tenant, None)]
    {
        let world = World::of(policy_with(Domain::KcpDev, binder));
        let mut facts = world.facts();
        facts.insert(&Facet::TenantClass("fast".into()), false, own.clone()).unwrap();
        let decision = world.decide_on(Actor::Down, &facts);
        match expected {
            Some(expected) => assert_waits(&decision, expected),
            None => assert_eq!(decision.writes.is_empty(), binder == Binder::Tenant, "{binder:?}"),
        }
    }
}
