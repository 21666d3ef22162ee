//! Durable consumers: what wakes a service. Shared by its replicas, and made again if lost.

use carrick_core::quiet::Quiet;
use std::{collections::VecDeque, fmt, time::Duration};

use async_nats::jetstream::{
    self, AckKind,
    consumer::{
        AckPolicy, DeliverPolicy, PullConsumer,
        pull::{self, MessagesErrorKind},
    },
    message::Acker,
    stream::ConsumerErrorKind,
};
use carrick_core::{FactSubject, Scope, subject::StepSubject};
use futures::{Stream, StreamExt as _, stream};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::{
    connect::Bus,
    error::{Error, Result},
    facts::FactMeta,
    streams::Family,
};

/// How long a delivered message may go without a sign of life, unless set.
const ACK_WAIT: Duration = Duration::from_secs(15);
/// Those of a tenant that does not answer wait unacked, and may not stop what others are sent.
const MAX_ACK_PENDING: i64 = 1 << 16;
/// What is asked for ahead waits unseen for [`ACK_WAIT`] if this process ends.
const BATCH: usize = 64;
const EXPIRES: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(3);
const RETRY_AFTER: Duration = Duration::from_millis(500);
const MISSED_HEARTBEATS: u32 = 1;
/// Another replica may make a lost consumer again so soon that an open pull goes on with the new
/// one and does not notice.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// What a consumer is to be like.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// Its durable name, shared by the replicas of a service.
    pub name: String,
    /// Facts, from the last of each subject on, or steps, from now on.
    pub family: Family,
    /// Which subjects; no two may overlap.
    pub filters: Vec<String>,
    /// After which time without a sign of life a message is delivered again.
    pub ack_wait: Duration,
}

impl ConsumerSettings {
    /// A consumer that delivers again after 15 s.
    pub fn new(name: impl Into<String>, family: Family, filters: Vec<String>) -> Self {
        Self { name: name.into(), family, filters, ack_wait: ACK_WAIT }
    }

    fn config(&self) -> pull::Config {
        let deliver_policy = match self.family {
            Family::Facts => DeliverPolicy::LastPerSubject,
            Family::Steps | Family::Dead => DeliverPolicy::New,
        };
        // No `backoff`: it would replace `ack_wait`. No `max_deliver`: what ran out of it would
        // stay in the stream and never be looked at again.
        pull::Config {
            durable_name: Some(self.name.clone()),
            deliver_policy,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_ack_pending: MAX_ACK_PENDING,
            filter_subjects: self.filters.clone(),
            headers_only: true,
            ..pull::Config::default()
        }
    }
}

/// What comes out of a consumer.
#[derive(Debug)]
pub enum Delivery {
    /// A message.
    Message(Box<Delivered>),
    /// The consumer was lost and made anew: what was published meanwhile may be missing, and what
    /// is under way will be delivered again. Look at everything, and forget the sequences.
    Reset,
}

/// One message, without its body. It must be acked, or it comes again.
pub struct Delivered {
    /// Its subject.
    pub subject: String,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// How often it was delivered, with this time.
    pub delivered: u64,
    /// What the headers of a fact say; empty for others.
    pub meta: FactMeta,
    acker: Acker,
}

impl fmt::Debug for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivered")
            .field("subject", &self.subject)
            .field("sequence", &self.sequence)
            .field("delivered", &self.delivered)
            .field("meta", &self.meta)
            .finish_non_exhaustive()
    }
}

impl Delivered {
    /// What it is about; `None` if the subject is not one of ours.
    pub fn scope(&self) -> Option<Scope> {
        FactSubject::parse(&self.subject)
            .map(|subject| subject.scope)
            .or_else(|| StepSubject::parse(&self.subject).map(|subject| subject.scope))
    }

    /// It is dealt with.
    pub async fn ack(&self) -> Result<()> {
        self.answer(AckKind::Ack).await
    }

