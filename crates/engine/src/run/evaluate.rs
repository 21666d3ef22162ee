//! One look at a claim: read all facts, decide, write, decide again with what was written.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use carrick_bus::{Bus, Poison};
use carrick_core::{
    ClaimFacts, ClaimKey, Decision, Outcome, Policy, Reason, Scope, Side, Step, TenantFacts,
    Verdict, Write, decide::tell, write::ObjectRef,
};
use carrick_k8s::{
    Class, Client, ConnectionProblem, Pool, TenantHandle, Written, problem::KUBECONFIG_INVALID,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use serde_json::Value;

use super::{journal::Journal, known::Known, overlay::Overlay, publish, role::Role, seen::Seen};
use crate::process::{Metrics, WriteResult};

/// Looks in a row that may end in writes; more means that the writes don't do what they should.
const ROUNDS: usize = 16;
/// What an API server refuses, it may allow later: a quota grows, a webhook changes its mind.
const REFUSED_RECHECK: SignedDuration = SignedDuration::from_secs(60);

/// What a look needs.
#[derive(Debug)]
pub(super) struct Evaluator {
    pub(super) role: Role,
    pub(super) bus: Bus,
    pub(super) host: Client,
    pub(super) pool: Arc<Pool>,
    pub(super) metrics: Metrics,
    /// How long after its last claim an empty host namespace is deleted.
    pub(super) namespace_grace: SignedDuration,
    pub(super) overlay: Mutex<Overlay>,
    pub(super) seen: Mutex<Seen>,
    pub(super) journal: Mutex<Journal>,
    /// Claims of each tenant that it sees bound and the host has not.
    pub(super) mismatched: Mutex<HashMap<String, HashSet<ClaimKey>>>,
    /// The connection of each tenant that is known to lead to the right control plane.
    pub(super) verified: Mutex<HashMap<String, u64>>,
}

/// What asked for a look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cause {
    /// Sequence of the latest fact that did: a look may not read older ones.
    pub(super) not_before: u64,
    /// Whether nothing but facts did.
    pub(super) only_facts: bool,
}

/// How a look ended.
#[derive(Debug)]
pub(super) enum Looked {
    /// Done for now; to be looked at again after this time, if any.
    Settled(Option<Duration>),
    /// Done for now, as [`Settled`](Self::Settled); and this claim's host namespace may be empty.
    Ended(Option<Duration>),
    /// These claims are to be looked at instead.
    Spread(Vec<ClaimKey>),
}

