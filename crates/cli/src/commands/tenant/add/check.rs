//! Whether a tenant may be added; changes nothing.

use anyhow::{Context as _, Result, ensure};
use carrick_engine::settings::HostSettings;
use carrick_k8s::{Client, Tenant, tenant::Classes};
use k8s_openapi::api::{core::v1::Secret, storage::v1::StorageClass};
use kube::ResourceExt as _;

use super::super::{all_tenants, identity, not_installed, thing::Thing, who};

/// Who the tenant's control plane is, if it may be added.
pub(super) async fn check(
    host: &Client,
    settings: &HostSettings,
    admin: &Client,
    tenant: &Tenant,
) -> Result<String> {
    let (host_is, tenant_is) = tokio::join!(who(host, "the host"), who(admin, "the tenant"));
    let (host_is, tenant_is) = (host_is?, tenant_is?);
    ensure!(
        host_is != tenant_is,
        "{} is the host itself, and can't be its own tenant: give the tenant's kubeconfig by \
         --kubeconfig, the host's by --host-kubeconfig",
        admin.server()
    );
    match all_tenants(host).await? {
        Some(others) => {
            others.iter().try_for_each(|other| beside(tenant, &tenant_is, other))?;
        }
        None => eprintln!(
            "carrick: {}: adding a tenant defines what Tenants are, but nothing is carried before \
             carrick-watcher and the other services run with this host",
            not_installed(host)
        ),
    }
    default_class(host, tenant).await?;
    let secret = &tenant.spec.kubeconfig.secret_ref;
    let secret = Thing::namespaced::<Secret>(host, &settings.system_namespace, &secret.name);
    ensure!(
        !secret.exists().await.context("ask the host")?,
        "{secret} exists on the host already, and is not overwritten: delete it if it is left over"
    );
    Ok(tenant_is)
}

/// Whether the class for claims that name none is there, where it may be any of the host's.
async fn default_class(host: &Client, tenant: &Tenant) -> Result<()> {
    let Classes { allow_all: _, allowed, default } = &tenant.spec.storage_classes;
    let named = |class: &String| allowed.iter().any(|allowed| allowed.tenant == *class);
    // "" is none: for volumes that are there already.
    let Some(class) = default.as_ref().filter(|class| !class.is_empty() && !named(class)) else {
        return Ok(());
    };
    let on_host = Thing::cluster::<StorageClass>(host, class);
    ensure!(
        on_host.exists().await.context("ask the host")?,
        "--default-class {class}: the host at {} has no such storage class, and no --class names it",
        host.server()
    );
    Ok(())
}

/// Whether both may be Tenants at the same time.
fn beside(tenant: &Tenant, live: &str, other: &Tenant) -> Result<()> {
    let name = other.name_any();
    ensure!(
        name != tenant.name_any(),
        "tenant {name} exists already: choose another name, or remove it first"
    );
    ensure!(
        identity(other) != Some(live),
        "this control plane is tenant {name} already: it can't be added twice"
    );
    ensure!(
        other.cluster() != tenant.cluster(),
        "tenant {name} has the logical cluster {} already: choose another by --cluster",
        tenant.cluster()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tenant(name: &str, cluster: Option<&str>, identity: Option<&str>) -> Tenant {
        serde_json::from_value(json!({
            "apiVersion": "carrick.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
            "spec": {
                "cluster": cluster, "kubeconfig": {"secretRef": {"namespace": "n", "name": "s"}},
            },
            "status": {"identity": identity},
        }))
        .unwrap()
    }

    #[test]
    fn names_control_planes_and_clusters_are_one_tenants() {
        let new = tenant("acme", None, None);
        for (other, words) in [
            (tenant("acme", Some("x"), None), "tenant acme exists already"),
            (tenant("old", None, Some("me")), "this control plane is tenant old already"),
            (tenant("old", Some("acme"), None), "has the logical cluster acme already"),
        ] {
            let error = beside(&new, "me", &other).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        beside(&new, "me", &tenant("old", None, Some("other"))).unwrap();
        beside(&new, "me", &tenant("older", None, None)).unwrap();
    }
}
