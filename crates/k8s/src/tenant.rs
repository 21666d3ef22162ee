//! The Tenant: what an operator says about a tenant control plane, and what Carrick says back.

#![expect(unreachable_pub, reason = "KubeSchema repeats the struct, as `pub`, inside a function")]
#![expect(clippy::duplicated_attributes, reason = "columns of the same type are no duplicates")]

use std::collections::{BTreeMap, BTreeSet};

use carrick_core::policy::{Binder, ClassRules, Selection, TenantRules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Condition: the tenant's API server can be used.
pub const CONNECTED: &str = "Connected";
/// Condition: all of the tenant's objects that matter are known.
pub const SYNCED: &str = "Synced";
/// Condition: the Tenant is valid and is who it was; without it no service acts on it.
pub const ACCEPTED: &str = "Accepted";
/// Condition of a Tenant that is being deleted: `False` while it waits for its host side to go.
pub const REMOVED: &str = "Removed";
/// Finalizer of a Tenant with `onRemoval: Delete`: its host side is there.
pub const FINALIZER: &str = "carrick.dev/tenant";

/// A tenant control plane whose claims are carried to this host.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "carrick.dev",
    version = "v1alpha1",
    kind = "Tenant",
    plural = "tenants",
    shortname = "ct",
    category = "carrick",
    doc = "A tenant control plane whose claims are carried to this host.",
    status = "TenantStatus",
    derive = "PartialEq",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(
        name = "Connected",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Connected\")].status"
    ),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].status"
    ),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].status"
    ),
    printcolumn(name = "Binder", type_ = "string", json_path = ".status.binder", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new(
    "has(self.cluster) == has(oldSelf.cluster) && (!has(self.cluster) || self.cluster == oldSelf.cluster)"
).message("cluster can't be changed: what is on the host was made for it"))]
pub struct TenantSpec {
    /// Logical cluster name in locators; the Tenant's name if absent. It can't be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// How the tenant's API server is reached.
    pub kubeconfig: KubeconfigSource,
    /// Which claims are carried down.
    #[serde(default)]
    pub select: Select,
    /// Which storage classes its claims may use.
    #[serde(default)]
    pub storage_classes: Classes,
    /// Which volume attributes classes its claims may use.
    #[serde(default)]
    pub volume_attributes_classes: Classes,
    /// Who binds claims to volumes in the tenant.
    #[serde(default)]
    pub volume_binder: VolumeBinder,
    /// What becomes of its claims on the host when the Tenant is removed.
    #[serde(default)]
    pub on_removal: OnRemoval,
    /// Its share when tenants compete.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,
    /// Whether everything about it rests.
    #[serde(default)]
    pub paused: bool,
}

/// Where the kubeconfig of a tenant is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigSource {
    /// The Secret that holds it. It must hold all it needs: no programs, no files.
    pub secret_ref: SecretKey,
}

/// A key of a Secret.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The Secret's namespace on the host.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
    /// The key in it.
    #[serde(default = "kubeconfig_key")]
    pub key: String,
}

/// Which claims of a tenant are carried down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Select {
    /// All claims, or only those labeled for this installation.
    #[serde(default)]
    pub mode: SelectMode,
    /// In which namespaces.
    #[serde(default)]
    pub namespaces: NamespacePatterns,
    /// Selector on the claim's labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}

/// All claims, or only marked ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectMode {
    /// All claims.
    #[default]
    All,
    /// Only claims with the label `state.workload.kcp.dev/<key>: Sync`.
    Labeled,
}

/// Patterns of namespace names; `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespacePatterns {
    /// One of these must match; all do if there are none.
    #[serde(default)]
    pub include: Vec<String>,
    /// None of these may match.
    #[serde(default = "kube_namespaces")]
    pub exclude: Vec<String>,
}

impl Default for NamespacePatterns {
    fn default() -> Self {
        Self { include: Vec::new(), exclude: kube_namespaces() }
    }
}

/// Which classes a tenant may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Classes {
    /// Every class of the host, under its own name. `""` is none: it is allowed only if listed.
    #[serde(default)]
    pub allow_all: bool,
    /// These classes.
    #[serde(default)]
    pub allowed: Vec<AllowedClass>,
    /// The tenant's class for claims that name none; without it they are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// A class of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowedClass {
    /// Its name in the tenant.
    pub tenant: String,
    /// Its name on the host; the same if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Who binds claims to volumes in a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum VolumeBinder {
    /// Found out from who manages the fields of its claims and volumes.
    #[default]
    Auto,
    /// The tenant's own kube-controller-manager.
    Tenant,
    /// Carrick: the tenant has no binder.
    Carrick,
}

/// What becomes of a tenant's claims on the host when the Tenant is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnRemoval {
    /// Nothing on the host is touched.
    #[default]
    Retain,
    /// They are deleted, and what Carrick made in the tenant; their volumes follow their reclaim
    /// policy. The Tenant waits for that.
    Delete,
}

/// What Carrick says about a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Identity of the control plane that was first seen, and must stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Who binds in the tenant, as far as it has been found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binder: Option<DetectedBinder>,
    /// `Connected`, `Synced` and `Accepted`; `Removed` while it is being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Number of claims by state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, u32>,
    /// The generation of the Tenant that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Who was found to bind in a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DetectedBinder {
    /// The tenant's own kube-controller-manager.
    Tenant,
    /// Nobody: Carrick does.
    Carrick,
}

impl Tenant {
    /// Its logical cluster name.
    pub fn cluster(&self) -> String {
        self.spec.cluster.clone().unwrap_or_else(|| self.name_any())
    }

