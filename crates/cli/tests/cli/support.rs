//! What the tests share.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use carrick_k8s::Tenant;
use carrick_testbed::{AuditWrite, ControlPlane, ControlPlaneOptions, Testbed};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

/// Longer than anything here takes.
pub(crate) const CAP: Duration = Duration::from_mins(1);
pub(crate) const SYSTEM: &str = "carrick-system";

/// What a run of the CLI said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It ended with this code, and each of the words is in what it said.
    pub(crate) fn expect(&self, code: i32, words: &[&str]) -> Result<()> {
        ensure!(self.code == Some(code), "not code {code}: {self:?}");
        for word in words {
            ensure!(self.out.contains(word) || self.err.contains(word), "no {word:?}: {self:?}");
        }
        ensure!(!self.err.contains("panicked"), "{self:?}");
        Ok(())
    }
}

/// The program, without any setting of whoever runs the tests.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carrick"));
    for (variable, _) in std::env::vars() {
        if variable.starts_with("CARRICK_") {
            command.env_remove(variable);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs it to its end, and not longer than the cap.
pub(crate) async fn run(command: Command) -> Result<Said> {
    let child = tokio::process::Command::from(command).kill_on_drop(true).output();
    let output = tokio::time::timeout(CAP, child).await.context("carrick does not end")??;
    Ok(Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout)?,
        err: String::from_utf8(output.stderr)?,
    })
}

/// A host and a tenant.
pub(crate) struct Bench<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) host: ControlPlane,
    pub(crate) tenant: ControlPlane,
    pub(crate) on_host: Client,
    pub(crate) in_tenant: Client,
}

impl<'a> Bench<'a> {
    pub(crate) async fn start(testbed: &'a Testbed) -> Result<Self> {
        let (host, tenant) = tokio::try_join!(
            testbed.control_plane(ControlPlaneOptions::new("host")),
            testbed.control_plane(ControlPlaneOptions::new("tenant").without_volume_binder()),
        )?;
        let (on_host, in_tenant) = (host.client().await?, tenant.client().await?);
        Ok(Self { testbed, host, tenant, on_host, in_tenant })
    }

    /// Runs the CLI with the host's settings.
    pub(crate) async fn carrick<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Said> {
        let mut command = self.program();
        command.args(args);
        run(command).await
    }

    /// The CLI with the host's settings.
    pub(crate) fn program(&self) -> Command {
        let mut command = program();
        command.env("CARRICK_KUBECONFIG", self.host.kubeconfig_path());
        command
    }

    /// `tenant add` with the tenant's kubeconfig.
    pub(crate) async fn add(&self, name: &str, more: &[&str]) -> Result<Said> {
        let kubeconfig = self.tenant.kubeconfig_path();
        let path = kubeconfig.to_str().context("a path is text")?;
        let args = ["tenant", "add", name, "--kubeconfig", path];
        self.carrick(&args.iter().chain(more).collect::<Vec<_>>()).await
    }

    /// A file with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.testbed.folder().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    pub(crate) fn tenants(&self) -> Api<Tenant> {
        Api::all(self.on_host.clone())
    }

    /// Says in a Tenant's status what the watcher would.
    pub(crate) async fn report(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.tenants().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// What the CLI has written so far, anywhere.
    pub(crate) fn writes(&self) -> Result<Vec<AuditWrite>> {
        let mut writes = self.host.audit_writes()?;
        writes.extend(self.tenant.audit_writes()?);
        writes.retain(|write| write.user_agent.starts_with("carrick-"));
        Ok(writes)
    }

    /// Carrick's objects in the tenant that are there.
    pub(crate) async fn account(&self) -> Result<BTreeSet<&'static str>> {
        use k8s_openapi::api::{
            core::v1::ServiceAccount,
            rbac::v1::{ClusterRole, ClusterRoleBinding},
        };
        let client = || self.in_tenant.clone();
        let account: Api<ServiceAccount> = Api::namespaced(client(), SYSTEM);
        let role: Api<ClusterRole> = Api::all(client());
        let binding: Api<ClusterRoleBinding> = Api::all(client());
        let mut found = BTreeSet::new();
        for (what, there) in [
            ("account", account.get_opt("carrick").await?.is_some()),
            ("role", role.get_opt("carrick").await?.is_some()),
            ("binding", binding.get_opt("carrick").await?.is_some()),
            ("namespace", live(&client(), SYSTEM).await?),
        ] {
            if there {
                found.insert(what);
            }
        }
        Ok(found)
    }
}

/// Whether a namespace is there and is not about to go.
pub(crate) async fn live(client: &Client, namespace: &str) -> Result<bool> {
    let found = Api::<Namespace>::all(client.clone()).get_opt(namespace).await?;
    Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()))
}

/// A condition as the watcher writes it.
pub(crate) fn condition(type_: &str, status: &str, message: &str) -> Value {
    json!({
        "type": type_, "status": status, "reason": "Why", "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}
