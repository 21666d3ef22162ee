//! Host objects in namespaces that are nobody's, in case the namespace turns out to be a tenant's:
//! their names, and the last state of the most recent ones. Pure.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use carrick_core::Kind;
use serde_json::Value;

/// How many objects are kept whole.
const WHOLE: usize = 1000;

/// One object: its kind and name.
type Key = (Kind, String);

/// What is kept aside.
#[derive(Debug, Default)]
pub(super) struct Aside {
    namespaces: HashMap<String, BTreeMap<Key, Option<Arc<Value>>>>,
    /// In which namespace each volume's claim is.
    volumes: HashMap<String, String>,
    whole: VecDeque<(String, Key)>,
}

impl Aside {
    /// Keeps an object that belongs to a namespace; `None`: only its name.
    pub(super) fn keep(
        &mut self,
        namespace: &str,
        kind: Kind,
        name: &str,
        object: Option<Arc<Value>>,
    ) {
        let key = (kind, name.to_owned());
        if kind == Kind::Volume {
            self.volumes.insert(name.to_owned(), namespace.to_owned());
        }
        if object.is_some() {
            self.whole.push_back((namespace.to_owned(), key.clone()));
        }
        let objects = self.namespaces.entry(namespace.to_owned()).or_default();
        objects.insert(key, object);
        if self.whole.len() > WHOLE
            && let Some((namespace, key)) = self.whole.pop_front()
            && let Some(objects) = self.namespaces.get_mut(&namespace)
            && let Some(object) = objects.get_mut(&key)
        {
            *object = None;
        }
    }

    /// A claim or volume is not to be kept any more.
    pub(super) fn forget(&mut self, namespace: &str, kind: Kind, name: &str) {
        let namespace = match kind {
            Kind::Volume => self.volumes.remove(name),
            _ => Some(namespace.to_owned()),
        };
        let Some(namespace) = namespace else { return };
        if let Some(objects) = self.namespaces.get_mut(&namespace) {
            objects.remove(&(kind, name.to_owned()));
            if objects.is_empty() {
                self.namespaces.remove(&namespace);
            }
        }
    }

    /// All that belongs to a namespace; it is not kept any more.
    pub(super) fn take(&mut self, namespace: &str) -> BTreeMap<Key, Option<Arc<Value>>> {
        let taken = self.namespaces.remove(namespace).unwrap_or_default();
        for (kind, name) in taken.keys() {
            if *kind == Kind::Volume {
                self.volumes.remove(name);
            }
        }
        taken
    }

    /// A complete list of a kind: what is not in it is gone.
    pub(super) fn synced(&mut self, kind: Kind, listed: &HashSet<(&str, &str)>) {
        self.namespaces.retain(|namespace, objects| {
            objects.retain(|(k, name), _| {
                let place = if kind == Kind::Volume { "" } else { namespace };
                *k != kind || listed.contains(&(place, name.as_str()))
            });
            !objects.is_empty()
        });
        if kind == Kind::Volume {
            self.volumes.retain(|name, _| listed.contains(&("", name.as_str())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_most_recent_are_kept_whole_and_all_by_name() {
        let mut aside = Aside::default();
        let body = Arc::new(Value::Null);
        for n in 0..WHOLE + 10 {
            aside.keep("ns", Kind::Claim, &format!("c{n:06}"), Some(body.clone()));
        }
        aside.keep("other", Kind::Volume, "pv", Some(body.clone()));
        let taken = aside.take("ns");
        assert_eq!(taken.len(), WHOLE + 10);
        assert_eq!(taken.values().filter(|v| v.is_none()).count(), 11);
        assert!(aside.take("ns").is_empty());
        assert_eq!(aside.take("other").len(), 1);
    }

    #[test]
    fn what_is_gone_is_not_kept() {
        let mut aside = Aside::default();
        for (kind, name) in [(Kind::Claim, "c"), (Kind::Volume, "v"), (Kind::Volume, "w")] {
            aside.keep("ns", kind, name, None);
        }
        aside.forget("", Kind::Volume, "v");
        aside.synced(Kind::Claim, &HashSet::new());
        aside.synced(Kind::Volume, &HashSet::from([("", "w")]));
        let names: Vec<_> = aside.take("ns").into_keys().collect();
        assert_eq!(names, [(Kind::Volume, "w".to_owned())]);
    }
}
