//! `carrick tenant add`: checks everything first, then makes what is needed; if that fails, takes
//! back what it has made.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use carrick_k8s::{
    Client, Tenant, TenantSpec, access,
    crd::apply_crd,
    tenant::{
        ACCEPTED, AllowedClass, CONNECTED, Classes, KubeconfigSource, NamespacePatterns, SecretKey,
        Select, SelectMode, VolumeBinder, rules,
    },
};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, ResourceExt as _, api::DeleteParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{all_tenants, post, secret_name, tenants, who};
use crate::connect;

const KEY: &str = "kubeconfig";
const CRD_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

/// Which tenant, and what it may do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    carrick tenant add acme --kubeconfig acme.yaml\n  \
    carrick tenant add acme --kubeconfig acme.yaml --class fast=ssd --class standard \
    --default-class standard")]
pub(crate) struct Args {
    /// Name of the Tenant
    name: String,
    /// Kubeconfig of an administrator of the tenant; used once, and not kept
    #[arg(long = "kubeconfig", value_name = "FILE")]
    admin: PathBuf,
    /// Context in that kubeconfig; its current one without it
    #[arg(long = "tenant-context", value_name = "NAME")]
    admin_context: Option<String>,
    /// Logical cluster name in locators; the Tenant's name without it. It can't be changed later
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// A storage class that it may use, with its name on the host if that is another; can be
    /// repeated. Without any, it may use all of the host's
    #[arg(long = "class", value_name = "NAME[=HOST]")]
    classes: Vec<String>,
    /// It may use all storage classes of the host, besides those named
    #[arg(long)]
    all_classes: bool,
    /// The class for its claims that name none
    #[arg(long, value_name = "NAME")]
    default_class: Option<String>,
    /// Carry down only claims in namespaces that match; * stands for any text; can be repeated
    #[arg(long, value_name = "PATTERN")]
    namespaces: Vec<String>,
    /// Leave out claims in namespaces that match; can be repeated
    #[arg(long, value_name = "PATTERN", default_value = "kube-*")]
    exclude: Vec<String>,
    /// Carry down only claims that are labeled for this installation
    #[arg(long)]
    labeled: bool,
    /// Who binds claims to volumes in the tenant
    #[arg(long, value_enum, default_value_t = Binder::Auto)]
    volume_binder: Binder,
    /// How long to wait for Carrick to connect to it, in seconds; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
    #[clap(flatten)]
    host: HostOptions,
}

/// The host; its kubeconfig is another one than the tenant's.
#[derive(Debug, clap::Args)]
struct HostOptions {
    /// Kubeconfig of the host; without it, as kubectl finds it
    #[arg(long, value_name = "FILE", env = "CARRICK_KUBECONFIG")]
    host_kubeconfig: Option<PathBuf>,
    /// Context in the host's kubeconfig
    #[arg(long, value_name = "NAME", env = "CARRICK_CONTEXT")]
    host_context: Option<String>,
    /// Carrick's own namespace on the host
    #[arg(
        long,
        value_name = "NAME",
        env = "CARRICK_SYSTEM_NAMESPACE",
        default_value = "carrick-system"
    )]
    system_namespace: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Binder {
    /// Carrick finds out.
    Auto,
    /// The tenant's own kube-controller-manager.
    Tenant,
    /// Carrick: the tenant has none.
    Carrick,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let (host, admin) = clients(&args).await?;
    let tenant = check(&args, &host, &admin).await?;
    make(&args, &host, &admin, &tenant).await?;
    println!("tenant {} added", args.name);
    if tenant.spec.storage_classes.allow_all {
        println!("it may use every storage class of the host; --class restricts it");
    }
    wait(&args, &host).await
}

async fn clients(args: &Args) -> Result<(Client, Client)> {
    let HostOptions { host_kubeconfig, host_context, .. } = &args.host;
    let options = connect::options();
    let host = Client::connect(host_kubeconfig.as_deref(), host_context.as_deref(), &options);
    let host = host.await.context("the host (CARRICK_KUBECONFIG)")?;
    let context = args.admin_context.as_deref();
    let admin = Client::connect(Some(&args.admin), context, &options).await;
    Ok((host, admin.context("the tenant (--kubeconfig)")?))
}

/// The Tenant to make, if it may be made; changes nothing.
async fn check(args: &Args, host: &Client, admin: &Client) -> Result<Tenant> {
    let tenant = Tenant::new(&args.name, spec(args)?);
    if let Err(problems) = rules(&tenant) {
        bail!("tenant {} is not valid: {}", args.name, problems.join("; "));
    }
    ensure!(
        is_name(&args.name),
        "{:?} is no name for a tenant: up to 200 of a-z, 0-9, - and ., as acme or acme.team-a",
        args.name
    );
    let (host_is, tenant_is) = tokio::join!(who(host, "the host"), who(admin, "the tenant"));
    let (host_is, tenant_is) = (host_is?, tenant_is?);
    ensure!(
        host_is != tenant_is,
        "{} is the host itself, and can't be its own tenant",
        admin.server()
    );
    for other in all_tenants(host).await? {
        let name = other.name_any();
        ensure!(
            name != args.name,
            "tenant {name} exists already: choose another name, or remove it"
        );
        let identity = other.status.as_ref().and_then(|status| status.identity.as_ref());
        ensure!(
            identity != Some(&tenant_is),
            "this control plane is tenant {name} already: it can't be added twice"
        );
        ensure!(
            other.cluster() != tenant.cluster(),
            "tenant {name} has the logical cluster {} already: choose another by --cluster",
            tenant.cluster()
        );
    }
    let secrets = secrets(args, host);
    let found = secrets.get_opt(&secret_name(&args.name)).await.context("ask the host")?;
    ensure!(
        found.is_none(),
        "Secret {}/{} exists already: it is not overwritten; delete it if it is left over",
        args.host.system_namespace,
        secret_name(&args.name)
    );
    Ok(tenant)
}

