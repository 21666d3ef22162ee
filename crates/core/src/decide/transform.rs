//! The storage-transformer: once the host has bound a claim, marks the host volume so that its
//! copy points at the tenant's claim.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::{
    claim_phase, class_name,
    ownership::{
        ClaimOwner, VolumeLocator, annotation, check_host_namespace, claim_owner, volume_locator,
    },
    volume_name,
};
use crate::{
    claim_ref,
    fact::ClaimFacts,
    names::{DELAYED, UPSYNC},
    patch::PatchBuilder,
    policy::Policy,
    step::{Reason, Step},
    write::{Action, Decision, Kind, ObjectRef, Side, Write},
};

/// Decides what the storage-transformer does about a claim.
pub fn decide(facts: &ClaimFacts, policy: &Policy, _now: Timestamp) -> Decision {
    let (Some(host), Some(namespace)) = (facts.live_host_claim(), facts.live_host_namespace())
    else {
        return Decision::ignored(Step::Bind);
    };
    let ours = check_host_namespace(namespace, policy, &facts.key.namespace).is_ok();
    if policy.tenant.paused || !ours || claim_owner(host, policy) == ClaimOwner::Stranger {
        return Decision::ignored(Step::Bind);
    }
    match claim_phase(host) {
        "Bound" => transform(facts, host, policy),
        "Pending" => hold_back(facts, host, policy),
        _ => Decision::ignored(Step::Bind),
    }
}

/// Marks a claim that somebody else carried down, before it is bound for the first time.
fn hold_back(facts: &ClaimFacts, host: &PersistentVolumeClaim, policy: &Policy) -> Decision {
    let never_bound = volume_name(host).is_none()
        && facts.live_tenant_claim().is_none_or(|claim| volume_name(claim).is_none());
    let unrecorded = claim_owner(host, policy) == ClaimOwner::Unrecorded;
    let delay = policy.names.delay();
    if unrecorded && never_bound && annotation(&host.metadata, &delay).is_none() {
        let patch =
            PatchBuilder::new(&host.metadata).test_version().annotation(&delay, DELAYED).build();
        if let Some(patch) = patch {
            let object = host_claim_ref(host, &facts.key.claim);
            let write = Write { object, action: Action::Patch(patch), why: "status held back" };
            return Decision::write(Step::Bind, write);
        }
    }
    let class = class_name(facts.live_tenant_claim().unwrap_or(host));
    let of_class = class.map(|class| format!(" of storage class {class:?}")).unwrap_or_default();
    Decision::waiting(
        Step::Bind,
        "WaitingForHost",
        format!("waits for the host to bind the claim to a volume{of_class}"),
    )
}

fn transform(facts: &ClaimFacts, host: &PersistentVolumeClaim, policy: &Policy) -> Decision {
    const STEP: Step = Step::Transform;
    let waiting = |code, message: &str| Decision::waiting(STEP, code, message);
    let volume = volume_name(host).and_then(|name| facts.live_host_volume(name));
    let claim_ref = volume.and_then(|volume| volume.spec.as_ref()?.claim_ref.as_ref());
    let (Some(volume), Some(claim_ref)) = (volume, claim_ref) else {
        return waiting("WaitingForVolume", "waits to see the volume that the host bound");
    };
    if claim_ref.uid != host.metadata.uid {
        return waiting("WaitingForVolume", "waits for the host volume to name the claim");
    }
    let Some(claim) = facts.live_tenant_claim() else {
        return waiting("WaitingForClaim", "waits to see the tenant's claim");
    };
    if let ClaimOwner::Uid(uid) = claim_owner(host, policy)
        && Some(uid) != claim.metadata.uid.as_deref()
    {
        return waiting("OlderClaim", "the host claim belongs to an earlier claim of this name");
    }
    if volume_locator(volume, policy) == VolumeLocator::Foreign {
        return Decision::refused(
            STEP,
            Reason::new(
                "ForeignVolume",
                "the volume that the host bound is marked as somebody else's",
            ),
        );
    }
    match marks(volume, claim, policy) {
        None => Decision::done(STEP),
        Some(patch) => {
            let name = volume.metadata.name.clone().unwrap_or_default();
            let object = ObjectRef::cluster(Side::Host, Kind::Volume, name);
            let write = Write { object, action: Action::Patch(patch), why: "marks of the volume" };
            Decision::write(STEP, write)
        }
    }
}

/// The patch that marks a host volume as this claim's; `None` if it is marked.
fn marks(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    policy: &Policy,
) -> Option<json_patch::Patch> {
    let names = &policy.names;
    let host_uid = volume.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref()?;
    let mut patch = PatchBuilder::new(&volume.metadata)
        .test(&["spec", "claimRef", "uid"], json!(host_uid))
        .label(&names.cluster(), names.key())
        .label(&names.state(), UPSYNC);
    // A locator that means the same in other words stays as it is. Where there is none, no test can
    // say so, and of two sync targets only one may take the volume: at this very version only.
    if volume_locator(volume, policy) == VolumeLocator::Absent {
        patch = patch.test_version().annotation(&names.locator(), &policy.locator("").to_json());
    }
    // A diff that names this very claim stays as it is, whatever resourceVersion it was made at.
    let kept = annotation(&volume.metadata, &names.diff())
        .and_then(|diff| claim_ref::parse_diff(diff).ok())
        .is_some_and(|reference| claim_ref::names_claim(&reference, claim));
    if !kept {
        patch = patch.annotation(&names.diff(), &claim_ref::diff_for(claim));
    }
    patch.build()
}

fn host_claim_ref(host: &PersistentVolumeClaim, name: &str) -> ObjectRef {
    let namespace = host.metadata.namespace.clone().unwrap_or_default();
    ObjectRef::namespaced(Side::Host, Kind::Claim, namespace, name)
}
