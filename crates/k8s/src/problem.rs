//! Why a control plane cannot be used, as one word for a condition and a sentence for a person.

use std::{error::Error as StdError, fmt, io};

use kube::core::Status;

use crate::bound::TimedOut;

/// Longest message that is kept: it ends up in conditions.
const MESSAGE_LIMIT: usize = 400;

/// Reason: the server's certificate is not from the authority in the kubeconfig, or not for it.
pub const CERTIFICATE_INVALID: &str = "CertificateInvalid";
/// Reason: TLS failed in another way.
pub const TLS_FAILED: &str = "TlsFailed";
/// Reason: no such host, nothing listens there, or no route.
pub const UNREACHABLE: &str = "Unreachable";
/// Reason: no answer in time.
pub const TIMEOUT: &str = "Timeout";
/// Reason: the connection broke.
pub const CONNECTION_LOST: &str = "ConnectionLost";
/// Reason: the credentials are not, or no longer, valid.
pub const UNAUTHORIZED: &str = "Unauthorized";
/// Reason: the credentials do not allow it.
pub const FORBIDDEN: &str = "Forbidden";
/// Reason: the server answers, but does not serve this resource.
pub const NOT_SERVED: &str = "NotServed";
/// Reason: the server asks for fewer requests.
pub const OVERLOADED: &str = "Overloaded";
/// Reason: the server has failed.
pub const SERVER_ERROR: &str = "ServerError";
/// Reason: the answer could not be understood.
pub const INVALID_ANSWER: &str = "InvalidAnswer";
/// Reason: the kubeconfig is none, or asks for what is not allowed.
pub const KUBECONFIG_INVALID: &str = "KubeconfigInvalid";
/// Reason: the Secret that the Tenant names is not there.
pub const SECRET_MISSING: &str = "SecretMissing";
/// Reason: the Secret has no such key.
pub const KEY_MISSING: &str = "KeyMissing";
/// Reason: Carrick cannot read the Secrets of that namespace.
pub const SECRET_UNREADABLE: &str = "SecretUnreadable";
/// Reason: the control plane is not the one that was first seen under this Tenant.
pub const IDENTITY_CHANGED: &str = "IdentityChanged";

/// Why a control plane cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionProblem {
    /// One word, as the reason of a condition: one of this module's constants.
    pub reason: &'static str,
    /// What happened, for a person.
    pub message: String,
}

impl fmt::Display for ConnectionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason)?;
        match self.advice() {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

impl ConnectionProblem {
    /// A problem with this reason.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_LIMIT) {
            message.truncate(end);
            message.push('…');
        }
        Self { reason, message }
    }

    /// What a person can do about it; empty where the message says that already.
    fn advice(&self) -> &'static str {
        match self.reason {
            UNAUTHORIZED => {
                "it does not know these credentials: check token or client certificate in the \
                 kubeconfig"
            }
            FORBIDDEN => {
                "this account lacks the right: have it granted, or use another one's kubeconfig"
            }
            CERTIFICATE_INVALID => {
                "its certificate is not from the authority in the kubeconfig: check \
                 certificate-authority-data"
            }
            UNREACHABLE | TIMEOUT => {
                "it does not answer: check the server's address in the kubeconfig, and that it can \
                 be reached from here"
            }
            CONNECTION_LOST | OVERLOADED | SERVER_ERROR => "try again later",
            _ => "",
        }
    }

    /// What an error of the client says about the control plane.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                Self::new(INVALID_ANSWER, "the server's answer is not valid JSON")
            }
            error => Self::new(transport_reason(error), texts(error)),
        }
    }

    /// Whether no other call would be answered better, whatever it is about.
    pub fn is_of_the_connection(&self) -> bool {
        !matches!(self.reason, FORBIDDEN | NOT_SERVED | SERVER_ERROR | INVALID_ANSWER)
    }

    /// What a refusal says about the control plane.
    pub fn of_status(status: &Status) -> Self {
        let reason = match status.code {
            // The library takes any JSON that it does not know for a status without a code.
            0 => INVALID_ANSWER,
            401 => UNAUTHORIZED,
            403 => FORBIDDEN,
            404 => NOT_SERVED,
            429 => OVERLOADED,
            504 => TIMEOUT,
            _ => SERVER_ERROR,
        };
        let message = if status.message.is_empty() { &status.reason } else { &status.message };
        Self::new(reason, format!("the server answered {}: {message}", status.code))
    }
}

