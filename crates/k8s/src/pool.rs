//! All Tenants of the host, each with its policy and its client, always as they are now.
//!
//! Follows the Tenants and the Secrets they name: a changed one is taken up without a restart. It
//! does not talk to any tenant; whether one is who it was is for the watcher to find out, which
//! says so in the condition `Accepted`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use carrick_core::quiet::Quiet;
use carrick_core::{Policy, SyncTarget, names::Domain, policy::TenantRules};
use futures::{
    StreamExt as _,
    stream::{BoxStream, select_all},
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use tokio::sync::{broadcast, watch};

use crate::{
    client::{Client, ClientOptions, identity},
    error::Error,
    problem::{ConnectionProblem, IDENTITY_CHANGED, KUBECONFIG_INVALID},
    resource::Resource,
    secrets::{Found, Secrets},
    tenant::{ACCEPTED, Tenant, rules},
    watch::{Change, ObjectKey, WatchOptions, watch},
};

/// Pause after the host said that it does not know what a Tenant is.
const NOT_SERVED_RETRY: Duration = Duration::from_millis(500);
/// How many events a subscriber may be behind.
const EVENTS: usize = 1024;

/// What the pool is for.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// This installation.
    pub target: SyncTarget,
    /// Domain that names are spelled with.
    pub domain: Domain,
    /// How to talk to tenants; `None`: not at all, and no Secret is read.
    pub clients: Option<ClientOptions>,
    /// How to watch the Tenants and Secrets.
    pub watch: WatchOptions,
}

/// One Tenant as it is now.
#[derive(Clone)]
pub struct TenantHandle {
    /// Its name.
    pub name: String,
    /// Its uid: a Tenant made again under the same name is another one.
    pub uid: String,
    /// Generation of its spec.
    pub generation: i64,
    /// What it may do. Of an invalid Tenant: nothing.
    pub policy: Arc<Policy>,
    /// All that is wrong with its spec.
    pub invalid: Vec<String>,
    /// Whether the services may act on it: valid, and accepted by the watcher.
    pub accepted: bool,
    /// Its control plane, if there are credentials for it.
    pub client: Option<Client>,
    /// Why there is no client, if there should be one.
    pub problem: Option<ConnectionProblem>,
    /// The object itself.
    pub tenant: Arc<Tenant>,
    /// Counts the clients that it had: another number, another client.
    pub connection: u64,
}

impl fmt::Debug for TenantHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantHandle")
            .field("name", &self.name)
            .field("generation", &self.generation)
            .field("accepted", &self.accepted)
            .field("client", &self.client)
            .field("problem", &self.problem)
            .finish_non_exhaustive()
    }
}

impl TenantHandle {
    /// Asks the control plane whether it is the one that the Tenant's status names: right after a
    /// Secret has changed, `accepted` may still be about the one before. To be asked before what
    /// cannot be undone.
    pub async fn verify(&self) -> Result<(), Error> {
        let object = format!("the control plane of Tenant {}", self.name);
        let Some(client) = &self.client else {
            let known = self.problem.clone();
            let problem = known.unwrap_or_else(|| {
                ConnectionProblem::new(KUBECONFIG_INVALID, "there are no credentials for it")
            });
            return Err(Error::unavailable(object, problem));
        };
        let live = identity(client).await?;
        let status = self.tenant.status.as_ref();
        let recorded = status.and_then(|status| status.identity.as_deref()).unwrap_or_default();
        if live == recorded {
            return Ok(());
        }
        let message = format!("it is {live:?}, but was first seen as {recorded:?}");
        Err(Error::unavailable(object, ConnectionProblem::new(IDENTITY_CHANGED, message)))
    }

    /// Whether nothing has changed that matters to a service; the status counts do not.
    fn same(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.policy == other.policy
            && self.invalid == other.invalid
            && self.accepted == other.accepted
            && self.problem == other.problem
            && self.connection == other.connection
    }
}

/// Something about a Tenant has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantEvent {
    /// It is there, and new or different: see [`Pool::get`].
    Changed(String),
    /// It is gone.
    Removed(String),
}

/// All Tenants of the host.
#[derive(Debug)]
pub struct Pool {
    host: Client,
    options: PoolOptions,
    handles: RwLock<BTreeMap<String, Arc<TenantHandle>>>,
    events: broadcast::Sender<TenantEvent>,
    ready: watch::Sender<bool>,
    quiet: Quiet,
}

