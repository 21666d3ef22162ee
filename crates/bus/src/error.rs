//! What can go wrong on the bus, and what to do then. The boxed errors of the NATS client end here.

use std::{io, iter, path::PathBuf, time::Duration};

use async_nats::jetstream;

/// Result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It may work later: try again.
    Retry,
    /// It will never work with this object: leave it and say so.
    Reject,
    /// Nothing will work until a person changes the settings: end the process.
    Stop,
}

/// What went wrong on the bus.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server's URL can't be used.
    #[error(
        "nats url {url:?} can't be used: {reason}; write it as nats://HOST:PORT or tls://HOST:PORT"
    )]
    Url {
        /// The URL, without its password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that the settings name can't be used.
    #[error("{what} {path} can't be used: {source}; check the path and its permissions")]
    File {
        /// What it is for.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The server does not let us in.
    #[error(
        "nats server {server} refuses the credentials: {reason}; check the user, token, nkey or credentials file"
    )]
    Refused {
        /// The servers, without passwords.
        server: String,
        /// What it said.
        reason: String,
    },
    /// A stream is not there.
    #[error("stream {stream} does not exist; the watcher makes it, check that it runs")]
    StreamMissing {
        /// Its name.
        stream: String,
    },
    /// Nobody answers for a stream: it has no leader now, as after the loss of a server, or is not
    /// there.
    #[error(
        "stream {stream} does not answer; it has no leader now, or the watcher has not made it"
    )]
    StreamSilent {
        /// Its name.
        stream: String,
    },
    /// No answer in time.
    #[error("{what}: no answer within {limit:?}; check the nats server")]
    Timeout {
        /// What was asked.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// The server says no, or can't be reached.
    #[error("{what}: {source}")]
    Server {
        /// What was asked.
        what: String,
        /// `JetStream`'s own number for it, if it is one of its answers.
        code: Option<u64>,
        /// What it said.
        source: async_nats::Error,
    },
    /// Others published on the subject all the time.
    #[error(
        "fact {subject}: others published it again and again for {limit:?}; only one watcher may be active"
    )]
    Contended {
        /// The fact's subject.
        subject: String,
        /// How long it was tried.
        limit: Duration,
    },
    /// Some messages did not arrive.
    #[error("{what}: {missing} messages did not arrive; read it again")]
    Incomplete {
        /// What was read.
        what: String,
        /// How many are missing.
        missing: u64,
    },
    /// The message is larger than the server takes.
    #[error("{what} is larger than the server takes; raise the server's max_payload")]
    TooLarge {
        /// What was to be published.
        what: String,
    },
    /// The message can't be written as JSON.
    #[error("{what} can't be written as JSON: {source}")]
    Encode {
        /// What was to be published.
        what: String,
        /// Why not.
        source: serde_json::Error,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Url { .. } | Self::File { .. } | Self::Refused { .. } => Class::Stop,
            Self::TooLarge { .. } | Self::Encode { .. } => Class::Reject,
            Self::StreamMissing { .. }
            | Self::StreamSilent { .. }
            | Self::Timeout { .. }
            | Self::Contended { .. }
            | Self::Incomplete { .. } => Class::Retry,
            Self::Server { code, .. } => match code {
                // The request itself is wrong: bad request, consumer or stream configuration.
                Some(
                    10_003 | 10_025 | 10_052 | 10_054 | 10_058 | 10_065 | 10_074 | 10_093 | 10_136
                    | 10_138,
                ) => Class::Reject,
                _ => Class::Retry,
            },
        }
    }

    /// An answer of the server, or that there was none.
    pub(crate) fn server(what: impl Into<String>, source: impl Into<async_nats::Error>) -> Self {
        let source = source.into();
        Self::Server { what: what.into(), code: api_code(source.as_ref()), source }
    }

    /// An answer of `JetStream`, or that there was none.
    pub(crate) fn api(what: impl Into<String>, error: jetstream::Error) -> Self {
        Self::Server { what: what.into(), code: Some(error.error_code().0), source: error.into() }
    }
}

/// `JetStream`'s own number for an error, wherever in the chain of sources it stands: the client
/// knows only some of the numbers and wraps the others as `Other`.
pub(crate) fn api_code(error: &(dyn std::error::Error + 'static)) -> Option<u64> {
    iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<jetstream::Error>())
        .map(|error| error.error_code().0)
}

/// Whether a publish failed because the subject's last sequence was not the expected one. With
/// three replicas most of these come as 10164, which the client has no kind for.
pub(crate) fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(api_code(error), Some(10_071 | 10_164))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u64) -> jetstream::Error {
        serde_json::from_value(serde_json::json!({"code": 400, "err_code": code})).unwrap()
    }

    #[test]
    fn numbers_are_found_below_what_the_client_wraps_around_them() {
        let wrapped = jetstream::context::PublishError::with_source(
            jetstream::context::PublishErrorKind::Other,
            answer(10_164),
        );
        assert!(is_conflict(&wrapped));
        let other =
            jetstream::context::PublishError::new(jetstream::context::PublishErrorKind::TimedOut);
        assert!(!is_conflict(&other));
        assert!(is_conflict(&answer(10_071)));
    }

    #[test]
    fn what_to_do_follows_from_the_number() {
        for (code, class) in [(10_025, Class::Reject), (10_008, Class::Retry)] {
            assert_eq!(Error::api("x", answer(code)).class(), class, "{code}");
        }
    }
}
