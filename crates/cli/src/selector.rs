//! `TENANT[/NAMESPACE[/CLAIM]]`: which claims a command is about.

use std::str::FromStr;

use carrick_core::{
    ClaimKey, Scope,
    subject::{decode, encode},
};

/// All claims, or those of a tenant, of a namespace, or one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector(Vec<String>);

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('/').map(str::to_owned).collect();
        // A name that no token can stand for is no name in Kubernetes either.
        let is_name = |part: &String| decode(&encode(part)).as_ref() == Some(part);
        if parts.len() > 3 || !parts.iter().all(is_name) {
            return Err(format!(
                "{text:?} is not TENANT[/NAMESPACE[/CLAIM]], e.g. acme/team-a/data"
            ));
        }
        Ok(Self(parts))
    }
}

impl Selector {
    /// What it selects, for lists.
    pub(crate) fn scope(&self) -> Scope {
        match &self.0[..] {
            [tenant, namespace, claim] => Scope::Claim(ClaimKey::new(tenant, namespace, claim)),
            [tenant, namespace] => {
                Scope::Namespace { tenant: tenant.clone(), namespace: namespace.clone() }
            }
            parts => Scope::Tenant { tenant: parts.first().cloned().unwrap_or_default() },
        }
    }

    /// What it selects, behind the family in subjects.
    pub(crate) fn filter(selector: Option<&Self>) -> String {
        let parts = selector.map(|selector| selector.0.as_slice()).unwrap_or_default();
        parts.iter().map(|part| encode(part) + ".").collect::<String>() + ">"
    }
}

/// A scope as it is spoken of.
pub(crate) fn named(scope: &Scope) -> String {
    let what = match scope {
        Scope::Claim(_) => "claim",
        Scope::Namespace { .. } => "namespace",
        Scope::Tenant { .. } => "tenant",
    };
    format!("{what} {scope}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_names_a_tenant_a_namespace_or_a_claim() {
        let parse = |text: &str| text.parse::<Selector>();
        let tenant = Scope::Tenant { tenant: "acme".into() };
        assert_eq!(parse("acme").unwrap().scope(), tenant);
        let namespace = Scope::Namespace { tenant: "acme".into(), namespace: "team-a".into() };
        assert_eq!(parse("acme/team-a").unwrap().scope(), namespace);
        let claim = parse("acme/team-a/data.v1").unwrap();
        assert_eq!(claim.scope(), Scope::Claim(ClaimKey::new("acme", "team-a", "data.v1")));
        assert_eq!(Selector::filter(Some(&claim)), "acme.team-a.data_v1.>");
        assert_eq!(Selector::filter(Some(&parse("acme").unwrap())), "acme.>");
        assert_eq!(Selector::filter(None), ">");
        for wrong in ["", "acme/", "/team-a", "a/b/c/d", "acme/*", "Acme", "a_b", "acme/-"] {
            assert!(parse(wrong).unwrap_err().contains("TENANT[/NAMESPACE[/CLAIM]]"), "{wrong}");
        }
    }
}
