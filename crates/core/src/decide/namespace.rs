//! The downsyncer cleans up: a host namespace of ours goes some time after its last claim, if there
//! is nothing else in it (kcp #2973, kcp #2041).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::Time};

use super::ownership::{annotation, check_host_namespace, has_cluster_label};
use crate::{
    fact::Fact,
    policy::Policy,
    write::{Action, Kind, ObjectRef, Side, Write},
};

/// What is known of a namespace and of the host claims in it.
#[derive(Clone, Debug, Default)]
pub struct NamespaceFacts {
    /// Its name in the tenant.
    pub namespace: String,
    /// The namespace on the host.
    pub host_namespace: Option<Fact<Namespace>>,
    /// Claims that are on the host, or are to be there.
    pub claims: usize,
    /// When the last one was seen to go from the host; `None` if none is known.
    pub last_gone: Option<Timestamp>,
}

/// When a host namespace may be cleaned up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Not as things are.
    No,
    /// After this time, if nothing changes.
    In(SignedDuration),
    /// Now, if both sides agree: see [`clean`].
    Now,
}

/// When the host namespace may go.
pub fn due(facts: &NamespaceFacts, policy: &Policy, grace: SignedDuration, now: Timestamp) -> Due {
    let Some(host) = facts.host_namespace.as_ref().and_then(Fact::live) else {
        return Due::No;
    };
    let ours = is_ours(host, policy, &facts.namespace);
    let going = host.metadata.deletion_timestamp.is_some();
    if policy.tenant.paused || facts.claims > 0 || !ours || going {
        return Due::No;
    }
    let made = host.metadata.creation_timestamp.as_ref().map(|Time(made)| *made);
    let Some(since) = facts.last_gone.max(made) else {
        return Due::Now;
    };
    // Of a tenant that is removed no claim comes again.
    let grace = if policy.tenant.removing { SignedDuration::ZERO } else { grace };
    let left = grace - now.duration_since(since);
    if left.is_positive() { Due::In(left) } else { Due::Now }
}

/// The write that deletes a host namespace, given what both API servers said of it just now and
/// what else is in it (a resource and a name each); the reason if it has to stay.
pub fn clean(
    in_tenant: Option<&Namespace>,
    on_host: Option<&Namespace>,
    contents: &[String],
    policy: &Policy,
    namespace: &str,
) -> Result<Option<Write>, String> {
    let Some(host) = on_host.filter(|host| host.metadata.deletion_timestamp.is_none()) else {
        return Ok(None);
    };
    if !is_ours(host, policy, namespace) {
        return Err("it is not this tenant's".to_owned());
    }
    let soft = in_tenant.and_then(|found| {
        annotation(&found.metadata, &policy.names.soft_finalizer()).filter(|text| !text.is_empty())
    });
    if let Some(text) = soft {
        return Err(format!("a soft finalizer of the tenant's namespace holds it ({text})"));
    }
    if !contents.is_empty() {
        return Err(format!("there is something else in it: {}", contents.join(", ")));
    }
    let name = host.metadata.name.clone().unwrap_or_default();
    Ok(Some(Write {
        object: ObjectRef::cluster(Side::Host, Kind::Namespace, name),
        action: Action::delete(&host.metadata),
        why: "empty host namespace deleted",
    }))
}

fn is_ours(host: &Namespace, policy: &Policy, namespace: &str) -> bool {
    has_cluster_label(&host.metadata, policy)
        && check_host_namespace(host, policy, namespace).is_ok()
}
