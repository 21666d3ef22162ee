//! A Tenant that is removed with its host side (`onRemoval: Delete`) waits, by a finalizer of its
//! own, until nothing of it is left on the host and nothing of Carrick's in the tenant.

use std::{sync::Arc, time::Duration};

use carrick_core::decide::ownership::has_finalizer;
use carrick_k8s::{
    Error, Tenant, TenantHandle,
    leftovers::{InTenant, OnHost},
    tenant::{FINALIZER, OnRemoval},
};

use crate::shared::Shared;

/// How often it is counted what is left.
pub(crate) const COUNT_EVERY: Duration = Duration::from_secs(2);

/// What is to be done about the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finalizer {
    /// It is as it should be.
    Stays,
    /// It is put on: the host side is to go before the Tenant.
    PutOn,
    /// It is taken off: nothing on the host is to be touched, or nothing ever was there.
    TakeOff,
    /// The Tenant is being deleted: it is taken off once nothing is left.
    Waits,
}

/// What is left of a Tenant that is being removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// Not counted yet.
    #[default]
    Unknown,
    /// This.
    Some(OnHost, InTenant),
    /// Nothing.
    Nothing,
}

/// What is to be done about a Tenant's finalizer.
pub(crate) fn finalizer(tenant: &Tenant) -> Finalizer {
    let is_on = has_finalizer(&tenant.metadata, FINALIZER);
    let going = tenant.metadata.deletion_timestamp.is_some();
    let pinned = tenant.status.as_ref().is_some_and(|status| status.identity.is_some());
    match (tenant.spec.on_removal, is_on) {
        (OnRemoval::Retain, true) => Finalizer::TakeOff,
        (OnRemoval::Delete, true) if going && !pinned => Finalizer::TakeOff,
        (OnRemoval::Delete, true) if going => Finalizer::Waits,
        (OnRemoval::Delete, false) if !going => Finalizer::PutOn,
        _ => Finalizer::Stays,
    }
}

/// Counts what is left, as both sides say now; an error if the tenant is not who it was.
pub(crate) async fn count(shared: &Shared, handle: &Arc<TenantHandle>) -> Result<Left, Error> {
    let (target, names) = (&shared.target, &shared.names);
    let on_host = OnHost::count(&shared.host, target, names, &handle.tenant.cluster()).await?;
    let in_tenant = match &handle.client {
        Some(client) => InTenant::count(client, names).await?,
        None => InTenant::default(),
    };
    // Asked last: what took its place meanwhile is noticed. Without a client this fails.
    handle.verify().await?;
    let nothing = on_host.is_empty() && in_tenant.is_empty();
    Ok(if nothing { Left::Nothing } else { Left::Some(on_host, in_tenant) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::tests::tenant;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    #[test]
    fn the_finalizer_is_there_as_long_as_something_waits_for_it() {
        let with = |on_removal, is_on: bool, going: bool, pinned| {
            let mut tenant = tenant("acme", 1, pinned);
            tenant.spec.on_removal = on_removal;
            tenant.metadata.finalizers = is_on.then(|| vec![FINALIZER.to_owned()]);
            tenant.metadata.deletion_timestamp = going.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
            finalizer(&tenant)
        };
        let (retain, delete) = (OnRemoval::Retain, OnRemoval::Delete);
        for (on_removal, is_on, going, pinned, expected) in [
            (retain, false, false, Some("x"), Finalizer::Stays),
            (retain, true, false, Some("x"), Finalizer::TakeOff),
            (retain, true, true, Some("x"), Finalizer::TakeOff),
            (delete, false, false, None, Finalizer::PutOn),
            (delete, true, false, Some("x"), Finalizer::Stays),
            (delete, true, true, Some("x"), Finalizer::Waits),
            (delete, true, true, None, Finalizer::TakeOff),
            // To an object that is being deleted none can be added.
            (delete, false, true, Some("x"), Finalizer::Stays),
        ] {
            let found = with(on_removal, is_on, going, pinned);
            assert_eq!(found, expected, "{on_removal:?} {is_on} {going} {pinned:?}");
        }
    }
}
