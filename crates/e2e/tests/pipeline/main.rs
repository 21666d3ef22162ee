//! What must hold of Carrick as a whole, on real control planes, a real nats-server and the
//! services as the processes that users run. Each test has a testbed of its own.

mod bad_input;
mod bound;
mod collisions;
mod crashes;
mod deletion;
mod dev;
mod doubled;
mod greedy;
mod hostile;
mod names;
mod order;
mod others;
mod paused;
mod pending;
mod phases;
mod removal;
mod retain;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use carrick_core::names::STORAGE_CONDITION;
use carrick_e2e::{Installation, SERVICES, Stage, until_ok};
use carrick_testbed::throughout;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition};
use kube::{Api, Client};

/// How long anything may take that is not counted in minutes.
const CAP: Duration = Duration::from_mins(1);
/// For how long it is watched that something stays as it is.
const WINDOW: Duration = Duration::from_secs(4);

/// Waits until the condition of Carrick's on a claim has this reason.
async fn until_told(
    client: &Client,
    namespace: &str,
    claim: &str,
    reason: &str,
) -> Result<(PersistentVolumeClaim, PersistentVolumeClaimCondition)> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    until_ok(&format!("{reason} to be told of claim {namespace}/{claim}"), CAP, async || {
        let claim = claims.get(claim).await?;
        let conditions = claim.status.clone().and_then(|status| status.conditions);
        let ours =
            |condition: &PersistentVolumeClaimCondition| condition.type_ == STORAGE_CONDITION;
        let found = conditions.iter().flatten().find(|condition| ours(condition)).cloned();
        let found = found.context("nothing is told")?;
        ensure!(found.reason.as_deref() == Some(reason), "told is {found:?}");
        Ok((claim, found))
    })
    .await
}

/// Waits until `carrick get claims` shows these words of what is below a tenant or namespace.
async fn until_shown(stage: &Stage<'_>, below: &str, words: &str) -> Result<()> {
    until_ok(&format!("{words:?} to be shown of {below}"), CAP, async || {
        let said = stage.carrick.carrick(&["get", "claims", below]).await?;
        ensure!(said.out.contains(words), "{}{}", said.out, said.err);
        Ok(())
    })
    .await
}

/// Fails if any service writes more than `most` lines to its log in this time, or ends.
async fn logs_stay_quiet(
    carrick: &Installation<'_>,
    instance: &str,
    (window, most): (Duration, usize),
) -> Result<()> {
    let lines = || -> Result<BTreeMap<_, _>> {
        let count = |service: &&'static str| {
            Ok((*service, carrick.process(service, instance)?.log().lines().count()))
        };
        SERVICES.iter().map(count).collect()
    };
    let before = lines()?;
    throughout(window, async || {
        carrick.check_alive()?;
        for (service, now) in lines()? {
            let more = now - before[service];
            ensure!(more <= most, "{service} has logged {more} lines in {window:?}");
        }
        Ok(())
    })
    .await
}
