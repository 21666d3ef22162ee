//! From settings to connections, the same way for services and the CLI.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use carrick_k8s::{Client, ClientOptions, target::TargetSettings};

use crate::settings::{self, BusAuth, BusSettings, HostSettings};

/// How to talk to control planes.
pub fn client_options(service: &str) -> ClientOptions {
    ClientOptions::new(service, env!("CARGO_PKG_VERSION"))
}

/// The host's client; nothing is asked yet.
pub async fn host_client(
    settings: &HostSettings,
    options: &ClientOptions,
) -> Result<Client, carrick_k8s::Error> {
    let HostSettings { kubeconfig, context, system_namespace: _ } = settings;
    Client::connect(kubeconfig.as_deref(), context.as_deref(), options).await
}

/// Which installation the settings say this is.
pub fn target_settings(host: &HostSettings, target: &settings::TargetSettings) -> TargetSettings {
    TargetSettings {
        namespace: host.system_namespace.clone(),
        cluster: target.cluster.clone(),
        name: target.name.clone(),
        domain: target.domain,
    }
}

/// How to reach the bus, as `service`.
pub fn bus_settings(
    bus: &BusSettings,
    target: &settings::TargetSettings,
    service: &str,
) -> anyhow::Result<carrick_bus::BusSettings> {
    let mut settings = carrick_bus::BusSettings::new("", service, &target.name);
    settings.urls.clone_from(&bus.urls);
    match &bus.auth {
        BusAuth::None => {}
        BusAuth::Credentials(file) => settings.credentials = Some(file.clone()),
        BusAuth::Nkey(file) => settings.nkey = Some(file.clone()),
        BusAuth::Password { user, file } => log_in(&mut settings.urls, user, file)?,
    }
    settings.tls_ca.clone_from(&bus.tls.ca);
    settings.tls_client.clone_from(&bus.tls.identity);
    settings.replicas = usize::try_from(bus.streams.replicas).unwrap_or(1);
    settings.step_retention = bus.streams.step_retention;
    settings.step_bytes = bus.streams.step_bytes;
    settings.tombstone_ttl = bus.streams.tombstone_ttl;
    Ok(settings)
}

/// Puts user and password into the URLs, which is how the client takes them.
fn log_in(urls: &mut [String], user: &str, file: &Path) -> anyhow::Result<()> {
    let password = fs::read_to_string(file)
        .with_context(|| format!("read the password file {}", file.display()))?;
    let login = format!("{}:{}@", encoded(user), encoded(password.trim_end_matches(['\r', '\n'])));
    for url in urls {
        let at = url.find("://").map_or(0, |at| at + "://".len());
        url.insert_str(at, &login);
    }
    Ok(())
}

/// Percent-encoded, but for letters, digits and `-._~` (RFC 3986, section 2.3).
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_goes_into_each_url() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        fs::write(&file, "p@ss/word\n").unwrap();
        let mut urls = vec!["nats://a:4222".to_owned(), "tls://b:4222".to_owned()];
        log_in(&mut urls, "carrick", &file).unwrap();
        assert_eq!(
            urls,
            ["nats://carrick:p%40ss%2Fword@a:4222", "tls://carrick:p%40ss%2Fword@b:4222"]
        );
    }
}
