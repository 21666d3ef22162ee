//! A session: from the streams on, all watchers and what is said about the Tenants, as long as this
//! instance is the active one and the bus does as it should.
//!
//! A new session knows nothing of the one before; what is on the bus tells what is to be published.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Error, Result, anyhow};
use carrick_bus::Incarnation;
use carrick_k8s::TenantEvent;
use futures::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::{broadcast, mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use crate::{
    acceptance::{Candidate, Verdict, decide},
    host,
    placement::{HostTenant, HostView},
    publisher::Means,
    report::{Entry, Next, Written},
    shared::{Gates, Shared, until},
    status::{Link, Seen},
    tenant::{Report, Reporter, Watcher},
};

/// How often the stream of facts is looked at.
const STREAM_EVERY: Duration = Duration::from_secs(10);

/// The Tenants, and the tasks that watch.
struct Session<'a> {
    shared: &'a Arc<Shared>,
    gates: &'a Gates,
    means: Means,
    entries: BTreeMap<String, Entry>,
    tasks: JoinSet<Result<()>>,
    tasks_begun: u64,
    reports: mpsc::UnboundedSender<(String, u64, Report)>,
    view: watch::Sender<Arc<HostView>>,
    /// Tenants whose status is to be looked at.
    unsaid: BTreeSet<String>,
    later: BTreeSet<(Instant, String)>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
}

