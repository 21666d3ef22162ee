//! The kubeconfigs in the Secrets that Tenants name: of each Secret only the named keys are kept.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use crate::{
    problem::{
        ConnectionProblem, KEY_MISSING, KUBECONFIG_INVALID, SECRET_MISSING, SECRET_UNREADABLE,
    },
    tenant::SecretKey,
    watch::{Change, ObjectKey},
};

/// What is known of a kubeconfig.
#[derive(PartialEq)]
pub(crate) enum Found<'a> {
    /// Its text.
    Text(&'a str),
    /// Why there is none.
    Problem(ConnectionProblem),
    /// Its namespace has not been looked through yet.
    NotYet,
}

/// How far the Secrets of a namespace are known.
enum Looked {
    NotYet,
    Through,
    InVain(ConnectionProblem),
}

/// The named keys of the named Secrets. No `Debug`: these are credentials.
#[derive(Default)]
pub(crate) struct Secrets {
    named: BTreeSet<SecretKey>,
    /// The Secrets that are there; of each named key, the text or why there is none.
    held: BTreeMap<SecretKey, Result<String, ConnectionProblem>>,
    namespaces: BTreeMap<String, Looked>,
}

impl Secrets {
    /// From now on these are named. The namespaces that have to be listed anew because of it.
    pub(crate) fn name(&mut self, named: BTreeSet<SecretKey>) -> BTreeSet<String> {
        let new = named.difference(&self.named).map(|key| key.namespace.clone());
        let renewed: BTreeSet<String> = new.collect();
        for namespace in &renewed {
            self.namespaces.insert(namespace.clone(), Looked::NotYet);
        }
        self.held.retain(|key, _| named.contains(key));
        self.namespaces.retain(|namespace, _| named.iter().any(|key| key.namespace == *namespace));
        self.named = named;
        renewed
    }

    /// Whether any Secret of a namespace is named.
    pub(crate) fn is_named(&self, namespace: &str) -> bool {
        self.namespaces.contains_key(namespace)
    }

    /// Whether every namespace has been looked through, or cannot be.
    pub(crate) fn is_complete(&self) -> bool {
        !self.namespaces.values().any(|looked| matches!(looked, Looked::NotYet))
    }

    /// What is known of a kubeconfig.
    pub(crate) fn find(&self, key: &SecretKey) -> Found<'_> {
        let SecretKey { namespace, name, .. } = key;
        match (self.held.get(key), self.namespaces.get(namespace)) {
            (Some(Ok(text)), _) => Found::Text(text),
            (Some(Err(problem)), _) | (None, Some(Looked::InVain(problem))) => {
                Found::Problem(problem.clone())
            }
            (None, Some(Looked::Through)) => Found::Problem(ConnectionProblem::new(
                SECRET_MISSING,
                format!("there is no Secret {namespace}/{name} on the host"),
            )),
            (None, Some(Looked::NotYet) | None) => Found::NotYet,
        }
    }

    /// Takes in what a namespace's watch told; the keys that may be different now.
    pub(crate) fn changed(&mut self, namespace: &str, change: Change) -> BTreeSet<SecretKey> {
        match change {
            Change::Apply(object) => self.there(namespace, object),
            Change::Delete(object) => {
                let key = ObjectKey::of(&object);
                let keys =
                    self.of(namespace, |name| key.as_ref().is_some_and(|key| key.name == name));
                self.held.retain(|held, _| !keys.contains(held));
                keys
            }
            Change::Synced(there) => {
                let there: BTreeSet<_> = there.into_iter().map(|key| key.name).collect();
                let gone = self.of(namespace, |name| !there.contains(name));
                self.held.retain(|held, _| !gone.contains(held));
                self.looked(namespace, Looked::Through)
            }
            Change::NotServed => {
                let problem =
                    ConnectionProblem::new(SECRET_UNREADABLE, "the host does not serve Secrets");
                self.in_vain(namespace, problem)
            }
            Change::Problem(problem) => {
                tracing::debug!(namespace, %problem, "The Secrets cannot be watched");
                let message = format!("Secrets in {namespace} on the host: {}", problem.message);
                self.in_vain(namespace, ConnectionProblem::new(SECRET_UNREADABLE, message))
            }
            Change::Connected => BTreeSet::new(),
        }
    }

    fn there(&mut self, namespace: &str, object: Value) -> BTreeSet<SecretKey> {
        let Some(name) = ObjectKey::of(&object).map(|key| key.name) else {
            return BTreeSet::new();
        };
        let keys = self.of(namespace, |named| named == name);
        if keys.is_empty() {
            return keys;
        }
        // Its error would show what it could not read.
        let data = serde_json::from_value::<Secret>(object).ok().and_then(|secret| secret.data);
        for key in &keys {
            let bytes = data.as_ref().and_then(|data| data.get(&key.key));
            self.held.insert(key.clone(), text(key, bytes.map(|bytes| bytes.0.as_slice())));
        }
        keys
    }

    fn in_vain(&mut self, namespace: &str, problem: ConnectionProblem) -> BTreeSet<SecretKey> {
        match self.namespaces.get(namespace) {
            // What is known stays, until it is known better.
            Some(Looked::Through) | None => BTreeSet::new(),
            Some(_) => self.looked(namespace, Looked::InVain(problem)),
        }
    }

    fn looked(&mut self, namespace: &str, looked: Looked) -> BTreeSet<SecretKey> {
        self.namespaces.insert(namespace.to_owned(), looked);
        self.of(namespace, |_| true)
    }

    /// The named keys of a namespace's Secrets with such a name.
    fn of(&self, namespace: &str, such: impl Fn(&str) -> bool) -> BTreeSet<SecretKey> {
        let named = self.named.iter().filter(|key| key.namespace == namespace && such(&key.name));
        named.cloned().collect()
    }
}

