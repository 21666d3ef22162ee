//! Clients of control planes: how they are reached, and that every call to them is bounded.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::{ByteString, api::core::v1::Namespace};
use kube::{
    Api, Config, ResourceExt as _,
    client::ClientBuilder,
    config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig},
};
use tokio::time::timeout;

use crate::{
    bound::BoundLayer,
    error::{Error, is_missing},
    problem::{ConnectionProblem, KUBECONFIG_INVALID, TIMEOUT},
};

/// How a service talks to control planes.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The service's name, e.g. `upsyncer`; with `carrick-` before it, the field manager.
    pub service: String,
    /// The service's version, for the user agent.
    pub version: String,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a call may take that is not a watch.
    pub call_timeout: Duration,
    /// How many calls may be on their way to one control plane at a time, watches not counted.
    pub concurrency: usize,
}

impl ClientOptions {
    /// The defaults for this service.
    pub fn new(service: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            service: service.into(),
            version: version.into(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            concurrency: 16,
        }
    }
}

/// A client of one control plane. Clones share its connections and limits.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    kube: kube::Client,
    field_manager: String,
    call_timeout: Duration,
    cluster: Cluster,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.server()).finish_non_exhaustive()
    }
}

impl Client {
    /// The host's client: from this kubeconfig file, or else as `kubectl` would, or else from
    /// inside the cluster. Nothing is asked yet.
    pub async fn connect(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        options: &ClientOptions,
    ) -> Result<Self, Error> {
        let choice = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        // The errors of parsing show what they could not parse, which may be a token.
        let unusable = |what: String| {
            invalid(format!("{what} is no usable kubeconfig or has no such context"))
        };
        let config = match (kubeconfig, context) {
            (Some(path), _) => {
                let unusable = || unusable(path.display().to_string());
                let kubeconfig = Kubeconfig::read_from(path).map_err(|_| unusable())?;
                Config::from_custom_kubeconfig(kubeconfig, &choice).await.map_err(|_| unusable())?
            }
            (None, Some(_)) => Config::from_kubeconfig(&choice)
                .await
                .map_err(|_| unusable("the default kubeconfig".to_owned()))?,
            (None, None) => Config::infer().await.map_err(|_| {
                invalid("neither a kubeconfig nor a service account in the cluster: name one")
            })?,
        };
        Self::new(config, options)
    }

    /// A tenant's client. The kubeconfig is not trusted: it must hold all it needs, and may name
    /// neither programs nor files, which would be those of the machine that Carrick runs on.
    pub async fn from_kubeconfig(text: &str, options: &ClientOptions) -> Result<Self, Error> {
        let kubeconfig: Kubeconfig = serde_yaml_ng::from_str(text).map_err(|error| {
            let place = error.location().map(|at| format!(" (line {})", at.line()));
            invalid(format!("it is not the YAML of a kubeconfig{}", place.unwrap_or_default()))
        })?;
        check(&kubeconfig)?;
        let choice = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &choice).await.map_err(|_| {
            invalid("its current context names no cluster with a server and a valid authority")
        })?;
        Self::new(config, options)
    }

    /// The client of the library, for calls that this crate has no word for. It bounds the time
    /// until a call is answered, not the reading of the answer.
    pub fn kube(&self) -> &kube::Client {
        &self.0.kube
    }

    /// The name that fields are managed under: `carrick-<service>`.
    pub fn field_manager(&self) -> &str {
        &self.0.field_manager
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        self.0.cluster.server.as_deref().unwrap_or_default()
    }

    /// The cluster as it would stand in a kubeconfig; no credentials.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }

    /// Runs one call within the bound, answer and all.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = kube::Result<T>>,
    ) -> kube::Result<T> {
        let limit = self.0.call_timeout;
        let bound = || kube::Error::Service(Box::new(crate::bound::TimedOut(limit)));
        timeout(limit, call).await.unwrap_or_else(|_| Err(bound()))
    }

    fn new(mut config: Config, options: &ClientOptions) -> Result<Self, Error> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Fails only if another thread was first, which is as well.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let field_manager = format!("carrick-{}", options.service);
        let agent = HeaderValue::from_str(&format!("{field_manager}/{}", options.version))
            .map_err(|_| invalid("the service's name or version is no user agent"))?;
        config.headers.push((USER_AGENT, agent));
        config.connect_timeout = Some(options.connect_timeout);
        config.default_retry = false;
        // kube takes HTTPS_PROXY of the environment, then fails for lack of proxy support.
        config.proxy_url = None;
        let cluster = cluster_of(&config);
        let builder = ClientBuilder::try_from(config)
            .map_err(|error| invalid(ConnectionProblem::of(&error).message))?;
        let bound = BoundLayer::new(options.concurrency, options.call_timeout);
        let kube = builder.with_layer(&bound).build();
        let call_timeout = options.call_timeout;
        Ok(Self(Arc::new(Inner { kube, field_manager, call_timeout, cluster })))
    }
}

