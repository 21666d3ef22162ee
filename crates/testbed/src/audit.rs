//! The writes that an API server has answered, from its audit log.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;

/// What the API server logs: every write, once it has been answered.
pub(crate) const POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
  "rules": [
    {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
    {"level": "None"}
  ]
}
"#;

/// One write, whether it was accepted or refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditWrite {
    /// When the request came in.
    pub time: Timestamp,
    /// Who asked, e.g. `admin` or `system:serviceaccount:carrick:upsyncer`.
    pub user: String,
    /// The program that asked, as it calls itself.
    pub user_agent: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The resource in the plural, e.g. `persistentvolumeclaims`.
    pub resource: String,
    /// E.g. `status`, or empty.
    pub subresource: String,
    /// Empty for what has no namespace.
    pub namespace: String,
    /// Empty for a `deletecollection`, and for a `create` under a generated name.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

/// All writes in the audit log at `path`, in the order of their answers.
pub(crate) fn read(path: &Path) -> Result<Vec<AuditWrite>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("read {}", path.display()))?,
    };
    parse(&text).with_context(|| format!("parse {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<AuditWrite>> {
    // A line without its end is still being written, or was when the server was killed.
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| {
            let event: Event = serde_json::from_str(line).with_context(|| line.to_owned())?;
            Ok(event.into())
        })
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    request_received_timestamp: Timestamp,
    user: User,
    #[serde(default)]
    user_agent: String,
    verb: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl From<Event> for AuditWrite {
    fn from(event: Event) -> Self {
        let ObjectRef { resource, subresource, namespace, name } = event.object_ref;
        Self {
            time: event.request_received_timestamp,
            user: event.user.username,
            user_agent: event.user_agent,
            verb: event.verb,
            resource,
            subresource,
            namespace,
            name,
            code: event.response_status.code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/persistentvolumeclaims/c/status","verb":"patch","user":{"username":"admin","groups":["system:masters"]},"userAgent":"carrick","objectRef":{"resource":"persistentvolumeclaims","namespace":"a","name":"c","apiVersion":"v1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.100006Z"}"#;

    #[test]
    fn reads_an_event() {
        let writes = parse(&format!("{LINE}\n")).unwrap();
        assert_eq!(
            writes,
            [AuditWrite {
                time: "2026-01-02T03:04:05.000006Z".parse().unwrap(),
                user: "admin".into(),
                user_agent: "carrick".into(),
                verb: "patch".into(),
                resource: "persistentvolumeclaims".into(),
                subresource: "status".into(),
                namespace: "a".into(),
                name: "c".into(),
                code: 200,
            }]
        );
    }

    #[test]
    fn leaves_out_a_line_that_is_being_written() {
        let writes = parse(&format!("{LINE}\n{}", &LINE[..100])).unwrap();
        assert_eq!(writes.len(), 1);
    }
}
