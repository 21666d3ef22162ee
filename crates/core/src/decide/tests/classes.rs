//! The classes that a tenant sees.

use serde_json::{Value, json};

use crate::{
    decide::{
        classes::decide,
        fixtures::{
            TENANT, World, assert_done, assert_ignored, assert_refused, created, only_write,
        },
    },
    fact::TenantFacts,
    names::{DEFAULT_CLASS, PROVISIONER},
    policy::ClassRules,
    subject::Facet,
    write::{Action, Decision, Kind, Side},
};

/// A tenant with the class `fast` (`ssd` on the host), and what is known of it.
struct Classes {
    world: World,
    facts: TenantFacts,
}

impl Classes {
    fn new() -> Self {
        let mut classes = Self { world: World::new(), facts: TenantFacts::new(TENANT) };
        classes.on_host("ssd", &json!({}));
        classes
    }

    fn on_host(&mut self, name: &str, patch: &Value) {
        let mut class = json!({
            "metadata": {"name": name, "resourceVersion": "1"},
            "provisioner": "csi.example", "reclaimPolicy": "Retain", "allowVolumeExpansion": true,
            "volumeBindingMode": "WaitForFirstConsumer", "parameters": {"secret": "x"},
        });
        json_patch::merge(&mut class, patch);
        self.facts.insert(&Facet::HostClass(name.to_owned()), false, class).unwrap();
    }

    fn decide(&self) -> Decision {
        decide(&self.facts, &self.world.policy, self.world.now)
    }

    /// Writes, and knows what is there then.
    fn settle(&mut self) -> usize {
        let decision = self.decide();
        self.world.apply_all(&decision);
        self.read();
        decision.writes.len()
    }

    fn read(&mut self) {
        let of_tenant = self.world.tenant.history.iter();
        for (id, versions) in of_tenant.filter(|(id, _)| id.0 == Kind::Class) {
            let (class, deleted) = versions.last().unwrap().clone();
            self.facts.insert(&Facet::TenantClass(id.2.clone()), deleted, class).unwrap();
        }
    }

    /// Somebody in the tenant puts this class there.
    fn put(&mut self, name: &str, class: Value) {
        self.world.tenant.put((Kind::Class, None, name.to_owned()), class);
        self.read();
    }

    fn see(&self, name: &str) -> Value {
        self.world.tenant.get(&(Kind::Class, None, name.to_owned())).unwrap().clone()
    }
}

#[test]
fn a_class_is_published_under_the_tenants_name_and_without_the_hosts_secrets() {
    let mut classes = Classes::new();
    let decision = classes.decide();
    let write = only_write(&decision);
    assert_eq!((write.object.side, write.object.name.as_str()), (Side::Tenant, "fast"));
    let names = &classes.world.policy.names;
    assert_eq!(
        created(write),
        &json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": "fast", "labels": {(names.cluster()): names.key()}},
            "provisioner": PROVISIONER, "reclaimPolicy": "Retain", "allowVolumeExpansion": true,
            "volumeBindingMode": "Immediate",
        })
    );
    assert_eq!(classes.settle(), 1);
    assert_done(&classes.decide());
}

#[test]
fn a_class_follows_the_host_and_the_rules() {
    let mut classes = Classes::new();
    classes.settle();
    let changed = json!({"allowVolumeExpansion": false, "metadata": {"resourceVersion": "2"}});
    classes.on_host("ssd", &changed);
    assert_eq!(classes.settle(), 1);
    assert_eq!(classes.see("fast")["allowVolumeExpansion"], false);
    classes.world.policy.tenant.classes.default = Some("fast".to_owned());
    assert_eq!(classes.settle(), 1);
    assert_eq!(classes.see("fast")["metadata"]["annotations"][DEFAULT_CLASS], "true");
    classes.world.policy.tenant.classes.default = None;
    assert_eq!(classes.settle(), 1);
    assert_eq!(classes.see("fast")["metadata"]["annotations"][DEFAULT_CLASS], "false");
    assert_done(&classes.decide());
}

#[test]
fn the_default_class_is_marked_from_the_beginning() {
    let mut classes = Classes::new();
    classes.world.policy.tenant.classes.default = Some("fast".to_owned());
    let decision = classes.decide();
    let class = created(only_write(&decision));
    assert_eq!(class["metadata"]["annotations"], json!({(DEFAULT_CLASS): "true"}));
}

