//! What a tenant may do: the rules of its Tenant object, as the decisions see them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::{
    identity::{Locator, SyncTarget},
    names::{Domain, Names, SYNC},
};

/// The installation and one of its tenants.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// This installation.
    pub target: SyncTarget,
    /// Its names.
    pub names: Names,
    /// The tenant's rules.
    pub tenant: TenantRules,
}

impl Policy {
    /// The policy of one tenant.
    pub fn new(target: SyncTarget, domain: Domain, tenant: TenantRules) -> Self {
        let names = Names::new(domain, target.key());
        Self { target, names, tenant }
    }

    /// The locator of one of the tenant's namespaces; `""` for cluster-scoped objects.
    pub fn locator(&self, namespace: &str) -> Locator {
        Locator {
            target: self.target.clone(),
            cluster: self.tenant.cluster.clone(),
            namespace: namespace.to_owned(),
        }
    }
}

/// What a Tenant object says, without how to reach it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantRules {
    /// The Tenant's name.
    pub name: String,
    /// Logical cluster name in locators.
    pub cluster: String,
    /// Which claims are carried down.
    pub select: Selection,
    /// Which storage classes its claims may use.
    pub classes: ClassRules,
    /// Which volume attributes classes its claims may use.
    pub attributes_classes: ClassRules,
    /// Who binds claims in the tenant.
    pub binder: Binder,
    /// Whether everything about this tenant rests.
    pub paused: bool,
    /// Whether the Tenant is being removed with its host side (`onRemoval: Delete`): every claim of
    /// its is then taken off.
    pub removing: bool,
}

/// Who binds claims to volumes in a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Binder {
    /// No sign of a binder in the tenant so far: Carrick binds.
    #[default]
    Unknown,
    /// Carrick: the tenant has no binder, as in kcp.
    Carrick,
    /// The tenant's own kube-controller-manager, as in VirtualCluster.
    Tenant,
}

/// Which claims of a tenant are carried down.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Only claims with the label `state…/K: Sync`.
    pub labeled: bool,
    /// Patterns (`*` stands for any text) of which one must match the namespace; empty: all.
    pub include: Vec<String>,
    /// Patterns of which none may match the namespace.
    pub exclude: Vec<String>,
    /// Selector on the claim's labels.
    pub labels: LabelSelector,
}

impl Selection {
    /// Whether a claim in `namespace` with these labels is carried down.
    pub fn selects(
        &self,
        names: &Names,
        namespace: &str,
        labels: Option<&BTreeMap<String, String>>,
    ) -> bool {
        let empty = BTreeMap::new();
        let labels = labels.unwrap_or(&empty);
        let included =
            self.include.is_empty() || self.include.iter().any(|p| matches(p, namespace));
        let excluded = self.exclude.iter().any(|p| matches(p, namespace));
        let marked = !self.labeled || labels.get(&names.state()).is_some_and(|v| v == SYNC);
        included && !excluded && marked && selector_matches(&self.labels, labels)
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any text, also none.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len())
                .filter(|i| tail.is_char_boundary(*i))
                .any(|i| matches(rest, &tail[i..]))
        }),
    }
}

/// A Kubernetes label selector; an operator that is not known matches nothing.
fn selector_matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.clone().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|LabelSelectorRequirement { key, operator, values }| {
            let value = labels.get(key);
            let listed = value.is_some_and(|v| values.iter().flatten().any(|found| found == v));
            match operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// Which classes a tenant may use, and what they are on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassRules {
    /// Every class of the host, under its own name, is allowed besides those listed. `""` is none.
    pub allow_all: bool,
    /// Tenant name to host name. `""` is a class of its own, and only allowed if it is here: its
    /// claims take any volume of the host that is free and has no class, whoever made that.
    pub mapped: BTreeMap<String, String>,
    /// Tenant class for claims that name none. Without it they are refused: on a host without a
    /// default class they would take what claims of `""` take.
    pub default: Option<String>,
}

/// What a class of a tenant's claim is on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostClass {
    /// This class; `""` stays `""`.
    Named(String),
    /// The tenant may not use it.
    NotAllowed,
}

impl ClassRules {
    /// What the class named by a claim (`None`: it names none) is on the host.
    pub fn on_host(&self, class: Option<&str>) -> HostClass {
        match class.or(self.default.as_deref()) {
            Some(class) => match self.mapped.get(class) {
                Some(host) => HostClass::Named(host.clone()),
                None if self.allow_all && !class.is_empty() => HostClass::Named(class.to_owned()),
                None => HostClass::NotAllowed,
            },
            None => HostClass::NotAllowed,
        }
    }

