//! Names that are hard to carry, and names that are the same in many places: all bind, and nothing
//! is mixed up.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use carrick_e2e::{
    Binder, CLASS, KUBECONFIG, Stage, make_claims, make_tenant, put_secret, until_condition,
};
use carrick_testbed::Testbed;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::ListParams};

use crate::CAP;

#[tokio::test]
async fn dots_long_names_and_the_same_names_elsewhere_are_kept_apart() -> Result<()> {
    Testbed::run("names", async |testbed| {
        // One tenant's name is the other's and more, and each dot could be taken for a separator.
        let tenants = ["acme", "acme.team-a"];
        let binders = tenants.map(|tenant| (tenant, Binder::Carrick));
        let stage = Stage::servers(testbed, &binders).await?;
        stage.carrick.start_all("0")?;
        stage.carrick.until_all_ready("0", CAP).await?;
        let host = stage.host.client().await?;
        for tenant in tenants {
            // By hand, since the CLI gives no names with dots.
            put_secret(&host, tenant, KUBECONFIG, &stage.tenant(tenant)?.kubeconfig()).await?;
            make_tenant(&host, tenant, tenant).await?;
            until_condition(&host, tenant, ("Synced", "True"), CAP).await?;
        }
        let long = "n".repeat(63);
        let namespaces = ["team-a", "team-b", &long];
        let claims = claims();
        for tenant in tenants {
            let client = stage.client(tenant).await?;
            for namespace in namespaces {
                make_claims(&client, namespace, claims.clone(), CLASS).await?;
            }
        }
        let mut behind = BTreeSet::new();
        let mut host_namespaces = BTreeSet::new();
        for tenant in tenants {
            for namespace in namespaces {
                let pairs = stage.linked(tenant, namespace, &claims).await?;
                behind.extend(pairs.into_iter().map(|pair| pair.host_volume.metadata.uid));
                host_namespaces.insert(stage.host_namespace(tenant, namespace));
            }
            let volumes: Api<PersistentVolume> = Api::all(stage.client(tenant).await?);
            let found = volumes.list(&ListParams::default()).await?.items.len();
            ensure!(found == namespaces.len() * claims.len(), "{tenant} has {found} volumes");
        }
        let everywhere = tenants.len() * namespaces.len();
        ensure!(host_namespaces.len() == everywhere, "{host_namespaces:?}");
        ensure!(behind.len() == everywhere * claims.len(), "{} host volumes", behind.len());
        stage.carrick.check_alive()
    })
    .await
}

/// The longest name there is, another one that ends differently, dots and what dots turn into.
fn claims() -> Vec<String> {
    let long = "a.".repeat(126);
    let mut claims = vec![format!("{long}b"), format!("{long}c")];
    claims.extend(["data", "data.v1", "data-v1", "data.v1.backup", "0"].map(str::to_owned));
    claims
}
