//! All services in one process do what they do as five.

use std::time::Duration;

use anyhow::Result;
use carrick_e2e::{Binder, CLASS, Stage, make_claims, numbered, until_bound};
use carrick_testbed::Testbed;

#[tokio::test]
async fn all_services_in_one_process_bind_claims() -> Result<()> {
    Testbed::run("dev", async |testbed| {
        let stage = Stage::servers(testbed, &[("acme", Binder::Carrick)]).await?;
        let mut command = stage.carrick.cli()?;
        command.args(["dev", "--log-format", "plain", "--admin-address", "127.0.0.1:0"]);
        let process = testbed.spawn("dev", command)?;
        stage.add_tenants().await?;
        let client = stage.client("acme").await?;
        let claims = numbered("data", 5);
        make_claims(&client, "team-a", claims.clone(), CLASS).await?;
        until_bound(&client, "team-a", claims.len(), Duration::from_mins(1)).await?;
        stage.linked("acme", "team-a", &claims).await?;
        process.terminate().await?;
        let status = process.wait(Duration::from_secs(30)).await?;
        anyhow::ensure!(status.success(), "it ends cleanly: {status}");
        Ok(())
    })
    .await
}
