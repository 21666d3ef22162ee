//! What can happen: the states of a claim's world, and who does what in it.

use std::{collections::BTreeSet, sync::Arc};

use carrick_core::{
    Facet, Policy, SyncTarget, Write,
    names::Domain,
    policy::{Binder, ClassRules, TenantRules},
};
use serde_json::{Value, json};
use stateright::{Model, Property};

use crate::{
    api::{Api, entry, has_finalizer, is_going, text},
    look::{Broken, Service, decide},
    rules,
};

pub(crate) const TENANT: &str = "acme";
pub(crate) const NAMESPACE: &str = "team-a";
pub(crate) const CLAIM: &str = "data";
/// The time stands still: nothing is decided by it but what a person is told, and when.
pub(crate) const NOW: &str = "2026-01-01T00:00:00Z";

/// What people may still do, each so many times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// The user deletes the claim.
    pub deletes: u8,
    /// The user makes the claim again once it is gone.
    pub creates: u8,
    /// A soft finalizer is set on the claim.
    pub holds_claim: u8,
    /// A soft finalizer is set on the namespace.
    pub holds_namespace: u8,
    /// All soft finalizers are cleared.
    pub frees: u8,
    /// The claim is marked as taken off this sync target.
    pub takes_off: u8,
    /// The user takes our finalizer off the claim.
    pub strips: u8,
    /// The user deletes the copy of the volume.
    pub copy_deletes: u8,
    /// Somebody on the host deletes the volume.
    pub volume_deletes: u8,
    /// Somebody on the host deletes the host claim.
    pub host_deletes: u8,
    /// A stranger's claim stands on the host under the claim's name.
    pub strangers: u8,
}

impl Budget {
    fn of(&mut self, person: Person) -> &mut u8 {
        match person {
            Person::Deletes => &mut self.deletes,
            Person::Creates => &mut self.creates,
            Person::HoldsClaim => &mut self.holds_claim,
            Person::HoldsNamespace => &mut self.holds_namespace,
            Person::Frees => &mut self.frees,
            Person::TakesOff => &mut self.takes_off,
            Person::Strips => &mut self.strips,
            Person::DeletesCopy => &mut self.copy_deletes,
            Person::DeletesVolume => &mut self.volume_deletes,
            Person::DeletesHostClaim => &mut self.host_deletes,
            Person::PutsStranger => &mut self.strangers,
        }
    }
}

/// Decided writes that are not done yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) service: Service,
    pub(crate) writes: Arc<Vec<Write>>,
    pub(crate) next: usize,
    text: Arc<str>,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.service == other.service && self.next == other.next && self.text == other.text
    }
}

impl Eq for Pending {}

impl std::hash::Hash for Pending {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.service, self.next, &self.text).hash(state);
    }
}

/// What once was, for rules that speak of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Past {
    /// Tenant claims whose host claim was bound.
    pub(crate) bound: BTreeSet<String>,
    /// Tenant claims that had a volume of theirs in the tenant.
    pub(crate) carried_up: BTreeSet<String>,
    /// Tenant claim and the volume that the host bound for it.
    pub(crate) volumes: BTreeSet<(String, String)>,
    /// Host volume and the tenant claim that it was marked for.
    pub(crate) marked: BTreeSet<(String, String)>,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) live: Api,
    pub(crate) seen: Api,
    pub(crate) pending: Vec<Pending>,
    pub(crate) budget: Budget,
    pub(crate) past: Past,
    /// The rule that the last step broke.
    pub(crate) broke: Option<&'static str>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The watcher publishes what an object is now.
    Publish(Facet),
    /// A service looks at the claim and decides.
    Look(Service),
    /// The next write of a decision is done.
    Write(usize),
    /// A decision is never carried out further: its process was killed.
    Crash(usize),
    /// The host provisions and binds.
    HostBinds,
    /// The host notices that a volume's claim, or a claim's volume, is gone.
    HostCleansUp,
    /// The tenant's own binder does the same there.
    TenantBinds,
    /// Somebody does this, of [`Budget`].
    Person(Person),
}

