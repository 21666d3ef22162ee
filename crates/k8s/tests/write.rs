//! Writes do what they say, once, and tell apart why they could not.

mod common;

use std::time::Duration;

use anyhow::Result;
use carrick_core::{Action, Kind, ObjectRef, Side, Write};
use carrick_k8s::{Class, Client, ClientOptions, Error, Written, contents, execute, get, identity};
use carrick_testbed::{ControlPlaneOptions, Testbed};
use common::{options, plane};
use serde_json::{Value, json};

fn claim(name: &str) -> ObjectRef {
    ObjectRef::namespaced(Side::Host, Kind::Claim, "default", name)
}

fn body(request: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "none",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": request}},
        },
    })
}

fn write(object: ObjectRef, action: Action) -> Write {
    Write { object, action, why: "test" }
}

fn patch(object: ObjectRef, operations: Value) -> Write {
    write(object, Action::Patch(serde_json::from_value(operations).expect("a patch")))
}

async fn refused(client: &Client, write: &Write) -> Error {
    execute(client, write).await.expect_err("it should not have been done")
}

#[tokio::test]
async fn writes_and_what_becomes_of_them() -> Result<()> {
    let (_testbed, _host, client) = plane("write").await?;
    assert_eq!(get(&client, &claim("data")).await?, None);
    let create = write(claim("data"), Action::Create(body("1Gi")));
    let Written::Applied(made) = execute(&client, &create).await? else { panic!("not made") };
    assert_eq!(made["metadata"]["managedFields"][0]["manager"], "carrick-test");
    let uid = made["metadata"]["uid"].clone();
    let Written::Exists(live) = execute(&client, &create).await? else { panic!("made twice") };
    assert_eq!(live["metadata"]["uid"], uid);
    let found = get(&client, &claim("data")).await?.expect("it is there");
    assert_eq!(
        (&found["kind"], &found["metadata"]["uid"]),
        (&"PersistentVolumeClaim".into(), &uid)
    );

    let test = json!({"op": "test", "path": "/metadata/uid", "value": uid});
    let label = json!({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}});
    let labeled = execute(&client, &patch(claim("data"), json!([test, label]))).await?;
    let Written::Applied(labeled) = labeled else { panic!("{labeled:?}") };
    assert_eq!(labeled["metadata"]["labels"]["a"], "b");

    let lost = json!({"op": "add", "path": "/status/phase", "value": "Lost"});
    let status = Action::PatchStatus(serde_json::from_value(json!([test, lost]))?);
    let Written::Applied(lost) = execute(&client, &write(claim("data"), status)).await? else {
        panic!("not written")
    };
    assert_eq!(lost["status"]["phase"], "Lost");
    let gone = execute(&client, &patch(claim("other"), json!([label]))).await?;
    assert_eq!(gone, Written::Gone);

    let event = ObjectRef::namespaced(Side::Host, Kind::Event, "default", "told");
    let told = write(
        event,
        Action::Create(json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "told"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "carrick.dev/test",
            "reportingInstance": "test",
            "action": "Test", "reason": "Test", "type": "Normal", "note": "note",
            "regarding": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data"},
        })),
    );
    assert!(matches!(execute(&client, &told).await?, Written::Applied(_)));
    assert!(matches!(execute(&client, &told).await?, Written::Exists(_)));
    Ok(())
}

#[tokio::test]
async fn only_what_was_seen_is_deleted_and_what_else_is_in_a_namespace_is_found() -> Result<()> {
    let (_testbed, _host, client) = plane("write-delete").await?;
    let found = contents(&client, "default").await?;
    assert!(found.contains(&"services/kubernetes".to_owned()), "{found:?}");
    let default = |name: &String| name.ends_with("/default") || name.contains("root-ca");
    assert!(!found.iter().any(default), "every namespace has it: {found:?}");
    let create = write(claim("data"), Action::Create(body("1Gi")));
    let Written::Applied(made) = execute(&client, &create).await? else { panic!("not made") };
    let found = contents(&client, "default").await?;
    assert!(found.contains(&"persistentvolumeclaims/data".to_owned()), "{found:?}");

    let text = |pointer: &str| made.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let (uid, version) = (text("/metadata/uid"), text("/metadata/resourceVersion"));
    let delete = |uid: &str, version: &str| {
        let action = Action::Delete { uid: uid.to_owned(), version: version.to_owned() };
        write(claim("data"), action)
    };
    for other in [delete("other", &version), delete(&uid, "1")] {
        assert_eq!(refused(&client, &other).await.class(), Class::Conflict, "{other:?}");
    }
    let finalizer =
        json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.org/held"]}]);
    let Written::Applied(held) = execute(&client, &patch(claim("data"), finalizer)).await? else {
        panic!("not patched")
    };
    let version = held["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let Written::Applied(going) = execute(&client, &delete(&uid, &version)).await? else {
        panic!("it can't be gone")
    };
    assert!(going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    execute(&client, &patch(claim("data"), free)).await?;
    assert_eq!(get(&client, &claim("data")).await?, None);
    assert_eq!(execute(&client, &delete(&uid, &version)).await?, Written::Deleted);

    // Without finalizers it is gone at once.
    let class = ObjectRef::cluster(Side::Host, Kind::Class, "fast");
    let body = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                      "metadata": {"name": "fast"}, "provisioner": "example.org/none"});
    let create = write(class.clone(), Action::Create(body));
    let Written::Applied(made) = execute(&client, &create).await? else { panic!("not made") };
    let meta = serde_json::from_value(made["metadata"].clone())?;
    let delete = write(class, Action::delete(&meta));
    assert_eq!(execute(&client, &delete).await?, Written::Deleted);
    Ok(())
}

