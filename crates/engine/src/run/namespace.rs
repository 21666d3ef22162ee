//! Cleans up host namespaces that have no claims any more.

use std::time::Duration;

use carrick_core::{
    Kind, ObjectRef, Side,
    decide::namespace::{Due, clean, due},
};
use carrick_k8s::{Class, TenantHandle, Written, contents, get};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Namespace;

use super::evaluate::{Evaluator, LookError};

/// What keeps an empty namespace may go without any fact that tells of it.
const KEPT_RECHECK: Duration = Duration::from_mins(10);

impl Evaluator {
    /// Deletes the host namespace of a tenant's namespace, if that is due and both sides agree; when
    /// to look again, if at all.
    pub(super) async fn clean(
        &self,
        tenant: &TenantHandle,
        namespace: &str,
    ) -> Result<Option<Duration>, LookError> {
        let finalizer = tenant.policy.names.finalizer();
        let facts = self.bus.namespace_facts(&tenant.name, namespace, &finalizer).await?;
        match due(&facts, &tenant.policy, self.namespace_grace, Timestamp::now()) {
            Due::No => return Ok(None),
            Due::In(left) => return Ok(Some(wait(left))),
            Due::Now => {}
        }
        let known = facts.host_namespace.and_then(|fact| fact.object.metadata.name);
        let name = known.unwrap_or_default();
        // Who the tenant is is asked last: what took its place meanwhile is noticed.
        let in_tenant = self.namespace(Side::Tenant, namespace, tenant).await?;
        let verified = tenant.verify().await;
        verified.map_err(|error| LookError::of_call(error, Side::Tenant, tenant))?;
        let on_host = self.namespace(Side::Host, &name, tenant).await?;
        let contents = contents(&self.host, &name).await?;
        let (in_tenant, on_host) = (in_tenant.as_ref(), on_host.as_ref());
        match clean(in_tenant, on_host, &contents, &tenant.policy, namespace) {
            Ok(None) => Ok(None),
            Ok(Some(write)) => match self.write(&self.host, &write).await {
                Ok(Written::Applied(_) | Written::Deleted) => {
                    tracing::info!(tenant = tenant.name, namespace, "Cleaned up a host namespace");
                    Ok(None)
                }
                Ok(Written::Exists(_) | Written::Gone) => Ok(None),
                Err(error) if error.class() == Class::Refused => {
                    tracing::warn!(%error, "An empty host namespace can't be deleted");
                    Ok(Some(KEPT_RECHECK))
                }
                Err(error) => Err(error.into()),
            },
            Err(kept) => {
                tracing::info!(tenant = tenant.name, namespace, kept, "A host namespace stays");
                Ok(Some(KEPT_RECHECK))
            }
        }
    }

    async fn namespace(
        &self,
        side: Side,
        name: &str,
        tenant: &TenantHandle,
    ) -> Result<Option<Namespace>, LookError> {
        let object = ObjectRef::cluster(side, Kind::Namespace, name);
        let client = self.client(side, tenant).await?;
        let found = get(client, &object).await;
        let found = found.map_err(|error| LookError::of_call(error, side, tenant))?;
        let parse = |value| {
            serde_json::from_value(value)
                .map_err(|error| LookError::NotReadable(object.clone(), error.to_string()))
        };
        found.map(parse).transpose()
    }
}

/// A little longer than what is left, so that it is over then.
fn wait(left: SignedDuration) -> Duration {
    Duration::try_from(left).unwrap_or_default() + Duration::from_millis(50)
}
