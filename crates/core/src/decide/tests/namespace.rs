//! When a host namespace goes, and what keeps it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;

use crate::{
    decide::{
        fixtures::{NAMESPACE, Stage, Thing, World},
        namespace::{Due, NamespaceFacts, clean, due},
    },
    policy::Policy,
    write::Action,
};

const GRACE: SignedDuration = SignedDuration::from_secs(30);

fn on_host(world: &World) -> Namespace {
    serde_json::from_value(world.see(Thing::HostNamespace).clone()).unwrap()
}

fn empty(world: &World, last_gone: Option<Timestamp>) -> NamespaceFacts {
    NamespaceFacts {
        namespace: NAMESPACE.to_owned(),
        host_namespace: world.facts().host_namespace,
        claims: 0,
        last_gone,
    }
}

#[test]
fn a_host_namespace_goes_some_time_after_its_last_claim() {
    let world = World::at(Stage::WithNamespace);
    let (policy, now) = (&world.policy, world.now);
    let later = |seconds| now + SignedDuration::from_secs(seconds);
    let fresh = empty(&world, None);
    assert_eq!(due(&fresh, policy, GRACE, now), Due::In(GRACE), "just made");
    assert_eq!(due(&fresh, policy, GRACE, later(30)), Due::Now);
    let left = empty(&world, Some(later(100)));
    assert_eq!(due(&left, policy, GRACE, later(110)), Due::In(SignedDuration::from_secs(20)));
    assert_eq!(due(&left, policy, GRACE, later(131)), Due::Now);
    let used = NamespaceFacts { claims: 1, ..left.clone() };
    let gone = NamespaceFacts { host_namespace: None, ..left.clone() };
    let mut rival = world.policy.clone();
    rival.tenant.cluster = "rival".to_owned();
    let mut paused = world.policy.clone();
    paused.tenant.paused = true;
    for (facts, policy) in [(&used, policy), (&gone, policy), (&left, &rival), (&left, &paused)] {
        assert_eq!(due(facts, policy, GRACE, later(1000)), Due::No);
    }
}

#[test]
fn what_is_in_it_or_holds_it_keeps_it() {
    let mut world = World::at(Stage::WithNamespace);
    let host = on_host(&world);
    let delete = |in_tenant: Option<&Namespace>, contents: &[String], policy: &Policy| {
        clean(in_tenant, Some(&host), contents, policy, NAMESPACE)
    };
    let write = delete(None, &[], &world.policy).unwrap().unwrap();
    assert_eq!(write.action, Action::delete(&host.metadata));
    let kept = delete(None, &["pods/web".to_owned()], &world.policy).unwrap_err();
    assert!(kept.contains("pods/web"), "{kept}");
    let soft = json!({(world.policy.names.soft_finalizer()): "backup"});
    world.merge(Thing::TenantNamespace, &json!({"metadata": {"annotations": soft}}));
    let in_tenant = world.facts().tenant_namespace.unwrap().object;
    let kept = delete(Some(&in_tenant), &[], &world.policy).unwrap_err();
    assert!(kept.contains("backup"), "{kept}");
    let mut rival = world.policy.clone();
    rival.tenant.cluster = "rival".to_owned();
    delete(None, &[], &rival).unwrap_err();
    assert_eq!(clean(None, None, &[], &world.policy, NAMESPACE), Ok(None));
}
