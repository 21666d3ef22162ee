//! Makes account, Secret and Tenant, or nothing.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use carrick_k8s::{
    Client, ConnectionProblem, Error, Tenant,
    access::{self, Access},
    crd::{CRD, apply_crd},
    identity,
    problem::FORBIDDEN,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    super::{account, thing::Thing},
    Plan,
    spec::KEY,
    undo::Undo,
};
use crate::connect;

/// How long the host may take until it serves Tenants.
const DEFINED_WITHIN: Duration = Duration::from_secs(10);
/// How long the tenant may take until new rights hold.
const RIGHTS_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(100);

/// Makes all of it; when the account's token runs out. After a failure or Ctrl-C nothing of it is
/// left.
pub(super) async fn make(plan: &Plan) -> Result<Option<Timestamp>> {
    let mut undo = Undo::default();
    let made = tokio::select! {
        made = all(plan, &mut undo) => made,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    let Err(error) = made else { return made };
    let left = undo.take_back(&plan.host).await;
    for left in &left {
        eprintln!("carrick: could not be taken back: {left}");
    }
    let rest = if left.is_empty() { "nothing is left of it" } else { "but some of it is left" };
    let name = plan.tenant.name_any();
    Err(error).with_context(|| format!("tenant {name} was not added, {rest}"))
}

async fn all(plan: &Plan, undo: &mut Undo) -> Result<Option<Timestamp>> {
    let Plan { host, settings, admin, identity, tenant } = plan;
    let access = make_account(admin, undo).await?;
    let usable = is_usable(&access.kubeconfig, identity).await;
    usable.context("use Carrick's new account in the tenant")?;

    let definition = Thing::cluster::<CustomResourceDefinition>(host, CRD);
    // One that is there may be newer than this program's.
    if !definition.exists().await.context("ask the host")? {
        undo.note_definition(definition);
        apply_crd(host, DEFINED_WITHIN).await.context("define Tenants on the host")?;
    }
    let namespace = Thing::cluster::<Namespace>(host, &settings.system_namespace);
    if !namespace.exists().await.context("ask the host")? {
        create(undo, namespace, &json!({})).await?;
    }
    let name = &tenant.spec.kubeconfig.secret_ref.name;
    let secret = Thing::namespaced::<Secret>(host, &settings.system_namespace, name);
    let content = json!({
        "metadata": {"labels": {"app.kubernetes.io/managed-by": "carrick"}},
        "stringData": {KEY: access.kubeconfig},
    });
    create(undo, secret, &content).await?;
    let made = Thing::cluster::<Tenant>(host, &tenant.name_any());
    create(undo, made, &json!({"spec": tenant.spec})).await?;
    Ok(access.expires)
}

/// An account that is there already is another installation's too, and is not taken back.
async fn make_account(admin: &Client, undo: &mut Undo) -> Result<Access> {
    let [account, role, binding] = account::parts(admin);
    for part in [account::namespace(admin), account, role, binding] {
        if !part.exists().await.context("ask the tenant")? {
            undo.note(part);
        }
    }
    access::grant(admin).await.context("make Carrick's account in the tenant")
}

async fn create(undo: &mut Undo, thing: Thing, rest: &Value) -> Result<()> {
    let shown = thing.to_string();
    let made = undo.create(thing, rest).await;
    made.map_err(|error| Error::of(&shown, &error)).context("make it on the host")
}

/// Whether the kubeconfig leads to this control plane, and the new rights hold there.
async fn is_usable(kubeconfig: &str, expected: &str) -> Result<()> {
    let client = Client::from_kubeconfig(kubeconfig, &connect::options()).await?;
    let deadline = Instant::now() + RIGHTS_WITHIN;
    loop {
        let error = match identity(&client).await {
            Ok(found) => {
                ensure!(found == expected, "{} is another control plane by now", client.server());
                return Ok(());
            }
            Err(error) => error,
        };
        match error.problem() {
            Some(ConnectionProblem { reason: FORBIDDEN, .. }) if Instant::now() < deadline => {
                sleep(POLL).await;
            }
            _ => bail!(error),
        }
    }
}