/// What has been read, in the hands of [`Pool::run`].
#[derive(Default)]
struct Known {
    tenants: BTreeMap<String, Arc<Tenant>>,
    listed: bool,
    secrets: Secrets,
    connections: BTreeMap<String, Connection>,
    connected: u64,
}

/// What came of a kubeconfig.
struct Connection {
    kubeconfig: String,
    client: Result<Client, ConnectionProblem>,
    number: u64,
}

impl Known {
    /// Takes in a change; the names of the Tenants to look at.
    fn secret_changed(&mut self, namespace: &str, change: Change) -> Vec<String> {
        let keys = self.secrets.changed(namespace, change);
        let concerned = |tenant: &Tenant| keys.contains(&tenant.spec.kubeconfig.secret_ref);
        let tenants = self.tenants.iter().filter(|(_, tenant)| concerned(tenant));
        tenants.map(|(name, _)| name.clone()).collect()
    }

    fn is_complete(&self) -> bool {
        self.listed && self.secrets.is_complete()
    }

    /// The connection that a Tenant's Secret makes possible, the same one while that is the same.
    /// `None` while the Secret is not known.
    async fn connection(
        &mut self,
        tenant: &Tenant,
        options: &ClientOptions,
    ) -> Option<(Result<Client, ConnectionProblem>, u64)> {
        let name = tenant.name_any();
        let text = match self.secrets.find(&tenant.spec.kubeconfig.secret_ref) {
            Found::NotYet => return None,
            Found::Problem(problem) => {
                self.connections.remove(&name);
                return Some((Err(problem), 0));
            }
            Found::Text(text) => text,
        };
        if self.connections.get(&name).is_none_or(|known| known.kubeconfig != text) {
            let client = Client::from_kubeconfig(text, options).await.map_err(|error| {
                let message = error.to_string();
                let problem = error.problem().cloned();
                problem.unwrap_or_else(|| ConnectionProblem::new(KUBECONFIG_INVALID, message))
            });
            self.connected += 1;
            let number = self.connected;
            let connection = Connection { kubeconfig: text.to_owned(), client, number };
            self.connections.insert(name.clone(), connection);
        }
        self.connections.get(&name).map(|known| (known.client.clone(), known.number))
    }
}

impl Pool {
    /// A pool that knows nothing before [`run`](Self::run) runs.
    pub fn new(host: Client, options: PoolOptions) -> Self {
        Self {
            host,
            options,
            handles: RwLock::default(),
            events: broadcast::Sender::new(EVENTS),
            ready: watch::Sender::new(false),
            quiet: Quiet::default(),
        }
    }

    /// Follows the Tenants. Never ends; what it needs, it waits for.
    pub async fn run(&self) {
        // In a new installation the watcher is just about to install their definition.
        let options =
            WatchOptions { not_served_retry: NOT_SERVED_RETRY, ..self.options.watch.clone() };
        let mut tenants = watch(&self.host, Resource::of::<Tenant>(), options);
        let mut known = Known::default();
        let mut streams: BTreeMap<String, BoxStream<'static, Change>> = BTreeMap::new();
        loop {
            let named = streams
                .iter_mut()
                .map(|(namespace, stream)| stream.map(move |change| (namespace.clone(), change)));
            let mut secrets = select_all(named);
            let changed = tokio::select! {
                Some(change) = tenants.next() => self.tenant_changed(&mut known, change),
                Some((namespace, change)) = secrets.next() => known.secret_changed(&namespace, change),
            };
            drop(secrets);
            if self.options.clients.is_some() {
                self.follow_secrets(&mut known, &mut streams);
            }
            for name in changed {
                self.update(&mut known, &name).await;
            }
            self.ready.send_if_modified(|ready| {
                let before = std::mem::replace(ready, *ready || known.is_complete());
                before != *ready
            });
        }
    }

