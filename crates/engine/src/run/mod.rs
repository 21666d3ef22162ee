//! The one loop of all services: what happened names a claim; all facts of the claim are read,
//! decided on, written, and only then is the message settled.
//!
//! Nothing is lost when a process ends at any moment: at its start, when its consumer was made
//! anew, and when a Tenant changes, all claims concerned are looked at.

mod backoff;
mod evaluate;
mod journal;
mod known;
mod lines;
mod namespace;
mod overlay;
mod parking;
mod publish;
mod queue;
mod role;
mod seen;

use std::{
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use carrick_bus::{Bus, ConsumerSettings, DeadReport, Delivered, Delivery, Family};
use carrick_core::{ClaimKey, FactSubject, Outcome, Reason, Scope};
use carrick_k8s::{Pool, PoolOptions, TenantEvent, WatchOptions, target};
use futures::{Stream, StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use tokio::{sync::broadcast, task::JoinSet};

pub use role::Role;

use self::{
    evaluate::{Cause, Evaluator, LookError, Looked, lock},
    parking::Parking,
    queue::{Finished, Queue, Settle},
};
use crate::{
    Context, Shutdown,
    process::MessageResult,
    settings::{LoopSettings, Settings},
    wiring,
};

/// How many claims may wait here for each that is worked on; the rest waits on the bus.
const AHEAD: usize = 4;
/// Races in a row after which a failure is one.
const RACES: u32 = 5;
/// Pause before the claims are listed again, after that failed.
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// Runs a service as its role says, until the shutdown.
pub async fn run_role(context: Context, role: Role) -> anyhow::Result<()> {
    let shutdown = context.shutdown.clone();
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        connected = connect(&context, role) => {
            let (evaluator, messages) = connected?;
            run(context, evaluator, messages).await
        }
    }
}

type Messages = stream::BoxStream<'static, Delivery>;

/// Connects to everything that the loop needs. What is not there yet is waited for.
async fn connect(context: &Context, role: Role) -> anyhow::Result<(Arc<Evaluator>, Messages)> {
    let gates = ["host", "bus", "tenants", "consumer"].map(|name| context.readiness.gate(name));
    context.started.open();
    let [host_gate, bus_gate, tenants_gate, consumer_gate] = gates;
    let Settings { host, target, bus, process: _, run } = &context.settings;
    let mut options = wiring::client_options(role.name);
    options.call_timeout = run.call_timeout;
    options.concurrency = run.concurrency;
    let host_client = wiring::host_client(host, &options).await?;
    let sync_target = target::wait(&host_client, &wiring::target_settings(host, target)).await?;
    host_gate.open();
    let pool = Arc::new(Pool::new(
        host_client.clone(),
        PoolOptions {
            target: sync_target,
            domain: target.domain,
            clients: role.writes_to_tenants.then_some(options),
            watch: WatchOptions::default(),
        },
    ));
    let following = pool.clone();
    let shutdown = context.shutdown.clone();
    context.tasks.spawn("tenants", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = following.run() => {}
        }
        anyhow::Ok(())
    });
    let bus = Bus::connect(wiring::bus_settings(bus, target, role.name)?).await?;
    bus.wait_for_streams().await?;
    bus_gate.open();
    pool.ready().await;
    tenants_gate.open();
    let messages = consume(&bus, role).await?;
    consumer_gate.open();
    let evaluator = Evaluator {
        role,
        bus,
        host: host_client,
        pool,
        metrics: context.metrics.clone(),
        overlay: Mutex::default(),
        seen: Mutex::default(),
        journal: Mutex::default(),
        namespace_grace: SignedDuration::try_from(run.namespace_grace)
            .unwrap_or(SignedDuration::MAX),
        mismatched: Mutex::default(),
        verified: Mutex::default(),
    };
    Ok((Arc::new(evaluator), messages))
}