/// What people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Person {
    Deletes,
    Creates,
    HoldsClaim,
    HoldsNamespace,
    Frees,
    TakesOff,
    Strips,
    DeletesCopy,
    DeletesVolume,
    DeletesHostClaim,
    PutsStranger,
}

/// A model: who there is, and how much people do.
#[derive(Clone, Debug)]
pub struct World {
    /// The installation and the tenant.
    pub policy: Policy,
    /// What people do.
    pub budget: Budget,
    /// The host's volumes stay when their claim is gone.
    pub retain: bool,
    /// How many decisions may be under way at a time.
    pub at_a_time: usize,
    /// A rule that is broken.
    pub broken: Option<Broken>,
}

impl World {
    /// A tenant with this binder, in which nobody does anything but make a claim.
    pub fn new(binder: Binder) -> Self {
        let target = SyncTarget {
            cluster: "root".to_owned(),
            name: "carrick".to_owned(),
            uid: "0b1c".to_owned(),
        };
        let tenant = TenantRules {
            name: TENANT.to_owned(),
            cluster: TENANT.to_owned(),
            classes: ClassRules {
                mapped: [("fast".to_owned(), "ssd".to_owned())].into(),
                ..ClassRules::default()
            },
            binder,
            ..TenantRules::default()
        };
        Self {
            policy: Policy::new(target, Domain::KcpDev, tenant),
            budget: Budget::default(),
            retain: false,
            at_a_time: 1,
            broken: None,
        }
    }

