//! The one error of this crate, and what is to be done about it.

use std::{fmt, time::Duration};

use kube::core::{Status, response::reason};

use crate::problem::ConnectionProblem;

/// What is to be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing is wrong with the request: the same again later.
    Retry,
    /// What it relied on has changed: read again, decide again.
    Conflict,
    /// The server will not have it: tell whoever asked for it.
    Refused,
    /// Nothing here can mend it: end, or wait for other settings.
    Stop,
}

/// Why a call to a control plane did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A precondition did not hold.
    #[error("{object} has changed meanwhile, read it again: {message}")]
    Conflict {
        /// Which object.
        object: String,
        /// The server's words.
        message: String,
    },
    /// The object is not there.
    #[error("{object} is not there")]
    NotFound {
        /// Which object.
        object: String,
    },
    /// The object's namespace is not there, or is being deleted.
    #[error("{object} has no namespace to be in, wait for it: {message}")]
    Namespace {
        /// Which object.
        object: String,
        /// The server's words.
        message: String,
    },
    /// The server will not have it: invalid, or forbidden by an admission rule.
    #[error("{object} is refused: {message}")]
    Refused {
        /// Which object.
        object: String,
        /// HTTP code of the answer.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The control plane cannot be used now, at least not for this.
    #[error("{object}: {problem}")]
    Unavailable {
        /// Which object.
        object: String,
        /// Why.
        problem: ConnectionProblem,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The settings for reaching a control plane are wrong.
    #[error("{0}")]
    Settings(ConnectionProblem),
    /// The installation is another one than these settings say.
    #[error("{0}")]
    Target(String),
}

impl Error {
    /// What is to be done about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Conflict { .. } | Self::NotFound { .. } | Self::Namespace { .. } => {
                Class::Conflict
            }
            Self::Refused { .. } => Class::Refused,
            Self::Unavailable { .. } => Class::Retry,
            Self::Settings(_) | Self::Target(_) => Class::Stop,
        }
    }

    /// What it says about the connection, if it is about that.
    pub fn problem(&self) -> Option<&ConnectionProblem> {
        match self {
            Self::Unavailable { problem, .. } | Self::Settings(problem) => Some(problem),
            _ => None,
        }
    }

    /// When the server wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Classifies an error of the client about `object`.
    pub fn of(object: impl fmt::Display, error: &kube::Error) -> Self {
        let object = object.to_string();
        match error {
            kube::Error::Api(status) => Self::of_status(object, status),
            kube::Error::BuildRequest(source) => {
                Self::Refused { object, code: 0, message: source.to_string() }
            }
            error => Self::unavailable(object, ConnectionProblem::of(error)),
        }
    }

    /// The control plane cannot be used now.
    pub(crate) fn unavailable(object: impl fmt::Display, problem: ConnectionProblem) -> Self {
        Self::Unavailable { object: object.to_string(), problem, retry_after: None }
    }

    fn of_status(object: String, status: &Status) -> Self {
        let message = status.message.clone();
        match status.code {
            409 | 410 => Self::Conflict { object, message },
            // A JSON patch whose test fails, or that removes what is not there, is answered so.
            422 if causes(status) == 0 || is_going(status) => Self::Conflict { object, message },
            404 if kind(status) == "namespaces" => Self::Namespace { object, message },
            404 if is_about_an_object(status) => Self::NotFound { object },
            403 if is_terminating(status) => Self::Namespace { object, message },
            // Not the object is refused, but Carrick itself: for an operator, not for a tenant.
            403 if lacks_rights(status) => Self::unavailable(object, problem(status)),
            400 | 403 | 405..=407 | 411..=428 => {
                Self::Refused { object, code: status.code, message }
            }
            _ => Self::Unavailable {
                object,
                problem: problem(status),
                retry_after: retry_after(status),
            },
        }
    }
}

/// Whether the server says that just this object is not there: a server that does not know the
/// resource, or is not the right one, also answers 404.
pub(crate) fn is_missing(error: &kube::Error, plural: &str, name: &str) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    let details = status.details.as_ref();
    status.code == 404
        && status.reason == reason::NOT_FOUND
        && details.is_some_and(|details| details.kind == plural && details.name == name)
}

/// Whether there is an object of that name already.
pub(crate) fn is_already_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

fn problem(status: &Status) -> ConnectionProblem {
    ConnectionProblem::of_status(status)
}

