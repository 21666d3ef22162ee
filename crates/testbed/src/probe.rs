//! Waiting for a condition, and asking a plain HTTP endpoint once.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

const POLL: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(500);
const ONE_TRY: Duration = Duration::from_secs(2);

/// Asks `check` every 50 ms until it gives a value, and fails after `cap`, naming `what` was waited
/// for. An error of `check` ends the wait at once: give `Ok(None)` for what may still come.
pub async fn eventually<T>(
    what: &str,
    cap: Duration,
    mut check: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + cap;
    loop {
        if let Some(value) = check().await.with_context(|| format!("waiting for {what}"))? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            bail!("waited {cap:?} in vain for {what}");
        }
        sleep(POLL).await;
    }
}

/// Asks `check` every 500 ms for as long as `window`: something is to stay as it is. The first error
/// is the answer.
pub async fn throughout(
    window: Duration,
    mut check: impl AsyncFnMut() -> Result<()>,
) -> Result<()> {
    let end = Instant::now() + window;
    loop {
        check().await?;
        if Instant::now() >= end {
            return Ok(());
        }
        sleep(LOOK).await;
    }
}

/// Whether `http://127.0.0.1:port/path` answers 200 now.
pub(crate) async fn answers_ok(port: u16, path: &str) -> bool {
    matches!(timeout(ONE_TRY, status_line(port, path)).await, Ok(Ok(line)) if line.contains(" 200 "))
}

async fn status_line(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn gives_the_first_value() {
        let mut left = 3;
        let value = eventually("three tries", Duration::from_secs(1), async || {
            left -= 1;
            Ok((left == 0).then_some("done"))
        })
        .await;
        assert_eq!(value.unwrap(), "done");
    }

    #[tokio::test(start_paused = true)]
    async fn names_what_did_not_come() {
        let error = eventually::<()>("godot", Duration::from_secs(1), async || Ok(None)).await;
        assert_eq!(error.unwrap_err().to_string(), "waited 1s in vain for godot");
    }
}
