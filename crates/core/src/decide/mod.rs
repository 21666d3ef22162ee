//! What each service does about a claim, given all that is known of it: pure functions, one file
//! for each of them.
//!
//! | service | file |
//! |---|---|
//! | downsyncer | [`down`], `spec` (what goes down), `undo` (how it ends), [`namespace`] (cleaning up) |
//! | storage-transformer | [`transform`] |
//! | upsyncer | [`upsync`], [`classes`] |
//! | status-syncer | [`status`], [`tell`], [`host_events`] |
//!
//! [`ownership`] answers whose an object is, for all of them.

pub mod classes;
pub mod down;
pub mod host_events;
pub mod namespace;
pub mod ownership;
mod spec;
pub mod status;
pub mod tell;
pub mod transform;
mod undo;
pub mod upsync;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::names::BETA_STORAGE_CLASS;

/// A claim's phase; `Pending` where it has none yet.
pub fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// The name of the volume that a claim is bound to, or wants; `None` if it names none.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let spec = claim.spec.as_ref()?;
    spec.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The storage class that a claim names, if it names one: by the annotation from before
/// `spec.storageClassName`, which goes first as in the API server, or by that field.
pub fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let spec = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    ownership::annotation(&claim.metadata, BETA_STORAGE_CLASS).or(spec)
}

/// A volume's phase, if it has one.
pub fn volume_phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref().and_then(|status| status.phase.as_deref())
}