    /// It could not be dealt with: deliver it again after `delay`.
    pub async fn nak(&self, delay: Duration) -> Result<()> {
        self.answer(AckKind::Nak(Some(delay))).await
    }

    /// It is being dealt with: the time for it begins anew.
    pub async fn progress(&self) -> Result<()> {
        self.answer(AckKind::Progress).await
    }

    async fn answer(&self, kind: AckKind) -> Result<()> {
        let sent = self.acker.ack_with(kind).await;
        sent.map_err(|error| Error::server(format!("ack {}", self.subject), error))
    }
}

/// How far behind a consumer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerLag {
    /// Messages that were not delivered yet.
    pub pending: u64,
    /// Messages that were delivered and not acked yet.
    pub ack_pending: u64,
    /// Those of them that were delivered more than once.
    pub redelivered: u64,
}

/// A durable consumer.
pub struct Consumer {
    bus: Bus,
    settings: ConsumerSettings,
    quiet: Quiet,
    /// Tells one consumer of this name from a later one.
    created: time::OffsetDateTime,
    open: Option<pull::Stream>,
    missed: u32,
    check_at: Instant,
    ready: VecDeque<Delivery>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("settings", &self.settings)
            .field("created", &self.created)
            .finish_non_exhaustive()
    }
}

impl Bus {
    /// Makes a durable consumer, or brings it to these settings.
    pub async fn consumer(&self, settings: ConsumerSettings) -> Result<Consumer> {
        let consumer = self.create_consumer(settings.family, settings.config()).await?;
        let created = consumer.cached_info().created;
        Ok(Consumer {
            bus: self.clone(),
            settings,
            quiet: Quiet::default(),
            created,
            open: None,
            missed: 0,
            check_at: Instant::now() + CHECK_EVERY,
            ready: VecDeque::new(),
        })
    }

    /// How far behind a consumer is.
    pub async fn consumer_lag(&self, family: Family, name: &str) -> Result<ConsumerLag> {
        let what = || format!("look at consumer {name}");
        let stream = self.stream(family).await?;
        let info = stream.consumer_info(name).await;
        let info = info.map_err(|error| Error::server(what(), error))?;
        Ok(ConsumerLag {
            pending: info.num_pending,
            ack_pending: info.num_ack_pending as u64,
            redelivered: info.num_redelivered as u64,
        })
    }

    pub(crate) async fn create_consumer(
        &self,
        family: Family,
        config: pull::Config,
    ) -> Result<PullConsumer> {
        let name = config.durable_name.clone().unwrap_or_default();
        let stream = family.stream(self.target());
        let made = self.jetstream().create_consumer_on_stream(config, &stream).await;
        made.map_err(|error| {
            let what = format!("make consumer {name} of stream {stream}");
            match error.kind() {
                ConsumerErrorKind::JetStream(answer) if answer.error_code().0 == 10_059 => {
                    Error::StreamMissing { stream }
                }
                ConsumerErrorKind::JetStream(answer) => Error::api(what, answer),
                _ => Error::server(what, error),
            }
        })
    }
}

impl Consumer {
    /// The messages, without end: whatever happens to the server, the stream or the consumer is
    /// waited for and mended.
    pub fn messages(self) -> impl Stream<Item = Delivery> + Send + Unpin {
        Box::pin(stream::unfold(self, |mut consumer| async move {
            let delivery = consumer.next().await;
            Some((delivery, consumer))
        }))
    }

    async fn next(&mut self) -> Delivery {
        loop {
            if let Some(delivery) = self.ready.pop_front() {
                return delivery;
            }
            let Some(messages) = &mut self.open else {
                self.open().await;
                continue;
            };
            if self.check_at <= Instant::now() {
                self.check().await;
            } else if let Ok(message) = timeout_at(self.check_at, messages.next()).await {
                self.take(message).await;
            }
        }
    }

