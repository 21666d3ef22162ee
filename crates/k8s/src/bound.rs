//! The bound around every call: a limit in time, and on how many run at once.
//!
//! Watches pass: they are meant to last, and would otherwise use the limit up. They bound
//! themselves (see [`watch`](crate::watch)).

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Uri};
use kube::client::Body;
use tokio::{sync::Semaphore, time::timeout};
use tower::{BoxError, Layer, Service};

/// No answer within the bound.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(crate) struct TimedOut(pub(crate) Duration);

/// Puts [`Bound`] around a service.
#[derive(Clone, Debug)]
pub(crate) struct BoundLayer {
    calls: Arc<Semaphore>,
    limit: Duration,
}

impl BoundLayer {
    pub(crate) fn new(calls: usize, limit: Duration) -> Self {
        Self { calls: Arc::new(Semaphore::new(calls)), limit }
    }
}

impl<S> Layer<S> for BoundLayer {
    type Service = Bound<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Bound { inner, layer: self.clone() }
    }
}

/// A service whose calls are answered, or given up, within the limit.
#[derive(Debug)]
pub(crate) struct Bound<S> {
    inner: S,
    layer: BoundLayer,
}

impl<S> Service<Request<Body>> for Bound<S>
where
    S: Service<Request<Body>, Error = BoxError>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let watch = is_watch(request.uri());
        let answer = self.inner.call(request);
        if watch {
            return answer.boxed();
        }
        let BoundLayer { calls, limit } = self.layer.clone();
        let call = async move {
            let _permit = calls.acquire_owned().await?;
            answer.await
        };
        async move { timeout(limit, call).await.unwrap_or_else(|_| Err(TimedOut(limit).into())) }
            .boxed()
    }
}

fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::{ServiceExt as _, service_fn};

    /// Answers at once to `/now`, never to anything else.
    async fn server(request: Request<Body>) -> Result<String, BoxError> {
        if request.uri().path() == "/now" {
            return Ok("answer".to_owned());
        }
        std::future::pending().await
    }

    fn request(uri: &str) -> Request<Body> {
        Request::get(uri).body(Body::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_given_up() {
        let mut bound = BoundLayer::new(1, Duration::from_secs(10)).layer(service_fn(server));
        let error = bound.ready().await.unwrap().call(request("/never")).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 10s");
        let answer = bound.ready().await.unwrap().call(request("/now")).await;
        assert_eq!(answer.unwrap(), "answer", "the place in the limit is free again");
    }

    #[tokio::test(start_paused = true)]
    async fn watches_last_and_leave_the_limit_to_calls() {
        let mut bound = BoundLayer::new(1, Duration::from_secs(10)).layer(service_fn(server));
        let watch = bound.call(request("/never?a=b&watch=true&resourceVersion=7"));
        let watch = timeout(Duration::from_hours(1), watch);
        let (watch, call) = tokio::join!(watch, bound.call(request("/now")));
        assert!(watch.is_err());
        assert_eq!(call.unwrap(), "answer");
    }
}
