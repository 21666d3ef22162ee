//! What is said about a Tenant: its status, from what is known of it. Pure.

use std::collections::BTreeMap;

use carrick_k8s::{
    ConnectionProblem, Tenant, TenantStatus,
    status::set_condition,
    tenant::{ACCEPTED, CONNECTED, DetectedBinder, REMOVED, SYNCED},
};
use jiff::Timestamp;

use crate::{
    acceptance::Verdict,
    removal::{Finalizer, Left, finalizer},
};

/// Whether the tenant's control plane can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Link {
    /// It was not asked yet.
    #[default]
    Unknown,
    /// It can't.
    Problem(ConnectionProblem),
    /// It can, and this is its identity.
    Connected(String),
}

/// What is known of a Tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// Whether its control plane can be used.
    pub(crate) link: Link,
    /// The identity that its control plane told last, with the present credentials.
    pub(crate) identity: Option<String>,
    /// Whether all of its objects are on the bus.
    pub(crate) synced: bool,
    /// Whether it has a binder of its own.
    pub(crate) has_binder: bool,
    /// Its claims by phase, once all are known.
    pub(crate) claims: Option<BTreeMap<String, u32>>,
    /// What is left of it, if it is being removed with its host side.
    pub(crate) left: Left,
}

/// The status of a Tenant that says what is known now.
pub(crate) fn status(
    tenant: &Tenant,
    seen: &Seen,
    verdict: &Verdict,
    now: Timestamp,
) -> TenantStatus {
    let mut status = tenant.status.clone().unwrap_or_default();
    let generation = tenant.metadata.generation;
    let when = (generation, now);
    match &seen.link {
        Link::Unknown => {}
        Link::Connected(_) => {
            set_condition(&mut status, CONNECTED, Some(true), ("Connected", ""), when);
        }
        Link::Problem(problem) => {
            // The same problem in other words is no news.
            let known = status.conditions.iter().any(|found| {
                found.type_ == CONNECTED
                    && found.status == "False"
                    && found.reason == problem.reason
                    && found.observed_generation == generation
            });
            if !known {
                let said = (problem.reason, problem.message.as_str());
                set_condition(&mut status, CONNECTED, Some(false), said, when);
            }
        }
    }
    match verdict {
        Verdict::Accepted(identity) => {
            status.identity.get_or_insert_with(|| identity.clone());
            set_condition(&mut status, ACCEPTED, Some(true), ("Accepted", ""), when);
        }
        Verdict::Refused(reason, message) => {
            let said = (*reason, message.as_str());
            set_condition(&mut status, ACCEPTED, Some(false), said, when);
        }
        Verdict::Unknown(true) => {}
        Verdict::Unknown(false) => {
            let said = ("NotConnected", "its control plane could not be asked yet");
            set_condition(&mut status, ACCEPTED, None, said, when);
        }
    }
    set_synced(&mut status, seen, (verdict, tenant.spec.paused), when);
    if finalizer(tenant) == Finalizer::Waits {
        let (reason, message) = removal(tenant, seen, verdict);
        set_condition(&mut status, REMOVED, Some(false), (reason, &message), when);
    }
    if seen.has_binder {
        status.binder = Some(DetectedBinder::Tenant);
    }
    if let Some(claims) = &seen.claims {
        status.claims.clone_from(claims);
    }
    status.observed_generation = generation;
    status
}

/// What a Tenant that is being removed with its host side waits for.
fn removal(tenant: &Tenant, seen: &Seen, verdict: &Verdict) -> (&'static str, String) {
    let way_out = "to let the Tenant go and leave what there is, set spec.onRemoval to Retain";
    match (verdict, &seen.link, &seen.left) {
        (Verdict::Refused(..), ..) => {
            ("NotAccepted", format!("it is not accepted, so nothing of it is deleted; {way_out}"))
        }
        _ if tenant.spec.paused => {
            let waits = "it is paused: nothing of it is deleted until spec.paused is false";
            ("Paused", format!("{waits}; {way_out}"))
        }
        (_, Link::Problem(_), _) => {
            let waits = "its control plane does not say what may be deleted: see Connected";
            ("NotConnected", format!("{waits}; {way_out}"))
        }
        (_, _, Left::Some(on_host, in_tenant)) => (
            "Remaining",
            format!(
                "on the host: {on_host}; in the tenant: {in_tenant}; what holds a claim stands in \
                 its condition carrick.dev/Storage; {way_out}"
            ),
        ),
        (_, _, Left::Unknown | Left::Nothing) => {
            ("Deleting", "its host side is being deleted".to_owned())
        }
    }
}

