//! What of the host is whose at present, and what a change means for the facts. Pure.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use carrick_core::{FactSubject, Kind, Side};
use carrick_k8s::ObjectKey;
use serde_json::Value;

use super::aside::Aside;
use crate::{
    placement::{HostView, Owner, claim_of, name, namespace, origin},
    places::{Act, Places},
};

/// A volume that is filed by its claimRef.
#[derive(Debug)]
struct Filed {
    /// The host namespace in its claimRef.
    namespace: String,
    /// Where it would be filed without that namespace.
    otherwise: Option<FactSubject>,
}

/// What of the host is whose.
#[derive(Debug)]
pub(super) struct State {
    view: Arc<HostView>,
    namespaces: BTreeMap<String, Owner>,
    places: Places,
    volumes: BTreeMap<String, Filed>,
    aside: Aside,
}

impl State {
    /// Nothing of the host is known yet.
    pub(super) fn new(view: Arc<HostView>) -> Self {
        Self {
            view,
            namespaces: BTreeMap::new(),
            places: Places::default(),
            volumes: BTreeMap::new(),
            aside: Aside::default(),
        }
    }

    /// An object is as it is now.
    pub(super) fn apply(&mut self, kind: Kind, object: &Arc<Value>) -> Vec<Act> {
        match kind {
            Kind::Namespace => self.namespace(object),
            Kind::Claim => self.claim(object),
            Kind::Volume => self.volume(object),
            Kind::Class => self.places.set(kind, object, self.view.class(object)),
            Kind::Event => Vec::new(),
        }
    }

    /// An object is gone; this was its last state.
    pub(super) fn delete(&mut self, kind: Kind, object: &Arc<Value>) -> Vec<Act> {
        let mut acts = self.places.gone(kind, object, Vec::new());
        match kind {
            Kind::Namespace => acts.extend(self.left(name(object))),
            Kind::Volume => {
                self.volumes.remove(name(object));
                self.aside.forget("", kind, name(object));
            }
            _ => self.aside.forget(namespace(object), kind, name(object)),
        }
        acts
    }