/// What the service listens to: facts, and steps if it wants them.
async fn consume(bus: &Bus, role: Role) -> anyhow::Result<Messages> {
    let facts = role.facets.iter().map(|facet| {
        let named = facet.ends_with("-volume") || facet.ends_with("-class");
        let rest = format!("*.*.*.{facet}{}", if named { ".*" } else { "" });
        bus.filter(Family::Facts, &rest)
    });
    let settings = ConsumerSettings::new(role.name, Family::Facts, facts.collect());
    let mut streams = vec![bus.consumer(settings).await?.messages().boxed()];
    if !role.outcomes.is_empty() {
        let steps = role
            .outcomes
            .iter()
            .map(|outcome| bus.filter(Family::Steps, &format!("*.*.*.*.{outcome}")));
        let name = format!("{}-steps", role.name);
        let settings = ConsumerSettings::new(name, Family::Steps, steps.collect());
        streams.push(bus.consumer(settings).await?.messages().boxed());
    }
    Ok(stream::select_all(streams).boxed())
}

/// What a message asks for.
enum Concern {
    /// A look at this.
    Now(Scope),
    /// A look at this, in no hurry.
    Later(Scope),
    /// Nothing: the last look knew it.
    Known,
    /// Nothing: it is none of ours.
    Nothing,
}

/// The loop's own state.
struct Loop {
    evaluator: Arc<Evaluator>,
    queue: Queue<Box<Delivered>>,
    parking: Parking,
    settings: LoopSettings,
    looks: JoinSet<(Scope, u32, Result<Looked, LookError>)>,
    /// When all claims are to be listed, which failed.
    sweep_at: Option<Instant>,
}

async fn run(
    context: Context,
    evaluator: Arc<Evaluator>,
    messages: impl Stream<Item = Delivery> + Send,
) -> anyhow::Result<()> {
    let mut events = evaluator.pool.subscribe();
    let settings = context.settings.run.clone();
    // A tenant that does not answer leaves a quarter of the workers to others.
    let share = settings.concurrency.div_ceil(4) * 3;
    let mut it = Loop {
        evaluator,
        queue: Queue::new(share),
        parking: Parking::default(),
        settings,
        looks: JoinSet::new(),
        sweep_at: None,
    };
    let mut messages = pin!(messages);
    it.sweep().await;
    let shutdown: Shutdown = context.shutdown.clone();
    tracing::info!("Ready");
    loop {
        it.start_looks().await;
        context.metrics.queued(it.queue.len());
        let room = it.queue.ready() < it.settings.concurrency * AHEAD;
        let timer = it.next_timer();
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(looked) = it.looks.join_next() => it.finished(looked?).await,
            Some(delivery) = messages.next(), if room => it.delivered(delivery).await,
            event = events.recv() => it.tenant_event(event).await,
            () = until(timer) => it.tick(Instant::now()).await,
        }
    }
    it.end().await
}

/// Sleeps until then; for ever if there is nothing to wait for.
async fn until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}

impl Loop {
    fn next_timer(&self) -> Option<Instant> {
        let overdue = lock(&self.evaluator.overlay).next_due();
        self.queue.next_timer().into_iter().chain(overdue).chain(self.sweep_at).min()
    }

    async fn tick(&mut self, now: Instant) {
        self.queue.tick(now);
        let overdue = lock(&self.evaluator.overlay).overdue(now);
        for claim in overdue {
            self.queue.push(Scope::Claim(claim), None);
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep().await;
        }
    }

    async fn start_looks(&mut self) {
        while self.looks.len() < self.settings.concurrency {
            let Some((scope, failures)) = self.queue.next() else {
                break;
            };
            if let Some(pause) = self.parking.wait(&scope, Instant::now()) {
                self.finish(&scope, Finished::Parked(pause)).await;
                continue;
            }
            let taken = self.queue.taken(&scope);
            let facts = taken.iter().filter(|m| FactSubject::parse(&m.subject).is_some());
            let facts: Vec<_> = facts.map(|message| message.sequence).collect();
            let cause = Cause {
                not_before: facts.iter().copied().max().unwrap_or(0),
                only_facts: !facts.is_empty() && facts.len() == taken.len(),
            };
            let evaluator = self.evaluator.clone();
            self.looks.spawn(async move {
                let looked = evaluator.look(&scope, cause).await;
                (scope, failures, looked)
            });
        }
    }

