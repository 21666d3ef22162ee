//! Listening in, for people: what is published, live or from the streams.

use async_nats::{
    HeaderMap,
    jetstream::consumer::{DeliverPolicy, pull},
};
use bytes::Bytes;
use carrick_proto::v1;
use futures::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use jiff::Timestamp;

use crate::{
    connect::Bus,
    error::{Error, Result},
    read::{FactMessage, Raw, fact},
    streams::Family,
};

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Now. Shows all that is published, also what the stream then refuses.
    Live,
    /// With the last message of each subject; then goes on.
    Last,
    /// With everything that is still stored; then goes on.
    All,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Tapped {
    /// Its subject.
    pub subject: String,
    /// When it was stored; when it came in, if it is seen live.
    pub time: Timestamp,
    /// What it says.
    pub body: TappedBody,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq)]
pub enum TappedBody {
    /// The state of an object.
    Fact(Box<FactMessage>),
    /// What a service did.
    Step(Box<v1::Step>),
    /// A service gave up on a claim.
    Dead(Box<v1::DeadClaim>),
    /// It can't be read, and why.
    Unreadable(String),
}

impl Bus {
    /// Messages of these families; `rest` tells which, as in [`Bus::filter`]. Ends only with the
    /// connection, or after an error.
    pub async fn tap(
        &self,
        families: &[Family],
        rest: &str,
        history: History,
    ) -> Result<impl Stream<Item = Result<Tapped>> + Send + Unpin + use<>> {
        let mut taps: Vec<BoxStream<'static, Result<Tapped>>> = Vec::new();
        for &family in families {
            let filter = self.filter(family, rest);
            taps.push(match history {
                History::Live => self.tap_live(family, filter).await?,
                History::Last => {
                    self.tap_stream(family, filter, DeliverPolicy::LastPerSubject).await?
                }
                History::All => self.tap_stream(family, filter, DeliverPolicy::All).await?,
            });
        }
        Ok(stream::select_all(taps))
    }

    async fn tap_live(
        &self,
        family: Family,
        filter: String,
    ) -> Result<BoxStream<'static, Result<Tapped>>> {
        let what = format!("subscribe to {filter}");
        let messages = self.client().subscribe(filter).await;
        let messages = messages.map_err(|error| Error::server(what, error))?;
        Ok(messages
            .map(move |message| {
                let raw = raw(&message.subject, 0, message.headers, message.payload);
                Ok(tapped(family, raw, Timestamp::now()))
            })
            .boxed())
    }

    async fn tap_stream(
        &self,
        family: Family,
        filter: String,
        deliver_policy: DeliverPolicy,
    ) -> Result<BoxStream<'static, Result<Tapped>>> {
        let name = family.stream(self.target());
        let what = format!("listen to stream {name}");
        let config = pull::OrderedConfig {
            filter_subject: filter,
            deliver_policy,
            ..pull::OrderedConfig::default()
        };
        let consumer = self.jetstream().create_consumer_on_stream(config, &name).await;
        let consumer = consumer.map_err(|error| Error::server(what.clone(), error))?;
        let messages = consumer.messages().await;
        let messages = messages.map_err(|error| Error::server(what.clone(), error))?;
        Ok(messages
            .map(move |message| {
                let message = message.map_err(|error| Error::server(what.clone(), error))?;
                let info = message.info();
                let info = info.map_err(|error| Error::server(what.clone(), error))?;
                let time = Timestamp::from_nanosecond(info.published.unix_timestamp_nanos());
                let sequence = info.stream_sequence;
                let (message, _) = message.split();
                let raw = raw(&message.subject, sequence, message.headers, message.payload);
                Ok(tapped(family, raw, time.unwrap_or_else(|_| Timestamp::now())))
            })
            .boxed())
    }
}

fn raw(subject: &str, sequence: u64, headers: Option<HeaderMap>, payload: Bytes) -> Raw {
    Raw { subject: subject.to_owned(), sequence, headers: headers.unwrap_or_default(), payload }
}

fn tapped(family: Family, raw: Raw, time: Timestamp) -> Tapped {
    let body = match family {
        Family::Facts => {
            fact(&raw).map(|fact| TappedBody::Fact(Box::new(fact))).map_err(|poison| poison.error)
        }
        Family::Steps => serde_json::from_slice(&raw.payload)
            .map(|step| TappedBody::Step(Box::new(step)))
            .map_err(|error| error.to_string()),
        Family::Dead => serde_json::from_slice(&raw.payload)
            .map(|dead| TappedBody::Dead(Box::new(dead)))
            .map_err(|error| error.to_string()),
    };
    Tapped { subject: raw.subject, time, body: body.unwrap_or_else(TappedBody::Unreadable) }
}
