//! The streams: what they are called, what they keep, who makes them. Only the watcher does.

use carrick_core::quiet::Quiet;
use std::{fmt, time::Duration};

use async_nats::jetstream::{
    context::{CreateStreamErrorKind, GetStreamErrorKind},
    stream::{Config, DiscardPolicy, Info, StorageType, Stream},
};
use carrick_core::subject;
use jiff::Timestamp;
use tracing::{info, warn};

use crate::{
    connect::Bus,
    error::{Class, Error, Result},
    settings::BusSettings,
};

const RETRY_AFTER: Duration = Duration::from_secs(1);
const MEGABYTE: i64 = 1 << 20;
/// Claims that nobody looked at; one short message each.
const DEAD_BYTES: i64 = 64 * MEGABYTE;
/// A step that is published again within this time, with the same id, is stored once.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);

/// What a message is: each kind has its own stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// The last state of each object.
    Facts,
    /// What the services did.
    Steps,
    /// Claims that a service failed with too often.
    Dead,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Facts, Self::Steps, Self::Dead];

    /// The token in subjects.
    pub fn token(self) -> &'static str {
        match self {
            Self::Facts => "fact",
            Self::Steps => "step",
            Self::Dead => "dead",
        }
    }

    /// The stream's name.
    pub fn stream(self, target: &str) -> String {
        let suffix = match self {
            Self::Facts => "FACTS",
            Self::Steps => "STEPS",
            Self::Dead => "DEAD",
        };
        format!("CARRICK_{}_{suffix}", subject::encode(target))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// What [`Bus::ensure_streams`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ensured {
    /// Whether the stream of facts was not there before: everything must be published.
    pub facts_are_new: bool,
}

/// One life of the stream of facts. Another one means that everything must be published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incarnation {
    /// When it was made.
    pub created: Timestamp,
    /// The last sequence.
    pub last_sequence: u64,
    /// How many messages it holds; none although there were some means that it was wiped.
    pub messages: u64,
}

impl Incarnation {
    /// Whether the stream that `later` was read from has lost what this one had: it was made anew,
    /// fell back to an older state, or was wiped.
    pub fn lost_by(&self, later: &Self) -> bool {
        later.created != self.created
            || later.last_sequence < self.last_sequence
            || (later.messages == 0 && self.messages > 0)
    }
}

/// What a stream is to be like.
fn config(family: Family, settings: &BusSettings) -> Config {
    let common = Config {
        name: family.stream(&settings.target),
        subjects: vec![subject::filter(&settings.target, family.token(), ">")],
        storage: StorageType::File,
        discard: DiscardPolicy::Old,
        num_replicas: settings.replicas,
        allow_direct: true,
        duplicate_window: DUPLICATE_WINDOW,
        ..Config::default()
    };
    match family {
        Family::Facts => Config {
            description: Some("last state of each object".to_owned()),
            max_messages_per_subject: 1,
            allow_message_ttl: true,
            ..common
        },
        Family::Steps => Config {
            description: Some("what the services did".to_owned()),
            max_age: settings.step_retention,
            max_bytes: i64::try_from(settings.step_bytes).unwrap_or(i64::MAX),
            // The server wants a window no longer than the messages are kept.
            duplicate_window: DUPLICATE_WINDOW.min(settings.step_retention),
            ..common
        },
        Family::Dead => Config {
            description: Some("claims that a service failed with too often".to_owned()),
            max_messages_per_subject: 1,
            max_bytes: DEAD_BYTES,
            ..common
        },
    }
}

