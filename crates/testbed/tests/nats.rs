//! nats-server alone and as a cluster of three.

use std::time::Duration;

use anyhow::Result;
use carrick_testbed::{NatsAuth, NatsOptions, Testbed, eventually};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

const CAP: Duration = Duration::from_secs(30);

/// Says CONNECT and PING to the server at `url` and gives its answer: `PONG`, or an error.
async fn connect(url: &str, options: &str) -> Result<String> {
    let address = url.strip_prefix("nats://").expect("a nats URL");
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    assert!(line.starts_with("INFO "), "{line}");
    stream.write_all(format!("CONNECT {options}\r\nPING\r\n").as_bytes()).await?;
    line.clear();
    stream.read_line(&mut line).await?;
    Ok(line.trim().to_owned())
}

#[tokio::test]
async fn lets_in_whom_it_should() -> Result<()> {
    Testbed::run("nats-auth", async |testbed| {
        let user = NatsAuth::User { user: "carrick".into(), password: "p$\"4".into() };
        let token = NatsAuth::Token("t0ken".into());
        let (open, user, token) = tokio::try_join!(
            testbed.nats(NatsOptions::default()),
            testbed.nats(NatsOptions { name: "user".into(), auth: user, ..NatsOptions::default() }),
            testbed.nats(NatsOptions {
                name: "token".into(),
                auth: token,
                ..NatsOptions::default()
            }),
        )?;
        let with_user = r#"{"user":"carrick","pass":"p$\"4","verbose":false}"#;
        let with_token = r#"{"auth_token":"t0ken","verbose":false}"#;
        for (nats, options, answer) in [
            (&open, r#"{"verbose":false}"#, "PONG"),
            (&user, with_user, "PONG"),
            (&token, with_token, "PONG"),
            (&user, r#"{"verbose":false}"#, "-ERR 'Authorization Violation'"),
            (&token, with_user, "-ERR 'Authorization Violation'"),
        ] {
            assert_eq!(connect(&nats.url(), options).await?, answer, "{options}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn cluster_survives_the_loss_of_one() -> Result<()> {
    Testbed::run("nats-cluster", async |testbed| {
        let nats = testbed.nats(NatsOptions::cluster()).await?;
        let urls: Vec<String> = nats.url().split(',').map(str::to_owned).collect();
        assert_eq!(urls.len(), 3);

        nats.kill(0).await?;
        assert!(nats.process(0)?.is_none());
        eventually("the others to answer", CAP, async || {
            let rest = [connect(&urls[1], "{}").await?, connect(&urls[2], "{}").await?];
            Ok(rest.iter().all(|answer| answer == "+OK").then_some(()))
        })
        .await?;
        nats.start(0).await?;
        nats.stop(1).await?;
        nats.start(1).await?;
        assert!(nats.kill(3).await.is_err());
        Ok(())
    })
    .await
}
