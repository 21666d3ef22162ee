//! What the tenant is told, and that nothing is told for nothing.

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::{
    decide::{
        fixtures::{
            Actor, Stage, Thing, World, assert_ignored, created, only_write, policy_with, record,
            text, user_claim,
        },
        status,
    },
    names::{Domain, STORAGE_CONDITION},
    policy::Binder,
    step::{Outcome, Step},
    write::{Kind, Verdict, Write},
};

fn conditions(world: &World) -> Vec<Value> {
    let list = &world.see(Thing::TenantClaim)["status"]["conditions"];
    list.as_array().cloned().unwrap_or_default()
}

fn ours(world: &World) -> Value {
    conditions(world).into_iter().find(|c| c["type"] == STORAGE_CONDITION).expect("a condition")
}

/// With a step of this outcome published for the claim.
fn with_step(stage: Stage, step: Step, outcome: Outcome, code: &str) -> World {
    let mut world = World::at(stage);
    let uid = world.uid();
    world.steps = vec![record(step, outcome, code, &uid)];
    world
}

fn whys(writes: &[Write]) -> Vec<&str> {
    writes.iter().map(|write| write.why).collect()
}

#[test]
fn a_refusal_becomes_a_condition_and_one_event() {
    let mut world = with_step(Stage::Fresh, Step::Claim, Outcome::Refused, "ClassNotAllowed");
    let decision = world.decide(Actor::Status);
    assert_eq!(whys(&decision.writes), ["event on the tenant's claim", "condition"]);
    let event = created(&decision.writes[0]);
    for (pointer, expected) in [
        ("/type", "Warning"),
        ("/reason", "ClassNotAllowed"),
        ("/note", "because of ClassNotAllowed"),
        ("/metadata/namespace", "team-a"),
        ("/regarding/kind", "PersistentVolumeClaim"),
        ("/regarding/name", "data"),
        ("/regarding/uid", &world.uid()),
    ] {
        assert_eq!(text(event, pointer), expected, "{pointer}");
    }
    world.apply_all(&decision);
    let condition = ours(&world);
    for (field, expected) in [
        ("status", "False"),
        ("reason", "ClassNotAllowed"),
        ("message", "because of ClassNotAllowed"),
        ("lastTransitionTime", "2026-01-01T00:00:00Z"),
    ] {
        assert_eq!(condition[field], expected, "{field}");
    }
    world.pass(3600);
    assert!(world.decide(Actor::Status).writes.is_empty(), "told once");
    assert_eq!(text(world.see(Thing::TenantClaim), "/status/phase"), "Pending");
}

#[test]
fn the_same_problem_has_the_same_event_and_another_one_another() {
    let name = |world: &World| world.decide(Actor::Status).writes[0].object.name.clone();
    let refused = |code: &str| with_step(Stage::Fresh, Step::Claim, Outcome::Refused, code);
    let first = refused("ClassNotAllowed");
    let mut later = refused("ClassNotAllowed");
    later.pass(600);
    assert_eq!(name(&first), name(&later));
    assert_ne!(name(&first), name(&refused("SelectorRefused")));
    let mut again = first.clone();
    again.make_claim_again();
    again.steps[0].claim_uid = again.uid();
    assert_ne!(name(&first), name(&again), "another claim of that name");
    // Where the name is long, its head stands for it.
    let mut long = user_claim();
    long["metadata"]["name"] = json!("x".repeat(253));
    long["metadata"]["uid"] = json!("u1");
    let mut facts = first.facts();
    facts.tenant_claim = None;
    facts.insert(&crate::subject::Facet::TenantClaim, false, long).unwrap();
    facts.steps[0].claim_uid = "u1".to_owned();
    let decision = first.decide_on(Actor::Status, &facts);
    assert!(decision.writes[0].object.name.len() <= 253);
}

#[test]
fn what_is_held_is_told_without_an_event() {
    let world = with_step(Stage::Bound, Step::Claim, Outcome::Held, "SoftFinalizer");
    assert_eq!(whys(&world.decide(Actor::Status).writes), ["condition"]);
}

#[test]
fn a_claim_that_waits_is_told_after_ten_seconds_and_looked_at_again_until_then() {
    let mut world = with_step(Stage::CarriedDown, Step::Bind, Outcome::Waiting, "WaitingForHost");
    world.pass(4);
    let decision = world.decide(Actor::Status);
    assert_ignored(&decision);
    assert_eq!(decision.verdict, Verdict::Ignored(Some(SignedDuration::from_secs(6))));
    world.pass(6);
    let decision = world.decide(Actor::Status);
    assert_eq!(whys(&decision.writes), ["condition"], "and no event");
    world.apply_all(&decision);
    assert_eq!(ours(&world)["reason"], "WaitingForHost");
    world.pass(3600);
    assert!(world.decide(Actor::Status).writes.is_empty());
}