#[test]
fn a_class_of_the_tenants_own_is_left_alone_and_holds_up_no_other() {
    let label = |key: String, value: &str| json!({"labels": {(key): value}});
    let (cluster, key) = {
        let names = World::new().policy.names;
        (names.cluster(), names.key().to_owned())
    };
    for (meta, provisioner) in [
        (json!({}), "own.example"),
        (label(cluster.clone(), &key), "own.example"),
        (label(cluster, "another"), PROVISIONER),
    ] {
        let mut classes = Classes::new();
        let own = json!({"kind": "StorageClass", "metadata": meta, "provisioner": provisioner});
        let mut named = own.clone();
        json_patch::merge(&mut named, &json!({"metadata": {"name": "fast", "uid": "own"}}));
        classes.put("fast", named);
        assert_refused(&classes.decide(), "ClassCollision");
        let rules = &mut classes.world.policy.tenant.classes;
        rules.mapped.insert("other".to_owned(), "ssd".to_owned());
        let decision = classes.decide();
        assert_eq!(only_write(&decision).object.name, "other");
        classes.settle();
        assert_refused(&classes.decide(), "ClassCollision");
        assert_eq!(classes.see("fast")["provisioner"], provisioner);
    }
}

#[test]
fn only_what_the_host_has_and_the_rules_allow_is_published() {
    let mut classes = Classes::new();
    classes.on_host("disk", &json!({}));
    classes.world.policy.tenant.classes = ClassRules {
        allow_all: true,
        mapped: [("gone".to_owned(), "missing".to_owned())].into(),
        default: None,
    };
    let decision = classes.decide();
    let names: Vec<_> = decision.writes.iter().map(|write| write.object.name.as_str()).collect();
    assert_eq!(names, ["disk", "ssd"]);
    assert!(decision.writes.iter().all(|write| matches!(write.action, Action::Create(_))));
    classes.world.policy.tenant.classes = ClassRules::default();
    assert_done(&classes.decide());
    let gone = json!({"metadata": {"name": "ssd", "resourceVersion": "9"}, "provisioner": "x"});
    let mut classes = Classes::new();
    classes.facts.insert(&Facet::HostClass("ssd".to_owned()), true, gone).unwrap();
    assert_done(&classes.decide());
}

#[test]
fn a_paused_tenant_gets_no_classes() {
    let mut classes = Classes::new();
    classes.world.policy.tenant.paused = true;
    assert_ignored(&classes.decide());
}

#[test]
fn a_class_that_its_tenant_takes_our_label_off_is_still_ours() {
    let mut classes = Classes::new();
    classes.settle();
    let mut stripped = classes.see("fast");
    stripped["metadata"]["labels"] = json!(null);
    classes.put("fast", stripped);
    assert_eq!(classes.settle(), 1);
    let names = &classes.world.policy.names;
    assert_eq!(classes.see("fast")["metadata"]["labels"][names.cluster()], names.key());
    assert_done(&classes.decide());
}

#[test]
fn a_class_is_withdrawn_when_it_is_not_allowed_or_gone_from_the_host() {
    let gone = |classes: &mut Classes| {
        let class =
            json!({"metadata": {"name": "ssd", "resourceVersion": "9"}, "provisioner": "x"});
        classes.facts.insert(&Facet::HostClass("ssd".to_owned()), true, class).unwrap();
    };
    let forbidden =
        |classes: &mut Classes| classes.world.policy.tenant.classes = ClassRules::default();
    let removed = |classes: &mut Classes| classes.world.policy.tenant.removing = true;
    let changes: [fn(&mut Classes); 3] = [gone, forbidden, removed];
    for change in changes {
        let mut classes = Classes::new();
        classes.settle();
        let own = json!({"kind": "StorageClass", "provisioner": "own.example",
                         "metadata": {"name": "own", "uid": "own"}});
        classes.put("own", own);
        change(&mut classes);
        let decision = classes.decide();
        let write = only_write(&decision);
        assert_eq!((write.object.name.as_str(), write.why), ("fast", "storage class withdrawn"));
        assert_eq!(classes.settle(), 1);
        assert_done(&classes.decide());
    }
    // Of the host's classes nothing is known yet.
    let mut classes = Classes::new();
    classes.settle();
    classes.facts.host_classes.clear();
    assert_done(&classes.decide());
}

#[test]
fn another_reclaim_policy_of_the_host_makes_the_class_anew() {
    let mut classes = Classes::new();
    classes.settle();
    let changed = json!({"reclaimPolicy": "Delete", "metadata": {"resourceVersion": "2"}});
    classes.on_host("ssd", &changed);
    assert_eq!(classes.settle(), 1);
    assert_eq!(classes.settle(), 1);
    assert_eq!(classes.see("fast")["reclaimPolicy"], "Delete");
    assert_done(&classes.decide());
}
