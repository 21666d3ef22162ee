//! Where each object is filed at present, so that one that moves or goes leaves nothing behind.
//! Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use carrick_core::{FactSubject, Kind};
use carrick_k8s::ObjectKey;
use serde_json::Value;

/// What is to be done about a fact.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Act {
    /// This is the object now.
    Put(FactSubject, Arc<Value>),
    /// The object is gone from there; its last state, if that is known.
    Bury(FactSubject, Option<Arc<Value>>),
    /// Only a live read tells what is to be done about this object (kind, namespace, name).
    Fetch(Kind, String, String),
}

/// Kind, namespace and name.
type Key = (Kind, String, String);

/// Where each object is filed.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<Key, Vec<FactSubject>>);

impl Places {
    /// An object is as it is now, and filed just here.
    pub(crate) fn set(
        &mut self,
        kind: Kind,
        object: &Arc<Value>,
        subjects: Vec<FactSubject>,
    ) -> Vec<Act> {
        let before = self.0.remove(&key(kind, object)).unwrap_or_default();
        let left = before.into_iter().filter(|s| !subjects.contains(s));
        let mut acts: Vec<_> = left.map(|s| Act::Bury(s, Some(object.clone()))).collect();
        acts.extend(subjects.iter().map(|s| Act::Put(s.clone(), object.clone())));
        if !subjects.is_empty() {
            self.0.insert(key(kind, object), subjects);
        }
        acts
    }

    /// An object is gone; this was its last state. `subjects` are where it would be filed, for one
    /// that was never told.
    pub(crate) fn gone(
        &mut self,
        kind: Kind,
        object: &Arc<Value>,
        subjects: Vec<FactSubject>,
    ) -> Vec<Act> {
        let filed = self.0.remove(&key(kind, object)).unwrap_or(subjects);
        let filed = filed.into_iter();
        filed.map(|s| Act::Bury(s, Some(object.clone()))).collect()
    }

    /// Takes an object out, although it may be there still; where it was filed.
    pub(crate) fn take(&mut self, kind: Kind, namespace: &str, name: &str) -> Vec<FactSubject> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.0.remove(&key).unwrap_or_default()
    }

    /// Where an object is filed.
    pub(crate) fn get(&self, kind: Kind, namespace: &str, name: &str) -> &[FactSubject] {
        let key = (kind, namespace.to_owned(), name.to_owned());
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Names of the objects of a kind in a namespace.
    pub(crate) fn names_in(&self, kind: Kind, namespace: &str) -> Vec<String> {
        let from = (kind, namespace.to_owned(), String::new());
        let rest = self.0.range(from..);
        rest.take_while(|((k, ns, _), _)| *k == kind && ns == namespace)
            .map(|((_, _, name), _)| name.clone())
            .collect()
    }

    /// A complete list holds just these objects of a kind. Of `known`, which is all that is known
    /// to be live on the bus of that kind, gives what is not filed any more.
    pub(crate) fn synced<'a>(
        &mut self,
        kind: Kind,
        listed: &BTreeSet<ObjectKey>,
        known: impl Iterator<Item = &'a FactSubject>,
    ) -> Vec<Act> {
        let names: HashSet<(&str, &str)> =
            listed.iter().map(|key| (key.namespace.as_str(), key.name.as_str())).collect();
        self.0.retain(|(k, namespace, name), _| {
            *k != kind || names.contains(&(namespace.as_str(), name.as_str()))
        });
        let of_kind = self.0.iter().filter(|((k, _, _), _)| *k == kind);
        let filed: HashSet<&FactSubject> = of_kind.flat_map(|(_, subjects)| subjects).collect();
        known
            .filter(|subject| !filed.contains(*subject))
            .map(|subject| Act::Bury(subject.clone(), None))
            .collect()
    }
}

fn key(kind: Kind, object: &Value) -> Key {
    let (namespace, name) = (crate::placement::namespace(object), crate::placement::name(object));
    (kind, namespace.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{of_tenant, tests::volume};

    fn filed(object: &Value) -> Vec<FactSubject> {
        of_tenant("main", "acme", Kind::Volume, object).into_iter().collect()
    }

    fn listed(names: &[&str]) -> BTreeSet<ObjectKey> {
        let key = |name: &&str| ObjectKey {
            namespace: String::new(),
            name: (*name).to_owned(),
            uid: format!("uid-{name}"),
        };
        names.iter().map(key).collect()
    }

    #[test]
    fn an_object_that_moves_leaves_a_tombstone() {
        let mut places = Places::default();
        let before = Arc::new(volume("pv-1", "a", "x", 1));
        let after = Arc::new(volume("pv-1", "a", "y", 2));
        let (old, new) = (filed(&before), filed(&after));
        assert_eq!(
            places.set(Kind::Volume, &before, old.clone()),
            [Act::Put(old[0].clone(), before.clone())]
        );
        assert_eq!(
            places.set(Kind::Volume, &after, new.clone()),
            [
                Act::Bury(old[0].clone(), Some(after.clone())),
                Act::Put(new[0].clone(), after.clone())
            ]
        );
        let freed = Arc::new(volume("pv-1", "", "", 3));
        assert_eq!(
            places.set(Kind::Volume, &freed, filed(&freed)),
            [Act::Bury(new[0].clone(), Some(freed.clone()))]
        );
        assert_eq!(places.gone(Kind::Volume, &freed, Vec::new()), []);
    }

    #[test]
    fn what_a_complete_list_lacks_is_buried_and_nothing_else() {
        let mut places = Places::default();
        let objects = ["pv-1", "pv-2"].map(|name| Arc::new(volume(name, "a", name, 1)));
        for object in &objects {
            places.set(Kind::Volume, object, filed(object));
        }
        let moved = filed(&volume("pv-1", "a", "before", 1));
        let strange = filed(&volume("pv-9", "a", "x", 1));
        let known: Vec<_> = objects.iter().flat_map(|o| filed(o)).collect();
        let known: Vec<_> = known.into_iter().chain(moved.clone()).chain(strange.clone()).collect();
        let acts = places.synced(Kind::Volume, &listed(&["pv-1"]), known.iter());
        let buried = [&filed(&objects[1])[0], &moved[0], &strange[0]];
        assert_eq!(acts, buried.map(|s| Act::Bury(s.clone(), None)));
        assert_eq!(places.synced(Kind::Claim, &BTreeSet::new(), std::iter::empty()), []);
        assert_eq!(places.get(Kind::Volume, "", "pv-1"), filed(&objects[0]));
    }
}
