//! Logs: to standard error, with RFC 3339 times, as JSON or plain. Messages are constant
//! sentences; what varies is in fields. Bodies of objects and secrets are never logged.

use std::io::{self, IsTerminal};

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
}
