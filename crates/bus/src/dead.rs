//! Dead claims: what a service failed with too often, until a person has looked at it.

use carrick_core::{Scope, subject::DeadSubject};
use carrick_proto::v1;
use jiff::Timestamp;
use tracing::warn;

use crate::{
    claim::within,
    connect::Bus,
    convert,
    error::{Error, Result},
    streams::Family,
};

/// A claim that a service failed with too often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadReport {
    /// What it is about.
    pub scope: Scope,
    /// The service that gave up.
    pub service: String,
    /// One CamelCase word, for machines.
    pub reason: String,
    /// How often it failed in a row.
    pub failures: u32,
    /// When it gave up.
    pub time: Timestamp,
    /// What the last attempt failed with.
    pub last_error: String,
    /// Uid of the tenant's claim, for the trace; empty when read.
    pub claim_uid: String,
}

impl Bus {
    /// Says that a service gave up on a claim. There is one such message for each claim and
    /// service: a later one replaces it.
    pub async fn publish_dead(&self, report: &DeadReport) -> Result<()> {
        let subject = self.dead_subject(&report.scope, &report.service);
        let message = convert::dead(self.target(), report);
        self.publish_json(Family::Dead, subject, &message, None).await
    }

    /// The dead claims: all, or those in a scope.
    pub async fn dead_claims(&self, scope: Option<&Scope>) -> Result<Vec<DeadReport>> {
        let filter = self.filter(Family::Dead, &within(scope));
        let messages = self.last_messages(Family::Dead, &[filter], 0).await?;
        let read = messages.into_iter().filter_map(|raw| {
            let scope = DeadSubject::parse(&raw.subject)?.scope;
            let dead: Result<v1::DeadClaim, _> = serde_json::from_slice(&raw.payload);
            let dead = dead.map_err(|error| error.to_string());
            dead.and_then(|dead| convert::dead_report(scope, dead))
                .inspect_err(|error| {
                    warn!(subject = raw.subject, %error, "A dead claim can't be read, leaving it out");
                })
                .ok()
        });
        Ok(read.collect())
    }

    /// Takes a claim off the dead ones; nothing happens if it is not one.
    pub async fn drop_dead(&self, scope: &Scope, service: &str) -> Result<()> {
        let subject = self.dead_subject(scope, service);
        let purged = self.stream(Family::Dead).await?.purge().filter(&subject).await;
        purged.map(|_| ()).map_err(|error| Error::server(format!("drop {subject}"), error))
    }

    fn dead_subject(&self, scope: &Scope, service: &str) -> String {
        let subject = DeadSubject {
            target: self.target().to_owned(),
            scope: scope.clone(),
            service: service.to_owned(),
        };
        subject.to_string()
    }
}
