//! `carrick tenant remove`: Tenant and Secret go, and with an administrator's kubeconfig Carrick's
//! account in the tenant; what is on the host for its claims stays.

use std::{
    collections::BTreeSet,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result, bail, ensure};
use carrick_core::{Domain, Locator, Names, SyncTarget};
use carrick_k8s::{
    Client, Tenant,
    access::{NAME, NAMESPACE},
    target::CONFIG_MAP,
    tenant::OnRemoval,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Secret};
use kube::{Api, ResourceExt, api::ListParams};

use super::{account, identity, installed_tenants, secret_name, thing::Thing, who};
use crate::{
    connect::{self, HostBeside},
    output::{ask, say},
};

/// Which tenant.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Its claims and volumes on the host stay as they are. So do the copies in the \
    tenant, with Carrick's finalizers: what is deleted there afterwards goes only once somebody \
    takes the finalizer workload.<domain>/syncer-<key> off it.\n\n\
    Examples:\n  \
    carrick tenant remove acme\n  \
    carrick tenant remove acme --yes --kubeconfig acme.yaml\n\n\
    Exit codes: 0 removed, or kept after the answer no; 1 failed; 2 wrong use."
)]
pub(crate) struct Args {
    /// Name of the Tenant
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Kubeconfig of an administrator of the tenant, to remove Carrick's account there too; its own
    /// credentials do not allow that
    #[arg(long = "kubeconfig", value_name = "FILE")]
    admin: Option<PathBuf>,
    /// Context in that kubeconfig; its current one without it
    #[arg(long = "context", value_name = "NAME", requires = "admin")]
    admin_context: Option<String>,
    #[clap(flatten)]
    host: HostBeside,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let Args { name, yes, admin, admin_context, host } = args;
    let (host, settings) = host.connect().await?;
    let all = installed_tenants(&host).await?;
    let Some(tenant) = all.iter().find(|tenant| tenant.name_any() == name) else {
        bail!("there is no tenant {name}: `carrick tenant list` shows them");
    };
    let admin = match admin {
        Some(file) => {
            let admin = connect::client(Some(&file), admin_context.as_deref()).await;
            let admin = admin.context("the tenant (--kubeconfig)")?;
            check_admin(&host, tenant, &all, &admin).await?;
            Some(admin)
        }
        None => None,
    };
    let claims = claims_on_host(&host, &settings.system_namespace, &tenant.cluster()).await;
    let stays = stays(claims, tenant.spec.on_removal);
    if !yes && !confirmed(&name, &stays)? {
        return say("nothing was changed");
    }
    let uid = tenant.metadata.uid.as_deref();
    Thing::cluster::<Tenant>(&host, &name).delete(uid).await?;
    say(&format!("tenant {name} removed; {stays}"))?;
    remove_secret(&host, tenant, &settings.system_namespace).await?;
    match admin {
        Some(admin) => remove_account(&admin).await,
        None => say(&format!(
            "Carrick's account in the tenant stays, for its own credentials can't remove it; an \
             administrator of the tenant does so with\n  \
             kubectl delete clusterrolebinding/{NAME} clusterrole/{NAME}\n  \
             kubectl delete serviceaccount/{NAME} --namespace {NAMESPACE}"
        )),
    }
}

/// Whether this is the control plane of that tenant, and of no other: its account would be gone
/// for that one too.
async fn check_admin(host: &Client, tenant: &Tenant, all: &[Tenant], admin: &Client) -> Result<()> {
    let (host_is, tenant_is) = tokio::join!(who(host, "the host"), who(admin, "the tenant"));
    let (host_is, tenant_is) = (host_is?, tenant_is?);
    let (name, server) = (tenant.name_any(), admin.server());
    ensure!(
        host_is != tenant_is,
        "{server} is the host itself: give the tenant's kubeconfig by --kubeconfig, the host's by \
         --host-kubeconfig; nothing was changed"
    );
    if let Some(known) = identity(tenant) {
        ensure!(
            known == tenant_is,
            "{server} is not the control plane of tenant {name}: check --kubeconfig and \
             --context; nothing was changed"
        );
    }
    for other in all {
        ensure!(
            other.name_any() == name || identity(other) != Some(&tenant_is),
            "{server} is also the control plane of tenant {}, which needs Carrick's account there: \
             leave out --kubeconfig; nothing was changed",
            other.name_any()
        );
    }
    Ok(())
}

