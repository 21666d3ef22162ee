//! The watcher of one tenant: a task of its own, so that a dead or slow tenant delays nobody.
//!
//! It asks the control plane who it is; once that is accepted, it watches and publishes. When the
//! connection is lost for more than a moment, it begins from the start: what answers next may be
//! another one.

mod binder;
mod crowd;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use carrick_core::{Kind, Side, quiet::Quiet};
use carrick_k8s::{
    Change, Client, ConnectionProblem, Error, ObjectKey, identity,
    problem::{FORBIDDEN, IDENTITY_CHANGED, INVALID_ANSWER, NOT_SERVED, OVERLOADED, SERVER_ERROR},
};
use futures::StreamExt as _;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep},
};

use self::state::State;
use crate::{
    placement::KINDS,
    publisher::{Means, Publisher},
    shared::{Changes, Shared, until},
};

const FIRST_RETRY: Duration = Duration::from_millis(200);
const LONGEST_RETRY: Duration = Duration::from_secs(10);
/// How long a watch may not work before anything comes of it.
const GRACE: Duration = Duration::from_secs(2);
/// How often claims are counted at most, after changes.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Troubles that are about a request, not about the connection.
const OF_REQUESTS: [&str; 5] = [FORBIDDEN, NOT_SERVED, OVERLOADED, SERVER_ERROR, INVALID_ANSWER];

/// What is told about a tenant.
#[derive(Clone, Debug)]
pub(crate) enum Report {
    /// Its control plane has this identity.
    Connected(String),
    /// It can't be used.
    Problem(ConnectionProblem),
    /// All of its objects are on the bus.
    Synced,
    /// It has a binder of its own.
    Binder,
    /// Its claims by phase.
    Claims(BTreeMap<String, u32>),
}

/// Sends reports, marked with whose they are and of which task.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    /// The Tenant's name.
    pub(crate) tenant: String,
    /// Which of the tasks that the Tenant had.
    pub(crate) task: u64,
    /// Where to.
    pub(crate) to: mpsc::UnboundedSender<(String, u64, Report)>,
}

impl Reporter {
    fn tell(&self, report: Report) {
        // Nobody listens any more: the session is over.
        let _ = self.to.send((self.tenant.clone(), self.task, report));
    }
}

/// The watcher of one tenant, with one client.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    client: Client,
    reporter: Reporter,
    /// The identity that is accepted, if one is.
    accepted: watch::Receiver<Option<String>>,
    publisher: Publisher,
}

/// Why watching ended.
enum Left {
    /// The control plane could not be used for a while.
    Lost(ConnectionProblem),
    /// It is not accepted any more.
    NotAccepted,
}

/// One go at watching, from the lists on.
struct Round {
    state: State,
    troubles: BTreeMap<Kind, (Instant, ConnectionProblem)>,
    /// The trouble that was told.
    told: bool,
    synced: bool,
    binder: bool,
    counted: BTreeMap<String, u32>,
    count_at: Option<Instant>,
    /// What was said of what is left out.
    crowded: Quiet,
}

impl Watcher {
    /// A watcher that does nothing before [`run`](Self::run).
    pub(crate) fn new(
        shared: Arc<Shared>,
        means: Means,
        client: Client,
        reporter: Reporter,
        accepted: watch::Receiver<Option<String>>,
    ) -> Self {
        let publisher = Publisher::new(means, Side::Tenant);
        Self { shared, client, reporter, accepted, publisher }
    }

