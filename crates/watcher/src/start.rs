//! Connects to all that the watcher needs, and waits for what is not there yet.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use carrick_bus::Bus;
use carrick_core::{Names, SyncTarget, quiet::Quiet};
use carrick_engine::{Context, wiring};
use carrick_k8s::{
    Class, Client, ClientOptions, Error, Pool, PoolOptions, Tenant, WatchOptions, crd,
    problem::NOT_SERVED, target,
};
use kube::{Api, api::ListParams};
use tokio::{sync::Semaphore, time::sleep};

use crate::{
    metrics::Metrics,
    publisher::{FLYING, Means},
    shared::{Gates, Shared},
};

const AGAIN: Duration = Duration::from_secs(1);
const CRD_LIMIT: Duration = Duration::from_secs(10);

/// Connects to host and bus, fixes the sync target, and follows the Tenants from here on.
pub(crate) async fn start(context: &Context, gates: &Gates) -> anyhow::Result<Arc<Shared>> {
    let settings = &context.settings;
    let mut options = wiring::client_options(context.service);
    options.call_timeout = settings.run.call_timeout;
    options.concurrency = settings.run.concurrency;
    let (host, bus) =
        tokio::try_join!(host(context, gates, options.clone()), connect(context, gates))?;
    let (host, sync_target, pool) = host;
    pool.ready().await;
    gates.tenants.open();
    let names = Names::new(settings.target.domain, sync_target.key());
    let metrics = Metrics::register(&context.registry);
    let means = Means {
        bus: bus.clone(),
        permits: Arc::new(Semaphore::new(FLYING)),
        stored: Arc::default(),
        metrics: metrics.clone(),
    };
    Ok(Arc::new(Shared {
        host,
        bus,
        pool,
        target: sync_target,
        names,
        metrics,
        means,
        said: Quiet::default(),
    }))
}

async fn connect(context: &Context, gates: &Gates) -> anyhow::Result<Bus> {
    let settings = &context.settings;
    let settings = wiring::bus_settings(&settings.bus, &settings.target, context.service)?;
    let bus = Bus::connect(settings).await.context("the bus")?;
    gates.bus.open();
    Ok(bus)
}

async fn host(
    context: &Context,
    gates: &Gates,
    options: ClientOptions,
) -> anyhow::Result<(Client, SyncTarget, Arc<Pool>)> {
    let settings = &context.settings;
    let host = wiring::host_client(&settings.host, &options).await?;
    let wanted = wiring::target_settings(&settings.host, &settings.target);
    let sync_target = patiently(|| target::ensure(&host, &wanted)).await?;
    patiently(|| define_tenants(&host)).await?;
    gates.target.open();
    let pool = Arc::new(Pool::new(
        host.clone(),
        PoolOptions {
            target: sync_target.clone(),
            domain: settings.target.domain,
            clients: Some(options),
            watch: WatchOptions::default(),
        },
    ));
    let (following, shutdown) = (pool.clone(), context.shutdown.clone());
    context.tasks.spawn("tenants", async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = following.run() => {}
        }
        anyhow::Ok(())
    });
    Ok((host, sync_target, pool))
}

/// Installs the Tenants' definition, if the host does not serve Tenants.
async fn define_tenants(host: &Client) -> Result<(), Error> {
    let api: Api<Tenant> = Api::all(host.kube().clone());
    let Err(error) = api.list_metadata(&ListParams::default().limit(1)).await else {
        return Ok(());
    };
    let error = Error::of("the list of Tenants", &error);
    if error.problem().is_some_and(|p| p.reason == NOT_SERVED) {
        tracing::info!("Installing the Tenants' definition");
        return crd::apply_crd(host, CRD_LIMIT).await;
    }
    Err(error)
}

/// Tries until it works, or fails in a way that waiting does not mend.
async fn patiently<T, F>(attempt: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let quiet = Quiet::default();
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if matches!(error.class(), Class::Retry | Class::Conflict) => {
                if quiet.due() {
                    tracing::warn!(%error, "Waiting for the host");
                }
            }
            Err(error) => return Err(error),
        }
        sleep(AGAIN).await;
    }
}
