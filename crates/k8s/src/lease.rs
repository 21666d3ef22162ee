//! Leader election by a Lease: at most one process of a service works, another one takes over.
//!
//! Clocks of other machines are never compared: a lease has run out when it has been seen
//! unchanged, by the local clock, for as long as it lasts.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use carrick_core::quiet::Quiet;
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    client::{Client, timed_out},
    error::{Class, Error, is_already_there, is_missing},
};

/// Which lease, and for whom.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who this process is. A process of the same identity is taken for this one come back, so no
    /// two that run at the same time may have the same: the pod's name.
    pub identity: String,
    /// How long the lease lasts.
    pub duration: Duration,
    /// How often it is renewed, and asked for.
    pub renew: Duration,
}

impl LeaseOptions {
    /// A lease of 6 s, renewed every 2 s.
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(6),
            renew: Duration::from_secs(2),
        }
    }
}

/// A lease as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who holds it; empty if nobody does.
    pub holder: String,
    /// Its resourceVersion.
    pub version: String,
    /// How long it lasts.
    pub duration: Duration,
    /// When this version was first seen, by the local clock.
    pub since: Instant,
}

/// What to do about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// There is none: make it.
    Create,
    /// It is free, has run out, or is our own.
    Take,
    /// Another one holds it, for this long at most unless it is renewed.
    Wait(Duration),
}

/// Whether `me` may have the lease.
pub fn decide(now: Instant, lease: Option<&Seen>, me: &str) -> Claim {
    let Some(lease) = lease else {
        return Claim::Create;
    };
    let left = (lease.since + lease.duration).saturating_duration_since(now);
    if lease.holder.is_empty() || lease.holder == me || left.is_zero() {
        Claim::Take
    } else {
        Claim::Wait(left)
    }
}

/// One process in the election.
#[derive(Debug)]
pub struct Leader {
    client: Client,
    options: LeaseOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seen: Option<Seen>,
    /// Until when it is certain that nobody else leads.
    until: Option<Instant>,
}

impl Leader {
    /// Not in the election before [`acquire`](Self::acquire).
    pub fn new(client: Client, options: LeaseOptions) -> Self {
        Self { client, options, state: Mutex::default() }
    }

    /// Whether this process leads now. Turns false by itself when the lease could not be renewed
    /// in time, before another process can take it.
    pub fn is_leader(&self) -> bool {
        self.state().until.is_some_and(|until| Instant::now() < until)
    }

