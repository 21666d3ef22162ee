//! Whether a Tenant may be acted on: it is valid, nobody else's, and who it was. Pure.

use std::collections::BTreeMap;

use carrick_k8s::{
    Tenant,
    problem::IDENTITY_CHANGED,
    tenant::{ACCEPTED, cluster_owner},
};
use kube::ResourceExt as _;

/// Reason: the spec is not valid.
pub(crate) const INVALID: &str = "Invalid";
/// Reason: an older Tenant has the same logical cluster.
pub(crate) const CLUSTER_TAKEN: &str = "ClusterTaken";
/// Reason: its control plane is the host.
pub(crate) const HOST_ITSELF: &str = "HostItself";
/// Reason: its control plane is another Tenant's.
pub(crate) const DUPLICATE_CONTROL_PLANE: &str = "DuplicateControlPlane";

/// A Tenant, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// The Tenant.
    pub(crate) tenant: &'a Tenant,
    /// All that is wrong with its spec.
    pub(crate) invalid: &'a [String],
    /// The identity that its control plane told; `None` while it could not be asked.
    pub(crate) live: Option<&'a str>,
}

/// Whether a Tenant may be acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may, at this control plane.
    Accepted(String),
    /// It could not be asked yet. What was said before holds; `true`: that it may.
    Unknown(bool),
    /// It may not: reason and message.
    Refused(&'static str, String),
}

/// Decides on all Tenants, by name.
pub(crate) fn decide(candidates: &[Candidate<'_>], host: &str) -> BTreeMap<String, Verdict> {
    let mut clusters: BTreeMap<String, Vec<&Tenant>> = BTreeMap::new();
    let mut planes: BTreeMap<&str, &Tenant> = BTreeMap::new();
    for candidate in candidates {
        let tenant = candidate.tenant;
        clusters.entry(tenant.cluster()).or_default().push(tenant);
        if let Some(identity) = pinned(tenant).or(candidate.live) {
            let owner = planes.entry(identity).or_insert(tenant);
            if right(tenant) < right(owner) {
                *owner = tenant;
            }
        }
    }
    let verdict = |candidate: &Candidate<'_>| {
        let tenant = candidate.tenant;
        let same_cluster = clusters.get(&tenant.cluster()).into_iter().flatten();
        if !candidate.invalid.is_empty() {
            return Verdict::Refused(INVALID, candidate.invalid.join("; "));
        }
        if let Some(owner) = cluster_owner(tenant, same_cluster.copied()) {
            let message = format!(
                "its logical cluster {:?} is that of Tenant {owner}, which is older",
                tenant.cluster()
            );
            return Verdict::Refused(CLUSTER_TAKEN, message);
        }
        match candidate.live {
            None => Verdict::Unknown(tenant.is(ACCEPTED)),
            Some(live) => of_plane(tenant, live, host, planes.get(live).copied()),
        }
    };
    candidates.iter().map(|candidate| (candidate.tenant.name_any(), verdict(candidate))).collect()
}

fn of_plane(tenant: &Tenant, live: &str, host: &str, owner: Option<&Tenant>) -> Verdict {
    if live == host {
        let message = "its kubeconfig leads to the host itself".to_owned();
        return Verdict::Refused(HOST_ITSELF, message);
    }
    if let Some(pinned) = pinned(tenant).filter(|pinned| *pinned != live) {
        let message = format!(
            "its control plane is {live:?}, but was first seen as {pinned:?}: put the kubeconfig \
             back, or make another Tenant for it"
        );
        return Verdict::Refused(IDENTITY_CHANGED, message);
    }
    match owner.filter(|owner| owner.name_any() != tenant.name_any()) {
        Some(owner) => Verdict::Refused(
            DUPLICATE_CONTROL_PLANE,
            format!("its control plane is that of Tenant {}", owner.name_any()),
        ),
        None => Verdict::Accepted(live.to_owned()),
    }
}

fn pinned(tenant: &Tenant) -> Option<&str> {
    tenant.status.as_ref()?.identity.as_deref()
}

