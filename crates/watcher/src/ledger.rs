//! What is on the bus, and what is to go there: one state of each subject at a time, the newest
//! only, and nothing that is there already. Pure.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use carrick_core::FactSubject;
use serde_json::Value;

use crate::placement::text;

/// How many tombstones are remembered. What is forgotten is only published once more.
const TOMBSTONES: usize = 10_000;

/// One state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The object's uid; empty if it is not known.
    pub(crate) uid: String,
    /// Its resourceVersion.
    pub(crate) rv: u64,
    /// Whether it is gone.
    pub(crate) deleted: bool,
}

/// What a fact says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    /// This object.
    Object(Arc<Value>),
    /// The object that the bus holds: the last one known.
    AsStored,
}

/// A fact to publish.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outgoing {
    /// Where.
    pub(crate) subject: FactSubject,
    /// What it says.
    pub(crate) body: Body,
    /// Which state it is.
    pub(crate) version: Version,
    /// The last sequence known of the subject.
    pub(crate) expected: u64,
}

#[derive(Debug, Default)]
struct Entry {
    sequence: u64,
    /// The newest state: stored, on its way, or waiting.
    newest: Option<Version>,
    flying: bool,
    waiting: Option<(Body, Version)>,
}

impl Entry {
    /// This is the newest state; `live` counts the live ones.
    fn know(&mut self, version: Version, live: &mut usize) {
        *live -= usize::from(self.is_live());
        self.newest = Some(version);
        *live += usize::from(self.is_live());
    }

    fn is_live(&self) -> bool {
        self.newest.as_ref().is_some_and(|newest| !newest.deleted)
    }
}

/// What is on the bus, and what is to go there.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: HashMap<FactSubject, Entry>,
    /// Subjects with something waiting and nothing on its way, first come first; a few may be
    /// outdated.
    ready: VecDeque<FactSubject>,
    tombstones: VecDeque<FactSubject>,
    waiting: usize,
    flying: usize,
    live: usize,
}

impl Ledger {
    /// This is on the bus.
    pub(crate) fn load(&mut self, subject: FactSubject, sequence: u64, version: Version) {
        if version.deleted {
            self.remember(subject.clone());
        }
        let entry = self.entries.entry(subject).or_default();
        entry.sequence = sequence;
        entry.know(version, &mut self.live);
    }

    /// The object is like this now.
    pub(crate) fn put(&mut self, subject: FactSubject, object: Arc<Value>) {
        let mut version = version(&object, false);
        let entry = self.entries.entry(subject.clone()).or_default();
        if let Some(newest) = entry.newest.as_ref().filter(|n| n.uid == version.uid) {
            if newest.rv >= version.rv && !newest.deleted {
                return;
            }
            // It has come back without a change of its own, as a class that is allowed again: a
            // tombstone of the same age would win.
            if newest.deleted && newest.rv >= version.rv {
                version.rv = newest.rv + 1;
            }
        }
        self.wait(subject, Body::Object(object), version);
    }

    /// The object is gone; its last state, if it is known here. What was never there is not buried,
    /// and nothing is buried twice.
    pub(crate) fn bury(&mut self, subject: FactSubject, object: Option<Arc<Value>>) {
        let Some(entry) = self.entries.get_mut(&subject) else {
            return;
        };
        let Some(newest) = entry.newest.clone().filter(|newest| !newest.deleted) else {
            return;
        };
        let mut version = Version { deleted: true, ..newest.clone() };
        if let Some(object) = &object {
            let last = self::version(object, true);
            if last.uid != newest.uid && last.rv < newest.rv {
                return;
            }
            version.rv = last.rv.max(newest.rv);
            version.uid = last.uid;
        }
        let unsent = entry.waiting.take();
        if unsent.is_some() {
            self.waiting -= 1;
        }
        let body = match (object, unsent) {
            (Some(object), _) => Body::Object(object),
            (None, Some((body, _))) => body,
            (None, None) => Body::AsStored,
        };
        self.remember(subject.clone());
        self.wait(subject, body, version);
    }

    /// The next fact to publish; [`finished`](Self::finished) is to be told about it.
    pub(crate) fn next(&mut self) -> Option<Outgoing> {
        loop {
            let subject = self.ready.pop_front()?;
            let Some(entry) = self.entries.get_mut(&subject) else {
                continue;
            };
            if entry.flying {
                continue;
            }
            let Some((body, version)) = entry.waiting.take() else {
                continue;
            };
            entry.flying = true;
            self.waiting -= 1;
            self.flying += 1;
            return Some(Outgoing { expected: entry.sequence, subject, body, version });
        }
    }

