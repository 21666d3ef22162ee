//! `carrick tenant remove`: Tenant and Secret go, and with an administrator's kubeconfig Carrick's
//! account in the tenant. What is on the host for its claims stays, or with `onRemoval: Delete` goes
//! first, which is waited for.

use std::{
    fmt,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use carrick_core::{Domain, Names, SyncTarget};
use carrick_k8s::{
    Client, Error, Tenant,
    access::{NAME, NAMESPACE},
    leftovers::{InTenant, OnHost},
    target::CONFIG_MAP,
    tenant::{FINALIZER, OnRemoval, REMOVED, SecretKey},
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    account, add::patience, identity, installed_tenants, secret_name, tenants, thing::Thing, who,
};
use crate::{
    connect::{self, HostBeside},
    output::{ask, say},
};

const POLL: Duration = Duration::from_millis(200);

/// Which tenant.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With spec.onRemoval: Retain (the default) this stays behind, and is counted before it \
    asks:\n  \
    on the host: the tenant's claims, with their volumes and data\n  \
    in the tenant: Carrick's finalizer workload.<domain>/syncer-<key> on claims and volumes; what \
    is deleted there goes only once an administrator of the tenant has taken it off, with the \
    kubectl patch that is printed with that finalizer\n\n\
    With spec.onRemoval: Delete its claims on the host are deleted first, and their volumes follow \
    their reclaim policy; so does what Carrick made in the tenant, whose claims stay, Lost. Soft \
    finalizers of a claim or of its namespace hold that up. It waits for it, and says what is left. \
    To let the Tenant go meanwhile and leave the rest:\n  \
    kubectl patch tenants.carrick.dev NAME --type merge --patch '{\"spec\":{\"onRemoval\":\"Retain\"}}'\n\n\
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
    /// How long to wait for a Tenant with spec.onRemoval: Delete to go, as 90s or 5m
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = patience)]
    wait: Duration,
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
    let Args { name, yes, wait, admin, admin_context, host } = args;
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
    ensure!(
        tenant.spec.on_removal == OnRemoval::Retain
            || is_kept(tenant)
            || identity(tenant).is_none(),
        "tenant {name} has spec.onRemoval: Delete, which was not taken up: the watcher puts the \
         finalizer {FINALIZER} on it first; does it run? Nothing was changed"
    );
    let left = left(&host, &settings.system_namespace, tenant, admin.as_ref()).await;
    if !yes && !confirmed(&name, &left)? {
        return say("nothing was changed");
    }
    let uid = tenant.metadata.uid.as_deref();
    Thing::cluster::<Tenant>(&host, &name).delete(uid).await?;
    // Its credentials are needed until then.
    match until_gone(&host, tenant, wait).await? {
        OnRemoval::Delete => {
            say(&format!("tenant {name} removed, and all that Carrick had of it"))?;
        }
        OnRemoval::Retain => say(&format!("tenant {name} removed\n{left}"))?,
    }
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

/// What stays behind of a tenant.
enum Left {
    /// Nothing: nothing was ever carried to this host.
    Nothing,
    /// What it is can't be found out.
    Unknown(anyhow::Error),
    /// Claims on the host, and what in the tenant has the finalizer: claims and volumes.
    Objects {
        on_host: Result<OnHost>,
        in_tenant: Result<InTenant>,
        finalizer: String,
        on_removal: OnRemoval,
    },
}

async fn left(
    host: &Client,
    system_namespace: &str,
    tenant: &Tenant,
    admin: Option<&Client>,
) -> Left {
    let (target, names) = match installation(host, system_namespace).await {
        Ok(Some(found)) => found,
        Ok(None) => return Left::Nothing,
        Err(error) => return Left::Unknown(error),
    };
    let finalizer = names.finalizer();
    let in_tenant = async {
        match admin {
            Some(admin) => Ok(InTenant::count(admin, &names).await?),
            None => Ok(InTenant::count(&as_carrick(host, tenant).await?, &names).await?),
        }
    };
    let cluster = tenant.cluster();
    let on_host = OnHost::count(host, &target, &names, &cluster);
    let (on_host, in_tenant) = tokio::join!(on_host, in_tenant);
    let on_host = on_host.map_err(anyhow::Error::from);
    Left::Objects { on_host, in_tenant, finalizer, on_removal: tenant.spec.on_removal }
}

