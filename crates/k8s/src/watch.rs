//! A watch of one resource that outlives broken connections, restarts and compactions.
//!
//! Its own loop over list and watch calls, rather than kube's `watcher`: that one does not tell
//! when a resumed watch works again, does not bound its calls, starts its back-off anew at every
//! list it begins, and stays with an expired version that is refused when a watch starts.
//!
//! What a complete list holds is told as [`Change::Synced`], so that the owner finds what has gone
//! meanwhile. Lists read what is agreed on (never a cache that may be older), because an object
//! that an old list does not have yet would look deleted.

use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    time::Duration,
};

use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use kube::{
    api::{ListParams, WatchEvent, WatchParams},
    core::request,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use crate::{
    client::{Client, timed_out},
    problem::{ConnectionProblem, INVALID_ANSWER},
    resource::Resource,
};

const PAGE: u32 = 500;
/// How long the server may take to end a watch in time, before the connection counts as dead.
const IDLE_MARGIN: Duration = Duration::from_secs(5);
/// A watch that ends sooner, and told nothing, has failed.
const SHORT: Duration = Duration::from_secs(1);

/// How to watch.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Label selector.
    pub labels: Option<String>,
    /// After how long the server ends a watch, and it is resumed. A dead connection is noticed 5 s
    /// later. At most 290 s, in whole seconds.
    pub timeout: Duration,
    /// How long a page of a list may take.
    pub list_timeout: Duration,
    /// First pause after a failure; doubles with each.
    pub first_retry: Duration,
    /// Longest pause after a failure.
    pub longest_retry: Duration,
    /// Pause after the server said that it does not serve the resource.
    pub not_served_retry: Duration,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            labels: None,
            timeout: Duration::from_mins(1),
            list_timeout: Duration::from_secs(30),
            first_retry: Duration::from_millis(200),
            longest_retry: Duration::from_secs(5),
            not_served_retry: Duration::from_secs(30),
        }
    }
}

/// Names one object, and tells it from others that had or will have its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace; empty for a cluster-scoped one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl ObjectKey {
    /// The key of an object; `None` if it has no name or uid.
    pub fn of(object: &Value) -> Option<Self> {
        let text = |path| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            namespace: text("/metadata/namespace").unwrap_or_default(),
            name: text("/metadata/name")?,
            uid: text("/metadata/uid")?,
        })
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object is there and may have changed: listed, made or modified. It is whole, with its
    /// managed fields, apiVersion and kind. After a failure it may be told again.
    Apply(Value),
    /// The object has been deleted; its last state.
    Delete(Value),
    /// A list is complete: just these objects were there at its time; all of them have been told
    /// as [`Change::Apply`]. Whatever was there before and is not among them has been deleted.
    Synced(BTreeSet<ObjectKey>),
    /// The watch goes on without a new list, after [`Change::Problem`].
    Connected,
    /// An attempt failed; the next one is made after a pause.
    Problem(ConnectionProblem),
    /// The server answers, but does not serve this resource; asked again now and then.
    NotServed,
}

/// Watches a resource. The stream never ends. It works only while it is polled.
pub fn watch(
    client: &Client,
    resource: impl Into<Resource>,
    options: WatchOptions,
) -> BoxStream<'static, Change> {
    let watch = Watch {
        client: client.clone(),
        resource: resource.into(),
        retry: options.first_retry,
        options,
        state: State::default(),
        ready: VecDeque::new(),
        pause: None,
        troubled: false,
    };
    // In an unfold, a poll that is given up loses nothing: the call goes on with the next poll.
    stream::unfold(watch, async |mut watch| Some((watch.next().await, watch))).boxed()
}

type Events = BoxStream<'static, kube::Result<WatchEvent<Value>>>;

enum State {
    /// A list is to be read from this page on; these are on the pages before.
    List { page: Option<String>, keys: BTreeSet<ObjectKey> },
    /// A watch is to be started from this version.
    Resume { version: String },
    /// A watch runs.
    Watching { version: String, events: Events, since: Instant },
}

impl Default for State {
    fn default() -> Self {
        Self::List { page: None, keys: BTreeSet::new() }
    }
}

