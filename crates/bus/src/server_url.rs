//! The servers' URLs. The NATS client ignores a user or token in them, and would log it: they are
//! taken out here.

use async_nats::ServerAddr;

use crate::error::{Error, Result};

/// Who to connect as, from a URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Login {
    User { user: String, password: String },
    Token(String),
}

/// Servers without logins, and the first login.
pub(crate) fn parse(urls: &[String]) -> Result<(Vec<ServerAddr>, Option<Login>)> {
    let mut servers = Vec::new();
    let mut login = None;
    let urls = urls.iter().flat_map(|urls| urls.split(','));
    for url in urls.map(str::trim).filter(|url| !url.is_empty()) {
        let (server, found) =
            parse_one(url).map_err(|reason| Error::Url { url: without_login(url), reason })?;
        servers.push(server);
        login = login.or(found);
    }
    if servers.is_empty() {
        return Err(Error::Url { url: String::new(), reason: "there is none".to_owned() });
    }
    Ok((servers, login))
}

fn parse_one(url: &str) -> Result<(ServerAddr, Option<Login>), String> {
    let server: ServerAddr = url.parse().map_err(|error: std::io::Error| error.to_string())?;
    if server.is_websocket() {
        return Err("websockets are not supported".to_owned());
    }
    if server.host().is_empty() {
        return Err("it names no host".to_owned());
    }
    let login = match (server.username(), server.password()) {
        (Some(user), Some(password)) => {
            Some(Login::User { user: decode(user)?, password: decode(password)? })
        }
        (Some(token), None) => Some(Login::Token(decode(token)?)),
        (None, Some(_)) => return Err("it has a password but no user".to_owned()),
        (None, None) => None,
    };
    let mut plain = server.into_inner();
    let stripped = plain.set_username("").and(plain.set_password(None));
    stripped.map_err(|()| "it can't have a user".to_owned())?;
    let server = ServerAddr::from_url(plain).map_err(|error| error.to_string())?;
    Ok((server, login))
}

/// The servers as they may be logged.
pub(crate) fn display(servers: &[ServerAddr]) -> String {
    let urls: Vec<&str> = servers.iter().map(ServerAddr::as_url_str).collect();
    urls.join(",")
}

fn without_login(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

/// Undoes the percent-encoding of a part of a URL.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = (first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).map_err(|_| "its user or password is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(url: &str) -> Result<(Vec<ServerAddr>, Option<Login>)> {
        parse(&[url.to_owned()])
    }

    #[test]
    fn a_login_is_taken_out_of_the_url() {
        let (servers, login) = one("nats://carrick:p%24%22%404@127.0.0.1:4222,tls://b").unwrap();
        assert_eq!(display(&servers), "nats://127.0.0.1:4222,tls://b");
        let user = Login::User { user: "carrick".into(), password: "p$\"@4".into() };
        assert!(login == Some(user));
        let (servers, login) = one("nats://t0ken@[::1]").unwrap();
        assert_eq!(display(&servers), "nats://[::1]");
        assert!(login == Some(Login::Token("t0ken".into())));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (url, reason) in [
            ("http://me:secret@a", "scheme"),
            ("nats://me:secret@a:port", "port"),
            ("wss://me:secret@a", "websockets"),
            (" , ", "there is none"),
            ("nats://:secret@a", "no user"),
        ] {
            let error = one(url).err().unwrap().to_string();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
