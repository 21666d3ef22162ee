//! The rounds of the demo: claims in each tenant, all checked on both API servers.

use std::time::{Duration, Instant};

use anyhow::Result;
use carrick_e2e::{Measured, SERVICES, check_pair, make_claims, measure, until_bound, until_ok};
use carrick_testbed::ControlPlane;

use super::{MANY, Stage, say};

const NAMESPACE: &str = "team-a";
const CRASHED: &str = "team-b";
const CLASS: &str = "standard";

pub(super) async fn play(stage: &Stage<'_>, claims: u32) -> Result<()> {
    let tenants = [("kcp", &stage.kcp), ("virtual-cluster", &stage.virtual_cluster)];
    for (name, tenant) in tenants {
        say(&format!("{claims} claims in tenant {name}"));
        let measured = round(tenant, claims).await?;
        let bound = check(stage, (name, tenant), NAMESPACE, claims).await?;
        say(&format!("{name}: {bound} claims bound; {}", figures(&measured)));
    }
    if claims >= MANY {
        crash(stage, claims).await?;
    }
    stage.carrick.check_alive()
}

async fn round(tenant: &ControlPlane, claims: u32) -> Result<Measured> {
    let every = usize::try_from(claims / 10)?.max(1);
    let progress = |bound: usize| {
        if claims >= MANY && bound.is_multiple_of(every) {
            println!("  {bound} of {claims} bound");
        }
    };
    let cap = Duration::from_secs(60 + u64::from(claims));
    measure(&tenant.client().await?, NAMESPACE, names(claims), CLASS, (cap, progress)).await
}

/// Kills every service in the middle of a round, and starts them again.
async fn crash(stage: &Stage<'_>, claims: u32) -> Result<()> {
    say(&format!("{claims} more claims in tenant kcp, every service killed when half are bound"));
    let client = stage.kcp.client().await?;
    let cap = Duration::from_secs(60 + u64::from(claims));
    make_claims(&client, CRASHED, names(claims), CLASS).await?;
    until_bound(&client, CRASHED, usize::try_from(claims / 2)?, cap).await?;
    for service in SERVICES {
        stage.carrick.kill(service, "0").await?;
    }
    let left = usize::try_from(claims)? - until_bound(&client, CRASHED, 0, cap).await?.len();
    let begun = Instant::now();
    stage.carrick.start_all("0")?;
    until_bound(&client, CRASHED, usize::try_from(claims)?, cap).await?;
    let took = begun.elapsed().as_secs_f64();
    say(&format!("started again, the {left} claims that were left were bound after {took:.1} s"));
    check(stage, ("kcp", &stage.kcp), CRASHED, claims).await?;
    Ok(())
}

/// Reads every claim and volume from both API servers.
async fn check(
    stage: &Stage<'_>,
    (cluster, tenant): (&str, &ControlPlane),
    namespace: &str,
    claims: u32,
) -> Result<usize> {
    let (host, tenant) = (stage.host.client().await?, tenant.client().await?);
    let names_on_objects = stage.carrick.names(&stage.host).await?;
    // With a binder, its last writes to the volume follow those to the claim.
    let cap = Duration::from_secs(30);
    for name in names(claims) {
        let pair = || check_pair((&host, &tenant), &names_on_objects, cluster, (namespace, &name));
        until_ok("claim and volume to be linked", cap, pair).await?;
    }
    Ok(usize::try_from(claims)?)
}

fn names(claims: u32) -> Vec<String> {
    (1..=claims).map(|number| format!("data-{number}")).collect()
}

fn figures(measured: &Measured) -> String {
    let ms = |hundredths| measured.percentile(hundredths).as_millis();
    format!(
        "{:.1} claims/s; create to Bound: p50 {} ms, p90 {} ms, p99 {} ms",
        measured.rate(),
        ms(50),
        ms(90),
        ms(99)
    )
}
