//! Bad input gets a clear error and changes nothing: credentials, Tenants, settings, and what
//! stands on the bus.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use carrick_e2e::{
    Binder, CLASS, Installation, KUBECONFIG, SERVICES, Stage, carrick_writes, make_claims,
    make_tenant, numbered, program, put_secret, tenant_condition, tenants, until_condition,
    until_ok,
};
use carrick_testbed::{ControlPlane, ControlPlaneOptions, NatsAuth, NatsOptions, Testbed};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{CAP, logs_stay_quiet};

const NAMESPACE: &str = "team-a";
const SYSTEM: &str = "carrick-system";
const PASSWORD: &str = "not-to-be-logged";

#[tokio::test]
async fn credentials_that_do_not_work_are_refused_with_the_reason() -> Result<()> {
    Testbed::run("credentials", async |testbed| {
        let stage = Stage::servers(testbed, &[("kcp", Binder::Carrick)]).await?;
        stage.carrick.start_all("0")?;
        stage.carrick.until_all_ready("0", CAP).await?;
        let (host, tenant) = (stage.host.client().await?, stage.tenant("kcp")?);
        check_refused_by_cli(&stage, testbed).await?;
        check_refused_by_hand(&stage, &host).await?;
        let writes = carrick_writes(tenant)?;
        ensure!(writes.is_empty(), "the tenant was written to: {writes:?}");

        // A Secret that is put right is taken up.
        put_secret(&host, "wrong-token", KUBECONFIG, &tenant.kubeconfig()).await?;
        for condition in ["Connected", "Accepted", "Synced"] {
            until_condition(&host, "wrong-token", (condition, "True"), CAP).await?;
        }
        check_twin(&stage, &host).await?;
        stage.carrick.check_alive()
    })
    .await
}

/// Kubeconfigs of a tenant that cannot be used: a name, the text, a word that the CLI's answer
/// has, the reason of the condition.
fn unusable(
    host: &ControlPlane,
    tenant: &ControlPlane,
) -> Result<Vec<(&'static str, String, &'static str, &'static str)>> {
    let right = tenant.kubeconfig();
    let authority = |kubeconfig: &str| {
        let line = kubeconfig.lines().find(|line| line.contains("certificate-authority-data"));
        line.map(str::to_owned).context("a kubeconfig has an authority")
    };
    let wrong_ca = right.replace(&authority(&right)?, &authority(&host.kubeconfig())?);
    let gone = right.replace(&tenant.url(), "https://127.0.0.1:1");
    Ok(vec![
        ("wrong-ca", wrong_ca, "certificate", "CertificateInvalid"),
        ("wrong-token", tenant.kubeconfig_with_token("wrong"), "unauthorized", "Unauthorized"),
        ("unreachable", gone, "refused", "Unreachable"),
        ("no-kubeconfig", "no: kubeconfig".to_owned(), "kubeconfig", "KubeconfigInvalid"),
    ])
}

async fn check_refused_by_cli(stage: &Stage<'_>, testbed: &Testbed) -> Result<()> {
    let host = stage.host.client().await?;
    let before = made(&host).await?;
    let mut cases = unusable(&stage.host, stage.tenant("kcp")?)?;
    cases.push(("host", stage.host.kubeconfig(), "host", ""));
    for (name, kubeconfig, word, _) in cases {
        let path = testbed.folder().join(format!("{name}.kubeconfig"));
        fs::write(&path, kubeconfig)?;
        let path = path.to_str().context("a path is text")?;
        let said = stage.carrick.carrick(&["tenant", "add", name, "--kubeconfig", path]).await?;
        ensure!(!said.ok, "{name} was added: {}", said.out);
        let text = said.err.to_lowercase();
        ensure!(text.contains(word), "{name}: {word:?} is not in {text:?}");
        ensure!(!text.contains("panicked"), "{text}");
    }
    let after = made(&host).await?;
    ensure!(before == after, "{after:?} are there, {before:?} were before");
    Ok(())
}

/// Names of all Tenants, and of the Secrets beside them.
async fn made(host: &Client) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let all = ListParams::default();
    let tenants = tenants(host).list(&all).await?.items;
    let secrets: Api<Secret> = Api::namespaced(host.clone(), SYSTEM);
    let secrets = secrets.list(&all).await?.items;
    Ok((
        tenants.into_iter().filter_map(|tenant| tenant.metadata.name).collect(),
        secrets.into_iter().filter_map(|secret| secret.metadata.name).collect(),
    ))
}

