//! Steps: what a service did about a claim, or why it did not. They are for people and for the
//! status-syncer; nothing is decided from them but what to tell the tenant.

use std::{
    fmt::{self, Write as _},
    str::FromStr,
};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// The parts of a claim's way; each is owned by one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// The claim is carried down (downsyncer).
    Claim,
    /// The host binds the claim (seen by the storage-transformer).
    Bind,
    /// The host volume is made to point at the tenant's claim (storage-transformer).
    Transform,
    /// The volume is carried up (upsyncer).
    Upsync,
    /// The tenant may see `Bound` (status-syncer).
    Release,
    /// The tenant's claim has its volume's name and the host's status (status-syncer).
    Status,
    /// The storage classes of a tenant are published (upsyncer); not about one claim.
    Class,
    /// The host side of a claim that is deleted, or taken off, is undone (downsyncer).
    Delete,
}

impl Step {
    /// All steps, in the order of a claim's way.
    pub const ALL: [Self; 8] = [
        Self::Claim,
        Self::Bind,
        Self::Transform,
        Self::Upsync,
        Self::Release,
        Self::Status,
        Self::Class,
        Self::Delete,
    ];

    /// The step as it stands in subjects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Bind => "bind",
            Self::Transform => "transform",
            Self::Upsync => "upsync",
            Self::Release => "release",
            Self::Status => "status",
            Self::Class => "class",
            Self::Delete => "delete",
        }
    }
}

/// How a step ended, for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing is left to do.
    Done,
    /// Something else must happen first.
    Waiting,
    /// A soft finalizer holds it.
    Held,
    /// Policy or a collision forbids it.
    Refused,
    /// It failed and is tried again.
    Retrying,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 5] =
        [Self::Done, Self::Waiting, Self::Held, Self::Refused, Self::Retrying];

    /// The outcome as it stands in subjects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Retrying => "retrying",
        }
    }
}

/// Why a step is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// One CamelCase word, for machines; also the reason of the tenant's condition.
    pub code: &'static str,
    /// A sentence for a person in the tenant: names no host object.
    pub message: String,
}

impl Reason {
    /// A reason with its sentence.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The last step of one kind that was published for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRecord {
    /// Which step.
    pub step: Step,
    /// How it ended.
    pub outcome: Outcome,
    /// [`Reason::code`], empty when done.
    pub code: String,
    /// [`Reason::message`], empty when done.
    pub message: String,
    /// Uid of the tenant claim that it was about; a claim made again has another.
    pub claim_uid: String,
    /// When it was published.
    pub time: Timestamp,
}

/// The trace that all spans about a claim belong to: 16 bytes in hexadecimal, derived from what
/// every service knows, so that none has to pass it on.
pub fn trace_id(tenant: &str, claim_uid: &str) -> String {
    // The separator is in no Tenant's name, so no other pair reads the same.
    let digest = Sha256::digest(format!("{tenant}/{claim_uid}"));
    let mut text = String::new();
    for byte in &digest[..16] {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

macro_rules! text_form {
    ($type:ty, $what:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.into_iter().find(|value| value.as_str() == text);
                found.ok_or_else(|| {
                    let known = Self::ALL.map(Self::as_str).join(", ");
                    format!("unknown {} {text:?}: use one of {known}", $what)
                })
            }
        }
    };
}

text_form!(Step, "step");
text_form!(Outcome, "outcome");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_of_one_claim_only() {
        let id = trace_id("acme", "0f6c");
        assert_eq!(id, "5463cca35671b492e94ee0cb7af7b449");
        assert_ne!(id, trace_id("acme", "0f6d"));
        assert_ne!(trace_id("a", "b/c"), trace_id("a.b", "c"));
    }
}