    /// A fact is on the bus, or (`found`) another state was there already that is not older.
    pub(crate) fn finished(
        &mut self,
        subject: &FactSubject,
        sequence: u64,
        found: Option<Version>,
    ) {
        let Some(entry) = self.entries.get_mut(subject) else {
            return;
        };
        entry.flying = false;
        entry.sequence = sequence;
        self.flying -= 1;
        if entry.waiting.is_some() {
            self.ready.push_back(subject.clone());
        } else if let Some(found) = found {
            entry.know(found, &mut self.live);
        }
    }

    /// What is live on the bus, or will be.
    pub(crate) fn live(&self) -> impl Iterator<Item = &FactSubject> {
        self.entries.iter().filter(|(_, entry)| entry.is_live()).map(|(subject, _)| subject)
    }

    /// How many facts are live on the bus, at least.
    pub(crate) fn stored(&self) -> usize {
        self.live.saturating_sub(self.pending())
    }

    /// How many facts wait or are on their way.
    pub(crate) fn pending(&self) -> usize {
        self.waiting + self.flying
    }

    fn wait(&mut self, subject: FactSubject, body: Body, version: Version) {
        let entry = self.entries.entry(subject.clone()).or_default();
        entry.know(version.clone(), &mut self.live);
        if entry.waiting.replace((body, version)).is_none() {
            self.waiting += 1;
            if !entry.flying {
                self.ready.push_back(subject);
            }
        }
    }

    /// Of many tombstones the oldest are forgotten.
    fn remember(&mut self, subject: FactSubject) {
        self.tombstones.push_back(subject);
        if self.tombstones.len() <= TOMBSTONES {
            return;
        }
        if let Some(oldest) = self.tombstones.pop_front() {
            let gone = self
                .entries
                .get(&oldest)
                .is_some_and(|entry| !entry.is_live() && !entry.flying && entry.waiting.is_none());
            if gone {
                self.entries.remove(&oldest);
            }
        }
    }
}

