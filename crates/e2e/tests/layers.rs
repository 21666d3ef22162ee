//! The arrows between crates point one way (docs/architecture.md).

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// What each crate may depend on, of this workspace.
const MAY: &[(&str, &[&str])] = &[
    ("carrick-core", &[]),
    ("carrick-proto", &[]),
    ("carrick-bus", &["core", "proto"]),
    ("carrick-k8s", &["core"]),
    ("carrick-engine", &["core", "bus", "k8s"]),
    ("carrick-watcher", &["core", "bus", "k8s", "engine"]),
    ("carrick-downsyncer", &["core", "engine"]),
    ("carrick-storage-transformer", &["core", "engine"]),
    ("carrick-upsyncer", &["core", "engine"]),
    ("carrick-status-syncer", &["core", "engine"]),
    (
        "carrick-cli",
        &[
            "core",
            "proto",
            "bus",
            "k8s",
            "engine",
            "watcher",
            "downsyncer",
            "storage-transformer",
            "upsyncer",
            "status-syncer",
        ],
    ),
    ("carrick-model", &["core"]),
    ("carrick-testbed", &[]),
    ("carrick-e2e", &["core", "testbed"]),
    ("xtask", &["core", "testbed", "e2e"]),
];

/// What the pure rules must never see.
const IMPURE: [&str; 4] = ["tokio", "kube", "async-nats", "tonic"];

#[test]
fn the_arrows_between_crates_point_one_way() {
    let metadata = MetadataCommand::new().exec().expect("cargo metadata runs");
    let may: BTreeMap<_, _> = MAY.iter().copied().collect();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let allowed = may.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        let found: BTreeSet<_> = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind != DependencyKind::Development)
            .filter_map(|dependency| dependency.name.strip_prefix("carrick-"))
            .collect();
        let allowed: BTreeSet<_> = allowed.iter().copied().collect();
        let wrong: Vec<_> = found.difference(&allowed).collect();
        assert!(wrong.is_empty(), "{name} depends on {wrong:?}");
    }
}

#[test]
fn the_rules_know_nothing_of_io() {
    let metadata = MetadataCommand::new().exec().expect("cargo metadata runs");
    let resolve = metadata.resolve.expect("the graph is resolved");
    let core = metadata.packages.iter().find(|p| p.name.as_str() == "carrick-core").unwrap();
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|p| (&p.id, p.name.to_string())).collect();
    let mut seen = BTreeSet::new();
    let mut open = vec![&core.id];
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        let normal = |dependency: &&cargo_metadata::NodeDep| {
            dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        };
        open.extend(nodes[id].deps.iter().filter(normal).map(|dependency| &dependency.pkg));
    }
    let found: Vec<_> =
        seen.iter().map(|id| &names[*id]).filter(|name| IMPURE.contains(&name.as_str())).collect();
    assert!(found.is_empty(), "core depends on {found:?}");
    assert!(seen.len() > 5, "the graph was walked");
}
