//! What the CLI writes to standard output: the one place, so that a reader who has gone is no
//! failure, and nothing that a tenant wrote reaches a terminal as a command.

use std::io::{self, Write as _};

use anyhow::Result;

/// Writes text and a line break; nothing for no text.
pub(crate) fn say(text: &str) -> Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Writes a question, and no line break.
pub(crate) fn ask(question: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{question}")?;
    Ok(out.flush()?)
}

/// Whether it went wrong only in that nobody reads any more.
pub(crate) fn is_unread(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}

/// Text in one line that a terminal only shows: what controls it is replaced.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_controls_the_terminal() {
        assert_eq!(plain("Bound \u{1b}[2J\n\u{9b}x ü"), "Bound \u{fffd}[2J\u{fffd}\u{fffd}x ü");
    }

    #[test]
    fn a_reader_who_has_gone_is_told_apart() {
        let error = |kind| anyhow::Error::from(io::Error::from(kind));
        assert!(is_unread(&error(io::ErrorKind::BrokenPipe)));
        assert!(!is_unread(&error(io::ErrorKind::StorageFull)));
        assert!(!is_unread(&anyhow::anyhow!("no")));
    }
}
