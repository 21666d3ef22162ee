//! A claim is bound on both sides and linked both ways, whoever binds in the tenant; then Carrick
//! rests, and no controller of the tenant can delete the data behind the host's volume.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use carrick_core::names::{PROVISIONED_BY, PROVISIONER};
use carrick_e2e::{
    Binder, CLASS, HOST_PATH, Pair, SERVICES, Stage, make_claims, numbered, until_bound,
    until_gone, until_no_writes, until_ok,
};
use carrick_testbed::{Testbed, eventually};
use k8s_openapi::api::{
    core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::CAP;

const NAMESPACE: &str = "team-a";
const OWN_NAMESPACE: &str = "team-own";
const OWN_CLASS: &str = "own";
const REST: Duration = Duration::from_secs(30);
/// In which Carrick may still write after all claims are linked, as the counts of a Tenant.
const SETTLE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_claim_of_a_tenant_without_a_binder_is_bound_and_linked_both_ways() -> Result<()> {
    Testbed::run("bound", async |testbed| {
        let stage = Stage::start(testbed, &[("kcp", Binder::Carrick)]).await?;
        let claims = numbered("data", 3);
        make_claims(&stage.client("kcp").await?, NAMESPACE, claims.clone(), CLASS).await?;
        for pair in stage.linked("kcp", NAMESPACE, &claims).await? {
            check_volume(&pair)?;
        }
        stage.carrick.check_alive()
    })
    .await
}

#[tokio::test]
async fn a_tenants_own_binder_is_not_fought_and_cannot_delete_the_hosts_data() -> Result<()> {
    Testbed::run("binder", async |testbed| {
        let tenants = [("kcp", Binder::Carrick), ("vc", Binder::Tenant)];
        let stage = Stage::start(testbed, &tenants).await?;
        let client = stage.client("vc").await?;
        check_published(&client).await?;

        let claims = numbered("data", 5);
        for (tenant, _) in tenants {
            let client = stage.client(tenant).await?;
            make_claims(&client, NAMESPACE, claims.clone(), CLASS).await?;
        }
        stage.linked("kcp", NAMESPACE, &claims).await?;
        let pairs = stage.linked("vc", NAMESPACE, &claims).await?;
        let planes = [&stage.host, stage.tenant("kcp")?, stage.tenant("vc")?];
        until_no_writes(&planes, REST, REST + SETTLE).await?;
        pairs.iter().try_for_each(check_volume)?;
        check_all_ours(&client, claims.len()).await?;

        // Of a claim of the tenant's own class Carrick takes no notice.
        stage.tenant("vc")?.create_storage_class(OWN_CLASS, HOST_PATH).await?;
        make_claims(&client, OWN_NAMESPACE, ["own".to_owned()], OWN_CLASS).await?;
        let own = until_bound(&client, OWN_NAMESPACE, 1, CAP).await?.remove(0);
        let finalizers = own.metadata.finalizers.clone().unwrap_or_default();
        ensure!(!finalizers.contains(&stage.names().finalizer()), "{finalizers:?}");

        stage.carrick.check_alive()?;
        check_data_outlives_the_tenants_objects(&stage, &pairs, &own).await
    })
    .await
}

/// The volume is what was asked for, with the host's storage behind it.
fn check_volume(pair: &Pair) -> Result<()> {
    let spec = pair.tenant_volume.spec.clone().unwrap_or_default();
    let capacity = pair.tenant_claim.status.as_ref().and_then(|status| status.capacity.clone());
    let storage = capacity.unwrap_or_default().remove("storage").map(|size| size.0);
    ensure!(storage.as_deref() == Some("1Mi"), "capacity {storage:?}");
    ensure!(spec.access_modes == Some(vec!["ReadWriteOnce".to_owned()]), "{:?}", spec.access_modes);
    ensure!(spec.storage_class_name.as_deref() == Some(CLASS), "{:?}", spec.storage_class_name);
    let policy = spec.persistent_volume_reclaim_policy.as_deref();
    ensure!(policy == Some("Delete"), "reclaim policy {policy:?}");
    ensure!(folder_of(&pair.tenant_volume)? == folder_of(&pair.host_volume)?, "source");
    Ok(())
}

/// The class stands in the tenant so that its binder leaves all to Carrick.
async fn check_published(client: &Client) -> Result<()> {
    let classes: Api<StorageClass> = Api::all(client.clone());
    let class = until_ok("the class to be published", CAP, async || {
        classes.get(CLASS).await.context("the tenant's class")
    })
    .await?;
    ensure!(class.provisioner == PROVISIONER, "provisioner {}", class.provisioner);
    let mode = class.volume_binding_mode.as_deref();
    ensure!(mode == Some("Immediate"), "binding mode {mode:?}");
    ensure!(class.parameters.unwrap_or_default().is_empty(), "the host's parameters were shown");
    Ok(())
}

/// The tenant's own controllers have provisioned no volume for a claim of ours.
async fn check_all_ours(client: &Client, count: usize) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volumes = volumes.list(&ListParams::default()).await?.items;
    ensure!(volumes.len() == count, "{} volumes for {count} claims", volumes.len());
    for volume in volumes {
        let annotations = volume.metadata.annotations.unwrap_or_default();
        let provisioner = annotations.get(PROVISIONED_BY).map(String::as_str);
        ensure!(provisioner == Some(PROVISIONER), "{:?}: {annotations:?}", volume.metadata.name);
    }
    Ok(())
}

