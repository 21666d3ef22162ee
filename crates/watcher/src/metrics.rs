//! What the watcher counts. Labels are closed sets, never names.

use carrick_core::{Kind, Side};
use carrick_engine::SharedRegistry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};

use crate::placement::KINDS;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    side: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabels {
    side: &'static str,
    kind: &'static str,
    reason: &'static str,
}

/// What the watcher counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    facts: Family<ObjectLabels, Counter>,
    tombstones: Family<ObjectLabels, Counter>,
    outdated: Family<ObjectLabels, Counter>,
    rejected: Family<ObjectLabels, Counter>,
    problems: Family<ProblemLabels, Counter>,
    sessions: Counter,
}

impl Metrics {
    /// Registers them.
    pub(crate) fn register(registry: &SharedRegistry) -> Self {
        let metrics = Self::default();
        let Self { facts, tombstones, outdated, rejected, problems, sessions } = metrics.clone();
        for kind in KINDS {
            for side in [Side::Host, Side::Tenant] {
                for family in [&facts, &tombstones, &outdated, &rejected] {
                    drop(family.get_or_create(&labels((side, kind))));
                }
            }
        }
        registry.register(|registry| {
            registry.register("watcher_facts", "Facts published", facts);
            registry.register("watcher_tombstones", "Facts published as gone", tombstones);
            let help = "Facts not published because the bus had a newer one";
            registry.register("watcher_outdated", help, outdated);
            let help = "Facts that the bus will not have, as they are too large: left out";
            registry.register("watcher_rejected", help, rejected);
            registry.register("watcher_watch_problems", "Failures of watches", problems);
            registry.register("watcher_sessions", "Times that this began to watch", sessions);
        });
        metrics
    }

    /// A fact is on the bus.
    pub(crate) fn published(&self, origin: (Side, Kind), deleted: bool) {
        let family = if deleted { &self.tombstones } else { &self.facts };
        family.get_or_create(&labels(origin)).inc();
    }

    /// The bus had a newer fact.
    pub(crate) fn outdated(&self, origin: (Side, Kind)) {
        self.outdated.get_or_create(&labels(origin)).inc();
    }

    /// The bus will not have a fact.
    pub(crate) fn rejected(&self, origin: (Side, Kind)) {
        self.rejected.get_or_create(&labels(origin)).inc();
    }

    /// A watch failed.
    pub(crate) fn problem(&self, origin: (Side, Kind), reason: &'static str) {
        let ObjectLabels { side, kind } = labels(origin);
        let labels = ProblemLabels { side, kind, reason };
        self.problems.get_or_create(&labels).inc();
    }

    /// A session began.
    pub(crate) fn session(&self) {
        self.sessions.inc();
    }
}

fn labels((side, kind): (Side, Kind)) -> ObjectLabels {
    ObjectLabels {
        side: match side {
            Side::Host => "host",
            Side::Tenant => "tenant",
        },
        kind: match kind {
            Kind::Claim => "claim",
            Kind::Volume => "volume",
            Kind::Namespace => "namespace",
            Kind::Class => "class",
            Kind::Event => "event",
        },
    }
}
