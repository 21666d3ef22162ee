//! Laws, on ways that nobody thought of: the same facts give the same decision, a decision that
//! was carried out is not made again, old facts do no harm, and everything comes to rest.

use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use serde_json::json;

use super::whole_way::assert_bound;
use crate::{
    decide::fixtures::{Actor, Refusal, Thing, VOLUME, World, policy_with, user_claim},
    names::{Domain, PROVISIONED_BY},
    policy::Binder,
};

/// What somebody does to the objects in between.
const DISTURBANCES: usize = 22;

fn disturb(world: &mut World, what: usize) {
    let merge = |world: &mut World, thing, patch| {
        if world.get(thing).is_some() {
            world.merge(thing, &patch);
        }
    };
    let names = world.policy.names.clone();
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {(key): value}}});
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let phase = |phase: &str| json!({"status": {"phase": phase}});
    match what {
        0 => merge(world, Thing::TenantClaim, label("late", "too")),
        1 => merge(world, Thing::TenantClaim, size("2Gi")),
        2 => merge(world, Thing::TenantClaim, size("1Gi")),
        3 => merge(world, Thing::TenantClaim, json!({"status": null})),
        4 => merge(world, Thing::TenantClaim, json!({"metadata": {"finalizers": null}})),
        5 => merge(world, Thing::HostClaim, phase("Lost")),
        6 => merge(world, Thing::HostClaim, phase("Pending")),
        7 => merge(world, Thing::HostClaim, json!({"metadata": {"annotations": null}})),
        8 if world.get(Thing::HostClaim).is_some() => world.delete(Thing::HostClaim),
        9 => merge(world, Thing::HostVolume, json!({"metadata": {"annotations": null}})),
        10 => merge(world, Thing::HostVolume, json!({"spec": {"capacity": {"storage": "2Gi"}}})),
        11 => merge(world, Thing::HostVolume, label(&names.state(), "Sync")),
        12 if world.get(Thing::TenantVolume).is_some() => world.delete(Thing::TenantVolume),
        13 => {
            let annotations = json!({(PROVISIONED_BY): "csi.example"});
            merge(world, Thing::TenantVolume, json!({"metadata": {"annotations": annotations}}));
        }
        14 if world.get(Thing::TenantClaim).is_none() => {
            world.create(Thing::TenantClaim, user_claim());
        }
        14 => world.make_claim_again(),
        15 => world.pass(11),
        16 => {
            let stripped = json!({"metadata": {"labels": null, "finalizers": null}});
            merge(world, Thing::TenantVolume, stripped);
        }
        17 if world.get(Thing::TenantClaim).is_some() => world.begin_delete(Thing::TenantClaim),
        18 => merge(
            world,
            Thing::TenantClaim,
            json!({"metadata": {"finalizers": [names.finalizer()]}}),
        ),
        19 | 20 => {
            let thing = if what == 19 { Thing::TenantClaim } else { Thing::TenantNamespace };
            let soft =
                if world.written.len().is_multiple_of(2) { json!("backup") } else { json!(null) };
            let annotations = json!({(names.soft_finalizer()): soft});
            merge(world, thing, json!({"metadata": {"annotations": annotations}}));
        }
        21 => {
            let annotations = json!({(names.deletion()): "2026-01-01T00:00:00Z"});
            merge(world, Thing::TenantClaim, json!({"metadata": {"annotations": annotations}}));
        }
        _ => {}
    }
}

/// A look at the newest facts: it decides the same twice, and never again what it wrote.
fn look(world: &mut World, actor: Actor) {
    if !Actor::SERVICES.contains(&actor) {
        world.step(actor);
        return;
    }
    let facts = world.facts();
    let decision = world.decide_on(actor, &facts);
    assert_eq!(decision, world.decide_on(actor, &facts));
    world.step(actor);
    if !decision.writes.is_empty() {
        assert_ne!(decision.writes, world.decide(actor).writes, "{actor:?} repeats itself");
    }
}

fn binder() -> impl Strategy<Value = Binder> {
    prop_oneof![Just(Binder::Carrick), Just(Binder::Tenant)]
}

proptest! {
    #[test]
    fn a_decision_that_was_carried_out_is_not_made_again(
        binder in binder(),
        moves in prop::collection::vec((0..DISTURBANCES * 3, prop::sample::select(&Actor::ALL[..])), 0..60),
    ) {
        let mut world = World::of(policy_with(Domain::KcpDev, binder));
        let actors = world.actors();
        for (what, actor) in moves {
            disturb(&mut world, what);
            if actors.contains(&actor) {
                look(&mut world, actor);
            }
        }
        world.settle(&actors);
        world.pass(20);
        world.settle(&actors);
        prop_assert_eq!((world.tenant.idle, world.host.idle), (0, 0));
    }

    #[test]
    fn old_facts_do_no_harm_and_the_end_is_the_same(
        binder in binder(),
        looks in prop::collection::vec((prop::sample::select(&Actor::ALL[..]), any::<u64>()), 0..80),
    ) {
        let mut world = World::of(policy_with(Domain::KcpDev, binder));
        let actors = world.actors();
        for (actor, seed) in looks.into_iter().filter(|(actor, _)| actors.contains(actor)) {
            if !Actor::SERVICES.contains(&actor) {
                world.step(actor);
                continue;
            }
            let facts = world.facts_aged(|id| {
                let mut hasher = DefaultHasher::new();
                (seed, id).hash(&mut hasher);
                usize::try_from(hasher.finish() % 4).unwrap()
            });
            let decision = world.decide_on(actor, &facts);
            prop_assert_eq!(&decision, &world.decide_on(actor, &facts));
            for write in &decision.writes {
                match world.apply(write) {
                    Ok(()) => {}
                    Err(Refusal::Invalid(why)) => panic!("{why}: {write:?}"),
                    Err(_) => break,
                }
            }
        }
        world.settle(&actors);
        prop_assert!(world.get(Thing::TenantVolume).is_some(), "{}", VOLUME);
        assert_bound(&world);
    }
}