#[cfg(test)]
impl Client {
    /// A client around another one, with its answers.
    pub(crate) fn stub(kube: kube::Client, call_timeout: Duration) -> Self {
        let (field_manager, cluster) = ("carrick-test".to_owned(), Cluster::default());
        Self(Arc::new(Inner { kube, field_manager, call_timeout, cluster }))
    }
}

/// The identity of a control plane: the uid of its `kube-system` namespace, or, where there is
/// none (as in kcp), of `default`.
pub async fn identity(client: &Client) -> Result<String, Error> {
    let namespaces: Api<Namespace> = Api::all(client.kube().clone());
    for name in ["kube-system", "default"] {
        let object = format!("Namespace {name} of {}", client.server());
        match client.call(namespaces.get(name)).await {
            Ok(namespace) => {
                return namespace.uid().ok_or(Error::NotFound { object });
            }
            Err(error) if is_missing(&error, "namespaces", name) => {}
            Err(error) => return Err(Error::of(object, &error)),
        }
    }
    Err(Error::NotFound { object: format!("any namespace that identifies {}", client.server()) })
}

fn invalid(message: impl Into<String>) -> Error {
    Error::Settings(ConnectionProblem::new(
        KUBECONFIG_INVALID,
        format!("kubeconfig: {}", message.into()),
    ))
}

fn check(kubeconfig: &Kubeconfig) -> Result<(), Error> {
    for named in &kubeconfig.clusters {
        if let Some(refused) = named.cluster.as_ref().and_then(refused_in_cluster) {
            return Err(invalid(format!("cluster {:?}: {refused}", named.name)));
        }
    }
    for named in &kubeconfig.auth_infos {
        if let Some(refused) = named.auth_info.as_ref().and_then(refused_in_user) {
            return Err(invalid(format!("user {:?}: {refused}", named.name)));
        }
    }
    Ok(())
}

fn refused_in_cluster(cluster: &Cluster) -> Option<&'static str> {
    let server = cluster.server.as_deref().unwrap_or_default();
    let authority = server.split_once("://").map_or(server, |(_, rest)| rest);
    if cluster.certificate_authority.is_some() {
        Some("certificate-authority names a file, use certificate-authority-data")
    } else if cluster.proxy_url.is_some() {
        Some("proxy-url is not supported, name a server that can be reached")
    } else if authority.contains('@') {
        Some("server holds a user name, use the user's token")
    } else {
        None
    }
}

fn refused_in_user(user: &AuthInfo) -> Option<&'static str> {
    if user.exec.is_some() {
        Some("exec would run a program, use a token or an inline certificate")
    } else if user.auth_provider.is_some() {
        Some("auth-provider is not supported, use a token or an inline certificate")
    } else if user.token_file.is_some() {
        Some("tokenFile names a file, use token")
    } else if user.client_certificate.is_some() {
        Some("client-certificate names a file, use client-certificate-data")
    } else if user.client_key.is_some() {
        Some("client-key names a file, use client-key-data")
    } else {
        None
    }
}

fn cluster_of(config: &Config) -> Cluster {
    let authority = config.root_cert.as_ref().map(|certificates| {
        let pem: String = certificates.iter().map(|der| pem(der)).collect();
        base64(pem.into_bytes())
    });
    Cluster {
        server: Some(config.cluster_url.to_string()),
        certificate_authority_data: authority,
        tls_server_name: config.tls_server_name.clone(),
        insecure_skip_tls_verify: config.accept_invalid_certs.then_some(true),
        ..Cluster::default()
    }
}

