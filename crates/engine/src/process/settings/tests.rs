use std::{path::Path, process::Command, time::Duration};

use carrick_core::Domain;
use clap::{CommandFactory, Parser};

use super::*;

#[derive(Parser)]
struct Cli {
    #[clap(flatten)]
    service: ServiceArgs,
}

fn parsed(args: &[&str]) -> Result<Settings, Vec<String>> {
    Cli::parse_from(["test"].iter().chain(args)).service.validate()
}

#[test]
fn the_defaults_are_those_of_the_design() {
    let Settings { host, target, bus, process, run } = parsed(&[]).unwrap();
    assert_eq!(host.system_namespace, "carrick-system");
    assert_eq!((host.kubeconfig, host.context), (None, None));
    let expected = ("carrick", "root", Domain::KcpDev);
    assert_eq!((target.name.as_str(), target.cluster.as_str(), target.domain), expected);
    assert_eq!(bus.urls, ["nats://127.0.0.1:4222"]);
    assert_eq!((bus.auth, bus.tls), (BusAuth::None, BusTls::default()));
    let day = Duration::from_hours(24);
    let streams = StreamSettings {
        replicas: 1,
        step_retention: day,
        step_bytes: 1 << 30,
        tombstone_ttl: day,
    };
    assert_eq!(bus.streams, streams);
    assert_eq!(process.log, LogSettings { filter: "info".to_owned(), format: LogFormat::Json });
    assert_eq!(process.shutdown_timeout, Duration::from_secs(20));
    assert!(!process.instance.is_empty());
    let expected = LoopSettings {
        concurrency: 16,
        call_timeout: Duration::from_secs(10),
        retry_min: Duration::from_millis(100),
        retry_max: Duration::from_secs(30),
        dead_after: 20,
        namespace_grace: Duration::from_secs(30),
    };
    assert_eq!(run, expected);
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let problems = parsed(&[
        "--kubeconfig=/nowhere/config",
        "--system-namespace=Carrick",
        "--sync-target=a.b",
        "--sync-target-cluster=root:",
        "--domain=example.org",
        "--nats-url=nats://one:4222,http://two",
        "--nats-cert=/nowhere/cert",
        "--nats-user=me",
        "--stream-replicas=7",
        "--step-retention=soon",
        "--step-bytes=much",
        "--tombstone-ttl=10ms",
        "--log-level=inof",
        "--log-format=xml",
        "--admin-address=nowhere",
        "--shutdown-timeout=0s",
        "--instance=a b",
        "--concurrency=0",
        "--call-timeout=10",
        "--retry-min=1m",
        "--dead-after=-1",
    ])
    .unwrap_err();
    let expected = [
        "--kubeconfig (CARRICK_KUBECONFIG) is \"/nowhere/config\": use the path of a readable file",
        "--system-namespace (CARRICK_SYSTEM_NAMESPACE) is \"Carrick\": use at most 63",
        "--sync-target (CARRICK_SYNC_TARGET) is \"a.b\": use at most 63",
        "--sync-target-cluster (CARRICK_SYNC_TARGET_CLUSTER) is \"root:\": use a logical cluster",
        "--domain (CARRICK_DOMAIN) is \"example.org\": use kcp.dev or kcp.io",
        "--nats-url (CARRICK_NATS_URL) is \"http://two\": use URLs as nats://host:4222",
        "--nats-user (CARRICK_NATS_USER) is \"me\": give its --nats-password-file as well",
        "--nats-cert (CARRICK_NATS_CERT) is \"/nowhere/cert\": give its --nats-key as well",
        "--stream-replicas (CARRICK_STREAM_REPLICAS) is \"7\": use a number from 1 to 5",
        "--step-retention (CARRICK_STEP_RETENTION) is \"soon\": use a duration",
        "--step-bytes (CARRICK_STEP_BYTES) is \"much\": use a size",
        "--tombstone-ttl (CARRICK_TOMBSTONE_TTL) is \"10ms\": use a duration of at least 1s",
        "--log-level (CARRICK_LOG_LEVEL) is \"inof\": use off, error,",
        "--log-format (CARRICK_LOG_FORMAT) is \"xml\": use json or plain",
        "--admin-address (CARRICK_ADMIN_ADDRESS) is \"nowhere\": use an IP address and a port",
        "--shutdown-timeout (CARRICK_SHUTDOWN_TIMEOUT) is \"0s\": use a duration above zero",
        "--instance (CARRICK_INSTANCE) is \"a b\": use at most 253",
        "--concurrency (CARRICK_CONCURRENCY) is \"0\": use a number from 1 to 1024",
        "--call-timeout (CARRICK_CALL_TIMEOUT) is \"10\": use a duration",
        "--retry-max (CARRICK_RETRY_MAX) is \"30s\": use a duration of at least --retry-min, 1m",
        "--dead-after (CARRICK_DEAD_AFTER) is \"-1\": use a number from 1 to 1000",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}\n{expected}");
    }
}

