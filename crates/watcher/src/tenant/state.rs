//! What is known of a tenant at present, and what a change means for the facts. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use carrick_core::{FactSubject, Kind, Side};
use carrick_k8s::ObjectKey;
use serde_json::Value;

use super::{binder::shows_binder, crowd::Crowd};
use crate::{
    placement::{KINDS, name, namespace, of_tenant, origin, text},
    places::{Act, Places},
};

/// What is known of a tenant.
#[derive(Debug)]
pub(super) struct State {
    target: String,
    tenant: String,
    places: Places,
    crowd: Crowd,
    crowded: bool,
    phases: HashMap<(String, String), &'static str>,
    synced: BTreeSet<Kind>,
    has_binder: bool,
    recount: bool,
}

impl State {
    /// Nothing of the tenant is known yet.
    pub(super) fn new(target: &str, tenant: &str) -> Self {
        Self {
            target: target.to_owned(),
            tenant: tenant.to_owned(),
            places: Places::default(),
            crowd: Crowd::default(),
            crowded: false,
            phases: HashMap::new(),
            synced: BTreeSet::new(),
            has_binder: false,
            recount: false,
        }
    }

    /// An object is as it is now.
    pub(super) fn apply(&mut self, kind: Kind, object: &Arc<Value>) -> Vec<Act> {
        self.has_binder = self.has_binder || shows_binder(kind, object);
        if kind == Kind::Claim {
            let phase = phase(object);
            let before = self.phases.insert(place(object), phase);
            self.recount |= before != Some(phase);
        }
        let mut subjects = self.filed(kind, object);
        if subjects.is_empty() {
            self.crowd.leaves(kind, name(object));
        }
        let all = subjects.len();
        subjects.retain(|subject| self.crowd.admits(kind, object, subject));
        self.crowded |= subjects.len() < all;
        self.places.set(kind, object, subjects)
    }

    /// An object is gone; this was its last state.
    pub(super) fn delete(&mut self, kind: Kind, object: &Arc<Value>) -> Vec<Act> {
        if kind == Kind::Claim {
            self.recount |= self.phases.remove(&place(object)).is_some();
        }
        self.crowd.leaves(kind, name(object));
        self.places.gone(kind, object, self.filed(kind, object))
    }

    /// A complete list holds just these. `live`: all that is known to be live on the bus.
    pub(super) fn synced<'a>(
        &mut self,
        kind: Kind,
        listed: &BTreeSet<ObjectKey>,
        live: impl Iterator<Item = &'a FactSubject>,
    ) -> Vec<Act> {
        self.synced.insert(kind);
        if kind == Kind::Claim {
            let there: BTreeSet<_> =
                listed.iter().map(|key| (key.namespace.as_str(), key.name.as_str())).collect();
            self.recount = true;
            self.phases.retain(|(namespace, name), _| {
                there.contains(&(namespace.as_str(), name.as_str()))
            });
        }
        self.crowd.synced(kind, listed);
        let ours = live.filter(|subject| origin(&subject.facet) == (Side::Tenant, kind));
        self.places.synced(kind, listed, ours)
    }

    /// The tenant does not have objects of that kind.
    pub(super) fn not_served(&mut self, kind: Kind) {
        self.synced.insert(kind);
    }

    /// Whether the first lists of all kinds are in.
    pub(super) fn is_complete(&self) -> bool {
        KINDS.iter().all(|kind| self.synced.contains(kind))
    }

    /// Whether something showed that the tenant has a binder.
    pub(super) fn has_binder(&self) -> bool {
        self.has_binder
    }

    /// Whether something was left out since this was last asked, because there is too much of it.
    pub(super) fn take_crowded(&mut self) -> bool {
        std::mem::take(&mut self.crowded)
    }

    /// Whether the claims are to be counted since this was last asked.
    pub(super) fn take_recount(&mut self) -> bool {
        std::mem::take(&mut self.recount)
    }

    /// How many claims there are in each phase.
    pub(super) fn claims(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for phase in self.phases.values() {
            *counts.entry((*phase).to_owned()).or_default() += 1;
        }
        counts
    }

    fn filed(&self, kind: Kind, object: &Value) -> Vec<FactSubject> {
        of_tenant(&self.target, &self.tenant, kind, object).into_iter().collect()
    }
}

fn place(object: &Value) -> (String, String) {
    (namespace(object).to_owned(), name(object).to_owned())
}

/// A claim's phase; what a tenant makes up is `Other`.
fn phase(claim: &Value) -> &'static str {
    match text(claim, "/status/phase") {
        "Bound" => "Bound",
        "Lost" => "Lost",
        "" | "Pending" => "Pending",
        _ => "Other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(name: &str, phase: &str) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": "1"},
            "status": {"phase": phase},
        }))
    }

    #[test]
    fn claims_are_counted_by_phase_as_they_come_and_go() {
        let mut state = State::new("main", "acme");
        for (name, phase) in [("x", "Bound"), ("y", "Pending"), ("z", "Nonsense"), ("z", "")] {
            state.apply(Kind::Claim, &claim(name, phase));
        }
        let counts = |pairs: &[(&str, u32)]| {
            let pairs = pairs.iter().map(|(phase, n)| ((*phase).to_owned(), *n));
            pairs.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(state.claims(), counts(&[("Bound", 1), ("Pending", 2)]));
        state.delete(Kind::Claim, &claim("x", "Bound"));
        let listed = [ObjectKey::of(&claim("y", "")).unwrap()].into();
        let live = ["tenant-claim", "host-claim"]
            .map(|facet| format!("carrick.v1.main.fact.acme.a.z.{facet}"))
            .map(|subject| FactSubject::parse(&subject).unwrap());
        let acts = state.synced(Kind::Claim, &listed, live.iter());
        assert_eq!(acts, [Act::Bury(live[0].clone(), None)]);
        assert_eq!(state.claims(), counts(&[("Pending", 1)]));
        assert!(!state.is_complete());
    }

    #[test]
    fn a_tenant_without_classes_is_complete() {
        let mut state = State::new("main", "acme");
        for kind in [Kind::Namespace, Kind::Claim, Kind::Volume] {
            state.synced(kind, &BTreeSet::new(), std::iter::empty());
        }
        assert!(!state.is_complete());
        state.not_served(Kind::Class);
        assert!(state.is_complete() && !state.has_binder());
    }
}