/// What was synced once is not said to be otherwise at each restart.
fn set_synced(
    status: &mut TenantStatus,
    seen: &Seen,
    (verdict, paused): (&Verdict, bool),
    when: (Option<i64>, Timestamp),
) {
    let before = status.conditions.iter();
    let before = before.into_iter().any(|found| found.type_ == SYNCED && found.status == "True");
    let refused = matches!(verdict, Verdict::Refused(..));
    let (holds, said) = if refused {
        (false, ("NotAccepted", "nothing of it is followed"))
    } else if paused {
        (false, ("Paused", "it is paused by spec.paused: nothing is carried until that is false"))
    } else if seen.synced || before {
        (true, ("Synced", ""))
    } else {
        (false, ("Waiting", "not all of its objects are known yet"))
    };
    set_condition(status, SYNCED, Some(holds), said, when);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::tests::tenant;
    use carrick_k8s::{
        leftovers::{InTenant, OnHost},
        problem::UNREACHABLE,
        status::same,
        tenant::{FINALIZER, OnRemoval},
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn said(status: &TenantStatus) -> Vec<String> {
        let conditions = status.conditions.iter();
        conditions.map(|c| format!("{} {} {} {}", c.type_, c.status, c.reason, c.message)).collect()
    }

    fn next(tenant: &mut Tenant, seen: &Seen, verdict: &Verdict) -> Vec<String> {
        let status = status(tenant, seen, verdict, Timestamp::UNIX_EPOCH);
        tenant.status = Some(status.clone());
        said(&status)
    }

    #[test]
    fn the_way_of_a_tenant_to_synced_and_through_an_outage() {
        let mut tenant = tenant("acme", 1, None);
        let mut seen = Seen::default();
        assert_eq!(
            next(&mut tenant, &seen, &Verdict::Unknown(false)),
            [
                "Accepted Unknown NotConnected its control plane could not be asked yet",
                "Synced False Waiting not all of its objects are known yet",
            ]
        );
        seen.link = Link::Connected("x".into());
        let accepted = Verdict::Accepted("x".into());
        next(&mut tenant, &seen, &accepted);
        seen.synced = true;
        let there = ["Accepted True Accepted ", "Synced True Synced ", "Connected True Connected "];
        assert_eq!(next(&mut tenant, &seen, &accepted), there);
        assert_eq!(tenant.status.as_ref().unwrap().identity.as_deref(), Some("x"));
        // After a restart nothing is known, and nothing else is said.
        let restarted = Seen::default();
        assert_eq!(next(&mut tenant, &restarted, &Verdict::Unknown(true)), there);
        seen.link = Link::Problem(ConnectionProblem::new(UNREACHABLE, "first"));
        let outage = next(&mut tenant, &seen, &accepted);
        assert_eq!(outage[2], "Connected False Unreachable first");
        let before = tenant.status.clone().unwrap();
        seen.link = Link::Problem(ConnectionProblem::new(UNREACHABLE, "second"));
        next(&mut tenant, &seen, &accepted);
        assert!(same(&before, &tenant.status.unwrap()), "no news");
    }

    #[test]
    fn a_paused_tenant_is_not_said_to_be_synced() {
        let mut tenant = tenant("acme", 1, None);
        let seen = Seen { link: Link::Connected("x".into()), synced: true, ..Seen::default() };
        let accepted = Verdict::Accepted("x".into());
        next(&mut tenant, &seen, &accepted);
        tenant.spec.paused = true;
        let said = next(&mut tenant, &seen, &accepted);
        assert!(said[2].starts_with("Synced False Paused it is paused by spec.paused"), "{said:?}");
        let refused = next(&mut tenant, &seen, &Verdict::Refused("Invalid", "why".into()));
        assert!(refused[2].starts_with("Synced False NotAccepted"), "{refused:?}");
        tenant.spec.paused = false;
        assert_eq!(next(&mut tenant, &seen, &accepted)[2], "Synced True Synced ");
    }

    #[test]
    fn a_tenant_that_is_removed_says_what_is_left() {
        let mut tenant = tenant("acme", 1, Some("x"));
        tenant.spec.on_removal = OnRemoval::Delete;
        tenant.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
        let mut seen = Seen { link: Link::Connected("x".into()), synced: true, ..Seen::default() };
        let accepted = Verdict::Accepted("x".into());
        assert_eq!(next(&mut tenant, &seen, &accepted).len(), 3, "nobody removes it");
        tenant.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let mut told = |seen: &Seen, verdict: &Verdict| next(&mut tenant, seen, verdict)[3].clone();
        assert!(told(&seen, &accepted).starts_with("Removed False Deleting "));
        let on_host = OnHost { claims: 2, namespaces: 1 };
        seen.left = Left::Some(on_host, InTenant { claims: 2, ..InTenant::default() });
        let remaining = told(&seen, &accepted);
        let words =
            "Removed False Remaining on the host: 2 claims, 1 namespace; in the tenant: 2 claims;";
        assert!(remaining.starts_with(words), "{remaining}");
        let refused = told(&seen, &Verdict::Refused("Invalid", "why".into()));
        assert!(refused.starts_with("Removed False NotAccepted"), "{refused}");
        seen.link = Link::Problem(ConnectionProblem::new(UNREACHABLE, "gone"));
        let unreachable = told(&seen, &accepted);
        assert!(unreachable.starts_with("Removed False NotConnected"), "{unreachable}");
        assert!(unreachable.contains("spec.onRemoval to Retain"), "{unreachable}");
    }

    #[test]
    fn a_refused_tenant_keeps_what_was_pinned() {
        let mut tenant = tenant("acme", 1, Some("x"));
        let seen = Seen {
            link: Link::Connected("y".into()),
            has_binder: true,
            claims: Some([("Bound".to_owned(), 2)].into()),
            ..Seen::default()
        };
        let refused = Verdict::Refused("IdentityChanged", "why".into());
        let said = next(&mut tenant, &seen, &refused);
        assert_eq!(said[1], "Accepted False IdentityChanged why");
        assert_eq!(said[2], "Synced False NotAccepted nothing of it is followed");
        let status = tenant.status.unwrap();
        assert_eq!(status.identity.as_deref(), Some("x"));
        assert_eq!(status.binder, Some(DetectedBinder::Tenant));
        assert_eq!(status.claims["Bound"], 2);
    }
}
