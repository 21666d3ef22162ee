//! The tasks of a process, all of them watched: one that fails, panics or ends too early ends the
//! process, and a shutdown lets them end by themselves before it ends them.

use std::{any::Any, collections::HashMap, pin::Pin, time::Duration};

use futures::{Stream, StreamExt, stream};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{Id, JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Cancelled once the process is to end: tasks then finish what they do and return.
pub type Shutdown = CancellationToken;

type Work = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// Why a process ended otherwise than by a clean shutdown.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The admin server could not be started.
    #[error(transparent)]
    Admin(#[from] super::admin::AdminError),
    /// The process can't hear signals.
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    /// A task returned an error.
    #[error("task {name} ended with an error")]
    Failed {
        /// The task's name.
        name: String,
        /// The error.
        source: anyhow::Error,
    },
    /// A task panicked.
    #[error("task {name} panicked: {message}")]
    Panicked {
        /// The task's name.
        name: String,
        /// What it panicked with.
        message: String,
    },
    /// A task returned although nothing asked it to.
    #[error("task {0} ended before the shutdown")]
    Early(String),
    /// Tasks ran on after the shutdown timeout.
    #[error(
        "still running {timeout:?} after the shutdown began: {names}; a longer --shutdown-timeout \
         (CARRICK_SHUTDOWN_TIMEOUT) lets them finish"
    )]
    Stuck {
        /// The timeout.
        timeout: Duration,
        /// The tasks' names.
        names: String,
    },
    /// A second signal ended the process at once.
    #[error("ended at once by a second signal, {0}")]
    Aborted(&'static str),
}

impl Failure {
    /// The exit code of a process that ended so.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Aborted(_) => 130,
            _ => 1,
        }
    }
}

/// Starts tasks that run as long as the process does.
#[derive(Clone, Debug)]
pub struct Tasks {
    start: UnboundedSender<Start>,
}

struct Start {
    name: String,
    work: Work,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Tasks {
    /// Starts a task, in the span of the caller. It is to run until the shutdown; returning
    /// earlier, even without an error, ends the process. Once the shutdown has begun no task is
    /// started any more.
    pub fn spawn<F, E>(&self, name: impl Into<String>, work: F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<anyhow::Error>,
    {
        let work = async move { work.await.map_err(Into::into) }.in_current_span();
        // Without a supervisor the process is over, and nothing is to be started.
        let _ = self.start.send(Start { name: name.into(), work: Box::pin(work) });
    }
}

/// Watches the tasks that [`Tasks`] starts.
#[derive(Debug)]
pub struct Supervisor {
    tasks: Tasks,
    started: UnboundedReceiver<Start>,
    running: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, String>,
    shutdown: Shutdown,
    timeout: Duration,
}

impl Supervisor {
    /// A supervisor whose tasks have this long to end by themselves.
    pub fn new(timeout: Duration) -> Self {
        let (start, started) = unbounded_channel();
        Self {
            tasks: Tasks { start },
            started,
            running: JoinSet::new(),
            names: HashMap::new(),
            shutdown: Shutdown::new(),
            timeout,
        }
    }

    /// Starts tasks under this supervisor.
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Cancelled once the process is to end; cancelling it ends the process cleanly.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Runs the tasks until the first signal, a cancelled [`Shutdown`] or the first task that ends,
    /// then waits for the others. A second signal, or the timeout, aborts those that still run.
    pub async fn run(
        mut self,
        signals: impl Stream<Item = &'static str> + Unpin,
    ) -> Result<(), Failure> {
        let mut signals = signals.chain(stream::pending());
        let ended = self.until_shutdown(&mut signals).await;
        self.shutdown.cancel();
        let timeout = self.timeout;
        let drained = tokio::select! {
            biased;
            drained = self.drain() => drained,
            Some(signal) = signals.next() => Err(Failure::Aborted(signal)),
            () = tokio::time::sleep(timeout) => Err(Failure::Stuck { timeout, names: self.running_names() }),
        };
        ended.and(drained)
    }

    async fn until_shutdown(
        &mut self,
        signals: &mut (impl Stream<Item = &'static str> + Unpin),
    ) -> Result<(), Failure> {
        loop {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return Ok(()),
                Some(signal) = signals.next() => {
                    tracing::info!(signal, "Shutting down");
                    return Ok(());
                }
                Some(Start { name, work }) = self.started.recv() => {
                    let id = self.running.spawn(work).id();
                    self.names.insert(id, name);
                }
                Some(ended) = self.running.join_next_with_id() => {
                    return match self.ended(ended) {
                        // The task may have seen the cancelled token before we did.
                        (_, None) if self.shutdown.is_cancelled() => Ok(()),
                        (name, None) => Err(Failure::Early(name)),
                        (_, Some(failure)) => Err(failure),
                    };
                }
            }
        }
    }

    /// Waits for all tasks; the first failure is returned, further ones are logged.
    async fn drain(&mut self) -> Result<(), Failure> {
        let mut result = Ok(());
        while let Some(ended) = self.running.join_next_with_id().await {
            match self.ended(ended) {
                (_, None) => {}
                (_, Some(failure)) if result.is_ok() => result = Err(failure),
                (_, Some(failure)) => {
                    let error = format!("{:#}", anyhow::Error::new(failure));
                    tracing::error!(error, "Another task failed");
                }
            }
        }
        result
    }

    /// The name of a task that ended, and its failure.
    fn ended(
        &mut self,
        ended: Result<(Id, anyhow::Result<()>), JoinError>,
    ) -> (String, Option<Failure>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let name = self.names.remove(&id).unwrap_or_default();
        let failure = match ended {
            Ok((_, Ok(()))) => None,
            Ok((_, Err(source))) => Some(Failure::Failed { name: name.clone(), source }),
            Err(error) => error.try_into_panic().ok().map(|panic| Failure::Panicked {
                name: name.clone(),
                message: panic_message(panic.as_ref()),
            }),
        };
        (name, failure)
    }

    fn running_names(&self) -> String {
        let mut names: Vec<_> = self.names.values().map(String::as_str).collect();
        names.sort_unstable();
        names.join(", ")
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_owned())
}

/// The signals that end a process, by name: SIGTERM and SIGINT.
pub fn signals() -> Result<impl Stream<Item = &'static str> + Unpin, Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Signals)?;
    Ok(stream::poll_fn(move |context| {
        if terminate.poll_recv(context).is_ready() {
            return std::task::Poll::Ready(Some("SIGTERM"));
        }
        interrupt.poll_recv(context).map(|_| Some("SIGINT"))
    }))
}

#[cfg(test)]
mod tests;
