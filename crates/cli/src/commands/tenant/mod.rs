//! `carrick tenant`: add, list, remove.

mod add;
mod list;
mod remove;

use anyhow::{Context as _, Result};
use carrick_k8s::{Client, ConnectionProblem, Error, Tenant, identity, problem};
use kube::{
    Api,
    api::{ListParams, PostParams},
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a tenant: makes an account for Carrick in it, and tells Carrick of it.
    Add(Box<add::Args>),
    /// List the tenants, and how they stand.
    #[command(alias = "ls")]
    List(list::Args),
    /// Remove a tenant; nothing of its claims on the host is touched.
    #[command(alias = "rm")]
    Remove(remove::Args),
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Add(args) => add::run(*args).await,
        Command::List(args) => list::run(args).await,
        Command::Remove(args) => remove::run(args).await,
    }
}

/// Name of the Secret with a tenant's kubeconfig.
fn secret_name(tenant: &str) -> String {
    format!("carrick-tenant-{tenant}")
}

fn tenants(host: &Client) -> Api<Tenant> {
    Api::all(host.kube().clone())
}

/// All Tenants; none if the host does not know what that is yet.
async fn all_tenants(host: &Client) -> Result<Vec<Tenant>> {
    match tenants(host).list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) => {
            let error = Error::of("the list of Tenants", &error);
            match error.problem() {
                Some(ConnectionProblem { reason: problem::NOT_SERVED, .. }) => Ok(Vec::new()),
                _ => Err(error).context("ask the host"),
            }
        }
    }
}

/// Who a control plane is, or plainly why it can't be asked.
async fn who(client: &Client, what: &str) -> Result<String> {
    let asked = identity(client).await;
    asked.with_context(|| format!("{what} at {} can't be used", client.server()))
}

/// Fields are managed by the CLI.
fn post(client: &Client) -> PostParams {
    PostParams { field_manager: Some(client.field_manager().to_owned()), ..PostParams::default() }
}
