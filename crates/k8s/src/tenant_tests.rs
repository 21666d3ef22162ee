//! What a Tenant means, and all that may be wrong with one.

use super::*;
use serde_json::{Value, json};

fn tenant(spec: &Value) -> Tenant {
    let mut whole = json!({"kubeconfig": {"secretRef": {"namespace": "carrick", "name": "acme"}}});
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "carrick.dev/v1alpha1",
        "kind": "Tenant",
        "metadata": {"name": "acme"},
        "spec": whole,
    }))
    .unwrap()
}

#[test]
fn a_tenant_needs_no_more_than_a_secret() {
    let tenant = tenant(&json!({}));
    assert_eq!(tenant.spec.kubeconfig.secret_ref.key, "kubeconfig");
    assert_eq!((tenant.spec.weight, tenant.spec.on_removal), (1, OnRemoval::Retain));
    let expected = TenantRules {
        name: "acme".into(),
        cluster: "acme".into(),
        select: Selection { exclude: vec!["kube-*".into()], ..Selection::default() },
        ..TenantRules::default()
    };
    assert_eq!(rules(&tenant), Ok(expected));
}

#[test]
fn all_of_it_is_taken_over() {
    let rules = rules(&tenant(&json!({
        "cluster": "root:org:acme",
        "select": {"mode": "Labeled", "namespaces": {"include": ["team-*"], "exclude": []},
                   "labelSelector": {"matchLabels": {"tier": "gold"}}},
        "storageClasses": {"allowed": [{"tenant": "fast", "host": "ssd"}, {"tenant": "slow"}],
                           "default": "fast"},
        "volumeAttributesClasses": {"allowAll": true},
        "volumeBinder": "Carrick",
        "paused": true,
    })))
    .unwrap();
    assert_eq!(rules.cluster, "root:org:acme");
    assert!(rules.select.labeled && rules.paused && rules.attributes_classes.allow_all);
    assert_eq!(rules.select.include, ["team-*"]);
    assert!(rules.select.exclude.is_empty());
    assert_eq!(rules.select.labels.match_labels.unwrap()["tier"], "gold");
    let mapped = [("fast", "ssd"), ("slow", "slow")].map(|(t, h)| (t.to_owned(), h.to_owned()));
    assert_eq!(rules.classes.mapped, mapped.into());
    assert_eq!(rules.classes.default.as_deref(), Some("fast"));
    assert_eq!(rules.binder, Binder::Carrick);
}

#[test]
fn everything_wrong_is_told_at_once() {
    let wrong = rules(&tenant(&json!({
        "cluster": " ",
        "kubeconfig": {"secretRef": {"namespace": "", "name": "", "key": ""}},
        "select": {"namespaces": {"include": [""]},
                   "labelSelector": {"matchExpressions": [{"key": "tier", "operator": "In"}]}},
        "storageClasses": {"allowed": [{"tenant": "a"}, {"tenant": "a"}, {"tenant": "a"},
                                       {"tenant": "Not/One"}, {"tenant": "b", "host": ""}],
                           "default": "c"},
        "volumeAttributesClasses": {"default": "gold"},
        "weight": 0,
    })))
    .unwrap_err();
    let expected = [
        "spec.cluster is empty",
        "secretRef.namespace is empty",
        "secretRef.name is empty",
        "secretRef.key is empty",
        "empty pattern",
        "\"In\" with 0 values on \"tier\"",
        "\"a\" is listed more than once",
        "\"Not/One\" is no name",
        "\"Not/One\" is no name",
        "only maps to itself",
        "spec.storageClasses.default: \"c\" is not among",
        "spec.volumeAttributesClasses.default: \"gold\" is not among",
        "spec.weight is 0",
    ];
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    for (wrong, expected) in wrong.iter().zip(expected) {
        assert!(wrong.contains(expected), "{wrong:?} without {expected:?}");
    }
}

#[test]
fn the_binder_is_set_or_found_out() {
    for (set, found, expected) in [
        ("Auto", None, Binder::Unknown),
        ("Auto", Some(DetectedBinder::Tenant), Binder::Tenant),
        ("Auto", Some(DetectedBinder::Carrick), Binder::Carrick),
        ("Tenant", Some(DetectedBinder::Carrick), Binder::Tenant),
        ("Carrick", Some(DetectedBinder::Tenant), Binder::Carrick),
    ] {
        let mut tenant = tenant(&json!({"volumeBinder": set}));
        tenant.status = Some(TenantStatus { binder: found, ..TenantStatus::default() });
        assert_eq!(rules(&tenant).unwrap().binder, expected, "{set} {found:?}");
    }
}

#[test]
fn a_logical_cluster_belongs_to_the_oldest_tenant() {
    let named = |name: &str, cluster: &str, created: &str| {
        let mut tenant = tenant(&json!({"cluster": cluster}));
        tenant.metadata.name = Some(name.to_owned());
        tenant.metadata.creation_timestamp = serde_json::from_value(json!(created)).unwrap();
        tenant
    };
    let all = [
        named("b", "one", "2026-01-01T00:00:00Z"),
        named("a", "one", "2026-01-02T00:00:00Z"),
        named("c", "one", "2026-01-01T00:00:00Z"),
        named("d", "two", "2026-01-03T00:00:00Z"),
    ];
    let owners: Vec<_> = all.iter().map(|tenant| cluster_owner(tenant, &all)).collect();
    assert_eq!(owners, [None, Some("b".to_owned()), Some("b".to_owned()), None]);
}