/// Of two Tenants of one control plane, the lesser has it: what was accepted once stays so, else
/// the older.
fn right(tenant: &Tenant) -> impl Ord + use<> {
    let created = tenant.creation_timestamp();
    (pinned(tenant).is_none(), created, tenant.name_any())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// A Tenant made at that second, with this pinned identity.
    pub(crate) fn tenant(name: &str, second: u32, pinned: Option<&str>) -> Tenant {
        let mut tenant = json!({
            "apiVersion": "carrick.dev/v1alpha1",
            "kind": "Tenant",
            "metadata": {
                "name": name, "uid": name, "generation": 1,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {"kubeconfig": {"secretRef": {"namespace": "default", "name": name}}},
        });
        if let Some(identity) = pinned {
            tenant["status"] = json!({"identity": identity});
        }
        serde_json::from_value(tenant).unwrap()
    }

    /// The reasons, by name; empty for accepted, `?` for unknown.
    fn reasons(tenants: &[(&Tenant, Option<&str>)]) -> Vec<(String, &'static str)> {
        let candidate = |(tenant, live): &(&Tenant, Option<&'static str>)| Candidate {
            tenant: Box::leak(Box::new((*tenant).clone())),
            invalid: &[],
            live: *live,
        };
        let leaked: Vec<_> =
            tenants.iter().map(|(t, live)| (*t, live.map(|l| &*l.to_owned().leak()))).collect();
        let candidates: Vec<_> = leaked.iter().map(candidate).collect();
        let reason = |verdict| match verdict {
            Verdict::Accepted(_) => "",
            Verdict::Unknown(_) => "?",
            Verdict::Refused(reason, _) => reason,
        };
        let verdicts = decide(&candidates, "host").into_iter();
        verdicts.map(|(name, v)| (name, reason(v))).collect()
    }

    fn expect(tenants: &[(&Tenant, Option<&str>)], expected: &[(&str, &str)]) {
        let found = reasons(tenants);
        let found: Vec<_> = found.iter().map(|(n, r)| (n.as_str(), *r)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_host_and_a_changed_control_plane_are_refused() {
        let (new, old) = (tenant("new", 1, None), tenant("old", 1, Some("x")));
        expect(&[(&new, Some("a"))], &[("new", "")]);
        expect(&[(&new, None)], &[("new", "?")]);
        expect(&[(&new, Some("host"))], &[("new", HOST_ITSELF)]);
        expect(&[(&old, Some("x"))], &[("old", "")]);
        expect(&[(&old, Some("y"))], &[("old", IDENTITY_CHANGED)]);
    }

    #[test]
    fn one_control_plane_is_one_tenants() {
        let (a, b) = (tenant("a", 2, None), tenant("b", 1, None));
        let refused = DUPLICATE_CONTROL_PLANE;
        expect(&[(&a, Some("x")), (&b, Some("x"))], &[("a", refused), ("b", "")]);
        let same_age = tenant("b", 2, None);
        expect(&[(&a, Some("x")), (&same_age, Some("x"))], &[("a", ""), ("b", refused)]);
        // Who was accepted once stays so, also while it can't be reached.
        let pinned = tenant("a", 2, Some("x"));
        expect(&[(&pinned, None), (&b, Some("x"))], &[("a", "?"), ("b", refused)]);
        // One that was led astray takes nothing from anybody.
        let astray = tenant("b", 1, Some("z"));
        expect(
            &[(&pinned, Some("x")), (&astray, Some("x"))],
            &[("a", ""), ("b", IDENTITY_CHANGED)],
        );
    }

    #[test]
    fn a_logical_cluster_is_the_older_tenants() {
        let (mut a, b) = (tenant("a", 2, None), tenant("b", 1, None));
        a.spec.cluster = Some("b".into());
        expect(&[(&a, Some("x")), (&b, None)], &[("a", CLUSTER_TAKEN), ("b", "?")]);
    }

    #[test]
    fn an_invalid_spec_tells_all_that_is_wrong() {
        let tenant = tenant("a", 1, None);
        let invalid = ["one".to_owned(), "two".to_owned()];
        let candidate = Candidate { tenant: &tenant, invalid: &invalid, live: Some("x") };
        let refused = Verdict::Refused(INVALID, "one; two".into());
        assert_eq!(decide(&[candidate], "host")["a"], refused);
    }
}