    /// Whether it is being deleted, and its claims on the host with it.
    pub fn is_removed_with_host_side(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() && self.spec.on_removal == OnRemoval::Delete
    }

    /// Whether a condition is `True`.
    pub fn is(&self, condition: &str) -> bool {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.type_ == condition && found.status == "True")
    }
}

/// The rules for the decisions, or all that is wrong with the Tenant.
pub fn rules(tenant: &Tenant) -> Result<TenantRules, Vec<String>> {
    let spec = &tenant.spec;
    let mut wrong = Vec::new();
    if tenant.cluster().trim().is_empty() {
        wrong.push("spec.cluster is empty: leave it out or name the logical cluster".to_owned());
    }
    let SecretKey { namespace, name, key } = &spec.kubeconfig.secret_ref;
    for (field, value) in [("namespace", namespace), ("name", name), ("key", key)] {
        if value.is_empty() {
            wrong.push(format!("spec.kubeconfig.secretRef.{field} is empty"));
        }
    }
    let select = selection(&spec.select, &mut wrong);
    let classes = class_rules("spec.storageClasses", &spec.storage_classes, &mut wrong);
    let attributes_classes =
        class_rules("spec.volumeAttributesClasses", &spec.volume_attributes_classes, &mut wrong);
    if spec.weight == 0 {
        wrong.push("spec.weight is 0: it is at least 1; to stop a tenant, set spec.paused".into());
    }
    let rules = TenantRules {
        name: tenant.name_any(),
        cluster: tenant.cluster(),
        select,
        classes,
        attributes_classes,
        binder: binder(tenant),
        paused: spec.paused,
        removing: tenant.is_removed_with_host_side(),
    };
    if wrong.is_empty() { Ok(rules) } else { Err(wrong) }
}

/// The other Tenant that has this one's logical cluster by right, because it is older: two of them
/// would share host namespaces. This one must not be accepted then.
pub fn cluster_owner<'a>(
    tenant: &Tenant,
    all: impl IntoIterator<Item = &'a Tenant>,
) -> Option<String> {
    let age = |t: &Tenant| (t.creation_timestamp(), t.name_any());
    all.into_iter()
        .filter(|other| other.cluster() == tenant.cluster() && age(other) < age(tenant))
        .min_by_key(|other| age(other))
        .map(Tenant::name_any)
}

fn selection(select: &Select, wrong: &mut Vec<String>) -> Selection {
    let NamespacePatterns { include, exclude } = &select.namespaces;
    if include.iter().chain(exclude).any(String::is_empty) {
        wrong.push("spec.select.namespaces has an empty pattern: it matches nothing".into());
    }
    let labels = select.label_selector.clone().unwrap_or_default();
    for requirement in labels.match_expressions.iter().flatten() {
        let values = requirement.values.iter().flatten().count();
        let fits = match requirement.operator.as_str() {
            "In" | "NotIn" => values > 0,
            "Exists" | "DoesNotExist" => values == 0,
            _ => false,
        };
        if !fits {
            wrong.push(format!(
                "spec.select.labelSelector: {:?} with {values} values on {:?} is none: use In or \
                 NotIn with values, Exists or DoesNotExist without",
                requirement.operator, requirement.key
            ));
        }
    }
    Selection {
        labeled: select.mode == SelectMode::Labeled,
        include: include.clone(),
        exclude: exclude.clone(),
        labels,
    }
}

fn class_rules(field: &str, classes: &Classes, wrong: &mut Vec<String>) -> ClassRules {
    let Classes { allow_all, allowed, default } = classes;
    let mut mapped = BTreeMap::new();
    let mut twice = BTreeSet::new();
    for AllowedClass { tenant, host } in allowed {
        let host = host.as_ref().unwrap_or(tenant);
        for name in [tenant, host] {
            if !is_class_name(name) {
                wrong.push(format!("{field}.allowed: {name:?} is no name of a class"));
            }
        }
        if tenant.is_empty() != host.is_empty() {
            wrong.push(format!("{field}.allowed: \"\" (no provisioning) only maps to itself"));
        }
        if mapped.insert(tenant.clone(), host.clone()).is_some() && twice.insert(tenant) {
            wrong.push(format!("{field}.allowed: {tenant:?} is listed more than once"));
        }
    }
    if let Some(class) = default
        && !allow_all
        && !mapped.contains_key(class)
    {
        wrong.push(format!("{field}.default: {class:?} is not among those allowed: list it"));
    }
    ClassRules { allow_all: *allow_all, mapped, default: default.clone() }
}

/// A DNS subdomain, or `""`, which is a class of its own.
fn is_class_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.is_empty()
        || (name.len() <= 253
            && name.starts_with(plain)
            && name.ends_with(plain)
            && name.chars().all(|c| plain(c) || c == '-' || c == '.'))
}

fn binder(tenant: &Tenant) -> Binder {
    let detected = tenant.status.as_ref().and_then(|status| status.binder);
    match (tenant.spec.volume_binder, detected) {
        (VolumeBinder::Tenant, _) | (VolumeBinder::Auto, Some(DetectedBinder::Tenant)) => {
            Binder::Tenant
        }
        (VolumeBinder::Carrick, _) | (VolumeBinder::Auto, Some(DetectedBinder::Carrick)) => {
            Binder::Carrick
        }
        (VolumeBinder::Auto, None) => Binder::Unknown,
    }
}

fn one() -> u32 {
    1
}

fn kubeconfig_key() -> String {
    "kubeconfig".to_owned()
}

fn kube_namespaces() -> Vec<String> {
    vec!["kube-*".to_owned()]
}

#[cfg(test)]
#[path = "tenant_tests.rs"]
mod tests;
