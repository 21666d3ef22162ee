//! One active instance: it holds the Lease while its session runs. Others stand by, ready to take
//! over.

use std::{sync::Arc, time::Duration};

use carrick_k8s::Leader;
use tokio::{
    pin,
    time::{Instant, sleep},
};

use crate::{
    session,
    shared::{Gates, Shared},
};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A session that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(30);
/// Who has to wait this long for the Lease stands by.
const STANDS_BY: Duration = Duration::from_secs(3);

/// Leads whenever it may, for ever.
pub(crate) async fn lead(leader: &Leader, shared: &Arc<Shared>, gates: &Gates) {
    let mut pause = FIRST_PAUSE;
    loop {
        acquire(leader, gates).await;
        tracing::info!("Active");
        gates.leader.open();
        gates.host_objects.close();
        gates.tenant_objects.close();
        let begun = Instant::now();
        let ended = tokio::select! {
            biased;
            () = leader.hold() => anyhow::anyhow!("another instance may have the lease"),
            ended = session::run(shared, gates) => ended,
        };
        if begun.elapsed() > GOOD {
            pause = FIRST_PAUSE;
        }
        let error = format!("{ended:#}");
        tracing::warn!(error, ?pause, "Not active any more, and begins anew");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits for the Lease; meanwhile a standby is ready.
async fn acquire(leader: &Leader, gates: &Gates) {
    let acquired = leader.acquire();
    pin!(acquired);
    tokio::select! {
        () = &mut acquired => return,
        () = sleep(STANDS_BY) => {}
    }
    tracing::info!("Standing by");
    for gate in [&gates.leader, &gates.host_objects, &gates.tenant_objects] {
        gate.open();
    }
    acquired.await;
}
