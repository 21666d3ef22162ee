//! Saying that something is still being waited for: at once, and then once in a while.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const EVERY: Duration = Duration::from_secs(15);

/// Tells when it is time to say it again.
#[derive(Debug, Default)]
pub struct Quiet {
    last: Mutex<Option<Instant>>,
}

impl Quiet {
    /// Whether to say it now: the first time, and when it was last said a while ago.
    pub fn due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= EVERY);
        if due {
            *last = Some(Instant::now());
        }
        due
    }

    /// It is over: the next time is a first time again. Whether it had been said.
    pub fn over(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_it_at_first_and_then_not_at_once_again() {
        let quiet = Quiet::default();
        assert!(quiet.due());
        assert!(!quiet.due());
        assert!(quiet.over());
        assert!(!quiet.over());
        assert!(quiet.due());
    }
}
