//! One Tenant in the hands of the session: its task, what is known of it, and when its status is to
//! be written.

use std::{sync::Arc, time::Duration};

use carrick_k8s::{
    Client, Error, Tenant, TenantHandle, TenantStatus,
    status::{patch_status, same, set_finalizer},
};
use futures::future::{BoxFuture, FutureExt as _};
use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::{
    acceptance::Verdict,
    removal::{self, COUNT_EVERY, Finalizer, Left, finalizer},
    shared::Shared,
    status::{Link, Seen, status},
    tenant::Report,
};

/// How often counts are written at most.
const COUNTS_EVERY: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);

/// How one write to a Tenant ended.
pub(crate) struct Written {
    /// The Tenant's name.
    pub(crate) name: String,
    /// Whether its counts were in it.
    pub(crate) counts: bool,
    /// What is left of the Tenant, if that was counted.
    pub(crate) left: Option<Left>,
    /// The Tenant as it is then; `None`: there was nothing to write.
    pub(crate) outcome: Result<Option<Tenant>, Error>,
}

/// What is to be done about a Tenant.
pub(crate) enum Next {
    /// Nothing.
    Rest,
    /// To look again then.
    Later(Instant),
    /// This write.
    Write(BoxFuture<'static, Written>),
}

/// One Tenant.
pub(crate) struct Entry {
    /// The Tenant as the pool has it.
    pub(crate) handle: Arc<TenantHandle>,
    /// What is known of it.
    pub(crate) seen: Seen,
    /// Whether it may be acted on.
    pub(crate) verdict: Verdict,
    /// Tells its task which identity is accepted.
    pub(crate) accepted: watch::Sender<Option<String>>,
    /// Its task, and the task's number.
    pub(crate) task: Option<(AbortHandle, u64)>,
    /// The Tenant as this process wrote it last.
    ours: Option<Arc<Tenant>>,
    writing: bool,
    counted: Option<Instant>,
    /// When it was last counted what is left of it.
    left_counted: Option<Instant>,
}

impl Entry {
    /// A Tenant that nothing is known of yet.
    pub(crate) fn new(handle: Arc<TenantHandle>) -> Self {
        Self {
            handle,
            seen: Seen::default(),
            verdict: Verdict::Unknown(false),
            accepted: watch::Sender::new(None),
            task: None,
            ours: None,
            writing: false,
            counted: None,
            left_counted: None,
        }
    }

    /// The Tenant, as new as it is known.
    pub(crate) fn tenant(&self) -> &Arc<Tenant> {
        let version = |tenant: &Tenant| {
            let version = tenant.resource_version();
            version.and_then(|v| v.parse::<u64>().ok()).unwrap_or(0)
        };
        match &self.ours {
            Some(ours) if version(ours) > version(&self.handle.tenant) => ours,
            _ => &self.handle.tenant,
        }
    }

    /// Takes in what its task tells.
    pub(crate) fn take(&mut self, report: Report) {
        match report {
            Report::Connected(identity) => {
                self.seen.identity = Some(identity.clone());
                self.seen.link = Link::Connected(identity);
            }
            Report::Problem(problem) => self.seen.link = Link::Problem(problem),
            Report::Synced => self.seen.synced = true,
            Report::Binder => self.seen.has_binder = true,
            Report::Claims(claims) => self.seen.claims = Some(claims),
        }
    }

    /// Whether all that can be known of it now is known.
    pub(crate) fn is_settled(&self) -> bool {
        match (&self.seen.link, &self.verdict) {
            (Link::Unknown, _) => false,
            (Link::Problem(_), _) | (_, Verdict::Refused(..)) => true,
            (Link::Connected(_), _) => self.seen.synced,
        }
    }

