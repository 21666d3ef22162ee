//! Brings to the bus what a ledger holds, many facts at once, each subject in order.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use carrick_bus::{Bus, Class, Error, FactMeta, PublishOutcome};
use carrick_core::{FactSubject, Side};
use futures::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use jiff::Timestamp;
use tokio::{sync::Semaphore, time::sleep};

use crate::{
    ledger::{Body, Ledger, Outgoing, Version},
    metrics::Metrics,
    placement::origin,
    places::Act,
};

/// How many facts may be on their way at once, of all publishers together.
pub(crate) const FLYING: usize = 256;
/// How many may be pending before nothing more is taken from the watches.
const PENDING: usize = 2000;
const ATTEMPTS: u32 = 3;
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How one publish ended.
struct Landed {
    out: Outgoing,
    outcome: Result<Option<PublishOutcome>, Error>,
}

/// What all publishers share.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    /// The bus.
    pub(crate) bus: Bus,
    /// How many facts may be on their way.
    pub(crate) permits: Arc<Semaphore>,
    /// How many live facts the bus must have, at least, by the publishers of one session.
    pub(crate) stored: Arc<AtomicUsize>,
    /// What is counted.
    pub(crate) metrics: Metrics,
}

/// Publishes the facts of one watcher.
pub(crate) struct Publisher {
    means: Means,
    /// How many of those that the bus must have are this one's.
    stored: usize,
    side: Side,
    ledger: Ledger,
    loaded: HashSet<String>,
    flying: FuturesUnordered<BoxFuture<'static, Landed>>,
}

impl Publisher {
    /// Publishes facts of one side.
    pub(crate) fn new(means: Means, side: Side) -> Self {
        Self {
            means,
            stored: 0,
            side,
            ledger: Ledger::default(),
            loaded: HashSet::new(),
            flying: FuturesUnordered::new(),
        }
    }

    /// Reads what the bus has of a tenant, the first time that it is asked for.
    pub(crate) async fn load(&mut self, tenant: &str) -> Result<(), Error> {
        if self.loaded.contains(tenant) {
            return Ok(());
        }
        for entry in self.means.bus.fact_index(tenant).await? {
            if origin(&entry.subject.facet).0 == self.side {
                let version =
                    Version { uid: entry.meta.uid, rv: entry.meta.rv, deleted: entry.meta.deleted };
                self.ledger.load(entry.subject, entry.sequence, version);
            }
        }
        self.loaded.insert(tenant.to_owned());
        self.count(self.ledger.stored());
        Ok(())
    }

    /// Takes in what is to be done; gives back what must be fetched first.
    pub(crate) fn take(&mut self, acts: Vec<Act>) -> Vec<Act> {
        let mut left = Vec::new();
        for act in acts {
            match act {
                Act::Put(subject, object) => self.ledger.put(subject, object),
                Act::Bury(subject, object) => self.ledger.bury(subject, object),
                fetch @ Act::Fetch(..) => left.push(fetch),
            }
        }
        self.count(self.ledger.stored());
        left
    }

    /// What is live on the bus, or will be.
    pub(crate) fn live(&self) -> impl Iterator<Item = &FactSubject> {
        self.ledger.live()
    }

    /// Whether more may be taken from the watches.
    pub(crate) fn has_room(&self) -> bool {
        self.ledger.pending() < PENDING
    }

    /// Whether everything is on the bus.
    pub(crate) fn is_idle(&self) -> bool {
        self.ledger.pending() == 0
    }

    /// Starts what can be started, and waits until one fact is on the bus; for ever if there is
    /// nothing to publish. Nothing is lost if it is given up. An error is one of the bus that
    /// needs a new session.
    pub(crate) async fn next(&mut self) -> Result<(), Error> {
        while self.flying.len() < FLYING {
            let Some(out) = self.ledger.next() else {
                break;
            };
            let means = self.means.clone();
            self.flying.push(publish(means, out).boxed());
        }
        match self.flying.next().await {
            Some(landed) => self.landed(landed),
            None => std::future::pending().await,
        }
    }

    fn landed(&mut self, Landed { out, outcome }: Landed) -> Result<(), Error> {
        let (subject, origin) = (&out.subject, origin(&out.subject.facet));
        match outcome {
            Ok(Some(PublishOutcome::Stored { sequence })) => {
                self.means.metrics.published(origin, out.version.deleted);
                self.ledger.finished(subject, sequence, None);
            }
            Ok(Some(PublishOutcome::Outdated { sequence, rv, deleted })) => {
                let same = (rv, deleted) == (out.version.rv, out.version.deleted);
                let uid = String::new();
                let found = Version { uid, rv, deleted };
                if !same {
                    self.means.metrics.outdated(origin);
                }
                let found = (!same).then_some(found);
                self.ledger.finished(subject, sequence, found);
            }
            Ok(None) => self.ledger.finished(subject, 0, None),
            Err(error) if error.class() == Class::Reject => {
                tracing::warn!(%subject, %error, "A fact can't be published and is left out");
                self.means.metrics.rejected(origin);
                let nothing = Version { uid: String::new(), rv: 0, deleted: true };
                self.ledger.finished(subject, out.expected, Some(nothing));
            }
            Err(error) => return Err(error),
        }
        self.count(self.ledger.stored());
        Ok(())
    }

    fn count(&mut self, stored: usize) {
        // In this order it is never too many.
        self.means.stored.fetch_sub(self.stored, Ordering::SeqCst);
        self.means.stored.fetch_add(stored, Ordering::SeqCst);
        self.stored = stored;
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.count(0);
    }
}

async fn publish(means: Means, out: Outgoing) -> Landed {
    // It is never closed.
    let _permit = means.permits.acquire().await;
    let mut attempt = 1;
    loop {
        match publish_once(&means.bus, &out).await {
            Err(error) if worth_another(&error) && attempt < ATTEMPTS => {
                attempt += 1;
                sleep(RETRY_AFTER).await;
            }
            outcome => return Landed { out, outcome },
        }
    }
}

/// Whether the same may work in a moment. A stream that is gone comes back empty: everything must
/// be published then.
fn worth_another(error: &Error) -> bool {
    error.class() == Class::Retry && !matches!(error, Error::StreamMissing { .. })
}

/// `None`: there is nothing stored that could be said to be gone.
async fn publish_once(bus: &Bus, out: &Outgoing) -> Result<Option<PublishOutcome>, Error> {
    let Outgoing { subject, body, version: Version { uid, rv, deleted }, expected } = out;
    let meta =
        FactMeta { uid: uid.clone(), rv: *rv, observed: Timestamp::now(), deleted: *deleted };
    let outcome = match body {
        Body::Object(object) => bus.publish_fact(subject, object, &meta, *expected).await?,
        Body::AsStored => {
            let found = bus.read(&[subject.to_string()], *expected).await?;
            let Some(fact) = found.facts.into_iter().next() else {
                return Ok(None);
            };
            bus.publish_fact(subject, &fact.object, &meta, fact.sequence).await?
        }
    };
    Ok(Some(outcome))
}
