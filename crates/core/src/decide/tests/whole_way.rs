//! From a fresh claim to a bound one, in every order and on old facts, with the writes counted.

use serde_json::{Value, json};

use crate::{
    decide::fixtures::{
        Actor, CLAIM, NAMESPACE, Thing, VOLUME, World, entry, policy, policy_with, text,
    },
    names::{Domain, PROVISIONED_BY, TENANT_CLAIM_UID},
    policy::Binder,
    write::Kind,
};

/// What was written on the way without a binder, sorted.
const WITHOUT_BINDER: [&str; 9] = [
    "claim status",
    "finalizer on the tenant's claim",
    "host claim",
    "host namespace",
    "marks of the volume",
    "status released",
    "volume carried up",
    "volume name",
    "volume status",
];
/// The same where the tenant's own binder does the rest.
const WITH_BINDER: [&str; 6] = [
    "finalizer on the tenant's claim",
    "host claim",
    "host namespace",
    "marks of the volume",
    "status released",
    "volume carried up",
];

/// All orders of a list.
fn orders(list: &[Actor]) -> Vec<Vec<Actor>> {
    if list.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in list.iter().enumerate() {
        let rest: Vec<_> = [&list[..index], &list[index + 1..]].concat();
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

#[track_caller]
fn assert_written(world: &World, expected: &[&str]) {
    let mut written = world.written.clone();
    written.sort_unstable();
    assert_eq!(written, expected);
    assert_eq!((world.tenant.idle, world.host.idle), (0, 0), "writes that changed nothing");
}

fn keys(map: &Value) -> Vec<&str> {
    map.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Asserts, item by item, that the claim is bound on both sides.
pub(super) fn assert_bound(world: &World) {
    assert_tenant_claim(world);
    assert_tenant_volume(world);
    assert_host_claim(world);
    assert_host_volume(world);
}

fn assert_tenant_claim(world: &World) {
    let claim = world.see(Thing::TenantClaim);
    assert_eq!(text(claim, "/spec/volumeName"), VOLUME);
    assert_eq!(
        claim["status"],
        json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]})
    );
    let ours = world.policy.names.finalizer();
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection", ours]));
    assert_eq!(claim["metadata"]["labels"], json!({"app": "shop"}), "nothing of ours");
}

fn assert_tenant_volume(world: &World) {
    let names = &world.policy.names;
    let volume = world.see(Thing::TenantVolume);
    let host = world.see(Thing::HostVolume);
    let (meta, spec) = (&volume["metadata"], &volume["spec"]);
    for (field, expected) in [("namespace", NAMESPACE), ("name", CLAIM), ("uid", &world.uid())] {
        assert_eq!(spec["claimRef"][field], expected, "{field}");
    }
    assert_eq!(spec["storageClassName"], "fast", "under the tenant's name");
    for field in ["capacity", "csi", "persistentVolumeReclaimPolicy", "accessModes", "volumeMode"] {
        assert!(!spec[field].is_null(), "{field}");
        assert_eq!(spec[field], host["spec"][field], "{field}");
    }
    assert_eq!(meta["labels"], json!({"zone": "z1", (names.state()): "Upsync"}));
    assert_eq!(meta["finalizers"], json!([names.finalizer()]));
    assert_eq!(
        meta["annotations"],
        json!({
            "about": "ssd",
            (PROVISIONED_BY): "carrick.dev/host",
            (names.carried_rv()): host["metadata"]["resourceVersion"],
        })
    );
    assert_eq!(volume["status"], json!({"phase": "Bound"}));
}

fn assert_host_claim(world: &World) {
    let names = &world.policy.names;
    let claim = world.see(Thing::HostClaim);
    let labels = json!({"app": "shop", (names.cluster()): names.key()});
    assert_eq!(claim["metadata"]["labels"], labels);
    let annotations = json!({"note": "mine", (TENANT_CLAIM_UID): world.uid()});
    assert_eq!(claim["metadata"]["annotations"], annotations, "and no delaystatussyncing");
    assert_eq!(text(claim, "/spec/storageClassName"), "ssd");
    assert_eq!(text(claim, "/status/phase"), "Bound");
    assert_eq!(world.host.list(Kind::Claim).count(), 1);
    let namespace = world.see(Thing::HostNamespace);
    let locator = world.policy.locator(NAMESPACE);
    let labels = json!({(names.cluster()): names.key(), (names.tenant_id()): locator.tenant_id()});
    assert_eq!(namespace["metadata"]["labels"], labels);
    assert_eq!(entry(namespace, "annotations", &names.locator()), locator.to_json());
}