/// Runs until something is wrong, which it gives back.
pub(crate) async fn run(shared: &Arc<Shared>, gates: &Gates) -> Error {
    match session(shared, gates).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn session(shared: &Arc<Shared>, gates: &Gates) -> Result<std::convert::Infallible> {
    let mut events = shared.pool.subscribe();
    let ensured = shared.bus.ensure_streams().await?;
    let stream = shared.bus.facts_incarnation().await?;
    if ensured.facts_are_new || stream.messages == 0 {
        tracing::info!("The stream of facts is empty: everything is published");
    }
    shared.metrics.session();
    let (reports, mut reported) = mpsc::unbounded_channel();
    let no_tenants = HostView::new(shared.target.clone(), shared.names.clone(), []);
    let mut it = Session {
        shared,
        gates,
        means: Means { stored: Arc::default(), ..shared.means.clone() },
        entries: BTreeMap::new(),
        tasks: JoinSet::new(),
        tasks_begun: 0,
        reports,
        view: watch::Sender::new(Arc::new(no_tenants)),
        unsaid: BTreeSet::new(),
        later: BTreeSet::new(),
        writes: FuturesUnordered::new(),
    };
    it.refresh_all();
    let (complete, mut host_complete) = watch::channel(false);
    let host = host::Watcher::new(shared.clone(), it.means.clone(), it.view.subscribe(), complete);
    it.tasks.spawn(host.run());
    let looks = watch_stream(shared, it.means.stored.clone(), stream);
    tokio::pin!(looks);
    loop {
        it.say();
        tokio::select! {
            event = events.recv() => it.event(event),
            Some((name, task, report)) = reported.recv() => it.report(&name, task, report),
            Some(ended) = it.tasks.join_next() => ended_task(ended)?,
            Some(written) = it.writes.next(), if !it.writes.is_empty() => it.written(written),
            Ok(()) = host_complete.changed() => it.gates.host_objects.open(),
            () = until(it.later.first().map(|(at, _)| *at)) => it.tick(),
            error = &mut looks => return Err(error),
        }
    }
}

/// A task that was ended for a Tenant's sake is no failure; any other is.
fn ended_task(ended: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    match ended {
        Ok(done) => done,
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => Err(anyhow!(error).context("a watcher failed")),
    }
}

/// Looks at the stream of facts now and then; ends when it has lost something.
async fn watch_stream(shared: &Shared, stored: Arc<AtomicUsize>, mut was: Incarnation) -> Error {
    let mut ticks = interval(STREAM_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let least = stored.load(Ordering::SeqCst);
        match shared.bus.facts_incarnation().await {
            Ok(now) if was.lost_by(&now) || now.messages < count(least) => {
                return anyhow!("the stream of facts has lost what was in it");
            }
            Ok(now) => was = now,
            Err(error @ carrick_bus::Error::StreamMissing { .. }) => return error.into(),
            // Whether the bus can be reached shows when something is published.
            Err(error) => tracing::debug!(%error, "The stream of facts can't be looked at"),
        }
    }
}

fn count(facts: usize) -> u64 {
    u64::try_from(facts).unwrap_or(u64::MAX)
}

impl Session<'_> {
    fn event(&mut self, event: Result<TenantEvent, broadcast::error::RecvError>) {
        match event {
            Ok(TenantEvent::Changed(name) | TenantEvent::Removed(name)) => {
                self.refresh(&name);
                self.settle();
            }
            Err(_) => self.refresh_all(),
        }
    }

    fn refresh_all(&mut self) {
        let there = self.shared.pool.list();
        let there = there.iter().map(|handle| handle.name.clone());
        let names: BTreeSet<_> = there.chain(self.entries.keys().cloned()).collect();
        for name in names {
            self.refresh(&name);
        }
        self.settle();
    }

    /// Takes in a Tenant as it is now. Another client, another task.
    fn refresh(&mut self, name: &str) {
        let Some(handle) = self.shared.pool.get(name) else {
            self.entries.remove(name);
            return;
        };
        let known = self.entries.remove(name);
        let known = known.filter(|entry| entry.handle.uid == handle.uid);
        let mut entry = known.unwrap_or_else(|| Entry::new(handle.clone()));
        let same = entry.handle.connection == handle.connection && entry.task.is_some();
        entry.handle = handle;
        if !same {
            self.restart(&mut entry);
        }
        self.unsaid.insert(name.to_owned());
        self.entries.insert(name.to_owned(), entry);
    }

    fn restart(&mut self, entry: &mut Entry) {
        if let Some((task, _)) = entry.task.take() {
            task.abort();
        }
        entry.seen = Seen::default();
        if let Some(problem) = &entry.handle.problem {
            entry.seen.link = Link::Problem(problem.clone());
        }
        let Some(client) = entry.handle.client.clone() else {
            return;
        };
        self.tasks_begun += 1;
        let reporter = Reporter {
            tenant: entry.handle.name.clone(),
            task: self.tasks_begun,
            to: self.reports.clone(),
        };
        entry.accepted = watch::Sender::new(None);
        let accepted = entry.accepted.subscribe();
        let watcher =
            Watcher::new(self.shared.clone(), self.means.clone(), client, reporter, accepted);
        entry.task = Some((self.tasks.spawn(watcher.run()), self.tasks_begun));
    }

    fn report(&mut self, name: &str, task: u64, report: Report) {
        let Some(entry) = self.entries.get_mut(name) else {
            return;
        };
        // What an ended task still said is about another client.
        if entry.task.as_ref().is_none_or(|(_, known)| *known != task) {
            return;
        }
        let matters = matches!(report, Report::Connected(_) | Report::Problem(_));
        entry.take(report);
        self.unsaid.insert(name.to_owned());
        if matters {
            self.settle();
        }
    }

    /// Decides anew who is accepted, and tells all who have to know.
    fn settle(&mut self) {
        let candidates: Vec<_> = self
            .entries
            .values()
            .map(|entry| Candidate {
                tenant: entry.tenant(),
                invalid: &entry.handle.invalid,
                live: entry.seen.identity.as_deref(),
            })
            .collect();
        let mut verdicts = decide(&candidates, &self.shared.target.uid);
        for (name, entry) in &mut self.entries {
            let Some(verdict) = verdicts.remove(name) else {
                continue;
            };
            if entry.verdict != verdict {
                self.unsaid.insert(name.clone());
            }
            let identity = match &verdict {
                Verdict::Accepted(identity) => Some(identity.clone()),
                Verdict::Unknown(_) | Verdict::Refused(..) => None,
            };
            entry.verdict = verdict;
            entry.accepted.send_if_modified(|accepted| {
                let before = std::mem::replace(accepted, identity);
                *accepted != before
            });
        }
        self.show_host();
    }

    /// Tells the host's watcher which Tenants share it.
    fn show_host(&self) {
        let accepted = self
            .entries
            .values()
            .filter(|entry| matches!(entry.verdict, Verdict::Accepted(_) | Verdict::Unknown(true)));
        let tenants = accepted.map(|entry| {
            let rules = &entry.handle.policy.tenant;
            HostTenant {
                name: rules.name.clone(),
                cluster: rules.cluster.clone(),
                classes: rules.classes.clone(),
            }
        });
        let (target, names) = (self.shared.target.clone(), self.shared.names.clone());
        let view = Arc::new(HostView::new(target, names, tenants));
        self.view.send_if_modified(|known| {
            let before = std::mem::replace(known, view);
            *known != before
        });
    }

    /// Writes what is to be said about the Tenants, and shows whether all is known.
    fn say(&mut self) {
        for name in std::mem::take(&mut self.unsaid) {
            let Some(entry) = self.entries.get_mut(&name) else {
                continue;
            };
            match entry.next(self.shared) {
                Next::Rest => {}
                Next::Later(at) => {
                    self.later.insert((at, name));
                }
                Next::Write(write) => self.writes.push(write),
            }
        }
        if self.entries.values().all(Entry::is_settled) {
            self.gates.tenant_objects.open();
        }
    }

    fn written(&mut self, written: Written) {
        let name = written.name.clone();
        if let Some(entry) = self.entries.get_mut(&name) {
            // What the pool has may be newer than what was known when it was written.
            if let Some(handle) = self.shared.pool.get(&name)
                && handle.uid == entry.handle.uid
                && handle.connection == entry.handle.connection
            {
                entry.handle = handle;
            }
            entry.written(written);
            self.unsaid.insert(name);
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        while let Some((at, name)) = self.later.pop_first() {
            if at > now {
                self.later.insert((at, name));
                break;
            }
            self.unsaid.insert(name);
        }
    }
}