    /// The tenant's name for a class of the host: the one that its claim uses, if that is it, else
    /// the first that stands for it; `None` if none does.
    pub fn in_tenant(&self, host: &str, named: Option<&str>) -> Option<String> {
        let stands_for = |name: &str| self.on_host(Some(name)) == HostClass::Named(host.to_owned());
        let mapped = self.mapped.iter().find(|(_, mapped)| *mapped == host);
        let known = named.filter(|name| stands_for(name));
        let known = known.or(mapped.map(|(name, _)| name.as_str()));
        known.map(str::to_owned).or_else(|| stands_for(host).then(|| host.to_owned()))
    }

    /// The classes to publish in the tenant, as (tenant name, host name), of those that the host
    /// has.
    pub fn published<'a>(
        &self,
        host_classes: impl IntoIterator<Item = &'a str>,
    ) -> BTreeMap<String, String> {
        let mut published = BTreeMap::new();
        for host in host_classes {
            if self.allow_all && !self.mapped.contains_key(host) {
                published.insert(host.to_owned(), host.to_owned());
            }
            for (tenant, _) in self.mapped.iter().filter(|(_, mapped)| *mapped == host) {
                published.insert(tenant.clone(), host.to_owned());
            }
        }
        published
    }

    /// Whether a class of the host may matter to the tenant under any name.
    pub fn concerns(&self, host_class: &str) -> bool {
        self.allow_all || self.mapped.values().any(|host| host == host_class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new(Domain::KcpDev, "K")
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("team-a", "team-a", true),
            ("team-a", "team-ab", false),
            ("kube-*", "kube-system", true),
            ("kube-*", "my-kube-system", false),
            ("*", "", true),
            ("*-prod", "shop-prod", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn selection_needs_namespace_mark_and_labels() {
        let mut selection = Selection { exclude: vec!["kube-*".into()], ..Selection::default() };
        assert!(selection.selects(&names(), "team-a", None));
        assert!(!selection.selects(&names(), "kube-system", None));
        selection.include = vec!["team-*".into()];
        assert!(!selection.selects(&names(), "other", None));
        selection.labeled = true;
        assert!(!selection.selects(&names(), "team-a", None));
        let marked = labels(&[("state.workload.kcp.dev/K", "Sync"), ("tier", "gold")]);
        assert!(selection.selects(&names(), "team-a", Some(&marked)));
        let require = |operator: &str, values: Option<Vec<String>>| LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "tier".into(),
                operator: operator.into(),
                values,
            }]),
            match_labels: None,
        };
        for (operator, values, expected) in [
            ("In", Some(vec!["gold".into()]), true),
            ("In", Some(vec!["tin".into()]), false),
            ("NotIn", Some(vec!["gold".into()]), false),
            ("Exists", None, true),
            ("DoesNotExist", None, false),
            ("Unheard", None, false),
        ] {
            selection.labels = require(operator, values);
            assert_eq!(
                selection.selects(&names(), "team-a", Some(&marked)),
                expected,
                "{operator}"
            );
        }
    }

    #[test]
    fn an_absent_class_and_an_empty_one_are_different() {
        let mapped = |pairs: &[(&str, &str)], allow_all, default: Option<&str>| ClassRules {
            allow_all,
            mapped: labels(pairs),
            default: default.map(str::to_owned),
        };
        let named = |name: &str| HostClass::Named(name.to_owned());
        for (rules, class, expected) in [
            (mapped(&[], false, None), Some("fast"), HostClass::NotAllowed),
            (mapped(&[], false, None), None, HostClass::NotAllowed),
            (mapped(&[], true, None), Some("fast"), named("fast")),
            (mapped(&[], true, None), None, HostClass::NotAllowed),
            (mapped(&[], true, None), Some(""), HostClass::NotAllowed),
            (mapped(&[], true, Some("")), None, HostClass::NotAllowed),
            (mapped(&[("fast", "ssd")], false, None), Some("fast"), named("ssd")),
            (mapped(&[("fast", "ssd")], false, None), Some("ssd"), HostClass::NotAllowed),
            (mapped(&[("fast", "ssd")], false, None), Some(""), HostClass::NotAllowed),
            (mapped(&[("fast", "ssd")], false, Some("fast")), None, named("ssd")),
            (mapped(&[("fast", "ssd")], false, Some("fast")), Some(""), HostClass::NotAllowed),
        ] {
            assert_eq!(rules.on_host(class), expected, "{rules:?} {class:?}");
        }
    }

    #[test]
    fn classes_are_published_under_the_tenants_names() {
        let rules = ClassRules {
            allow_all: true,
            mapped: labels(&[("fast", "ssd"), ("gone", "missing")]),
            default: None,
        };
        let published = rules.published(["ssd", "disk"]);
        assert_eq!(published, labels(&[("fast", "ssd"), ("ssd", "ssd"), ("disk", "disk")]));
    }
}
