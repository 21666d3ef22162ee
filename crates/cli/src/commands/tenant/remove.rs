//! `carrick tenant remove`: Tenant and Secret go, and with an administrator's kubeconfig Carrick's
//! account in the tenant; what is on the host for its claims stays.

use std::{
    collections::BTreeSet,
    fmt,
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use carrick_core::{Domain, Locator, Names, SyncTarget, decide::ownership::has_finalizer};
use carrick_k8s::{
    Client, Error, Tenant,
    access::{NAME, NAMESPACE},
    target::CONFIG_MAP,
    tenant::{OnRemoval, SecretKey},
};
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Secret,
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::json;

use super::{account, identity, installed_tenants, secret_name, thing::Thing, who};
use crate::{
    connect::{self, HostBeside},
    output::{ask, say},
};

/// Which tenant.
#[derive(Debug, clap::Args)]
#[command(after_help = "What stays behind, and is counted before it asks:\n  \
    on the host: the tenant's claims, with their volumes and data\n  \
    in the tenant: Carrick's finalizer workload.<domain>/syncer-<key> on claims and volumes; what \
    is deleted there goes only once an administrator of the tenant has taken it off, with the \
    kubectl patch that is printed with that finalizer\n\n\
    Examples:\n  \
    carrick tenant remove acme\n  \
    carrick tenant remove acme --yes --kubeconfig acme.yaml\n\n\
    Exit codes: 0 removed, or kept after the answer no; 1 failed; 2 wrong use.")]
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
    let left = left(&host, &settings.system_namespace, tenant, admin.as_ref()).await;
    if !yes && !confirmed(&name, &left)? {
        return say("nothing was changed");
    }
    let uid = tenant.metadata.uid.as_deref();
    Thing::cluster::<Tenant>(&host, &name).delete(uid).await?;
    say(&format!("tenant {name} removed\n{left}"))?;
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
        on_host: Result<usize>,
        in_tenant: Result<(usize, usize)>,
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
            Some(admin) => held(admin, &finalizer).await,
            None => held(&as_carrick(host, tenant).await?, &finalizer).await,
        }
    };
    let cluster = tenant.cluster();
    let on_host = claims_on_host(host, &target, &names, &cluster);
    let (on_host, in_tenant) = tokio::join!(on_host, in_tenant);
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

/// How many claims are on the host for this logical cluster.
async fn claims_on_host(
    host: &Client,
    target: &SyncTarget,
    names: &Names,
    cluster: &str,
) -> Result<usize> {
    let kube = host.kube();
    let ours = ListParams::default().labels(&format!("{}={}", names.cluster(), names.key()));
    let is_of_tenant = |namespace: &Namespace| {
        let locator = namespace.annotations().get(&names.locator());
        let locator = locator.and_then(|text| Locator::parse(text).ok());
        locator.is_some_and(|found| found.target == *target && found.cluster == cluster)
    };
    let namespaces = Api::<Namespace>::all(kube.clone()).list(&ours).await;
    let namespaces = asked("the host's namespaces", namespaces)?.items;
    let namespaces: BTreeSet<_> =
        namespaces.iter().filter(|found| is_of_tenant(found)).map(ResourceExt::name_any).collect();
    let claims = Api::<PersistentVolumeClaim>::all(kube.clone()).list_metadata(&ours).await;
    let claims = asked("the host's claims", claims)?.items;
    let namespace = |claim: &_| ResourceExt::namespace(claim).unwrap_or_default();
    Ok(claims.iter().filter(|claim| namespaces.contains(&namespace(*claim))).count())
}

/// How many claims and volumes of a tenant have the finalizer.
async fn held(tenant: &Client, finalizer: &str) -> Result<(usize, usize)> {
    let all = ListParams::default();
    let claims = Api::<PersistentVolumeClaim>::all(tenant.kube().clone());
    let volumes = Api::<PersistentVolume>::all(tenant.kube().clone());
    let (claims, volumes) = tokio::join!(claims.list_metadata(&all), volumes.list_metadata(&all));
    let (claims, volumes) = (asked("its claims", claims)?, asked("its volumes", volumes)?);
    let claims = claims.iter().filter(|claim| has_finalizer(&claim.metadata, finalizer)).count();
    let volumes =
        volumes.iter().filter(|volume| has_finalizer(&volume.metadata, finalizer)).count();
    Ok((claims, volumes))
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
        match on_host {
            Ok(0) => write!(f, "on the host: no claim of it is there")?,
            Ok(1) => write!(f, "on the host: 1 claim stays, with its volume")?,
            Ok(count) => write!(f, "on the host: {count} claims stay, with their volumes")?,
            Err(error) => write!(
                f,
                "on the host: its claims stay, with their volumes; how many can't be counted: {error:#}"
            )?,
        }
        if *on_removal == OnRemoval::Delete {
            // No service does it.
            write!(f, " (spec.onRemoval: Delete is not carried out by this version)")?;
        }
        match in_tenant {
            Ok((0, 0)) => return write!(f, "\nin the tenant: nothing has Carrick's finalizer"),
            Ok((claims, volumes)) => write!(
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
        assert_eq!(
            said(Ok(0), Ok((0, 0)), retain),
            "on the host: no claim of it is there\nin the tenant: nothing has Carrick's finalizer"
        );
        let some = said(Ok(1), Ok((2, 1)), retain);
        assert!(some.starts_with("on the host: 1 claim stays, with its volume\n"), "{some}");
        assert!(some.contains("finalizer stays on claims (2) and volumes (1)\n"), "{some}");
        assert!(some.contains(r#"finalizers":["workload.kcp.dev/syncer-K"]}}'"#), "{some}");
        let no = || Err(anyhow!("forbidden"));
        let unknown = said(no(), no().map(|count| (count, 0)), OnRemoval::Delete);
        assert_eq!(unknown.matches("can't be counted: forbidden").count(), 2, "{unknown}");
        assert!(unknown.contains("Delete is not carried out"), "{unknown}");
        assert!(unknown.contains("kubectl patch pvc"), "{unknown}");
    }
}
