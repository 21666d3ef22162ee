//! `carrick tenant`: add, list, remove.

mod account;
mod add;
mod list;
mod remove;
mod thing;

use anyhow::{Context as _, Result};
use carrick_k8s::{Client, Error, Tenant, problem::NOT_SERVED};
use kube::{Api, api::ListParams};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a tenant: makes an account for Carrick in it, and tells Carrick of it
    Add(Box<add::Args>),
    /// List the tenants, and how they stand
    #[command(alias = "ls")]
    List(list::Args),
    /// Remove a tenant; what it has on the host stays, or goes, as its spec.onRemoval says
    #[command(alias = "rm")]
    Remove(Box<remove::Args>),
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Add(args) => add::run(*args).await,
        Command::List(args) => list::run(args).await,
        Command::Remove(args) => remove::run(*args).await,
    }
}

/// Name of the Secret with a tenant's kubeconfig.
fn secret_name(tenant: &str) -> String {
    format!("carrick-tenant-{tenant}")
}

fn tenants(host: &Client) -> Api<Tenant> {
    Api::all(host.kube().clone())
}

/// Who its control plane was when it was first seen.
fn identity(tenant: &Tenant) -> Option<&str> {
    tenant.status.as_ref()?.identity.as_deref()
}

/// All Tenants; `None` if the host does not know what that is: Carrick is not installed there.
async fn all_tenants(host: &Client) -> Result<Option<Vec<Tenant>>> {
    let error = match tenants(host).list(&ListParams::default()).await {
        Ok(list) => return Ok(Some(list.items)),
        Err(error) => Error::of("the list of Tenants", &error),
    };
    if error.problem().is_some_and(|problem| problem.reason == NOT_SERVED) {
        return Ok(None);
    }
    Err(error).with_context(|| format!("ask the host at {}", host.server()))
}

/// All Tenants, where Carrick is installed.
async fn installed_tenants(host: &Client) -> Result<Vec<Tenant>> {
    all_tenants(host).await?.with_context(|| {
        format!(
            "{}: start carrick-watcher (or all services: carrick dev) with its kubeconfig, or name \
             another host's (CARRICK_KUBECONFIG)",
            not_installed(host)
        )
    })
}

fn not_installed(host: &Client) -> String {
    format!("Carrick is not installed in the host at {}", host.server())
}

/// Who a control plane is.
async fn who(client: &Client, what: &str) -> Result<String> {
    let identity = carrick_k8s::identity(client).await;
    identity.with_context(|| format!("{what} can't be used"))
}
