//! The order that a tenant can rely on, seen in watches from the side on both API servers: no claim
//! is `Bound` before its host claim is and the tenant has its volume, and the host claim is held
//! back from its first version until then.
//!
//! Versions of one server compare by their numbers. From the host to the tenant leads the host's
//! resourceVersion that the tenant's volume carries from its creation; from the tenant to the host
//! leads the audit log of both, on one clock: a service that keeps the order asks for the second
//! write only when the first has been answered.

use anyhow::{Context as _, Result, ensure};
use carrick_core::Names;
use carrick_e2e::{
    Binder, CLASS, Recorder, Stage, Version, carrick_writes, make_claims, numbered, phase,
    until_bound, until_ok,
};
use carrick_testbed::{AuditWrite, Testbed};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::CAP;

const NAMESPACE: &str = "team-a";

#[tokio::test]
async fn no_tenant_sees_bound_before_its_volume_and_the_hosts_bound_are_there() -> Result<()> {
    Testbed::run("order", async |testbed| {
        let tenants = [("kcp", Binder::Carrick), ("vc", Binder::Tenant)];
        let stage = Stage::start(testbed, &tenants).await?;
        for (tenant, count) in [("kcp", 200), ("vc", 50)] {
            let client = stage.client(tenant).await?;
            let watched = Watched {
                tenant_claims: Recorder::start(client.clone()).await?,
                tenant_volumes: Recorder::start(client.clone()).await?,
                host_claims: Recorder::start(stage.host.client().await?).await?,
            };
            let claims = numbered("data", count);
            make_claims(&client, NAMESPACE, claims.clone(), CLASS).await?;
            until_bound(&client, NAMESPACE, count, CAP * 2).await?;
            // The watches may be a moment behind.
            until_ok(&format!("the order in {tenant}"), CAP / 4, async || {
                watched.check(&stage, tenant, &claims)
            })
            .await?;
        }
        stage.carrick.check_alive()
    })
    .await
}

struct Watched {
    tenant_claims: Recorder<PersistentVolumeClaim>,
    tenant_volumes: Recorder<PersistentVolume>,
    host_claims: Recorder<PersistentVolumeClaim>,
}

/// All that was seen of one claim.
struct Story<'a> {
    claim: &'a [Version<PersistentVolumeClaim>],
    volume: &'a [Version<PersistentVolume>],
    host: &'a [Version<PersistentVolumeClaim>],
}

impl Watched {
    fn check(&self, stage: &Stage<'_>, tenant: &str, claims: &[String]) -> Result<()> {
        let tenant_claims = self.tenant_claims.objects()?;
        let tenant_volumes = self.tenant_volumes.objects()?;
        let host_claims = self.host_claims.objects()?;
        let writes = (carrick_writes(&stage.host)?, carrick_writes(stage.tenant(tenant)?)?);
        let host_namespace = stage.host_namespace(tenant, NAMESPACE);
        for name in claims {
            let claim = named(tenant_claims.values(), NAMESPACE, name).context("no claim")?;
            let uid = claim[0].object.metadata.uid.as_deref();
            let volume = tenant_volumes.values().find(|versions| claim_uid(&versions[0]) == uid);
            let volume = volume.with_context(|| format!("no volume was made for claim {name}"))?;
            let host =
                named(host_claims.values(), &host_namespace, name).context("no host claim")?;
            let story = Story { claim, volume, host };
            let checked = story.check(stage.names());
            checked
                .and_then(|()| story.check_release(&writes))
                .with_context(|| format!("claim {name}"))?;
        }
        Ok(())
    }
}

impl Story<'_> {
    fn check(&self, names: &Names) -> Result<()> {
        let Self { claim, volume, host } = self;
        let bound = claim.iter().find(|version| phase(&version.object) == "Bound");
        let bound = bound.context("it was never seen Bound")?.rv;
        let made = &volume[0];
        ensure!(made.first && made.rv < bound, "Bound at {bound}, its volume made at {}", made.rv);
        ensure!(!volume.iter().any(|version| version.gone), "its volume went again");

        let held = |version: &Version<PersistentVolumeClaim>| {
            annotation(&version.object.metadata, &names.delay()) == Some("true")
        };
        ensure!(host[0].first && held(&host[0]), "its host claim was made without being held back");
        let released = host.iter().position(|version| !held(version));
        let released = released.context("its host claim was never released")?;
        ensure!(!host[released..].iter().any(held), "its host claim was held back again");

        let host_bound = host.iter().find(|version| phase(&version.object) == "Bound");
        let host_bound = host_bound.context("its host claim was never seen Bound")?.rv;
        ensure!(host_bound < host[released].rv, "its host claim was released before it was Bound");
        let carried = annotation(&made.object.metadata, &names.carried_rv());
        let carried: u64 = carried.context("its volume has no rv")?.parse()?;
        ensure!(host_bound < carried, "Bound on the host at {host_bound}, carried up {carried}");
        Ok(())
    }

    /// The host claim was released after the tenant had its volume.
    fn check_release(&self, (host, tenant): &(Vec<AuditWrite>, Vec<AuditWrite>)) -> Result<()> {
        let volume = self.volume[0].object.metadata.name.clone().unwrap_or_default();
        let made = tenant.iter().find(|write| {
            write.resource == "persistentvolumes"
                && write.verb == "create"
                && write.name == volume
                && write.code == 201
        });
        let made = made.context("nobody has made its volume")?;
        let meta = &self.host[0].object.metadata;
        let released = host.iter().find(|write| {
            write.resource == "persistentvolumeclaims"
                && write.verb != "create"
                && Some(&write.namespace) == meta.namespace.as_ref()
                && Some(&write.name) == meta.name.as_ref()
                && write.code == 200
        });
        let released = released.context("nobody has released its host claim")?;
        ensure!(made.time < released.time, "{released:?} before {made:?}");
        Ok(())
    }
}

fn named<'a>(
    mut objects: impl Iterator<Item = &'a Vec<Version<PersistentVolumeClaim>>>,
    namespace: &str,
    name: &str,
) -> Option<&'a [Version<PersistentVolumeClaim>]> {
    let found = objects.find(|versions| {
        let meta = &versions[0].object.metadata;
        meta.namespace.as_deref() == Some(namespace) && meta.name.as_deref() == Some(name)
    });
    found.map(Vec::as_slice)
}

fn claim_uid(version: &Version<PersistentVolume>) -> Option<&str> {
    version.object.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref()
}

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}
