//! What most tests of the whole begin with: a host with a storage class, tenants, nats-server and
//! the services.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result};
use carrick_core::{Locator, Names, SyncTarget};
use carrick_testbed::{ControlPlane, ControlPlaneOptions, Nats, NatsOptions, Testbed};
use futures::future::try_join_all;
use kube::Client;

use crate::{Installation, Pair, check_pair, wait::until_ok};

/// The host's storage class, whose volumes are folders of this machine.
pub const CLASS: &str = "standard";
/// The provisioner behind [`CLASS`], in every control plane with a volume binder.
pub const HOST_PATH: &str = "kubernetes.io/host-path";
const READY: Duration = Duration::from_mins(1);
const LINKED: Duration = Duration::from_secs(30);

/// Who binds claims in a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binder {
    /// Nobody but Carrick, as in kcp.
    Carrick,
    /// The tenant's own controllers, as in `VirtualCluster`.
    Tenant,
}

/// All servers of a test, and the installation on them.
#[derive(Debug)]
pub struct Stage<'a> {
    /// The host.
    pub host: ControlPlane,
    /// The bus.
    pub nats: Nats,
    /// The services and the CLI.
    pub carrick: Installation<'a>,
    tenants: Vec<(String, ControlPlane)>,
    target: (SyncTarget, Names),
}

impl<'a> Stage<'a> {
    /// Starts servers only: no service runs, and no tenant has been added.
    pub async fn servers(testbed: &'a Testbed, tenants: &[(&str, Binder)]) -> Result<Self> {
        let plane = async |(index, (name, binder)): (usize, &(&str, Binder))| {
            let options = ControlPlaneOptions::new(&format!("tenant-{index}"));
            let options = match binder {
                Binder::Carrick => options.without_volume_binder(),
                Binder::Tenant => options,
            };
            Ok(((*name).to_owned(), testbed.control_plane(options).await?))
        };
        let (host, nats, tenants) = tokio::try_join!(
            testbed.control_plane(ControlPlaneOptions::new("host")),
            testbed.nats(NatsOptions::default()),
            try_join_all(tenants.iter().enumerate().map(plane)),
        )?;
        host.create_storage_class(CLASS, HOST_PATH).await?;
        let carrick = Installation::new(testbed, &host, nats.url());
        carrick.prepare(&host).await?;
        let target = carrick.names(&host).await?;
        Ok(Self { host, nats, carrick, tenants, target })
    }

    /// Starts everything, one instance of every service (`0`), and adds the tenants by the CLI.
    pub async fn start(testbed: &'a Testbed, tenants: &[(&str, Binder)]) -> Result<Self> {
        let stage = Self::servers(testbed, tenants).await?;
        stage.carrick.start_all("0")?;
        stage.carrick.until_all_ready("0", READY).await?;
        stage.add_tenants().await?;
        Ok(stage)
    }

    /// Adds all tenants by the CLI.
    pub async fn add_tenants(&self) -> Result<()> {
        for (name, tenant) in &self.tenants {
            self.carrick.add_tenant(name, tenant, &[]).await?;
        }
        Ok(())
    }

    /// A tenant's control plane.
    pub fn tenant(&self, name: &str) -> Result<&ControlPlane> {
        let found = self.tenants.iter().find(|(found, _)| found == name);
        found.map(|(_, plane)| plane).with_context(|| format!("there is no tenant {name}"))
    }

    /// A client of a tenant.
    pub async fn client(&self, tenant: &str) -> Result<Client> {
        self.tenant(tenant)?.client().await
    }

    /// The sync target, and the names on objects.
    pub fn target(&self) -> &(SyncTarget, Names) {
        &self.target
    }

    /// Names on objects.
    pub fn names(&self) -> &Names {
        &self.target.1
    }

    /// The host namespace that a tenant's namespace is carried to.
    pub fn host_namespace(&self, tenant: &str, namespace: &str) -> String {
        self.locator(tenant, namespace).host_namespace()
    }

    /// The locator of a tenant's namespace.
    pub fn locator(&self, tenant: &str, namespace: &str) -> Locator {
        Locator {
            target: self.target.0.clone(),
            cluster: tenant.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// Waits until these claims are bound and linked both ways, with all that must hold of them.
    /// No volume may be behind two of them.
    pub async fn linked(
        &self,
        tenant: &str,
        namespace: &str,
        claims: &[String],
    ) -> Result<Vec<Pair>> {
        let (host, client) = (self.host.client().await?, self.client(tenant).await?);
        let mut pairs = Vec::new();
        for claim in claims {
            let clients = (&host, &client);
            let check = || check_pair(clients, &self.target, tenant, (namespace, claim));
            pairs.push(until_ok(&format!("claim {claim} to be linked"), LINKED, check).await?);
        }
        let volumes: BTreeSet<_> =
            pairs.iter().filter_map(|pair| pair.host_volume.metadata.uid.clone()).collect();
        anyhow::ensure!(volumes.len() == claims.len(), "{} volumes: {volumes:?}", volumes.len());
        Ok(pairs)
    }
}

/// Names of claims: `<prefix>-1` and so on.
pub fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{prefix}-{number}")).collect()
}
