//! What the tests share.

use std::{fmt::Debug, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use carrick_bus::{Bus, BusSettings, FactMessage, Family};
use carrick_core::{Domain, Locator, Names, SyncTarget};
use carrick_k8s::{Client, ClientOptions, Tenant, identity};
use carrick_testbed::{
    ControlPlane, ControlPlaneOptions, Nats, NatsOptions, Process, Testbed, eventually,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, PersistentVolumeClaim, Secret},
};
use kube::{Api, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Longer than anything here takes.
pub(crate) const CAP: Duration = Duration::from_mins(1);
pub(crate) const SYSTEM: &str = "carrick-system";
const TARGET: &str = "carrick";

/// A host, a tenant and a bus.
pub(crate) struct Bench<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) host: ControlPlane,
    pub(crate) tenant: ControlPlane,
    pub(crate) nats: Nats,
    pub(crate) on_host: kube::Client,
    pub(crate) in_tenant: kube::Client,
    pub(crate) target: SyncTarget,
    pub(crate) names: Names,
}

impl<'a> Bench<'a> {
    pub(crate) async fn start(testbed: &'a Testbed) -> Result<Self> {
        let (host, tenant, nats) = tokio::try_join!(
            testbed.control_plane(ControlPlaneOptions::new("host")),
            testbed.control_plane(ControlPlaneOptions::new("tenant")),
            testbed.nats(NatsOptions::default()),
        )?;
        let (on_host, in_tenant) = (host.client().await?, tenant.client().await?);
        let options = ClientOptions::new("test", "1.0");
        let client = Client::from_kubeconfig(&host.kubeconfig(), &options).await?;
        let target = SyncTarget {
            cluster: "root".into(),
            name: TARGET.into(),
            uid: identity(&client).await?,
        };
        let names = Names::new(Domain::KcpDev, target.key());
        namespace(&on_host, json!({"metadata": {"name": SYSTEM}})).await?;
        Ok(Self { testbed, host, tenant, nats, on_host, in_tenant, target, names })
    }

    /// Starts an instance of the watcher.
    pub(crate) fn watcher(&self, instance: &str) -> Result<Process> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_carrick-watcher"));
        command
            .env("CARRICK_KUBECONFIG", self.host.kubeconfig_path())
            .env("CARRICK_NATS_URL", self.nats.url())
            .env("CARRICK_INSTANCE", instance)
            .args(["--admin-address", "127.0.0.1:0", "--log-format", "plain"]);
        self.testbed.spawn(instance, command)
    }

    /// The bus, once the watcher has made its streams.
    pub(crate) async fn bus(&self) -> Result<Bus> {
        let bus = Bus::connect(BusSettings::new(self.nats.url(), "test", TARGET)).await?;
        bus.wait_for_streams().await?;
        Ok(bus)
    }

    pub(crate) fn tenants(&self) -> Api<Tenant> {
        Api::all(self.on_host.clone())
    }

    /// Makes a Tenant, once the watcher has installed what a Tenant is; every class is allowed.
    pub(crate) async fn add_tenant(&self, name: &str) -> Result<Tenant> {
        let tenant = json!({
            "apiVersion": "carrick.dev/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": name},
            "spec": {
                "kubeconfig": {"secretRef": {"namespace": SYSTEM, "name": name}},
                "storageClasses": {"allowAll": true},
            },
        });
        let tenants = self.tenants();
        eventually("Tenants to be served", CAP, async || {
            Ok(create(&tenants, tenant.clone()).await.ok())
        })
        .await
    }

    /// Makes the Secret that a Tenant of that name names.
    pub(crate) async fn add_secret(&self, name: &str, key: &str, kubeconfig: &str) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.on_host.clone(), SYSTEM);
        let data = ByteString(kubeconfig.as_bytes().to_vec());
        create(&secrets, json!({"metadata": {"name": name}, "data": {key: data}})).await?;
        Ok(())
    }

    /// Waits until a condition of a Tenant is like that: `True`, or `False` for a reason.
    pub(crate) async fn until(
        &self,
        tenant: &str,
        condition: &str,
        wanted: &str,
    ) -> Result<Tenant> {
        let what = format!("{condition} of {tenant} to be {wanted}");
        eventually(&what, CAP, async || {
            let found = self.tenants().get(tenant).await?;
            let conditions = found.status.iter().flat_map(|status| &status.conditions);
            let mut said = conditions.filter(|c| c.type_ == condition);
            let there = said.any(|c| match c.status.as_str() {
                "True" => wanted == "True",
                _ => c.reason == wanted,
            });
            Ok(there.then_some(found))
        })
        .await
    }

    /// Makes the host namespace of a namespace of a tenant; its name.
    pub(crate) async fn host_namespace(&self, cluster: &str, namespace: &str) -> Result<String> {
        let locator = Locator {
            target: self.target.clone(),
            cluster: cluster.into(),
            namespace: namespace.into(),
        };
        let name = locator.host_namespace();
        let made = json!({"metadata": {
            "name": name,
            "labels": {self.names.cluster(): self.names.key()},
            "annotations": {self.names.locator(): locator.to_json()},
        }});
        self::namespace(&self.on_host, made).await?;
        Ok(name)
    }
}

pub(crate) async fn create<K>(api: &Api<K>, json: Value) -> Result<K>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(json)?;
    Ok(api.create(&PostParams::default(), &object).await?)
}

pub(crate) async fn namespace(client: &kube::Client, json: Value) -> Result<()> {
    create(&Api::<Namespace>::all(client.clone()), json).await?;
    Ok(())
}

pub(crate) fn claims(client: &kube::Client, namespace: &str) -> Api<PersistentVolumeClaim> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn claim(name: &str, class: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    })
}

/// All facts below a filter, e.g. `acme.team-a.data.>`.
pub(crate) async fn facts(bus: &Bus, rest: &str) -> Result<Vec<FactMessage>> {
    let filter = bus.filter(Family::Facts, rest);
    Ok(bus.read(&[filter], 0).await?.facts)
}

/// Waits until a fact is like that.
pub(crate) async fn fact(
    bus: &Bus,
    rest: &str,
    wanted: impl Fn(&FactMessage) -> bool,
) -> Result<FactMessage> {
    eventually(&format!("the fact {rest}"), CAP, async || {
        // The stream may be missing for a moment, in the test that removes it.
        let found = facts(bus, rest).await.unwrap_or_default();
        Ok(found.into_iter().find(|fact| wanted(fact)))
    })
    .await
}

/// How far the stream of facts is.
pub(crate) async fn sequence(bus: &Bus) -> Result<u64> {
    let incarnation = bus.facts_incarnation().await;
    Ok(incarnation.context("the stream of facts")?.last_sequence)
}

pub(crate) fn live(fact: &FactMessage) -> bool {
    !fact.meta.deleted
}

pub(crate) fn gone(fact: &FactMessage) -> bool {
    fact.meta.deleted
}