#[test]
fn secrets_in_a_url_are_refused_and_not_shown() {
    let problems = parsed(&["--nats-url=nats://me:hunter2@nats:4222"]).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(!problems[0].contains("hunter2"), "{problems:?}");
    assert!(problems[0].contains("--nats-password-file"), "{problems:?}");
}

#[test]
fn one_way_to_log_in_is_allowed_and_its_files_must_be_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secret");
    std::fs::write(&file, "").unwrap();
    let given = |flag: &str| format!("--{flag}={}", file.display());
    let auth = |args: &[&str]| parsed(args).map(|settings| settings.bus.auth);
    let (credentials, nkey) = (given("nats-credentials"), given("nats-nkey"));
    let password = given("nats-password-file");
    assert_eq!(auth(&[&credentials]), Ok(BusAuth::Credentials(file.clone())));
    assert_eq!(auth(&[&nkey]), Ok(BusAuth::Nkey(file.clone())));
    let expected = BusAuth::Password { user: "me".to_owned(), file: file.clone() };
    assert_eq!(auth(&["--nats-user=me", &password]), Ok(expected));
    assert!(auth(&[&password]).unwrap_err()[0].contains("--nats-user"));
    for args in [[&*credentials, &*nkey], [&*nkey, &*password], [&*credentials, "--nats-user=me"]] {
        assert!(auth(&args).unwrap_err()[0].contains("give only one of"));
    }
    let tls =
        parsed(&[&given("nats-ca"), &given("nats-cert"), &given("nats-key")]).unwrap().bus.tls;
    let identity = Some((file.clone(), file.clone()));
    assert_eq!(tls, BusTls { ca: Some(file.clone()), identity });
}

#[test]
fn a_filter_may_name_parts_but_a_word_alone_is_a_level() {
    for (filter, valid) in [
        ("warn", true),
        ("INFO", true),
        ("info,carrick_engine=debug", true),
        ("warn,[claim{uid=a}]=trace", true),
        ("verbose", false),
        ("carrick_engine", false),
        ("info,carrick_engine=loud", false),
        ("", false),
    ] {
        let argument = format!("--log-level={filter}");
        assert_eq!(parsed(&[&argument]).is_ok(), valid, "{filter:?}");
    }
}

#[test]
fn every_flag_has_the_variable_that_follows_from_its_name() {
    let command = Cli::command();
    let flags = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    let flags: Vec<_> = flags.filter(|(flag, _)| !["help", "version"].contains(flag)).collect();
    assert!(flags.len() > 25);
    for (flag, arg) in flags {
        assert_eq!(arg.get_env().unwrap().to_str().unwrap(), variable(flag));
        assert!(arg.get_help().is_some() && arg.get_help_heading().is_some(), "{flag}");
    }
}

/// Variables belong to the whole process, so the settings are read in a process of their own: this
/// test, run again.
#[test]
fn variables_are_read_and_flags_win() {
    if std::env::var_os("CARRICK_SYNC_TARGET").is_none() {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::settings::tests::variables_are_read_and_flags_win"])
            .env("CARRICK_SYNC_TARGET", "from-variable")
            .env("CARRICK_DOMAIN", "kcp.dev")
            .env("CARRICK_STREAM_REPLICAS", "3")
            .env("CARRICK_NATS_CA", "")
            .env("POD_NAME", "upsyncer-0")
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&status.stdout).contains("1 passed"), "{status:?}");
        return;
    }
    let settings = parsed(&["--domain=kcp.io"]).unwrap();
    assert_eq!(settings.target.name, "from-variable");
    assert_eq!(settings.target.domain, Domain::KcpIo);
    assert_eq!(settings.bus.streams.replicas, 3);
    assert_eq!(settings.bus.tls.ca.as_deref(), None::<&Path>);
    assert_eq!(settings.process.instance, "upsyncer-0");
}
