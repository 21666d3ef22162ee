//! The admin server: `/live`, `/ready` and `/metrics`. It never shows settings or objects.

use std::{io, net::SocketAddr};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use super::{Readiness, Shutdown, metrics::SharedRegistry};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The admin server can't listen on its address.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen on {address}: choose another --admin-address (CARRICK_ADMIN_ADDRESS), or port 0 \
     for any free one"
)]
pub struct AdminError {
    address: SocketAddr,
    source: io::Error,
}

/// An admin server that listens, but does not answer yet.
#[derive(Debug)]
pub(super) struct Admin {
    listener: TcpListener,
    router: Router,
}

#[derive(Clone)]
struct Shown {
    readiness: Readiness,
    registry: SharedRegistry,
    shutdown: Shutdown,
}

impl Admin {
    /// Listens on the address. The actual one is logged, in the field `admin_address`.
    pub(super) async fn bind(
        address: SocketAddr,
        readiness: Readiness,
        registry: SharedRegistry,
        shutdown: Shutdown,
    ) -> Result<Self, AdminError> {
        let wrong = |source| AdminError { address, source };
        let listener = TcpListener::bind(address).await.map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        tracing::info!(admin_address = %address, "Serving health and metrics");
        let router = Router::new()
            .route("/live", get(async || "live\n"))
            .route("/ready", get(ready))
            .route("/metrics", get(metrics))
            .with_state(Shown { readiness, registry, shutdown });
        Ok(Self { listener, router })
    }

    /// Answers until dropped, also while the process shuts down.
    pub(super) async fn serve(self) -> io::Result<()> {
        axum::serve(self.listener, self.router).await
    }
}

async fn ready(State(shown): State<Shown>) -> Response {
    if shown.shutdown.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n").into_response();
    }
    match shown.readiness.waiting_for().as_slice() {
        [] => "ready\n".into_response(),
        gates => {
            let text = format!("waiting for: {}\n", gates.join(", "));
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

async fn metrics(State(shown): State<Shown>) -> Response {
    match shown.registry.encode() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "Metrics could not be encoded");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        task::JoinSet,
    };

    use super::*;

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_endpoints_tell_what_the_process_is_waiting_for() {
        let (readiness, registry) = (Readiness::default(), SharedRegistry::new());
        let (tenants, consumer) = (readiness.gate("tenants"), readiness.gate("consumer"));
        let (any, shutdown) = (([127, 0, 0, 1], 0).into(), Shutdown::new());
        let admin = Admin::bind(any, readiness, registry, shutdown.clone()).await.unwrap();
        let address = admin.listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(admin.serve());

        assert!(fetch(address, "/live").await.starts_with("HTTP/1.1 200 "));
        let answer = fetch(address, "/ready").await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.ends_with("waiting for: consumer, tenants\n"), "{answer}");
        tenants.open();
        consumer.open();
        assert!(fetch(address, "/ready").await.starts_with("HTTP/1.1 200 "));
        let answer = fetch(address, "/metrics").await;
        assert!(answer.contains(&format!("content-type: {OPEN_METRICS}\r\n")), "{answer}");
        assert!(answer.contains("carrick_build_info{version="), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        assert!(fetch(address, "/").await.starts_with("HTTP/1.1 404 "));
        shutdown.cancel();
        assert!(fetch(address, "/ready").await.ends_with("shutting down\n"));
        assert!(fetch(address, "/live").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn an_address_in_use_is_an_error_that_says_what_to_do() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let (readiness, registry) = (Readiness::default(), SharedRegistry::new());
        let bound = Admin::bind(address, readiness, registry, Shutdown::new()).await;
        let text = format!("{:#}", anyhow::Error::new(bound.unwrap_err()));
        assert!(text.contains(&address.to_string()), "{text}");
        assert!(text.contains("--admin-address (CARRICK_ADMIN_ADDRESS)"), "{text}");
        assert!(text.contains("in use"), "{text}");
    }
}