    /// Waits until every Tenant that there was at the start is known.
    pub async fn ready(&self) {
        // It cannot fail: the sender is here.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Whether every Tenant that there was at the start is known.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Tells from now on what changes. Who is told that it missed some looks at them all.
    pub fn subscribe(&self) -> broadcast::Receiver<TenantEvent> {
        self.events.subscribe()
    }

    /// A Tenant as it is now.
    pub fn get(&self, name: &str) -> Option<Arc<TenantHandle>> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All Tenants as they are now.
    pub fn list(&self) -> Vec<Arc<TenantHandle>> {
        self.handles.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Takes in a change; the names of the Tenants to look at.
    fn tenant_changed(&self, known: &mut Known, change: Change) -> Vec<String> {
        match change {
            Change::Apply(object) => match serde_json::from_value::<Tenant>(object) {
                Ok(tenant) => {
                    let name = tenant.name_any();
                    known.tenants.insert(name.clone(), Arc::new(tenant));
                    vec![name]
                }
                // The definition's schema keeps them out.
                Err(error) => {
                    tracing::warn!(%error, "A Tenant is not readable and is left as it was");
                    Vec::new()
                }
            },
            Change::Delete(object) => {
                let Some(key) = ObjectKey::of(&object) else {
                    return Vec::new();
                };
                self.removed(known, &[key.name]);
                Vec::new()
            }
            Change::Synced(keys) => {
                known.listed = true;
                let there: BTreeSet<_> = keys.into_iter().map(|key| key.name).collect();
                let gone: Vec<_> =
                    known.tenants.keys().filter(|name| !there.contains(*name)).cloned().collect();
                self.removed(known, &gone);
                Vec::new()
            }
            Change::Connected => {
                if self.quiet.over() {
                    tracing::info!("The Tenants are watched again");
                }
                Vec::new()
            }
            Change::Problem(problem) => {
                if self.quiet.due() {
                    tracing::warn!(%problem, "The Tenants cannot be watched");
                }
                Vec::new()
            }
            Change::NotServed => {
                if self.quiet.due() {
                    tracing::warn!("The host does not serve Tenants: install their definition");
                }
                Vec::new()
            }
        }
    }

    fn removed(&self, known: &mut Known, names: &[String]) {
        for name in names {
            known.tenants.remove(name);
            known.connections.remove(name);
            let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
            if handles.remove(name).is_some() {
                let _ = self.events.send(TenantEvent::Removed(name.clone()));
            }
        }
    }

    /// Has one watch in each namespace that a Tenant names a Secret in. Another Secret there needs
    /// a new one, for what is not named is not kept.
    fn follow_secrets(
        &self,
        known: &mut Known,
        streams: &mut BTreeMap<String, BoxStream<'static, Change>>,
    ) {
        let named = known.tenants.values().map(|tenant| &tenant.spec.kubeconfig.secret_ref);
        let renewed = known.secrets.name(named.cloned().collect());
        streams.retain(|namespace, _| known.secrets.is_named(namespace));
        for namespace in renewed {
            let secrets = Resource::of::<Secret>().in_namespace(&namespace);
            let stream = watch(&self.host, secrets, self.options.watch.clone());
            streams.insert(namespace, stream);
        }
    }

    /// Brings the handle of a Tenant up to date.
    async fn update(&self, known: &mut Known, name: &str) {
        let Some(tenant) = known.tenants.get(name).cloned() else {
            return;
        };
        let connection = match &self.options.clients {
            Some(options) => known.connection(&tenant, options).await.map(|(client, number)| {
                let (client, problem) =
                    client.map_or_else(|p| (None, Some(p)), |c| (Some(c), None));
                (client, problem, number)
            }),
            None => Some((None, None, 0)),
        };
        let Some(connection) = connection else { return };
        let handle = self.handle(tenant, connection);
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let news = handles.get(name).is_none_or(|before| !before.same(&handle));
        handles.insert(name.to_owned(), Arc::new(handle));
        drop(handles);
        if news {
            let _ = self.events.send(TenantEvent::Changed(name.to_owned()));
        }
    }

    fn handle(
        &self,
        tenant: Arc<Tenant>,
        (client, problem, connection): (Option<Client>, Option<ConnectionProblem>, u64),
    ) -> TenantHandle {
        let (rules, invalid) = match rules(&tenant) {
            Ok(rules) => (rules, Vec::new()),
            Err(invalid) => (nothing_allowed(&tenant), invalid),
        };
        let policy = Policy::new(self.options.target.clone(), self.options.domain, rules);
        TenantHandle {
            name: tenant.name_any(),
            uid: tenant.uid().unwrap_or_default(),
            generation: tenant.metadata.generation.unwrap_or_default(),
            policy: Arc::new(policy),
            accepted: invalid.is_empty() && tenant.is(ACCEPTED),
            invalid,
            client,
            problem,
            tenant,
            connection,
        }
    }
}

fn nothing_allowed(tenant: &Tenant) -> TenantRules {
    TenantRules {
        name: tenant.name_any(),
        cluster: tenant.cluster(),
        paused: true,
        ..TenantRules::default()
    }
}
