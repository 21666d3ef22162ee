//! Subjects on the bus: `carrick.v1.<target>.{fact,step,dead}.<tenant>.<namespace>.<claim>.…`.
//!
//! A Kubernetes name may contain `.`, a token of a subject may not: `.` is written `_`, which no
//! Kubernetes name contains, so the encoding is injective. `-`, which is no Kubernetes name
//! either, stands where a level does not apply.

use std::fmt;

use crate::{
    fact::ClaimKey,
    step::{Outcome, Step},
};

/// What a fact is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Facet {
    /// The claim in the tenant.
    TenantClaim,
    /// The claim on the host.
    HostClaim,
    /// A volume in the tenant whose claimRef names the claim.
    TenantVolume(String),
    /// A volume of the host whose claimRef names the host claim.
    HostVolume(String),
    /// The namespace in the tenant.
    TenantNamespace,
    /// The host namespace that the tenant's namespace is carried to.
    HostNamespace,
    /// A StorageClass in the tenant.
    TenantClass(String),
    /// A StorageClass of the host that the tenant may use.
    HostClass(String),
}

impl Facet {
    /// The facet's own token.
    pub fn token(&self) -> &'static str {
        match self {
            Self::TenantClaim => "tenant-claim",
            Self::HostClaim => "host-claim",
            Self::TenantVolume(_) => "tenant-volume",
            Self::HostVolume(_) => "host-volume",
            Self::TenantNamespace => "tenant-namespace",
            Self::HostNamespace => "host-namespace",
            Self::TenantClass(_) => "tenant-class",
            Self::HostClass(_) => "host-class",
        }
    }

    /// The object's name, where the facet has one of its own.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::TenantVolume(name)
            | Self::HostVolume(name)
            | Self::TenantClass(name)
            | Self::HostClass(name) => Some(name),
            _ => None,
        }
    }

    fn parse(token: &str, name: Option<String>) -> Option<Self> {
        Some(match (token, name) {
            ("tenant-claim", None) => Self::TenantClaim,
            ("host-claim", None) => Self::HostClaim,
            ("tenant-namespace", None) => Self::TenantNamespace,
            ("host-namespace", None) => Self::HostNamespace,
            ("tenant-volume", Some(name)) => Self::TenantVolume(name),
            ("host-volume", Some(name)) => Self::HostVolume(name),
            ("tenant-class", Some(name)) => Self::TenantClass(name),
            ("host-class", Some(name)) => Self::HostClass(name),
            _ => return None,
        })
    }

    fn fits(&self, scope: &Scope) -> bool {
        match self {
            Self::TenantClaim | Self::HostClaim | Self::TenantVolume(_) | Self::HostVolume(_) => {
                matches!(scope, Scope::Claim(_))
            }
            Self::TenantNamespace | Self::HostNamespace => matches!(scope, Scope::Namespace { .. }),
            Self::TenantClass(_) | Self::HostClass(_) => matches!(scope, Scope::Tenant { .. }),
        }
    }
}

/// How much a message is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// One claim.
    Claim(ClaimKey),
    /// Every claim of a tenant's namespace.
    Namespace {
        /// The Tenant's name.
        tenant: String,
        /// The namespace in the tenant.
        namespace: String,
    },
    /// Every claim of a tenant.
    Tenant {
        /// The Tenant's name.
        tenant: String,
    },
}

impl Scope {
    /// The Tenant's name.
    pub fn tenant(&self) -> &str {
        match self {
            Self::Claim(key) => &key.tenant,
            Self::Namespace { tenant, .. } | Self::Tenant { tenant } => tenant,
        }
    }

    /// The scope's three tokens, `tenant.namespace.claim`.
    pub fn tokens(&self) -> String {
        let (namespace, claim) = match self {
            Self::Claim(key) => (encode(&key.namespace), encode(&key.claim)),
            Self::Namespace { namespace, .. } => (encode(namespace), "-".to_owned()),
            Self::Tenant { .. } => ("-".to_owned(), "-".to_owned()),
        };
        format!("{}.{namespace}.{claim}", encode(self.tenant()))
    }

