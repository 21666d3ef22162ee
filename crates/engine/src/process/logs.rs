//! Logs: to standard error, with RFC 3339 times, as JSON or plain. Messages are constant
//! sentences; what varies is in fields. Bodies of objects and secrets are never logged.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use tokio::time::Instant;
use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::settings::{LogFormat, LogSettings};

/// The process can't log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter can't be parsed.
    #[error("the log filter is wrong: correct --log-level (CARRICK_LOG_LEVEL)")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// A subscriber is set already.
    #[error("logs were set up before: set them up once in a process")]
    Twice(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// Sets the logs of this process up, panics included.
pub fn init(settings: &LogSettings) -> Result<(), LogError> {
    let colours = io::stderr().is_terminal();
    tracing::subscriber::set_global_default(subscriber(settings, io::stderr, colours)?)?;
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "Panicked")));
    Ok(())
}

fn subscriber<W>(
    settings: &LogSettings,
    writer: W,
    colours: bool,
) -> Result<Box<dyn Subscriber + Send + Sync>, LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // These libraries log every failed connection; who asked says so in its own words.
    let filter =
        EnvFilter::try_new(format!("kube_client=off,async_nats=warn,{}", settings.filter))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    Ok(match settings.format {
        // The list of spans has the current one too.
        LogFormat::Json => {
            Box::new(builder.json().flatten_event(true).with_current_span(false).finish())
        }
        LogFormat::Plain => Box::new(builder.with_ansi(colours).finish()),
    })
}

/// Says when a message that would repeat is to be logged: the first time, then once in a while.
#[derive(Debug)]
pub struct Cadence {
    every: Duration,
    last: Option<Instant>,
    withheld: u64,
}

impl Cadence {
    /// At most one message in this time, after the first.
    pub fn new(every: Duration) -> Self {
        Self { every, last: None, withheld: 0 }
    }

    /// Whether to log now; if so, with how many messages were withheld since the last one.
    pub fn due(&mut self) -> Option<u64> {
        if self.last.is_some_and(|last| last.elapsed() < self.every) {
            self.withheld += 1;
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.withheld))
    }

    /// What was waited for has come: the next message is a first one again. Tells whether any
    /// was logged, so that its end can be logged too.
    pub fn reset(&mut self) -> bool {
        self.withheld = 0;
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let settings = LogSettings { filter: "info".to_owned(), format };
        let subscriber = subscriber(&settings, move || writer.clone(), false).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::error_span!("service", service = "upsyncer").entered();
            tracing::info!(uid = "u-1", "Carried up");
            tracing::debug!("Not shown");
        });
        let bytes = captured.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_has_fields_at_the_top_and_spans_in_a_list() {
        let text = logged(LogFormat::Json);
        assert_eq!(text.lines().count(), 1, "{text}");
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["message"], "Carried up");
        assert_eq!(event["level"], "INFO");
        assert_eq!(event["uid"], "u-1");
        assert_eq!(event["spans"][0]["service"], "upsyncer");
        let time = event["timestamp"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    }

    #[test]
    fn plain_is_one_line_without_colours() {
        let text = logged(LogFormat::Plain);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("Carried up uid=\"u-1\""), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_message_is_due_first_and_then_once_in_a_while() {
        let mut cadence = Cadence::new(Duration::from_secs(30));
        assert!(!cadence.reset());
        assert_eq!(cadence.due(), Some(0));
        for _ in 0..29 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(cadence.due(), None);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(cadence.due(), Some(29));
        assert_eq!(cadence.due(), None);
        assert!(cadence.reset());
        assert_eq!(cadence.due(), Some(0));
    }
}
