//! The command lines of the servers of a control plane.

use std::path::Path;

use crate::pki::Pki;

/// Controllers that every control plane runs.
const CONTROLLERS: &str = "persistentvolumeclaim-protection-controller,\
    persistentvolume-protection-controller,\
    namespace-controller,garbage-collector-controller,serviceaccount-controller";
const VOLUME_BINDER: &str = "persistentvolume-binder-controller";

pub(crate) fn etcd(dir: &Path, client: u16, peer: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    vec![
        "--name=etcd".into(),
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=etcd={peer}"),
        // The machine does not crash: what the kernel has taken survives a SIGKILL.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
}

pub(crate) fn api_server(
    dir: &Path,
    pki: &Pki,
    audit_log: &Path,
    etcd: u16,
    port: u16,
) -> Vec<String> {
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        // It would refuse to publish a loopback address as the endpoint of its service.
        "--endpoint-reconciler-type=none".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", pki.cert.display()),
        format!("--tls-private-key-file={}", pki.key.display()),
        format!("--cert-dir={}", dir.display()),
        format!("--token-auth-file={}", dir.join("tokens.csv").display()),
        "--authorization-mode=RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", pki.account_public.display()),
        format!("--service-account-signing-key-file={}", pki.account_private.display()),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        format!("--audit-policy-file={}", dir.join("audit-policy.json").display()),
        format!("--audit-log-path={}", audit_log.display()),
        // Megabytes; a log that is cut in two would hide writes.
        "--audit-log-maxsize=100000".into(),
        // A graceful end takes some 2 s; else it waits a minute for watches that never end.
        "--shutdown-send-retry-after=true".into(),
        "--profiling=false".into(),
    ]
}

pub(crate) fn controllers(dir: &Path, pki: &Pki, volume_binder: bool) -> Vec<String> {
    let binder = if volume_binder { VOLUME_BINDER } else { "-persistentvolume-binder-controller" };
    vec![
        format!("--kubeconfig={}", dir.join("controllers.kubeconfig").display()),
        format!("--controllers={CONTROLLERS},{binder}"),
        format!("--service-account-private-key-file={}", pki.account_private.display()),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--enable-hostpath-provisioner=true".into(),
        "--pvclaimbinder-sync-period=5s".into(),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        "--profiling=false".into(),
    ]
}