    /// Whether the consumer is still the same one.
    async fn check(&mut self) {
        self.check_at = Instant::now() + CHECK_EVERY;
        let found = match self.bus.stream(self.settings.family).await {
            Ok(stream) => stream.consumer_info(&self.settings.name).await.ok(),
            Err(_) => None,
        };
        // What can't be asked now is noticed by the missing heartbeat.
        if found.is_some_and(|info| info.created != self.created) {
            self.reopen("another replica made it anew").await;
        }
    }

    async fn take(&mut self, message: Option<Result<jetstream::Message, pull::MessagesError>>) {
        match message {
            Some(Ok(message)) => {
                self.missed = 0;
                let delivered = delivered(message).map(Box::new);
                self.ready.extend(delivered.map(Delivery::Message));
            }
            // One may be late; the pull goes on by itself.
            Some(Err(error))
                if error.kind() == MessagesErrorKind::MissingHeartbeat
                    && self.missed < MISSED_HEARTBEATS =>
            {
                self.missed += 1;
            }
            Some(Err(error)) => self.reopen(&error.to_string()).await,
            None => self.reopen("it ended").await,
        }
    }

    async fn reopen(&mut self, error: &str) {
        self.open = None;
        self.missed = 0;
        if self.quiet.due() {
            let name = &self.settings.name;
            warn!(consumer = %name, error, "Consumer lost, opening it again");
        }
        // The server deletes a consumer's state a moment after the consumer. One that is made in
        // between inherits it, and takes for delivered what nobody here has seen.
        tokio::time::sleep(RETRY_AFTER).await;
    }

    /// Opens the consumer, and makes it if it is gone.
    async fn open(&mut self) {
        let opened = self.try_open().await;
        match opened {
            Ok((messages, created)) => {
                if created != self.created {
                    self.created = created;
                    self.ready.push_back(Delivery::Reset);
                    warn!(consumer = %self.settings.name, "Consumer was made anew");
                } else if self.quiet.over() {
                    info!(consumer = %self.settings.name, "Consumer is open again");
                }
                self.quiet.over();
                self.open = Some(messages);
            }
            Err(error) => {
                if self.quiet.due() {
                    warn!(consumer = %self.settings.name, %error, "Waiting for the consumer");
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }

    async fn try_open(&self) -> Result<(pull::Stream, time::OffsetDateTime)> {
        let ConsumerSettings { name, family, .. } = &self.settings;
        let config = self.settings.config();
        let consumer = self.bus.create_consumer(*family, config).await?;
        let messages = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .expires(EXPIRES)
            .heartbeat(HEARTBEAT)
            .messages()
            .await;
        let messages =
            messages.map_err(|error| Error::server(format!("open consumer {name}"), error))?;
        Ok((messages, consumer.cached_info().created))
    }
}

/// `None` for what is no message of a consumer.
fn delivered(message: jetstream::Message) -> Option<Delivered> {
    let info = message.info().ok()?;
    let (sequence, delivered) = (info.stream_sequence, info.delivered);
    let (message, acker) = message.split();
    Some(Delivered {
        subject: message.subject.to_string(),
        sequence,
        delivered: u64::try_from(delivered).unwrap_or(1),
        meta: FactMeta::read(message.headers.as_ref()),
        acker,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_begin_with_what_there_is_and_steps_with_what_comes() {
        let filters = vec!["carrick.v1.main.fact.*.*.*.host-claim".to_owned()];
        let facts = ConsumerSettings::new("upsyncer", Family::Facts, filters.clone()).config();
        assert_eq!(facts.deliver_policy, DeliverPolicy::LastPerSubject);
        assert_eq!(facts.filter_subjects, filters);
        assert_eq!(facts.ack_policy, AckPolicy::Explicit);
        assert!(facts.headers_only && facts.backoff.is_empty());
        assert_eq!((facts.max_deliver, facts.ack_wait), (0, ACK_WAIT));
        let steps = ConsumerSettings::new("status-syncer", Family::Steps, Vec::new()).config();
        assert_eq!(steps.deliver_policy, DeliverPolicy::New);
    }
}