/// Whether this may be the name of a Tenant, and with a prefix that of its Secret: a DNS-1123
/// subdomain.
fn is_name(name: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(inside)
    };
    name.len() <= 200 && name.split('.').all(is_label)
}

fn spec(args: &Args) -> Result<TenantSpec> {
    let allowed = args.classes.iter().map(|class| match class.split_once('=') {
        Some((tenant, host)) if !host.is_empty() => {
            Ok(AllowedClass { tenant: tenant.to_owned(), host: Some(host.to_owned()) })
        }
        Some(_) => bail!("--class {class:?} names no class of the host: write NAME or NAME=HOST"),
        None => Ok(AllowedClass { tenant: class.clone(), host: None }),
    });
    let secret_ref = SecretKey {
        namespace: args.host.system_namespace.clone(),
        name: secret_name(&args.name),
        key: KEY.to_owned(),
    };
    let storage_classes = Classes {
        allow_all: args.all_classes || args.classes.is_empty(),
        allowed: allowed.collect::<Result<_>>()?,
        default: args.default_class.clone(),
    };
    // Everything that is not said has the default of the definition.
    let mut spec: TenantSpec =
        serde_json::from_value(json!({"kubeconfig": KubeconfigSource { secret_ref }}))?;
    spec.cluster.clone_from(&args.cluster);
    spec.select = Select {
        mode: if args.labeled { SelectMode::Labeled } else { SelectMode::All },
        namespaces: NamespacePatterns {
            include: args.namespaces.clone(),
            exclude: args.exclude.clone(),
        },
        label_selector: None,
    };
    spec.storage_classes = storage_classes;
    spec.volume_binder = match args.volume_binder {
        Binder::Auto => VolumeBinder::Auto,
        Binder::Tenant => VolumeBinder::Tenant,
        Binder::Carrick => VolumeBinder::Carrick,
    };
    Ok(spec)
}

/// Makes account, Secret and Tenant.
async fn make(args: &Args, host: &Client, admin: &Client, tenant: &Tenant) -> Result<()> {
    apply_crd(host, CRD_LIMIT).await.context("install the Tenants' definition on the host")?;
    make_namespace(args, host).await?;
    let granted = access::grant(admin).await.context("make Carrick's account in the tenant");
    let made = match granted {
        Ok(access) => make_on_host(args, host, tenant, &access.kubeconfig).await,
        Err(error) => Err(error),
    };
    let Err(error) = made else { return Ok(()) };
    if let Err(left) = access::revoke(admin).await {
        eprintln!("carrick: Carrick's account in the tenant could not be taken back: {left}");
    }
    Err(error)
}

async fn make_namespace(args: &Args, host: &Client) -> Result<()> {
    let name = &args.host.system_namespace;
    let api: Api<Namespace> = Api::all(host.kube().clone());
    if api.get_opt(name).await.context("ask the host")?.is_none() {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        let made = api.create(&post(host), &namespace).await;
        made.with_context(|| format!("make namespace {name} on the host"))?;
    }
    Ok(())
}

async fn make_on_host(args: &Args, host: &Client, tenant: &Tenant, kubeconfig: &str) -> Result<()> {
    let name = secret_name(&args.name);
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "carrick"}},
        "stringData": {KEY: kubeconfig},
    }))?;
    let api = secrets(args, host);
    let made = api.create(&post(host), &secret).await;
    made.map(drop).with_context(|| format!("make Secret {name} on the host"))?;
    let Err(error) = tenants(host).create(&post(host), tenant).await else { return Ok(()) };
    if let Err(left) = api.delete(&name, &DeleteParams::default()).await {
        eprintln!("carrick: Secret {name} could not be taken back: {left}");
    }
    Err(error).with_context(|| format!("make Tenant {} on the host", args.name))
}

fn secrets(args: &Args, host: &Client) -> Api<Secret> {
    Api::namespaced(host.kube().clone(), &args.host.system_namespace)
}

/// Waits until Carrick says how the tenant stands.
async fn wait(args: &Args, host: &Client) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(args.wait);
    let mut said = None;
    while Instant::now() < deadline {
        let tenant = tenants(host).get(&args.name).await.context("ask the host")?;
        if tenant.is(ACCEPTED) && tenant.is(CONNECTED) {
            println!("connected and accepted");
            return Ok(());
        }
        let status = tenant.status.unwrap_or_default();
        let wrong = status.conditions.into_iter().find(|found| found.status == "False");
        if let Some(wrong) = &wrong {
            let refused = wrong.type_ == ACCEPTED;
            said = Some(format!("{} is false, {}: {}", wrong.type_, wrong.reason, wrong.message));
            if refused {
                break;
            }
        }
        sleep(POLL).await;
    }
    match said {
        Some(said) => bail!("tenant {} was added, but {said}", args.name),
        None if args.wait > 0 => {
            println!("nothing has reported on it yet: does the watcher run?");
            Ok(())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_a_name_that_kubernetes_takes() {
        for name in ["acme", "acme.team-a", "7", &"a".repeat(200)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "a/b", &"a".repeat(201)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
