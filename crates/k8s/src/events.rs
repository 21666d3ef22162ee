//! The Events on an object, read live: they explain, and no decision about an object rests on them.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};

use crate::{client::Client, error::Error};

/// How many Events of one object are read.
const MOST: u32 = 500;

/// The Events on the object with this uid, in no order.
pub async fn events_on(client: &Client, namespace: &str, uid: &str) -> Result<Vec<Event>, Error> {
    let api: Api<Event> = Api::namespaced(client.kube().clone(), namespace);
    let of_it = ListParams::default().fields(&format!("involvedObject.uid={uid}")).limit(MOST);
    let list = client.call(api.list(&of_it)).await;
    let list =
        list.map_err(|error| Error::of(format!("the Events of namespace {namespace}"), &error))?;
    Ok(list.items)
}
