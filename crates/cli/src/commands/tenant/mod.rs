//! `carrick tenant`: add, list, remove.

mod account;
mod add;
mod list;
mod remove;
mod thing;

use anyhow::{Context as _, Result, bail};
use carrick_k8s::{
    Client, ConnectionProblem, Error, Tenant,
    problem::{self, CERTIFICATE_INVALID, TIMEOUT, UNAUTHORIZED, UNREACHABLE},
};
use kube::{Api, api::ListParams};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Add a tenant: makes an account for Carrick in it, and tells Carrick of it
    Add(Box<add::Args>),
    /// List the tenants, and how they stand
    #[command(alias = "ls")]
    List(list::Args),
    /// Remove a tenant; nothing of its claims on the host is touched
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

/// All Tenants; none if the host does not know what that is yet.
async fn all_tenants(host: &Client) -> Result<Vec<Tenant>> {
    match tenants(host).list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) => {
            let error = Error::of("the list of Tenants", &error);
            match error.problem() {
                Some(ConnectionProblem { reason: problem::NOT_SERVED, .. }) => Ok(Vec::new()),
                _ => Err(error).with_context(|| format!("ask the host at {}", host.server())),
            }
        }
    }
}

/// Who a control plane is, or plainly why it can't be asked.
async fn who(client: &Client, what: &str) -> Result<String> {
    let error = match carrick_k8s::identity(client).await {
        Ok(identity) => return Ok(identity),
        Err(error) => error,
    };
    let server = client.server();
    let Some(problem) = error.problem() else {
        return Err(error).with_context(|| format!("{what} at {server} can't be used"));
    };
    match problem.reason {
        UNREACHABLE | TIMEOUT => bail!(
            "{what} at {server} does not answer; check the server's address in its kubeconfig, \
             and that it can be reached from here: {problem}"
        ),
        CERTIFICATE_INVALID => bail!(
            "{what} at {server} shows a certificate that is not from the authority in its \
             kubeconfig; check certificate-authority-data: {problem}"
        ),
        UNAUTHORIZED => bail!(
            "{what} at {server} does not know these credentials; check token or client \
             certificate in its kubeconfig: {problem}"
        ),
        _ => bail!("{what} at {server} can't be used: {problem}"),
    }
}
