//! Watches go on through whatever happens to the API server, and miss nothing.

mod common;

use std::time::Duration;

use anyhow::Result;
use carrick_core::Kind;
use carrick_k8s::{
    Change, Client, ClientOptions, Resource, Tenant, WatchOptions, crd, identity, watch,
};
use carrick_testbed::{Stop, eventually};
use common::{CAP, config_map, name, options, plane, quick, synced, until};
use futures::{StreamExt as _, future::join_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::DeleteParams};

fn maps() -> Resource {
    Resource::of::<ConfigMap>().in_namespace("default")
}

fn applied(wanted: &str) -> impl FnMut(Change) -> Option<()> {
    move |change| matches!(&change, Change::Apply(object) if name(object) == wanted).then_some(())
}

#[tokio::test]
async fn what_was_deleted_unseen_is_missing_from_the_next_list() -> Result<()> {
    let (_testbed, host, client) = plane("watch-missed").await?;
    config_map(&client, "kept").await?;
    config_map(&client, "gone").await?;
    let mut changes = watch(&client, maps(), quick());
    let first = synced(&mut changes).await?;
    assert!(first.contains(&"gone".to_owned()) && first.contains(&"kept".to_owned()), "{first:?}");

    // The watch is not polled, and so not connected again, while this happens.
    host.stop_api_server(Stop::Kill).await?;
    host.start_api_server().await?;
    let api: Api<ConfigMap> = Api::namespaced(client.kube().clone(), "default");
    api.delete("gone", &DeleteParams::default()).await?;
    // A fresh server does not know any more what happened before it started.
    host.stop_api_server(Stop::Kill).await?;
    host.start_api_server().await?;

    let mut deleted = false;
    let second = until("a list after the restart", &mut changes, |change| match change {
        Change::Synced(keys) => Some(keys),
        Change::Delete(object) => {
            deleted |= name(&object) == "gone";
            None
        }
        _ => None,
    });
    let second: Vec<_> = second.await?.into_iter().map(|key| key.name).collect();
    assert!(!deleted, "the server should have forgotten it");
    assert!(
        second.contains(&"kept".to_owned()) && !second.contains(&"gone".to_owned()),
        "{second:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_watch_goes_on_after_a_restart() -> Result<()> {
    let (_testbed, host, client) = plane("watch-restart").await?;
    let mut changes = watch(&client, maps(), quick());
    synced(&mut changes).await?;
    config_map(&client, "before").await?;
    until("the first object", &mut changes, applied("before")).await?;

    for how in [Stop::Kill, Stop::Graceful] {
        host.stop_api_server(how).await?;
        let problem = until("the problem", &mut changes, |change| match change {
            Change::Problem(problem) => Some(problem),
            Change::Synced(keys) => panic!("a complete list of no server: {keys:?}"),
            _ => None,
        });
        let problem = problem.await?;
        assert!(["Unreachable", "ConnectionLost"].contains(&problem.reason), "{problem:?}");
        host.start_api_server().await?;
        until("the watch to work again", &mut changes, |change| {
            matches!(change, Change::Connected | Change::Synced(_)).then_some(())
        })
        .await?;
        let after = format!("after-{how:?}").to_lowercase();
        config_map(&client, &after).await?;
        until("an object made after the restart", &mut changes, applied(&after)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_dead_connection_is_noticed() -> Result<()> {
    let (_testbed, host, client) = plane("watch-frozen").await?;
    let short = WatchOptions { timeout: Duration::from_secs(2), ..quick() };
    let mut changes = watch(&client, maps(), short);
    synced(&mut changes).await?;
    let server = host.api_server().expect("it runs");
    server.pause()?;
    let problem = until("the problem", &mut changes, |change| match change {
        Change::Problem(problem) => Some(problem),
        _ => None,
    });
    assert_eq!(problem.await?.reason, "Timeout");
    server.resume()?;
    until("the watch to work again", &mut changes, |change| {
        matches!(change, Change::Connected | Change::Synced(_)).then_some(())
    })
    .await
}

#[tokio::test]
async fn a_list_of_many_pages_is_whole_and_objects_say_what_they_are() -> Result<()> {
    let (_testbed, _host, client) = plane("watch-pages").await?;
    let names: Vec<_> = (0..1100).map(|i| format!("map-{i}")).collect();
    for some in names.chunks(50) {
        let made = join_all(some.iter().map(|name| config_map(&client, name))).await;
        made.into_iter().collect::<Result<()>>()?;
    }
    let mut changes = watch(&client, maps(), quick());
    let mut told = 0;
    let keys = until("a complete list", &mut changes, |change| match change {
        Change::Apply(object) => {
            assert_eq!(
                (&object["apiVersion"], &object["kind"]),
                (&"v1".into(), &"ConfigMap".into())
            );
            assert!(object.pointer("/metadata/managedFields").is_some());
            told += 1;
            None
        }
        Change::Synced(keys) => Some(keys),
        other => panic!("{other:?}"),
    })
    .await?;
    assert_eq!(told, keys.len());
    assert!(names.iter().all(|name| keys.iter().any(|key| key.name == *name)));
    Ok(())
}

#[tokio::test]
async fn a_resource_that_is_not_served_is_awaited() -> Result<()> {
    let (_testbed, _host, client) = plane("watch-not-served").await?;
    let mut changes = watch(&client, Resource::of::<Tenant>(), quick());
    assert_eq!(changes.next().await, Some(Change::NotServed));
    crd::apply_crd(&client, CAP).await?;
    crd::apply_crd(&client, CAP).await?;
    assert!(synced(&mut changes).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn watches_do_not_use_up_the_limit_on_calls() -> Result<()> {
    let (_testbed, host, _) = plane("watch-limit").await?;
    let one = ClientOptions { concurrency: 1, ..options() };
    let client = Client::from_kubeconfig(&host.kubeconfig(), &one).await?;
    let kinds = [Kind::Claim, Kind::Volume, Kind::Namespace, Kind::Class];
    let mut all = kinds.map(|kind| watch(&client, kind, quick()));
    for changes in &mut all {
        synced(changes).await?;
    }
    let running = tokio::time::timeout(Duration::from_secs(5), async {
        let mut together = futures::stream::select_all(all);
        while together.next().await.is_some() {}
    });
    let asked = eventually("ten calls beside the watches", CAP, async || {
        join_all((0..10).map(|_| identity(&client)))
            .await
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Some(()))
    });
    let (_, asked) = tokio::join!(running, asked);
    asked
}