    async fn finished(
        &mut self,
        (scope, failures, looked): (Scope, u32, Result<Looked, LookError>),
    ) {
        let finished = match looked {
            Ok(Looked::Settled(recheck)) => Finished::Settled(recheck),
            Ok(Looked::Ended(recheck)) => {
                if let Scope::Claim(ClaimKey { tenant, namespace, .. }) = &scope {
                    let (tenant, namespace) = (tenant.clone(), namespace.clone());
                    self.queue.push_background(Scope::Namespace { tenant, namespace });
                }
                Finished::Settled(recheck)
            }
            Ok(Looked::Spread(claims)) => {
                if let Scope::Tenant { tenant } = &scope
                    && self.parking.release(tenant)
                {
                    tracing::info!(tenant, "The tenant answers again");
                }
                self.spread(claims);
                Finished::Settled(None)
            }
            Err(LookError::Silent { tenant, problem }) => {
                let (pause, news) = self.parking.silent(&tenant, &self.settings, Instant::now());
                if news {
                    tracing::warn!(tenant, %problem, "A tenant does not answer, its claims wait");
                    self.queue.push(Scope::Tenant { tenant }, None);
                }
                Finished::Parked(pause)
            }
            Err(error) => Finished::Failed(self.failed(&scope, failures, &error).await),
        };
        self.finish(&scope, finished).await;
    }

    async fn finish(&mut self, scope: &Scope, finished: Finished) {
        let evaluator = self.evaluator.clone();
        match self.queue.finish(scope, finished, |message| evaluator.knows(message), Instant::now())
        {
            Settle::Ack(messages) => {
                for message in messages {
                    self.settled(message.ack().await, MessageResult::Ack);
                }
            }
            Settle::Nak(messages, delay) => {
                for message in messages {
                    self.settled(message.nak(delay).await, MessageResult::Nak);
                }
            }
        }
    }

    /// A message that could not be settled comes again, which does no harm.
    fn settled(&self, sent: carrick_bus::Result<()>, result: MessageResult) {
        match sent {
            Ok(()) => self.evaluator.metrics.message(result),
            Err(error) => tracing::debug!(%error, "A message could not be settled"),
        }
    }

    /// Says what a failure needs said, and how long to wait.
    async fn failed(&self, scope: &Scope, failures: u32, error: &LookError) -> Duration {
        let (claim, failed) = (scope.to_string(), failures + 1);
        let mut pause = backoff::pause(&self.settings, failures);
        if error.is_race() && failed < RACES {
            tracing::debug!(claim, failed, %error, "Somebody else was faster");
            pause = self.settings.retry_min;
        } else if failed == 1 || failed == RACES || failed.is_multiple_of(self.settings.dead_after)
        {
            tracing::warn!(claim, failed, %error, "A look failed and is made again");
        }
        if failed == RACES {
            self.evaluator.say_retrying(scope, error).await;
        }
        if failed == self.settings.dead_after {
            self.evaluator.metrics.dead();
            self.evaluator.say_dead(scope, failed, error).await;
        }
        pause
    }

