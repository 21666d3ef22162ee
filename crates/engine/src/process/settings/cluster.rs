//! Settings of the host cluster and of the sync target.

use std::path::PathBuf;

use carrick_core::Domain;

use super::{
    Problems, Validate,
    problems::{dns_label, given, readable_file},
};

/// Where the host cluster is, as given.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Host cluster")]
pub struct HostArgs {
    /// Kubeconfig file of the host cluster. Without it: $KUBECONFIG, ~/.kube/config, or the
    /// service account of the pod
    #[arg(long, value_name = "FILE", env = "CARRICK_KUBECONFIG")]
    kubeconfig: Option<String>,
    /// Context of the kubeconfig file. Without it: the file's current context
    #[arg(long, value_name = "NAME", env = "CARRICK_CONTEXT")]
    context: Option<String>,
    /// Namespace in the host cluster with Carrick's own objects: the Tenants' credentials, the
    /// sync target, the leases
    #[arg(
        long,
        value_name = "NAME",
        env = "CARRICK_SYSTEM_NAMESPACE",
        default_value = "carrick-system"
    )]
    system_namespace: String,
}

/// Where the host cluster is.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSettings {
    /// Kubeconfig file; `None`: inferred as every Kubernetes client does.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; `None`: its current one.
    pub context: Option<String>,
    /// Carrick's own namespace.
    pub system_namespace: String,
}

impl Validate for HostArgs {
    type Settings = HostSettings;

    fn validate(&self) -> Result<HostSettings, Vec<String>> {
        let Self { kubeconfig, context, system_namespace } = self;
        let mut problems = Problems::default();
        let kubeconfig =
            problems.parse_optional("kubeconfig", kubeconfig.as_deref(), readable_file);
        let context = given(context.as_deref()).map(str::to_owned);
        let namespace = problems.parse("system-namespace", system_namespace, dns_label);
        problems.finish(|| Some(HostSettings { kubeconfig, context, system_namespace: namespace? }))
    }
}

/// Which installation this is, as given.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Sync target")]
pub struct TargetArgs {
    /// Name of this installation; part of the names of streams and, by the sync target's key, of
    /// labels. Fixed once installed
    #[arg(long, value_name = "NAME", env = "CARRICK_SYNC_TARGET", default_value = "carrick")]
    sync_target: String,
    /// Logical cluster of the sync target, as root or root:org. Fixed once installed
    #[arg(long, value_name = "PATH", env = "CARRICK_SYNC_TARGET_CLUSTER", default_value = "root")]
    sync_target_cluster: String,
    /// Domain of labels, annotations and finalizers: kcp.dev (kcp up to 0.10) or kcp.io (later).
    /// Fixed once installed
    #[arg(long, value_name = "DOMAIN", env = "CARRICK_DOMAIN", default_value = "kcp.dev")]
    domain: String,
}

/// Which installation this is. The uid that belongs to a sync target is the host's to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSettings {
    /// The sync target's name.
    pub name: String,
    /// The sync target's logical cluster.
    pub cluster: String,
    /// The domain of names on objects.
    pub domain: Domain,
}

impl Validate for TargetArgs {
    type Settings = TargetSettings;

    fn validate(&self) -> Result<TargetSettings, Vec<String>> {
        let Self { sync_target, sync_target_cluster, domain } = self;
        let mut problems = Problems::default();
        let name = problems.parse("sync-target", sync_target, dns_label);
        let cluster = problems.parse("sync-target-cluster", sync_target_cluster, cluster_path);
        let domain = problems.parse("domain", domain, |text| {
            text.parse().map_err(|_| "use kcp.dev or kcp.io".to_owned())
        });
        problems.finish(|| Some(TargetSettings { name: name?, cluster: cluster?, domain: domain? }))
    }
}

/// A kcp logical cluster: labels joined by `:`.
fn cluster_path(text: &str) -> Result<String, String> {
    if text.split(':').all(|label| dns_label(label).is_ok()) {
        return Ok(text.to_owned());
    }
    Err("use a logical cluster, as root or root:org: lower-case letters, digits and '-' between \
         colons"
        .to_owned())
}
