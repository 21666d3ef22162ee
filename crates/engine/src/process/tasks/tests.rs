use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use anyhow::anyhow;

use super::*;

fn supervisor() -> Supervisor {
    Supervisor::new(Duration::from_secs(20))
}

async fn until(shutdown: Shutdown) -> anyhow::Result<()> {
    shutdown.cancelled().await;
    Ok(())
}

/// These signals, one each second: the first comes once the tasks run.
fn each_second(signals: &'static [&'static str]) -> impl Stream<Item = &'static str> + Unpin {
    let later = stream::iter(signals).then(async |signal| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        *signal
    });
    Box::pin(later)
}

fn text(failure: Failure) -> String {
    format!("{:#}", anyhow::Error::new(failure))
}

#[tokio::test(start_paused = true)]
async fn the_first_signal_lets_tasks_end_by_themselves() {
    let supervisor = supervisor();
    let finished = Arc::new(AtomicBool::new(false));
    let (shutdown, done) = (supervisor.shutdown().clone(), Arc::clone(&finished));
    supervisor.tasks().spawn("slow", async move {
        until(shutdown).await?;
        tokio::time::sleep(Duration::from_secs(19)).await;
        done.store(true, SeqCst);
        anyhow::Ok(())
    });
    // The end of the stream is not a second signal.
    supervisor.run(each_second(&["SIGTERM"])).await.unwrap();
    assert!(finished.load(SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_shutdown_is_a_clean_end() {
    let supervisor = supervisor();
    let (tasks, shutdown) = (supervisor.tasks().clone(), supervisor.shutdown().clone());
    tasks.spawn("service", until(shutdown.clone()));
    tasks.spawn("ending", async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        shutdown.cancel();
        anyhow::Ok(())
    });
    supervisor.run(stream::pending()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_ends_the_process_after_the_others_ended() {
    let supervisor = supervisor();
    let finished = Arc::new(AtomicBool::new(false));
    let (tasks, shutdown) = (supervisor.tasks().clone(), supervisor.shutdown().clone());
    let done = Arc::clone(&finished);
    supervisor.tasks().spawn("service", async move {
        tasks.spawn("consumer", async { Err(anyhow!("no answer").context("pull")) });
        until(shutdown).await?;
        done.store(true, SeqCst);
        anyhow::Ok(())
    });
    let failure = supervisor.run(stream::pending()).await.unwrap_err();
    assert_eq!(failure.exit_code(), 1);
    assert_eq!(text(failure), "task consumer ended with an error: pull: no answer");
    assert!(finished.load(SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_panics_or_ends_early_ends_the_process() {
    let panicking = supervisor();
    panicking.tasks().spawn("sweep", async {
        assert!(std::env::args().count() == 0, "lost count of {}", 3);
        anyhow::Ok(())
    });
    let failure = panicking.run(stream::pending()).await.unwrap_err();
    assert_eq!(text(failure), "task sweep panicked: lost count of 3");

    let early = supervisor();
    early.tasks().spawn("watch", async { anyhow::Ok(()) });
    let failure = early.run(stream::pending()).await.unwrap_err();
    assert_eq!(text(failure), "task watch ended before the shutdown");
}

#[tokio::test(start_paused = true)]
async fn a_failure_during_the_shutdown_is_a_failure() {
    let supervisor = supervisor();
    let shutdown = supervisor.shutdown().clone();
    supervisor.tasks().spawn("publisher", async move {
        until(shutdown).await?;
        Err(anyhow!("not flushed"))
    });
    let failure = supervisor.run(each_second(&["SIGTERM"])).await.unwrap_err();
    assert_eq!(text(failure), "task publisher ended with an error: not flushed");
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_ends_at_once() {
    let supervisor = supervisor();
    supervisor.tasks().spawn("stuck", std::future::pending::<anyhow::Result<()>>());
    let start = tokio::time::Instant::now();
    let failure = supervisor.run(each_second(&["SIGINT", "SIGTERM"])).await.unwrap_err();
    assert_eq!(failure.exit_code(), 130);
    assert!(matches!(failure, Failure::Aborted("SIGTERM")), "{failure:?}");
    assert_eq!(start.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_in_time_is_named_and_aborted() {
    let supervisor = supervisor();
    supervisor.tasks().spawn("stuck", std::future::pending::<anyhow::Result<()>>());
    supervisor.tasks().spawn("good", until(supervisor.shutdown().clone()));
    let failure = supervisor.run(each_second(&["SIGTERM"])).await.unwrap_err();
    assert_eq!(failure.exit_code(), 1);
    let text = text(failure);
    assert!(text.starts_with("still running 20s after the shutdown began: stuck;"), "{text}");
}