    fn parse(tenant: &str, namespace: &str, claim: &str) -> Option<Self> {
        let tenant = decode(tenant)?;
        Some(match (namespace, claim) {
            ("-", "-") => Self::Tenant { tenant },
            ("-", _) => return None,
            (namespace, "-") => Self::Namespace { tenant, namespace: decode(namespace)? },
            (namespace, claim) => Self::Claim(ClaimKey {
                tenant,
                namespace: decode(namespace)?,
                claim: decode(claim)?,
            }),
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => key.fmt(f),
            Self::Namespace { tenant, namespace } => write!(f, "{tenant}/{namespace}"),
            Self::Tenant { tenant } => f.write_str(tenant),
        }
    }
}

/// Subject of a fact: `carrick.v1.<target>.fact.<tenant>.<namespace>.<claim>.<facet>[.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FactSubject {
    /// Name of the sync target.
    pub target: String,
    /// What it is about.
    pub scope: Scope,
    /// Which object.
    pub facet: Facet,
}

impl fmt::Display for FactSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = self.scope.tokens();
        write!(f, "carrick.v1.{}.fact.{scope}.{}", encode(&self.target), self.facet.token())?;
        self.facet.name().map_or(Ok(()), |name| write!(f, ".{}", encode(name)))
    }
}

impl FactSubject {
    /// Reads a subject; `None` if it is not one of a fact.
    pub fn parse(subject: &str) -> Option<Self> {
        let (target, rest) = tail(subject, "fact")?;
        let (scope, facet, name) = match rest[..] {
            [tenant, namespace, claim, facet] => {
                (Scope::parse(tenant, namespace, claim)?, facet, None)
            }
            [tenant, namespace, claim, facet, name] => {
                (Scope::parse(tenant, namespace, claim)?, facet, Some(decode(name)?))
            }
            _ => return None,
        };
        let facet = Facet::parse(facet, name)?;
        facet.fits(&scope).then_some(Self { target, scope, facet })
    }
}

/// Subject of a step: `carrick.v1.<target>.step.<tenant>.<namespace>.<claim>.<step>.<outcome>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StepSubject {
    /// Name of the sync target.
    pub target: String,
    /// What it is about.
    pub scope: Scope,
    /// Which step.
    pub step: Step,
    /// How it ended.
    pub outcome: Outcome,
}

impl fmt::Display for StepSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, scope, step, outcome } = self;
        write!(f, "carrick.v1.{}.step.{}.{step}.{outcome}", encode(target), scope.tokens())
    }
}

impl StepSubject {
    /// Reads a subject; `None` if it is not one of a step.
    pub fn parse(subject: &str) -> Option<Self> {
        let (target, rest) = tail(subject, "step")?;
        let [tenant, namespace, claim, step, outcome] = rest[..] else {
            return None;
        };
        Some(Self {
            target,
            scope: Scope::parse(tenant, namespace, claim)?,
            step: step.parse().ok()?,
            outcome: outcome.parse().ok()?,
        })
    }
}

/// Subject of a dead claim: `carrick.v1.<target>.dead.<tenant>.<namespace>.<claim>.<service>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeadSubject {
    /// Name of the sync target.
    pub target: String,
    /// What it is about.
    pub scope: Scope,
    /// The service that gave up, e.g. `upsyncer`.
    pub service: String,
}

impl fmt::Display for DeadSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, scope, service } = self;
        write!(f, "carrick.v1.{}.dead.{}.{service}", encode(target), scope.tokens())
    }
}

impl DeadSubject {
    /// Reads a subject; `None` if it is not one of a dead claim.
    pub fn parse(subject: &str) -> Option<Self> {
        let (target, rest) = tail(subject, "dead")?;
        let [tenant, namespace, claim, service] = rest[..] else {
            return None;
        };
        let scope = Scope::parse(tenant, namespace, claim)?;
        Some(Self { target, scope, service: service.to_owned() })
    }
}

/// Filter for everything of one family (`fact`, `step`, `dead`) of a sync target, or for a part of
/// it: `rest` is appended as it is and may hold wildcards.
pub fn filter(target: &str, family: &str, rest: &str) -> String {
    format!("carrick.v1.{}.{family}.{rest}", encode(target))
}

/// A Kubernetes name as a token of a subject.
pub fn encode(name: &str) -> String {
    name.replace('.', "_")
}

/// A token of a subject as the Kubernetes name that it was made from; `None` if it is none.
pub fn decode(token: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    (!token.is_empty() && token != "-" && token.chars().all(legal)).then(|| token.replace('_', "."))
}