    /// The same, with people who do this.
    #[must_use]
    pub fn with(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    fn host_namespace(&self) -> String {
        self.policy.locator(NAMESPACE).host_namespace()
    }

    /// What anybody but a person can do next.
    pub(crate) fn machines(&self, state: &State, acts: &mut Vec<Act>) {
        for facet in state.live.0.keys() {
            if state.live.0.get(facet) != state.seen.0.get(facet) {
                acts.push(Act::Publish(facet.clone()));
            }
        }
        if state.pending.len() < self.at_a_time {
            acts.extend(Service::ALL.map(Act::Look));
        }
        for index in 0..state.pending.len() {
            acts.push(Act::Write(index));
        }
        acts.extend([Act::HostBinds, Act::HostCleansUp]);
        if self.policy.tenant.binder == Binder::Tenant {
            acts.push(Act::TenantBinds);
        }
    }

    fn look(&self, state: &mut State, service: Service) -> bool {
        let writes = decide(state, service, &self.policy, self.broken);
        if writes.is_empty() {
            return false;
        }
        rules::decided(self, state, &writes);
        let text = format!("{writes:?}").into();
        let pending = Pending { service, writes: Arc::new(writes), next: 0, text };
        if state.pending.contains(&pending) {
            return false;
        }
        state.pending.push(pending);
        // Which replica is which says nothing.
        state
            .pending
            .sort_by(|a, b| (a.service, &a.text, a.next).cmp(&(b.service, &b.text, b.next)));
        true
    }

    fn write(&self, state: &mut State, index: usize) {
        let Pending { service, writes, next, text: _ } = state.pending.remove(index);
        let mut rest = state.pending.clone();
        let Some(write) = writes.get(next) else { return };
        let Some(facet) = write.object.facet() else { return };
        let before = state.live.get(&facet).cloned();
        if state.live.write(&facet, &write.action).is_err() {
            return;
        }
        rules::written(self, state, write, before.as_ref());
        if next + 1 < writes.len() {
            let text = format!("{writes:?}").into();
            rest.push(Pending { service, writes, next: next + 1, text });
        }
        state.pending = rest;
    }

    fn host_binds(&self, state: &mut State) -> bool {
        let Some(claim) = state.live.get(&Facet::HostClaim).cloned() else { return false };
        if text(&claim, "/status/phase") != "Pending" || is_going(&claim) {
            return false;
        }
        let uid = text(&claim, "/metadata/uid");
        let name = format!("pv-{uid}");
        let facet = Facet::HostVolume(name.clone());
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "uid": format!("volume-of-{uid}")},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": if self.retain { "Retain" } else { "Delete" },
                "csi": {"driver": "csi.example", "volumeHandle": name},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "uid": uid,
                    "namespace": self.host_namespace(), "name": CLAIM,
                },
            },
            "status": {"phase": "Bound"},
        });
        state.live.put(&facet, volume);
        let status = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
        let patch = json!({"spec": {"volumeName": name}, "status": status});
        state.live.merge(&Facet::HostClaim, &patch);
        rules::bound(state);
        true
    }

    fn host_cleans_up(&self, state: &mut State) -> bool {
        let claim = state.live.get(&Facet::HostClaim).cloned();
        let uid = claim.as_ref().map_or("", |claim| text(claim, "/metadata/uid"));
        let orphan = state.live.0.iter().find_map(|(facet, version)| {
            let volume = &version.object.value;
            let orphaned = matches!(facet, Facet::HostVolume(_))
                && !version.deleted
                && text(volume, "/status/phase") == "Bound"
                && text(volume, "/spec/claimRef/uid") != uid;
            orphaned.then(|| facet.clone())
        });
        if let Some(volume) = orphan {
            if self.retain {
                state.live.merge(&volume, &json!({"status": {"phase": "Released"}}));
            } else {
                state.live.delete(&volume);
            }
            return true;
        }
        let Some(claim) = claim else { return false };
        let volume = Facet::HostVolume(text(&claim, "/spec/volumeName").to_owned());
        let lost = text(&claim, "/status/phase") == "Bound" && state.live.get(&volume).is_none();
        if lost {
            state.live.merge(&Facet::HostClaim, &json!({"status": {"phase": "Lost"}}));
        }
        lost
    }

    /// As a kube-controller-manager does: binds, says `Lost` when the volume is gone, and `Released`
    /// when the claim is.
    fn tenant_binds(state: &mut State) -> bool {
        let claim = state.live.get(&Facet::TenantClaim).cloned();
        let uid = claim.as_ref().map_or("", |claim| text(claim, "/metadata/uid")).to_owned();
        let phase = claim.as_ref().map_or("", |claim| text(claim, "/status/phase")).to_owned();
        let copies: Vec<_> = state
            .live
            .0
            .iter()
            .filter(|(facet, version)| matches!(facet, Facet::TenantVolume(_)) && !version.deleted)
            .map(|(facet, version)| (facet.clone(), version.object.value.clone()))
            .collect();
        for (facet, copy) in &copies {
            let its = text(copy, "/spec/claimRef/uid") == uid;
            let now = text(copy, "/status/phase");
            if its && (phase != "Bound" || now != "Bound") {
                let name = text(copy, "/metadata/name");
                state.live.merge(facet, &json!({"status": {"phase": "Bound"}}));
                let status = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}});
                let patch = json!({"spec": {"volumeName": name}, "status": status});
                state.live.merge(&Facet::TenantClaim, &patch);
                return true;
            }
            if !its && now == "Bound" {
                state.live.merge(facet, &json!({"status": {"phase": "Released"}}));
                return true;
            }
        }
        let has = |(_, copy): &(Facet, Value)| text(copy, "/spec/claimRef/uid") == uid;
        let lost = phase == "Bound" && !copies.iter().any(has);
        if lost {
            state.live.merge(&Facet::TenantClaim, &json!({"status": {"phase": "Lost"}}));
        }
        lost
    }

    fn person(&self, state: &mut State, person: Person) -> bool {
        let left = state.budget.of(person);
        if *left == 0 {
            return false;
        }
        *left -= 1;
        let before = state.live.clone();
        let (claim, namespace) = (Facet::TenantClaim, Facet::TenantNamespace);
        let names = &self.policy.names;
        let soft = names.soft_finalizer();
        let live = &mut state.live;
        match person {
            Person::Deletes => live.delete(&claim),
            Person::Creates => drop(live.create(&claim, user_claim())),
            Person::HoldsClaim => live.merge(&claim, &annotated(&soft, "backup")),
            Person::HoldsNamespace => live.merge(&namespace, &annotated(&soft, "backup")),
            Person::Frees => {
                for facet in [claim, namespace] {
                    let held = |v: &Value| !entry(v, "annotations", &soft).is_empty();
                    if live.get(&facet).is_some_and(held) {
                        live.merge(&facet, &annotated(&soft, ""));
                    }
                }
            }
            Person::TakesOff => live.merge(&claim, &annotated(&names.deletion(), NOW)),
            Person::Strips => {
                let has = |claim: &Value| has_finalizer(claim, &names.finalizer());
                if live.get(&claim).is_some_and(has) {
                    live.merge(&claim, &json!({"metadata": {"finalizers": null}}));
                }
            }
            Person::DeletesCopy | Person::DeletesVolume => {
                if let Some(volume) = a_volume(live, person == Person::DeletesVolume) {
                    live.delete(&volume);
                }
            }
            Person::DeletesHostClaim => live.delete(&Facet::HostClaim),
            Person::PutsStranger => drop(live.create(&Facet::HostClaim, stranger())),
        }
        before != state.live
    }
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {(key): value}}})
}