/// With no service there to help or to delete anything, a claim, a volume, both, and the whole
/// namespace go; the tenant's controllers, which delete the data of a volume of their own, leave
/// that of the host.
async fn check_data_outlives_the_tenants_objects(
    stage: &Stage<'_>,
    pairs: &[Pair],
    own: &PersistentVolumeClaim,
) -> Result<()> {
    for service in SERVICES {
        stage.carrick.kill(service, "0").await?;
    }
    let client = stage.client("vc").await?;
    let finalizer = stage.names().finalizer();
    let mut files = Vec::new();
    for pair in pairs {
        let file = folder_of(&pair.host_volume)?.join("kept");
        fs::write(&file, "data").with_context(|| format!("write {}", file.display()))?;
        files.push(file);
    }
    delete_for_good(&client, &pairs[0].tenant_claim, &finalizer).await?;
    delete_volume_for_good(&client, &pairs[1]).await?;
    delete_volume_for_good(&client, &pairs[2]).await?;
    delete_for_good(&client, &pairs[2].tenant_claim, &finalizer).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.delete(NAMESPACE, &DeleteParams::default()).await?;
    for pair in &pairs[3..] {
        until_finalizer_off(&client, &pair.tenant_claim, &finalizer).await?;
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    for pair in [&pairs[0], &pairs[3]] {
        let name = pair.tenant_volume.metadata.name.clone().context("a volume has a name")?;
        until_ok("the tenant's volume to be released", CAP, async || {
            let status = volumes.get(&name).await?.status.unwrap_or_default();
            let phase = status.phase.as_deref();
            ensure!(matches!(phase, Some("Released" | "Failed")), "its phase is {phase:?}");
            Ok(())
        })
        .await?;
    }

    let spec = own.spec.clone().unwrap_or_default();
    let own_volume = volumes.get(&spec.volume_name.context("it is bound")?).await?;
    let own_folder = folder_of(&own_volume)?;
    ensure!(own_folder.is_dir(), "{} is no folder", own_folder.display());
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, OWN_NAMESPACE);
    claims.delete("own", &DeleteParams::default()).await?;
    eventually("the tenant's controllers to delete data of their own", CAP, async || {
        Ok((!own_folder.exists()).then_some(()))
    })
    .await?;
    for file in files {
        let kept = fs::read_to_string(&file).context("the file in the host's volume is gone")?;
        ensure!(kept == "data", "the file has {kept:?}");
    }
    Ok(())
}

/// Deletes a volume of the tenant, whoever's finalizers are on it.
async fn delete_volume_for_good(client: &Client, pair: &Pair) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let name = pair.tenant_volume.metadata.name.as_deref().context("a volume has a name")?;
    volumes.delete(name, &DeleteParams::default()).await?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    volumes.patch(name, &PatchParams::default(), &patch).await?;
    until_gone(&volumes, name).await
}

/// Deletes a claim and takes Carrick's finalizer off it, until it is gone.
async fn delete_for_good(
    client: &Client,
    claim: &PersistentVolumeClaim,
    finalizer: &str,
) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let name = claim.metadata.name.as_deref().context("a claim has a name")?;
    claims.delete(name, &DeleteParams::default()).await?;
    until_finalizer_off(client, claim, finalizer).await
}

/// Takes Carrick's finalizer off a claim that is being deleted, until it is gone.
async fn until_finalizer_off(
    client: &Client,
    claim: &PersistentVolumeClaim,
    finalizer: &str,
) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let name = claim.metadata.name.as_deref().context("a claim has a name")?;
    until_ok("the tenant's claim to go", CAP, async || {
        let Some(claim) = claims.get_opt(name).await? else { return Ok(()) };
        let finalizers = claim.metadata.finalizers.unwrap_or_default();
        let others: Vec<_> = finalizers.iter().filter(|found| *found != finalizer).collect();
        let metadata =
            json!({"resourceVersion": claim.metadata.resource_version, "finalizers": others});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        claims.patch(name, &PatchParams::default(), &patch).await?;
        anyhow::bail!("it had {finalizers:?}")
    })
    .await
}

fn folder_of(volume: &PersistentVolume) -> Result<PathBuf> {
    let source = volume.spec.as_ref().and_then(|spec| spec.host_path.as_ref());
    Ok(PathBuf::from(&source.context("the volume is a folder of this machine")?.path))
}