#[test]
fn a_late_claim_is_not_told_of_each_short_wait_once_it_gets_on() {
    let mut world = World::at(Stage::Transformed);
    world.pass(60);
    let mut step = record(Step::Transform, Outcome::Done, "", &world.uid());
    step.time = world.now - SignedDuration::from_secs(1);
    world.steps = vec![step];
    let decision = world.decide(Actor::Status);
    assert_eq!(decision.verdict, Verdict::Ignored(Some(SignedDuration::from_secs(9))));
    world.pass(9);
    assert_eq!(whys(&world.decide(Actor::Status).writes), ["condition"], "but of a long one");
}

#[test]
fn a_bound_claim_whose_volume_is_going_is_told_after_ten_seconds_and_when_it_is_back() {
    for binder in [Binder::Carrick, Binder::Tenant] {
        let mut world = World::of(policy_with(Domain::KcpDev, binder));
        let actors = world.actors();
        world.settle(&actors);
        world.pass(3600);
        let others = json!(["example.org/held", world.policy.names.finalizer()]);
        world.merge(Thing::TenantVolume, &json!({"metadata": {"finalizers": others}}));
        world.begin_delete(Thing::TenantVolume);
        world.settle(&Actor::SERVICES);
        assert!(conditions(&world).is_empty(), "it may go at once");
        let decision = world.decide(Actor::Status);
        assert_eq!(decision.verdict, Verdict::Ignored(Some(SignedDuration::from_secs(10))));
        world.pass(10);
        let decision = world.decide(Actor::Status);
        assert_eq!(whys(&decision.writes), ["condition"], "and no event");
        world.apply_all(&decision);
        assert_eq!(ours(&world)["reason"], "VolumeTerminating");
        world.pass(3600);
        assert!(world.decide(Actor::Status).writes.is_empty(), "told once");
        world.delete(Thing::TenantVolume);
        world.settle(&actors);
        let condition = ours(&world);
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Bound")));
        assert_eq!(world.tenant.list(Kind::Event).count(), 0);
    }
}

#[test]
fn a_wait_that_was_said_and_is_over_is_not_told_to_a_bound_claim() {
    for (step, outcome) in [
        (Step::Bind, Outcome::Waiting),
        (Step::Transform, Outcome::Waiting),
        (Step::Upsync, Outcome::Retrying),
    ] {
        let mut world = with_step(Stage::Bound, step, outcome, "Stale");
        world.pass(3600);
        assert!(world.decide(Actor::Status).writes.is_empty(), "{step}");
        // But it is told while the volume is missed here too.
        world.delete(Thing::TenantVolume);
        let told = !world.decide(Actor::Status).writes.is_empty();
        assert_eq!(told, step != Step::Bind, "{step}");
    }
}

#[test]
fn steps_that_need_not_be_read_would_change_nothing() {
    let mut left_out = 0;
    for stage in Stage::ALL {
        for (step, outcome) in [
            (Step::Bind, Outcome::Waiting),
            (Step::Transform, Outcome::Waiting),
            (Step::Upsync, Outcome::Retrying),
            (Step::Upsync, Outcome::Done),
        ] {
            for age in [0, 9, 10, 3600] {
                let mut world = with_step(stage, step, outcome, "Some");
                world.pass(age);
                let mut without = world.facts();
                without.steps.clear();
                if !status::needs_steps(&without, &world.policy, world.now) {
                    left_out += 1;
                    let writes = world.decide_on(Actor::Status, &without).writes;
                    let all = world.decide(Actor::Status).writes;
                    assert_eq!(all, writes, "{stage:?} {step} {outcome} after {age} s");
                }
            }
        }
    }
    assert!(left_out > 80, "mostly they need not be: {left_out} of 160");
    let mut told = with_step(Stage::Bound, Step::Claim, Outcome::Refused, "ShrinkRefused");
    let decision = told.decide(Actor::Status);
    told.apply_all(&decision);
    assert!(status::needs_steps(&told.facts(), &told.policy, told.now), "to take it back");
}

