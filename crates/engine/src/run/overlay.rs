//! Reads one's own writes: what a write returned is known at once, before its echo arrives.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use carrick_core::{ClaimFacts, ClaimKey, Facet};
use serde_json::Value;

/// How long an echo may take. Later, the bus is right, and the claim is looked at again.
const ECHO: Duration = Duration::from_secs(5);

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
    /// Until when each echo may take, in this order.
    due: VecDeque<(Instant, ClaimKey)>,
}

impl Overlay {
    /// Remembers what a write returned.
    pub(super) fn put(&mut self, key: &ClaimKey, facet: Facet, object: Value, now: Instant) {
        let until = now + ECHO;
        let list = self.own.entry(key.clone()).or_default();
        list.retain(|own| own.facet != facet);
        list.push(Own { facet, object, until });
        self.due.push_back((until, key.clone()));
    }

    /// Adds to what the bus knows of a claim what is newer here.
    pub(super) fn merge(&mut self, facts: &mut ClaimFacts, now: Instant) {
        self.retain(&facts.key.clone(), |own| own.until > now && is_newer(facts, own));
        for own in self.own.get(&facts.key).into_iter().flatten() {
            // What an API server returned fits: it was read once already.
            if facts.insert(&own.facet, false, own.object.clone()).is_err() {
                tracing::debug!(claim = %facts.key, "A written object is not readable");
            }
        }
    }

    /// The bus has this version of an object.
    pub(super) fn echoed(&mut self, key: &ClaimKey, facet: &Facet, rv: u64) {
        self.retain(key, |own| own.facet != *facet || version(&own.object) > rv);
    }

    /// When [`overdue`](Self::overdue) may have something next.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        while self.due.front().is_some_and(|(_, key)| !self.own.contains_key(key)) {
            self.due.pop_front();
        }
        self.due.front().map(|(until, _)| *until)
    }

    /// Claims whose echo has not come: what was written is forgotten.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<ClaimKey> {
        let mut overdue = Vec::new();
        while let Some((_, key)) = self.due.pop_front_if(|(until, _)| *until <= now) {
            if self.retain(&key, |own| own.until > now) {
                overdue.push(key);
            }
        }
        overdue
    }

    /// Whether anything was forgotten.
    fn retain(&mut self, key: &ClaimKey, keep: impl Fn(&Own) -> bool) -> bool {
        let Some(list) = self.own.get_mut(key) else {
            return false;
        };
        let before = list.len();
        list.retain(keep);
        let forgotten = list.len() < before;
        if list.is_empty() {
            self.own.remove(key);
        }
        forgotten
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
    known.is_none_or(|known| known < version(&own.object))
}

fn version(object: &Value) -> u64 {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.and_then(|rv| rv.parse().ok()).unwrap_or(0)
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
            overlay.merge(&mut facts, now);
            facts.host_claim.map(|fact| fact.rv())
        };
        assert_eq!(seen(&mut overlay, None, start), Some(10));
        assert_eq!(seen(&mut overlay, Some(9), start), Some(10));
        assert_eq!(seen(&mut overlay, Some(10), start), Some(10));
        assert_eq!(seen(&mut overlay, Some(9), start), Some(9), "dropped by its echo");
        overlay.put(&key, Facet::HostClaim, claim(11), start);
        assert_eq!(seen(&mut overlay, Some(9), start + ECHO), Some(9), "too old");
    }

    #[test]
    fn an_echo_that_does_not_come_is_noticed() {
        let key = ClaimKey::new("acme", "team-a", "data");
        let start = Instant::now();
        let mut overlay = Overlay::default();
        overlay.put(&key, Facet::HostClaim, claim(9), start);
        overlay.echoed(&key, &Facet::HostClaim, 8);
        assert_eq!(overlay.next_due(), Some(start + ECHO));
        overlay.echoed(&key, &Facet::HostClaim, 9);
        assert_eq!(overlay.next_due(), None);
        overlay.put(&key, Facet::HostClaim, claim(10), start);
        assert_eq!(overlay.overdue(start), []);
        assert_eq!(overlay.overdue(start + ECHO), [key]);
        assert_eq!(overlay.overdue(start + ECHO), []);
    }
}