#[tokio::test]
async fn refusals_are_told_apart() -> Result<()> {
    let (_testbed, _host, client) = plane("write-refused").await?;
    let create = write(claim("data"), Action::Create(body("1Gi")));
    execute(&client, &create).await?;

    let other = json!({"op": "test", "path": "/metadata/uid", "value": "other"});
    let absent = json!({"op": "remove", "path": "/metadata/annotations/none"});
    let stale = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "1"});
    for operation in [other, absent, stale] {
        let error = refused(&client, &patch(claim("data"), json!([operation]))).await;
        assert_eq!(error.class(), Class::Conflict, "{operation}: {error}");
    }

    let storage = "/spec/resources/requests/storage";
    let shrink = json!([{"op": "replace", "path": storage, "value": "1Mi"}]);
    let error = refused(&client, &patch(claim("data"), shrink)).await;
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("spec"), "the server's own words: {error}");

    let nowhere = ObjectRef::namespaced(Side::Host, Kind::Claim, "nowhere", "data");
    let error = refused(&client, &write(nowhere, Action::Create(body("1Gi")))).await;
    assert!(matches!(error, Error::Namespace { .. }), "{error}");
    let wrong = write(claim("data"), Action::Create(json!({"kind": "Pod", "apiVersion": "v1"})));
    assert_eq!(refused(&client, &wrong).await.class(), Class::Refused);
    Ok(())
}

#[tokio::test]
async fn a_control_plane_that_cannot_be_used_says_why() -> Result<()> {
    let testbed = Testbed::start("write-unusable").await?;
    let (one, two) = tokio::try_join!(
        testbed.control_plane(ControlPlaneOptions::new("one")),
        testbed.control_plane(ControlPlaneOptions::new("two").without_volume_binder()),
    )?;
    let client = async |kubeconfig: &str| Client::from_kubeconfig(kubeconfig, &options()).await;
    let whole = client(&one.kubeconfig()).await?;
    assert!(!identity(&whole).await?.is_empty());
    assert_ne!(identity(&whole).await?, identity(&client(&two.kubeconfig()).await?).await?);

    let path = one.kubeconfig_path();
    let named = Client::connect(Some(&path), Some("one"), &options()).await?;
    assert_eq!(identity(&named).await?, identity(&whole).await?);
    let error = Client::connect(Some(&path), Some("none"), &options()).await.unwrap_err();
    assert_eq!(error.class(), Class::Stop, "{error}");

    let authority = |text: &str| {
        let line = text.lines().find(|line| line.contains("certificate-authority-data"));
        line.expect("it has one").to_owned()
    };
    let stranger =
        one.kubeconfig().replace(&authority(&one.kubeconfig()), &authority(&two.kubeconfig()));
    let closed = one.kubeconfig().replace(&one.url(), "https://127.0.0.1:1");
    let nameless = one.kubeconfig().replace(&one.url(), "https://no-such-host.invalid:6443");
    for (kubeconfig, expected) in [
        (stranger, "CertificateInvalid"),
        (one.kubeconfig_with_token("wrong"), "Unauthorized"),
        (closed, "Unreachable"),
        (nameless, "Unreachable"),
    ] {
        let error = identity(&client(&kubeconfig).await?).await.unwrap_err();
        assert_eq!(error.problem().map(|problem| problem.reason), Some(expected), "{error}");
        assert_eq!(error.class(), Class::Retry, "{error}");
    }

    let quick = ClientOptions { call_timeout: Duration::from_millis(500), ..options() };
    let hasty = Client::from_kubeconfig(&one.kubeconfig(), &quick).await?;
    identity(&hasty).await?;
    let server = one.api_server().expect("it runs");
    server.pause()?;
    let error = identity(&hasty).await.unwrap_err();
    server.resume()?;
    assert_eq!(error.problem().map(|problem| problem.reason), Some("Timeout"), "{error}");
    identity(&hasty).await?;
    Ok(())
}