    /// Waits until this process leads.
    pub async fn acquire(&self) {
        let quiet = Quiet::default();
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    if quiet.due() {
                        tracing::warn!(%error, "The lease cannot be asked for");
                    }
                }
            }
            sleep(self.options.renew).await;
        }
    }

    /// Keeps the lease; ends when it is lost.
    pub async fn hold(&self) {
        while self.is_leader() {
            sleep(self.options.renew).await;
            match self.attempt().await {
                Ok(true) => {}
                Ok(false) => {
                    self.state().until = None;
                    tracing::warn!(lease = self.object(), "The lease is another one's");
                }
                Err(error) => tracing::warn!(%error, "The lease cannot be renewed"),
            }
        }
    }

    /// Gives the lease back, so that another process need not wait until it runs out. To be called
    /// when the work has stopped.
    pub async fn release(&self) {
        if self.state().until.take().is_none() {
            return;
        }
        if let Err(error) = self.give_back().await {
            tracing::info!(%error, "The lease is left to run out");
        }
    }

    /// Takes or renews the lease, if it may be had; whether it is ours.
    async fn attempt(&self) -> Result<bool, Error> {
        let begun = Instant::now();
        let limit = self.options.renew;
        let attempt = async {
            let found = self.look().await?;
            let seen = self.state().seen.clone();
            match (decide(Instant::now(), seen.as_ref(), &self.options.identity), found) {
                (Claim::Wait(_), _) => Ok(false),
                (_, found) => self.write(found, &self.options.identity).await,
            }
        };
        let unavailable = || Error::unavailable(self.object(), timed_out(limit));
        let ours = timeout(limit, attempt).await.unwrap_or_else(|_| Err(unavailable()))?;
        if ours {
            // Counted from before the write: for everybody else it begins later.
            self.state().until = Some(begun + self.options.duration);
        }
        Ok(ours)
    }

    async fn give_back(&self) -> Result<(), Error> {
        let Some(found) = self.look().await? else {
            return Ok(());
        };
        if self.state().seen.as_ref().is_some_and(|seen| seen.holder == self.options.identity) {
            self.write(Some(found), "").await?;
        }
        Ok(())
    }

    /// Reads the lease and notes since when it is as it is.
    async fn look(&self) -> Result<Option<Lease>, Error> {
        let name = &self.options.name;
        let lease = match self.client.call(self.api().get(name)).await {
            Ok(lease) => lease,
            Err(error) if is_missing(&error, "leases", name) => {
                self.state().seen = None;
                return Ok(None);
            }
            Err(error) => return Err(Error::of(self.object(), &error)),
        };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let mut state = self.state();
        if state.seen.as_ref().is_none_or(|seen| seen.version != version) {
            let spec = lease.spec.clone().unwrap_or_default();
            let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
            state.seen = Some(Seen {
                holder: spec.holder_identity.unwrap_or_default(),
                version,
                duration: seconds.map_or(self.options.duration, Duration::from_secs),
                since: Instant::now(),
            });
        }
        drop(state);
        Ok(Some(lease))
    }

    /// Makes `holder` the holder; false if another one was faster.
    async fn write(&self, found: Option<Lease>, holder: &str) -> Result<bool, Error> {
        let params = PostParams {
            field_manager: Some(self.client.field_manager().to_owned()),
            ..PostParams::default()
        };
        let api = self.api();
        let answer = if let Some(mut lease) = found {
            let spec = lease.spec.take().unwrap_or_default();
            lease.spec = Some(self.spec(spec, holder));
            self.client.call(api.replace(&self.options.name, &params, &lease)).await
        } else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.options.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.spec(LeaseSpec::default(), holder)),
            };
            self.client.call(api.create(&params, &lease)).await
        };
        match answer {
            Ok(_) => Ok(true),
            Err(error) if is_already_there(&error) => Ok(false),
            Err(error) => match Error::of(self.object(), &error) {
                error if error.class() == Class::Conflict => Ok(false),
                error => Err(error),
            },
        }
    }

    fn spec(&self, before: LeaseSpec, holder: &str) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let same = before.holder_identity.as_deref() == Some(holder);
        let changes = before.lease_transitions.unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(self.options.duration.as_secs()).ok(),
            acquire_time: if same { before.acquire_time.clone() } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if same { changes } else { changes.saturating_add(1) }),
            ..before
        }
    }

    fn api(&self) -> Api<Lease> {
        Api::namespaced(self.client.kube().clone(), &self.options.namespace)
    }

    fn object(&self) -> String {
        format!("Lease {}/{}", self.options.namespace, self.options.name)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_free_run_out_or_ones_own() {
        let since = Instant::now();
        let seconds = Duration::from_secs;
        let lease = |holder: &str| {
            Some(Seen {
                holder: holder.to_owned(),
                version: "1".to_owned(),
                duration: seconds(6),
                since,
            })
        };
        for (name, lease, after, expected) in [
            ("none", None, 0, Claim::Create),
            ("free", lease(""), 0, Claim::Take),
            ("mine", lease("me"), 0, Claim::Take),
            ("mine, run out", lease("me"), 60, Claim::Take),
            ("another's", lease("you"), 0, Claim::Wait(seconds(6))),
            ("another's, for a while", lease("you"), 5, Claim::Wait(seconds(1))),
            ("another's, run out", lease("you"), 6, Claim::Take),
        ] {
            assert_eq!(decide(since + seconds(after), lease.as_ref(), "me"), expected, "{name}");
        }
    }
}