/// The sync target of this host and its names, if it was ever fixed.
async fn installation(
    host: &Client,
    system_namespace: &str,
) -> Result<Option<(SyncTarget, Names)>> {
    let maps: Api<ConfigMap> = Api::namespaced(host.kube().clone(), system_namespace);
    let Some(map) = asked(CONFIG_MAP, maps.get_opt(CONFIG_MAP).await)? else { return Ok(None) };
    let fixed = map.data.unwrap_or_default();
    let text = |key: &str| fixed.get(key).cloned().unwrap_or_default();
    let domain: Domain = text("domain").parse().map_err(anyhow::Error::msg)?;
    let target = SyncTarget { cluster: text("cluster"), name: text("name"), uid: text("uid") };
    let names = Names::new(domain, target.key());
    Ok(Some((target, names)))
}

/// Waits until the Tenant is gone, and says what it waits for; what became of its host side.
async fn until_gone(host: &Client, tenant: &Tenant, limit: Duration) -> Result<OnRemoval> {
    let (name, deadline) = (tenant.name_any(), Instant::now() + limit);
    let (mut said, mut on_removal) = (String::new(), tenant.spec.on_removal);
    loop {
        let found = tenants(host).get_opt(&name).await;
        let found = asked(format!("Tenant {name}"), found)?;
        let Some(found) = found.filter(|found| found.metadata.uid == tenant.metadata.uid) else {
            return Ok(on_removal);
        };
        on_removal = found.spec.on_removal;
        let waits = waits_for(&found);
        if waits != said {
            say(&format!("waits: {waits}"))?;
            said = waits;
        }
        let goes_on =
            format!("it goes on by itself, and `carrick tenant remove {name}` waits again");
        if Instant::now() >= deadline {
            bail!("tenant {name} is not removed after {limit:?}: {said}\n{goes_on}");
        }
        tokio::select! {
            () = sleep(POLL) => {}
            _ = tokio::signal::ctrl_c() => bail!("interrupted; tenant {name} is being removed: {goes_on}"),
        }
    }
}

fn is_kept(tenant: &Tenant) -> bool {
    tenant.finalizers().iter().any(|found| found == FINALIZER)
}

/// What keeps a Tenant that is being deleted.
fn waits_for(tenant: &Tenant) -> String {
    if !is_kept(tenant) {
        return format!("it is held by {}, not by Carrick", tenant.finalizers().join(", "));
    }
    let conditions = tenant.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.into_iter().find(|found| found.type_ == REMOVED);
    told.map_or_else(|| "for the watcher to say what is left".to_owned(), |c| c.message.clone())
}

/// A client of the tenant with Carrick's own credentials there.
async fn as_carrick(host: &Client, tenant: &Tenant) -> Result<Client> {
    let SecretKey { namespace, name, key } = &tenant.spec.kubeconfig.secret_ref;
    let secret = Api::<Secret>::namespaced(host.kube().clone(), namespace).get(name).await;
    let secret = asked(format!("Secret {namespace}/{name}"), secret)?;
    let text = secret.data.and_then(|mut data| data.remove(key)).map(|text| text.0);
    let text = text.with_context(|| format!("Secret {namespace}/{name} has no {key}"))?;
    let text = String::from_utf8(text).map_err(|_| anyhow!("the kubeconfig is no text"))?;
    Ok(Client::from_kubeconfig(&text, &connect::options()).await?)
}

