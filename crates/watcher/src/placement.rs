//! Which facts an object is: the subjects it is filed under. Both sides are filed under the
//! *tenant's* namespace and claim name. Pure.

use std::collections::BTreeMap;

use carrick_core::{
    ClaimKey, Facet, FactSubject, Kind, Locator, Names, Scope, Side, SyncTarget, claim_ref,
    policy::ClassRules,
};
use serde_json::Value;

/// The kinds that are watched, on both sides.
pub(crate) const KINDS: [Kind; 4] = [Kind::Namespace, Kind::Claim, Kind::Volume, Kind::Class];

/// Longest name of a Kubernetes object.
const LONGEST_NAME: usize = 253;

/// Side and kind of the objects that a facet is about.
pub(crate) fn origin(facet: &Facet) -> (Side, Kind) {
    match facet {
        Facet::TenantClaim => (Side::Tenant, Kind::Claim),
        Facet::HostClaim => (Side::Host, Kind::Claim),
        Facet::TenantVolume(_) => (Side::Tenant, Kind::Volume),
        Facet::HostVolume(_) => (Side::Host, Kind::Volume),
        Facet::TenantNamespace => (Side::Tenant, Kind::Namespace),
        Facet::HostNamespace => (Side::Host, Kind::Namespace),
        Facet::TenantClass(_) => (Side::Tenant, Kind::Class),
        Facet::HostClass(_) => (Side::Host, Kind::Class),
    }
}

/// A text of an object; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// An object's name.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// An object's namespace; empty for a cluster-scoped one.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// Namespace and name of the claim that a volume's claimRef names.
pub(crate) fn claim_of(volume: &Value) -> (&str, &str) {
    (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"))
}

/// Where an object of a tenant is filed; `None` for a volume that names no claim.
pub(crate) fn of_tenant(
    target: &str,
    tenant: &str,
    kind: Kind,
    object: &Value,
) -> Option<FactSubject> {
    let name = name(object).to_owned();
    let tenant = tenant.to_owned();
    let (scope, facet) = match kind {
        Kind::Claim => {
            let key = ClaimKey::new(tenant, namespace(object), name);
            (Scope::Claim(key), Facet::TenantClaim)
        }
        Kind::Volume => {
            let (namespace, claim) = claim_of(object);
            let key = ClaimKey::new(tenant, namespace, claim);
            (Scope::Claim(key), Facet::TenantVolume(name))
        }
        Kind::Namespace => (Scope::Namespace { tenant, namespace: name }, Facet::TenantNamespace),
        Kind::Class => (Scope::Tenant { tenant }, Facet::TenantClass(name)),
        Kind::Event => return None,
    };
    subject(target, scope, facet)
}

/// A Tenant, as far as it matters for what of the host is its.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostTenant {
    /// The Tenant's name.
    pub(crate) name: String,
    /// Its logical cluster.
    pub(crate) cluster: String,
    /// Which classes it may use.
    pub(crate) classes: ClassRules,
}

/// A tenant's namespace that a host namespace was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The Tenant's name.
    pub(crate) tenant: String,
    /// The namespace in the tenant.
    pub(crate) namespace: String,
}

/// What of the host is whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostView {
    target: SyncTarget,
    names: Names,
    tenants: BTreeMap<String, HostTenant>,
}

impl HostView {
    /// The host as these Tenants share it.
    pub(crate) fn new(
        target: SyncTarget,
        names: Names,
        tenants: impl IntoIterator<Item = HostTenant>,
    ) -> Self {
        let by_cluster = tenants.into_iter().map(|t| (t.cluster.clone(), t));
        Self { target, names, tenants: by_cluster.collect() }
    }

