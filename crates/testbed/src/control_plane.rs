//! A control plane: etcd, kube-apiserver and kube-controller-manager, and the ways into it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, GetParams, ObjectMeta, PostParams, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::audit::{self, AuditWrite};
use crate::flags;
use crate::pki::Pki;
use crate::ports::free_port;
use crate::probe::{answers_ok, eventually};
use crate::process::{Process, Slot, Stop};
use crate::shared::Shared;

const CONNECT_CAP: Duration = Duration::from_secs(5);
const READY_CAP: Duration = Duration::from_mins(1);

/// What a control plane is to be like.
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    /// Names it in the kubeconfig, in its folder and in the names of its logs.
    pub name: String,
    /// Whether it binds and provisions volumes, as a whole cluster does.
    pub volume_binder: bool,
}

impl ControlPlaneOptions {
    /// A whole control plane.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), volume_binder: true }
    }

    /// One whose claims stay `Pending` unless somebody else binds them.
    #[must_use]
    pub fn without_volume_binder(self) -> Self {
        Self { volume_binder: false, ..self }
    }
}

/// A running control plane. It ends with its testbed.
#[derive(Debug)]
pub struct ControlPlane {
    shared: Arc<Shared>,
    name: String,
    volume_binder: bool,
    dir: PathBuf,
    port: u16,
    etcd_port: u16,
    pki: Pki,
    token: String,
    etcd: Process,
    api_server: Slot,
    controllers: Slot,
}

impl ControlPlane {
    pub(crate) async fn start(shared: Arc<Shared>, options: &ControlPlaneOptions) -> Result<Self> {
        let ControlPlaneOptions { name, volume_binder } = options.clone();
        let dir = shared.folder(&name)?;
        let (port, etcd_port) = (free_port()?, free_port()?);
        let pki = Pki::make(&dir)?;
        let args = flags::etcd(&dir, etcd_port, free_port()?);
        let etcd = shared
            .serve(&format!("{name}-etcd"), &shared.tools.etcd, args, async |_| {
                Ok(answers_ok(etcd_port, "/health").await)
            })
            .await?;
        let plane = Self {
            shared,
            name,
            volume_binder,
            dir,
            port,
            etcd_port,
            pki,
            token: random_token(),
            etcd,
            api_server: Slot::default(),
            controllers: Slot::default(),
        };
        plane.write_files()?;
        plane.start_api_server().await?;
        plane.start_controllers().await?;
        plane.await_controllers().await?;
        Ok(plane)
    }

    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the API server listens, e.g. `https://127.0.0.1:23456`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The authority that the API server's certificate is from, as PEM.
    pub fn ca(&self) -> &str {
        &self.pki.ca_pem
    }

    /// The administrator's kubeconfig, with everything inline.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_with_token(&self.token)
    }

    /// A file with the administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// A kubeconfig for whoever the token belongs to, e.g. a service account.
    pub fn kubeconfig_with_token(&self, token: &str) -> String {
        let (name, url, ca) = (&self.name, self.url(), &self.pki.ca_base64);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             clusters:\n- name: {name}\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {ca}\n\
             users:\n- name: {name}\n  user:\n    token: {token}\n\
             contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n"
        )
    }

    /// The administrator's client. It does not repeat refused requests by itself.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// A client for whoever the token belongs to.
    pub async fn client_with_token(&self, token: &str) -> Result<Client> {
        client(&self.kubeconfig_with_token(token)).await
    }

    /// Stops the API server. etcd and the controllers go on.
    pub async fn stop_api_server(&self, how: Stop) -> Result<()> {
        self.api_server.stop(how).await
    }

    /// Starts the API server, on the port and data of before, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        let args =
            flags::api_server(&self.dir, &self.pki, &self.audit_log(), self.etcd_port, self.port);
        let name = format!("{}-kube-apiserver", self.name);
        let client = self.client().await?;
        let ready = async |_: &Process| {
            let request = Request::new("").get("readyz", &GetParams::default())?;
            Ok(client.request_text(request).await.is_ok())
        };
        let program = &self.shared.tools.kube_apiserver;
        let process = self.shared.serve(&name, program, args, ready).await?;
        self.api_server.put(process);
        Ok(())
    }

    /// Stops the controllers: nothing is bound, provisioned or collected from here on.
    pub async fn stop_controllers(&self, how: Stop) -> Result<()> {
        self.controllers.stop(how).await
    }

    /// Starts the controllers and waits until they run. They need the API server.
    pub async fn start_controllers(&self) -> Result<()> {
        let args = flags::controllers(&self.dir, &self.pki, self.volume_binder);
        let name = format!("{}-kube-controller-manager", self.name);
        let ready = async |process: &Process| Ok(process.log().contains("Garbage collector: all"));
        let program = &self.shared.tools.kube_controller_manager;
        let process = self.shared.serve(&name, program, args, ready).await?;
        self.controllers.put(process);
        Ok(())
    }

    /// The process of etcd, to freeze or look at.
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// The process of the API server, unless it is stopped.
    pub fn api_server(&self) -> Option<Process> {
        self.api_server.get()
    }

    /// The process of the controllers, unless they are stopped.
    pub fn controllers(&self) -> Option<Process> {
        self.controllers.get()
    }

    /// Where the logs of its servers are: `<name>-etcd.log` and so on.
    pub fn log_folder(&self) -> &Path {
        &self.shared.logs
    }

    /// Every write that the API server has answered so far, the refused ones too.
    pub fn audit_writes(&self) -> Result<Vec<AuditWrite>> {
        audit::read(&self.audit_log())
    }

    /// Makes a storage class that binds at once. The provisioner `kubernetes.io/host-path` works in
    /// a control plane with a volume binder; for any other, claims wait.
    pub async fn create_storage_class(
        &self,
        name: &str,
        provisioner: &str,
    ) -> Result<StorageClass> {
        let class = StorageClass {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            provisioner: provisioner.to_owned(),
            volume_binding_mode: Some("Immediate".to_owned()),
            parameters: Some(BTreeMap::new()),
            ..StorageClass::default()
        };
        let api = Api::all(self.client().await?);
        let created = api.create(&PostParams::default(), &class).await;
        created.with_context(|| format!("create storage class {name} in {}", self.name))
    }

    /// Waits until the controllers have done a first piece of work: namespaces exist and have their
    /// service account, so that a test can start at once.
    async fn await_controllers(&self) -> Result<()> {
        let client = self.client().await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        let namespaces: Api<Namespace> = Api::all(client);
        let what = format!("the first work of the controllers of {}", self.name);
        eventually(&what, READY_CAP, async || {
            let namespace = namespaces.get_opt("default").await?;
            let account = accounts.get_opt("default").await?;
            Ok((namespace.is_some() && account.is_some()).then_some(()))
        })
        .await
    }

    fn write_files(&self) -> Result<()> {
        let controllers = random_token();
        let tokens = format!(
            "{},admin,admin,system:masters\n\
             {controllers},system:kube-controller-manager,controllers,system:masters\n",
            self.token
        );
        let files = [
            ("tokens.csv", tokens),
            ("audit-policy.json", audit::POLICY.to_owned()),
            ("kubeconfig", self.kubeconfig()),
            ("controllers.kubeconfig", self.kubeconfig_with_token(&controllers)),
        ];
        for (name, text) in files {
            let path = self.dir.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    fn audit_log(&self) -> PathBuf {
        self.shared.logs.join(format!("{}-audit.log", self.name))
    }
}

async fn client(kubeconfig: &str) -> Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    config.connect_timeout = Some(CONNECT_CAP);
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

fn random_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