#[test]
fn a_claim_that_is_not_under_way_is_not_waited_for() {
    let mut world = World::new();
    world.pass(3600);
    let decision = world.decide(Actor::Status);
    assert_ignored(&decision);
    assert_eq!(decision.verdict.recheck(), None);
}

#[test]
fn the_latest_wait_is_told_and_not_one_that_is_over() {
    let mut world = World::at(Stage::Transformed);
    let uid = world.uid();
    world.steps = vec![record(Step::Bind, Outcome::Waiting, "WaitingForHost", &uid)];
    world.pass(11);
    world.step(Actor::Status);
    assert_eq!(ours(&world)["reason"], "WaitingForVolume", "the host has bound it");
    world.steps.push(record(Step::Upsync, Outcome::Retrying, "TenantSlow", &uid));
    world.step(Actor::Status);
    assert_eq!(ours(&world)["reason"], "TenantSlow");
    world.steps = vec![
        record(Step::Upsync, Outcome::Refused, "VolumeCollision", &uid),
        record(Step::Claim, Outcome::Refused, "ShrinkRefused", &uid),
    ];
    world.step(Actor::Status);
    assert_eq!(ours(&world)["reason"], "ShrinkRefused", "the earliest refusal first");
    assert_eq!(conditions(&world).len(), 1);
}

#[test]
fn the_conditions_of_others_survive() {
    let backup = json!({"type": "example.org/Backup", "status": "True"});
    let mut world = with_step(Stage::Bound, Step::Claim, Outcome::Refused, "ShrinkRefused");
    world.merge(Thing::TenantClaim, &json!({"status": {"conditions": [backup]}}));
    let before = world.decide(Actor::Status);
    assert!(world.step(Actor::Status));
    assert_eq!(conditions(&world)[0], backup);
    assert_eq!(ours(&world)["reason"], "ShrinkRefused");
    let repeated = before.writes.last().unwrap();
    assert!(world.apply(repeated).is_err(), "not appended a second time on old facts");
    // Another one comes before ours between the look and the write.
    world.steps[0].code = "SelectorRefused".to_owned();
    let before = world.decide(Actor::Status);
    let moved = json!([{"type": "A", "status": "True"}, backup, ours(&world)]);
    world.merge(Thing::TenantClaim, &json!({"status": {"conditions": moved}}));
    assert!(world.apply(before.writes.last().unwrap()).is_err(), "not over another one's");
    assert!(world.step(Actor::Status));
    assert_eq!((conditions(&world).len(), &conditions(&world)[1]), (3, &backup));
}

#[test]
fn a_condition_finds_its_place_in_any_status() {
    for status in [json!(null), json!({}), json!({"conditions": []}), json!({"phase": "Pending"})] {
        let mut world = with_step(Stage::Fresh, Step::Claim, Outcome::Refused, "ClassNotAllowed");
        world.merge(Thing::TenantClaim, &json!({"status": null}));
        world.merge(Thing::TenantClaim, &json!({"status": status}));
        assert!(world.step(Actor::Status), "{status}");
        assert_eq!(ours(&world)["reason"], "ClassNotAllowed");
    }
}

#[test]
fn the_all_clear_is_given_only_after_a_complaint_and_only_when_bound() {
    let mut world = World::at(Stage::Bound);
    assert!(world.decide(Actor::Status).writes.is_empty(), "nothing was wrong");
    let uid = world.uid();
    world.steps = vec![record(Step::Claim, Outcome::Refused, "ShrinkRefused", &uid)];
    world.step(Actor::Status);
    world.steps = vec![record(Step::Claim, Outcome::Done, "", &uid)];
    world.pass(60);
    assert_eq!(only_write(&world.decide(Actor::Status)).why, "condition");
    world.step(Actor::Status);
    let condition = ours(&world);
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Bound")));
    assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:01:00Z");
    assert!(world.decide(Actor::Status).writes.is_empty(), "once");
    // Without being bound, a refusal that is over turns into what the claim waits for.
    let mut world = with_step(Stage::CarriedDown, Step::Claim, Outcome::Refused, "Collision");
    world.step(Actor::Status);
    let uid = world.uid();
    world.steps = vec![record(Step::Claim, Outcome::Done, "", &uid)];
    world.pass(60);
    world.step(Actor::Status);
    let condition = ours(&world);
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("WaitingForHost"))
    );
    assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z", "still not well");
}

