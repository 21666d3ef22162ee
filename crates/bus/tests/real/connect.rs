//! Connecting: waiting for the server, and not waiting when it says no.

use std::{fs, time::Duration};

use anyhow::Result;
use carrick_bus::{Bus, BusSettings, Class, Error};
use carrick_testbed::{NatsAuth, NatsOptions, Testbed, eventually};
use tokio::time::timeout;

use crate::support::{CAP, one};

fn settings(url: &str) -> BusSettings {
    BusSettings::new(url, "upsyncer", "main")
}

fn with_login(url: &str, login: &str) -> String {
    url.replace("nats://", &format!("nats://{login}@"))
}

#[tokio::test]
async fn refused_credentials_are_an_error_at_once() -> Result<()> {
    let testbed = Testbed::start("bus-refused").await?;
    let user = NatsAuth::User { user: "carrick".into(), password: "p$\"@4".into() };
    let by_user =
        testbed.nats(NatsOptions { name: "user".into(), auth: user, ..NatsOptions::default() });
    let by_token = testbed.nats(NatsOptions {
        name: "token".into(),
        auth: NatsAuth::Token("t0ken".into()),
        ..NatsOptions::default()
    });
    let (by_user, by_token) = tokio::try_join!(by_user, by_token)?;
    let good =
        [with_login(&by_user.url(), "carrick:p%24%22%404"), with_login(&by_token.url(), "t0ken")];
    for url in good {
        let bus = Bus::connect(settings(&url)).await?;
        assert!(bus.is_connected());
        bus.close().await?;
    }
    let bad = [
        by_user.url(),
        with_login(&by_user.url(), "carrick:wrong"),
        with_login(&by_token.url(), "wrong"),
    ];
    for url in bad {
        let error = timeout(CAP, Bus::connect(settings(&url))).await?;
        let error = error.expect_err("it should be refused");
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!(error.class(), Class::Stop);
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn an_nkey_is_read_from_its_file() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("carrick-bus-nkey-{}", std::process::id()));
    let mut settings = settings("nats://127.0.0.1:1");
    settings.nkey = Some(dir.clone());
    let error = Bus::connect(settings.clone()).await.unwrap_err();
    assert!(error.to_string().contains("nkey file"), "{error}");
    fs::write(&dir, "no seed")?;
    let server = one("bus-nkey").await?;
    settings.urls = vec![server.nats.url()];
    let error = timeout(CAP, Bus::connect(settings)).await?.unwrap_err();
    fs::remove_file(&dir)?;
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn what_can_not_be_used_is_said_at_once() {
    let url = Bus::connect(settings("nats://a,http://b:1")).await.unwrap_err();
    assert!(url.to_string().contains("\"http://b:1\""), "{url}");
    let mut tls = settings("nats://127.0.0.1:1");
    tls.tls_ca = Some("/nowhere/ca.pem".into());
    let tls = Bus::connect(tls).await.unwrap_err();
    assert!(tls.to_string().contains("ca file /nowhere/ca.pem"), "{tls}");
    assert_eq!(tls.class(), Class::Stop);
}

#[tokio::test]
async fn a_server_that_comes_later_is_waited_for() -> Result<()> {
    let server = one("bus-later").await?;
    server.nats.kill(0).await?;
    let url = server.nats.url();
    let mut connecting = Box::pin(Bus::connect(settings(&url)));
    let early = timeout(Duration::from_millis(300), &mut connecting).await;
    assert!(early.is_err(), "there was no server");
    server.nats.start(0).await?;
    let later = timeout(CAP, connecting).await??;
    later.wait_for_streams().await?;
    eventually("the first connection to be back", CAP, async || {
        Ok(server.bus.is_connected().then_some(()))
    })
    .await
}

#[tokio::test]
async fn streams_are_waited_for_until_the_watcher_makes_them() -> Result<()> {
    let testbed = Testbed::start("bus-streams").await?;
    let nats = testbed.nats(NatsOptions::default()).await?;
    let service = Bus::connect(settings(&nats.url())).await?;
    assert!(matches!(service.facts_incarnation().await, Err(Error::StreamMissing { .. })));
    let mut waiting = Box::pin(service.wait_for_streams());
    let early = timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "there were no streams");
    let watcher = Bus::connect(settings(&nats.url())).await?;
    watcher.ensure_streams().await?;
    timeout(CAP, waiting).await??;
    let mut three = settings(&nats.url());
    three.replicas = 3;
    let error = Bus::connect(three).await?.ensure_streams().await.unwrap_err();
    assert_eq!(error.class(), Class::Reject, "{error}");
    Ok(())
}
