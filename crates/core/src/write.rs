//! Writes as data: what a decision wants changed, and under which preconditions.

use std::fmt;

use jiff::SignedDuration;
use json_patch::Patch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    step::{Outcome, Reason, Step},
    subject::Facet,
};

/// Which control plane an object lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The host cluster.
    Host,
    /// The tenant of the claim in question.
    Tenant,
}

/// Kinds of objects that Carrick writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `v1` PersistentVolumeClaim.
    Claim,
    /// `v1` PersistentVolume.
    Volume,
    /// `v1` Namespace.
    Namespace,
    /// `storage.k8s.io/v1` StorageClass.
    Class,
    /// `events.k8s.io/v1` Event.
    Event,
}

impl Kind {
    /// API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Claim | Self::Volume | Self::Namespace => "",
            Self::Class => "storage.k8s.io",
            Self::Event => "events.k8s.io",
        }
    }

    /// `apiVersion` as it stands in objects.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Claim | Self::Volume | Self::Namespace => "v1",
            Self::Class => "storage.k8s.io/v1",
            Self::Event => "events.k8s.io/v1",
        }
    }

    /// `kind` as it stands in objects.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Claim => "PersistentVolumeClaim",
            Self::Volume => "PersistentVolume",
            Self::Namespace => "Namespace",
            Self::Class => "StorageClass",
            Self::Event => "Event",
        }
    }

    /// The resource's plural, as in API paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Claim => "persistentvolumeclaims",
            Self::Volume => "persistentvolumes",
            Self::Namespace => "namespaces",
            Self::Class => "storageclasses",
            Self::Event => "events",
        }
    }
}

/// Names one object of either side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef {
    /// Where it lives.
    pub side: Side,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; `None` for a cluster-scoped kind.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// A cluster-scoped object.
    pub fn cluster(side: Side, kind: Kind, name: impl Into<String>) -> Self {
        Self { side, kind, namespace: None, name: name.into() }
    }

    /// A namespaced object.
    pub fn namespaced(
        side: Side,
        kind: Kind,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self { side, kind, namespace: Some(namespace.into()), name: name.into() }
    }

    /// The facet of a claim's facts that this object is, if it is one.
    pub fn facet(&self) -> Option<Facet> {
        Some(match (self.side, self.kind) {
            (Side::Tenant, Kind::Claim) => Facet::TenantClaim,
            (Side::Host, Kind::Claim) => Facet::HostClaim,
            (Side::Tenant, Kind::Volume) => Facet::TenantVolume(self.name.clone()),
            (Side::Host, Kind::Volume) => Facet::HostVolume(self.name.clone()),
            (Side::Tenant, Kind::Namespace) => Facet::TenantNamespace,
            (Side::Host, Kind::Namespace) => Facet::HostNamespace,
            (Side::Tenant, Kind::Class) => Facet::TenantClass(self.name.clone()),
            (Side::Host, Kind::Class) => Facet::HostClass(self.name.clone()),
            (_, Kind::Event) => return None,
        })
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Host => "host",
            Side::Tenant => "tenant",
        };
        write!(f, "{side} {} ", self.kind.kind())?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// What is done to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create it whole. An object of that name that is there already is read instead, and the
    /// decision made again with it.
    Create(Value),
    /// JSON Patch; its tests are the preconditions.
    Patch(Patch),
    /// JSON Patch of the `status` subresource; its tests are the preconditions.
    PatchStatus(Patch),
    /// Delete just this version of just this object.
    Delete {
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        version: String,
    },
}

