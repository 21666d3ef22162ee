//! Publishing facts: a fact never replaces a newer one.

use std::time::{Duration, Instant};

use async_nats::{
    HeaderMap,
    jetstream::{
        context::PublishErrorKind, message::PublishMessage, publish::PublishAck,
        stream::DirectGetErrorKind,
    },
};
use carrick_core::FactSubject;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    connect::Bus,
    error::{Error, Result, is_conflict},
    streams::Family,
};

const UID: &str = "Carrick-Uid";
const RV: &str = "Carrick-Rv";
const OBSERVED: &str = "Carrick-Observed";
const DELETED: &str = "Carrick-Deleted";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

const CONFLICT_LIMIT: Duration = Duration::from_secs(10);
/// A replica that answers reads may lag behind the one that refused the publish.
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// What the headers of a fact say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactMeta {
    /// The object's uid.
    pub uid: String,
    /// The object's resourceVersion; 0 if it has none.
    pub rv: u64,
    /// When the watcher saw it.
    pub observed: Timestamp,
    /// Whether the object is gone: a tombstone.
    pub deleted: bool,
}

impl FactMeta {
    /// Reads the headers. What is missing or unreadable is empty: the oldest possible.
    pub(crate) fn read(headers: Option<&HeaderMap>) -> Self {
        let text = |name| Some(headers?.get(name)?.as_str());
        Self {
            uid: text(UID).unwrap_or_default().to_owned(),
            rv: text(RV).and_then(|rv| rv.parse().ok()).unwrap_or(0),
            observed: text(OBSERVED)
                .and_then(|time| time.parse().ok())
                .unwrap_or(Timestamp::UNIX_EPOCH),
            deleted: text(DELETED).is_some(),
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(UID, self.uid.as_str());
        headers.insert(RV, self.rv.to_string());
        headers.insert(OBSERVED, self.observed.to_string());
        if self.deleted {
            headers.insert(DELETED, "true");
        }
        headers
    }

    /// At the same resourceVersion a tombstone is later.
    fn age(&self) -> (u64, bool) {
        (self.rv, self.deleted)
    }
}

/// What became of a published fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// It is stored.
    Stored {
        /// Its sequence.
        sequence: u64,
    },
    /// The stored one is newer, or the same; this one was dropped.
    Outdated {
        /// Sequence of the stored one.
        sequence: u64,
        /// resourceVersion of the stored one.
        rv: u64,
        /// Whether the stored one is a tombstone.
        deleted: bool,
    },
}

impl PublishOutcome {
    /// The last sequence of the subject, to be expected by the next publish.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Stored { sequence } | Self::Outdated { sequence, .. } => *sequence,
        }
    }
}

impl Bus {
    /// Publishes the state of one object, unless a newer one is stored already. `expected` is the
    /// last sequence of the subject, as far as the caller knows; 0 for none. A wrong one costs a
    /// look at the stored fact. Many of these may be under way at once.
    ///
    /// After an error it may be stored or not; publishing it again is safe.
    pub async fn publish_fact(
        &self,
        subject: &FactSubject,
        object: &Value,
        meta: &FactMeta,
        expected: u64,
    ) -> Result<PublishOutcome> {
        let name = subject.to_string();
        let body = body(object)
            .map_err(|source| Error::Encode { what: format!("fact {name}"), source })?;
        let mut message = PublishMessage::build().payload(body.into()).headers(meta.headers());
        if meta.deleted {
            message = message.ttl(self.settings().tombstone_ttl.max(Duration::from_secs(1)));
        }
        let start = Instant::now();
        let mut expected = expected;
        loop {
            let attempt = message.clone().expected_last_subject_sequence(expected);
            if let Some(ack) = self.send_fact(&name, attempt).await? {
                let sequence = ack.sequence;
                return Ok(PublishOutcome::Stored { sequence });
            }
            let (sequence, stored) = self.last_fact(&name).await?;
            if sequence > 0 && stored.age() >= meta.age() {
                return Ok(PublishOutcome::Outdated {
                    sequence,
                    rv: stored.rv,
                    deleted: stored.deleted,
                });
            }
            if start.elapsed() > CONFLICT_LIMIT {
                return Err(Error::Contended { subject: name, limit: CONFLICT_LIMIT });
            }
            if sequence == expected {
                tokio::time::sleep(CONFLICT_PAUSE).await;
            }
            expected = sequence;
        }
    }

    /// `None` if another sequence was expected than is there.
    async fn send_fact(&self, name: &str, message: PublishMessage) -> Result<Option<PublishAck>> {
        let sent = self.jetstream().send_publish(name.to_owned(), message).await;
        let stored = match sent {
            Ok(ack) => ack.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(ack) => Ok(Some(ack)),
            Err(error) if is_conflict(&error) => Ok(None),
            Err(error) => Err(publish_error(format!("fact {name}"), self, Family::Facts, error)),
        }
    }

    /// Sequence and headers of the last fact of a subject; sequence 0 if there is none.
    async fn last_fact(&self, name: &str) -> Result<(u64, FactMeta)> {
        let stream = self.stream(Family::Facts).await?;
        match stream.direct_get_last_for_subject(name).await {
            Ok(message) => Ok((message.sequence, FactMeta::read(Some(&message.headers)))),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => {
                Ok((0, FactMeta::read(None)))
            }
            Err(error) => Err(Error::server(format!("read fact {name}"), error)),
        }
    }
}

/// What a failed publish means.
pub(crate) fn publish_error(
    what: String,
    bus: &Bus,
    family: Family,
    error: async_nats::jetstream::context::PublishError,
) -> Error {
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            Error::StreamSilent { stream: family.stream(bus.target()) }
        }
        PublishErrorKind::MaxPayloadExceeded => Error::TooLarge { what },
        _ => Error::server(format!("publish {what}"), error),
    }
}

/// The object without what nobody here reads: managed fields are most of its size, and the last
/// applied configuration repeats it.
fn body(object: &Value) -> Result<Vec<u8>, serde_json::Error> {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(LAST_APPLIED);
        }
    }
    serde_json::to_vec(&object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_body_is_without_managed_fields_and_last_applied() {
        let object = json!({"metadata": {
            "name": "data",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {LAST_APPLIED: "{}", "a": "b"},
        }, "spec": {"managedFields": 1}});
        let body: Value = serde_json::from_slice(&body(&object).unwrap()).unwrap();
        let metadata = json!({"name": "data", "annotations": {"a": "b"}});
        assert_eq!(body, json!({"metadata": metadata, "spec": {"managedFields": 1}}));
        assert_eq!(super::body(&json!(1)).unwrap(), b"1");
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        let meta = FactMeta {
            uid: "u".into(),
            rv: 12,
            observed: "2026-01-02T03:04:05.000006Z".parse().unwrap(),
            deleted: true,
        };
        assert_eq!(FactMeta::read(Some(&meta.headers())), meta);
        let live = FactMeta { deleted: false, ..meta.clone() };
        assert_eq!(FactMeta::read(Some(&live.headers())), live);
        assert!(meta.age() > live.age());
        assert_eq!(FactMeta::read(None).age(), (0, false));
    }
}
