//! The keys and certificates of one control plane, as files in its folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// An authority of its own, the API server's certificate from it, and the key pair that signs
/// service account tokens.
#[derive(Debug)]
pub(crate) struct Pki {
    pub(crate) ca_pem: String,
    /// The same in base64, as a kubeconfig has it.
    pub(crate) ca_base64: String,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) account_public: PathBuf,
    pub(crate) account_private: PathBuf,
}

impl Pki {
    pub(crate) fn make(dir: &Path) -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.distinguished_name.push(DnType::CommonName, "carrick testbed");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate()?;
        let ca_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate()?;
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let cert = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
        let account = KeyPair::generate()?;
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            anyhow::Ok(path)
        };
        Ok(Self {
            ca_base64: serde_json::from_value(serde_json::to_value(ByteString(
                ca_pem.clone().into_bytes(),
            ))?)?,
            ca_pem,
            cert: write("server.crt", &cert.pem())?,
            key: write("server.key", &key.serialize_pem())?,
            account_public: write("accounts.pub", &account.public_key_pem())?,
            account_private: write("accounts.key", &account.serialize_pem())?,
        })
    }
}