/// An answer, or what it was about that was not answered.
fn asked<T>(what: impl fmt::Display, answer: kube::Result<T>) -> Result<T, Error> {
    answer.map_err(|error| Error::of(what, &error))
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (on_host, in_tenant, finalizer, on_removal) = match self {
            Self::Nothing => {
                return write!(f, "nothing of it stays behind: nothing was carried to this host");
            }
            Self::Unknown(error) => {
                return write!(
                    f,
                    "what was carried stays behind; what it is can't be found out: {error:#}"
                );
            }
            Self::Objects { on_host, in_tenant, finalizer, on_removal } => {
                (on_host, in_tenant, finalizer, on_removal)
            }
        };
        if *on_removal == OnRemoval::Delete {
            return to_be_deleted(f, on_host.as_ref(), in_tenant.as_ref());
        }
        match on_host.as_ref().map(|found| found.claims) {
            Ok(0) => write!(f, "on the host: no claim of it is there")?,
            Ok(1) => write!(f, "on the host: 1 claim stays, with its volume")?,
            Ok(count) => write!(f, "on the host: {count} claims stay, with their volumes")?,
            Err(error) => write!(
                f,
                "on the host: its claims stay, with their volumes; how many can't be counted: {error:#}"
            )?,
        }
        match in_tenant {
            Ok(InTenant { claims: 0, volumes: 0, .. }) => {
                return write!(f, "\nin the tenant: nothing has Carrick's finalizer");
            }
            Ok(InTenant { claims, volumes, .. }) => write!(
                f,
                "\nin the tenant: Carrick's finalizer stays on claims ({claims}) and volumes ({volumes})"
            )?,
            Err(error) => write!(
                f,
                "\nin the tenant: Carrick's finalizer stays on claims and volumes; how many can't be \
                 counted: {error:#}"
            )?,
        }
        let patch =
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}}).to_string();
        write!(
            f,
            "\n  what is deleted there goes only without it; once the Tenant is gone, an administrator \
             of the tenant takes it off with\n  \
             kubectl patch pvc NAME --namespace NAMESPACE --patch '{patch}'\n  \
             kubectl patch pv NAME --patch '{patch}'"
        )
    }
}

fn to_be_deleted(
    f: &mut fmt::Formatter<'_>,
    on_host: Result<&OnHost, &anyhow::Error>,
    in_tenant: Result<&InTenant, &anyhow::Error>,
) -> fmt::Result {
    let counted = |what: Result<String, &anyhow::Error>| {
        what.unwrap_or_else(|error| format!("what there is, which can't be counted: {error:#}"))
    };
    write!(
        f,
        "spec.onRemoval is Delete, so before it goes there are deleted\n  \
         on the host: {}; volumes follow their reclaim policy\n  \
         in the tenant: Carrick's finalizer and what it published: {}; claims stay, Lost",
        counted(on_host.map(ToString::to_string)),
        counted(in_tenant.map(ToString::to_string)),
    )
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

fn confirmed(name: &str, left: &Left) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("removing tenant {name} needs --yes where nobody can be asked; nothing was changed");
    }
    ask(&format!("{left}\nremove tenant {name}? [y/N] "))?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_said_plainly() {
        let said = |on_host, in_tenant, on_removal| {
            let finalizer = "workload.kcp.dev/syncer-K".to_owned();
            Left::Objects { on_host, in_tenant, finalizer, on_removal }.to_string()
        };
        let retain = OnRemoval::Retain;
        let on_host = |claims| Ok(OnHost { claims, namespaces: claims });
        let in_tenant = |claims, volumes| Ok(InTenant { claims, volumes, classes: 0 });
        assert_eq!(
            said(on_host(0), in_tenant(0, 0), retain),
            "on the host: no claim of it is there\nin the tenant: nothing has Carrick's finalizer"
        );
        let some = said(on_host(1), in_tenant(2, 1), retain);
        assert!(some.starts_with("on the host: 1 claim stays, with its volume\n"), "{some}");
        assert!(some.contains("finalizer stays on claims (2) and volumes (1)\n"), "{some}");
        assert!(some.contains(r#"finalizers":["workload.kcp.dev/syncer-K"]}}'"#), "{some}");
        let unknown = said(Err(anyhow!("forbidden")), Err(anyhow!("forbidden")), retain);
        assert_eq!(unknown.matches("can't be counted: forbidden").count(), 2, "{unknown}");
        assert!(unknown.contains("kubectl patch pvc"), "{unknown}");
        let deleted = said(on_host(1), in_tenant(2, 1), OnRemoval::Delete);
        assert!(deleted.contains("on the host: 1 claim, 1 namespace; volumes follow"), "{deleted}");
        assert!(deleted.contains("2 claims, 1 volume; claims stay, Lost"), "{deleted}");
    }
}
