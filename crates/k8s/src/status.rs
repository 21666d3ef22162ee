//! What Carrick says about a Tenant: conditions, and writing them only when they say something new.

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, TestOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    client::Client,
    error::Error,
    tenant::{Tenant, TenantStatus},
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
    let name = known.name_any();
    let api: Api<Tenant> = Api::all(client.kube().clone());
    let patch: Patch<()> = Patch::Json(JsonPatch(vec![
        test("uid", known.uid()),
        test("resourceVersion", known.resource_version()),
        PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["status"]),
            value: json!(status),
        }),
    ]));
    let params = PatchParams {
        field_manager: Some(client.field_manager().to_owned()),
        ..PatchParams::default()
    };
    client
        .call(api.patch_status(&name, &params, &patch))
        .await
        .map(Some)
        .map_err(|error| Error::of(format!("Tenant {name}"), &error))
}

fn test(field: &str, value: Option<String>) -> PatchOperation {
    let value = Value::from(value.unwrap_or_default());
    PatchOperation::Test(TestOperation {
        path: PointerBuf::from_tokens(["metadata", field]),
        value,
    })
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
