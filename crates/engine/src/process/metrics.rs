//! Metrics: the registry of a process, and what the loop of each service in it counts.
//!
//! Labels are closed sets: services, steps, outcomes, kinds, Tenants; never what a tenant names.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use carrick_core::{Action, Kind, Outcome, Side, Step, Write};
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::{Registry, Unit},
};

/// The metrics of a process, all with the prefix `carrick`.
#[derive(Clone, Debug)]
pub struct SharedRegistry(Arc<Mutex<Registry>>);

impl SharedRegistry {
    /// A registry with what is known of the process itself.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("carrick");
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version of this process", version);
        let start = Gauge::<i64>::default();
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        start.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        let help = "When this process started, since the epoch";
        registry.register_with_unit("start_time", help, Unit::Seconds, start);
        Self(Arc::new(Mutex::new(registry)))
    }

    /// Registers more metrics. A name may be registered once in a process, so a service whose
    /// metrics other services have too gives them a label for the service.
    pub fn register<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All metrics, as OpenMetrics text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        let registry = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Default for SharedRegistry {
    fn default() -> Self {
        Self::new()
    }
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// It is done.
    Done,
    /// A precondition failed: the object had changed, or was there already.
    Conflict,
    /// The API server forbids it or finds it invalid.
    Refused,
    /// Anything else: no answer, a timeout, an error of the server.
    Failed,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageResult {
    /// Acknowledged.
    Ack,
    /// Given back, to come again.
    Nak,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServiceLabels {
    service: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    service: &'static str,
    step: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvaluationLabels {
    service: &'static str,
    step: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    service: &'static str,
    side: &'static str,
    kind: &'static str,
    verb: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MessageLabels {
    service: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

/// From 1 ms to about 16 s.
#[derive(Clone, Debug)]
struct EvaluationBuckets;

impl MetricConstructor<Histogram> for EvaluationBuckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.001, 2.0, 15))
    }
}

#[derive(Clone, Debug)]
struct Families {
    evaluations: Family<EvaluationLabels, Counter>,
    evaluation_seconds: Family<StepLabels, Histogram, EvaluationBuckets>,
    writes: Family<WriteLabels, Counter>,
    messages: Family<MessageLabels, Counter>,
    queue_claims: Family<ServiceLabels, Gauge>,
    dead: Family<ServiceLabels, Counter>,
    sweeps: Family<ServiceLabels, Counter>,
    mismatches: Family<TenantLabels, Gauge>,
}

/// What the loop of one service counts. The services of a process share the metrics and differ in
/// the label `service`.
#[derive(Clone, Debug)]
pub struct Metrics {
    service: &'static str,
    families: Families,
}

impl Metrics {
    /// Registers the metrics of the loop, once in a process, for the first service in it.
    pub fn register(registry: &SharedRegistry, service: &'static str) -> Self {
        let families = registry.register(|registry| {
            let families = Families {
                evaluations: Family::default(),
                evaluation_seconds: Family::new_with_constructor(EvaluationBuckets),
                writes: Family::default(),
                messages: Family::default(),
                queue_claims: Family::default(),
                dead: Family::default(),
                sweeps: Family::default(),
                mismatches: Family::default(),
            };
            families.register(registry);
            families
        });
        Self { service, families }.at_zero()
    }

    /// The same metrics for another service of the process.
    #[must_use]
    pub fn for_service(&self, service: &'static str) -> Self {
        Self { service, families: self.families.clone() }.at_zero()
    }

    /// So many claims of a tenant are seen bound there, and are not so on the host.
    pub fn mismatches(&self, tenant: &str, count: usize) {
        let labels = TenantLabels { tenant: tenant.to_owned() };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.families.mismatches.get_or_create(&labels).set(count);
    }

    /// A claim was decided on, with this outcome (`None`: ignored), in this time, writes included.
    pub fn evaluated(&self, step: Step, outcome: Option<Outcome>, took: Duration) {
        let (service, step) = (self.service, step.as_str());
        let outcome = outcome.map_or("ignored", Outcome::as_str);
        let labels = EvaluationLabels { service, step, outcome };
        self.families.evaluations.get_or_create(&labels).inc();
        let labels = StepLabels { service, step };
        self.families.evaluation_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A write was tried.
    pub fn wrote(&self, write: &Write, result: WriteResult) {
        let labels = WriteLabels {
            service: self.service,
            side: match write.object.side {
                Side::Host => "host",
                Side::Tenant => "tenant",
            },
            kind: kind(write.object.kind),
            verb: match write.action {
                Action::Create(_) => "create",
                Action::Patch(_) => "patch",
                Action::PatchStatus(_) => "patch_status",
                Action::Delete { .. } => "delete",
            },
            result: match result {
                WriteResult::Done => "done",
                WriteResult::Conflict => "conflict",
                WriteResult::Refused => "refused",
                WriteResult::Failed => "failed",
            },
        };
        self.families.writes.get_or_create(&labels).inc();
    }

    /// A message was acknowledged or given back.
    pub fn message(&self, result: MessageResult) {
        self.families.messages.get_or_create(&self.message_labels(result)).inc();
    }

    /// So many claims wait in the queue or are being worked on.
    pub fn queued(&self, claims: usize) {
        let claims = i64::try_from(claims).unwrap_or(i64::MAX);
        self.families.queue_claims.get_or_create(&self.service_labels()).set(claims);
    }

    /// A claim was put on the dead stream.
    pub fn dead(&self) {
        self.families.dead.get_or_create(&self.service_labels()).inc();
    }

    /// All claims were looked at again.
    pub fn swept(&self) {
        self.families.sweeps.get_or_create(&self.service_labels()).inc();
    }

    /// Creates the series that must show as zero before anything happened.
    fn at_zero(self) -> Self {
        for result in [MessageResult::Ack, MessageResult::Nak] {
            drop(self.families.messages.get_or_create(&self.message_labels(result)));
        }
        let labels = self.service_labels();
        drop(self.families.queue_claims.get_or_create(&labels));
        drop(self.families.dead.get_or_create(&labels));
        drop(self.families.sweeps.get_or_create(&labels));
        self
    }

    fn service_labels(&self) -> ServiceLabels {
        ServiceLabels { service: self.service }
    }

    fn message_labels(&self, result: MessageResult) -> MessageLabels {
        let result = match result {
            MessageResult::Ack => "ack",
            MessageResult::Nak => "nak",
        };
        MessageLabels { service: self.service, result }
    }
}

impl Families {
    fn register(&self, registry: &mut Registry) {
        let Self {
            evaluations,
            evaluation_seconds,
            writes,
            messages,
            queue_claims,
            dead,
            sweeps,
            mismatches,
        } = self.clone();
        registry.register("evaluations", "Decisions about claims", evaluations);
        let help = "Time of a decision with its writes";
        registry.register_with_unit("evaluation", help, Unit::Seconds, evaluation_seconds);
        registry.register("writes", "Writes to API servers", writes);
        registry.register("messages", "Messages taken from the bus", messages);
        registry.register("queue_claims", "Claims waiting or being worked on", queue_claims);
        registry.register("dead", "Claims put on the dead stream", dead);
        registry.register("sweeps", "Looks at all claims", sweeps);
        let help = "Claims that their tenant sees bound and that are not so on the host";
        registry.register("claim_phase_mismatch", help, mismatches);
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Claim => "claim",
        Kind::Volume => "volume",
        Kind::Namespace => "namespace",
        Kind::Class => "class",
        Kind::Event => "event",
    }
}

#[cfg(test)]
mod tests {
    use carrick_core::ObjectRef;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_the_loop_counts_is_shown_once_for_all_services() {
        let registry = SharedRegistry::new();
        let upsyncer = Metrics::register(&registry, "upsyncer");
        let watcher = upsyncer.for_service("watcher");
        upsyncer.evaluated(Step::Upsync, Some(Outcome::Done), Duration::from_millis(3));
        upsyncer.evaluated(Step::Upsync, None, Duration::from_millis(3));
        let object = ObjectRef::cluster(Side::Tenant, Kind::Volume, "pv-1");
        let write = Write { object, action: Action::Create(Value::Null), why: "test" };
        upsyncer.wrote(&write, WriteResult::Conflict);
        upsyncer.message(MessageResult::Nak);
        watcher.queued(3);
        watcher.dead();
        watcher.swept();
        let text = registry.encode().unwrap();
        for line in [
            r#"carrick_evaluations_total{service="upsyncer",step="upsync",outcome="done"} 1"#,
            r#"carrick_evaluations_total{service="upsyncer",step="upsync",outcome="ignored"} 1"#,
            r#"carrick_evaluation_seconds_count{service="upsyncer",step="upsync"} 2"#,
            r#"carrick_evaluation_seconds_bucket{le="0.004",service="upsyncer",step="upsync"} 2"#,
            r#"carrick_writes_total{service="upsyncer",side="tenant",kind="volume",verb="create",result="conflict"} 1"#,
            r#"carrick_messages_total{service="upsyncer",result="ack"} 0"#,
            r#"carrick_messages_total{service="upsyncer",result="nak"} 1"#,
            r#"carrick_messages_total{service="watcher",result="ack"} 0"#,
            r#"carrick_queue_claims{service="watcher"} 3"#,
            r#"carrick_dead_total{service="watcher"} 1"#,
            r#"carrick_dead_total{service="upsyncer"} 0"#,
            r#"carrick_sweeps_total{service="watcher"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE carrick_messages ").count(), 1);
        assert!(text.contains("\ncarrick_start_time_seconds "), "{text}");
        assert!(!text.contains("pv-1"));
    }
}
