//! `carrick tenant remove`: Tenant and Secret go; what is on the host for its claims stays.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result, bail};
use carrick_k8s::Tenant;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, Preconditions},
};

use super::{secret_name, tenants};
use crate::{HostChoice, connect};

/// Which tenant.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the Tenant
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[clap(flatten)]
    host: HostChoice,
}

pub(crate) async fn run(args: Args) -> Result<()> {
    let Args { name, yes, host } = args;
    let (host, settings) = connect::host(&host).await?;
    let found = tenants(&host).get_opt(&name).await.context("ask the host")?;
    let Some(tenant) = found else {
        bail!("there is no tenant {name}: `carrick tenant list` shows them");
    };
    if !yes && !confirmed(&tenant, &name)? {
        println!("nothing was changed");
        return Ok(());
    }
    let only_this = DeleteParams {
        preconditions: Some(Preconditions {
            uid: tenant.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let deleted = tenants(&host).delete(&name, &only_this).await;
    deleted.map(drop).with_context(|| format!("delete Tenant {name}"))?;
    println!("tenant {name} removed; its claims and volumes on the host stay as they are");
    let reference = &tenant.spec.kubeconfig.secret_ref;
    let ours =
        reference.name == secret_name(&name) && reference.namespace == settings.system_namespace;
    if ours {
        let secrets: Api<Secret> = Api::namespaced(host.kube().clone(), &reference.namespace);
        match secrets.delete(&reference.name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => {
                Err(error).with_context(|| format!("delete Secret {}", reference.name))?;
            }
        }
    } else {
        println!(
            "Secret {}/{} was not made by carrick, and stays",
            reference.namespace, reference.name
        );
    }
    println!(
        "in the tenant, Carrick's account stays too; an administrator removes it with\n  \
         kubectl delete clusterrolebinding,clusterrole carrick; kubectl delete namespace {}",
        carrick_k8s::access::NAMESPACE
    );
    Ok(())
}

fn confirmed(tenant: &Tenant, name: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        bail!("removing tenant {name} needs --yes where nobody can be asked");
    }
    let claims: u32 = tenant.status.iter().flat_map(|status| status.claims.values()).sum();
    print!("remove tenant {name}? it has {claims} claims, whose volumes stay on the host [y/N] ");
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