fn text(key: &SecretKey, bytes: Option<&[u8]>) -> Result<String, ConnectionProblem> {
    let SecretKey { namespace, name, key } = key;
    let problem = |reason, what| {
        let message = format!("Secret {namespace}/{name} on the host {what} {key:?}");
        Err(ConnectionProblem::new(reason, message))
    };
    let Some(bytes) = bytes else {
        return problem(KEY_MISSING, "has no key");
    };
    match str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => problem(KUBECONFIG_INVALID, "has no text under the key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::json;

    fn key(name: &str) -> SecretKey {
        SecretKey { namespace: "ns".into(), name: name.into(), key: "kubeconfig".into() }
    }

    fn secret(name: &str, field: &str, text: &str) -> Value {
        let data = ByteString(text.as_bytes().to_vec());
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name}, "data": {field: data}})
    }

    fn synced(names: &[&str]) -> Change {
        let keys = names.iter().map(|name| ObjectKey::of(&secret(name, "", "")).unwrap());
        Change::Synced(keys.collect())
    }

    fn reason(secrets: &Secrets, key: &SecretKey) -> &'static str {
        match secrets.find(key) {
            Found::Text(_) => "Text",
            Found::Problem(problem) => problem.reason,
            Found::NotYet => "NotYet",
        }
    }

    #[test]
    fn a_kubeconfig_is_known_missing_or_not_known_yet() {
        let mut secrets = Secrets::default();
        let keys = [key("good"), key("bare"), key("none")];
        assert_eq!(secrets.name(keys.clone().into()), ["ns".to_owned()].into());
        let reasons = |secrets: &Secrets| keys.clone().map(|key| reason(secrets, &key));
        assert_eq!(reasons(&secrets), ["NotYet"; 3]);
        assert!(!secrets.is_complete());

        let changed = secrets.changed("ns", Change::Apply(secret("good", "kubeconfig", "text")));
        assert_eq!(changed, [key("good")].into());
        secrets.changed("ns", Change::Apply(secret("bare", "other", "text")));
        assert!(
            secrets.changed("ns", Change::Apply(secret("foreign", "kubeconfig", "x"))).is_empty()
        );
        assert_eq!(reasons(&secrets), ["Text", KEY_MISSING, "NotYet"]);

        secrets.changed("ns", synced(&["good", "bare", "foreign"]));
        assert_eq!(reasons(&secrets), ["Text", KEY_MISSING, SECRET_MISSING]);
        assert!(secrets.is_complete());

        secrets.changed("ns", Change::Problem(ConnectionProblem::new("Unreachable", "gone")));
        assert_eq!(reasons(&secrets)[0], "Text", "what is known stays");
        secrets.changed("ns", synced(&["bare"]));
        assert_eq!(reasons(&secrets)[0], SECRET_MISSING, "it went unseen");
    }

    #[test]
    fn another_name_means_another_list_and_nothing_unnamed_stays() {
        let mut secrets = Secrets::default();
        secrets.name([key("a")].into());
        secrets.changed("ns", Change::Apply(secret("a", "kubeconfig", "text")));
        secrets.changed("ns", synced(&["a"]));
        assert!(secrets.name([key("a")].into()).is_empty());
        assert_eq!(secrets.name([key("a"), key("b")].into()), ["ns".to_owned()].into());
        assert_eq!(reason(&secrets, &key("a")), "Text", "kept while the list is read anew");
        assert_eq!(reason(&secrets, &key("b")), "NotYet");
        assert!(secrets.name([key("b")].into()).is_empty());
        assert!(secrets.held.is_empty());
        secrets.name([].into());
        assert!(!secrets.is_named("ns") && secrets.is_complete());
    }

    #[test]
    fn unreadable_secrets_hold_nobody_up() {
        let mut secrets = Secrets::default();
        secrets.name([key("a")].into());
        let changed =
            secrets.changed("ns", Change::Problem(ConnectionProblem::new("Forbidden", "no")));
        assert_eq!(changed, [key("a")].into());
        assert_eq!(reason(&secrets, &key("a")), SECRET_UNREADABLE);
        assert!(secrets.is_complete());
    }
}
