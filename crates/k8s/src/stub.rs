//! A control plane of canned answers, for unit tests.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use crate::client::Client;

/// What was asked: path and query.
pub(crate) type Asked = Arc<Mutex<Vec<String>>>;

/// A client whose calls are answered with these in turn, then not at all.
pub(crate) fn client(answers: Vec<(u16, String)>) -> (Client, Asked) {
    let asked = Asked::default();
    let (answers, seen) = (Arc::new(Mutex::new(VecDeque::from(answers))), Arc::clone(&asked));
    let service = service_fn(move |request: Request<Body>| {
        seen.lock().unwrap().push(request.uri().to_string());
        let answer = answers.lock().unwrap().pop_front();
        async move {
            let Some((status, body)) = answer else { return std::future::pending().await };
            let response = Response::builder().status(status).body(Body::from(body.into_bytes()));
            Ok::<_, BoxError>(response.unwrap())
        }
    });
    let kube = kube::Client::new(service, "default");
    (Client::stub(kube, Duration::from_secs(10)), asked)
}

/// The answer that something is not there.
pub(crate) fn missing(kind: &str, name: &str) -> (u16, String) {
    let details = json!({"kind": kind, "name": name});
    (404, json!({"code": 404, "reason": "NotFound", "details": details}).to_string())
}

/// The answer with this object.
pub(crate) fn found(object: &Value) -> (u16, String) {
    (200, object.to_string())
}
