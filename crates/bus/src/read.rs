//! Reading all facts below some wildcards at once.
//!
//! The server's multi-subject direct get is one request with one reply for each subject, in
//! 0.1 ms, as of one moment; the NATS client has no method for it. With several replicas any one of
//! them answers, and it may lag: a reader that knows of a sequence asks for an answer that is not
//! older.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use async_nats::{HeaderMap, Message, StatusCode};
use bytes::Bytes;
use carrick_core::FactSubject;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use crate::{
    connect::{Bus, limit},
    error::{Error, Result},
    facts::FactMeta,
    streams::Family,
};

/// The server answers for at most 1,024 subjects at once.
const CHUNK: usize = 512;
const TOO_MANY: u16 = 413;
const NO_CONTENT: u16 = 204;
const LAG_LIMIT: Duration = Duration::from_secs(5);
const LAG_PAUSE: Duration = Duration::from_millis(10);

/// One fact.
#[derive(Clone, Debug, PartialEq)]
pub struct FactMessage {
    /// Its subject.
    pub subject: FactSubject,
    /// Its sequence.
    pub sequence: u64,
    /// What its headers say.
    pub meta: FactMeta,
    /// The object; the last known state if it is gone.
    pub object: Value,
}

/// A message that is no fact, although its subject is one of facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// Its subject.
    pub subject: String,
    /// Its sequence.
    pub sequence: u64,
    /// What is wrong with it.
    pub error: String,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The facts, by subject.
    pub facts: Vec<FactMessage>,
    /// What can't be read; the rest is complete.
    pub poison: Vec<Poison>,
}

/// A stored message as it is.
pub(crate) struct Raw {
    pub(crate) subject: String,
    pub(crate) sequence: u64,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

impl Raw {
    pub(crate) fn poison(&self, error: String) -> Poison {
        Poison { subject: self.subject.clone(), sequence: self.sequence, error }
    }
}

/// One answer of the server.
enum Answer {
    /// Messages, the stream's last sequence where they were read, and how many are left out.
    Found {
        up_to: u64,
        left: u64,
    },
    Nothing,
    TooMany,
}

impl Bus {
    /// All facts below any of the filters, as of one moment (if there are more than 1,024, as of
    /// several). The answer is not older than the stream's sequence `not_before`; 0 for any.
    pub async fn read(&self, filters: &[String], not_before: u64) -> Result<Facts> {
        let mut read = Facts::default();
        for raw in self.last_messages(Family::Facts, filters, not_before).await? {
            match fact(&raw) {
                Ok(fact) => read.facts.push(fact),
                Err(poison) => read.poison.push(poison),
            }
        }
        Ok(read)
    }

    /// The last message of each subject below any of the filters, by subject.
    pub(crate) async fn last_messages(
        &self,
        family: Family,
        filters: &[String],
        not_before: u64,
    ) -> Result<Vec<Raw>> {
        let start = Instant::now();
        loop {
            let mut found = BTreeMap::new();
            let fresh = match self.pages(family, filters, &mut found).await? {
                Answer::Found { up_to, .. } => up_to >= not_before,
                Answer::TooMany => self.in_chunks(family, filters, &mut found).await? >= not_before,
                // The replica does not say how far it is; the leader knows what there is.
                Answer::Nothing if not_before > 0 => {
                    self.subjects(family, filters).await?.is_empty()
                }
                Answer::Nothing => true,
            };
            if fresh {
                return Ok(found.into_values().collect());
            }
            if start.elapsed() > LAG_LIMIT {
                return Err(Error::Timeout {
                    what: format!("read {family}s not older than sequence {not_before}"),
                    limit: LAG_LIMIT,
                });
            }
            tokio::time::sleep(LAG_PAUSE).await;
        }
    }

    /// The subjects below any of the filters, as the stream's leader knows them.
    pub(crate) async fn subjects(&self, family: Family, filters: &[String]) -> Result<Vec<String>> {
        let stream = self.stream(family).await?;
        let mut subjects = Vec::new();
        for filter in filters {
            let what = || format!("list the subjects below {filter}");
            let list = async {
                let listed = stream.info_builder().subjects(filter).fetch().await;
                let listed = listed.map_err(|error| Error::server(what(), error))?;
                listed
                    .map_ok(|(subject, _)| subject)
                    .try_collect::<Vec<_>>()
                    .await
                    .map_err(|error| Error::server(what(), error))
            };
            subjects.extend(list.await?);
        }
        subjects.sort_unstable();
        subjects.dedup();
        Ok(subjects)
    }

