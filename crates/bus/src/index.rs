//! The facts of a tenant by their headers alone: what the watcher compares a relist with.

use std::{collections::BTreeMap, time::Duration};

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
};
use carrick_core::{FactSubject, subject};
use futures::StreamExt as _;

use crate::{
    connect::{Bus, REQUEST_LIMIT},
    error::{Class, Error, Result},
    facts::FactMeta,
    streams::Family,
};

const BATCH: usize = 1000;
const ATTEMPTS: u32 = 3;
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// The server forgets the consumer this long after the last read.
const FORGET_AFTER: Duration = Duration::from_secs(30);

/// What is stored of one object, without the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The fact's subject.
    pub subject: FactSubject,
    /// Its sequence, to be expected by the next publish.
    pub sequence: u64,
    /// What its headers say.
    pub meta: FactMeta,
}

impl Bus {
    /// All facts of a tenant, tombstones too, without their bodies: complete, or an error. What is
    /// published meanwhile may be in it or not.
    pub async fn fact_index(&self, tenant: &str) -> Result<Vec<IndexEntry>> {
        let mut attempt = 1;
        loop {
            match self.fact_index_once(tenant).await {
                // The connection broke, or messages were dropped on the way.
                Err(error) if error.class() == Class::Retry && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                done => return done,
            }
        }
    }

    async fn fact_index_once(&self, tenant: &str) -> Result<Vec<IndexEntry>> {
        let consumer = self.index_consumer(tenant).await?;
        let mut found = BTreeMap::new();
        // The consumer numbers what it sends: a gap is a message that was lost on the way.
        let mut last = 0;
        loop {
            let before = last;
            let batch = consumer.fetch().max_messages(BATCH).messages().await;
            let mut batch = batch.map_err(|error| failed(tenant, error))?;
            while let Some(message) = next(&mut batch, tenant).await? {
                let info = message.info();
                let info =
                    info.map_err(|error| Error::server("read a consumer's message", error))?;
                if info.consumer_sequence != last + 1 {
                    return Err(missing(tenant, info.consumer_sequence.saturating_sub(last + 1)));
                }
                last = info.consumer_sequence;
                // What is no fact's subject can't be compared with any object.
                if let Some(subject) = FactSubject::parse(&message.subject) {
                    let entry = IndexEntry {
                        subject: subject.clone(),
                        sequence: info.stream_sequence,
                        meta: FactMeta::read(message.headers.as_ref()),
                    };
                    found.insert(subject, entry);
                }
            }
            let info = consumer.get_info().await;
            let info = info.map_err(|error| failed(tenant, error))?;
            if info.delivered.consumer_sequence != last {
                let sent = info.delivered.consumer_sequence;
                return Err(missing(tenant, sent.saturating_sub(last)));
            }
            if last == before && info.num_pending == 0 {
                return Ok(found.into_values().collect());
            }
        }
    }

    async fn index_consumer(&self, tenant: &str) -> Result<PullConsumer> {
        let rest = format!("{}.>", subject::encode(tenant));
        let config = pull::Config {
            description: Some("index of facts".to_owned()),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subject: self.filter(Family::Facts, &rest),
            headers_only: true,
            memory_storage: true,
            inactive_threshold: FORGET_AFTER,
            ..pull::Config::default()
        };
        self.create_consumer(Family::Facts, config).await
    }
}

async fn next(batch: &mut pull::Batch, tenant: &str) -> Result<Option<jetstream::Message>> {
    let next = tokio::time::timeout(REQUEST_LIMIT, batch.next()).await;
    next.map_err(|_| missing(tenant, 1))?.transpose().map_err(|error| failed(tenant, error))
}

fn failed(tenant: &str, error: impl Into<async_nats::Error>) -> Error {
    Error::server(format!("read the index of tenant {tenant}"), error)
}

fn missing(tenant: &str, missing: u64) -> Error {
    Error::Incomplete { what: format!("index of tenant {tenant}"), missing }
}
