//! Tenants that do not answer: their claims wait, so that they neither take the workers of other
//! tenants nor fail one by one, and a look at the tenant itself finds out when it answers again.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use carrick_core::Scope;

use super::backoff;
use crate::settings::LoopSettings;

/// How long a claim waits at least; it is woken when the tenant answers.
const WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Parked {
    failures: u32,
    /// When the tenant is to be asked again.
    until: Instant,
}

/// The tenants that did not answer last.
#[derive(Debug, Default)]
pub(super) struct Parking {
    parked: HashMap<String, Parked>,
}

impl Parking {
    /// How long this must wait; `None`: it is to be looked at now.
    pub(super) fn wait(&self, scope: &Scope, now: Instant) -> Option<Duration> {
        let parked = self.parked.get(scope.tenant())?;
        let left = parked.until.saturating_duration_since(now);
        match scope {
            Scope::Tenant { .. } => (!left.is_zero()).then_some(left),
            Scope::Namespace { .. } | Scope::Claim(_) => Some(left.max(WAIT)),
        }
    }

    /// The tenant did not answer: how long it is left alone, and whether that is news.
    pub(super) fn silent(
        &mut self,
        tenant: &str,
        settings: &LoopSettings,
        now: Instant,
    ) -> (Duration, bool) {
        let news = !self.parked.contains_key(tenant);
        let first = Parked { failures: 0, until: now };
        let parked = self.parked.entry(tenant.to_owned()).or_insert(first);
        // What was under way together fails together, and counts once.
        if parked.until <= now {
            parked.until = now + backoff::pause(settings, parked.failures);
            parked.failures = parked.failures.saturating_add(1);
        }
        (parked.until - now, news)
    }

    /// The tenant answers, is gone, or is another one: whether it was parked.
    pub(super) fn release(&mut self, tenant: &str) -> bool {
        self.parked.remove(tenant).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrick_core::ClaimKey;

    #[test]
    fn claims_wait_while_the_tenant_is_asked() {
        let settings = LoopSettings {
            concurrency: 16,
            call_timeout: Duration::from_secs(10),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(30),
            dead_after: 20,
            namespace_grace: Duration::from_secs(30),
        };
        let start = Instant::now();
        let mut parking = Parking::default();
        let tenant = Scope::Tenant { tenant: "acme".into() };
        let claim = Scope::Claim(ClaimKey::new("acme", "team-a", "data"));
        assert_eq!(parking.wait(&claim, start), None);
        let (pause, news) = parking.silent("acme", &settings, start);
        assert!(news && pause <= Duration::from_millis(100), "{pause:?}");
        let again = parking.silent("acme", &settings, start);
        assert_eq!(again, (pause, false), "what fails together counts once");
        assert_eq!(parking.wait(&tenant, start), Some(pause));
        let other = Scope::Claim(ClaimKey::new("other", "team-a", "data"));
        assert_eq!(parking.wait(&other, start), None);
        let later = start + pause;
        assert_eq!(parking.wait(&tenant, later), None, "it finds out");
        assert_eq!(parking.wait(&claim, later), Some(WAIT));
        let (longer, news) = parking.silent("acme", &settings, later);
        assert!(!news && longer > pause, "{longer:?}");
        assert!(parking.release("acme"));
        assert!(!parking.release("acme"));
        assert_eq!(parking.wait(&claim, later), None);
    }
}
