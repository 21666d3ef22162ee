//! Settings of the bus: where NATS is, who we are there, and what the streams keep.

use std::{path::PathBuf, time::Duration};

use axum::http::Uri;

use super::{
    Problems, Validate,
    problems::{bytes, duration, given, number, readable_file},
};

/// Where and how to reach NATS, as given.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Bus")]
pub struct BusArgs {
    /// NATS servers, separated by commas; nats:// or tls://
    #[arg(
        long,
        value_name = "URLS",
        env = "CARRICK_NATS_URL",
        hide_env_values = true,
        default_value = "nats://127.0.0.1:4222"
    )]
    nats_url: String,
    /// Credentials file (.creds: JWT and seed) to log in to NATS with
    #[arg(long, value_name = "FILE", env = "CARRICK_NATS_CREDENTIALS")]
    nats_credentials: Option<String>,
    /// File with an nkey seed to log in to NATS with
    #[arg(long, value_name = "FILE", env = "CARRICK_NATS_NKEY")]
    nats_nkey: Option<String>,
    /// User to log in to NATS as; needs --nats-password-file
    #[arg(long, value_name = "NAME", env = "CARRICK_NATS_USER")]
    nats_user: Option<String>,
    /// File with the password of --nats-user
    #[arg(long, value_name = "FILE", env = "CARRICK_NATS_PASSWORD_FILE")]
    nats_password_file: Option<String>,
    /// File with the certificate authorities (PEM) that NATS servers are trusted by; TLS is then
    /// required
    #[arg(long, value_name = "FILE", env = "CARRICK_NATS_CA")]
    nats_ca: Option<String>,
    /// File with our certificate (PEM) for NATS; needs --nats-key
    #[arg(long, value_name = "FILE", env = "CARRICK_NATS_CERT")]
    nats_cert: Option<String>,
    /// File with the key (PEM) of --nats-cert
    #[arg(long, value_name = "FILE", env = "CARRICK_NATS_KEY")]
    nats_key: Option<String>,
    /// Replicas of each stream, 1 to 5; three for high availability
    #[arg(long, value_name = "NUMBER", env = "CARRICK_STREAM_REPLICAS", default_value = "1")]
    stream_replicas: String,
    /// How long published steps are kept, as 24h
    #[arg(long, value_name = "DURATION", env = "CARRICK_STEP_RETENTION", default_value = "24h")]
    step_retention: String,
    /// How many bytes of published steps are kept, as 1GiB; the oldest go first
    #[arg(long, value_name = "SIZE", env = "CARRICK_STEP_BYTES", default_value = "1GiB")]
    step_bytes: String,
    /// How long the bus remembers that an object is gone, as 24h; at least 1s, and longer than any
    /// service is ever down
    #[arg(long, value_name = "DURATION", env = "CARRICK_TOMBSTONE_TTL", default_value = "24h")]
    tombstone_ttl: String,
}

/// Where and how to reach NATS.
#[derive(Clone, Debug, PartialEq)]
pub struct BusSettings {
    /// The servers' URLs, without user or password; at least one.
    pub urls: Vec<String>,
    /// Who we are there.
    pub auth: BusAuth,
    /// How servers and we prove it.
    pub tls: BusTls,
    /// What the streams keep.
    pub streams: StreamSettings,
}

/// How to log in to NATS. Secrets stay in their files until they are used.
#[derive(Clone, Debug, PartialEq)]
pub enum BusAuth {
    /// Not at all, or by the certificate alone.
    None,
    /// With a credentials file.
    Credentials(PathBuf),
    /// With the nkey seed in a file.
    Nkey(PathBuf),
    /// With user and the password in a file.
    Password {
        /// The user.
        user: String,
        /// The password's file.
        file: PathBuf,
    },
}

/// TLS towards NATS.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BusTls {
    /// Authorities to trust; with any, TLS is required.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What the streams keep.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSettings {
    /// Replicas of each stream.
    pub replicas: u32,
    /// Age at which steps go.
    pub step_retention: Duration,
    /// Bytes of steps above which the oldest go.
    pub step_bytes: u64,
    /// How long tombstones stay.
    pub tombstone_ttl: Duration,
}

impl Validate for BusArgs {
    type Settings = BusSettings;

    fn validate(&self) -> Result<BusSettings, Vec<String>> {
        let mut problems = Problems::default();
        let urls = self.urls(&mut problems);
        let auth = self.auth(&mut problems);
        let tls = self.tls(&mut problems);
        let streams = self.streams(&mut problems);
        problems.finish(|| Some(BusSettings { urls, auth: auth?, tls: tls?, streams: streams? }))
    }
}