    /// What is to be done about its finalizer and its status.
    pub(crate) fn next(&mut self, shared: &Arc<Shared>) -> Next {
        let unasked =
            self.seen.link == Link::Unknown && matches!(self.verdict, Verdict::Unknown(_));
        if self.writing || unasked {
            return Next::Rest;
        }
        let known = self.tenant().clone();
        let next = match finalizer(&known) {
            Finalizer::Stays => return self.next_status(&shared.host, &known),
            Finalizer::PutOn => Next::Write(keep(shared.clone(), known, true).boxed()),
            Finalizer::TakeOff => Next::Write(keep(shared.clone(), known, false).boxed()),
            Finalizer::Waits => match self.left_counted.map(|at| at + COUNT_EVERY) {
                Some(due) if due > Instant::now() => {
                    return match self.next_status(&shared.host, &known) {
                        Next::Rest => Next::Later(due),
                        Next::Later(at) => Next::Later(at.min(due)),
                        write @ Next::Write(_) => write,
                    };
                }
                _ => {
                    self.left_counted = Some(Instant::now());
                    let (handle, before) = (self.handle.clone(), self.seen.left);
                    Next::Write(count_left(shared.clone(), handle, known, before).boxed())
                }
            },
        };
        self.writing = true;
        next
    }

    fn next_status(&mut self, host: &Client, known: &Arc<Tenant>) -> Next {
        let mut wanted = status(known, &self.seen, &self.verdict, Timestamp::now());
        let before = known.status.clone().unwrap_or_default();
        let due = self.counted.map(|at| at + COUNTS_EVERY);
        let waits = due.filter(|due| *due > Instant::now());
        let counts = wanted.claims != before.claims;
        if let Some(due) = waits.filter(|_| counts) {
            wanted.claims.clone_from(&before.claims);
            if same(&wanted, &before) {
                return Next::Later(due);
            }
        }
        if same(&wanted, &before) {
            return Next::Rest;
        }
        self.writing = true;
        let counts = wanted.claims != before.claims;
        Next::Write(write(host.clone(), known.clone(), wanted, counts).boxed())
    }

    /// Takes in how a write ended.
    pub(crate) fn written(&mut self, written: Written) {
        self.writing = false;
        if let Some(left) = written.left {
            self.seen.left = left;
        }
        match written.outcome {
            Ok(Some(tenant)) => {
                if written.counts {
                    self.counted = Some(Instant::now());
                }
                self.ours = Some(Arc::new(tenant));
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "A Tenant was not written"),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some((task, _)) = &self.task {
            task.abort();
        }
    }
}

/// Writes a status. After a failure it waits, for what is known is then older than what is there.
async fn write(host: Client, known: Arc<Tenant>, wanted: TenantStatus, counts: bool) -> Written {
    let outcome = patch_status(&host, &known, &wanted).await;
    if outcome.is_err() {
        sleep(AGAIN).await;
    }
    Written { name: known.name_any(), counts, left: None, outcome }
}

/// Puts the finalizer on, or takes it off.
async fn keep(shared: Arc<Shared>, known: Arc<Tenant>, wanted: bool) -> Written {
    let outcome = set_finalizer(&shared.host, &known, wanted).await;
    if outcome.is_err() {
        sleep(AGAIN).await;
    }
    Written { name: known.name_any(), counts: false, left: None, outcome }
}

/// Counts what is left of a Tenant that is being removed, and lets it go if that is nothing, twice
/// in a row: a service may have heard of the removal a little later than this one.
async fn count_left(
    shared: Arc<Shared>,
    handle: Arc<TenantHandle>,
    known: Arc<Tenant>,
    before: Left,
) -> Written {
    let name = known.name_any();
    match removal::count(&shared, &handle).await {
        Ok(Left::Nothing) if before == Left::Nothing => {
            tracing::info!(tenant = name, "Nothing is left of a Tenant that is removed: it goes");
            Written { left: Some(Left::Nothing), ..keep(shared, known, false).await }
        }
        Ok(left) => Written { name, counts: false, left: Some(left), outcome: Ok(None) },
        Err(error) => Written { name, counts: false, left: None, outcome: Err(error) },
    }
}
