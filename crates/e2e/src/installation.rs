//! The services as processes, and the CLI as a program.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use carrick_core::{Names, SyncTarget, names::Domain};
use carrick_testbed::{ControlPlane, Process, Testbed, eventually};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

/// The services, in the order of a claim's way.
pub const SERVICES: [&str; 5] =
    ["watcher", "downsyncer", "storage-transformer", "upsyncer", "status-syncer"];
/// Carrick's own namespace on the host.
const SYSTEM_NAMESPACE: &str = "carrick-system";
/// Name and cluster of the sync target, as by default.
const TARGET: (&str, &str) = ("carrick", "root");

/// What a run of the CLI said.
#[derive(Debug)]
pub struct Said {
    /// Whether its exit code was 0.
    pub ok: bool,
    /// The exit code, if it ended by itself.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

/// An installation of Carrick for one host.
#[derive(Debug)]
pub struct Installation<'a> {
    testbed: &'a Testbed,
    host_kubeconfig: PathBuf,
    nats_url: String,
    settings: Vec<(String, String)>,
    running: Mutex<BTreeMap<String, Process>>,
}

impl<'a> Installation<'a> {
    /// An installation of which nothing runs yet.
    pub fn new(testbed: &'a Testbed, host: &ControlPlane, nats_url: impl Into<String>) -> Self {
        Self {
            testbed,
            host_kubeconfig: host.kubeconfig_path(),
            nats_url: nats_url.into(),
            settings: Vec::new(),
            running: Mutex::default(),
        }
    }

    /// Adds an environment variable for every service and the CLI.
    #[must_use]
    pub fn with(mut self, variable: &str, value: &str) -> Self {
        self.settings.push((variable.to_owned(), value.to_owned()));
        self
    }

    /// Makes Carrick's own namespace on the host, as its chart does.
    pub async fn prepare(&self, host: &ControlPlane) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(serde_json::json!({
            "metadata": {"name": SYSTEM_NAMESPACE}
        }))?;
        let api: Api<Namespace> = Api::all(host.client().await?);
        match api.create(&kube::api::PostParams::default(), &namespace).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            other => other.map(|_| ()).context("make Carrick's namespace"),
        }
    }

    /// Starts one instance of a service; `instance` tells several apart.
    pub fn start(&self, service: &str, instance: &str) -> Result<Process> {
        let name = format!("{service}-{instance}");
        let mut command = self.command(program(&format!("carrick-{service}"))?);
        command.args(["--admin-address", "127.0.0.1:0", "--log-format", "plain"]);
        command.args(["--instance", &name]);
        let process = self.testbed.spawn(&name, command)?;
        self.running().insert(name, process.clone());
        Ok(process)
    }

    /// Starts one instance of every service.
    pub fn start_all(&self, instance: &str) -> Result<()> {
        SERVICES.iter().try_for_each(|service| self.start(service, instance).map(|_| ()))
    }

    /// Waits until an instance says that it is ready.
    pub async fn until_ready(&self, service: &str, instance: &str, cap: Duration) -> Result<()> {
        let process = self.process(service, instance)?;
        let what = format!("{service} to be ready");
        let ready = async || {
            ensure!(process.is_running(), "{service} has ended:\n{}", tail(&process.log()));
            let Some(address) = admin_address(&process.log()) else {
                return Ok(None);
            };
            Ok(get(&address, "/ready").await.filter(|answer| answer.contains(" 200 ")))
        };
        eventually(&what, cap, ready).await.map(|_| ())
    }

    /// Waits until every service is ready.
    pub async fn until_all_ready(&self, instance: &str, cap: Duration) -> Result<()> {
        for service in SERVICES {
            self.until_ready(service, instance, cap).await?;
        }
        Ok(())
    }

    /// A running or ended instance.
    pub fn process(&self, service: &str, instance: &str) -> Result<Process> {
        let name = format!("{service}-{instance}");
        self.running().get(&name).cloned().with_context(|| format!("{name} was never started"))
    }

    /// Ends an instance as a crash would.
    pub async fn kill(&self, service: &str, instance: &str) -> Result<()> {
        self.process(service, instance)?.kill().await
    }

    /// Fails if any instance has ended by itself.
    pub fn check_alive(&self) -> Result<()> {
        for (name, process) in self.running().iter() {
            ensure!(process.is_running(), "{name} has ended:\n{}", tail(&process.log()));
        }
        Ok(())
    }

    /// Runs the CLI to its end.
    pub async fn carrick<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Said> {
        let mut command = self.cli()?;
        command.args(args);
        let output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .output()
            .await
            .context("run carrick")?;
        Ok(Said {
            ok: output.status.success(),
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs `carrick tap` for some claims; what it shows, as JSON, is in the process's log.
    pub fn tap(&self, name: &str, claims: &str) -> Result<Process> {
        let mut command = self.cli()?;
        command.args(["tap", "--history", "-o", "json", claims]);
        self.testbed.spawn(name, command)
    }

    /// The CLI, with what it needs to find this installation.
    pub fn cli(&self) -> Result<Command> {
        Ok(self.command(program("carrick")?))
    }

    /// Adds a tenant with the CLI, as a person would; `more` are further arguments.
    pub async fn add_tenant(
        &self,
        name: &str,
        tenant: &ControlPlane,
        more: &[&str],
    ) -> Result<String> {
        let kubeconfig = tenant.kubeconfig_path();
        let mut args = vec!["tenant", "add", name, "--kubeconfig"];
        let path = kubeconfig.to_str().context("the kubeconfig's path is text")?;
        args.push(path);
        args.extend(more);
        let said = self.carrick(&args).await?;
        if !said.ok {
            bail!("carrick tenant add {name}: {}{}", said.out, said.err);
        }
        Ok(said.out)
    }

    /// The installation's names, with the host's identity.
    pub async fn names(&self, host: &ControlPlane) -> Result<(SyncTarget, Names)> {
        let api: Api<Namespace> = Api::all(host.client().await?);
        let uid = api.get("kube-system").await?.metadata.uid.context("kube-system has a uid")?;
        let (name, cluster) = TARGET;
        let target = SyncTarget { cluster: cluster.to_owned(), name: name.to_owned(), uid };
        let names = Names::new(Domain::KcpDev, target.key());
        Ok((target, names))
    }

    fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        command.env("CARRICK_KUBECONFIG", &self.host_kubeconfig);
        command.env("CARRICK_NATS_URL", &self.nats_url);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A program of this workspace, beside the one that asks.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = env::current_exe().context("find this program")?;
    let found =
        own.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|p| p.exists());
    found.with_context(|| format!("{name} is not built: run `cargo build --workspace --bins`"))
}

/// The address in a service's log that its admin server listens on.
fn admin_address(log: &str) -> Option<String> {
    let at = log.find("admin_address=")? + "admin_address=".len();
    let rest = &log[at..];
    let end = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
    Some(rest[..end].trim_matches('"').to_owned())
}

/// The answer to a plain HTTP request, if there is one.
async fn get(address: &str, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

impl Installation<'_> {
    /// Where the files of the testbed are.
    pub fn folder(&self) -> &Path {
        self.testbed.folder()
    }

    /// What an instance's metrics say.
    pub async fn metrics(&self, service: &str, instance: &str) -> Result<String> {
        let log = self.process(service, instance)?.log();
        let address = admin_address(&log).context("the service says its admin address")?;
        get(&address, "/metrics").await.context("the service answers")
    }
}
