//! Small worlds, each gone through on every path; and that a broken rule is found.

use carrick_core::policy::Binder;
use carrick_model::{Broken, Budget, World, rules, worlds};
use stateright::{Checker as _, Model as _};

/// More states than this are no small world, or somebody writes for ever.
const MOST: usize = 1_000_000;

#[test]
fn every_path_of_the_small_worlds_keeps_the_rules() {
    let mut sum = 0;
    for (name, world) in worlds::small() {
        let binder = world.policy.tenant.binder;
        let checker = world.checker().threads(2).target_state_count(MOST).spawn_bfs().join();
        let (all, different) = (checker.state_count(), checker.unique_state_count());
        eprintln!("{name}, {binder:?}: {different} states");
        assert!(all < MOST, "{name}: it does not come to an end");
        checker.assert_properties();
        sum += different;
    }
    eprintln!("{sum} states in all");
    assert!(sum > 100_000, "{sum} states are not what the worlds are made for");
}

/// The rule that is found to be broken.
fn found(world: World) -> Option<String> {
    let checker = world.checker().threads(2).target_state_count(MOST).spawn_bfs().join();
    let broken = [rules::WRITES, rules::REST];
    let path = broken.into_iter().find_map(|rule| Some((rule, checker.discovery(rule)?)));
    let (rule, path) = path?;
    let said = rules::broken_rule(path.last_state());
    Some(said.unwrap_or(rule).to_owned())
}

#[test]
fn a_broken_rule_is_found() {
    let nobody = Budget::default();
    let deleted = Budget { deletes: 1, ..nobody };
    let held = Budget { holds_claim: 2, frees: 1, ..deleted };
    for (broken, budget, expected) in [
        (Broken::BoundWithoutVolume, nobody, "1: "),
        (Broken::OtherVolumeNamed, nobody, "2: "),
        (Broken::NamespaceHoldsNothing, Budget { holds_namespace: 1, ..deleted }, "3: "),
        (Broken::NobodyIsAsked, held, "3: "),
        (Broken::TombstonesAreTrusted, Budget { creates: 1, ..held }, ""),
        (Broken::StrangersAreOurs, Budget { strangers: 1, ..deleted }, "5: "),
        (Broken::UnmarkedIsCarriedUp, nobody, "6: "),
        (Broken::LostIsMadeAgain, Budget { host_deletes: 1, ..nobody }, "7: "),
        (Broken::FinalizerStays, deleted, rules::REST),
        (Broken::LostIsNotTold, Budget { volume_deletes: 1, ..nobody }, rules::REST),
    ] {
        let world = World { broken: Some(broken), ..World::new(Binder::Carrick).with(budget) };
        let rule = found(world);
        let rule = rule.unwrap_or_else(|| panic!("{broken:?} was not found"));
        assert!(rule.starts_with(expected), "{broken:?}: {rule}");
    }
}