/// The target and the tokens behind `carrick.v1.<target>.<family>.`.
fn tail<'a>(subject: &'a str, family: &str) -> Option<(String, Vec<&'a str>)> {
    let mut tokens = subject.split('.');
    let head = (tokens.next()?, tokens.next()?, tokens.next()?, tokens.next()?);
    match head {
        ("carrick", "v1", target, found) if found == family => {
            Some((decode(target)?, tokens.collect()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> ClaimKey {
        ClaimKey::new("acme", "team-a", "data.v1")
    }

    #[test]
    fn subjects_read_as_the_design_spells_them() {
        let subject =
            |scope, facet| FactSubject { target: "main".into(), scope, facet }.to_string();
        let namespace =
            Scope::Namespace { tenant: "acme".to_owned(), namespace: "team-a".to_owned() };
        let tenant = Scope::Tenant { tenant: "acme".to_owned() };
        assert_eq!(
            subject(Scope::Claim(key()), Facet::TenantClaim),
            "carrick.v1.main.fact.acme.team-a.data_v1.tenant-claim"
        );
        assert_eq!(
            subject(Scope::Claim(key()), Facet::HostVolume("pvc-1.x".into())),
            "carrick.v1.main.fact.acme.team-a.data_v1.host-volume.pvc-1_x"
        );
        assert_eq!(
            subject(namespace, Facet::HostNamespace),
            "carrick.v1.main.fact.acme.team-a.-.host-namespace"
        );
        assert_eq!(
            subject(tenant.clone(), Facet::TenantClass("fast".into())),
            "carrick.v1.main.fact.acme.-.-.tenant-class.fast"
        );
        let step = StepSubject {
            target: "main".into(),
            scope: Scope::Claim(key()),
            step: Step::Upsync,
            outcome: Outcome::Refused,
        };
        assert_eq!(step.to_string(), "carrick.v1.main.step.acme.team-a.data_v1.upsync.refused");
        assert_eq!(StepSubject::parse(&step.to_string()), Some(step));
        let dead = DeadSubject { target: "main".into(), scope: tenant, service: "upsyncer".into() };
        assert_eq!(dead.to_string(), "carrick.v1.main.dead.acme.-.-.upsyncer");
        assert_eq!(DeadSubject::parse(&dead.to_string()), Some(dead));
    }

    #[test]
    fn what_is_no_subject_of_a_fact_is_not_read_as_one() {
        for subject in [
            "",
            "carrick.v1.main.fact.acme.team-a.data",
            "carrick.v1.main.fact.acme.team-a.data.tenant-claim.extra",
            "carrick.v1.main.fact.acme.team-a.data.tenant-volume",
            "carrick.v1.main.fact.acme.team-a.data.nonsense",
            "carrick.v1.main.fact.acme.team-a.data.tenant-namespace",
            "carrick.v1.main.fact.acme.team-a.-.tenant-claim",
            "carrick.v1.main.fact.acme.-.data.tenant-claim",
            "carrick.v1.main.fact.ACME.team-a.data.tenant-claim",
            "carrick.v1.main.step.acme.team-a.data.tenant-claim",
            "carrick.v2.main.fact.acme.team-a.data.tenant-claim",
            "carrick.v1.main.fact.acme.team-a.*.tenant-claim",
        ] {
            assert_eq!(FactSubject::parse(subject), None, "{subject}");
        }
    }

    /// DNS-1123 subdomains, as Kubernetes allows them for claims, volumes and classes.
    fn name() -> impl Strategy<Value = String> {
        "[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}"
    }

    fn any_subject() -> impl Strategy<Value = FactSubject> {
        (name(), name(), "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name(), name(), 0..8usize).prop_map(
            |(target, tenant, namespace, claim, object, kind)| {
                let facet = match kind {
                    0 => Facet::TenantClaim,
                    1 => Facet::HostClaim,
                    2 => Facet::TenantVolume(object),
                    3 => Facet::HostVolume(object),
                    4 => Facet::TenantNamespace,
                    5 => Facet::HostNamespace,
                    6 => Facet::TenantClass(object),
                    _ => Facet::HostClass(object),
                };
                let scope = match kind {
                    0..=3 => Scope::Claim(ClaimKey { tenant, namespace, claim }),
                    4 | 5 => Scope::Namespace { tenant, namespace },
                    _ => Scope::Tenant { tenant },
                };
                FactSubject { target, scope, facet }
            },
        )
    }

    proptest! {
        #[test]
        fn every_legal_name_survives_the_round_trip(subject in any_subject()) {
            prop_assert_eq!(FactSubject::parse(&subject.to_string()), Some(subject));
        }

        #[test]
        fn different_objects_never_share_a_subject(a in any_subject(), b in any_subject()) {
            prop_assert_eq!(a == b, a.to_string() == b.to_string());
        }

        #[test]
        fn reading_never_panics(text in "\\PC{0,80}") {
            let _ = FactSubject::parse(&text);
            let _ = FactSubject::parse(&format!("carrick.v1.main.fact.{text}"));
        }
    }
}