#[test]
fn a_step_of_an_earlier_claim_of_that_name_says_nothing_about_this_one() {
    let mut world = with_step(Stage::Bound, Step::Claim, Outcome::Refused, "ShrinkRefused");
    world.steps[0].claim_uid = "earlier".to_owned();
    assert!(world.decide(Actor::Status).writes.is_empty());
    let mut world = with_step(Stage::Fresh, Step::Claim, Outcome::Waiting, "OlderClaim");
    world.steps[0].claim_uid = "earlier".to_owned();
    world.pass(60);
    assert_ignored(&world.decide(Actor::Status));
}

#[test]
fn a_claim_that_binds_in_time_is_told_nothing() {
    let mut world = World::new();
    let actors = world.actors();
    world.pass(9);
    world.settle(&actors);
    world.pass(3600);
    world.settle(&actors);
    assert!(conditions(&world).is_empty());
    assert_eq!(world.tenant.list(Kind::Event).count(), 0);
}

#[test]
fn the_services_own_refusals_reach_the_tenant() {
    let mut world = World::new();
    world.merge(Thing::TenantClaim, &json!({"spec": {"selector": {}}}));
    let actors = world.actors();
    world.settle(&actors);
    assert_eq!(ours(&world)["reason"], "SelectorRefused");
    assert_eq!(world.tenant.list(Kind::Event).count(), 1);
    assert_eq!(world.host.history.len(), 0, "nothing reached the host");
}

#[test]
fn a_refusal_that_stands_is_looked_at_again_and_taken_back_when_it_is_over() {
    let mut world = with_step(Stage::Bound, Step::Claim, Outcome::Refused, "ClaimCollision");
    let decision = world.decide(Actor::Status);
    world.apply_all(&decision);
    let decision = world.decide(Actor::Status);
    assert_ignored(&decision);
    assert!(decision.verdict.recheck().is_some(), "nobody says when it is over");
    world.steps = vec![record(Step::Claim, Outcome::Done, "", &world.uid())];
    let decision = world.decide(Actor::Status);
    world.apply_all(&decision);
    assert_eq!(ours(&world)["status"], "True");
    assert!(world.decide(Actor::Status).verdict.recheck().is_none());
}

#[test]
fn of_a_claim_that_leaves_it_is_told_what_holds_that_and_nothing_else() {
    let mut world = World::at(Stage::Bound);
    let uid = world.uid();
    let held = record(Step::Delete, Outcome::Held, "HeldByClaim", &uid);
    // Of a claim that stays nothing is said of an end that is not to come any more.
    world.steps = vec![held.clone()];
    assert!(world.decide(Actor::Status).writes.is_empty());
    world.steps = vec![record(Step::Claim, Outcome::Refused, "ShrinkRefused", &uid), held];
    world.policy.tenant.removing = true;
    let with_its_tenant = world.decide(Actor::Status).writes;
    world.policy.tenant.removing = false;
    world.begin_delete(Thing::TenantClaim);
    let decision = world.decide(Actor::Status);
    assert_eq!(whys(&decision.writes), ["condition"], "and no event");
    assert_eq!(whys(&with_its_tenant), ["condition"], "nor with its tenant");
    world.apply_all(&decision);
    assert_eq!(ours(&world)["reason"], "HeldByClaim");
    assert!(world.decide(Actor::Status).writes.is_empty(), "told once");
    // What it waits for is told after a while.
    let mut waiting = record(Step::Delete, Outcome::Waiting, "InUse", &uid);
    waiting.time = world.now;
    world.steps = vec![waiting];
    let decision = world.decide(Actor::Status);
    assert_eq!(decision.verdict, Verdict::Ignored(Some(SignedDuration::from_secs(10))));
    world.pass(10);
    let decision = world.decide(Actor::Status);
    world.apply_all(&decision);
    assert_eq!(ours(&world)["reason"], "InUse");
}

#[test]
fn a_claim_that_was_taken_off_is_told_so_in_the_end() {
    let mut world = World::at(Stage::CarriedDown);
    let mark = json!({(world.policy.names.deletion()): "2026-01-01T00:00:00Z"});
    world.merge(Thing::TenantClaim, &json!({"metadata": {"annotations": mark}}));
    let uid = world.uid();
    world.steps = vec![record(Step::Delete, Outcome::Held, "HeldByClaim", &uid)];
    let decision = world.decide(Actor::Status);
    world.apply_all(&decision);
    world.delete(Thing::HostClaim);
    world.steps = vec![record(Step::Delete, Outcome::Done, "", &uid)];
    let decision = world.decide(Actor::Status);
    world.apply_all(&decision);
    let condition = ours(&world);
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("TakenOff")));
}
