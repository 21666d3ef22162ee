//! One namespace of a tenant and what stands for it on the host: changed and looked at as people
//! with `kubectl` would.

use std::{fmt, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{Stage, until_ok};

/// How long anything here may take.
const CAP: Duration = Duration::from_mins(1);

/// A namespace of a tenant, and its host namespace.
#[derive(Clone)]
pub struct Place {
    /// The namespace in the tenant.
    pub namespace: String,
    /// The namespace on the host.
    pub host_namespace: String,
    /// The tenant.
    pub tenant: Client,
    /// The host.
    pub host: Client,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Place {
    /// A namespace of one of the stage's tenants; it need not be there.
    pub async fn new(stage: &Stage<'_>, tenant: &str, namespace: &str) -> Result<Self> {
        Ok(Self {
            namespace: namespace.to_owned(),
            host_namespace: stage.host_namespace(tenant, namespace),
            tenant: stage.client(tenant).await?,
            host: stage.host.client().await?,
        })
    }

    /// The claims in the tenant.
    pub fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.tenant.clone(), &self.namespace)
    }

    /// The claims on the host.
    pub fn host_claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.host.clone(), &self.host_namespace)
    }

    /// All volumes of the tenant.
    pub fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.tenant.clone())
    }

    /// All volumes of the host.
    pub fn host_volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.host.clone())
    }

    /// All namespaces of the tenant.
    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.tenant.clone())
    }

    /// All namespaces of the host.
    pub fn host_namespaces(&self) -> Api<Namespace> {
        Api::all(self.host.clone())
    }

    /// Changes a claim in the tenant (a JSON merge patch).
    pub async fn merge_claim(&self, claim: &str, patch: Value) -> Result<PersistentVolumeClaim> {
        let patch = Patch::Merge(patch);
        let patched = self.claims().patch(claim, &PatchParams::default(), &patch).await;
        patched.with_context(|| format!("change claim {claim}"))
    }

    /// Annotates a claim in the tenant; `null` takes the annotation off.
    pub async fn annotate_claim(&self, claim: &str, key: &str, value: Value) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {(key): value}}});
        self.merge_claim(claim, patch).await.map(|_| ())
    }

    /// Annotates the namespace in the tenant; `null` takes the annotation off.
    pub async fn annotate_namespace(&self, key: &str, value: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {(key): value}}}));
        let patched =
            self.namespaces().patch(&self.namespace, &PatchParams::default(), &patch).await;
        patched.map(|_| ()).with_context(|| format!("annotate namespace {}", self.namespace))
    }

    /// Deletes a claim in the tenant; it may stay while something holds it.
    pub async fn delete_claim(&self, claim: &str) -> Result<()> {
        let deleted = self.claims().delete(claim, &DeleteParams::default()).await;
        deleted.map(|_| ()).with_context(|| format!("delete claim {claim}"))
    }

    /// Waits until a claim is gone from both sides.
    pub async fn until_claim_gone(&self, claim: &str) -> Result<()> {
        until_gone(&self.host_claims(), claim).await.context("on the host")?;
        until_gone(&self.claims(), claim).await.context("in the tenant")
    }
}

/// Waits until an object is gone.
pub async fn until_gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    until_ok(&format!("{name} to be gone"), CAP, async || match api.get_opt(name).await? {
        None => Ok(()),
        Some(found) => bail!("it is there: {:?}", found.meta()),
    })
    .await
}

/// Fails if an object is not there, is being deleted, or is another one than this.
pub async fn check_stays<K>(api: &Api<K>, name: &str, uid: Option<&str>) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let found = api.get(name).await?;
    let meta = found.meta();
    ensure!(meta.deletion_timestamp.is_none(), "{name} is being deleted");
    ensure!(uid.is_none() || meta.uid.as_deref() == uid, "{name} is another one");
    Ok(())
}