impl Action {
    /// Deletes the object with this metadata, as it was seen.
    pub fn delete(meta: &ObjectMeta) -> Self {
        Self::Delete {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// One change to one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The object.
    pub object: ObjectRef,
    /// The change.
    pub action: Action,
    /// What it is for, in a few words, for logs and steps.
    pub why: &'static str,
}

/// Where a step stands after a look at the facts.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Not this service's to handle, or nothing to say yet: no step is published. Looked at again
    /// after the given time even if no fact arrives.
    Ignored(Option<SignedDuration>),
    /// Nothing is left to do, once the decision's writes are done.
    Done,
    /// Something else must happen first; it will arrive as a fact, or after `recheck`.
    Waiting(Reason, Option<SignedDuration>),
    /// A soft finalizer holds it.
    Held(Reason),
    /// Policy or a collision forbids it; looked at again after `recheck`, where what is in the way
    /// may go without a fact of this claim.
    Refused(Reason, Option<SignedDuration>),
}

impl Verdict {
    /// The outcome and reason of the step to publish; `None` if none is.
    pub fn outcome(&self) -> Option<(Outcome, Option<&Reason>)> {
        match self {
            Self::Ignored(_) => None,
            Self::Done => Some((Outcome::Done, None)),
            Self::Waiting(reason, _) => Some((Outcome::Waiting, Some(reason))),
            Self::Held(reason) => Some((Outcome::Held, Some(reason))),
            Self::Refused(reason, _) => Some((Outcome::Refused, Some(reason))),
        }
    }

    /// After which time to look again even if no fact arrives.
    pub fn recheck(&self) -> Option<SignedDuration> {
        match self {
            Self::Waiting(_, recheck) | Self::Refused(_, recheck) | Self::Ignored(recheck) => {
                *recheck
            }
            Self::Done | Self::Held(_) => None,
        }
    }
}

/// What a service does about a claim now.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The step that it is about.
    pub step: Step,
    /// Objects to be read from their API servers first; then it is decided again, with
    /// [`ClaimFacts::confirmed`](crate::ClaimFacts::confirmed). What was confirmed counts until the
    /// next write. There are no writes then.
    pub asks: Vec<ObjectRef>,
    /// Changes, in this order; at the first that fails the rest is left.
    pub writes: Vec<Write>,
    /// Where the step stands.
    pub verdict: Verdict,
}

impl Decision {
    /// Nothing to do with this claim.
    pub fn ignored(step: Step) -> Self {
        Self { step, asks: Vec::new(), writes: Vec::new(), verdict: Verdict::Ignored(None) }
    }

    /// Nothing left to do.
    pub fn done(step: Step) -> Self {
        Self { step, asks: Vec::new(), writes: Vec::new(), verdict: Verdict::Done }
    }

    /// Do this; then decide again with what it returns.
    pub fn write(step: Step, write: Write) -> Self {
        Self { step, asks: Vec::new(), writes: vec![write], verdict: Verdict::Done }
    }

    /// Read these first.
    pub fn ask(step: Step, asks: Vec<ObjectRef>) -> Self {
        Self { step, asks, writes: Vec::new(), verdict: Verdict::Ignored(None) }
    }

    /// A soft finalizer holds it.
    pub fn held(step: Step, reason: Reason) -> Self {
        Self { step, asks: Vec::new(), writes: Vec::new(), verdict: Verdict::Held(reason) }
    }

    /// Something else must happen first.
    pub fn waiting(step: Step, code: &'static str, message: impl Into<String>) -> Self {
        let verdict = Verdict::Waiting(Reason::new(code, message), None);
        Self { step, asks: Vec::new(), writes: Vec::new(), verdict }
    }

    /// It may not be done.
    pub fn refused(step: Step, reason: Reason) -> Self {
        Self { step, asks: Vec::new(), writes: Vec::new(), verdict: Verdict::Refused(reason, None) }
    }

    /// The same, looked at again after this time even if no fact arrives.
    #[must_use]
    pub fn recheck(mut self, after: SignedDuration) -> Self {
        if let Verdict::Waiting(_, recheck)
        | Verdict::Refused(_, recheck)
        | Verdict::Ignored(recheck) = &mut self.verdict
        {
            *recheck = Some(after);
        }
        self
    }
}
