//! How long to wait before a claim is tried again.

use std::time::Duration;

use rand::Rng as _;

use crate::settings::LoopSettings;

/// The pause after the failure that follows `failures` others: doubling from the shortest to the
/// longest, less up to a quarter, so that claims that failed together do not return together.
pub(super) fn pause(settings: &LoopSettings, failures: u32) -> Duration {
    if failures >= settings.dead_after {
        return settings.retry_max;
    }
    let doubled =
        settings.retry_min.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
    doubled.min(settings.retry_max).mul_f64(rand::rng().random_range(0.75..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_the_longest() {
        let settings = LoopSettings {
            concurrency: 1,
            call_timeout: Duration::from_secs(1),
            retry_min: Duration::from_millis(100),
            retry_max: Duration::from_secs(30),
            dead_after: 20,
            namespace_grace: Duration::from_secs(30),
        };
        for (failures, shortest, longest) in [
            (0, 75, 100),
            (1, 150, 200),
            (5, 2400, 3200),
            (9, 22_500, 30_000),
            (40, 30_000, 30_000),
        ] {
            let pause = pause(&settings, failures).as_millis();
            assert!((shortest..=longest).contains(&pause), "{failures}: {pause} ms");
        }
    }
}
