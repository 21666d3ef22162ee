//! Control planes bind, wait, restart and tell what was written.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use carrick_testbed::{ControlPlane, ControlPlaneOptions, NatsOptions, Stop, Testbed, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::json;

const CAP: Duration = Duration::from_secs(30);
const HOST_PATH: &str = "kubernetes.io/host-path";

fn object<K: DeserializeOwned>(json: serde_json::Value) -> K {
    serde_json::from_value(json).expect("an object of its kind")
}

async fn create_claim(plane: &ControlPlane, name: &str) -> Result<Api<PersistentVolumeClaim>> {
    let api = Api::namespaced(plane.client().await?, "default");
    let claim = object(json!({
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "fast",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }));
    api.create(&PostParams::default(), &claim).await?;
    Ok(api)
}

fn phase(claim: PersistentVolumeClaim) -> Option<String> {
    claim.status.and_then(|status| status.phase)
}

#[tokio::test]
async fn host_binds_and_tenant_without_binder_waits() -> Result<()> {
    let (volume, home) = Testbed::run("binding", async |testbed| {
        let start = Instant::now();
        let (host, tenant, other, _nats) = tokio::try_join!(
            testbed.control_plane(ControlPlaneOptions::new("host")),
            testbed.control_plane(ControlPlaneOptions::new("tenant").without_volume_binder()),
            testbed.control_plane(ControlPlaneOptions::new("other").without_volume_binder()),
            testbed.nats(NatsOptions::default()),
        )?;
        println!("host, two tenants and nats: {:?}", start.elapsed());
        assert!(host.url() != tenant.url() && tenant.url() != other.url());

        host.create_storage_class("fast", HOST_PATH).await?;
        tenant.create_storage_class("fast", HOST_PATH).await?;
        let waiting = create_claim(&tenant, "data").await?;
        let bound = create_claim(&host, "data").await?;
        eventually("the host's claim to bind", CAP, async || {
            Ok((phase(bound.get("data").await?).as_deref() == Some("Bound")).then_some(()))
        })
        .await?;
        assert_eq!(phase(waiting.get("data").await?).as_deref(), Some("Pending"));

        let volume = bound.get("data").await?.spec.unwrap().volume_name.unwrap();
        let volumes: Api<PersistentVolume> = Api::all(host.client().await?);
        let folder = volumes.get(&volume).await?.spec.unwrap().host_path.unwrap().path;
        assert!(Path::new(&folder).is_dir(), "{folder}");
        Ok((PathBuf::from(folder), testbed.folder().to_owned()))
    })
    .await?;
    assert!(!volume.exists(), "{} is left over", volume.display());
    assert!(!home.exists(), "{} is left over", home.display());
    Ok(())
}

#[tokio::test]
async fn api_server_and_controllers_restart_on_their_data() -> Result<()> {
    Testbed::run("restart", async |testbed| {
        let host = testbed.control_plane(ControlPlaneOptions::new("host")).await?;
        let maps: Api<ConfigMap> = Api::namespaced(host.client().await?, "default");
        let map = object(json!({"metadata": {"name": "kept"}, "data": {"key": "value"}}));
        maps.create(&PostParams::default(), &map).await?;

        for how in [Stop::Kill, Stop::Graceful] {
            host.stop_api_server(how).await?;
            assert!(host.api_server().is_none());
            assert!(maps.get("kept").await.is_err(), "a stopped API server answers");
            host.start_api_server().await?;
            assert_eq!(maps.get("kept").await?.data, Some([("key".into(), "value".into())].into()));
        }

        host.stop_controllers(Stop::Kill).await?;
        host.create_storage_class("fast", HOST_PATH).await?;
        let claims = create_claim(&host, "data").await?;
        assert_eq!(phase(claims.get("data").await?).as_deref(), Some("Pending"));
        host.start_controllers().await?;
        eventually("the claim to bind", CAP, async || {
            Ok((phase(claims.get("data").await?).as_deref() == Some("Bound")).then_some(()))
        })
        .await
    })
    .await
}

#[tokio::test]
async fn frozen_api_server_goes_on() -> Result<()> {
    Testbed::run("frozen", async |testbed| {
        let host = testbed.control_plane(ControlPlaneOptions::new("host")).await?;
        let server = host.api_server().unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(host.client().await?, "default");

        server.pause()?;
        let everything = ListParams::default();
        let asked = maps.list(&everything);
        tokio::pin!(asked);
        assert!(tokio::time::timeout(Duration::from_millis(300), &mut asked).await.is_err());
        assert!(server.is_running());
        server.resume()?;
        asked.await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn audit_tells_every_write() -> Result<()> {
    Testbed::run("audit", async |testbed| {
        let host = testbed.control_plane(ControlPlaneOptions::new("host")).await?;
        let namespaces: Api<Namespace> = Api::all(host.client().await?);
        let namespace = object(json!({"metadata": {"name": "team"}}));
        namespaces.create(&PostParams::default(), &namespace).await?;
        assert!(namespaces.create(&PostParams::default(), &namespace).await.is_err());
        namespaces.delete("team", &DeleteParams::default()).await?;
        eventually("the namespace to go", CAP, async || {
            Ok(namespaces.get_opt("team").await?.is_none().then_some(()))
        })
        .await?;

        let writes = host.audit_writes()?;
        let by_admin: Vec<_> = writes
            .iter()
            .filter(|write| write.user == "admin")
            .map(|write| {
                (write.verb.as_str(), write.resource.as_str(), write.name.as_str(), write.code)
            })
            .collect();
        assert_eq!(
            by_admin,
            [
                ("create", "namespaces", "team", 201),
                ("create", "namespaces", "team", 409),
                ("delete", "namespaces", "team", 200),
            ]
        );
        assert!(writes.iter().all(|write| write.verb != "get" && write.verb != "watch"));
        let finalized = writes.iter().any(|write| {
            write.user == "system:kube-controller-manager" && write.subresource == "finalize"
        });
        assert!(finalized, "the namespace controller's write is missing");
        Ok(())
    })
    .await
}