fn causes(status: &Status) -> usize {
    status.details.as_ref().map_or(0, |details| details.causes.len())
}

fn kind(status: &Status) -> &str {
    status.details.as_ref().map_or("", |details| &details.kind)
}

fn is_about_an_object(status: &Status) -> bool {
    status.reason == reason::NOT_FOUND
        && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

fn is_terminating(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether an object was to get a finalizer, and is being deleted since.
fn is_going(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| {
        cause.field == "metadata.finalizers" && cause.message.contains("is being deleted")
    })
}

/// The authorizer's words, as distinct from those of admission.
fn lacks_rights(status: &Status) -> bool {
    status.message.contains("User \"") && status.message.contains("\" cannot ")
}

fn retry_after(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn answer(status: Value) -> kube::Error {
        kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    }

    #[test]
    fn answers_are_classified() {
        let cause = json!([{"reason": "FieldValueForbidden", "field": "spec"}]);
        let rights = "persistentvolumes \"x\" is forbidden: User \"sa\" cannot patch resource";
        let going = json!([{"reason": "NamespaceTerminating"}]);
        let words = "Forbidden: no new finalizers can be added if the object is being deleted";
        let late = json!([{"reason": "FieldValueForbidden", "field": "metadata.finalizers",
                           "message": words}]);
        for (status, expected) in [
            (json!({"code": 409, "reason": "Conflict"}), Class::Conflict),
            (json!({"code": 422, "reason": "Invalid", "details": {}}), Class::Conflict),
            (json!({"code": 422, "reason": "Invalid"}), Class::Conflict),
            (
                json!({"code": 422, "reason": "Invalid", "details": {"causes": cause}}),
                Class::Refused,
            ),
            (
                json!({"code": 422, "reason": "Invalid", "details": {"causes": late}}),
                Class::Conflict,
            ),
            (
                json!({"code": 403, "reason": "Forbidden", "message": "exceeded quota"}),
                Class::Refused,
            ),
            (json!({"code": 403, "reason": "Forbidden", "message": rights}), Class::Retry),
            (
                json!({"code": 403, "reason": "Forbidden", "details": {"causes": going}}),
                Class::Conflict,
            ),
            (json!({"code": 400, "reason": "BadRequest"}), Class::Refused),
            (json!({"code": 401, "reason": "Unauthorized"}), Class::Retry),
            (json!({"code": 404, "message": "404 page not found"}), Class::Retry),
            (
                json!({"code": 404, "reason": "NotFound", "details": {"name": "x", "kind": "nodes"}}),
                Class::Conflict,
            ),
            (json!({"code": 429}), Class::Retry),
            (json!({"code": 500, "reason": "InternalError"}), Class::Retry),
            (json!({"code": 503}), Class::Retry),
        ] {
            let error = Error::of("tenant Node x", &answer(status.clone()));
            assert_eq!(error.class(), expected, "{status}");
            assert!(error.to_string().contains("tenant Node x"), "{error}");
        }
    }

    #[test]
    fn a_missing_namespace_is_not_a_missing_object() {
        let details = json!({"name": "kcp-1", "kind": "namespaces"});
        let status = json!({"code": 404, "reason": "NotFound", "details": details});
        let error = Error::of("host PersistentVolumeClaim kcp-1/data", &answer(status));
        assert!(matches!(error, Error::Namespace { .. }), "{error}");
    }

    #[test]
    fn only_a_plain_answer_says_that_an_object_is_gone() {
        let missing = |status| is_missing(&answer(status), "persistentvolumes", "pv");
        let details = |kind, name| json!({"kind": kind, "name": name});
        for (status, expected) in [
            (
                json!({"code": 404, "reason": "NotFound", "details": details("persistentvolumes", "pv")}),
                true,
            ),
            (
                json!({"code": 404, "reason": "NotFound", "details": details("namespaces", "pv")}),
                false,
            ),
            (
                json!({"code": 404, "reason": "NotFound", "details": details("persistentvolumes", "x")}),
                false,
            ),
            (json!({"code": 404, "reason": "NotFound", "details": {}}), false),
            (json!({"code": 404, "message": "404 page not found"}), false),
            (json!({"code": 503}), false),
        ] {
            assert_eq!(missing(status.clone()), expected, "{status}");
        }
    }

    #[test]
    fn the_server_may_say_when_to_come_again() {
        let status = json!({"code": 429, "details": {"retryAfterSeconds": 3}});
        let error = Error::of("x", &answer(status));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    }
}
