//! Two instances of every service share the work: every claim is bound with the writes that one
//! instance needs and no more; where both try, the precondition of the write lets one through.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::{
    Binder, CLASS, Pair, SERVICES, Stage, carrick_writes, make_claims, numbered, until_no_writes,
};
use carrick_testbed::{AuditWrite, ControlPlane, Testbed};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};

use crate::CAP;

const TENANT: &str = "kcp";
const NAMESPACE: &str = "team-a";
const CLAIMS: usize = 100;
/// Finalizer, volume name and status on the tenant's claim, the tenant's volume and its status, the
/// host's claim and its release, the marks of the host's volume.
const NEEDED: usize = 8;

/// Resource, namespace and name of an object, and how often it was written.
type Counts = BTreeMap<(String, String, String), usize>;

#[tokio::test]
async fn two_instances_of_every_service_write_what_one_would() -> Result<()> {
    Testbed::run("doubled", async |testbed| {
        let stage = Stage::servers(testbed, &[(TENANT, Binder::Carrick)]).await?;
        for instance in ["0", "1"] {
            stage.carrick.start_all(instance)?;
        }
        for service in SERVICES.iter().filter(|service| **service != "watcher") {
            for instance in ["0", "1"] {
                stage.carrick.until_ready(service, instance, CAP).await?;
            }
        }
        stage.add_tenants().await?;
        let client = stage.client(TENANT).await?;
        let claims = numbered("data", CLAIMS);
        make_claims(&client, NAMESPACE, claims.clone(), CLASS).await?;
        let pairs = stage.linked(TENANT, NAMESPACE, &claims).await?;
        let tenant = stage.tenant(TENANT)?;
        until_no_writes(&[&stage.host, tenant], Duration::from_secs(5), CAP).await?;

        let needed = needed(&stage, &pairs)?;
        let wasted = same_writes(&stage.host, &needed.0)? + same_writes(tenant, &needed.1)?;
        println!("{wasted} writes of {} were refused", NEEDED * CLAIMS);
        ensure!(wasted <= NEEDED * CLAIMS / 2, "{wasted} writes were refused");

        // The watcher at work dies: the other one takes its place.
        stage.carrick.kill("watcher", &active_watcher(&stage).await?).await?;
        let more = numbered("more", 10);
        make_claims(&client, NAMESPACE, more.clone(), CLASS).await?;
        stage.linked(TENANT, NAMESPACE, &more).await?;
        Ok(())
    })
    .await
}

/// The writes that these claims need, on the host and in the tenant.
fn needed(stage: &Stage<'_>, pairs: &[Pair]) -> Result<(Counts, Counts)> {
    let (claims, volumes) = ("persistentvolumeclaims", "persistentvolumes");
    let key = |resource: &str, namespace: &str, name: &str| {
        (resource.to_owned(), namespace.to_owned(), name.to_owned())
    };
    let host_namespace = stage.host_namespace(TENANT, NAMESPACE);
    let mut host = Counts::from([(key("namespaces", "", &host_namespace), 1)]);
    let mut tenant = Counts::new();
    for pair in pairs {
        let claim = pair.host_claim.metadata.name.as_deref().context("a claim has a name")?;
        let volume = pair.host_volume.metadata.name.as_deref().context("a volume has a name")?;
        host.insert(key(claims, &host_namespace, claim), 2);
        host.insert(key(volumes, "", volume), 1);
        tenant.insert(key(claims, NAMESPACE, claim), 3);
        tenant.insert(key(volumes, "", volume), 2);
    }
    let total: usize = host.values().chain(tenant.values()).sum();
    ensure!(total == NEEDED * pairs.len() + 1, "{total} writes are needed");
    Ok((host, tenant))
}

/// Checks that just these writes went through; gives how many were refused.
fn same_writes(plane: &ControlPlane, needed: &Counts) -> Result<usize> {
    let of_claims = |write: &AuditWrite| {
        // The CLI has made a namespace, too.
        !write.user_agent.starts_with("carrick-cli/")
            && ["persistentvolumeclaims", "persistentvolumes", "namespaces"]
                .contains(&write.resource.as_str())
    };
    let writes: Vec<_> = carrick_writes(plane)?.into_iter().filter(of_claims).collect();
    let (done, refused): (Vec<_>, Vec<_>) =
        writes.into_iter().partition(|write| (200..300).contains(&write.code));
    let other = refused.iter().find(|write| !matches!(write.code, 409 | 422));
    ensure!(other.is_none(), "not refused by a precondition: {other:?}");
    let mut counts = Counts::new();
    for AuditWrite { resource, namespace, name, .. } in done {
        *counts.entry((resource, namespace, name)).or_default() += 1;
    }
    let name = plane.name();
    for (object, count) in &counts {
        let needed = needed.get(object).copied().unwrap_or_default();
        ensure!(*count == needed, "{name}: {object:?} was written {count} times, not {needed}");
    }
    ensure!(counts.len() == needed.len(), "{name}: {} objects were written", counts.len());
    Ok(refused.len())
}

/// Which instance of the watcher holds the lease.
async fn active_watcher(stage: &Stage<'_>) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(stage.host.client().await?, "carrick-system");
    let leases = leases.list(&ListParams::default()).await?.items;
    let mut holders =
        leases.iter().filter_map(|lease| lease.spec.as_ref()?.holder_identity.as_deref());
    let holder = holders.find_map(|holder| holder.strip_prefix("watcher-"));
    holder.map(str::to_owned).with_context(|| format!("no watcher holds any of {leases:?}"))
}
