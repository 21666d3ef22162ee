//! Carrick's account in a tenant, as the objects that it is made of.
//!
//! The namespace is not one of them that is ever removed with a tenant: it may hold more, for a
//! tenant may be the host of another installation.

use carrick_k8s::{
    Client,
    access::{NAME, NAMESPACE},
};
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};

use super::thing::Thing;

/// The namespace of the account.
pub(super) fn namespace(admin: &Client) -> Thing {
    Thing::cluster::<Namespace>(admin, NAMESPACE)
}

/// The account and its rights, in the order in which they are made.
pub(super) fn parts(admin: &Client) -> [Thing; 3] {
    [
        Thing::namespaced::<ServiceAccount>(admin, NAMESPACE, NAME),
        Thing::cluster::<ClusterRole>(admin, NAME),
        Thing::cluster::<ClusterRoleBinding>(admin, NAME),
    ]
}
