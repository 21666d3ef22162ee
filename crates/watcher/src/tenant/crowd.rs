//! How much of a tenant's own making goes to the bus beside its claims: services read all volumes
//! that name a claim, and all classes, at each look. What is too much is left out, to the harm of
//! nobody but that tenant. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use carrick_core::{FactSubject, Kind, Scope};
use carrick_k8s::ObjectKey;
use serde_json::Value;

/// Volumes that name one claim: there is one, and few stand where it would go.
const VOLUMES: usize = 8;
/// Classes of one tenant.
const CLASSES: usize = 256;
/// Bytes of a class.
const CLASS_BYTES: usize = 16 << 10;

/// What is on the bus of the kinds that are bounded.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    within: BTreeMap<(Kind, String), Scope>,
    counts: HashMap<(Kind, Scope), usize>,
}

impl Crowd {
    /// Whether an object may be filed there; it is counted there and nowhere else.
    pub(super) fn admits(&mut self, kind: Kind, object: &Value, subject: &FactSubject) -> bool {
        let limit = match kind {
            Kind::Volume => VOLUMES,
            Kind::Class if object.to_string().len() > CLASS_BYTES => 0,
            Kind::Class => CLASSES,
            Kind::Claim | Kind::Namespace | Kind::Event => return true,
        };
        let name = subject.facet.name().unwrap_or_default();
        let key = (kind, name.to_owned());
        let there = self.within.get(&key) == Some(&subject.scope);
        if there && limit > 0 {
            return true;
        }
        self.leaves(kind, name);
        let count = self.counts.entry((kind, subject.scope.clone())).or_default();
        if *count >= limit {
            return false;
        }
        *count += 1;
        self.within.insert(key, subject.scope.clone());
        true
    }

    /// An object is gone, or is filed nowhere.
    pub(super) fn leaves(&mut self, kind: Kind, name: &str) {
        let Some(scope) = self.within.remove(&(kind, name.to_owned())) else {
            return;
        };
        let key = (kind, scope);
        if let Some(count) = self.counts.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&key);
            }
        }
    }

    /// A complete list holds just these.
    pub(super) fn synced(&mut self, kind: Kind, listed: &BTreeSet<ObjectKey>) {
        let listed: BTreeSet<_> = listed.iter().map(|key| key.name.as_str()).collect();
        let of_kind = self.within.keys().filter(|(k, _)| *k == kind);
        let gone: Vec<_> =
            of_kind.filter(|(_, name)| !listed.contains(name.as_str())).cloned().collect();
        for (kind, name) in gone {
            self.leaves(kind, &name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::of_tenant;
    use serde_json::json;

    fn admits(crowd: &mut Crowd, kind: Kind, object: &Value) -> bool {
        crowd.admits(kind, object, &of_tenant("main", "acme", kind, object).unwrap())
    }

    fn volume(name: &str, claim: &str) -> Value {
        let claim_ref = json!({"namespace": "a", "name": claim});
        json!({"metadata": {"name": name}, "spec": {"claimRef": claim_ref}})
    }

    #[test]
    fn a_claim_has_few_volumes_and_others_wait_for_their_place() {
        let mut crowd = Crowd::default();
        for n in 0..VOLUMES {
            assert!(admits(&mut crowd, Kind::Volume, &volume(&format!("v{n}"), "x")));
        }
        assert!(!admits(&mut crowd, Kind::Volume, &volume("more", "x")));
        assert!(admits(&mut crowd, Kind::Volume, &volume("more", "y")), "of another claim");
        assert!(admits(&mut crowd, Kind::Volume, &volume("v0", "x")), "it is there");
        assert!(admits(&mut crowd, Kind::Volume, &volume("v0", "y")), "it has moved");
        assert!(admits(&mut crowd, Kind::Volume, &volume("again", "x")));
        crowd.leaves(Kind::Volume, "again");
        assert!(admits(&mut crowd, Kind::Volume, &volume("again", "x")));
        crowd.synced(Kind::Volume, &BTreeSet::new());
        assert!(crowd.counts.is_empty() && crowd.within.is_empty());
    }

    #[test]
    fn classes_are_few_and_small() {
        let class = |name: &str, note: &str| json!({"metadata": {"name": name, "annotations": {"note": note}}});
        let mut crowd = Crowd::default();
        assert!(!admits(&mut crowd, Kind::Class, &class("large", &"x".repeat(CLASS_BYTES))));
        for n in 0..CLASSES {
            assert!(admits(&mut crowd, Kind::Class, &class(&format!("c{n}"), "")));
        }
        assert!(!admits(&mut crowd, Kind::Class, &class("more", "")));
        assert!(!admits(&mut crowd, Kind::Class, &class("c0", &"x".repeat(CLASS_BYTES))));
        assert!(admits(&mut crowd, Kind::Class, &class("more", "")), "c0 has left");
        assert!(admits(
            &mut crowd,
            Kind::Claim,
            &json!({"metadata": {"namespace": "a", "name": "x"}})
        ));
    }
}
