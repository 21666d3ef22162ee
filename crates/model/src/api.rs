//! The little of two API servers that the decisions rely on: uids, resourceVersions, JSON patches
//! whose tests are checked, finalizers, and deletes of just what was seen.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use carrick_core::{Action, Facet};
use serde_json::{Value, json};

/// An object, compared by its content.
#[derive(Debug)]
pub struct Object {
    /// The object as JSON.
    pub value: Value,
    hash: u64,
}

impl Object {
    pub(crate) fn new(value: Value) -> Arc<Self> {
        let mut hasher = DefaultHasher::new();
        value.to_string().hash(&mut hasher);
        Arc::new(Self { value, hash: hasher.finish() })
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.value == other.value
    }
}

impl Eq for Object {}

impl Hash for Object {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// A state of an object; the last one, if it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Version {
    pub(crate) object: Arc<Object>,
    pub(crate) deleted: bool,
}

/// All objects of both sides, each at its newest version. A resourceVersion counts the changes of
/// one name, so that states that differ only in who was first are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Api(pub(crate) BTreeMap<Facet, Version>);

/// A write that did not go through: somebody was faster.
#[derive(Debug)]
pub(crate) struct Lost;

impl Api {
    pub(crate) fn get(&self, id: &Facet) -> Option<&Value> {
        let version = self.0.get(id)?;
        (!version.deleted).then_some(&version.object.value)
    }

    /// Puts an object there as it is, at the next version.
    pub(crate) fn put(&mut self, id: &Facet, mut value: Value) {
        let goes = is_going(&value) && !has_finalizers(&value);
        value["metadata"]["resourceVersion"] = json!((self.version(id) + 1).to_string());
        self.0.insert(id.clone(), Version { object: Object::new(value), deleted: goes });
    }

    /// Makes an object, with a uid of its own.
    pub(crate) fn create(&mut self, id: &Facet, mut value: Value) -> Result<(), Lost> {
        if self.get(id).is_some() {
            return Err(Lost);
        }
        value["metadata"]["uid"] = json!(format!("{}-{}", id.token(), self.version(id)));
        value["metadata"]["creationTimestamp"] = json!(super::world::NOW);
        if matches!(id, Facet::TenantClaim | Facet::HostClaim | Facet::TenantVolume(_)) {
            value["status"] = json!({"phase": "Pending"});
        }
        self.put(id, value);
        Ok(())
    }

    /// Changes what is there (a JSON merge patch).
    pub(crate) fn merge(&mut self, id: &Facet, patch: &Value) {
        if let Some(value) = self.get(id) {
            let mut value = value.clone();
            json_patch::merge(&mut value, patch);
            self.put(id, value);
        }
    }

    /// What an API server does when somebody deletes an object.
    pub(crate) fn delete(&mut self, id: &Facet) {
        let Some(mut value) = self.get(id).cloned() else { return };
        if !is_going(&value) {
            value["metadata"]["deletionTimestamp"] = json!(super::world::NOW);
            self.put(id, value);
        }
    }

    pub(crate) fn write(&mut self, id: &Facet, action: &Action) -> Result<(), Lost> {
        let patch = match action {
            Action::Create(value) => return self.create(id, value.clone()),
            Action::Delete { uid, version } => {
                let found = self.get(id).ok_or(Lost)?;
                let seen = text(found, "/metadata/uid") == uid
                    && text(found, "/metadata/resourceVersion") == version;
                if !seen {
                    return Err(Lost);
                }
                self.delete(id);
                return Ok(());
            }
            Action::Patch(patch) | Action::PatchStatus(patch) => patch,
        };
        let before = self.get(id).ok_or(Lost)?.clone();
        let mut after = before.clone();
        json_patch::patch(&mut after, patch).map_err(|_| Lost)?;
        let finalizers = |value: &Value| value["metadata"]["finalizers"].to_string();
        let more = finalizers(&after).len() > finalizers(&before).len();
        let named = text(&before, "/spec/volumeName");
        let renamed = !named.is_empty() && named != text(&after, "/spec/volumeName");
        if (is_going(&before) && more) || renamed {
            return Err(Lost);
        }
        if before != after {
            self.put(id, after);
        }
        Ok(())
    }

    fn version(&self, id: &Facet) -> u64 {
        let version = self.0.get(id).map(|v| text(&v.object.value, "/metadata/resourceVersion"));
        version.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

pub(crate) fn is_going(value: &Value) -> bool {
    value["metadata"].get("deletionTimestamp").is_some_and(|time| !time.is_null())
}

fn has_finalizers(value: &Value) -> bool {
    value["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
}

pub(crate) fn has_finalizer(value: &Value, name: &str) -> bool {
    let list = value["metadata"]["finalizers"].as_array();
    list.is_some_and(|list| list.iter().any(|found| found == name))
}

/// A field's text; empty if it has none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A label's or annotation's value; empty if it has none.
pub(crate) fn entry<'a>(value: &'a Value, map: &str, key: &str) -> &'a str {
    value["metadata"][map][key].as_str().unwrap_or_default()
}
