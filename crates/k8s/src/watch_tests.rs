//! What a watch makes of answers that a healthy server does not give.

use super::*;
use crate::stub::{client, found};
use carrick_core::Kind;
use serde_json::json;

fn object(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version}})
}

fn list(names: &[&str], next: &str) -> (u16, String) {
    let items: Vec<_> = names.iter().map(|name| object(name, "5")).collect();
    found(&json!({"metadata": {"resourceVersion": "10", "continue": next}, "items": items}))
}

fn events(lines: &[Value]) -> (u16, String) {
    (200, lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n"))
}

fn refused(code: u16) -> (u16, String) {
    (code, json!({"code": code, "message": "no"}).to_string())
}

/// The changes in short, until the watch waits for an answer that does not come.
async fn told(answers: Vec<(u16, String)>) -> (Vec<String>, Vec<String>) {
    let (client, asked) = client(answers);
    let mut changes = watch(&client, Kind::Volume, WatchOptions::default());
    let mut told = Vec::new();
    while let Ok(Some(change)) = timeout(Duration::from_secs(20), changes.next()).await {
        told.push(match change {
            Change::Apply(object) => format!("+{}", object["metadata"]["name"].as_str().unwrap()),
            Change::Delete(object) => format!("-{}", object["metadata"]["name"].as_str().unwrap()),
            Change::Synced(keys) => {
                format!("={}", keys.into_iter().map(|key| key.name).collect::<Vec<_>>().join(","))
            }
            Change::Connected => "connected".to_owned(),
            Change::Problem(problem) => problem.reason.to_owned(),
            Change::NotServed => "not served".to_owned(),
        });
    }
    let asked = asked.lock().unwrap().clone();
    (told, asked)
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_never_complete() {
    for (broken, reason) in [
        (refused(500), Some("ServerError")),
        (refused(410), None),
        (refused(404), Some("not served")),
        ((200, "{".to_owned()), Some("InvalidAnswer")),
        (found(&json!({"metadata": {}, "items": []})), Some("InvalidAnswer")),
    ] {
        let answers = vec![list(&["a", "b"], "more"), broken, list(&["a"], "")];
        let expected: Vec<_> = ["+a", "+b"].into_iter().chain(reason).chain(["+a", "=a"]).collect();
        // The wait for a resource that is not served is longer than this test looks.
        let (told, asked) = told(answers).await;
        let seen = told.len().min(expected.len());
        assert_eq!(told, expected[..seen], "{reason:?}");
        assert!(seen == expected.len() || reason == Some("not served"));
        assert!(asked[1].contains("continue=more"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_means_a_new_list() {
    let gone = json!({"type": "ERROR", "object": {"code": 410, "message": "too old"}});
    for expired in [refused(410), events(&[gone])] {
        let (told, asked) = told(vec![list(&["a"], ""), expired, list(&["b"], "")]).await;
        assert_eq!(told, ["+a", "=a", "+b", "=b"]);
        assert!(asked[1].contains("watch=true") && asked[1].contains("resourceVersion=10"));
        assert!(!asked[2].contains("watch=true"), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_resumed_where_it_ended() {
    let bookmark = object("", "30");
    let bookmark = json!({"type": "BOOKMARK", "object":
        {"kind": "PersistentVolume", "apiVersion": "v1", "metadata": bookmark["metadata"]}});
    let (told, asked) = told(vec![
        list(&["a"], ""),
        events(&[json!({"type": "ADDED", "object": object("b", "20")})]),
        refused(503),
        events(&[json!({"type": "DELETED", "object": object("a", "21")}), bookmark]),
    ])
    .await;
    assert_eq!(told, ["+a", "=a", "+b", "ServerError", "connected", "-a"]);
    let versions = ["resourceVersion=10", "resourceVersion=20", "resourceVersion=20"];
    for (asked, version) in
        asked[1..].iter().zip(versions.into_iter().chain(["resourceVersion=30"]))
    {
        assert!(asked.contains(version), "{asked} without {version}");
    }
    assert_eq!(asked.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn garbage_stops_nothing() {
    let (told, _) = told(vec![
        found(&json!({"metadata": {"resourceVersion": "10"},
                      "items": [{"metadata": 7}, "text", object("a", "5")]})),
        events(&[
            json!({"type": "ADDED", "object": {"spec": [1]}}),
            json!({"type": "ADDED", "object": object("b", "20")}),
            json!({"type": "UNHEARD", "object": {}}),
        ]),
        list(&["a", "b"], ""),
    ])
    .await;
    assert_eq!(told, ["+a", "=a", "+b", "InvalidAnswer", "+a", "+b", "=a,b"]);
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_and_end() {
    let (client, asked) = client(vec![refused(500); 12]);
    let mut changes = watch(&client, Kind::Volume, WatchOptions::default());
    let start = Instant::now();
    for _ in 0..12 {
        assert!(matches!(changes.next().await, Some(Change::Problem(_))));
    }
    // 0.2 + 0.4 + 0.8 + 1.6 + 3.2 + 6 times 5 s.
    assert_eq!(start.elapsed().as_secs(), 36);
    assert_eq!(asked.lock().unwrap().len(), 12);
}