async fn check_refused_by_hand(stage: &Stage<'_>, host: &Client) -> Result<()> {
    let tenant = stage.tenant("kcp")?;
    let mut expected = vec![("no-secret", "SecretMissing"), ("no-key", "KeyMissing")];
    put_secret(host, "no-key", "another", &tenant.kubeconfig()).await?;
    for (name, kubeconfig, _, reason) in unusable(&stage.host, tenant)? {
        put_secret(host, name, KUBECONFIG, &kubeconfig).await?;
        expected.push((name, reason));
    }
    for (name, _) in &expected {
        make_tenant(host, name, name).await?;
    }
    for (name, reason) in expected {
        let told = until_condition(host, name, ("Connected", "False"), CAP).await?;
        ensure!(told.0 == reason && !told.1.is_empty(), "{name}: {told:?}, not {reason}");
        let accepted = tenant_condition(host, name, "Accepted").await?;
        ensure!(accepted["status"] != "True", "{name}: {accepted}");
    }
    Ok(())
}

/// A second Tenant for the control plane of `wrong-token`, which is right by now.
async fn check_twin(stage: &Stage<'_>, host: &Client) -> Result<()> {
    let tenant = stage.tenant("kcp")?;
    put_secret(host, "twin", KUBECONFIG, &tenant.kubeconfig()).await?;
    make_tenant(host, "twin", "twin").await?;
    let (reason, message) = until_condition(host, "twin", ("Accepted", "False"), CAP).await?;
    ensure!(message.contains("wrong-token"), "{reason}: {message:?} does not name the other");

    let claims = numbered("data", 3);
    make_claims(&tenant.client().await?, NAMESPACE, claims.clone(), CLASS).await?;
    linked_as(stage, "wrong-token", &claims).await?;
    let namespaces: Api<Namespace> = Api::all(host.clone());
    let twins = namespaces.get_opt(&stage.host_namespace("twin", NAMESPACE)).await?;
    ensure!(twins.is_none(), "the second Tenant's claims were carried down: {twins:?}");
    Ok(())
}

/// Waits until the claims of the tenant `kcp` are linked under another Tenant's name.
async fn linked_as(stage: &Stage<'_>, cluster: &str, claims: &[String]) -> Result<()> {
    let (host, tenant) = (stage.host.client().await?, stage.client("kcp").await?);
    for claim in claims {
        until_ok(&format!("claim {claim} to be linked"), CAP, async || {
            let of = (NAMESPACE, claim.as_str());
            carrick_e2e::check_pair((&host, &tenant), stage.target(), cluster, of).await
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_service_for_another_target_or_with_wrong_credentials_ends_with_a_clear_error()
-> Result<()> {
    Testbed::run("settings", async |testbed| {
        let auth = NatsAuth::User { user: "carrick".to_owned(), password: PASSWORD.to_owned() };
        let (host, nats) = tokio::try_join!(
            testbed.control_plane(ControlPlaneOptions::new("host")),
            testbed.nats(NatsOptions { auth, ..NatsOptions::default() }),
        )?;
        let file = testbed.folder().join("password");
        let installation = |instance: &str, password: &str| -> Result<Installation<'_>> {
            let file = file.with_extension(instance);
            fs::write(&file, password)?;
            Ok(Installation::new(testbed, &host, nats.url())
                .with("CARRICK_NATS_USER", "carrick")
                .with("CARRICK_NATS_PASSWORD_FILE", file.to_str().context("a path is text")?))
        };
        let right = installation("right", PASSWORD)?;
        right.prepare(&host).await?;
        fix_target(&host, "another").await?;
        let words = ["another sync target", "uid was fixed as \"another\""];
        check_ends(&right, "target", &words).await?;

        let (target, _) = right.names(&host).await?;
        fix_target(&host, &target.uid).await?;
        let wrong = installation("wrong", "guessed-wrong")?;
        check_ends(&wrong, "wrong", &["refuses the credentials"]).await?;
        let none = Installation::new(testbed, &host, nats.url());
        check_ends(&none, "none", &["refuses the credentials"]).await?;

        right.start_all("right")?;
        right.until_all_ready("right", CAP).await
    })
    .await
}

/// Fixes the sync target's uid, as an installation does.
async fn fix_target(host: &ControlPlane, uid: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(host.client().await?, SYSTEM);
    let data = json!({"cluster": "root", "name": "carrick", "uid": uid, "domain": "kcp.dev"});
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "carrick-sync-target"},
        "data": data,
    });
    let params = PatchParams::apply("e2e").force();
    maps.patch("carrick-sync-target", &params, &Patch::Apply(map)).await?;
    Ok(())
}

