//! Steps on the bus: published by the services, read by people and by the status-syncer.

use std::{collections::BTreeMap, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use carrick_core::{ObjectRef, Outcome, Reason, Scope, Step, StepRecord, subject::StepSubject};
use carrick_proto::v1;
use jiff::Timestamp;
use tracing::warn;

use crate::{
    connect::Bus,
    convert,
    error::{Error, Result},
    facts::publish_error,
    streams::Family,
};

/// One object that a step was decided from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// Which object.
    pub object: ObjectRef,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub rv: u64,
}

/// What a service did about a claim, or why it did not.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// What it is about.
    pub scope: Scope,
    /// Which part of the claim's way.
    pub step: Step,
    /// How it ended, for now.
    pub outcome: Outcome,
    /// The service that took the step.
    pub service: String,
    /// Why it is not done.
    pub reason: Option<Reason>,
    /// Uid of the tenant's claim; empty if there is none.
    pub claim_uid: String,
    /// The objects that it was decided from.
    pub objects: Vec<ObjectVersion>,
    /// What was written, in the order in which it was done.
    pub writes: Vec<String>,
    /// How long it took.
    pub took: Duration,
    /// When it is published.
    pub time: Timestamp,
}

impl Bus {
    /// Publishes a step. One that is published again with the same `id` within two minutes is
    /// stored once: the id must tell the step, the claim's uid and what it was decided from.
    pub async fn publish_step(&self, report: &StepReport, id: &str) -> Result<()> {
        let subject = StepSubject {
            target: self.target().to_owned(),
            scope: report.scope.clone(),
            step: report.step,
            outcome: report.outcome,
        };
        let message = convert::step(self.target(), report);
        self.publish_json(Family::Steps, subject.to_string(), &message, Some(id)).await
    }

    /// The last step of each kind that was published about exactly this scope, in the order of a
    /// claim's way. Steps are kept for a while only.
    pub async fn last_steps(&self, scope: &Scope) -> Result<Vec<StepRecord>> {
        let filter = self.filter(Family::Steps, &format!("{}.*.*", scope.tokens()));
        let mut last = BTreeMap::new();
        for raw in self.last_messages(Family::Steps, &[filter], 0).await? {
            let Some(record) = read(&raw.subject, &raw.payload) else {
                continue;
            };
            let newest = last.entry(record.step).or_insert((0, None));
            if raw.sequence > newest.0 {
                *newest = (raw.sequence, Some(record));
            }
        }
        Ok(last.into_values().filter_map(|(_, record)| record).collect())
    }

    /// Publishes a message as proto3 JSON.
    pub(crate) async fn publish_json(
        &self,
        family: Family,
        subject: String,
        message: &(impl serde::Serialize + Sync),
        id: Option<&str>,
    ) -> Result<()> {
        let what = format!("{family} {subject}");
        let body = serde_json::to_vec(message)
            .map_err(|source| Error::Encode { what: what.clone(), source })?;
        let mut message = PublishMessage::build().payload(body.into());
        if let Some(id) = id {
            message = message.message_id(id);
        }
        let stored = match self.jetstream().send_publish(subject, message).await {
            Ok(ack) => ack.await,
            Err(error) => Err(error),
        };
        stored.map(|_| ()).map_err(|error| publish_error(what, self, family, error))
    }
}

fn read(subject: &str, payload: &[u8]) -> Option<StepRecord> {
    let step: Result<v1::Step, _> = serde_json::from_slice(payload);
    match step.map_err(|error| error.to_string()).and_then(|step| convert::record(&step)) {
        Ok(record) => Some(record),
        Err(error) => {
            warn!(subject, %error, "A step can't be read, leaving it out");
            None
        }
    }
}