fn pem(der: &[u8]) -> String {
    let text = base64(der.to_vec());
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = tail;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn base64(bytes: Vec<u8>) -> String {
    let value = serde_json::to_value(ByteString(bytes)).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// A problem of time, for what is bounded outside of a client.
pub(crate) fn timed_out(limit: Duration) -> ConnectionProblem {
    ConnectionProblem::new(TIMEOUT, format!("no answer within {limit:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;

    const SECRET: &str = "s3cr3t-t0k3n";

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters:\n- name: c\n  cluster: {{{cluster}}}\n\
             users:\n- name: u\n  user: {{{user}}}\n\
             contexts:\n- name: c\n  context: {{cluster: c, user: u}}\n"
        )
    }

    async fn client(cluster: &str, user: &str) -> Result<Client, Error> {
        let options = ClientOptions::new("test", "1.0");
        Client::from_kubeconfig(&kubeconfig(cluster, user), &options).await
    }

    #[tokio::test]
    async fn a_tenants_kubeconfig_must_hold_all_it_needs() {
        let server = "server: 'https://127.0.0.1:1'";
        let file = format!("{server}, certificate-authority: /etc/passwd");
        let proxy = format!("{server}, proxy-url: 'http://127.0.0.1:1'");
        let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}";
        for (cluster, user, expected) in [
            (file.as_str(), "token: a", "cluster \"c\": certificate-authority names a file"),
            (proxy.as_str(), "token: a", "proxy-url"),
            ("server: 'https://u:p@127.0.0.1'", "token: a", "server holds a user name"),
            (server, exec, "user \"u\": exec would run a program"),
            (server, "auth-provider: {name: gcp}", "auth-provider"),
            (server, "tokenFile: /run/token", "tokenFile names a file"),
            (server, "client-certificate: /a, client-key-data: YQ==", "client-certificate names"),
            (server, "client-key: /a", "client-key names a file"),
            ("insecure-skip-tls-verify: true", "token: a", "names no cluster with a server"),
        ] {
            let error = client(cluster, user).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.problem().unwrap().reason, KUBECONFIG_INVALID);
        }
        client(server, "token: a").await.unwrap();
    }

    #[tokio::test]
    async fn no_secret_is_shown() {
        let client = client("server: 'https://127.0.0.1:1'", &format!("token: {SECRET}")).await;
        assert!(!format!("{:?}", client.unwrap()).contains(SECRET));
        let options = ClientOptions::new("test", "1.0");
        for text in [
            format!("users: {SECRET}"),
            format!("{SECRET}: ["),
            SECRET.to_owned(),
            format!("users: [{{name: u, user: {{token: [{SECRET}]}}}}]"),
            format!("current-context: {SECRET}"),
            kubeconfig(
                "server: 'https://127.0.0.1:1', certificate-authority-data: s3cr3t-t0k3n",
                "",
            ),
            kubeconfig(
                "server: 'https://127.0.0.1:1'",
                "client-certificate-data: YQ==, client-key-data: s3cr3t-t0k3n",
            ),
        ] {
            let error = Client::from_kubeconfig(&text, &options).await.unwrap_err();
            assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
        }
    }

    #[tokio::test]
    async fn the_identity_is_that_of_a_namespace_every_control_plane_has() {
        let namespace = |uid| stub::found(&serde_json::json!({"metadata": {"uid": uid}}));
        let missing = || stub::missing("namespaces", "kube-system");
        let unserved = || (404, "404 page not found".to_owned());
        for (answers, expected) in [
            (vec![namespace("one")], Ok("one")),
            (vec![missing(), namespace("two")], Ok("two")),
            (vec![missing(), stub::missing("namespaces", "default")], Err("identifies")),
            (vec![unserved(), namespace("two")], Err("NotServed")),
            (vec![missing(), (503, String::new())], Err("ServerError")),
        ] {
            let found = identity(&stub::client(answers).0).await.map_err(|error| error.to_string());
            match expected {
                Ok(uid) => assert_eq!(found.as_deref(), Ok(uid)),
                Err(words) => assert!(found.unwrap_err().contains(words), "{words}"),
            }
        }
    }

    #[tokio::test]
    async fn nobody_listening_is_told_apart() {
        let client = client("server: 'https://127.0.0.1:1'", "token: a").await.unwrap();
        let error = identity(&client).await.unwrap_err();
        assert_eq!(error.problem().unwrap().reason, crate::problem::UNREACHABLE, "{error}");
    }
}
