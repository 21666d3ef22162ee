//! Waiting for what comes, and watching that something stays as it is.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use carrick_testbed::{AuditWrite, ControlPlane, eventually};

/// Between looks at what has to stay as it is.
const LOOK: Duration = Duration::from_millis(500);

/// Tries until it goes well; after `cap`, the last error is the answer.
pub async fn until_ok<T, F: Future<Output = Result<T>>>(
    what: &str,
    cap: Duration,
    mut attempt: impl FnMut() -> F,
) -> Result<T> {
    let mut last = None;
    let found = eventually(what, cap, async || {
        Ok(match attempt().await {
            Ok(value) => Some(value),
            Err(error) => {
                last = Some(error);
                None
            }
        })
    })
    .await;
    match (found, last) {
        (Err(waited), Some(error)) => Err(error.context(waited.to_string())),
        (found, _) => found,
    }
}

/// The writes of Carrick's services that a server has answered, without the renewals of leases.
pub fn carrick_writes(plane: &ControlPlane) -> Result<Vec<AuditWrite>> {
    let ours =
        |write: &AuditWrite| write.user_agent.starts_with("carrick-") && write.resource != "leases";
    Ok(plane.audit_writes()?.into_iter().filter(ours).collect())
}

/// Waits until Carrick has written nothing to any of the servers for as long as `window`, at most
/// `cap`. It must have written to each of them before, else nothing would be seen here at all.
pub async fn until_no_writes(
    planes: &[&ControlPlane],
    window: Duration,
    cap: Duration,
) -> Result<()> {
    let begun = Instant::now();
    let (mut since, mut counts) = (begun, Vec::new());
    loop {
        let mut writes = Vec::new();
        for plane in planes {
            let found = carrick_writes(plane)?;
            ensure!(!found.is_empty(), "no write of Carrick is seen in {}", plane.name());
            writes.push(found);
        }
        let now: Vec<_> = writes.iter().map(Vec::len).collect();
        if now != counts {
            (since, counts) = (Instant::now(), now);
        }
        if since.elapsed() >= window {
            return Ok(());
        }
        if begun.elapsed() >= cap {
            let last: Vec<_> = writes.iter().flat_map(|found| found.iter().rev().take(5)).collect();
            bail!("Carrick goes on writing {cap:?} after all was done, the last: {last:#?}");
        }
        tokio::time::sleep(LOOK).await;
    }
}
