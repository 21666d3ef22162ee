//! The one connection of a process.

use carrick_core::quiet::Quiet;
use std::{fmt, fs, path::Path, sync::Arc, time::Duration};

use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr,
    connection::State,
    jetstream::{self, context::ContextBuilder},
};
use carrick_core::subject;
use tracing::{info, warn};

use crate::{
    error::{Error, Result},
    server_url::{self, Login},
    settings::BusSettings,
    streams::Family,
};

/// How long a request may take.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Short, so that a server that is gone without a word is noticed soon.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Publishes that may wait for their acknowledgement at once; more wait for their turn.
const MAX_PUBLISHES: usize = 4096;

/// The connection to the bus; clones share it.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    jetstream: jetstream::Context,
    settings: BusSettings,
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

impl Bus {
    /// Connects, and waits for the server as long as it takes. Settings that can't be used, and a
    /// server that refuses the credentials, are errors at once. Later the connection is made again
    /// by itself whenever it breaks.
    pub async fn connect(settings: BusSettings) -> Result<Self> {
        let (servers, login) = server_url::parse(&settings.urls)?;
        let shown = server_url::display(&servers);
        check_files(&settings)?;
        let quiet = Quiet::default();
        let client = loop {
            // Not the client's own retries: they would go on for ever after a refusal, too.
            let options = options(&settings, login.clone()).await?;
            let error = match options.connect(servers.as_slice() as &[ServerAddr]).await {
                Ok(client) => break client,
                Err(error) => error,
            };
            match error.kind() {
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    return Err(Error::Refused { server: shown, reason: error.to_string() });
                }
                _ if quiet.due() => warn!(server = %shown, %error, "Waiting for the nats server"),
                _ => {}
            }
            tokio::time::sleep(RETRY_AFTER).await;
        };
        let jetstream = ContextBuilder::new()
            .timeout(REQUEST_LIMIT)
            .ack_timeout(REQUEST_LIMIT)
            .max_ack_inflight(MAX_PUBLISHES)
            .backpressure_on_inflight(true)
            .build(client.clone());
        let inner = Inner { client, jetstream, settings };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Name of the sync target.
    pub fn target(&self) -> &str {
        &self.inner.settings.target
    }

    /// Whether the server is reachable right now.
    pub fn is_connected(&self) -> bool {
        self.inner.client.connection_state() == State::Connected
    }

    /// Filter for a part of this sync target's messages; `rest` may hold wildcards.
    pub fn filter(&self, family: Family, rest: &str) -> String {
        subject::filter(self.target(), family.token(), rest)
    }

    /// Sends what is still in the buffers and closes the connection.
    pub async fn close(&self) -> Result<()> {
        let client = &self.inner.client;
        let flush = async {
            client.flush().await.map_err(|error| Error::server("flush", error))?;
            client.drain().await.map_err(|error| Error::server("drain", error))
        };
        limit("close the connection", flush).await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(crate) fn jetstream(&self) -> &jetstream::Context {
        &self.inner.jetstream
    }

    pub(crate) fn settings(&self) -> &BusSettings {
        &self.inner.settings
    }
}

/// Bounds what has no limit of its own, as when the connection is down.
pub(crate) async fn limit<T>(
    what: impl Into<String>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(REQUEST_LIMIT, work)
        .await
        .unwrap_or_else(|_| Err(Error::Timeout { what: what.into(), limit: REQUEST_LIMIT }))
}

async fn options(settings: &BusSettings, login: Option<Login>) -> Result<ConnectOptions> {
    let quiet = Arc::new(Quiet::default());
    let mut options = ConnectOptions::new()
        .name(format!("carrick-{}", settings.name))
        .ping_interval(PING_INTERVAL)
        .request_timeout(Some(REQUEST_LIMIT))
        .custom_inbox_prefix(format!("_INBOX.{}", subject::encode(&settings.name)))
        .event_callback(move |event| {
            let quiet = Arc::clone(&quiet);
            async move { log(&event, &quiet) }
        });
    options = match login {
        Some(Login::User { user, password }) => options.user_and_password(user, password),
        Some(Login::Token(token)) => options.token(token),
        None => options,
    };
    if let Some(path) = &settings.credentials {
        let loaded = options.credentials_file(path).await;
        options = loaded.map_err(|source| unusable("credentials file", path, source))?;
    }
    if let Some(path) = &settings.nkey {
        let seed = fs::read_to_string(path);
        let seed = seed.map_err(|source| unusable("nkey file", path, source))?;
        options = options.nkey(seed.trim().to_owned());
    }
    if let Some(path) = &settings.tls_ca {
        options = options.add_root_certificates(path.clone());
    }
    if let Some((certificate, key)) = &settings.tls_client {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    // A private authority is no use without TLS: no silent fall back to plain text.
    let tls = settings.tls_ca.is_some() || settings.tls_client.is_some();
    Ok(if tls { options.require_tls(true) } else { options })
}

/// The client reads these only when it connects, and would say no more than "TLS error".
fn check_files(settings: &BusSettings) -> Result<()> {
    let client = settings.tls_client.iter();
    let client = client
        .flat_map(|(certificate, key)| [("client certificate", certificate), ("client key", key)]);
    let ca = settings.tls_ca.iter().map(|path| ("ca file", path));
    for (what, path) in ca.chain(client) {
        fs::read(path).map_err(|source| unusable(what, path, source))?;
    }
    Ok(())
}

fn unusable(what: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::File { what, path: path.to_owned(), source }
}

fn log(event: &Event, quiet: &Quiet) {
    match event {
        Event::Connected => {
            quiet.over();
            info!("Connected to the nats server");
        }
        Event::Disconnected => warn!("Connection to the nats server lost, connecting again"),
        Event::LameDuckMode => info!("The nats server is about to end"),
        Event::Draining | Event::Closed => info!(%event, "Connection to the nats server ends"),
        Event::SlowConsumer(_) => warn!(%event, "Messages were dropped, too many at once"),
        // Each attempt to connect again makes one of these.
        Event::ServerError(_) | Event::ClientError(_) if quiet.due() => {
            warn!(%event, "Trouble with the nats server");
        }
        Event::ServerError(_) | Event::ClientError(_) => {}
    }
}
