//! Goes through the model's worlds and says how many states they have.

use std::{process::ExitCode, time::Duration};

use carrick_model::{World, rules, worlds};
use stateright::{Checker, Model as _, report::WriteReporter};

/// Different states of a large world after which it is left; about 1 GiB each.
const MOST: usize = 3_000_000;

fn main() -> ExitCode {
    let deep = std::env::args().any(|argument| argument == "--deep");
    let worlds = if deep { worlds::large() } else { worlds::small() };
    let mut broken = false;
    for (name, world) in worlds {
        broken |= !goes_through(name, world);
    }
    ExitCode::from(u8::from(broken))
}

fn goes_through(name: &str, world: World) -> bool {
    eprintln!("{name}, {:?}:", world.policy.tenant.binder);
    let checker = world
        .checker()
        .threads(2)
        .target_state_count(MOST * 4)
        .timeout(Duration::from_mins(10))
        .spawn_bfs()
        .join_and_report(&mut WriteReporter::new(&mut std::io::stderr()));
    let whole = if checker.is_done() { "" } else { ", not all of them" };
    eprintln!("  {} different states{whole}", checker.unique_state_count());
    let mut holds = true;
    for (rule, path) in checker.discoveries() {
        if let Some(said) = rules::broken_rule(path.last_state()) {
            eprintln!("  broken: {said}");
        }
        if rule != rules::BOUND {
            eprintln!("  {rule}:\n{path}");
            holds = false;
        }
    }
    holds
}