    /// Never ends but with an error of the bus, which needs a new session.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let identity = self.connect().await;
            self.reporter.tell(Report::Connected(identity.clone()));
            let wanted = Some(identity.clone());
            if self.accepted.wait_for(|id| *id == wanted).await.is_err() {
                return Ok(());
            }
            if let Left::Lost(problem) = self.watch(&identity).await? {
                self.reporter.tell(Report::Problem(problem));
            }
        }
    }

    /// Asks the control plane who it is, until it answers.
    async fn connect(&mut self) -> String {
        let mut pause = FIRST_RETRY;
        loop {
            match identity(&self.client).await {
                Ok(identity) => return identity,
                Err(error) => self.reporter.tell(Report::Problem(problem(&error))),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY);
        }
    }

    async fn watch(&mut self, identity: &str) -> anyhow::Result<Left> {
        let tenant = self.reporter.tenant.clone();
        self.publisher.load(&tenant).await?;
        let watches = KINDS.map(|kind| Shared::watch(&self.client, kind, None));
        let mut changes: Changes = watches.into_iter().collect();
        let mut round = Round::new(&self.shared.target.name, &tenant);
        loop {
            tokio::select! {
                decided = self.accepted.changed() => {
                    if decided.is_err() || self.accepted.borrow().as_deref() != Some(identity) {
                        return Ok(Left::NotAccepted);
                    }
                }
                published = self.publisher.next() => published?,
                Some((kind, change)) = changes.next(), if self.publisher.has_room() => {
                    if let Some(left) = self.changed(&mut round, (kind, change), identity).await {
                        return Ok(left);
                    }
                }
                () = until(round.due()) => {
                    if let Some(left) = self.told(&mut round) {
                        return Ok(left);
                    }
                }
            }
            self.report(&mut round);
        }
    }

    async fn changed(
        &mut self,
        round: &mut Round,
        (kind, change): (Kind, Change),
        identity: &str,
    ) -> Option<Left> {
        let acts = match change {
            Change::Apply(object) => round.state.apply(kind, &Arc::new(object)),
            Change::Delete(object) => round.state.delete(kind, &Arc::new(object)),
            Change::Synced(listed) => {
                round.troubles.remove(&kind);
                return self.synced(round, kind, &listed, identity).await;
            }
            Change::Connected => {
                round.troubles.remove(&kind);
                return None;
            }
            Change::NotServed if kind == Kind::Class => {
                round.troubles.remove(&kind);
                round.state.not_served(kind);
                return None;
            }
            Change::NotServed => {
                let message = format!("the server does not serve {}", kind.plural());
                self.trouble(round, kind, ConnectionProblem::new(NOT_SERVED, message));
                return None;
            }
            Change::Problem(problem) => {
                self.trouble(round, kind, problem);
                return None;
            }
        };
        if round.state.take_crowded() && round.crowded.due() {
            let tenant = &self.reporter.tenant;
            tracing::warn!(
                tenant,
                kind = kind.plural(),
                "Too many or too large, some are left out"
            );
        }
        self.publisher.take(acts);
        None
    }

    /// A complete list: what is not in it is gone, if it is the list of the right one.
    async fn synced(
        &mut self,
        round: &mut Round,
        kind: Kind,
        listed: &BTreeSet<ObjectKey>,
        expected: &str,
    ) -> Option<Left> {
        let acts = round.state.synced(kind, listed, self.publisher.live());
        if !acts.is_empty() {
            match identity(&self.client).await {
                Ok(live) if live == expected => {}
                Ok(live) => {
                    let message = format!("it is {live:?}, but was {expected:?}");
                    let problem = ConnectionProblem::new(IDENTITY_CHANGED, message);
                    return Some(Left::Lost(problem));
                }
                Err(error) => return Some(Left::Lost(problem(&error))),
            }
        }
        self.publisher.take(acts);
        None
    }

    fn trouble(&self, round: &mut Round, kind: Kind, problem: ConnectionProblem) {
        let (tenant, origin) = (&self.reporter.tenant, (Side::Tenant, kind));
        self.shared.trouble(tenant, origin, &problem);
        let since = round.troubles.get(&kind).map_or_else(Instant::now, |(since, _)| *since);
        round.troubles.insert(kind, (since, problem));
    }

    /// A moment for which something was put off has come.
    fn told(&self, round: &mut Round) -> Option<Left> {
        let now = Instant::now();
        let lasting = |since: &Instant| *since + GRACE <= now;
        let mut lasting = round.troubles.values().filter(|(since, _)| lasting(since));
        let first = lasting.clone().next().map(|(_, problem)| problem.clone());
        if let Some((_, lost)) = lasting.find(|(_, p)| !OF_REQUESTS.contains(&p.reason)) {
            return Some(Left::Lost(lost.clone()));
        }
        if let Some(problem) = first.filter(|_| !round.told) {
            round.told = true;
            self.reporter.tell(Report::Problem(problem));
        }
        if round.count_at.is_some_and(|at| at <= now) {
            round.count_at = None;
            let claims = round.state.claims();
            if claims != round.counted {
                round.counted.clone_from(&claims);
                self.reporter.tell(Report::Claims(claims));
            }
        }
        None
    }

    /// Tells what is news after a change.
    fn report(&self, round: &mut Round) {
        if round.told && round.troubles.is_empty() {
            round.told = false;
            let accepted = self.accepted.borrow().clone();
            if let Some(identity) = accepted {
                self.reporter.tell(Report::Connected(identity));
            }
        }
        if !round.binder && round.state.has_binder() {
            round.binder = true;
            self.reporter.tell(Report::Binder);
        }
        if !round.synced && round.state.is_complete() && self.publisher.is_idle() {
            round.synced = true;
            round.counted = round.state.claims();
            self.reporter.tell(Report::Claims(round.counted.clone()));
            self.reporter.tell(Report::Synced);
        }
        if round.synced && round.count_at.is_none() && round.state.take_recount() {
            round.count_at = Some(Instant::now() + COUNT_EVERY);
        }
    }
}

impl Round {
    fn new(target: &str, tenant: &str) -> Self {
        Self {
            state: State::new(target, tenant),
            troubles: BTreeMap::new(),
            told: false,
            synced: false,
            binder: false,
            counted: BTreeMap::new(),
            count_at: None,
            crowded: Quiet::default(),
        }
    }

    /// When to look again by itself.
    fn due(&self) -> Option<Instant> {
        let troubles = self
            .troubles
            .values()
            .filter(|(_, problem)| !(self.told && OF_REQUESTS.contains(&problem.reason)));
        let troubles = troubles.map(|(since, _)| *since + GRACE);
        troubles.chain(self.count_at).min()
    }
}

/// What an error says about the control plane.
fn problem(error: &Error) -> ConnectionProblem {
    error
        .problem()
        .cloned()
        .unwrap_or_else(|| ConnectionProblem::new(SERVER_ERROR, error.to_string()))
}
