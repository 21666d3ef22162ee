//! The sync target: who this installation is, fixed in a ConfigMap when it is installed.
//!
//! Everything on the host is found again by it. A service that runs with another one would carry
//! everything down a second time, so it refuses to run.

use std::{collections::BTreeMap, time::Duration};

use carrick_core::quiet::Quiet;
use carrick_core::{SyncTarget, names::Domain};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::time::sleep;

use crate::{
    client::{Client, identity},
    error::{Class, Error, is_already_there, is_missing},
};

/// Name of the ConfigMap.
pub const CONFIG_MAP: &str = "carrick-sync-target";
const POLL: Duration = Duration::from_secs(1);

/// What the settings of a service say about the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSettings {
    /// Namespace that Carrick is installed in.
    pub namespace: String,
    /// Logical cluster of the sync target.
    pub cluster: String,
    /// Name of the installation.
    pub name: String,
    /// Domain that names are spelled with.
    pub domain: Domain,
}

/// The sync target of this installation; fixed now if it never was. For the watcher.
pub async fn ensure(client: &Client, settings: &TargetSettings) -> Result<SyncTarget, Error> {
    if let Some(target) = read(client, settings).await? {
        return Ok(target);
    }
    let uid = identity(client).await?;
    let params = PostParams {
        field_manager: Some(client.field_manager().to_owned()),
        ..PostParams::default()
    };
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(CONFIG_MAP.to_owned()), ..ObjectMeta::default() },
        data: Some(data(settings, &uid)),
        ..ConfigMap::default()
    };
    match client.call(api(client, settings).create(&params, &map)).await {
        // Another one may have been first, with other settings.
        Err(error) if !is_already_there(&error) => Err(Error::of(object(settings), &error)),
        _ => read(client, settings)
            .await?
            .ok_or_else(|| Error::NotFound { object: object(settings) }),
    }
}

/// The sync target of this installation, if it has been fixed; an [`Error::Target`] if it is
/// another one than the settings say, or this is another host.
pub async fn read(client: &Client, settings: &TargetSettings) -> Result<Option<SyncTarget>, Error> {
    let map = match client.call(api(client, settings).get(CONFIG_MAP)).await {
        Ok(map) => map,
        Err(error) if is_missing(&error, "configmaps", CONFIG_MAP) => return Ok(None),
        Err(error) => return Err(Error::of(object(settings), &error)),
    };
    let uid = identity(client).await?;
    let found = map.data.unwrap_or_default();
    compare(settings, &data(settings, &uid), &found)?;
    let TargetSettings { cluster, name, .. } = settings.clone();
    Ok(Some(SyncTarget { cluster, name, uid }))
}

/// Waits until the sync target is fixed and the host can be asked; ends only with it, or with an
/// error that waiting does not mend. For all services but the watcher.
pub async fn wait(client: &Client, settings: &TargetSettings) -> Result<SyncTarget, Error> {
    let quiet = Quiet::default();
    loop {
        match read(client, settings).await {
            Ok(Some(target)) => return Ok(target),
            Ok(None) => {
                if quiet.due() {
                    tracing::info!(object = object(settings), "Waiting for the sync target");
                }
            }
            Err(error) if matches!(error.class(), Class::Retry | Class::Conflict) => {
                if quiet.due() {
                    tracing::warn!(%error, "Waiting for the sync target");
                }
            }
            Err(error) => return Err(error),
        }
        sleep(POLL).await;
    }
}

fn api(client: &Client, settings: &TargetSettings) -> Api<ConfigMap> {
    Api::namespaced(client.kube().clone(), &settings.namespace)
}

fn object(settings: &TargetSettings) -> String {
    format!("ConfigMap {}/{CONFIG_MAP}", settings.namespace)
}

fn data(settings: &TargetSettings, uid: &str) -> BTreeMap<String, String> {
    let TargetSettings { namespace: _, cluster, name, domain } = settings;
    [("cluster", cluster.as_str()), ("name", name), ("uid", uid), ("domain", domain.as_str())]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

fn compare(
    settings: &TargetSettings,
    expected: &BTreeMap<String, String>,
    found: &BTreeMap<String, String>,
) -> Result<(), Error> {
    let differing: Vec<String> = expected
        .iter()
        .filter_map(|(key, value)| {
            let fixed = found.get(key).map_or("", String::as_str);
            let here = if key == "uid" { "this host has" } else { "the settings say" };
            (fixed != value).then(|| format!("{key} was fixed as {fixed:?}, {here} {value:?}"))
        })
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    Err(Error::Target(format!(
        "{} is another sync target: {}. No service runs with another one, for it would not find \
         what is on the host; set the settings back, or install anew under another name",
        object(settings),
        differing.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_sync_target_is_told_with_both_values() {
        let settings = TargetSettings {
            namespace: "carrick-system".into(),
            cluster: "root".into(),
            name: "carrick".into(),
            domain: Domain::KcpDev,
        };
        let expected = data(&settings, "uid-1");
        assert!(compare(&settings, &expected, &expected).is_ok());
        for (key, fixed, words) in [
            ("name", "other", "name was fixed as \"other\", the settings say \"carrick\""),
            ("uid", "uid-2", "uid was fixed as \"uid-2\", this host has \"uid-1\""),
            ("domain", "kcp.io", "domain was fixed as \"kcp.io\", the settings say \"kcp.dev\""),
        ] {
            let mut found = expected.clone();
            found.insert(key.to_owned(), fixed.to_owned());
            let error = compare(&settings, &expected, &found).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.class(), Class::Stop);
        }
        let error = compare(&settings, &expected, &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(error.matches("was fixed as \"\"").count(), 4, "{error}");
    }
}
