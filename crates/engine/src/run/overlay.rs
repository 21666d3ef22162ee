//! Reads one's own writes: what a write returned is known at once, before its echo arrives.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use carrick_core::{ClaimFacts, ClaimKey, Facet};
use serde_json::Value;

/// How long an echo may take. Later, the bus is right.
const ECHO: Duration = Duration::from_secs(5);
/// When to look for entries whose echo will not come.
const LARGE: usize = 4096;

#[derive(Debug)]
struct Own {
    facet: Facet,
    object: Value,
    until: Instant,
}

/// Objects that writes returned, by claim.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    own: HashMap<ClaimKey, Vec<Own>>,
}

impl Overlay {
    /// Remembers what a write returned.
    pub(super) fn put(&mut self, key: &ClaimKey, facet: Facet, object: Value, now: Instant) {
        if self.own.len() >= LARGE {
            self.own.retain(|_, list| {
                list.retain(|own| own.until > now);
                !list.is_empty()
            });
        }
        let list = self.own.entry(key.clone()).or_default();
        list.retain(|own| own.facet != facet);
        list.push(Own { facet, object, until: now + ECHO });
    }

    /// Adds to what the bus knows of a claim what is newer here. Returns how long that may still
    /// differ from the bus, if it does.
    pub(super) fn merge(&mut self, facts: &mut ClaimFacts, now: Instant) -> Option<Duration> {
        let list = self.own.get_mut(&facts.key)?;
        list.retain(|own| own.until > now && is_newer(facts, own));
        if list.is_empty() {
            self.own.remove(&facts.key);
            return None;
        }
        let mut longest = Duration::ZERO;
        for own in list.iter() {
            longest = longest.max(own.until - now);
            // What an API server returned fits: it was read once already.
            if facts.insert(&own.facet, false, own.object.clone()).is_err() {
                tracing::debug!(claim = %facts.key, "A written object is not readable");
            }
        }
        Some(longest)
    }
}

/// Whether the bus does not have this version yet.
fn is_newer(facts: &ClaimFacts, own: &Own) -> bool {
    let known = match &own.facet {
        Facet::TenantClaim => facts.tenant_claim.as_ref().map(carrick_core::Fact::rv),
        Facet::HostClaim => facts.host_claim.as_ref().map(carrick_core::Fact::rv),
        Facet::TenantNamespace => facts.tenant_namespace.as_ref().map(carrick_core::Fact::rv),
        Facet::HostNamespace => facts.host_namespace.as_ref().map(carrick_core::Fact::rv),
        Facet::TenantVolume(name) => facts.tenant_volumes.get(name).map(carrick_core::Fact::rv),
        Facet::HostVolume(name) => facts.host_volumes.get(name).map(carrick_core::Fact::rv),
        Facet::TenantClass(_) | Facet::HostClass(_) => None,
    };
    let written = own.object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    let written: u64 = written.and_then(|rv| rv.parse().ok()).unwrap_or(0);
    known.is_none_or(|known| known < written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(rv: u64) -> Value {
        json!({"metadata": {"name": "data", "resourceVersion": rv.to_string()}})
    }

    #[test]
    fn a_write_is_known_until_its_echo_arrives_or_does_not_come() {
        let key = ClaimKey::new("acme", "team-a", "data");
        let start = Instant::now();
        let mut overlay = Overlay::default();
        overlay.put(&key, Facet::HostClaim, claim(9), start);
        overlay.put(&key, Facet::HostClaim, claim(10), start);
        let seen = |overlay: &mut Overlay, bus: Option<u64>, now| {
            let mut facts = ClaimFacts::new(key.clone());
            if let Some(rv) = bus {
                facts.insert(&Facet::HostClaim, false, claim(rv)).unwrap();
            }
            let differs = overlay.merge(&mut facts, now).is_some();
            (facts.host_claim.map(|fact| fact.rv()), differs)
        };
        assert_eq!(seen(&mut overlay, None, start), (Some(10), true));
        assert_eq!(seen(&mut overlay, Some(9), start), (Some(10), true));
        assert_eq!(seen(&mut overlay, Some(10), start), (Some(10), false));
        assert_eq!(seen(&mut overlay, Some(9), start), (Some(9), false), "dropped by its echo");
        overlay.put(&key, Facet::HostClaim, claim(11), start);
        assert_eq!(seen(&mut overlay, Some(9), start + ECHO), (Some(9), false), "too old");
    }
}
