//! The watcher of the host: namespaces first, for they say whose the claims and volumes are.
//!
//! When other Tenants share the host, it lists all of it anew.

mod aside;
mod state;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use carrick_core::{Kind, ObjectRef, Side};
use carrick_k8s::{
    Change, Client, ConnectionProblem, ObjectKey, get, identity, problem::NOT_SERVED,
};
use futures::{StreamExt as _, stream};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use self::state::State;
use crate::{
    placement::{HostView, KINDS},
    places::Act,
    publisher::{Means, Publisher},
    shared::{Changes, Shared},
};

/// How long further changes of the Tenants are waited for.
const SETTLE: Duration = Duration::from_millis(200);
/// Objects that are fetched at the same time.
const FETCHES: usize = 8;
const FETCH_AGAIN: Duration = Duration::from_secs(1);

/// The watcher of the host.
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    view: watch::Receiver<Arc<HostView>>,
    /// Whether all that matters of the host is on the bus.
    complete: watch::Sender<bool>,
    publisher: Publisher,
}

/// One go at watching, from the lists on.
struct Round {
    state: State,
    listed: BTreeSet<Kind>,
    changes: Changes,
    /// When the Tenants changed so that this round is over soon.
    over: Option<Instant>,
}

impl Watcher {
    /// A watcher that does nothing before [`run`](Self::run).
    pub(crate) fn new(
        shared: Arc<Shared>,
        means: Means,
        view: watch::Receiver<Arc<HostView>>,
        complete: watch::Sender<bool>,
    ) -> Self {
        Self { shared, view, complete, publisher: Publisher::new(means, Side::Host) }
    }

    /// Never ends but with an error that needs a new session.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let view = self.view.borrow_and_update().clone();
            for tenant in view.tenants() {
                self.publisher.load(tenant).await?;
            }
            if view.tenants().next().is_some() {
                self.watch(view).await?;
            } else {
                // Nothing of the host is anybody's.
                self.complete.send_if_modified(|known| !std::mem::replace(known, true));
                self.view.changed().await?;
                sleep(SETTLE).await;
            }
        }
    }

    /// Watches until the Tenants have changed.
    async fn watch(&mut self, view: Arc<HostView>) -> anyhow::Result<()> {
        let namespaces = Shared::watch(&self.shared.host, Kind::Namespace, Some(view.selector()));
        let mut round = Round {
            state: State::new(view),
            listed: BTreeSet::new(),
            changes: Changes::new(),
            over: None,
        };
        round.changes.push(namespaces);
        loop {
            tokio::select! {
                changed = self.view.changed(), if round.over.is_none() => {
                    changed?;
                    round.over = Some(Instant::now() + SETTLE);
                }
                () = crate::shared::until(round.over) => return Ok(()),
                published = self.publisher.next() => published?,
                Some((kind, change)) = round.changes.next(), if self.publisher.has_room() => {
                    self.changed(&mut round, kind, change).await?;
                }
            }
            if round.listed.len() == KINDS.len() && self.publisher.is_idle() {
                self.complete.send_if_modified(|known| !std::mem::replace(known, true));
            }
        }
    }

    async fn changed(
        &mut self,
        round: &mut Round,
        kind: Kind,
        change: Change,
    ) -> anyhow::Result<()> {
        let acts = match change {
            Change::Apply(object) => round.state.apply(kind, &Arc::new(object)),
            Change::Delete(object) => round.state.delete(kind, &Arc::new(object)),
            Change::Synced(listed) => self.synced(round, kind, &listed).await?,
            Change::Connected => return Ok(()),
            Change::NotServed => {
                let message = format!("the host does not serve {}", kind.plural());
                self.trouble(kind, &ConnectionProblem::new(NOT_SERVED, message));
                return Ok(());
            }
            Change::Problem(problem) => {
                self.trouble(kind, &problem);
                return Ok(());
            }
        };
        let fetches = self.publisher.take(acts);
        self.fetch(round, fetches).await;
        Ok(())
    }

    /// A complete list: what is not in it is gone, if this is still the same host.
    async fn synced(
        &mut self,
        round: &mut Round,
        kind: Kind,
        listed: &BTreeSet<ObjectKey>,
    ) -> anyhow::Result<Vec<Act>> {
        let acts = round.state.synced(kind, listed, self.publisher.live());
        if !acts.is_empty() {
            let live = identity(&self.shared.host).await?;
            anyhow::ensure!(
                live == self.shared.target.uid,
                "the host is another one than at the start: {live:?}"
            );
        }
        if round.listed.insert(kind) && kind == Kind::Namespace {
            for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Namespace) {
                let changes = Shared::watch(&self.shared.host, kind, None);
                round.changes.push(changes);
            }
        }
        Ok(acts)
    }

    /// Reads objects live that only their names are known of, and files them.
    async fn fetch(&mut self, round: &mut Round, mut wanted: Vec<Act>) {
        while !wanted.is_empty() {
            let host = &self.shared.host;
            let names = wanted.into_iter().filter_map(|act| match act {
                Act::Fetch(kind, namespace, name) => Some((kind, namespace, name)),
                _ => None,
            });
            let reads = names.map(|(kind, namespace, name)| async move {
                let object = read(host, kind, &namespace, &name).await;
                (kind, namespace, name, object)
            });
            let found: Vec<_> = stream::iter(reads).buffered(FETCHES).collect().await;
            let mut acts = Vec::new();
            for (kind, namespace, name, object) in found {
                acts.extend(match object {
                    Some(object) => round.state.apply(kind, &Arc::new(object)),
                    None => round.state.not_there(kind, &namespace, &name),
                });
            }
            wanted = self.publisher.take(acts);
        }
    }

    fn trouble(&self, kind: Kind, problem: &ConnectionProblem) {
        self.shared.trouble("host", (Side::Host, kind), problem);
    }
}

/// An object as it is now; `None` if it plainly is not there. Waits until the host answers.
async fn read(host: &Client, kind: Kind, namespace: &str, name: &str) -> Option<serde_json::Value> {
    let object = if namespace.is_empty() {
        ObjectRef::cluster(Side::Host, kind, name)
    } else {
        ObjectRef::namespaced(Side::Host, kind, namespace, name)
    };
    loop {
        match get(host, &object).await {
            Ok(found) => return found,
            // What can't be read is not gone.
            Err(error) => {
                tracing::debug!(%error, "An object of the host can't be read and is read again");
                sleep(FETCH_AGAIN).await;
            }
        }
    }
}
