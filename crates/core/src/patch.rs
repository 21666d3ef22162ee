//! Builds JSON Patches (RFC 6902) that test what they rely on.
//!
//! Every patch begins with a test of the uid. Where a map or list has to be made first, nothing in
//! RFC 6902 can test that it is absent, so the patch then tests the resourceVersion instead: it
//! can't wipe out what somebody else wrote in between.

use json_patch::{
    AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation,
    jsonptr::PointerBuf,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// A patch in the making, for the object with the metadata that it was begun with.
#[derive(Debug)]
pub struct PatchBuilder<'a> {
    meta: &'a ObjectMeta,
    tests: Vec<PatchOperation>,
    changes: Vec<PatchOperation>,
    new_maps: Vec<&'static str>,
}

impl<'a> PatchBuilder<'a> {
    /// A patch for the object with this metadata; tests its uid.
    pub fn new(meta: &'a ObjectMeta) -> Self {
        let uid = test(&["metadata", "uid"], json!(meta.uid.as_deref().unwrap_or_default()));
        Self { meta, tests: vec![uid], changes: Vec::new(), new_maps: Vec::new() }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Also tests that `path` has this value.
    #[must_use]
    pub fn test(mut self, path: &[&str], value: Value) -> Self {
        self.tests.push(test(path, value));
        self
    }

    /// Also tests that the object is at this very resourceVersion.
    #[must_use]
    pub fn test_version(self) -> Self {
        let path = ["metadata", "resourceVersion"];
        let version = json!(self.meta.resource_version.as_deref().unwrap_or_default());
        let known = test(&path, version.clone());
        if self.tests.contains(&known) { self } else { self.test(&path, version) }
    }

    /// Sets `path` (added or replaced; its parent must exist).
    #[must_use]
    pub fn set(mut self, path: &[&str], value: Value) -> Self {
        self.changes.push(PatchOperation::Add(AddOperation { path: pointer(path), value }));
        self
    }

    /// Changes `path` from the value that was seen: of several that try it, one does.
    #[must_use]
    pub fn change(self, path: &[&str], seen: Option<Value>, value: Value) -> Self {
        let tested = match seen {
            Some(seen) => self.test(path, seen),
            None => self.test_version(),
        };
        tested.set(path, value)
    }

    /// Replaces `path`, which must exist.
    #[must_use]
    pub fn replace(mut self, path: &[&str], value: Value) -> Self {
        self.changes.push(PatchOperation::Replace(ReplaceOperation { path: pointer(path), value }));
        self
    }

    /// Removes `path`, which must exist and be this value.
    #[must_use]
    pub fn remove(mut self, path: &[&str], value: Value) -> Self {
        self.tests.push(test(path, value));
        self.changes.push(PatchOperation::Remove(RemoveOperation { path: pointer(path) }));
        self
    }

    /// Sets an annotation, if it does not have this value already.
    #[must_use]
    pub fn annotation(self, key: &str, value: &str) -> Self {
        let known = self.meta.annotations.as_ref();
        let present = known.and_then(|map| map.get(key)).is_some_and(|found| found == value);
        let absent = known.is_none_or(std::collections::BTreeMap::is_empty);
        if present { self } else { self.map_entry("annotations", absent, key, value) }
    }

    /// Sets a label, if it does not have this value already.
    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        let known = self.meta.labels.as_ref();
        let present = known.and_then(|map| map.get(key)).is_some_and(|found| found == value);
        let absent = known.is_none_or(std::collections::BTreeMap::is_empty);
        if present { self } else { self.map_entry("labels", absent, key, value) }
    }

    /// Adds a finalizer, if it is not there already.
    #[must_use]
    pub fn finalizer(self, name: &str) -> Self {
        match self.meta.finalizers.as_deref().unwrap_or_default() {
            [] => self.test_version().set(&["metadata", "finalizers"], json!([name])),
            list if list.iter().any(|found| found == name) => self,
            // Appended to the very list that was seen: never a second time.
            list => {
                let seen = json!(list);
                self.test(&["metadata", "finalizers"], seen)
                    .set(&["metadata", "finalizers", "-"], json!(name))
            }
        }
    }

