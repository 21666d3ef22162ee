//! Every version of every object of a kind, as a watch from the side sees them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

/// One version of an object. Versions of one server compare, whatever their kinds.
#[derive(Clone, Debug)]
pub struct Version<K> {
    /// Its resourceVersion.
    pub rv: u64,
    /// Whether it is the object's first.
    pub first: bool,
    /// Whether the object was deleted with it.
    pub gone: bool,
    /// The object.
    pub object: K,
}

/// Watches all objects of a kind from the moment it was started until it is dropped.
#[derive(Debug)]
pub struct Recorder<K> {
    seen: Arc<Mutex<Seen<K>>>,
    _watching: JoinSet<()>,
}

#[derive(Debug)]
struct Seen<K> {
    versions: Vec<Version<K>>,
    failure: Option<String>,
}

impl<K> Recorder<K>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + 'static,
{
    /// Starts to watch: no later version is missed.
    pub async fn start(client: Client) -> Result<Self> {
        let api: Api<K> = Api::all(client);
        let listed = api.list(&ListParams::default()).await?;
        let from = listed.metadata.resource_version.context("a list has a version")?;
        let seen = Arc::new(Mutex::new(Seen { versions: Vec::new(), failure: None }));
        let mut watching = JoinSet::new();
        let to = Arc::clone(&seen);
        watching.spawn(async move {
            if let Err(error) = record(&api, from, &to).await {
                lock(&to).failure = Some(format!("{error:#}"));
            }
        });
        Ok(Self { seen, _watching: watching })
    }

    /// All versions so far, those of each object in their order, by the object's uid.
    pub fn objects(&self) -> Result<BTreeMap<String, Vec<Version<K>>>> {
        let seen = lock(&self.seen);
        if let Some(failure) = &seen.failure {
            bail!("the watch from the side has ended: {failure}");
        }
        let mut objects: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for version in &seen.versions {
            let uid = version.object.uid().context("an object has a uid")?;
            objects.entry(uid).or_default().push(version.clone());
        }
        Ok(objects)
    }
}

async fn record<K>(api: &Api<K>, mut from: String, to: &Mutex<Seen<K>>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned,
{
    loop {
        let mut events = std::pin::pin!(api.watch(&WatchParams::default(), &from).await?);
        while let Some(event) = events.try_next().await? {
            let (first, gone, object) = match event {
                WatchEvent::Added(object) => (true, false, object),
                WatchEvent::Modified(object) => (false, false, object),
                WatchEvent::Deleted(object) => (false, true, object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => bail!("{status:?}"),
            };
            from = object.resource_version().context("an object has a version")?;
            let rv = from.parse().context("versions are numbers")?;
            lock(to).versions.push(Version { rv, first, gone, object });
        }
    }
}

fn lock<K>(seen: &Mutex<Seen<K>>) -> MutexGuard<'_, Seen<K>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
