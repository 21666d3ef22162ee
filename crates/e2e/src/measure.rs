//! How long claims take from their making until their user sees `Bound`.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client,
    api::{PostParams, WatchEvent, WatchParams},
};
use tokio::task::JoinSet;

use crate::claims::{claim, make_namespace, phase};

/// Claims on their way to the API server at a time.
const AT_ONCE: usize = 32;

/// What a round of claims took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From the first claim's making to the last one's `Bound`.
    pub total: Duration,
    /// From each claim's making to its `Bound`, in ascending order.
    pub each: Vec<Duration>,
}

impl Measured {
    /// Claims bound in a second.
    #[allow(clippy::cast_precision_loss, reason = "there are not that many claims")]
    pub fn rate(&self) -> f64 {
        self.each.len() as f64 / self.total.as_secs_f64()
    }

    /// The time within which so many hundredths of the claims were bound.
    pub fn percentile(&self, hundredths: usize) -> Duration {
        let last = self.each.len().saturating_sub(1);
        self.each.get((self.each.len() * hundredths / 100).min(last)).copied().unwrap_or_default()
    }
}

/// Makes these claims all at once and waits until their user sees them all `Bound`. `progress` is
/// told how many are.
pub async fn measure(
    client: &Client,
    namespace: &str,
    names: Vec<String>,
    class: &str,
    (cap, progress): (Duration, impl Fn(usize)),
) -> Result<Measured> {
    make_namespace(client, namespace).await?;
    let count = names.len();
    let begun = Instant::now();
    let (made, bound) = tokio::join!(
        make(client, namespace, names, class),
        tokio::time::timeout(cap, watch(client, namespace, count, progress)),
    );
    let (made, bound) = (made?, bound.context("not all claims were bound in time")??);
    let mut each: Vec<_> = made
        .iter()
        .filter_map(|(name, made)| Some(bound.get(name)?.saturating_duration_since(*made)))
        .collect();
    each.sort_unstable();
    ensure!(each.len() == count, "{} of {count} claims were seen Bound", each.len());
    let last = bound.values().max().copied().unwrap_or(begun);
    Ok(Measured { total: last.saturating_duration_since(begun), each })
}

async fn make(
    client: &Client,
    namespace: &str,
    names: Vec<String>,
    class: &str,
) -> Result<HashMap<String, Instant>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let mut making = JoinSet::new();
    let mut made = HashMap::new();
    for name in names {
        let (api, body) = (api.clone(), claim(&name, class)?);
        if making.len() >= AT_ONCE {
            let (name, time): (String, Instant) =
                making.join_next().await.context("one is on its way")??;
            made.insert(name, time);
        }
        making.spawn(async move {
            let time = Instant::now();
            // A claim that could not be made is missed at the end.
            let _ = api.create(&PostParams::default(), &body).await;
            (name, time)
        });
    }
    made.extend(making.join_all().await);
    Ok(made)
}

/// When each claim was first seen `Bound`, once so many are.
async fn watch(
    client: &Client,
    namespace: &str,
    count: usize,
    progress: impl Fn(usize),
) -> Result<HashMap<String, Instant>> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    let mut bound = HashMap::new();
    let mut version = "0".to_owned();
    while bound.len() < count {
        let params = WatchParams::default().timeout(290);
        let mut events = std::pin::pin!(api.watch(&params, &version).await?);
        while let Some(event) = events.try_next().await? {
            let (WatchEvent::Added(claim) | WatchEvent::Modified(claim)) = event else { continue };
            version = claim.metadata.resource_version.clone().unwrap_or_default();
            let name = claim.metadata.name.clone().unwrap_or_default();
            if phase(&claim) == "Bound" && !bound.contains_key(&name) {
                bound.insert(name, Instant::now());
                progress(bound.len());
            }
            if bound.len() >= count {
                break;
            }
        }
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_times_in_order() {
        let each = (1..=100).map(Duration::from_millis).collect();
        let measured = Measured { total: Duration::from_secs(4), each };
        assert_eq!(measured.percentile(50), Duration::from_millis(51));
        assert_eq!(measured.percentile(99), Duration::from_millis(100));
        assert_eq!(measured.percentile(100), Duration::from_millis(100));
        assert!((measured.rate() - 25.0).abs() < f64::EPSILON);
    }
}