    /// A complete list holds just these. `live`: all that is known to be live on the bus.
    pub(super) fn synced<'a>(
        &mut self,
        kind: Kind,
        listed: &BTreeSet<ObjectKey>,
        live: impl Iterator<Item = &'a FactSubject>,
    ) -> Vec<Act> {
        let names: HashSet<(&str, &str)> =
            listed.iter().map(|key| (key.namespace.as_str(), key.name.as_str())).collect();
        let mut acts = Vec::new();
        if kind == Kind::Namespace {
            let known = self.namespaces.keys();
            let gone = known.filter(|name| !names.contains(&("", name.as_str())));
            for name in gone.cloned().collect::<Vec<_>>() {
                acts.extend(self.left(&name));
            }
        }
        if kind == Kind::Volume {
            self.volumes.retain(|name, _| names.contains(&("", name.as_str())));
        }
        self.aside.synced(kind, &names);
        let tenants: HashSet<&str> = self.view.tenants().collect();
        let ours = live.filter(|subject| {
            origin(&subject.facet) == (Side::Host, kind) && tenants.contains(subject.scope.tenant())
        });
        acts.extend(self.places.synced(kind, listed, ours));
        acts
    }

    /// An object that was to be fetched is not there.
    pub(super) fn not_there(&mut self, kind: Kind, namespace: &str, name: &str) -> Vec<Act> {
        self.aside.forget(namespace, kind, name);
        self.volumes.remove(name);
        let filed = self.places.take(kind, namespace, name);
        filed.into_iter().map(|s| Act::Bury(s, None)).collect()
    }

    fn namespace(&mut self, object: &Arc<Value>) -> Vec<Act> {
        let name = name(object);
        let owner = self.view.owner(object);
        let known = self.namespaces.get(name) == owner.as_ref();
        let mut acts = if known { Vec::new() } else { self.left(name) };
        let subject = owner.as_ref().and_then(|owner| self.view.namespace(owner));
        let filed = subject.into_iter().collect();
        acts.extend(self.places.set(Kind::Namespace, object, filed));
        if let Some(owner) = owner.filter(|_| !known) {
            self.namespaces.insert(name.to_owned(), owner);
            for ((kind, object), whole) in self.aside.take(name) {
                let namespace = if kind == Kind::Volume { "" } else { name };
                match whole {
                    Some(whole) => acts.extend(self.apply(kind, &whole)),
                    None => acts.push(Act::Fetch(kind, namespace.to_owned(), object)),
                }
            }
        }
        acts
    }

    fn claim(&mut self, object: &Arc<Value>) -> Vec<Act> {
        let (namespace, name) = (namespace(object), name(object));
        let owner = self.namespaces.get(namespace);
        if owner.is_none() {
            let whole = Some(object.clone());
            self.aside.keep(namespace, Kind::Claim, name, whole);
        }
        let subject = owner.and_then(|owner| self.view.claim(owner, object));
        let filed = subject.into_iter().collect();
        self.places.set(Kind::Claim, object, filed)
    }

    fn volume(&mut self, object: &Arc<Value>) -> Vec<Act> {
        let (namespace, _) = claim_of(object);
        let name = name(object);
        self.aside.forget("", Kind::Volume, name);
        self.volumes.remove(name);
        let marked = self.view.volume_by_marks(object);
        let filed = if let Some(owner) = self.namespaces.get(namespace) {
            let filed = Filed { namespace: namespace.to_owned(), otherwise: marked };
            self.volumes.insert(name.to_owned(), filed);
            self.view.volume_in(owner, object)
        } else {
            if !namespace.is_empty() {
                let whole = Some(object.clone());
                self.aside.keep(namespace, Kind::Volume, name, whole);
            }
            marked
        };
        let filed = filed.into_iter().collect();
        self.places.set(Kind::Volume, object, filed)
    }

    /// A namespace is not a tenant's any more, or another's.
    fn left(&mut self, namespace: &str) -> Vec<Act> {
        if self.namespaces.remove(namespace).is_none() {
            return Vec::new();
        }
        let mut acts = Vec::new();
        for name in self.places.names_in(Kind::Claim, namespace) {
            let filed = self.places.take(Kind::Claim, namespace, &name);
            acts.extend(filed.into_iter().map(|s| Act::Bury(s, None)));
            self.aside.keep(namespace, Kind::Claim, &name, None);
        }
        let pointing = self.volumes.iter();
        let pointing = pointing.filter(|(_, filed)| filed.namespace == namespace);
        for name in pointing.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            let otherwise = self.volumes.remove(&name).and_then(|filed| filed.otherwise);
            self.aside.keep(namespace, Kind::Volume, &name, None);
            match otherwise {
                Some(subject) if self.places.get(Kind::Volume, "", &name) == [subject.clone()] => {}
                Some(_) => acts.push(Act::Fetch(Kind::Volume, String::new(), name)),
                None => {
                    let filed = self.places.take(Kind::Volume, "", &name);
                    acts.extend(filed.into_iter().map(|s| Act::Bury(s, None)));
                }
            }
        }
        acts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::tests::{host_namespace, locator, names, view, volume};
    use serde_json::json;

    fn state() -> State {
        State::new(Arc::new(view()))
    }

    fn of_acme() -> Arc<Value> {
        Arc::new(host_namespace("root:acme", "team-a", 1))
    }

    fn host_name() -> String {
        locator("root:acme", "team-a").host_namespace()
    }

    fn claim(namespace: &str, name: &str) -> Arc<Value> {
        let uid = format!("uid-{name}");
        Arc::new(json!({"metadata": {
            "namespace": namespace, "name": name, "uid": uid, "resourceVersion": "5",
        }}))
    }

    fn shown(acts: &[Act]) -> Vec<String> {
        let tail = |s: &FactSubject| s.to_string().replace("carrick.v1.main.fact.", "");
        let show = |act: &Act| match act {
            Act::Put(subject, _) => format!("put {}", tail(subject)),
            Act::Bury(subject, body) => {
                format!("bury {} {}", tail(subject), body.is_some())
            }
            Act::Fetch(kind, namespace, name) => format!("fetch {kind:?} {namespace}/{name}"),
        };
        acts.iter().map(show).collect()
    }

    fn keys(objects: &[&Arc<Value>]) -> BTreeSet<ObjectKey> {
        objects.iter().filter_map(|o| ObjectKey::of(o)).collect()
    }

    const CLAIM: &str = "acme.team-a.data.host-claim";
    const VOLUME: &str = "acme.team-a.data.host-volume.pv-1";

    #[test]
    fn nothing_else_of_the_host_is_filed() {
        let mut state = state();
        assert!(state.apply(Kind::Claim, &claim("default", "data")).is_empty());
        let foreign = Arc::new(volume("pv", "default", "data", 3));
        assert!(state.apply(Kind::Volume, &foreign).is_empty());
        let plain = Arc::new(json!({"metadata": {"name": "default", "uid": "u"}}));
        assert!(state.apply(Kind::Namespace, &plain).is_empty());
        assert!(state.delete(Kind::Volume, &foreign).is_empty());
    }

    #[test]
    fn what_comes_before_its_namespace_is_filed_with_it() {
        let mut state = state();
        let (claim, volume) =
            (claim(&host_name(), "data"), volume("pv-1", &host_name(), "data", 6));
        assert!(state.apply(Kind::Claim, &claim).is_empty());
        assert!(state.apply(Kind::Volume, &Arc::new(volume)).is_empty());
        let acts = shown(&state.apply(Kind::Namespace, &of_acme()));
        let expected = ["acme.team-a.-.host-namespace", CLAIM, VOLUME];
        assert_eq!(acts, expected.map(|s| format!("put {s}")));
        // Its next version is one fact, not all of them again.
        let acts = shown(&state.apply(Kind::Namespace, &of_acme()));
        assert_eq!(acts, ["put acme.team-a.-.host-namespace"]);
    }

    #[test]
    fn a_namespace_that_is_ours_no_more_takes_its_facts_along_and_brings_them_back() {
        let mut state = state();
        state.apply(Kind::Namespace, &of_acme());
        state.apply(Kind::Claim, &claim(&host_name(), "data"));
        let volume = Arc::new(volume("pv-1", &host_name(), "data", 6));
        state.apply(Kind::Volume, &volume);
        let acts = shown(&state.delete(Kind::Namespace, &of_acme()));
        let expected = [
            "bury acme.team-a.-.host-namespace true".to_owned(),
            format!("bury {CLAIM} false"),
            format!("bury {VOLUME} false"),
        ];
        assert_eq!(acts, expected);
        let acts = shown(&state.apply(Kind::Namespace, &of_acme()));
        let expected = [
            "put acme.team-a.-.host-namespace".to_owned(),
            format!("fetch Claim {}/data", host_name()),
            "fetch Volume /pv-1".to_owned(),
        ];
        assert_eq!(acts, expected);
        assert_eq!(shown(&state.apply(Kind::Volume, &volume)), [format!("put {VOLUME}")]);
        assert!(state.not_there(Kind::Claim, &host_name(), "data").is_empty());
    }

    #[test]
    fn a_volume_carried_up_stays_where_it_is_when_its_namespace_goes() {
        let mut state = state();
        state.apply(Kind::Namespace, &of_acme());
        let mut object = volume("pv-1", &host_name(), "data", 6);
        let reference = json!({"namespace": "team-a", "name": "data", "uid": "u"});
        let diff = json!([{"op": "replace", "path": "/spec/claimRef", "value": reference}]);
        object["metadata"]["annotations"] = json!({
            names().locator(): locator("root:acme", "").to_json(),
            names().diff(): diff.to_string(),
        });
        let object = Arc::new(object);
        assert_eq!(shown(&state.apply(Kind::Volume, &object)), [format!("put {VOLUME}")]);
        let acts = shown(&state.delete(Kind::Namespace, &of_acme()));
        assert_eq!(acts, ["bury acme.team-a.-.host-namespace true"]);
        assert_eq!(shown(&state.apply(Kind::Volume, &object)), [format!("put {VOLUME}")]);
        let acts = shown(&state.delete(Kind::Volume, &object));
        assert_eq!(acts, [format!("bury {VOLUME} true")]);
    }

    #[test]
    fn a_complete_list_buries_only_its_kind_of_the_tenants_at_hand() {
        let mut state = state();
        state.apply(Kind::Namespace, &of_acme());
        let kept = claim(&host_name(), "data");
        state.apply(Kind::Claim, &kept);
        let live: Vec<_> = [
            CLAIM,
            "acme.team-a.lost.host-claim",
            "acme.team-a.lost.tenant-claim",
            VOLUME,
            "removed.team-a.lost.host-claim",
        ]
        .iter()
        .map(|s| FactSubject::parse(&format!("carrick.v1.main.fact.{s}")).unwrap())
        .collect();
        let acts = state.synced(Kind::Claim, &keys(&[&kept]), live.iter());
        assert_eq!(shown(&acts), ["bury acme.team-a.lost.host-claim false"]);
        let acts = state.synced(Kind::Namespace, &BTreeSet::new(), live.iter());
        assert_eq!(shown(&acts), [format!("bury {CLAIM} false")]);
    }
}
