//! Whose an object is.

use serde_json::json;

use crate::decide::{
    fixtures::{NAMESPACE, Stage, Thing, World},
    ownership::{
        ClaimOwner, VolumeLocator, check_host_namespace, claim_owner, is_carried_up, is_made_for,
        volume_locator,
    },
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

#[test]
fn a_copy_is_ours_by_its_label_or_by_its_finalizer() {
    let world = World::at(Stage::CarriedUp);
    let facts = world.facts();
    let volume = facts.tenant_volumes.values().next().unwrap().object.clone();
    for (label, finalizer, expected) in
        [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
    {
        let mut volume = volume.clone();
        if !label {
            volume.metadata.labels = None;
        }
        if !finalizer {
            volume.metadata.finalizers = Some(vec!["kubernetes.io/pv-protection".to_owned()]);
        }
        assert_eq!(is_carried_up(&volume, &world.policy), expected, "{label} {finalizer}");
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