    async fn delivered(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Reset => self.sweep().await,
            Delivery::Message(message) => match self.evaluator.concerns(&message) {
                Concern::Now(scope) => self.queue.push(scope, Some(message)),
                Concern::Later(scope) => self.queue.push_later(scope, message, Instant::now()),
                Concern::Known => self.settled(message.ack().await, MessageResult::Ack),
                Concern::Nothing => {
                    tracing::warn!(subject = message.subject, "A message is not one of ours");
                    self.settled(message.ack().await, MessageResult::Ack);
                }
            },
        }
    }

    async fn tenant_event(&mut self, event: Result<TenantEvent, broadcast::error::RecvError>) {
        match event {
            Ok(TenantEvent::Changed(tenant)) => {
                self.parking.release(&tenant);
                self.queue.push(Scope::Tenant { tenant }, None);
            }
            Ok(TenantEvent::Removed(tenant)) => drop(self.parking.release(&tenant)),
            Err(_) => self.sweep().await,
        }
    }

    /// Has all claims looked at, when nothing else is to be done.
    async fn sweep(&mut self) {
        self.evaluator.metrics.swept();
        match self.evaluator.bus.scopes_in(None).await {
            Ok(scopes) => {
                let cleans = self.evaluator.role.cleans_namespaces;
                for scope in scopes {
                    match scope {
                        Scope::Claim(_) => self.queue.push_background(scope),
                        Scope::Namespace { .. } if cleans => self.queue.push_background(scope),
                        Scope::Namespace { .. } | Scope::Tenant { .. } => {}
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%error, "The claims can't be listed, trying again");
                self.sweep_at = Some(Instant::now() + SWEEP_AGAIN);
                return;
            }
        }
        self.sweep_at = None;
        for tenant in self.evaluator.pool.list() {
            self.queue.push_background(Scope::Tenant { tenant: tenant.name.clone() });
        }
    }

    fn spread(&mut self, claims: Vec<ClaimKey>) {
        for claim in claims {
            self.queue.push_background(Scope::Claim(claim));
        }
    }

    /// Finishes what is being looked at, and gives the rest back.
    async fn end(mut self) -> anyhow::Result<()> {
        while let Some(looked) = self.looks.join_next().await {
            self.finished(looked?).await;
        }
        for message in self.queue.drain() {
            self.settled(message.nak(Duration::ZERO).await, MessageResult::Nak);
        }
        if let Err(error) = self.evaluator.bus.close().await {
            tracing::debug!(%error, "The bus was not closed in good order");
        }
        Ok(())
    }
}

impl Evaluator {
    /// What a message asks for.
    fn concerns(&self, message: &Delivered) -> Concern {
        let Some(FactSubject { scope, facet, .. }) = FactSubject::parse(&message.subject) else {
            return message.scope().map_or(Concern::Nothing, Concern::Later);
        };
        let among = |facets: &[&str]| facets.contains(&facet.token());
        if let Scope::Claim(key) = &scope {
            let arrivals = among(self.role.arrivals);
            if lock(&self.seen).covers(key, &facet, &message.meta, arrivals) {
                lock(&self.overlay).echoed(key, &facet, message.meta.rv);
                return Concern::Known;
            }
        }
        if among(self.role.unhurried) { Concern::Later(scope) } else { Concern::Now(scope) }
    }

    /// Whether a message says nothing that the last look at its claim did not know.
    fn knows(&self, message: &Delivered) -> bool {
        matches!(self.concerns(message), Concern::Known)
    }

    /// Tells whoever looks at the claim that it fails and is tried again.
    async fn say_retrying(&self, scope: &Scope, error: &LookError) {
        let step = self.role.step;
        let message = "it failed several times in a row and is tried again".to_owned();
        let reason = Some(Reason::new("Retrying", message));
        tracing::debug!(claim = %scope, %error, "Said to be tried again");
        if let Err(error) = self.say(scope, (step, Outcome::Retrying, reason)).await {
            tracing::debug!(%error, "A step could not be published");
        }
    }

    async fn say_dead(&self, scope: &Scope, failures: u32, error: &LookError) {
        let report = DeadReport {
            scope: scope.clone(),
            service: self.role.name.to_owned(),
            reason: "TooManyFailures".to_owned(),
            failures,
            time: Timestamp::now(),
            last_error: error.to_string(),
            claim_uid: String::new(),
        };
        if let Err(error) = self.bus.publish_dead(&report).await {
            tracing::warn!(claim = %scope, %error, "A dead claim could not be reported");
        }
    }
}
