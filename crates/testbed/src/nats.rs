//! nats-server with `JetStream`, alone or as a cluster of three.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::ports::free_port;
use crate::probe::answers_ok;
use crate::process::{Process, Slot, Stop};
use crate::shared::Shared;

const MEGABYTE: u64 = 1 << 20;

/// How clients prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NatsAuth {
    /// Anybody may connect.
    #[default]
    None,
    /// One user with a password.
    User {
        /// The user's name.
        user: String,
        /// The password, as it is.
        password: String,
    },
    /// One token for all.
    Token(String),
}

/// What the servers are to be like.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Names the folder and the logs.
    pub name: String,
    /// Three servers instead of one, so that streams can have three replicas.
    pub cluster_of_three: bool,
    /// How clients prove who they are.
    pub auth: NatsAuth,
}

impl Default for NatsOptions {
    /// One server that lets anybody in.
    fn default() -> Self {
        Self { name: "nats".to_owned(), cluster_of_three: false, auth: NatsAuth::None }
    }
}

impl NatsOptions {
    /// Three servers that let anybody in.
    pub fn cluster() -> Self {
        Self { cluster_of_three: true, ..Self::default() }
    }
}

/// Running NATS servers. They end with their testbed.
#[derive(Debug)]
pub struct Nats {
    nodes: Vec<Node>,
}

impl Nats {
    pub(crate) async fn start_all(shared: Arc<Shared>, options: &NatsOptions) -> Result<Self> {
        let NatsOptions { name, cluster_of_three, auth } = options;
        let dir = shared.folder(name)?;
        let names = if *cluster_of_three {
            (0..3).map(|n| format!("{name}-{n}")).collect()
        } else {
            vec![name.clone()]
        };
        let nodes = names
            .into_iter()
            .map(|name| Node::new(&shared, &dir, name))
            .collect::<Result<Vec<_>>>()?;
        let routes: Vec<u16> = nodes.iter().map(|node| node.ports.route).collect();
        for node in &nodes {
            fs::write(&node.config, node.config(&dir, auth, &routes).to_string())
                .with_context(|| format!("write {}", node.config.display()))?;
        }
        // None of a cluster is ready before most of it are.
        try_join_all(nodes.iter().map(Node::start)).await?;
        Ok(Self { nodes })
    }

    /// Where clients connect: the URLs of all servers, separated by commas.
    pub fn url(&self) -> String {
        let urls = self.nodes.iter().map(|node| format!("nats://127.0.0.1:{}", node.ports.client));
        urls.collect::<Vec<_>>().join(",")
    }

    /// The monitoring URL of server `n`, counted from 0.
    pub fn monitor_url(&self, n: usize) -> Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.node(n)?.ports.monitor))
    }

    /// The process of server `n`, unless it is stopped.
    pub fn process(&self, n: usize) -> Result<Option<Process>> {
        Ok(self.node(n)?.process.get())
    }

    /// Ends server `n` as a crash would.
    pub async fn kill(&self, n: usize) -> Result<()> {
        self.node(n)?.process.stop(Stop::Kill).await
    }

    /// Ends server `n` in good order.
    pub async fn stop(&self, n: usize) -> Result<()> {
        self.node(n)?.process.stop(Stop::Graceful).await
    }

    /// Starts server `n` again, on the ports and data of before, and waits until it is ready.
    pub async fn start(&self, n: usize) -> Result<()> {
        self.node(n)?.start().await
    }

    fn node(&self, n: usize) -> Result<&Node> {
        let count = self.nodes.len();
        self.nodes.get(n).with_context(|| format!("there is no server {n}, there are {count}"))
    }
}

#[derive(Debug)]
struct Node {
    shared: Arc<Shared>,
    name: String,
    config: PathBuf,
    ports: Ports,
    process: Slot,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    monitor: u16,
    route: u16,
}

impl Node {
    fn new(shared: &Arc<Shared>, dir: &Path, name: String) -> Result<Self> {
        let ports = Ports { client: free_port()?, monitor: free_port()?, route: free_port()? };
        let config = dir.join(format!("{name}.json"));
        Ok(Self { shared: Arc::clone(shared), name, config, ports, process: Slot::default() })
    }

    async fn start(&self) -> Result<()> {
        let args = ["--config".as_ref(), self.config.as_os_str()];
        let program = &self.shared.tools.nats_server;
        let ready = async |_: &Process| Ok(answers_ok(self.ports.monitor, "/healthz").await);
        self.process.put(self.shared.serve(&self.name, program, args, ready).await?);
        Ok(())
    }

    /// The server's configuration; its format takes JSON.
    fn config(&self, dir: &Path, auth: &NatsAuth, routes: &[u16]) -> Value {
        let Ports { client, monitor, route } = self.ports;
        let mut config = json!({
            "server_name": self.name,
            "host": "127.0.0.1",
            "port": client,
            "http": format!("127.0.0.1:{monitor}"),
            "jetstream": {
                "store_dir": dir.join(&self.name),
                "max_memory_store": 256 * MEGABYTE,
                "max_file_store": 4096 * MEGABYTE,
            },
        });
        match auth {
            NatsAuth::None => {}
            NatsAuth::User { user, password } => {
                config["authorization"] = json!({"user": user, "password": password});
            }
            NatsAuth::Token(token) => config["authorization"] = json!({"token": token}),
        }
        if routes.len() > 1 {
            let routes: Vec<String> =
                routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
            config["cluster"] = json!({
                "name": "testbed",
                "host": "127.0.0.1",
                "port": route,
                "routes": routes,
            });
        }
        config
    }
}
