//! How to reach the servers, and what the streams are to be like.

use std::{fmt, path::PathBuf, time::Duration};

/// How long steps are kept.
pub const DEFAULT_STEP_RETENTION: Duration = Duration::from_hours(24);
/// How many bytes of steps are kept.
pub const DEFAULT_STEP_BYTES: u64 = 1 << 30;
/// How long it is remembered that an object is gone.
pub const DEFAULT_TOMBSTONE_TTL: Duration = Duration::from_hours(1);

/// How to reach the servers, and what the streams are to be like.
#[derive(Clone)]
pub struct BusSettings {
    /// URLs of the servers; each may itself be a list separated by commas. A user and password, or
    /// a token in the user's place, may stand in the first that has one.
    pub urls: Vec<String>,
    /// The client's name, as the server's monitoring shows it: the service's name.
    pub name: String,
    /// Name of the sync target.
    pub target: String,
    /// File with the user's JWT and seed.
    pub credentials: Option<PathBuf>,
    /// File with an nkey seed.
    pub nkey: Option<PathBuf>,
    /// File with the certificates of the authorities to trust, as PEM.
    pub tls_ca: Option<PathBuf>,
    /// Files with the client's certificate and its key, as PEM.
    pub tls_client: Option<(PathBuf, PathBuf)>,
    /// Replicas of each stream: 1, or 3 in a cluster.
    pub replicas: usize,
    /// How long steps are kept.
    pub step_retention: Duration,
    /// How many bytes of steps are kept.
    pub step_bytes: u64,
    /// How long it is remembered that an object is gone; at least a second.
    pub tombstone_ttl: Duration,
}

impl BusSettings {
    /// Defaults for one server that needs no more than its URL.
    pub fn new(url: impl Into<String>, name: impl Into<String>, target: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            name: name.into(),
            target: target.into(),
            credentials: None,
            nkey: None,
            tls_ca: None,
            tls_client: None,
            replicas: 1,
            step_retention: DEFAULT_STEP_RETENTION,
            step_bytes: DEFAULT_STEP_BYTES,
            tombstone_ttl: DEFAULT_TOMBSTONE_TTL,
        }
    }
}

impl fmt::Debug for BusSettings {
    /// Leaves out the URLs: there may be a password in them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusSettings")
            .field("name", &self.name)
            .field("target", &self.target)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}