/// Why a look failed and is to be made again.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error(transparent)]
    Bus(#[from] carrick_bus::Error),
    #[error(transparent)]
    Kubernetes(#[from] carrick_k8s::Error),
    #[error("tenant {tenant} can't be reached: {problem}")]
    Silent { tenant: String, problem: ConnectionProblem },
    #[error("{0} was read and can't be used: {1}")]
    NotReadable(ObjectRef, String),
    #[error("{0} is gone, read it again")]
    Gone(ObjectRef),
    #[error("the same write is decided again and again: {0}")]
    NoEffect(ObjectRef),
}

impl LookError {
    /// Whether somebody else was faster, which is no fault.
    pub(super) fn is_race(&self) -> bool {
        match self {
            Self::Kubernetes(error) => error.class() == Class::Conflict,
            Self::Gone(_) => true,
            Self::Bus(_) | Self::NoEffect(_) | Self::Silent { .. } | Self::NotReadable(..) => false,
        }
    }

    /// An error of a call to a control plane: one that says that a tenant as a whole does not
    /// answer is told apart.
    pub(super) fn of_call(error: carrick_k8s::Error, side: Side, tenant: &TenantHandle) -> Self {
        match error.problem() {
            Some(problem) if side == Side::Tenant && problem.is_of_the_connection() => {
                Self::Silent { tenant: tenant.name.clone(), problem: problem.clone() }
            }
            _ => error.into(),
        }
    }
}

/// A write that was done, for this step; the object, unless it is gone.
type Wrote = (Step, Write, Option<Value>);

impl Evaluator {
    /// Looks at a claim, or at what a fact about a namespace or tenant is about.
    pub(super) async fn look(&self, scope: &Scope, cause: Cause) -> Result<Looked, LookError> {
        let works = |tenant: &Arc<TenantHandle>| tenant.accepted && !tenant.policy.tenant.paused;
        let Some(tenant) = self.pool.get(scope.tenant()).filter(works) else {
            return Ok(Looked::Settled(None));
        };
        match scope {
            Scope::Claim(key) => self.look_at_claim(key, &tenant, cause).await,
            // A fact about it is about all its claims.
            Scope::Namespace { .. } if cause.not_before > 0 || !self.role.cleans_namespaces => {
                Ok(Looked::Spread(self.bus.claims_in(Some(scope)).await?))
            }
            Scope::Namespace { namespace, .. } => {
                Ok(Looked::Settled(self.clean(&tenant, namespace).await?))
            }
            Scope::Tenant { tenant: name } => {
                if self.role.writes_to_tenants {
                    self.client(Side::Tenant, &tenant).await?;
                }
                if let Some(decide) = self.role.tenant {
                    self.look_at_tenant(name, &tenant, decide, cause.not_before).await?;
                }
                Ok(Looked::Spread(self.bus.claims_in(Some(scope)).await?))
            }
        }
    }

    async fn look_at_claim(
        &self,
        key: &ClaimKey,
        tenant: &TenantHandle,
        cause: Cause,
    ) -> Result<Looked, LookError> {
        let begun = Instant::now();
        let scope = &Scope::Claim(key.clone());
        let view = self.bus.claim_facts(key, self.role.reads_classes, cause.not_before).await?;
        let mut facts = view.facts;
        warn_of(&view.poison);
        lock(&self.overlay).merge(&mut facts, begun);
        if let Some(needed) = self.role.steps
            && (!cause.only_facts || needed(&facts, &tenant.policy, Timestamp::now()))
        {
            facts.steps = self.bus.last_steps(scope).await?;
        }
        if let Some(needed) = self.role.host_events
            && needed(&facts, &tenant.policy, Timestamp::now())
        {
            facts.host_events = self.host_events(&facts).await;
        }
        let mut wrote = Vec::new();
        let decide =
            |facts: &ClaimFacts| (self.role.claim)(facts, &tenant.policy, Timestamp::now());
        let ended = self.carry_out(&mut facts, tenant, &mut wrote, decide).await;
        if let Err((Step::Delete, LookError::Silent { .. })) = &ended {
            self.say(scope, (Step::Delete, Outcome::Held, Some(unknown_is_held()))).await?;
        }
        let told = self.told(scope, &facts, (begun, &wrote), ended).await;
        match &told {
            Ok(_) if view.poison.is_empty() => lock(&self.seen).settled(&facts),
            _ => lock(&self.seen).forget(key),
        }
        if let Some(mismatched) = self.role.mismatched {
            self.count(key, mismatched(&facts, &tenant.policy));
        }
        let recheck = told?.verdict.recheck().and_then(|after| Duration::try_from(after).ok());
        let ended = self.role.cleans_namespaces
            && facts.live_host_claim().is_none()
            && facts.live_host_namespace().is_some();
        Ok(if ended { Looked::Ended(recheck) } else { Looked::Settled(recheck) })
    }

    /// What is said of the host claim; nothing where that can't be read, for it only explains.
    async fn host_events(&self, facts: &ClaimFacts) -> Vec<Event> {
        let meta = facts.live_host_claim().map(|claim| &claim.metadata);
        let place = meta.and_then(|meta| meta.namespace.as_deref().zip(meta.uid.as_deref()));
        let Some((namespace, uid)) = place else {
            return Vec::new();
        };
        let read = carrick_k8s::events_on(&self.host, namespace, uid).await;
        read.unwrap_or_else(|error| {
            tracing::debug!(%error, "What the host says of a claim can't be read");
            Vec::new()
        })
    }

    /// Counts a claim among those that its tenant sees bound and the host has not, or not any more.
    fn count(&self, key: &ClaimKey, mismatched: bool) {
        let mut of_all = lock(&self.mismatched);
        let of_tenant = of_all.entry(key.tenant.clone()).or_default();
        let changed =
            if mismatched { of_tenant.insert(key.clone()) } else { of_tenant.remove(key) };
        if changed {
            self.metrics.mismatches(&key.tenant, of_tenant.len());
        }
    }

    async fn look_at_tenant(
        &self,
        name: &str,
        tenant: &TenantHandle,
        decide: fn(&TenantFacts, &Policy, Timestamp) -> Decision,
        not_before: u64,
    ) -> Result<(), LookError> {
        let begun = Instant::now();
        let scope = &Scope::Tenant { tenant: name.to_owned() };
        let (mut facts, poison) = self.bus.tenant_facts(name, not_before).await?;
        warn_of(&poison);
        let mut wrote = Vec::new();
        let decide = |facts: &TenantFacts| decide(facts, &tenant.policy, Timestamp::now());
        let ended = self.carry_out(&mut facts, tenant, &mut wrote, decide).await;
        let none = ClaimFacts::new(ClaimKey::new(name, "", ""));
        self.told(scope, &none, (begun, &wrote), ended).await?;
        Ok(())
    }

    /// Decides and writes until nothing is left to write. What was written is in `wrote`, also
    /// when it fails.
    async fn carry_out<F: Known>(
        &self,
        facts: &mut F,
        tenant: &TenantHandle,
        wrote: &mut Vec<Wrote>,
        decide: impl Fn(&F) -> Decision,
    ) -> Result<Decision, (Step, LookError)> {
        let mut before: Option<Decision> = None;
        for _ in 0..ROUNDS {
            let decision = decide(facts);
            if !decision.asks.is_empty() {
                let asked = self.ask(facts, tenant, &decision.asks).await;
                asked.map_err(|error| (decision.step, error))?;
                continue;
            }
            if decision.writes.is_empty() {
                return Ok(decision);
            }
            let repeated = before.as_ref().is_some_and(|before| before.writes == decision.writes);
            if let (true, Some(write)) = (repeated, decision.writes.first()) {
                return Err((decision.step, LookError::NoEffect(write.object.clone())));
            }
            let done = self.write_all(facts, tenant, wrote, &decision).await;
            if let Some(refused) = done.map_err(|error| (decision.step, error))? {
                return Ok(refused);
            }
            before = Some(decision);
        }
        let decision = decide(facts);
        let object = decision.writes.first().map(|write| write.object.clone());
        match object {
            Some(object) => Err((decision.step, LookError::NoEffect(object))),
            None => Ok(decision),
        }
    }

    /// Does the writes of a decision, up to the first that fails; one that an API server refuses holds
    /// up no other one, and is what becomes of the decision.
    async fn write_all<F: Known>(
        &self,
        facts: &mut F,
        tenant: &TenantHandle,
        wrote: &mut Vec<Wrote>,
        decision: &Decision,
    ) -> Result<Option<Decision>, LookError> {
        let (step, mut refused) = (decision.step, None);
        for write in &decision.writes {
            let client = self.client(write.object.side, tenant).await?;
            let written = self.write(client, write).await;
            facts.wrote();
            match written {
                Ok(Written::Applied(object)) => {
                    facts.take_in(&write.object, &object);
                    wrote.push((step, write.clone(), Some(object)));
                }
                Ok(Written::Exists(object)) => facts.take_in(&write.object, &object),
                Ok(Written::Deleted) => {
                    facts.buried(&write.object);
                    wrote.push((step, write.clone(), None));
                }
                Ok(Written::Gone) => return Err(LookError::Gone(write.object.clone())),
                Err(error) if error.class() == Class::Refused => {
                    let refusal = refusal(step, write, tenant, &error);
                    refused = refused.or(Some(refusal));
                }
                Err(error) => {
                    let error = LookError::of_call(error, write.object.side, tenant);
                    if matches!(error, LookError::Silent { .. }) {
                        lock(&self.verified).remove(&tenant.name);
                    }
                    return Err(error);
                }
            }
        }
        Ok(refused)
    }

    /// Reads objects from their API servers. An object of the tenant counts only if it is certain
    /// whose answer that was: it is asked who it is after it was asked for them, so that what took
    /// its place meanwhile is noticed.
    async fn ask<F: Known>(
        &self,
        facts: &mut F,
        tenant: &TenantHandle,
        asks: &[ObjectRef],
    ) -> Result<(), LookError> {
        let mut answers = Vec::new();
        for object in asks {
            let client = self.client(object.side, tenant).await?;
            let answer = carrick_k8s::get(client, object).await;
            answers.push(answer.map_err(|error| LookError::of_call(error, object.side, tenant))?);
        }
        if asks.iter().any(|object| object.side == Side::Tenant) {
            let verified = tenant.verify().await;
            verified.map_err(|error| LookError::of_call(error, Side::Tenant, tenant))?;
        }
        for (object, answer) in asks.iter().zip(answers) {
            let facet = object.facet();
            let taken = facet.map_or(Ok(()), |facet| facts.confirm(&facet, answer));
            taken.map_err(|error| LookError::NotReadable(object.clone(), error.to_string()))?;
        }
        Ok(())
    }

    pub(super) async fn write(
        &self,
        client: &Client,
        write: &Write,
    ) -> Result<Written, carrick_k8s::Error> {
        let result = carrick_k8s::execute(client, write).await;
        let (counted, error) = match &result {
            Ok(Written::Applied(_) | Written::Deleted) => (WriteResult::Done, None),
            Ok(Written::Exists(_) | Written::Gone) => (WriteResult::Conflict, None),
            Err(error) => match error.class() {
                Class::Conflict => (WriteResult::Conflict, Some(error)),
                Class::Refused => (WriteResult::Refused, Some(error)),
                Class::Retry | Class::Stop => (WriteResult::Failed, Some(error)),
            },
        };
        self.metrics.wrote(write, counted);
        let (object, why) = (&write.object, write.why);
        match error {
            None => tracing::debug!(%object, why, outcome = ?counted, "Wrote"),
            Some(error) => tracing::debug!(%object, why, %error, "A write did not go through"),
        }
        result
    }

    /// The client to write with. A tenant's connection that is new, or did not answer last, is first
    /// asked whether it leads to the control plane that this Tenant was accepted with.
    pub(super) async fn client<'a>(
        &'a self,
        side: Side,
        tenant: &'a TenantHandle,
    ) -> Result<&'a Client, LookError> {
        let TenantHandle { name, connection, .. } = tenant;
        let client = match (side, &tenant.client) {
            (Side::Host, _) => return Ok(&self.host),
            (Side::Tenant, Some(client)) => client,
            (Side::Tenant, None) => {
                let none = || ConnectionProblem::new(KUBECONFIG_INVALID, "it has no credentials");
                let problem = tenant.problem.clone().unwrap_or_else(none);
                return Err(LookError::Silent { tenant: name.clone(), problem });
            }
        };
        if lock(&self.verified).get(name) != Some(connection) {
            let verified = tenant.verify().await;
            verified.map_err(|error| LookError::of_call(error, side, tenant))?;
            lock(&self.verified).insert(name.clone(), *connection);
        }
        Ok(client)
    }

    /// Remembers and publishes what a look did and how it ended, and passes that on.
    async fn told(
        &self,
        scope: &Scope,
        facts: &ClaimFacts,
        (begun, wrote): (Instant, &[Wrote]),
        ended: Result<Decision, (Step, LookError)>,
    ) -> Result<Decision, LookError> {
        if let Scope::Claim(key) = scope {
            let mut overlay = lock(&self.overlay);
            for (_, write, object) in wrote {
                if let (Some(facet), Some(object)) = (write.object.facet(), object) {
                    overlay.put(key, facet, object.clone(), Instant::now());
                }
            }
        }
        let writes: Vec<_> = wrote.iter().map(|(step, write, _)| (*step, write.why)).collect();
        let (step, outcome) = match &ended {
            Ok(Decision { step, verdict, .. }) => {
                // What is open is not said twice, and what was refused and is over is said to be.
                let open = verdict.outcome().is_some_and(|(outcome, _)| outcome != Outcome::Done);
                if open || facts.live_tenant_claim().is_some_and(tell::is_told) {
                    self.recall(scope, *step).await?;
                }
                (*step, lock(&self.journal).ended(scope, *step, verdict))
            }
            Err((step, _)) => (*step, None),
        };
        let counted = match &ended {
            Ok(_) => outcome.as_ref().map(|(_, outcome, _)| *outcome),
            Err(_) => Some(Outcome::Retrying),
        };
        self.metrics.evaluated(step, counted, begun.elapsed());
        self.tell(scope, facts, (begun, &writes), outcome).await?;
        ended.map_err(|(_, error)| error)
    }

    /// How a step stands may have been said before this process began, or by a replica.
    async fn recall(&self, scope: &Scope, step: Step) -> Result<(), LookError> {
        if !lock(&self.journal).knows(scope, step) {
            let records = self.bus.last_steps(scope).await?;
            lock(&self.journal).recall(scope, &records, step);
        }
        Ok(())
    }

    /// Publishes how a step stands, outside of a look.
    pub(super) async fn say(
        &self,
        scope: &Scope,
        ended: (Step, Outcome, Option<Reason>),
    ) -> Result<(), LookError> {
        let facts = match scope {
            Scope::Claim(key) => self.bus.claim_facts(key, false, 0).await?.facts,
            _ => ClaimFacts::new(ClaimKey::new(scope.tenant(), "", "")),
        };
        self.recall(scope, ended.0).await?;
        self.tell(scope, &facts, (Instant::now(), &[]), Some(ended)).await
    }

    async fn tell(
        &self,
        scope: &Scope,
        facts: &ClaimFacts,
        (begun, writes): (Instant, &[(Step, &'static str)]),
        ended: Option<(Step, Outcome, Option<Reason>)>,
    ) -> Result<(), LookError> {
        let entries = lock(&self.journal).entries(scope, writes, ended);
        for entry in &entries {
            let (report, id) = publish::report(self.role.name, scope, facts, (begun, entry));
            self.bus.publish_step(&report, &id).await?;
            lock(&self.journal).published(scope, entry);
        }
        Ok(())
    }
}

/// Nothing is deleted that the tenant was not asked about.
fn unknown_is_held() -> Reason {
    let message = "the tenant's control plane does not answer whether anything holds the claim";
    Reason::new("TenantSilent", message)
}

/// What is behind it stays whole: nobody panics while holding it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is on the bus and is no fact changes nothing; what it may have hidden comes as a fact.
fn warn_of(poison: &[Poison]) {
    for Poison { subject, sequence, error } in poison {
        tracing::warn!(subject, seq = sequence, error, "A message on the bus is not a fact");
    }
}

/// An API server will not have a write: the tenant is told in its words, less the host's names.
fn refusal(
    step: Step,
    write: &Write,
    tenant: &TenantHandle,
    error: &carrick_k8s::Error,
) -> Decision {
    let code = match write.object.side {
        Side::Host => "HostRefused",
        Side::Tenant => "TenantRefused",
    };
    let mut message = error.to_string();
    if let (Side::Host, Some(namespace)) = (write.object.side, &write.object.namespace) {
        message = message.replace(&format!("{namespace}/"), "").replace(namespace, "the namespace");
    }
    tracing::warn!(tenant = tenant.name, object = %write.object, %error, "A write was refused");
    let verdict = Verdict::Refused(Reason::new(code, message), Some(REFUSED_RECHECK));
    Decision { step, asks: Vec::new(), writes: Vec::new(), verdict }
}
