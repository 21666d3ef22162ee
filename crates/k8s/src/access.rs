//! Carrick's own access to a tenant: an account with just the rights it uses there, and a
//! kubeconfig for it.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource,
    api::{Patch, PatchParams, PostParams},
    config::Cluster,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{client::Client, error::Error};

/// Namespace of the account in the tenant.
pub const NAMESPACE: &str = "carrick-system";
/// Name of the account, of its role and of its binding.
pub const NAME: &str = "carrick";
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "carrick");
const YEAR: i64 = 365 * 24 * 3600;

/// What Carrick needs to use a tenant.
pub struct Access {
    /// A kubeconfig that holds all it needs.
    pub kubeconfig: String,
    /// When its token runs out; the server may have made it earlier than asked for.
    pub expires: Option<Timestamp>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Makes the account in the tenant that `admin` is a client of, or brings it up to date, and gives
/// a kubeconfig for it.
///
/// The token is asked for (`TokenRequest`) for a year. The other way, a Secret that a controller
/// fills in, gives one that never runs out, but waits forever where no such controller runs.
pub async fn grant(admin: &Client) -> Result<Access, Error> {
    apply(admin, Api::all(admin.kube().clone()), &named::<Namespace>(NAMESPACE, &json!({})))
        .await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.kube().clone(), NAMESPACE);
    apply(admin, accounts.clone(), &named::<ServiceAccount>(NAME, &json!({}))).await?;
    apply(admin, Api::all(admin.kube().clone()), &role()).await?;
    apply(admin, Api::all(admin.kube().clone()), &binding()).await?;
    let object = format!("the token of ServiceAccount {NAMESPACE}/{NAME}");
    let spec = TokenRequestSpec { expiration_seconds: Some(YEAR), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let params = PostParams::default();
    let answer = admin.call(accounts.create_token_request(NAME, &params, &request)).await;
    let answer = answer.map_err(|error| Error::of(&object, &error))?;
    let status = answer.status.unwrap_or_default();
    let token = status.token.ok_or(Error::NotFound { object })?;
    let expires = status.expiration_timestamp.map(|time| time.0);
    Ok(Access { kubeconfig: kubeconfig(admin.cluster(), &token), expires })
}

/// Just the rights that the services use in a tenant.
pub fn rules() -> Vec<PolicyRule> {
    let rule = |group: &str, resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    vec![
        rule("", "namespaces", &["get", "list", "watch"]),
        rule("", "persistentvolumeclaims", &["get", "list", "watch", "patch"]),
        rule("", "persistentvolumeclaims/status", &["patch"]),
        rule("", "persistentvolumes", &["get", "list", "watch", "create", "patch", "delete"]),
        rule("", "persistentvolumes/status", &["patch"]),
        rule(
            "storage.k8s.io",
            "storageclasses",
            &["get", "list", "watch", "create", "patch", "delete"],
        ),
        rule("events.k8s.io", "events", &["create", "patch"]),
    ]
}

fn role() -> ClusterRole {
    named(NAME, &json!({"rules": rules()}))
}

fn binding() -> ClusterRoleBinding {
    let role = RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: "ClusterRole".to_owned(),
        name: NAME.to_owned(),
    };
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        name: NAME.to_owned(),
        ..Subject::default()
    };
    named(NAME, &json!({"roleRef": role, "subjects": [subject]}))
}

fn named<K: DeserializeOwned>(name: &str, rest: &Value) -> K {
    let labels = [(MANAGED_BY.0.to_owned(), MANAGED_BY.1.to_owned())].into();
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let mut object = rest.clone();
    object["metadata"] = json!(metadata);
    serde_json::from_value(object).expect("plain data of just this type")
}

async fn apply<K>(admin: &Client, api: Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let params = PatchParams::apply(admin.field_manager()).force();
    let answer = admin.call(api.patch(&name, &params, &Patch::Apply(object))).await;
    answer.map(|_| ()).map_err(|error| Error::of(format!("{} {name}", K::kind(&())), &error))
}

fn kubeconfig(cluster: &Cluster, token: &str) -> String {
    let name = "tenant";
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": NAME}}],
    });
    serde_yaml_ng::to_string(&config).expect("plain data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_right_is_wider_than_its_use() {
        for rule in rules() {
            let all = rule.verbs.iter().chain(rule.resources.iter().flatten());
            let all: Vec<_> = all.chain(rule.api_groups.iter().flatten()).collect();
            assert!(!all.iter().any(|word| word.contains('*')), "{all:?}");
            assert!(!all.iter().any(|word| *word == "secrets"), "{all:?}");
            // A tenant's claims and namespaces are its own to delete.
            let deletes = all.iter().any(|word| *word == "delete");
            let ours = ["persistentvolumes", "storageclasses"];
            assert!(!deletes || all.iter().any(|word| ours.contains(&word.as_str())), "{all:?}");
        }
    }

    #[test]
    fn the_token_is_not_shown() {
        let access = Access { kubeconfig: "token: abc".into(), expires: None };
        assert!(!format!("{access:?}").contains("abc"));
    }
}
