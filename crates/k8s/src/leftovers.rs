//! What there still is of a Tenant: on the host for its claims, and in it with Carrick's marks.

use std::{collections::BTreeSet, fmt};

use carrick_core::{
    Locator, Names, SyncTarget,
    decide::ownership::{has_finalizer, label},
    names::PROVISIONER,
};
use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{Api, ResourceExt, api::ListParams};

use crate::{client::Client, error::Error};

/// What is on the host for a logical cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnHost {
    /// Claims.
    pub claims: usize,
    /// Namespaces.
    pub namespaces: usize,
}

/// What is in a tenant with the marks of a sync target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InTenant {
    /// Claims with its finalizer.
    pub claims: usize,
    /// Volumes with its finalizer.
    pub volumes: usize,
    /// Storage classes that it published.
    pub classes: usize,
}

impl OnHost {
    /// Counts, as the host says now.
    pub async fn count(
        host: &Client,
        target: &SyncTarget,
        names: &Names,
        cluster: &str,
    ) -> Result<Self, Error> {
        let kube = host.kube();
        let ours = ListParams::default().labels(&format!("{}={}", names.cluster(), names.key()));
        let is_of_tenant = |namespace: &Namespace| {
            let locator = namespace.annotations().get(&names.locator());
            let locator = locator.and_then(|text| Locator::parse(text).ok());
            locator.is_some_and(|found| found.target == *target && found.cluster == cluster)
        };
        let namespaces = Api::<Namespace>::all(kube.clone());
        let namespaces = host.call(namespaces.list(&ours)).await;
        let namespaces = namespaces.map_err(|error| Error::of("the host's namespaces", &error))?;
        let namespaces = namespaces.iter().filter(|found| is_of_tenant(found));
        let namespaces: BTreeSet<_> = namespaces.map(ResourceExt::name_any).collect();
        let claims = Api::<PersistentVolumeClaim>::all(kube.clone());
        let claims = host.call(claims.list_metadata(&ours)).await;
        let claims = claims.map_err(|error| Error::of("the host's claims", &error))?;
        let is_in = |claim: &&_| {
            let namespace = ResourceExt::namespace(*claim);
            namespace.is_some_and(|namespace| namespaces.contains(&namespace))
        };
        Ok(Self { claims: claims.iter().filter(is_in).count(), namespaces: namespaces.len() })
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl InTenant {
    /// Counts, as the tenant says now.
    pub async fn count(tenant: &Client, names: &Names) -> Result<Self, Error> {
        let (kube, all, finalizer) = (tenant.kube(), ListParams::default(), names.finalizer());
        let claims = Api::<PersistentVolumeClaim>::all(kube.clone());
        let volumes = Api::<PersistentVolume>::all(kube.clone());
        let classes = Api::<StorageClass>::all(kube.clone());
        let (claims, volumes, classes) = tokio::join!(
            tenant.call(claims.list_metadata(&all)),
            tenant.call(volumes.list_metadata(&all)),
            tenant.call(classes.list(&all)),
        );
        let claims = claims.map_err(|error| Error::of("its claims", &error))?;
        let volumes = volumes.map_err(|error| Error::of("its volumes", &error))?;
        let classes = classes.map_err(|error| Error::of("its storage classes", &error))?;
        let published = |class: &&StorageClass| {
            let key = label(&class.metadata, &names.cluster());
            class.provisioner == PROVISIONER && key == Some(names.key())
        };
        Ok(Self {
            claims: claims.iter().filter(|o| has_finalizer(&o.metadata, &finalizer)).count(),
            volumes: volumes.iter().filter(|o| has_finalizer(&o.metadata, &finalizer)).count(),
            classes: classes.iter().filter(published).count(),
        })
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for OnHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, namespaces } = *self;
        listed(f, &[(claims, "claim", "s"), (namespaces, "namespace", "s")])
    }
}

impl fmt::Display for InTenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, volumes, classes } = *self;
        listed(
            f,
            &[(claims, "claim", "s"), (volumes, "volume", "s"), (classes, "storage class", "es")],
        )
    }
}

/// `2 claims, 1 volume`, without what there is none of; `nothing`.
fn listed(f: &mut fmt::Formatter<'_>, counts: &[(usize, &str, &str)]) -> fmt::Result {
    let some = counts.iter().filter(|(count, ..)| *count > 0);
    let some: Vec<_> = some
        .map(|(count, one, more)| format!("{count} {one}{}", if *count == 1 { "" } else { more }))
        .collect();
    f.write_str(if some.is_empty() { "nothing" } else { "" })?;
    f.write_str(&some.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_none_of_is_not_listed() {
        let said = |claims, volumes, classes| InTenant { claims, volumes, classes }.to_string();
        assert_eq!(said(0, 0, 0), "nothing");
        assert_eq!(said(2, 1, 2), "2 claims, 1 volume, 2 storage classes");
        assert_eq!(OnHost { claims: 1, namespaces: 0 }.to_string(), "1 claim");
    }
}