    /// The Tenants' names.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &str> {
        self.tenants.values().map(|tenant| tenant.name.as_str())
    }

    /// Selector of the host namespaces that carry this sync target's label.
    pub(crate) fn selector(&self) -> String {
        format!("{}={}", self.names.cluster(), self.names.key())
    }

    /// Whose a host namespace is. It must have our label, a locator of ours with a Tenant's
    /// cluster, and the name that the locator gives: so no two namespaces are the same one's.
    pub(crate) fn owner(&self, object: &Value) -> Option<Owner> {
        let label = member(object, "labels", &self.names.cluster());
        if label != Some(self.names.key()) {
            return None;
        }
        let (tenant, locator) = self.locator(object)?;
        (!locator.namespace.is_empty() && locator.host_namespace() == name(object))
            .then(|| Owner { tenant: tenant.name.clone(), namespace: locator.namespace.clone() })
    }

    /// Where a host namespace is filed.
    pub(crate) fn namespace(&self, owner: &Owner) -> Option<FactSubject> {
        let Owner { tenant, namespace } = owner.clone();
        let scope = Scope::Namespace { tenant, namespace };
        subject(&self.target.name, scope, Facet::HostNamespace)
    }

    /// Where a claim in a host namespace of ours is filed.
    pub(crate) fn claim(&self, owner: &Owner, object: &Value) -> Option<FactSubject> {
        self.of_claim(owner, name(object), Facet::HostClaim)
    }

    /// Where a volume is filed whose claimRef points into a host namespace of ours.
    pub(crate) fn volume_in(&self, owner: &Owner, object: &Value) -> Option<FactSubject> {
        let facet = Facet::HostVolume(name(object).to_owned());
        self.of_claim(owner, claim_of(object).1, facet)
    }

    /// Where a volume with our locator is filed when its claimRef does not say it (any more): under
    /// the tenant's claim that it was carried up for.
    pub(crate) fn volume_by_marks(&self, object: &Value) -> Option<FactSubject> {
        let (tenant, locator) = self.locator(object)?;
        if !locator.namespace.is_empty() {
            return None;
        }
        let diff = member(object, "annotations", &self.names.diff())?;
        let claim = claim_ref::parse_diff(diff).ok()?;
        let owner = Owner { tenant: tenant.name.clone(), namespace: claim.namespace? };
        let facet = Facet::HostVolume(name(object).to_owned());
        self.of_claim(&owner, &claim.name?, facet)
    }

    /// Where a storage class is filed: under each Tenant that it may matter to.
    pub(crate) fn class(&self, object: &Value) -> Vec<FactSubject> {
        let class = name(object);
        let concerned = self.tenants.values().filter(|t| t.classes.concerns(class));
        concerned
            .filter_map(|tenant| {
                let scope = Scope::Tenant { tenant: tenant.name.clone() };
                let facet = Facet::HostClass(class.to_owned());
                subject(&self.target.name, scope, facet)
            })
            .collect()
    }

    fn of_claim(&self, owner: &Owner, claim: &str, facet: Facet) -> Option<FactSubject> {
        let key = ClaimKey::new(owner.tenant.as_str(), owner.namespace.as_str(), claim);
        subject(&self.target.name, Scope::Claim(key), facet)
    }

    fn locator(&self, object: &Value) -> Option<(&HostTenant, Locator)> {
        let text = member(object, "annotations", &self.names.locator())?;
        let locator = Locator::parse(text).ok()?;
        if locator.target != self.target {
            return None;
        }
        Some((self.tenants.get(&locator.cluster)?, locator))
    }
}

/// A label or annotation.
fn member<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get(map)?.get(key)?.as_str()
}

