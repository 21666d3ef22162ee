//! The demo: claims of two tenants travel to a host and come back bound, on real servers.

mod rounds;

use std::{
    io::{self, Write as _},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::Installation;
use carrick_testbed::{ControlPlane, ControlPlaneOptions, Nats, NatsOptions, Testbed, Tools};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::test::cargo;

/// Claims in each tenant up to which every step is printed.
const FEW: u32 = 20;
/// Claims in each tenant from which on services are also killed in the middle of a round.
const MANY: u32 = 100;
const READY: Duration = Duration::from_mins(1);

/// What the demo is asked for.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Leave everything running at the end, until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// How many claims each tenant makes; with many, their rate is measured, and the services are
    /// killed in the middle of a further round.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    claims: u32,
}

/// Everything that runs.
struct Stage<'a> {
    host: ControlPlane,
    /// A tenant without a volume binder, as a kcp workspace.
    kcp: ControlPlane,
    /// A tenant with one, as in VirtualCluster.
    virtual_cluster: ControlPlane,
    nats: Nats,
    carrick: Installation<'a>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    Tools::ensure(&mut io::stderr())?;
    say("building Carrick");
    ensure!(cargo(&["build", "--workspace", "--bins", "--locked"], &[])?, "Carrick does not build");
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(async {
        Testbed::run("demo", async |testbed| {
            tokio::select! {
                played = play(testbed, args) => played,
                _ = tokio::signal::ctrl_c() => {
                    say("ending everything");
                    Ok(())
                }
            }
        })
        .await
    })
}

async fn play(testbed: &Testbed, args: &Args) -> Result<()> {
    let stage = set_up(testbed).await?;
    let mut tap = if args.claims <= FEW { Some(tap(&stage.carrick)?) } else { None };
    let steps = async {
        match &mut tap {
            Some(tap) => print_lines(tap).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        played = rounds::play(&stage, args.claims) => played?,
        () = steps => anyhow::bail!("carrick tap has ended"),
    }
    drop(tap);
    if args.claims <= FEW {
        let table = stage.carrick.carrick(&["get", "claims"]).await?;
        println!("\n{}", table.out.trim_end());
    }
    say("all claims are Bound and linked both ways, as both API servers say");
    if args.keep {
        keep(&stage).await?;
    }
    Ok(())
}

async fn set_up(testbed: &Testbed) -> Result<Stage<'_>> {
    let begun = Instant::now();
    say("starting a host, a tenant as kcp, a tenant as VirtualCluster, and nats-server");
    let kcp = ControlPlaneOptions::new("kcp").without_volume_binder();
    let (host, kcp, virtual_cluster, nats) = tokio::try_join!(
        testbed.control_plane(ControlPlaneOptions::new("host")),
        testbed.control_plane(kcp),
        testbed.control_plane(ControlPlaneOptions::new("virtual-cluster")),
        testbed.nats(NatsOptions::default()),
    )?;
    host.create_storage_class("standard", "kubernetes.io/host-path").await?;
    let carrick = Installation::new(testbed, &host, nats.url());
    carrick.prepare(&host).await?;
    say(&format!("they run after {:.1} s; starting the five services", seconds(begun)));
    carrick.start_all("0")?;
    carrick.until_all_ready("0", READY).await?;
    for (name, tenant) in [("kcp", &kcp), ("virtual-cluster", &virtual_cluster)] {
        let said = carrick.add_tenant(name, tenant, &[]).await?;
        for line in said.lines() {
            println!("  {line}");
        }
    }
    say(&format!("ready after {:.1} s", seconds(begun)));
    Ok(Stage { host, kcp, virtual_cluster, nats, carrick })
}

/// The steps as they happen, as a person would watch them.
fn tap(carrick: &Installation<'_>) -> Result<tokio::process::Child> {
    let mut command = carrick.cli()?;
    command.args(["tap", "--steps"]);
    let mut command = tokio::process::Command::from(command);
    command.stdout(Stdio::piped()).kill_on_drop(true).spawn().context("start carrick tap")
}

async fn print_lines(tap: &mut tokio::process::Child) {
    let Some(out) = tap.stdout.take() else { return };
    let mut lines = BufReader::new(out).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        println!("  {line}");
    }
}

async fn keep(stage: &Stage<'_>) -> Result<()> {
    let Stage { host, kcp, virtual_cluster, nats, carrick } = stage;
    println!();
    for (name, plane) in [("host", host), ("kcp", kcp), ("virtual-cluster", virtual_cluster)] {
        println!("{name:<16} kubectl --kubeconfig {}", plane.kubeconfig_path().display());
    }
    println!("{:<16} {}", "logs", carrick.folder().join("logs").display());
    let tools = Tools::locate()?;
    println!("\ntry, in another terminal:");
    println!("  {} sub -s {} 'carrick.v1.*.step.kcp.>'", tools.nats.display(), nats.url());
    println!(
        "  CARRICK_KUBECONFIG={} CARRICK_NATS_URL={} {} tap",
        host.kubeconfig_path().display(),
        nats.url(),
        carrick_e2e::program("carrick")?.display()
    );
    say("everything is left running; Ctrl-C ends it");
    std::future::pending::<()>().await;
    Ok(())
}

fn seconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// One line of progress.
fn say(line: &str) {
    println!("• {line}");
    // A line that can't be shown is not missed.
    let _ = io::stdout().flush();
}
