//! Which worlds are gone through: small ones on every path, large ones as far as one wants to wait.

use carrick_core::policy::Binder;

use crate::{Budget, World};

const NOBODY: Budget = Budget {
    deletes: 0,
    creates: 0,
    holds_claim: 0,
    holds_namespace: 0,
    frees: 0,
    takes_off: 0,
    strips: 0,
    copy_deletes: 0,
    volume_deletes: 0,
    host_deletes: 0,
    strangers: 0,
};
const DELETED: Budget = Budget { deletes: 1, ..NOBODY };

/// Worlds whose every path is gone through in seconds, with what they are about.
pub fn small() -> Vec<(&'static str, World)> {
    let budgets = [
        ("deleted and made again", Budget { creates: 1, ..DELETED }),
        ("deleted, our finalizer stripped", Budget { strips: 1, ..DELETED }),
        ("held by the claim", Budget { holds_claim: 1, frees: 1, ..DELETED }),
        ("held by the namespace", Budget { holds_namespace: 1, frees: 1, ..DELETED }),
        ("taken off", Budget { takes_off: 1, holds_namespace: 1, ..NOBODY }),
        ("host volume gone", Budget { volume_deletes: 1, ..DELETED }),
        ("host claim gone", Budget { host_deletes: 1, ..NOBODY }),
        ("copy gone", Budget { copy_deletes: 1, ..NOBODY }),
        ("a stranger in the way", Budget { strangers: 1, ..DELETED }),
    ];
    let mut worlds = Vec::new();
    for binder in [Binder::Carrick, Binder::Tenant] {
        worlds.push(("bound, by two replicas", World { at_a_time: 2, ..World::new(binder) }));
        for (name, budget) in budgets {
            worlds.push((name, World::new(binder).with(budget)));
        }
        let lost = World::new(binder).with(Budget { host_deletes: 1, ..NOBODY });
        worlds.push(("host claim gone, volume kept", World { retain: true, ..lost }));
        let deleted = World::new(binder).with(DELETED);
        worlds.push(("deleted, volume kept", World { retain: true, ..deleted }));
    }
    worlds
}

/// Worlds that take minutes to hours.
pub fn large() -> Vec<(&'static str, World)> {
    let twice = Budget { deletes: 2, creates: 2, ..NOBODY };
    let held = Budget { holds_claim: 1, holds_namespace: 1, frees: 2, creates: 1, ..DELETED };
    let lost =
        Budget { host_deletes: 1, volume_deletes: 1, copy_deletes: 1, creates: 1, ..DELETED };
    let all = Budget { strips: 1, takes_off: 1, strangers: 1, ..held };
    let mut worlds = Vec::new();
    for binder in [Binder::Carrick, Binder::Tenant] {
        let two = |budget| World { at_a_time: 2, ..World::new(binder).with(budget) };
        worlds.push(("deleted, by two replicas", two(DELETED)));
        worlds.push(("deleted and made again twice", World::new(binder).with(twice)));
        worlds.push(("held by both, and made again", World::new(binder).with(held)));
        worlds.push(("everything gone that can", World::new(binder).with(lost)));
        worlds.push(("everything, by two replicas", two(all)));
    }
    worlds
}
