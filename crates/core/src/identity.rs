//! Who an object belongs to: sync targets, their keys, locators, and the names derived from them.
//!
//! All of it is computed as kcp does, to the letter; `testdata/vectors.json` holds values that
//! also stand in kcp's own unit tests.

use num_bigint::BigUint;
use serde::Deserialize;
use sha2::{Digest, Sha224};

/// One installation of Carrick, as kcp's SyncTarget: where host objects come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SyncTarget {
    /// Logical cluster name that the target lives in; may be empty.
    pub cluster: String,
    /// The installation's name.
    pub name: String,
    /// Uid that makes it unique: that of the host's `kube-system` namespace.
    pub uid: String,
}

impl SyncTarget {
    /// The key `K`: base62 of the SHA-224 of `cluster:name` (`name` alone without a cluster).
    /// 38 characters as a rule, sometimes fewer: it is not padded.
    pub fn key(&self) -> String {
        if self.cluster.is_empty() {
            base62(self.name.as_bytes())
        } else {
            base62(format!("{}:{}", self.cluster, self.name).as_bytes())
        }
    }
}

/// Whose a host object is: kcp's `NamespaceLocator`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Locator {
    /// The sync target that the object was carried down by.
    pub target: SyncTarget,
    /// The tenant's logical cluster name.
    pub cluster: String,
    /// The tenant's namespace; empty for a cluster-scoped object.
    pub namespace: String,
}

