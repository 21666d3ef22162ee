//! Every label, annotation and finalizer that Carrick reads or writes, in one place.
//!
//! The spellings are kcp's. Releases up to 0.10 use the domain `kcp.dev`, later ones `kcp.io`;
//! which one is a setting of the installation ([`Domain`]).

use std::{fmt, str::FromStr};

/// Annotation on a host claim: uid of the tenant claim that it was made for.
pub const TENANT_CLAIM_UID: &str = "carrick.dev/tenant-claim-uid";
/// Condition type on a tenant claim: what Carrick waits for or refuses, for a person.
pub const STORAGE_CONDITION: &str = "carrick.dev/Storage";
/// Provisioner of the classes that Carrick publishes, and the `provisioned-by` of every tenant
/// volume: a binder in the tenant then leaves provisioning and deletion to Carrick.
pub const PROVISIONER: &str = "carrick.dev/host";
/// Annotation by which a volume controller finds the plugin that may delete a volume's data.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation on a claim from before `spec.storageClassName`; the API server still honours it.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// Annotation that makes a StorageClass the one for claims without a class.
pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Finalizer by which an API server keeps a claim that a pod uses.
pub const IN_USE: &str = "kubernetes.io/pvc-protection";
/// Finalizer by which an API server keeps a volume that is bound.
pub const PV_IN_USE: &str = "kubernetes.io/pv-protection";
/// Value of [`Names::delay`] while the tenant may not yet see `Bound`.
pub const DELAYED: &str = "true";
/// Value of [`Names::state`] on a volume that is carried up.
pub const UPSYNC: &str = "Upsync";
/// Value of [`Names::state`] on a claim that is to be carried down.
pub const SYNC: &str = "Sync";

/// Domains (and all their subdomains) of labels and annotations that never go down from a tenant.
pub const RESERVED_DOMAINS: [&str; 8] = [
    "kcp.dev",
    "kcp.io",
    "carrick.dev",
    "pv.kubernetes.io",
    "volume.kubernetes.io",
    "volume.alpha.kubernetes.io",
    "volume.beta.kubernetes.io",
    "kubectl.kubernetes.io",
];

/// Whether a label or annotation key belongs to one of [`RESERVED_DOMAINS`].
pub fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return false;
    };
    RESERVED_DOMAINS.iter().any(|reserved| {
        domain == *reserved || domain.strip_suffix(reserved).is_some_and(|rest| rest.ends_with('.'))
    })
}

/// The domain that kcp's names are spelled with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    /// `kcp.dev`: kcp up to 0.10, and the default.
    #[default]
    KcpDev,
    /// `kcp.io`: kcp from 0.11 on.
    KcpIo,
}

impl Domain {
    /// The domain as it is spelled in names.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KcpDev => "kcp.dev",
            Self::KcpIo => "kcp.io",
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "kcp.dev" => Ok(Self::KcpDev),
            "kcp.io" => Ok(Self::KcpIo),
            other => Err(format!("unknown domain {other:?}: use kcp.dev or kcp.io")),
        }
    }
}

/// The names of one sync target: a domain and the key `K` of the target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    domain: Domain,
    key: String,
}

impl Names {
    /// Names in `domain` for the sync target with key `key`
    /// ([`SyncTarget::key`](crate::SyncTarget::key)).
    pub fn new(domain: Domain, key: impl Into<String>) -> Self {
        Self { domain, key: key.into() }
    }

    /// The key `K` of the sync target.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The domain in use.
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// Label on host objects, value `K`: belongs to this sync target.
    pub fn cluster(&self) -> String {
        format!("internal.workload.{}/cluster", self.domain)
    }

    /// Annotation on host namespaces and volumes: whose it is, as
    /// [`Locator`](crate::Locator) JSON.
    pub fn locator(&self) -> String {
        format!("{}/namespace-locator", self.domain)
    }

    /// Label on host namespaces: the tenant's id.
    pub fn tenant_id(&self) -> String {
        format!("{}/tenant-id", self.domain)
    }

    /// Annotation on a host claim, value [`DELAYED`]: the tenant may not yet see `Bound`.
    pub fn delay(&self) -> String {
        format!("internal.workload.{}/delaystatussyncing", self.domain)
    }

    /// Annotation on a host volume: the JSON Patch that the upsyncer applies. There is no
    /// separator before `K`; kcp has none either.
    pub fn diff(&self) -> String {
        format!("internal.workload.{}/upsyncdiff{}", self.domain, self.key)
    }

    /// Label, values [`UPSYNC`] (volumes carried up) and [`SYNC`] (claims to carry down).
    pub fn state(&self) -> String {
        format!("state.workload.{}/{}", self.domain, self.key)
    }

    /// Finalizer on a tenant claim and a tenant volume: the host side still exists.
    pub fn finalizer(&self) -> String {
        format!("workload.{}/syncer-{}", self.domain, self.key)
    }

    /// Annotation on a tenant volume: resourceVersion of the host volume last carried up.
    pub fn carried_rv(&self) -> String {
        format!("workload.{}/rv", self.domain)
    }

    /// Annotation on a tenant claim: taken off this sync target at that time (RFC 3339).
    pub fn deletion(&self) -> String {
        format!("deletion.internal.workload.{}/{}", self.domain, self.key)
    }

    /// Annotation on a tenant claim or namespace: soft finalizer; non-empty holds the host side.
    pub fn soft_finalizer(&self) -> String {
        format!("finalizers.workload.{}/{}", self.domain, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_kcp_spells_them() {
        let dev = Names::new(Domain::KcpDev, "K1");
        let io = Names::new(Domain::KcpIo, "K1");
        for (name, expected) in [
            (dev.cluster(), "internal.workload.kcp.dev/cluster"),
            (dev.locator(), "kcp.dev/namespace-locator"),
            (dev.tenant_id(), "kcp.dev/tenant-id"),
            (dev.delay(), "internal.workload.kcp.dev/delaystatussyncing"),
            (dev.diff(), "internal.workload.kcp.dev/upsyncdiffK1"),
            (dev.state(), "state.workload.kcp.dev/K1"),
            (dev.finalizer(), "workload.kcp.dev/syncer-K1"),
            (dev.carried_rv(), "workload.kcp.dev/rv"),
            (dev.deletion(), "deletion.internal.workload.kcp.dev/K1"),
            (dev.soft_finalizer(), "finalizers.workload.kcp.dev/K1"),
            (io.cluster(), "internal.workload.kcp.io/cluster"),
            (io.locator(), "kcp.io/namespace-locator"),
            (io.diff(), "internal.workload.kcp.io/upsyncdiffK1"),
            (io.finalizer(), "workload.kcp.io/syncer-K1"),
        ] {
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn reserved_domains_include_their_subdomains_and_nothing_that_only_looks_alike() {
        for (key, reserved) in [
            ("kcp.dev/namespace-locator", true),
            ("internal.workload.kcp.dev/cluster", true),
            ("state.workload.kcp.io/K", true),
            ("carrick.dev/tenant-claim-uid", true),
            ("volume.beta.kubernetes.io/storage-class", true),
            ("notkcp.dev/x", false),
            ("app.kubernetes.io/name", false),
            ("kcp.dev", false),
            ("team", false),
        ] {
            assert_eq!(is_reserved(key), reserved, "{key}");
        }
    }

    #[test]
    fn the_domain_is_one_of_two() {
        assert_eq!("kcp.io".parse(), Ok(Domain::KcpIo));
        assert_eq!(Domain::default().as_str(), "kcp.dev");
        assert!("example.org".parse::<Domain>().unwrap_err().contains("use kcp.dev or kcp.io"));
    }
}