/// The version of an object.
pub(crate) fn version(object: &Value, deleted: bool) -> Version {
    Version {
        uid: text(object, "/metadata/uid").to_owned(),
        rv: text(object, "/metadata/resourceVersion").parse().unwrap_or(0),
        deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrick_core::{ClaimKey, Facet, Scope};
    use serde_json::json;

    fn subject(claim: &str) -> FactSubject {
        FactSubject {
            target: "main".into(),
            scope: Scope::Claim(ClaimKey::new("acme", "team-a", claim)),
            facet: Facet::TenantClaim,
        }
    }

    fn object(uid: &str, rv: u64) -> Arc<Value> {
        Arc::new(json!({"metadata": {"uid": uid, "resourceVersion": rv.to_string()}}))
    }

    fn at(uid: &str, rv: u64, deleted: bool) -> Version {
        Version { uid: uid.to_owned(), rv, deleted }
    }

    /// What is sent next, and that it is stored as `sequence`.
    fn send(ledger: &mut Ledger, sequence: u64) -> Option<(Body, Version, u64)> {
        let out = ledger.next()?;
        ledger.finished(&out.subject, sequence, None);
        Some((out.body, out.version, out.expected))
    }

    #[test]
    fn what_is_on_the_bus_is_not_published_again() {
        let mut ledger = Ledger::default();
        ledger.load(subject("a"), 7, at("u", 10, false));
        ledger.put(subject("a"), object("u", 10));
        ledger.put(subject("a"), object("u", 9));
        assert_eq!((ledger.next(), ledger.pending()), (None, 0));
        ledger.put(subject("a"), object("u", 11));
        let sent = send(&mut ledger, 8).unwrap();
        assert_eq!((sent.1, sent.2), (at("u", 11, false), 7));
        // One of the same name, made anew, just replaces it.
        ledger.put(subject("a"), object("v", 12));
        assert_eq!(send(&mut ledger, 9).unwrap().1, at("v", 12, false));
    }

    #[test]
    fn one_at_a_time_and_only_the_newest_waits() {
        let mut ledger = Ledger::default();
        ledger.put(subject("a"), object("u", 1));
        let first = ledger.next().unwrap();
        for rv in 2..100 {
            ledger.put(subject("a"), object("u", rv));
        }
        ledger.put(subject("b"), object("w", 3));
        assert_eq!(ledger.pending(), 3);
        assert_eq!(ledger.next().unwrap().subject, subject("b"));
        assert_eq!(ledger.next(), None, "the other one is on its way");
        ledger.finished(&first.subject, 5, None);
        let second = ledger.next().unwrap();
        assert_eq!((second.version.rv, second.expected), (99, 5));
        ledger.finished(&second.subject, 6, None);
        assert_eq!(ledger.stored(), 1, "one of two is on its way");
        ledger.finished(&subject("b"), 7, None);
        assert_eq!((ledger.pending(), ledger.stored()), (0, 2));
    }

    #[test]
    fn a_delete_is_a_tombstone_once() {
        let mut ledger = Ledger::default();
        ledger.bury(subject("never-there"), Some(object("u", 1)));
        assert_eq!(ledger.next(), None);
        ledger.load(subject("a"), 1, at("u", 10, false));
        ledger.bury(subject("a"), Some(object("u", 12)));
        ledger.bury(subject("a"), None);
        let sent = send(&mut ledger, 2).unwrap();
        assert_eq!(sent.0, Body::Object(object("u", 12)));
        assert_eq!(sent.1, at("u", 12, true));
        ledger.bury(subject("a"), Some(object("u", 12)));
        assert_eq!(ledger.next(), None);
        assert_eq!(ledger.live().count(), 0);
        assert_eq!(ledger.stored(), 0);
    }

    #[test]
    fn what_a_relist_lacks_is_buried_as_it_was_last_known() {
        let mut ledger = Ledger::default();
        ledger.load(subject("a"), 1, at("u", 10, false));
        ledger.load(subject("b"), 2, at("v", 11, true));
        let live: Vec<_> = ledger.live().cloned().collect();
        assert_eq!(live, [subject("a")]);
        ledger.bury(subject("a"), None);
        ledger.bury(subject("b"), None);
        let sent = send(&mut ledger, 3).unwrap();
        assert_eq!((sent.0, sent.1), (Body::AsStored, at("u", 10, true)));
        assert_eq!(ledger.next(), None);
        // Not sent yet: the state that waits is the last known one.
        ledger.put(subject("c"), object("w", 12));
        ledger.bury(subject("c"), None);
        assert_eq!(ledger.pending(), 1);
        let sent = send(&mut ledger, 4).unwrap();
        assert_eq!(sent.0, Body::Object(object("w", 12)));
        assert_eq!(sent.1, at("w", 12, true));
    }

    #[test]
    fn a_late_delete_of_a_former_one_is_no_news() {
        let mut ledger = Ledger::default();
        ledger.load(subject("a"), 1, at("v", 20, false));
        ledger.bury(subject("a"), Some(object("u", 12)));
        assert_eq!(ledger.next(), None);
    }

    #[test]
    fn what_comes_back_unchanged_beats_its_tombstone() {
        let mut ledger = Ledger::default();
        ledger.load(subject("a"), 1, at("u", 10, false));
        ledger.bury(subject("a"), None);
        send(&mut ledger, 2).unwrap();
        ledger.put(subject("a"), object("u", 10));
        assert_eq!(send(&mut ledger, 3).unwrap().1, at("u", 11, false));
        ledger.put(subject("a"), object("u", 10));
        assert_eq!(ledger.next(), None, "it is there");
        ledger.bury(subject("a"), Some(object("u", 10)));
        assert_eq!(send(&mut ledger, 4).unwrap().1, at("u", 11, true));
    }

    #[test]
    fn a_newer_state_of_somebody_else_is_left_alone() {
        let mut ledger = Ledger::default();
        ledger.put(subject("a"), object("u", 10));
        ledger.next().unwrap();
        ledger.finished(&subject("a"), 9, Some(at("", 12, true)));
        ledger.put(subject("a"), object("u", 11));
        let sent = send(&mut ledger, 9).unwrap();
        assert_eq!((sent.1, sent.2), (at("u", 11, false), 9), "the bus decides");
    }

    #[test]
    fn tombstones_are_not_remembered_for_ever() {
        let mut ledger = Ledger::default();
        for n in 0..TOMBSTONES + 5 {
            ledger.load(subject(&format!("c{n}")), 1, at("u", 1, true));
        }
        assert_eq!(ledger.entries.len(), TOMBSTONES);
    }
}