/// A locator annotation that is not one.
#[derive(Debug, thiserror::Error)]
#[error("namespace locator is not valid JSON: {0}")]
pub struct LocatorError(#[from] serde_json::Error);

impl Locator {
    /// The locator as kcp writes it: Go's field order, compact, empty clusters left out, the
    /// namespace always there, and `<`, `>`, `&`, U+2028 and U+2029 escaped.
    pub fn to_json(&self) -> String {
        let field = |name: &str, value: &str| format!("\"{name}\":{}", go_string(value));
        let optional = |value: &str| {
            if value.is_empty() { String::new() } else { field("cluster", value) + "," }
        };
        let SyncTarget { cluster, name, uid } = &self.target;
        format!(
            "{{\"syncTarget\":{{{}{},{}}},{}{}}}",
            optional(cluster),
            field("name", name),
            field("uid", uid),
            optional(&self.cluster),
            field("namespace", &self.namespace),
        )
    }

    /// Reads a locator annotation. Unknown fields, other orders and white space are tolerated,
    /// and `path` stands for an empty cluster of the sync target, as in kcp before 0.6.1.
    pub fn parse(text: &str) -> Result<Self, LocatorError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Raw {
            sync_target: RawTarget,
            cluster: String,
            namespace: String,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct RawTarget {
            cluster: String,
            path: String,
            name: String,
            uid: String,
        }
        let raw: Raw = serde_json::from_str(text)?;
        let RawTarget { cluster, path, name, uid } = raw.sync_target;
        let cluster = if cluster.is_empty() { path } else { cluster };
        Ok(Self {
            target: SyncTarget { cluster, name, uid },
            cluster: raw.cluster,
            namespace: raw.namespace,
        })
    }

    /// The same locator for cluster-scoped objects: with an empty namespace.
    #[must_use]
    pub fn cluster_scoped(&self) -> Self {
        Self { namespace: String::new(), ..self.clone() }
    }

    /// Name of the host namespace for this tenant namespace: `kcp-` and the first 12 characters
    /// of the base36 SHA-224 of [`to_json`](Self::to_json).
    pub fn host_namespace(&self) -> String {
        let hash = base36(self.to_json().as_bytes());
        format!("kcp-{}", hash.get(..12).unwrap_or(&hash))
    }

    /// The tenant's id: base62 SHA-224 of the cluster-scoped locator.
    pub fn tenant_id(&self) -> String {
        base62(self.cluster_scoped().to_json().as_bytes())
    }
}

/// A JSON string as Go's `encoding/json` writes it.
fn go_string(text: &str) -> String {
    let escape = |c: char| match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        '\u{8}' => "\\b".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
            format!("\\u{:04x}", u32::from(c))
        }
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// Go's `big.Int.Text(62)` of the SHA-224: digits, then lower case, then upper case, unpadded.
fn base62(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let digits = BigUint::from_bytes_be(&Sha224::digest(bytes)).to_radix_be(62);
    digits.into_iter().map(|d| char::from(DIGITS[usize::from(d)])).collect()
}

/// Lower-case base36 of the SHA-224, with one leading `0` for each leading zero byte.
fn base36(bytes: &[u8]) -> String {
    let hash = Sha224::digest(bytes);
    let zeros = hash.iter().take_while(|byte| **byte == 0).count();
    "0".repeat(zeros) + &BigUint::from_bytes_be(&hash).to_str_radix(36)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn vectors() -> Value {
        serde_json::from_str(include_str!("../testdata/vectors.json")).unwrap()
    }

    fn list<'a>(vectors: &'a Value, name: &str) -> &'a Vec<Value> {
        let list = vectors[name].as_array().unwrap();
        assert!(!list.is_empty(), "{name}");
        list
    }

    fn text(value: &Value, name: &str) -> String {
        value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}")).to_owned()
    }

    fn target(value: &Value) -> SyncTarget {
        SyncTarget {
            cluster: text(value, "cluster"),
            name: text(value, "name"),
            uid: text(value, "uid"),
        }
    }

    fn locator(value: &Value) -> Locator {
        Locator {
            target: target(&value["sync_target"]),
            cluster: text(value, "cluster"),
            namespace: text(value, "namespace"),
        }
    }

    #[test]
    fn keys_match_the_vectors() {
        for vector in list(&vectors(), "sync_target_keys") {
            let target = SyncTarget {
                cluster: text(vector, "cluster"),
                name: text(vector, "name"),
                uid: "not part of the key".to_owned(),
            };
            assert_eq!(target.key(), text(vector, "key"), "{vector}");
        }
    }

    #[test]
    fn locators_and_what_derives_from_them_match_the_vectors() {
        for vector in list(&vectors(), "locators") {
            let locator = locator(vector);
            assert_eq!(locator.to_json(), text(vector, "locator"));
            assert_eq!(locator.host_namespace(), text(vector, "host_namespace"), "{vector}");
            assert_eq!(locator.tenant_id(), text(vector, "tenant_id"), "{vector}");
            assert_eq!(Locator::parse(&locator.to_json()).unwrap(), locator);
        }
    }

    #[test]
    fn locators_are_read_tolerantly() {
        for vector in list(&vectors(), "locator_reading") {
            let read = Locator::parse(&text(vector, "text"));
            if vector["error"] == true {
                assert!(read.is_err(), "{vector}");
            } else {
                assert_eq!(read.unwrap(), locator(&vector["means"]), "{vector}");
            }
        }
    }

    #[test]
    fn base36_matches_the_dns_ids() {
        for vector in list(&vectors(), "dns_ids") {
            let id = format!(
                "kcp-dns-{}-{}-{}",
                text(vector, "name"),
                &base36(text(vector, "uid").as_bytes())[..8],
                &base36(text(vector, "cluster").as_bytes())[..8]
            );
            assert_eq!(id, text(vector, "id"));
        }
    }

    #[test]
    fn strings_are_escaped_as_go_escapes_them() {
        for (text, expected) in [
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\n\r\t\u{8}\u{c}", r#""\n\r\t\b\f""#),
            ("\u{1}\u{1f}", r#""\u0001\u001f""#),
            ("<>&\u{2028}\u{2029}", r#""\u003c\u003e\u0026\u2028\u2029""#),
            ("ä€😀\u{7f}", "\"ä€😀\u{7f}\""),
        ] {
            assert_eq!(go_string(text), expected);
            assert_eq!(serde_json::from_str::<String>(&go_string(text)).unwrap(), text);
        }
    }
}