/// How many claims are on the host for this logical cluster; an error if that can't be found out.
async fn claims_on_host(host: &Client, system_namespace: &str, cluster: &str) -> Result<usize> {
    let kube = host.kube();
    let maps: Api<ConfigMap> = Api::namespaced(kube.clone(), system_namespace);
    let Some(map) = maps.get_opt(CONFIG_MAP).await? else {
        // Nothing was ever carried to this host.
        return Ok(0);
    };
    let fixed = map.data.unwrap_or_default();
    let text = |key: &str| fixed.get(key).cloned().unwrap_or_default();
    let domain: Domain = text("domain").parse().map_err(anyhow::Error::msg)?;
    let target = SyncTarget { cluster: text("cluster"), name: text("name"), uid: text("uid") };
    let names = Names::new(domain, target.key());
    let ours = ListParams::default().labels(&format!("{}={}", names.cluster(), names.key()));
    let is_of_tenant = |namespace: &Namespace| {
        let locator = namespace.annotations().get(&names.locator());
        let locator = locator.and_then(|text| Locator::parse(text).ok());
        locator.is_some_and(|found| found.target == target && found.cluster == cluster)
    };
    let namespaces = Api::<Namespace>::all(kube.clone()).list(&ours).await?.items;
    let namespaces: BTreeSet<_> =
        namespaces.iter().filter(|found| is_of_tenant(found)).map(ResourceExt::name_any).collect();
    let claims = Api::<PersistentVolumeClaim>::all(kube.clone()).list_metadata(&ours).await?;
    let namespace = |claim: &_| ResourceExt::namespace(claim).unwrap_or_default();
    Ok(claims.items.iter().filter(|claim| namespaces.contains(&namespace(*claim))).count())
}

/// What stays, for a person.
fn stays(claims: Result<usize>, on_removal: OnRemoval) -> String {
    let claims = match claims {
        Ok(0) => "no claim of it is on the host".to_owned(),
        Ok(1) => "1 claim stays on the host, with its volume".to_owned(),
        Ok(count) => format!("{count} claims stay on the host, with their volumes"),
        Err(error) => format!(
            "what is on the host for its claims stays; how many there are could not be counted \
             ({error})"
        ),
    };
    match on_removal {
        OnRemoval::Retain => claims,
        // No service does it.
        OnRemoval::Delete => {
            format!("{claims} (spec.onRemoval: Delete is not carried out by this version)")
        }
    }
}

async fn remove_secret(host: &Client, tenant: &Tenant, system_namespace: &str) -> Result<()> {
    let reference = &tenant.spec.kubeconfig.secret_ref;
    let secret = Thing::namespaced::<Secret>(host, &reference.namespace, &reference.name);
    let ours = secret_name(&tenant.name_any());
    if reference.name != ours || reference.namespace != system_namespace {
        return say(&format!("{secret} was not made by carrick, and stays"));
    }
    secret.delete(None).await.context("the Tenant is gone, its Secret is not")
}

async fn remove_account(admin: &Client) -> Result<()> {
    for part in account::parts(admin).iter().rev() {
        let removed = part.delete(None).await;
        removed.context("Tenant and Secret are gone, Carrick's account in the tenant is not")?;
    }
    say(&format!(
        "Carrick's account in the tenant removed; its namespace {NAMESPACE} stays, for it may hold \
         more"
    ))
}

fn confirmed(name: &str, stays: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("removing tenant {name} needs --yes where nobody can be asked; nothing was changed");
    }
    ask(&format!("remove tenant {name}? {stays} [y/N] "))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_said_plainly() {
        let said = |claims| stays(claims, OnRemoval::Retain);
        assert_eq!(said(Ok(0)), "no claim of it is on the host");
        assert_eq!(said(Ok(1)), "1 claim stays on the host, with its volume");
        assert_eq!(said(Ok(3)), "3 claims stay on the host, with their volumes");
        assert!(said(Err(anyhow::anyhow!("forbidden"))).contains("not be counted (forbidden)"));
        assert!(stays(Ok(3), OnRemoval::Delete).contains("Delete is not carried out"));
    }
}