/// Every service ends by itself, with exit code 1 and these words in its log.
async fn check_ends(carrick: &Installation<'_>, instance: &str, words: &[&str]) -> Result<()> {
    carrick.start_all(instance)?;
    for service in SERVICES {
        let process = carrick.process(service, instance)?;
        let status = process.wait(CAP).await?;
        let log = process.log();
        ensure!(status.code() == Some(1), "{service} has ended with {status}:\n{log}");
        for word in words {
            // The plain log shows a text with quotes in it as Rust would.
            let found = log.contains(word) || log.replace("\\\"", "\"").contains(word);
            ensure!(found, "{service}: {word:?} is not in\n{log}");
        }
        for secret in [PASSWORD, "guessed-wrong"] {
            ensure!(!log.contains(secret), "{service} has logged a password");
        }
    }
    Ok(())
}

#[test]
fn wrong_settings_are_all_listed_and_nothing_is_started() -> Result<()> {
    let wrong = [
        ("--domain", "example.org"),
        ("--concurrency", "0"),
        ("--log-format", "xml"),
        ("--kubeconfig", "/nowhere/kubeconfig"),
        ("--nats-url", "http://127.0.0.1:1"),
    ];
    for service in SERVICES {
        let mut command = Command::new(program(&format!("carrick-{service}"))?);
        let output = command.args(wrong.iter().flat_map(|(flag, value)| [flag, value])).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{service}: {} {text}", output.status);
        for (flag, value) in wrong {
            ensure!(text.contains(flag), "{service}: {flag} is not in\n{text}");
            ensure!(text.contains(value), "{service}: {value} is not in\n{text}");
        }
        let unknown =
            Command::new(program(&format!("carrick-{service}"))?).arg("--no-such-flag").output()?;
        ensure!(unknown.status.code() == Some(2), "{service}: {}", unknown.status);
    }
    Ok(())
}

#[tokio::test]
async fn what_is_no_json_on_the_bus_is_reported_and_stops_nobody() -> Result<()> {
    Testbed::run("poison", async |testbed| {
        let stage = Stage::start(testbed, &[("kcp", Binder::Carrick)]).await?;
        let client = stage.client("kcp").await?;
        let first = numbered("first", 2);
        make_claims(&client, NAMESPACE, first.clone(), CLASS).await?;
        let pairs = stage.linked("kcp", NAMESPACE, &first).await?;

        let bound = pairs[0].host_volume.metadata.name.as_deref().context("a name")?;
        for rest in [
            // Of a claim that is not there, of one that is bound, of one that is to come.
            "fact.kcp.team-a.ghost.tenant-claim".to_owned(),
            "fact.kcp.team-a.ghost.host-claim".to_owned(),
            "fact.kcp.team-a.first-1.tenant-claim".to_owned(),
            format!("fact.kcp.team-a.first-1.tenant-volume.{bound}"),
            "fact.kcp.team-a.later-1.tenant-claim".to_owned(),
            "fact.kcp.team-a.later-1.host-claim".to_owned(),
            "step.kcp.team-a.later-1.claim.done".to_owned(),
            // Subjects that mean nothing.
            "fact.kcp".to_owned(),
            "fact.kcp.team-a.ghost.no-such-facet.of.things".to_owned(),
            "fact.nobody.team-a.ghost.tenant-claim".to_owned(),
        ] {
            publish(testbed, &stage.nats.url(), &format!("carrick.v1.carrick.{rest}")).await?;
        }
        let process = stage.carrick.process("downsyncer", "0")?;
        until_ok("the downsyncer to say so", CAP, async || {
            let log = process.log();
            ensure!(log.contains("is not a fact"), "{log}");
            Ok(())
        })
        .await?;

        let later = numbered("later", 5);
        make_claims(&client, NAMESPACE, later.clone(), CLASS).await?;
        stage.linked("kcp", NAMESPACE, &later).await?;
        stage.linked("kcp", NAMESPACE, &first).await?;
        logs_stay_quiet(&stage.carrick, "0", (Duration::from_secs(10), 10)).await
    })
    .await
}

/// Publishes what is neither JSON nor text.
async fn publish(testbed: &Testbed, url: &str, subject: &str) -> Result<()> {
    let mut command = tokio::process::Command::new(&testbed.tools().nats);
    command.args(["--server", url, "pub", "--force-stdin", subject]);
    command.env("XDG_CONFIG_HOME", testbed.folder()).env("HOME", testbed.folder());
    let input = testbed.folder().join("poison");
    fs::write(&input, b"{\"metadata\": \xff\xfe")?;
    let output = command.stdin(fs::File::open(&input)?).output().await?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nats pub {subject}: {text}");
    Ok(())
}