impl Bus {
    /// Makes the streams, or brings them to what the settings say. Waits until the server is able
    /// to; a setting that it refuses is an error. For the watcher only.
    pub async fn ensure_streams(&self) -> Result<Ensured> {
        let mut facts_are_new = false;
        for family in Family::ALL {
            let config = config(family, self.settings());
            let quiet = Quiet::default();
            let made = loop {
                match self.ensure(&config).await {
                    Ok(made) => break made,
                    Err(error) if error.class() == Class::Retry => {
                        if quiet.due() {
                            warn!(stream = %config.name, %error, "Waiting to make the stream");
                        }
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                    Err(error) => return Err(error),
                }
            };
            facts_are_new |= made && family == Family::Facts;
        }
        Ok(Ensured { facts_are_new })
    }

    /// Waits until the watcher has made the streams.
    pub async fn wait_for_streams(&self) -> Result<()> {
        for family in Family::ALL {
            self.wait_for_stream(family).await?;
        }
        Ok(())
    }

    /// The present life of the stream of facts.
    pub async fn facts_incarnation(&self) -> Result<Incarnation> {
        let info = self.stream_info(Family::Facts).await?;
        incarnation(&info)
    }

    pub(crate) async fn wait_for_stream(&self, family: Family) -> Result<()> {
        let quiet = Quiet::default();
        loop {
            match self.stream_info(family).await {
                Ok(_) => return Ok(()),
                Err(error) if error.class() == Class::Retry => {
                    if quiet.due() {
                        info!(%error, "Waiting for the stream");
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A handle of a stream; the server is not asked.
    pub(crate) async fn stream(&self, family: Family) -> Result<Stream<()>> {
        let name = family.stream(self.target());
        let stream = self.jetstream().get_stream_no_info(&name).await;
        stream.map_err(|error| Error::server(format!("stream {name}"), error))
    }

    async fn stream_info(&self, family: Family) -> Result<Info> {
        let name = family.stream(self.target());
        self.find(&name).await?.ok_or(Error::StreamMissing { stream: name })
    }

    async fn find(&self, name: &str) -> Result<Option<Info>> {
        let what = || format!("look at stream {name}");
        match self.jetstream().get_stream(name).await {
            Ok(stream) => Ok(Some(stream.cached_info().clone())),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(answer) if answer.error_code().0 == 10_059 => {
                    Ok(None)
                }
                GetStreamErrorKind::JetStream(answer) => Err(Error::api(what(), answer)),
                _ => Err(Error::server(what(), error)),
            },
        }
    }

    /// Whether it was made.
    async fn ensure(&self, config: &Config) -> Result<bool> {
        let name = &config.name;
        let new = self.find(name).await?.is_none();
        let done = self.jetstream().create_or_update_stream(config.clone()).await;
        done.map_err(|error| {
            let what = format!("make stream {name}");
            match error.kind() {
                CreateStreamErrorKind::JetStream(answer) => Error::api(what, answer),
                _ => Error::server(what, error),
            }
        })?;
        if new {
            info!(stream = %name, "Stream made");
        }
        Ok(new)
    }
}

fn incarnation(info: &Info) -> Result<Incarnation> {
    let created = Timestamp::from_nanosecond(info.created.unix_timestamp_nanos());
    Ok(Incarnation {
        created: created.map_err(|error| Error::server("read the stream's age", error))?,
        last_sequence: info.state.last_sequence,
        messages: info.state.messages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> BusSettings {
        BusSettings::new("nats://a", "watcher", "main.eu")
    }

    #[test]
    fn facts_keep_the_last_message_of_each_subject_for_ever() {
        let facts = config(Family::Facts, &settings());
        assert_eq!(facts.name, "CARRICK_main_eu_FACTS");
        assert_eq!(facts.subjects, ["carrick.v1.main_eu.fact.>"]);
        assert_eq!(facts.max_messages_per_subject, 1);
        assert!(facts.allow_direct && facts.allow_message_ttl);
        assert_eq!((facts.max_age, facts.max_bytes), (Duration::ZERO, 0));
        assert_eq!(facts.storage, StorageType::File);
    }

    #[test]
    fn steps_and_the_dead_are_bounded() {
        let mut settings = settings();
        settings.step_retention = Duration::from_mins(1);
        settings.replicas = 3;
        let steps = config(Family::Steps, &settings);
        assert_eq!(steps.max_age, Duration::from_mins(1));
        assert_eq!(steps.duplicate_window, Duration::from_mins(1));
        assert_eq!(steps.max_bytes, 1 << 30);
        assert_eq!(steps.discard, DiscardPolicy::Old);
        assert_eq!(steps.num_replicas, 3);
        let dead = config(Family::Dead, &settings);
        assert_eq!(dead.max_messages_per_subject, 1);
        assert!(dead.max_bytes > 0);
    }

    #[test]
    fn a_lost_stream_shows() {
        let was = Incarnation { created: Timestamp::UNIX_EPOCH, last_sequence: 10, messages: 4 };
        assert!(!was.lost_by(&was));
        assert!(!was.lost_by(&Incarnation { last_sequence: 11, messages: 1, ..was }));
        let anew = Timestamp::from_second(1).unwrap();
        assert!(was.lost_by(&Incarnation { created: anew, last_sequence: 11, ..was }));
        assert!(was.lost_by(&Incarnation { last_sequence: 9, ..was }));
        assert!(was.lost_by(&Incarnation { messages: 0, ..was }));
    }
}