struct Watch {
    client: Client,
    resource: Resource,
    options: WatchOptions,
    state: State,
    ready: VecDeque<Change>,
    pause: Option<Instant>,
    retry: Duration,
    troubled: bool,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

impl Watch {
    async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.ready.pop_front() {
                return change;
            }
            if let Some(until) = self.pause.take() {
                sleep_until(until).await;
            }
            self.state = match mem::take(&mut self.state) {
                State::List { page, keys } => self.list(page, keys).await,
                State::Resume { version } => self.resume(version).await,
                State::Watching { version, events, since } => {
                    self.observe(version, events, since).await
                }
            };
        }
    }

    async fn list(&mut self, page: Option<String>, mut keys: BTreeSet<ObjectKey>) -> State {
        let page = match self.page(page).await {
            Ok(page) => page,
            Err(failure) => return self.failed(&failure, State::default()),
        };
        for mut object in page.items.into_iter().flatten() {
            let Some(key) = ObjectKey::of(&object) else {
                continue;
            };
            self.complete(&mut object);
            keys.insert(key);
            self.ready.push_back(Change::Apply(object));
        }
        if !page.metadata.next.is_empty() {
            return State::List { page: Some(page.metadata.next), keys };
        }
        if page.metadata.resource_version.is_empty() {
            let problem = ConnectionProblem::new(INVALID_ANSWER, "a list without resourceVersion");
            return self.failed(&Failure::Problem(problem), State::default());
        }
        self.ready.push_back(Change::Synced(keys));
        self.troubled = false;
        State::Resume { version: page.metadata.resource_version }
    }

    async fn page(&mut self, page: Option<String>) -> Result<Page, Failure> {
        let params = ListParams {
            label_selector: self.options.labels.clone(),
            limit: Some(PAGE),
            continue_token: page,
            ..ListParams::default()
        };
        let request = request::Request::new(self.resource.path()).list(&params);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let text =
            within(self.options.list_timeout, self.client.kube().request_text(request)).await?;
        Ok(serde_json::from_str(&text).map_err(kube::Error::SerdeError)?)
    }

    async fn resume(&mut self, version: String) -> State {
        match self.start(&version).await {
            Ok(events) => {
                if mem::take(&mut self.troubled) {
                    self.ready.push_back(Change::Connected);
                }
                State::Watching { version, events, since: Instant::now() }
            }
            Err(failure) => self.failed(&failure, State::Resume { version }),
        }
    }

    async fn start(&mut self, version: &str) -> Result<Events, Failure> {
        let params = WatchParams {
            label_selector: self.options.labels.clone(),
            timeout: Some(u32::try_from(self.options.timeout.as_secs()).unwrap_or(u32::MAX)),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = request::Request::new(self.resource.path()).watch(&params, version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        let events = self.client.kube().request_events::<Value>(request);
        Ok(within(self.idle_limit(), events).await?.boxed())
    }

    async fn observe(&mut self, version: String, mut events: Events, since: Instant) -> State {
        let Ok(event) = timeout(self.idle_limit(), events.next()).await else {
            let failure = Failure::Problem(timed_out(self.idle_limit()));
            return self.failed(&failure, State::Resume { version });
        };
        let (object, deleted) = match event {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => (object, false),
            Some(Ok(WatchEvent::Deleted(object))) => (object, true),
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                self.retry = self.options.first_retry;
                return State::Watching { version: mark.metadata.resource_version, events, since };
            }
            Some(Ok(WatchEvent::Error(status))) => {
                let failure = Failure::from(kube::Error::Api(status));
                return self.failed(&failure, State::Resume { version });
            }
            Some(Err(error)) => {
                return self.failed(&Failure::from(error), State::Resume { version });
            }
            None if since.elapsed() < SHORT => {
                self.pause();
                return State::Resume { version };
            }
            None => {
                self.retry = self.options.first_retry;
                return State::Resume { version };
            }
        };
        self.retry = self.options.first_retry;
        self.told(object, deleted, version, events, since)
    }

    fn told(
        &mut self,
        mut object: Value,
        deleted: bool,
        version: String,
        events: Events,
        since: Instant,
    ) -> State {
        let seen = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let version = seen.map_or(version, str::to_owned);
        if ObjectKey::of(&object).is_some() {
            self.complete(&mut object);
            self.ready.push_back(if deleted {
                Change::Delete(object)
            } else {
                Change::Apply(object)
            });
        }
        // From a moment ago, so that an end right after this is not taken for a failure.
        let since = since.min(Instant::now().checked_sub(SHORT).unwrap_or(since));
        State::Watching { version, events, since }
    }

    fn failed(&mut self, failure: &Failure, next: State) -> State {
        self.pause();
        match failure {
            Failure::Expired => return State::default(),
            Failure::NotServed => {
                self.pause = Some(Instant::now() + self.options.not_served_retry);
                self.troubled = true;
                self.ready.push_back(Change::NotServed);
                return State::default();
            }
            Failure::Problem(problem) => {
                self.troubled = true;
                self.ready.push_back(Change::Problem(problem.clone()));
                // What could not be understood may have been a change.
                if problem.reason == INVALID_ANSWER {
                    return State::default();
                }
            }
        }
        next
    }

    fn pause(&mut self) {
        self.pause = Some(Instant::now() + self.retry);
        self.retry = (self.retry * 2).min(self.options.longest_retry);
    }

    fn idle_limit(&self) -> Duration {
        self.options.timeout + IDLE_MARGIN
    }

    /// Objects in a list do not say what they are.
    fn complete(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else {
            return;
        };
        for (field, value) in
            [("apiVersion", self.resource.api_version()), ("kind", self.resource.kind())]
        {
            fields.entry(field).or_insert_with(|| value.into());
        }
    }
}

/// Why an attempt failed.
enum Failure {
    /// What happened since that version is not known any more: list anew.
    Expired,
    NotServed,
    Problem(ConnectionProblem),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 410 => Self::Expired,
            kube::Error::Api(status) if status.code == 404 => Self::NotServed,
            error => Self::Problem(ConnectionProblem::of(error)),
        }
    }
}

async fn within<T>(
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    match timeout(limit, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Failure::Problem(timed_out(limit))),
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
