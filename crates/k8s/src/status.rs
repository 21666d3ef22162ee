//! What Carrick writes to a Tenant: conditions, only when they say something new, and its finalizer.

use carrick_core::patch::PatchBuilder;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    client::Client,
    error::Error,
    tenant::{FINALIZER, Tenant, TenantStatus},
};

/// Sets a condition. Its time changes only with its status.
pub fn set_condition(
    status: &mut TenantStatus,
    type_: &str,
    holds: Option<bool>,
    (reason, message): (&str, &str),
    (generation, now): (Option<i64>, Timestamp),
) {
    let word = match holds {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let known = status.conditions.iter().position(|found| found.type_ == type_);
    let since = known
        .map(|index| &status.conditions[index])
        .filter(|found| found.status == word)
        .map(|found| found.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: word.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match known {
        Some(index) => status.conditions[index] = condition,
        None => status.conditions.push(condition),
    }
}

/// Whether both say the same, whenever they were said.
pub fn same(a: &TenantStatus, b: &TenantStatus) -> bool {
    let timeless = |status: &TenantStatus| {
        let mut status = status.clone();
        for condition in &mut status.conditions {
            condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
        }
        status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        status
    };
    timeless(a) == timeless(b)
}

/// Writes the status of a Tenant that is as `known`; the Tenant as it is then. `None`: it says that
/// already, nothing was written. A Tenant that has changed meanwhile is an [`Error::Conflict`].
pub async fn patch_status(
    client: &Client,
    known: &Tenant,
    status: &TenantStatus,
) -> Result<Option<Tenant>, Error> {
    if same(known.status.as_ref().unwrap_or(&TenantStatus::default()), status) {
        return Ok(None);
    }
    let patch = PatchBuilder::new(&known.metadata).test_version().set(&["status"], json!(status));
    write(client, known, patch, true).await
}

/// Puts a Tenant's finalizer on or takes it off; as [`patch_status`] in all else. The Tenant that is
/// given back may be gone by then.
pub async fn set_finalizer(
    client: &Client,
    known: &Tenant,
    wanted: bool,
) -> Result<Option<Tenant>, Error> {
    let patch = PatchBuilder::new(&known.metadata).test_version();
    let patch =
        if wanted { patch.finalizer(FINALIZER) } else { patch.without_finalizers(&[FINALIZER]) };
    write(client, known, patch, false).await
}

async fn write(
    client: &Client,
    known: &Tenant,
    patch: PatchBuilder<'_>,
    status: bool,
) -> Result<Option<Tenant>, Error> {
    let Some(patch) = patch.build() else {
        return Ok(None);
    };
    let name = known.name_any();
    let api: Api<Tenant> = Api::all(client.kube().clone());
    let patch: Patch<()> = Patch::Json(patch);
    let params = PatchParams {
        field_manager: Some(client.field_manager().to_owned()),
        ..PatchParams::default()
    };
    let written = if status {
        client.call(api.patch_status(&name, &params, &patch)).await
    } else {
        client.call(api.patch(&name, &params, &patch)).await
    };
    written.map(Some).map_err(|error| Error::of(format!("Tenant {name}"), &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::{CONNECTED, SYNCED};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_conditions_time_is_that_of_its_last_change() {
        let mut status = TenantStatus::default();
        let mut set = |holds, reason, second| {
            set_condition(&mut status, CONNECTED, holds, (reason, ""), (Some(1), at(second)));
            status.conditions[0].clone()
        };
        assert_eq!(set(Some(true), "Connected", 1).last_transition_time, Time(at(1)));
        assert_eq!(set(Some(true), "Connected", 2).last_transition_time, Time(at(1)));
        let lost = set(Some(false), "Unreachable", 3);
        assert_eq!((lost.status.as_str(), lost.reason.as_str()), ("False", "Unreachable"));
        assert_eq!(lost.last_transition_time, Time(at(3)));
        assert_eq!(set(None, "Unknown", 4).status, "Unknown");
        assert_eq!(status.conditions.len(), 1);
    }

    #[test]
    fn times_and_order_say_nothing_new() {
        let said = |order: [&str; 2], second, message| {
            let mut status = TenantStatus::default();
            for type_ in order {
                set_condition(&mut status, type_, Some(true), ("R", message), (None, at(second)));
            }
            status
        };
        let first = said([CONNECTED, SYNCED], 1, "m");
        assert!(same(&first, &said([SYNCED, CONNECTED], 2, "m")));
        assert!(!same(&first, &said([CONNECTED, SYNCED], 1, "other")));
        let counted = TenantStatus { claims: [("Bound".into(), 1)].into(), ..first.clone() };
        assert!(!same(&first, &counted));
    }
}