impl BusArgs {
    fn urls(&self, problems: &mut Problems) -> Vec<String> {
        self.nats_url
            .split(',')
            .map(str::trim)
            .filter_map(|url| match server_url(url) {
                Ok(()) => Some(url.to_owned()),
                Err(allowed) => {
                    let shown = if url.contains('@') { "(hidden)" } else { url };
                    problems.add("nats-url", shown, allowed);
                    None
                }
            })
            .collect()
    }

    fn auth(&self, problems: &mut Problems) -> Option<BusAuth> {
        let credentials = given(self.nats_credentials.as_deref());
        let nkey = given(self.nats_nkey.as_deref());
        let user = given(self.nats_user.as_deref());
        let password = given(self.nats_password_file.as_deref());
        match (credentials, nkey, user, password) {
            (None, None, None, None) => Some(BusAuth::None),
            (Some(file), None, None, None) => {
                problems.parse("nats-credentials", file, readable_file).map(BusAuth::Credentials)
            }
            (None, Some(file), None, None) => {
                problems.parse("nats-nkey", file, readable_file).map(BusAuth::Nkey)
            }
            (None, None, Some(user), Some(file)) => problems
                .parse("nats-password-file", file, readable_file)
                .map(|file| BusAuth::Password { user: user.to_owned(), file }),
            (None, None, Some(user), None) => {
                problems.add("nats-user", user, "give its --nats-password-file as well");
                None
            }
            (None, None, None, Some(file)) => {
                problems.add("nats-password-file", file, "give its --nats-user as well");
                None
            }
            _ => {
                let (flag, value) = credentials.map_or_else(
                    || ("nats-nkey", nkey.unwrap_or_default()),
                    |file| ("nats-credentials", file),
                );
                let allowed = "give only one of --nats-credentials, --nats-nkey and --nats-user";
                problems.add(flag, value, allowed);
                None
            }
        }
    }

    fn tls(&self, problems: &mut Problems) -> Option<BusTls> {
        let ca = problems.parse_optional("nats-ca", self.nats_ca.as_deref(), readable_file);
        let (cert, key) = (given(self.nats_cert.as_deref()), given(self.nats_key.as_deref()));
        let identity = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                let cert = problems.parse("nats-cert", cert, readable_file);
                let key = problems.parse("nats-key", key, readable_file);
                Some((cert?, key?))
            }
            (Some(cert), None) => {
                problems.add("nats-cert", cert, "give its --nats-key as well");
                None
            }
            (None, Some(key)) => {
                problems.add("nats-key", key, "give its --nats-cert as well");
                None
            }
        };
        Some(BusTls { ca, identity })
    }

    fn streams(&self, problems: &mut Problems) -> Option<StreamSettings> {
        let replicas = problems.parse("stream-replicas", &self.stream_replicas, number(1, 5));
        let step_retention = problems.parse("step-retention", &self.step_retention, duration);
        let step_bytes = problems.parse("step-bytes", &self.step_bytes, bytes);
        let ttl =
            problems.parse("tombstone-ttl", &self.tombstone_ttl, |text| match duration(text)? {
                ttl if ttl >= Duration::from_secs(1) => Ok(ttl),
                _ => Err("use a duration of at least 1s, as 24h".to_owned()),
            });
        Some(StreamSettings {
            replicas: replicas?,
            step_retention: step_retention?,
            step_bytes: step_bytes?,
            tombstone_ttl: ttl?,
        })
    }
}

/// Whether it is the URL of a NATS server: scheme, host, perhaps a port, and nothing secret.
fn server_url(text: &str) -> Result<(), &'static str> {
    const ALLOWED: &str = "use URLs as nats://host:4222 or tls://host:4222, separated by commas";
    if text.contains('@') {
        return Err("give user and password by --nats-user and --nats-password-file, not in URLs");
    }
    let uri: Uri = text.parse().map_err(|_| ALLOWED)?;
    let authority = uri.authority().ok_or(ALLOWED)?;
    let scheme = matches!(uri.scheme_str(), Some("nats" | "tls"));
    let port =
        authority.port_u16().is_some_and(|port| port > 0) || authority.as_str() == authority.host();
    let rest =
        uri.path_and_query().is_none_or(|rest| rest.as_str() == "/" || rest.as_str().is_empty());
    (scheme && port && rest && !authority.host().is_empty()).then_some(()).ok_or(ALLOWED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_url_has_a_scheme_and_a_host() {
        for (url, valid) in [
            ("nats://127.0.0.1:4222", true),
            ("tls://nats.example:4222", true),
            ("nats://nats", true),
            ("nats://[::1]:4222", true),
            ("nats", false),
            ("http://nats:4222", false),
            ("nats://nats:99999", false),
            ("nats://nats:0", false),
            ("nats://nats:4222/x", false),
            ("nats://user:word@nats:4222", false),
            ("", false),
        ] {
            assert_eq!(server_url(url).is_ok(), valid, "{url:?}");
        }
    }
}
