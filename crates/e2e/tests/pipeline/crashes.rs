//! Services and nats-server may end at any moment, and may start in any order: every claim is bound
//! all the same.

use std::time::Duration;

use anyhow::{Result, ensure};
use carrick_e2e::{Binder, CLASS, SERVICES, Stage, make_claims, numbered, until_bound, until_ok};
use carrick_testbed::{Stop, Testbed, eventually};

use crate::{CAP, logs_stay_quiet};

const TENANT: &str = "kcp";
const CLAIMS: usize = 100;
/// So many are bound when something is killed.
const BOUND: usize = 20;
const WINDOW: Duration = Duration::from_secs(15);
const FEW_LINES: usize = 4;

#[tokio::test]
async fn claims_are_bound_though_each_service_and_the_bus_are_killed_in_the_middle() -> Result<()> {
    Testbed::run("killed", async |testbed| {
        let stage = Stage::start(testbed, &[(TENANT, Binder::Carrick)]).await?;
        for service in SERVICES {
            in_the_middle(&stage, service, async || {
                stage.carrick.kill(service, "0").await?;
                stage.carrick.start(service, "0").map(|_| ())
            })
            .await?;
        }
        in_the_middle(&stage, "nats", async || {
            stage.nats.kill(0).await?;
            stage.nats.start(0).await
        })
        .await?;
        stage.carrick.check_alive()
    })
    .await
}

/// Makes claims, does something when some of them are bound, and waits until all are.
async fn in_the_middle(
    stage: &Stage<'_>,
    what: &str,
    happens: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let client = stage.client(TENANT).await?;
    let namespace = format!("team-{what}");
    let claims = numbered("data", CLAIMS);
    let happening = async {
        let bound = until_bound(&client, &namespace, BOUND, CAP).await?.len();
        ensure!(bound < CLAIMS, "all were bound before anything happened");
        happens().await
    };
    tokio::try_join!(make_claims(&client, &namespace, claims.clone(), CLASS), happening)?;
    until_bound(&client, &namespace, CLAIMS, CAP).await?;
    stage.linked(TENANT, &namespace, &claims).await?;
    Ok(())
}

#[tokio::test]
async fn services_that_are_up_first_wait_say_so_once_in_a_while_and_then_work() -> Result<()> {
    Testbed::run("first", async |testbed| {
        let stage = Stage::start(testbed, &[(TENANT, Binder::Carrick)]).await?;
        for service in SERVICES {
            stage.carrick.kill(service, "0").await?;
        }
        let tenant = stage.tenant(TENANT)?;
        stage.nats.stop(0).await?;
        // The host's controllers would come back to its API server after a minute only.
        stage.host.stop_controllers(Stop::Kill).await?;
        stage.host.stop_api_server(Stop::Kill).await?;
        tenant.stop_api_server(Stop::Kill).await?;

        stage.carrick.start_all("0")?;
        for service in SERVICES {
            let process = stage.carrick.process(service, "0")?;
            eventually(&format!("{service} to say that it waits"), CAP, async || {
                ensure!(process.is_running(), "{service} has ended:\n{}", process.log());
                Ok(process.log().to_lowercase().contains("waiting").then_some(()))
            })
            .await?;
        }
        logs_stay_quiet(&stage.carrick, "0", (WINDOW, FEW_LINES)).await?;
        for service in SERVICES {
            let ready = stage.carrick.until_ready(service, "0", Duration::ZERO).await;
            ensure!(ready.is_err(), "{service} is ready with no server there");
        }

        stage.nats.start(0).await?;
        stage.host.start_api_server().await?;
        stage.host.start_controllers().await?;
        tenant.start_api_server().await?;
        stage.carrick.until_all_ready("0", CAP).await?;
        let claims = numbered("data", 5);
        let client = stage.client(TENANT).await?;
        make_claims(&client, "team-a", claims.clone(), CLASS).await?;
        until_ok("the claims to be linked", CAP, async || {
            stage.linked(TENANT, "team-a", &claims).await
        })
        .await?;
        stage.carrick.check_alive()
    })
    .await
}