fn transport_reason(error: &(dyn StdError + 'static)) -> &'static str {
    for cause in causes(error) {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return match tls {
                rustls::Error::InvalidCertificate(_) => CERTIFICATE_INVALID,
                _ => TLS_FAILED,
            };
        }
        if cause.is::<TimedOut>() || cause.is::<tokio::time::error::Elapsed>() {
            return TIMEOUT;
        }
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            match io.kind() {
                io::ErrorKind::TimedOut => return TIMEOUT,
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::AddrNotAvailable => return UNREACHABLE,
                _ => {}
            }
        }
        // hyper's error of name resolution has no public type.
        if cause.to_string().starts_with("dns error") {
            return UNREACHABLE;
        }
    }
    CONNECTION_LOST
}

/// The error and all that is behind it. `io::Error::source` skips the error that it wraps.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> Vec<&'a (dyn StdError + 'static)> {
    let mut found: Vec<&'a (dyn StdError + 'static)> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        found.push(cause);
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        };
    }
    found
}

/// The texts of an error and its causes, those left out that only repeat.
fn texts(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in causes(error) {
        let text = cause.to_string();
        let text = text.strip_prefix("ServiceError: ").unwrap_or(&text);
        let text = text.strip_prefix("HyperError: ").unwrap_or(text);
        if !texts.iter().any(|known| known.contains(text)) {
            texts.push(text.to_owned());
        }
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(error: impl Into<Box<dyn StdError + Send + Sync>>) -> kube::Error {
        kube::Error::Service(error.into())
    }

    #[test]
    fn reasons_tell_apart_what_is_wrong() {
        let tls = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let status = |code| kube::Error::Api(Status::failure("no", "").with_code(code).boxed());
        for (error, expected) in [
            (service(tls(unknown)), CERTIFICATE_INVALID),
            (service(tls(rustls::Error::HandshakeNotComplete)), TLS_FAILED),
            (service(io::Error::from(io::ErrorKind::ConnectionRefused)), UNREACHABLE),
            (service("dns error: no such host"), UNREACHABLE),
            (service(io::Error::from(io::ErrorKind::TimedOut)), TIMEOUT),
            (service(TimedOut(std::time::Duration::from_secs(1))), TIMEOUT),
            (service(io::Error::from(io::ErrorKind::ConnectionReset)), CONNECTION_LOST),
            (status(0), INVALID_ANSWER),
            (status(401), UNAUTHORIZED),
            (status(403), FORBIDDEN),
            (status(404), NOT_SERVED),
            (status(429), OVERLOADED),
            (status(500), SERVER_ERROR),
        ] {
            assert_eq!(ConnectionProblem::of(&error).reason, expected, "{error}");
        }
    }

    #[test]
    fn only_what_may_pass_is_to_be_tried_again() {
        for (reason, words) in [
            (UNAUTHORIZED, "check token"),
            (FORBIDDEN, "have it granted"),
            (CERTIFICATE_INVALID, "certificate-authority-data"),
            (UNREACHABLE, "check the server's address"),
            (OVERLOADED, "try again later"),
        ] {
            let said = ConnectionProblem::new(reason, "no").to_string();
            assert!(said.contains(words), "{said}");
            assert_eq!(said.contains("later"), reason == OVERLOADED, "{said}");
        }
        assert_eq!(ConnectionProblem::new(KEY_MISSING, "no").to_string(), "no (KeyMissing)");
    }

    #[test]
    fn a_message_says_everything_once_and_not_too_much() {
        let inner = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let problem = ConnectionProblem::of(&service(io::Error::other(inner)));
        assert_eq!(problem.message.matches("certificate").count(), 1, "{problem}");
        let long = ConnectionProblem::new(TIMEOUT, "ä".repeat(1000));
        assert_eq!(long.message.chars().count(), MESSAGE_LIMIT + 1);
    }
}
