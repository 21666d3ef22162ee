//! Tenants that do not answer: one claim at a time finds out when they do again, and the others
//! wait, so that they neither take the workers of other tenants nor fail one by one.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::backoff;
use crate::settings::LoopSettings;

/// How long a claim waits for another one that is finding out; it is woken when there is an answer.
const PROBED: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Parked {
    failures: u32,
    until: Instant,
    probed: bool,
}

/// The tenants that did not answer last.
#[derive(Debug, Default)]
pub(super) struct Parking {
    parked: HashMap<String, Parked>,
}

impl Parking {
    /// How long a claim of this tenant must wait; `None`: it is to be looked at now.
    pub(super) fn wait(&mut self, tenant: &str, now: Instant) -> Option<Duration> {
        let parked = self.parked.get_mut(tenant)?;
        if parked.until > now {
            return Some(parked.until - now);
        }
        if parked.probed {
            return Some(PROBED);
        }
        parked.probed = true;
        None
    }

    /// The tenant did not answer: how long its claims must wait, and whether that is news.
    pub(super) fn silent(
        &mut self,
        tenant: &str,
        settings: &LoopSettings,
        now: Instant,
    ) -> (Duration, bool) {
        let news = !self.parked.contains_key(tenant);
        let parked = self.parked.entry(tenant.to_owned()).or_insert(Parked {
            failures: 0,
            until: now,
            probed: false,
        });
        // What was under way together fails together, and counts once.
        if parked.until <= now {
            parked.until = now + backoff::pause(settings, parked.failures);
            parked.failures = parked.failures.saturating_add(1);
            parked.probed = false;
        }
        (parked.until - now, news)
    }

    /// A look at a claim of the tenant ended without asking it: another one is to find out.
    pub(super) fn undecided(&mut self, tenant: &str) {
        if let Some(parked) = self.parked.get_mut(tenant) {
            parked.probed = false;
        }
    }

    /// The tenant answers, or is to be asked again for another reason: whether it was parked.
    pub(super) fn release(&mut self, tenant: &str) -> bool {
        self.parked.remove(tenant).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_claim_finds_out_and_the_others_wait() {
        let settings = LoopSettings {
            concurrency: 16,
            call_timeout: Duration::from_secs(10),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(30),
            dead_after: 20,
        };
        let start = Instant::now();
        let mut parking = Parking::default();
        assert_eq!(parking.wait("acme", start), None);
        let (pause, news) = parking.silent("acme", &settings, start);
        assert!(news && pause <= Duration::from_millis(100), "{pause:?}");
        let again = parking.silent("acme", &settings, start);
        assert_eq!(again, (pause, false), "what fails together counts once");
        assert_eq!(parking.wait("acme", start), Some(pause));
        assert_eq!(parking.wait("other", start), None);
        let later = start + pause;
        assert_eq!(parking.wait("acme", later), None, "the one that finds out");
        assert_eq!(parking.wait("acme", later), Some(PROBED));
        parking.undecided("acme");
        assert_eq!(parking.wait("acme", later), None, "the next one");
        let (longer, news) = parking.silent("acme", &settings, later);
        assert!(!news && longer > pause, "{longer:?}");
        assert!(parking.release("acme"));
        assert!(!parking.release("acme"));
        assert_eq!(parking.wait("acme", later), None);
    }
}