    /// Reads subject by subject; the least fresh answer's last sequence.
    async fn in_chunks(
        &self,
        family: Family,
        filters: &[String],
        found: &mut BTreeMap<String, Raw>,
    ) -> Result<u64> {
        let subjects = self.subjects(family, filters).await?;
        let mut least = u64::MAX;
        for chunk in subjects.chunks(CHUNK) {
            if let Answer::Found { up_to, .. } = self.pages(family, chunk, found).await? {
                least = least.min(up_to);
            }
        }
        Ok(least)
    }

    /// The server cuts a large answer off at some size; the rest is asked for again. Not with the
    /// same upper bound: a message that is replaced between two pages would be in neither.
    async fn pages(
        &self,
        family: Family,
        filters: &[String],
        found: &mut BTreeMap<String, Raw>,
    ) -> Result<Answer> {
        let mut first = true;
        let mut from = 0;
        loop {
            let before = found.len();
            let what = format!("read {family}s below {}", filters.join(" "));
            let request = self.request(family, filters, from, found);
            match limit(what, request).await? {
                Answer::Nothing if first => return Ok(Answer::Nothing),
                Answer::Found { left, .. } if left > 0 && found.len() > before => {
                    from = 1 + found.values().map(|raw| raw.sequence).max().unwrap_or(0);
                    first = false;
                }
                answer => return Ok(answer),
            }
        }
    }

    async fn request(
        &self,
        family: Family,
        filters: &[String],
        from: u64,
        found: &mut BTreeMap<String, Raw>,
    ) -> Result<Answer> {
        let stream = family.stream(self.target());
        let what = || format!("read from stream {stream}");
        let inbox = self.client().new_inbox();
        let subscribed = self.client().subscribe(inbox.clone()).await;
        let mut replies = subscribed.map_err(|error| Error::server(what(), error))?;
        let mut body = json!({ "multi_last": filters });
        if from > 0 {
            body["seq"] = from.into();
        }
        let subject = format!("$JS.API.DIRECT.GET.{stream}");
        let sent = self.client().publish_with_reply(subject, inbox, body.to_string().into());
        sent.await.map_err(|error| Error::server(what(), error))?;
        while let Some(message) = replies.next().await {
            match message.status.map(|status| status.as_u16()) {
                None | Some(200) => keep(message, found),
                Some(NO_CONTENT) => {
                    let number = |name| number(message.headers.as_ref(), name);
                    return Ok(Answer::Found {
                        up_to: number("Nats-UpTo-Sequence"),
                        left: number("Nats-Num-Pending"),
                    });
                }
                Some(404) => return Ok(Answer::Nothing),
                Some(TOO_MANY) => return Ok(Answer::TooMany),
                Some(code) if code == StatusCode::NO_RESPONDERS.as_u16() => {
                    return Err(Error::StreamSilent { stream });
                }
                Some(code) => {
                    let said = message.description.unwrap_or_default();
                    return Err(Error::server(what(), format!("{code} {said}")));
                }
            }
        }
        Err(Error::server(what(), "the connection ended"))
    }
}

/// A newer page's message of the same subject wins.
fn keep(message: Message, found: &mut BTreeMap<String, Raw>) {
    let headers = message.headers.unwrap_or_default();
    let Some(subject) = headers.get("Nats-Subject").map(ToString::to_string) else {
        return;
    };
    let raw = Raw {
        subject: subject.clone(),
        sequence: number(Some(&headers), "Nats-Sequence"),
        headers,
        payload: message.payload,
    };
    found.insert(subject, raw);
}

fn number(headers: Option<&HeaderMap>, name: &str) -> u64 {
    headers
        .and_then(|headers| headers.get(name))
        .and_then(|value| value.as_str().parse().ok())
        .unwrap_or(0)
}

/// Reads a message as a fact.
pub(crate) fn fact(raw: &Raw) -> Result<FactMessage, Poison> {
    let subject = fact_subject(raw)?;
    let object = serde_json::from_slice(&raw.payload)
        .map_err(|error| raw.poison(format!("its body is not JSON: {error}")))?;
    let meta = FactMeta::read(Some(&raw.headers));
    Ok(FactMessage { subject, sequence: raw.sequence, meta, object })
}

/// Reads a message's subject as one of a fact.
pub(crate) fn fact_subject(raw: &Raw) -> Result<FactSubject, Poison> {
    FactSubject::parse(&raw.subject)
        .ok_or_else(|| raw.poison("its subject is not one of a fact".to_owned()))
}
