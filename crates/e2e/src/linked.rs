//! Whether a claim is bound and linked both ways, read from both API servers.

use anyhow::{Context as _, Result, ensure};
use carrick_core::{
    Locator, Names, SyncTarget,
    names::{PROVISIONED_BY, PROVISIONER, TENANT_CLAIM_UID, UPSYNC},
};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client};

use crate::claims::phase;

/// A claim on both sides, with its volume on both sides.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The claim in the tenant.
    pub tenant_claim: PersistentVolumeClaim,
    /// The volume in the tenant.
    pub tenant_volume: PersistentVolume,
    /// The claim on the host.
    pub host_claim: PersistentVolumeClaim,
    /// The volume on the host.
    pub host_volume: PersistentVolume,
}

/// Reads a claim and its volume on both sides, and checks all that must hold of a bound one.
pub async fn check_pair(
    (host, tenant): (&Client, &Client),
    (target, names): &(SyncTarget, Names),
    cluster: &str,
    (namespace, claim): (&str, &str),
) -> Result<Pair> {
    let locator = Locator {
        target: target.clone(),
        cluster: cluster.to_owned(),
        namespace: namespace.to_owned(),
    };
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(tenant.clone(), namespace);
    let tenant_claim = claims.get(claim).await.context("the tenant's claim")?;
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(host.clone(), &locator.host_namespace());
    let host_claim = claims.get(claim).await.context("the host's claim")?;
    let name = host_claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    let name = name.context("the host claim names a volume")?;
    let volumes: Api<PersistentVolume> = Api::all(host.clone());
    let host_volume = volumes.get(&name).await.context("the host's volume")?;
    let volumes: Api<PersistentVolume> = Api::all(tenant.clone());
    let tenant_volume = volumes.get(&name).await.context("the tenant's volume")?;
    let pair = Pair { tenant_claim, tenant_volume, host_claim, host_volume };
    pair.check(names, &locator).with_context(|| format!("claim {cluster}/{namespace}/{claim}"))?;
    Ok(pair)
}

impl Pair {
    fn check(&self, names: &Names, locator: &Locator) -> Result<()> {
        self.check_tenant_claim(names)?;
        self.check_tenant_volume(names)?;
        self.check_host(names, locator)
    }

    fn check_tenant_claim(&self, names: &Names) -> Result<()> {
        let Self { tenant_claim: claim, tenant_volume: volume, .. } = self;
        let status = claim.status.clone().unwrap_or_default();
        let spec = claim.spec.clone().unwrap_or_default();
        ensure!(phase(claim) == "Bound", "the tenant's claim is {}", phase(claim));
        ensure!(spec.volume_name == volume.metadata.name, "volumeName {:?}", spec.volume_name);
        let volume_spec = volume.spec.clone().unwrap_or_default();
        ensure!(status.capacity == volume_spec.capacity, "capacity {:?}", status.capacity);
        ensure!(status.access_modes == volume_spec.access_modes, "{:?}", status.access_modes);
        let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        ensure!(finalizers.contains(&names.finalizer()), "finalizers {finalizers:?}");
        Ok(())
    }

    fn check_tenant_volume(&self, names: &Names) -> Result<()> {
        let Self { tenant_claim: claim, tenant_volume: volume, host_volume, .. } = self;
        let (spec, host) = (volume.spec.clone(), host_volume.spec.clone());
        let (mut spec, mut host) = (spec.unwrap_or_default(), host.unwrap_or_default());
        let reference = spec.claim_ref.take().context("the tenant's volume has a claimRef")?;
        host.claim_ref.take();
        ensure!(reference.uid == claim.metadata.uid, "claimRef.uid {:?}", reference.uid);
        ensure!(reference.name == claim.metadata.name, "claimRef.name {:?}", reference.name);
        ensure!(reference.namespace == claim.metadata.namespace, "{:?}", reference.namespace);
        ensure!(spec == host, "but for claimRef the specs are the same: {spec:?}, {host:?}");
        let status = volume.status.clone().unwrap_or_default();
        ensure!(status.phase.as_deref() == Some("Bound"), "the tenant's volume is {status:?}");
        self.check_marks(names)
    }

    fn check_marks(&self, names: &Names) -> Result<()> {
        let Self { tenant_volume, host_volume, .. } = self;
        let meta = &tenant_volume.metadata;
        ensure!(label(meta, &names.state()) == Some(UPSYNC), "labels {:?}", meta.labels);
        ensure!(label(meta, &names.cluster()).is_none(), "labels {:?}", meta.labels);
        let finalizers = meta.finalizers.clone().unwrap_or_default();
        ensure!(finalizers.contains(&names.finalizer()), "finalizers {finalizers:?}");
        let carried = annotation(meta, &names.carried_rv());
        ensure!(carried == host_volume.metadata.resource_version.as_deref(), "rv {carried:?}");
        ensure!(annotation(meta, PROVISIONED_BY) == Some(PROVISIONER), "{:?}", meta.annotations);
        ensure!(annotation(meta, &names.locator()).is_none(), "{:?}", meta.annotations);
        ensure!(annotation(meta, &names.diff()).is_none(), "{:?}", meta.annotations);
        Ok(())
    }

    fn check_host(&self, names: &Names, locator: &Locator) -> Result<()> {
        let Self { tenant_claim, host_claim, host_volume, .. } = self;
        let meta = &host_claim.metadata;
        ensure!(phase(host_claim) == "Bound", "the host's claim is {}", phase(host_claim));
        ensure!(label(meta, &names.cluster()) == Some(names.key()), "labels {:?}", meta.labels);
        ensure!(annotation(meta, &names.delay()).is_none(), "still held back");
        let owner = annotation(meta, TENANT_CLAIM_UID);
        ensure!(owner == tenant_claim.metadata.uid.as_deref(), "owner {owner:?}");
        let meta = &host_volume.metadata;
        let expected = locator.cluster_scoped().to_json();
        let found = annotation(meta, &names.locator());
        ensure!(found == Some(expected.as_str()), "locator {found:?}");
        ensure!(expected.contains("\"namespace\":\"\""), "{expected}");
        ensure!(label(meta, &names.cluster()) == Some(names.key()), "labels {:?}", meta.labels);
        ensure!(label(meta, &names.state()) == Some(UPSYNC), "labels {:?}", meta.labels);
        let diff = annotation(meta, &names.diff()).context("the host volume has a diff")?;
        let reference = carrick_core::claim_ref::parse_diff(diff)?;
        ensure!(reference.uid == tenant_claim.metadata.uid, "diff {diff}");
        let reference = host_volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let reference = reference.context("the host volume has a claimRef")?;
        ensure!(reference.uid == host_claim.metadata.uid, "the host's own link is gone");
        Ok(())
    }
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}
