//! `carrick tenant add`: checks everything first, then makes what is needed; if that fails, takes
//! back what it has made.

mod check;
mod make;
mod spec;
mod undo;
mod wait;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use carrick_engine::settings::{HostSettings, duration};
use carrick_k8s::{Client, Tenant, access, tenant::AllowedClass};

use crate::{
    connect::{self, HostBeside},
    output::say,
};

/// Which tenant, and what it may do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Everything is checked first: a tenant that can't be added changes nothing, \
    and if a later step fails, what was made is taken back.\n\n\
    Examples:\n  \
    carrick tenant add acme --kubeconfig acme.yaml\n  \
    carrick tenant add acme --kubeconfig acme.yaml --dry-run\n  \
    carrick tenant add acme --kubeconfig all.yaml --context acme --host-kubeconfig host.yaml\n  \
    carrick tenant add acme --kubeconfig acme.yaml --class fast=ssd --class standard \
    --default-class standard\n\n\
    Exit codes: 0 added, also if nothing has reported on it yet; 1 failed, or added but not \
    accepted or not connected; 2 wrong use."
)]
pub(crate) struct Args {
    /// Name of the Tenant
    #[arg(value_parser = spec::tenant_name)]
    name: String,
    /// Kubeconfig of an administrator of the tenant; used once, and not kept
    #[arg(long = "kubeconfig", value_name = "FILE")]
    admin: PathBuf,
    /// Context in that kubeconfig; its current one without it
    #[arg(long = "context", alias = "tenant-context", value_name = "NAME")]
    admin_context: Option<String>,
    /// Logical cluster name in locators; the Tenant's name without it. It can't be changed later
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// A storage class that it may use, with its name on the host if that is another; can be
    /// repeated. Without any, it may use all of the host's
    #[arg(long = "class", value_name = "NAME[=HOST]", value_parser = spec::class)]
    classes: Vec<AllowedClass>,
    /// It may use all storage classes of the host, besides those named
    #[arg(long)]
    all_classes: bool,
    /// The class for its claims that name none, which are refused without it: one given by --class,
    /// or of the host if it may use all
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
    #[arg(long, value_enum, ignore_case = true, default_value_t = Binder::Auto)]
    volume_binder: Binder,
    /// Check everything and say what would be made, but change nothing
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for Carrick to connect to it, as 30s or 2m; 0s: not at all
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = patience)]
    wait: Duration,
    #[clap(flatten)]
    host: HostBeside,
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

/// Both control planes, and what is to be made.
struct Plan {
    host: Client,
    settings: HostSettings,
    admin: Client,
    /// Who the tenant's control plane is.
    identity: String,
    tenant: Tenant,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let (host, settings) = args.host.connect().await?;
    // What is wrong with the options alone needs no answer from anyone.
    let tenant = spec::tenant(&args, &settings.system_namespace)?;
    let (file, context) = (args.admin.as_path(), args.admin_context.as_deref());
    let admin = connect::client(Some(file), context).await.context("the tenant (--kubeconfig)")?;
    let identity = check::check(&host, &settings, &admin, &tenant).await?;
    let plan = Plan { host, settings, admin, identity, tenant };
    if args.dry_run {
        return say(&would(&args.name, &plan));
    }
    let expires = make::make(&plan).await?;
    say(&format!("tenant {} added", args.name))?;
    say(classes(&plan.tenant))?;
    if let Some(expires) = expires {
        let until = expires.strftime("%Y-%m-%d");
        say(&format!("Carrick's credentials for it are valid until {until}"))?;
    }
    wait::wait(&plan.host, &args.name, args.wait).await
}

/// What would be made.
fn would(name: &str, plan: &Plan) -> String {
    let Plan { host, settings, admin, identity: _, tenant } = plan;
    let text = format!(
        "tenant {name} can be added; nothing was changed. It would be made:\n  \
         in the tenant at {}: ServiceAccount {}/{} with just the rights it needs\n  \
         on the host at {}: Secret {}/{}, Tenant {name}\n{}",
        admin.server(),
        access::NAMESPACE,
        access::NAME,
        host.server(),
        settings.system_namespace,
        tenant.spec.kubeconfig.secret_ref.name,
        classes(tenant)
    );
    text.trim_end().to_owned()
}

/// What is not restricted, for it may be meant otherwise.
fn classes(tenant: &Tenant) -> &'static str {
    if tenant.spec.storage_classes.allow_all {
        "it may use every storage class of the host; --class restricts it"
    } else {
        ""
    }
}

/// A duration that may be zero; a number alone is one of seconds.
/// Parses a duration that may be none.
pub(super) fn patience(text: &str) -> Result<Duration, String> {
    match (text, text.parse()) {
        ("0s", _) => Ok(Duration::ZERO),
        (_, Ok(seconds)) => Ok(Duration::from_secs(seconds)),
        _ => duration(text).map_err(|_| "use a duration, as 30s, 2m or 0s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_may_be_none() {
        for (text, seconds) in [("0s", 0), ("0", 0), ("5", 5), ("30s", 30), ("2m", 120)] {
            assert_eq!(patience(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert!(patience("soon").unwrap_err().contains("30s"));
        assert!(patience("-1s").is_err());
    }
}
