//! The definition of the Tenant: its YAML, and installing it.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, CustomResourceExt as _,
    api::{Patch, PatchParams},
};
use tokio::time::{Instant, sleep};

use crate::{
    client::{Client, timed_out},
    error::Error,
    tenant::Tenant,
};

/// Name of the definition.
pub const CRD: &str = "tenants.carrick.dev";
const POLL: Duration = Duration::from_millis(200);

/// The definition as YAML, as it stands in `deploy/crds/`.
#[expect(clippy::missing_panics_doc, reason = "plain data is always written")]
pub fn crd_yaml() -> String {
    serde_yaml_ng::to_string(&Tenant::crd()).expect("the definition is plain data")
}

/// Installs or updates the definition, and waits until Tenants are served.
pub async fn apply_crd(client: &Client, limit: Duration) -> Result<(), Error> {
    let object = format!("CustomResourceDefinition {CRD}");
    let deadline = Instant::now() + limit;
    let api: Api<CustomResourceDefinition> = Api::all(client.kube().clone());
    let params = PatchParams::apply(client.field_manager()).force();
    let definition = Tenant::crd();
    let patch = Patch::Apply(&definition);
    let mut found = client
        .call(api.patch(CRD, &params, &patch))
        .await
        .map_err(|error| Error::of(&object, &error))?;
    while !is_established(&found) {
        if Instant::now() >= deadline {
            return Err(Error::unavailable(&object, timed_out(limit)));
        }
        sleep(POLL).await;
        found = client.call(api.get(CRD)).await.map_err(|error| Error::of(&object, &error))?;
    }
    Ok(())
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    conditions.into_iter().any(|found| found.type_ == "Established" && found.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs, path::Path};

    #[test]
    fn the_file_is_what_the_type_says() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds/tenants.carrick.dev.yaml");
        if env::var_os("UPDATE").is_some_and(|value| value == "1") {
            fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
            fs::write(path, crd_yaml()).unwrap();
        }
        let found = fs::read_to_string(path).unwrap();
        assert!(found == crd_yaml(), "run the test with UPDATE=1");
    }
}