fn assert_host_volume(world: &World) {
    let names = &world.policy.names;
    let volume = world.see(Thing::HostVolume);
    let locator = entry(volume, "annotations", &names.locator());
    assert_eq!(locator, world.policy.locator("").to_json());
    assert!(locator.contains(r#""namespace":"""#), "{locator}");
    assert_eq!(entry(volume, "labels", &names.cluster()), names.key());
    assert_eq!(entry(volume, "labels", &names.state()), "Upsync");
    let diff = entry(volume, "annotations", &names.diff());
    let diff: Value = serde_json::from_str(diff).unwrap();
    let [operation] = &diff.as_array().unwrap()[..] else { panic!("{diff}") };
    assert_eq!(
        (&operation["op"], &operation["path"]),
        (&json!("replace"), &json!("/spec/claimRef"))
    );
    let reference = &operation["value"];
    assert_eq!(
        keys(reference),
        ["apiVersion", "kind", "name", "namespace", "resourceVersion", "uid"]
    );
    assert_eq!(
        (&reference["kind"], &reference["name"]),
        (&json!("PersistentVolumeClaim"), &json!(CLAIM))
    );
    assert_eq!(
        (&reference["namespace"], &reference["uid"]),
        (&json!(NAMESPACE), &json!(world.uid()))
    );
    assert_eq!(volume["spec"]["claimRef"]["uid"], world.see(Thing::HostClaim)["metadata"]["uid"]);
}

#[test]
fn a_claim_is_bound_with_eight_writes_in_every_order_of_the_services() {
    let start = World::new();
    for order in orders(&start.actors()) {
        let mut world = start.clone();
        world.settle(&order);
        assert_bound(&world);
        assert_written(&world, &WITHOUT_BINDER);
    }
}

#[test]
fn with_a_binder_in_the_tenant_five_writes_are_enough_in_every_order() {
    let start = World::of(policy_with(Domain::KcpDev, Binder::Tenant));
    for order in orders(&start.actors()) {
        let mut world = start.clone();
        world.settle(&order);
        assert_bound(&world);
        assert_written(&world, &WITH_BINDER);
    }
}

#[test]
fn the_way_is_the_same_in_the_other_domain_and_without_a_known_binder() {
    for domain in [Domain::KcpDev, Domain::KcpIo] {
        for binder in [Binder::Unknown, Binder::Carrick, Binder::Tenant] {
            let mut world = World::of(policy_with(domain, binder));
            let actors = world.actors();
            world.settle(&actors);
            assert_bound(&world);
            let binds = binder == Binder::Tenant;
            assert_written(&world, if binds { &WITH_BINDER } else { &WITHOUT_BINDER });
            let everything = format!("{:?}{:?}", world.tenant.history, world.host.history);
            let other = if domain == Domain::KcpDev { "kcp.io" } else { "kcp.dev" };
            assert!(!everything.contains(other), "{domain}");
        }
    }
}

#[test]
fn an_api_that_fills_in_no_status_makes_no_difference() {
    let mut world = World::of(policy());
    world.tenant.fills_status = false;
    world.delete(Thing::TenantClaim);
    world.create(Thing::TenantClaim, crate::decide::fixtures::user_claim());
    assert!(world.see(Thing::TenantClaim).get("status").is_none());
    let actors = world.actors();
    world.settle(&actors);
    assert_bound(&world);
    assert_written(&world, &WITHOUT_BINDER);
}

#[test]
fn at_rest_nothing_is_written_also_not_much_later() {
    for binder in [Binder::Carrick, Binder::Tenant] {
        let mut world = World::of(policy_with(Domain::KcpDev, binder));
        let actors = world.actors();
        world.settle(&actors);
        let before = world.written.len();
        world.pass(3600);
        world.settle(&actors);
        assert_eq!(world.written.len(), before);
    }
}
