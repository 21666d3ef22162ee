//! Whose an object is.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use crate::{
    decide::{
        fixtures::{NAMESPACE, Stage, Thing, VOLUME, World},
        ownership::{
            ClaimOwner, VolumeLocator, check_host_namespace, claim_owner, is_copy, is_made_for,
            volume_locator,
        },
    },
    fact::Fact,
    names::{PROVISIONED_BY, PROVISIONER},
};

#[test]
fn a_host_claim_is_one_tenant_claims_or_unrecorded_or_a_strangers() {
    let world = World::at(Stage::CarriedDown);
    let uid = world.uid();
    let mut claim = world.facts().live_host_claim().unwrap().clone();
    assert_eq!(claim_owner(&claim, &world.policy), ClaimOwner::Uid(&uid));
    assert!(is_made_for(&claim, &uid, &world.policy));
    assert!(!is_made_for(&claim, "another", &world.policy));
    claim.metadata.annotations = None;
    assert_eq!(claim_owner(&claim, &world.policy), ClaimOwner::Unrecorded);
    assert!(is_made_for(&claim, "another", &world.policy));
    for labels in [None, Some([(world.policy.names.cluster(), "another".to_owned())].into())] {
        claim.metadata.labels = labels;
        assert_eq!(claim_owner(&claim, &world.policy), ClaimOwner::Stranger);
        assert!(!is_made_for(&claim, &uid, &world.policy));
    }
}

#[test]
fn a_volume_is_ours_only_with_the_tenants_cluster_scoped_locator() {
    let mut world = World::at(Stage::Transformed);
    let ours = world.policy.locator("");
    let mut older = ours.clone();
    older.target.uid = "older installation".to_owned();
    for (locator, expected) in [
        (json!(null), VolumeLocator::Absent),
        (json!(ours.to_json()), VolumeLocator::Ours),
        (json!(format!(" {} ", ours.to_json())), VolumeLocator::Ours),
        (json!(world.policy.locator(NAMESPACE).to_json()), VolumeLocator::Foreign),
        (json!(older.to_json()), VolumeLocator::Foreign),
        (json!(""), VolumeLocator::Foreign),
        (json!("{}"), VolumeLocator::Foreign),
    ] {
        let annotations = json!({(world.policy.names.locator()): locator});
        world.merge(Thing::HostVolume, &json!({"metadata": {"annotations": annotations}}));
        let facts = world.facts();
        let volume = facts.host_volumes.values().next().unwrap();
        assert_eq!(volume_locator(&volume.object, &world.policy), expected, "{locator}");
    }
}

/// Whether the tenant's volume is the copy of the host's, with this changed on each.
fn is_copy_with(volume: &Value, host: &Value) -> bool {
    let mut world = World::at(Stage::CarriedUp);
    world.merge(Thing::TenantVolume, volume);
    world.merge(Thing::HostVolume, host);
    let facts = world.facts();
    let live = |volumes: &BTreeMap<_, Fact<PersistentVolume>>| volumes[VOLUME].object.clone();
    let (volume, host) = (live(&facts.tenant_volumes), live(&facts.host_volumes));
    is_copy(&volume, &host, Some(facts.tenant_claim.as_ref().unwrap().uid()), &world.policy)
}

#[test]
fn a_copy_has_the_hosts_source_and_one_sign_of_ours() {
    let names = World::new().policy.names;
    let sign = [
        json!({"metadata": {"labels": {(names.state()): "Upsync"}}}),
        json!({"metadata": {"finalizers": [names.finalizer()]}}),
        json!({"metadata": {"annotations": {(PROVISIONED_BY): PROVISIONER}}}),
        json!({"spec": {"claimRef": World::at(Stage::CarriedUp).see(Thing::TenantVolume)["spec"]["claimRef"]}}),
    ];
    let bare = json!({
        "metadata": {"labels": null, "finalizers": null, "annotations": null},
        "spec": {"claimRef": null},
    });
    assert!(!is_copy_with(&bare, &json!({})), "no sign is left");
    for sign in sign {
        let mut only = bare.clone();
        json_patch::merge(&mut only, &sign);
        assert!(is_copy_with(&only, &json!({})), "{sign}");
    }
    let foreign = json!({"metadata": {"annotations": {(names.locator()): null}}});
    assert!(!is_copy_with(&json!({}), &foreign), "the host's volume is not this tenant's");
}

#[test]
fn a_source_is_the_hosts_by_all_that_the_host_says_of_it() {
    let csi = |fields: Value| json!({"spec": {"csi": fields}});
    let secret = |name: &str| json!({"name": name, "namespace": "x"});
    let none = json!({});
    for (volume, host, expected) in [
        (csi(json!({"volumeHandle": "own"})), none.clone(), false),
        (csi(json!({"driver": "own.example"})), none.clone(), false),
        (json!({"spec": {"csi": null, "hostPath": {"path": "/"}}}), none.clone(), false),
        (csi(json!(null)), csi(json!(null)), false),
        (none.clone(), csi(json!({"volumeAttributes": {"share": "a"}})), false),
        (csi(json!({"fsType": "ext4", "readOnly": false})), none.clone(), true),
        (none.clone(), csi(json!({"controllerExpandSecretRef": secret("new")})), true),
        (
            csi(json!({"nodeStageSecretRef": secret("a")})),
            csi(json!({"nodeStageSecretRef": secret("b")})),
            true,
        ),
        (json!({"spec": {"capacity": {"storage": "9Gi"}, "volumeMode": "Block"}}), none, true),
    ] {
        assert_eq!(is_copy_with(&volume, &host), expected, "{volume} {host}");
    }
}

#[test]
fn a_host_namespace_says_why_it_is_not_ours_without_naming_the_host() {
    let world = World::at(Stage::WithNamespace);
    let facts = world.facts();
    let mut namespace = facts.live_host_namespace().unwrap().clone();
    assert_eq!(check_host_namespace(&namespace, &world.policy, NAMESPACE), Ok(()));
    let key = world.policy.names.locator();
    for (locator, expected) in [
        (None, "belongs to nobody"),
        (Some(world.policy.locator("team-b").to_json()), "belongs to somebody else"),
        (Some("garbage".to_owned()), "can't be read"),
    ] {
        namespace.metadata.annotations = locator.map(|text| [(key.clone(), text)].into());
        let reason = check_host_namespace(&namespace, &world.policy, NAMESPACE).unwrap_err();
        assert!(reason.message.contains(expected), "{}", reason.message);
        assert!(!reason.message.contains(&world.host_namespace()), "{}", reason.message);
    }
}