/// The first volume of a side.
fn a_volume(live: &Api, on_host: bool) -> Option<Facet> {
    live.0.iter().find_map(|(facet, version)| {
        let found = match facet {
            Facet::HostVolume(_) => on_host,
            Facet::TenantVolume(_) => !on_host,
            _ => false,
        };
        (found && !version.deleted).then(|| facet.clone())
    })
}

fn user_claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// A claim on the host that somebody else made.
fn stranger() -> Value {
    let mut stranger = user_claim();
    stranger["metadata"]["namespace"] = json!("somewhere");
    stranger
}

impl Model for World {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let mut live = Api::default();
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        let made = live
            .create(&Facet::TenantNamespace, namespace)
            .and_then(|()| live.create(&Facet::TenantClaim, user_claim()));
        made.expect("nothing is there yet");
        if self.policy.tenant.binder == Binder::Tenant {
            let class = json!({"metadata": {"name": "fast"}, "provisioner": "carrick.dev/host"});
            let made = live.create(&Facet::TenantClass("fast".to_owned()), class);
            made.expect("nothing is there yet");
        }
        let seen = live.clone();
        let past = Past::default();
        vec![State { live, seen, pending: Vec::new(), budget: self.budget, past, broke: None }]
    }

    fn actions(&self, state: &State, acts: &mut Vec<Act>) {
        if state.broke.is_some() {
            return;
        }
        self.machines(state, acts);
        for index in 0..state.pending.len() {
            acts.push(Act::Crash(index));
        }
        acts.extend(
            [
                Person::Deletes,
                Person::Creates,
                Person::HoldsClaim,
                Person::HoldsNamespace,
                Person::Frees,
                Person::TakesOff,
                Person::Strips,
                Person::DeletesCopy,
                Person::DeletesVolume,
                Person::DeletesHostClaim,
                Person::PutsStranger,
            ]
            .map(Act::Person),
        );
    }

    fn next_state(&self, last: &State, act: Act) -> Option<State> {
        let mut state = last.clone();
        let happened = match act {
            Act::Publish(facet) => {
                let version = state.live.0.get(&facet)?.clone();
                state.seen.0.insert(facet, version);
                true
            }
            Act::Look(service) => self.look(&mut state, service),
            Act::Write(index) => {
                self.write(&mut state, index);
                true
            }
            Act::Crash(index) => {
                state.pending.remove(index);
                true
            }
            Act::HostBinds => self.host_binds(&mut state),
            Act::HostCleansUp => self.host_cleans_up(&mut state),
            Act::TenantBinds => Self::tenant_binds(&mut state),
            Act::Person(person) => self.person(&mut state, person),
        };
        happened.then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules::properties()
    }
}
