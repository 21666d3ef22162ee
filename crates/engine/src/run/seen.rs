//! What the last look at each claim knew, so that the echo of one's own write, and a fact that was
//! read along with another, do not make a further look.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
};

use carrick_bus::FactMeta;
use carrick_core::{ClaimFacts, ClaimKey, Facet, Fact};
use k8s_openapi::{Metadata, apimachinery::pkg::apis::meta::v1::ObjectMeta};

/// Claims that are remembered; more are forgotten, which costs a look at each.
const LARGE: usize = 100_000;

/// One state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    /// The hash of its uid.
    uid: u64,
    rv: u64,
    deleted: bool,
}

/// The versions of each claim's objects that a look was settled on.
#[derive(Debug, Default)]
pub(super) struct Seen {
    claims: HashMap<ClaimKey, Vec<(Facet, Version)>>,
    hasher: RandomState,
}

impl Seen {
    /// A look at a claim ended well, and this is what it knew.
    pub(super) fn settled(&mut self, facts: &ClaimFacts) {
        if self.claims.len() >= LARGE && !self.claims.contains_key(&facts.key) {
            self.claims.clear();
        }
        let mut versions = Vec::new();
        if let Some(fact) = &facts.tenant_claim {
            versions.push((Facet::TenantClaim, self.version(fact)));
        }
        if let Some(fact) = &facts.host_claim {
            versions.push((Facet::HostClaim, self.version(fact)));
        }
        for (name, fact) in &facts.tenant_volumes {
            versions.push((Facet::TenantVolume(name.clone()), self.version(fact)));
        }
        for (name, fact) in &facts.host_volumes {
            versions.push((Facet::HostVolume(name.clone()), self.version(fact)));
        }
        self.claims.insert(facts.key.clone(), versions);
    }

    /// Nothing is certain of this claim any more.
    pub(super) fn forget(&mut self, key: &ClaimKey) {
        self.claims.remove(key);
    }

    /// Whether the last look knew this state of an object, or a later one. If only coming and
    /// going matters (`arrivals`), any state of the same object will do.
    pub(super) fn covers(
        &self,
        key: &ClaimKey,
        facet: &Facet,
        meta: &FactMeta,
        arrivals: bool,
    ) -> bool {
        let versions = self.claims.get(key);
        let known = versions.and_then(|list| list.iter().find(|(known, _)| known == facet));
        known.is_some_and(|(_, known)| {
            known.uid == self.hash(&meta.uid)
                && ((known.rv, known.deleted) >= (meta.rv, meta.deleted)
                    || (arrivals && known.deleted == meta.deleted))
        })
    }

    fn version<K: Metadata<Ty = ObjectMeta>>(&self, fact: &Fact<K>) -> Version {
        Version { uid: self.hash(fact.uid()), rv: fact.rv(), deleted: fact.deleted }
    }

    fn hash(&self, uid: &str) -> u64 {
        self.hasher.hash_one(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn meta(uid: &str, rv: u64, deleted: bool) -> FactMeta {
        let observed = jiff::Timestamp::UNIX_EPOCH;
        FactMeta { uid: uid.to_owned(), rv, observed, deleted }
    }

    #[test]
    fn what_was_known_is_no_news() {
        let key = ClaimKey::new("acme", "team-a", "data");
        let mut facts = ClaimFacts::new(key.clone());
        let claim = json!({"metadata": {"name": "data", "uid": "u", "resourceVersion": "10"}});
        facts.insert(&Facet::TenantClaim, false, claim).unwrap();
        let mut seen = Seen::default();
        let covers = |seen: &Seen, facet, meta, arrivals| {
            seen.covers(&ClaimKey::new("acme", "team-a", "data"), &facet, &meta, arrivals)
        };
        assert!(!covers(&seen, Facet::TenantClaim, meta("u", 10, false), false));
        seen.settled(&facts);
        for (version, arrivals, expected) in [
            (meta("u", 10, false), false, true),
            (meta("u", 9, false), false, true),
            (meta("u", 11, false), false, false),
            (meta("u", 11, false), true, true),
            (meta("u", 10, true), false, false),
            (meta("u", 11, true), true, false),
            (meta("v", 9, false), true, false),
        ] {
            let said = covers(&seen, Facet::TenantClaim, version.clone(), arrivals);
            assert_eq!(said, expected, "{version:?} {arrivals}");
        }
        assert!(!covers(&seen, Facet::HostClaim, meta("u", 10, false), true));
        seen.forget(&key);
        assert!(!covers(&seen, Facet::TenantClaim, meta("u", 10, false), false));
    }
}