    /// Takes finalizers off, as far as they are there, from the very list that was seen.
    #[must_use]
    pub fn without_finalizers(self, names: &[&str]) -> Self {
        let list = self.meta.finalizers.as_deref().unwrap_or_default();
        let left: Vec<_> = list.iter().filter(|found| !names.contains(&found.as_str())).collect();
        if left.len() == list.len() {
            return self;
        }
        let (seen, left) = (json!(list), json!(left));
        self.change(&["metadata", "finalizers"], Some(seen), left)
    }

    /// Takes a label off, if it is there, as it was seen.
    #[must_use]
    pub fn without_label(self, key: &str) -> Self {
        let value = self.meta.labels.as_ref().and_then(|map| map.get(key)).cloned();
        match value {
            Some(value) => self.remove(&["metadata", "labels", key], json!(value)),
            None => self,
        }
    }

    /// Takes an annotation off, if it is there, as it was seen.
    #[must_use]
    pub fn without_annotation(self, key: &str) -> Self {
        let value = self.meta.annotations.as_ref().and_then(|map| map.get(key)).cloned();
        match value {
            Some(value) => self.remove(&["metadata", "annotations", key], json!(value)),
            None => self,
        }
    }

    /// The finished patch, tests first; `None` if it changes nothing.
    pub fn build(mut self) -> Option<Patch> {
        if self.changes.is_empty() {
            return None;
        }
        self.tests.append(&mut self.changes);
        Some(Patch(self.tests))
    }

    fn map_entry(mut self, map: &'static str, absent: bool, key: &str, value: &str) -> Self {
        if absent && !self.new_maps.contains(&map) {
            self.new_maps.push(map);
            self = self.test_version().set(&["metadata", map], Value::Object(Map::new()));
        }
        self.set(&["metadata", map, key], json!(value))
    }
}

fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: pointer(path), value })
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn text(patch: &Patch) -> String {
        serde_json::to_string(patch).unwrap()
    }

    #[test]
    fn a_key_with_slashes_is_escaped_and_a_missing_map_is_made_under_a_version_test() {
        let meta = ObjectMeta {
            uid: Some("u1".into()),
            resource_version: Some("7".into()),
            labels: Some(BTreeMap::from([("team".into(), "a".into())])),
            ..ObjectMeta::default()
        };
        let patch = PatchBuilder::new(&meta)
            .label("a.b/c~d", "x")
            .annotation("k/1", "v")
            .annotation("k/2", "v")
            .build()
            .unwrap();
        assert_eq!(
            text(&patch),
            concat!(
                r#"[{"op":"test","path":"/metadata/uid","value":"u1"},"#,
                r#"{"op":"test","path":"/metadata/resourceVersion","value":"7"},"#,
                r#"{"op":"add","path":"/metadata/labels/a.b~1c~0d","value":"x"},"#,
                r#"{"op":"add","path":"/metadata/annotations","value":{}},"#,
                r#"{"op":"add","path":"/metadata/annotations/k~11","value":"v"},"#,
                r#"{"op":"add","path":"/metadata/annotations/k~12","value":"v"}]"#
            )
        );
    }

    #[test]
    fn what_is_there_already_changes_nothing() {
        let meta = ObjectMeta {
            uid: Some("u1".into()),
            labels: Some(BTreeMap::from([("team".into(), "a".into())])),
            finalizers: Some(vec!["f".into()]),
            ..ObjectMeta::default()
        };
        assert_eq!(PatchBuilder::new(&meta).label("team", "a").finalizer("f").build(), None);
    }

    #[test]
    fn a_finalizer_is_appended_to_those_of_others() {
        let mut meta = ObjectMeta {
            uid: Some("u1".into()),
            resource_version: Some("7".into()),
            finalizers: Some(vec!["kubernetes.io/pvc-protection".into()]),
            ..ObjectMeta::default()
        };
        let patch = PatchBuilder::new(&meta).finalizer("f").build().unwrap();
        assert!(
            text(&patch).ends_with(r#"{"op":"add","path":"/metadata/finalizers/-","value":"f"}]"#)
        );
        meta.finalizers = None;
        let patch = PatchBuilder::new(&meta).finalizer("f").build().unwrap();
        assert!(text(&patch).contains("resourceVersion"), "{patch}");
    }
}