/// A subject whose names are names. What a tenant writes into a claimRef may be anything, also
/// wildcards or megabytes.
fn subject(target: &str, scope: Scope, facet: Facet) -> Option<FactSubject> {
    let mut names = vec![scope.tenant()];
    match &scope {
        Scope::Claim(key) => names.extend([key.namespace.as_str(), key.claim.as_str()]),
        Scope::Namespace { namespace, .. } => names.push(namespace),
        Scope::Tenant { .. } => {}
    }
    names.extend(facet.name());
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let is_name =
        |n: &str| (1..=LONGEST_NAME).contains(&n.len()) && n != "-" && n.chars().all(legal);
    names.into_iter().all(is_name).then(|| FactSubject { target: target.to_owned(), scope, facet })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use carrick_core::Domain;
    use serde_json::json;

    pub(crate) fn target() -> SyncTarget {
        SyncTarget { cluster: "root".into(), name: "main".into(), uid: "host-uid".into() }
    }

    pub(crate) fn names() -> Names {
        Names::new(Domain::KcpDev, target().key())
    }

    pub(crate) fn view() -> HostView {
        let tenant = |name: &str, cluster: &str, classes| HostTenant {
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            classes,
        };
        let some = ClassRules {
            mapped: [("fast".to_owned(), "ssd".to_owned())].into(),
            ..ClassRules::default()
        };
        let all = ClassRules { allow_all: true, ..ClassRules::default() };
        let tenants = [tenant("acme", "root:acme", some), tenant("beta", "b", all)];
        HostView::new(target(), names(), tenants)
    }

    pub(crate) fn locator(cluster: &str, namespace: &str) -> Locator {
        Locator { target: target(), cluster: cluster.into(), namespace: namespace.into() }
    }

    /// The host namespace of a tenant's namespace.
    pub(crate) fn host_namespace(cluster: &str, namespace: &str, rv: u64) -> Value {
        let locator = locator(cluster, namespace);
        let name = locator.host_namespace();
        json!({"metadata": {
            "name": name, "uid": format!("uid-{name}"), "resourceVersion": rv.to_string(),
            "labels": {names().cluster(): names().key()},
            "annotations": {names().locator(): locator.to_json()},
        }})
    }

    /// A volume whose claimRef names this claim.
    pub(crate) fn volume(name: &str, namespace: &str, claim: &str, rv: u64) -> Value {
        json!({
            "metadata": {
                "name": name, "uid": format!("uid-{name}"), "resourceVersion": rv.to_string(),
            },
            "spec": {"claimRef": {"namespace": namespace, "name": claim}},
        })
    }

    fn shown(subject: Option<FactSubject>) -> String {
        subject.map(|s| s.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_tenants_objects_are_filed_by_what_they_say() {
        let claim = json!({"metadata": {"name": "data.v1", "namespace": "team-a"}});
        let named = json!({"metadata": {"name": "x"}});
        let free = json!({"metadata": {"name": "pv-1"}, "spec": {}});
        for (kind, object, expected) in [
            (Kind::Claim, claim, "carrick.v1.main.fact.acme.team-a.data_v1.tenant-claim"),
            (
                Kind::Volume,
                volume("pv-1", "team-a", "data", 1),
                "carrick.v1.main.fact.acme.team-a.data.tenant-volume.pv-1",
            ),
            (Kind::Volume, free, ""),
            (Kind::Namespace, named.clone(), "carrick.v1.main.fact.acme.x.-.tenant-namespace"),
            (Kind::Class, named, "carrick.v1.main.fact.acme.-.-.tenant-class.x"),
        ] {
            let subject = of_tenant("main", "acme", kind, &object);
            assert_eq!(shown(subject), expected, "{kind:?}");
        }
    }

    #[test]
    fn what_a_tenant_writes_into_a_claim_ref_is_no_subject_by_itself() {
        let long = "a".repeat(LONGEST_NAME + 1);
        for (namespace, claim) in [
            ("*", "data"),
            ("team-a", ">"),
            ("team-a", "a b"),
            ("-", "data"),
            ("team_a", "data"),
            ("team-a", ""),
            ("team-a", long.as_str()),
        ] {
            let object = volume("pv-1", namespace, claim, 1);
            assert_eq!(of_tenant("main", "acme", Kind::Volume, &object), None);
        }
    }

    #[test]
    fn a_host_namespace_needs_label_locator_tenant_and_name() {
        let good = host_namespace("root:acme", "team-a", 1);
        let owner = view().owner(&good).unwrap();
        assert_eq!((owner.tenant.as_str(), owner.namespace.as_str()), ("acme", "team-a"));
        assert_eq!(
            shown(view().namespace(&owner)),
            "carrick.v1.main.fact.acme.team-a.-.host-namespace"
        );
        let wrong = |change: &dyn Fn(&mut Value)| {
            let mut object = good.clone();
            change(&mut object["metadata"]);
            view().owner(&object)
        };
        let elsewhere = Locator {
            target: SyncTarget { uid: "other".into(), ..target() },
            ..locator("root:acme", "team-a")
        };
        let stranger = locator("nobody", "team-a");
        assert_eq!(wrong(&|m| m["labels"] = json!({})), None);
        assert_eq!(wrong(&|m| m["annotations"] = json!({})), None);
        assert_eq!(wrong(&|m| m["name"] = json!("copied")), None);
        for other in [elsewhere, stranger] {
            let change = |m: &mut Value| {
                m["name"] = json!(other.host_namespace());
                m["annotations"] = json!({names().locator(): other.to_json()});
            };
            assert_eq!(wrong(&change), None);
        }
    }

    #[test]
    fn a_host_volume_is_filed_by_its_claim_ref_or_else_by_its_marks() {
        let owner = Owner { tenant: "acme".into(), namespace: "team-a".into() };
        let expected = "carrick.v1.main.fact.acme.team-a.data.host-volume.pv-1";
        let mut object = volume("pv-1", "kcp-x", "data", 1);
        assert_eq!(shown(view().volume_in(&owner, &object)), expected);
        assert_eq!(view().volume_by_marks(&object), None);
        let diff = json!([{"op": "replace", "path": "/spec/claimRef", "value": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": "team-a", "name": "data", "uid": "u", "resourceVersion": "1",
        }}]);
        object["metadata"]["annotations"] = json!({
            names().locator(): locator("root:acme", "").to_json(),
            names().diff(): diff.to_string(),
        });
        assert_eq!(shown(view().volume_by_marks(&object)), expected);
    }

    #[test]
    fn a_class_is_filed_under_each_tenant_that_may_use_it() {
        let tenants = |class: &str| {
            let subjects = view().class(&json!({"metadata": {"name": class}}));
            let tenants = subjects.iter().map(|s| s.scope.tenant().to_owned());
            tenants.collect::<Vec<_>>()
        };
        assert_eq!(tenants("ssd"), ["beta", "acme"]);
        assert_eq!(tenants("disk"), ["beta"]);
    }
}
