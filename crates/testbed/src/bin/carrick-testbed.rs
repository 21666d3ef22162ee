//! A testbed for people: a host, tenants and NATS, until Ctrl-C or the end of standard input.

use std::io::{self, Write as _};
use std::thread;

use anyhow::Result;
use carrick_testbed::{ControlPlaneOptions, NatsOptions, Testbed};
use clap::Parser;
use futures::future::try_join_all;
use tokio::sync::oneshot;

/// Starts a host, tenants and NATS, prints where they are, and ends them on Ctrl-C or at the end of
/// standard input.
#[derive(Debug, Parser)]
struct Args {
    /// How many tenants' control planes to start, besides the host.
    #[arg(long, default_value_t = 1)]
    tenants: usize,
    /// Three NATS servers instead of one.
    #[arg(long)]
    nats_cluster: bool,
    /// Give the tenants a volume binder of their own.
    #[arg(long)]
    tenants_bind: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Args { tenants, nats_cluster, tenants_bind } = Args::parse();
    let testbed = Testbed::start("by-hand").await?;
    writeln!(io::stdout(), "folder {}", testbed.folder().display())?;
    writeln!(io::stdout(), "logs {}", testbed.log_folder().display())?;

    let host = std::iter::once(ControlPlaneOptions::new("host"));
    let tenants = (1..=tenants)
        .map(|n| ControlPlaneOptions { name: format!("tenant-{n}"), volume_binder: tenants_bind });
    let planes = try_join_all(host.chain(tenants).map(|plane| testbed.control_plane(plane)));
    let nats = NatsOptions { cluster_of_three: nats_cluster, ..NatsOptions::default() };
    let (planes, nats) = tokio::try_join!(planes, testbed.nats(nats))?;
    for plane in &planes {
        let (name, url) = (plane.name(), plane.url());
        writeln!(io::stdout(), "{name} {url} {}", plane.kubeconfig_path().display())?;
    }
    writeln!(io::stdout(), "nats {}", nats.url())?;
    writeln!(io::stdout(), "ready")?;

    tokio::select! {
        () = stdin_ended() => Ok(()),
        signal = tokio::signal::ctrl_c() => Ok(signal?),
    }
}

/// Reads in a thread of its own: tokio would wait for one of its threads at the end of `main`.
async fn stdin_ended() {
    let (ended, end) = oneshot::channel();
    thread::spawn(move || {
        // An input that cannot be read has ended as well, and nobody listens after Ctrl-C.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
