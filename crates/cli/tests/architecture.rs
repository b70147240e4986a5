//! Imports go downwards only. The table is the design; cargo's metadata is the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Which crates of this workspace a crate may depend on. A crate that is not listed yet belongs here first.
const MAY_USE: &[(&str, &[&str])] = &[
    ("allranks-core", &[]),
    // Knows tasks, not ranks: nothing of ours.
    ("allranks-sched", &[]),
    ("allranks-numerics", &["allranks-core"]),
    ("allranks-check", &["allranks-core"]),
    ("allranks-trace", &["allranks-core"]),
    ("allranks-store", &["allranks-core", "allranks-sched"]),
    ("allranks-report", &["allranks-core", "allranks-trace"]),
    ("allranks-engine", &["allranks-check", "allranks-core", "allranks-numerics", "allranks-sched", "allranks-store"]),
    // A tool for developers: nobody uses it.
    ("allranks-soak", &["allranks-core", "allranks-numerics"]),
    (
        "allranks-cli",
        &[
            "allranks-check",
            "allranks-core",
            "allranks-engine",
            "allranks-numerics",
            "allranks-report",
            "allranks-sched",
            "allranks-store",
            "allranks-trace",
        ],
    ),
    (
        "allranks-py",
        &[
            "allranks-check",
            "allranks-cli",
            "allranks-core",
            "allranks-engine",
            "allranks-numerics",
            "allranks-report",
            "allranks-sched",
            "allranks-store",
            "allranks-trace",
        ],
    ),
];

/// External crates that only one crate may use.
const ONLY_IN: &[(&str, &str)] = &[
    ("pyo3", "allranks-py"),
    ("clap", "allranks-cli"),
    ("anyhow", "allranks-cli"),
    ("annotate-snippets", "allranks-report"),
];

/// Ordinary dependencies (not those of tests and build scripts) of each crate of the workspace.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo that runs this test can run again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let name = |value: &serde_json::Value| value["name"].as_str().expect("packages are named").to_owned();
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().expect("a list of dependencies");
            (name(package), all.iter().filter(|dependency| dependency["kind"].is_null()).map(name).collect())
        })
        .collect()
}

#[test]
fn imports_go_downwards_only() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut wrong = Vec::new();
    for (package, uses) in dependencies() {
        let Some(may) = allowed.get(package.as_str()) else {
            wrong.push(format!("{package} has no place in the table"));
            continue;
        };
        let ours = uses.iter().filter(|name| name.starts_with("allranks-"));
        wrong.extend(ours.filter(|name| !may.contains(&name.as_str())).map(|name| format!("{package} uses {name}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn some_libraries_stay_in_one_crate() {
    let mut wrong = Vec::new();
    for (package, uses) in dependencies() {
        let elsewhere = ONLY_IN.iter().filter(|(library, home)| *home != package && uses.contains(*library));
        wrong.extend(elsewhere.map(|(library, home)| format!("{package} uses {library}, which belongs to {home}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_itself_has_no_circle() {
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    while placed.len() < MAY_USE.len() {
        let free = |entry: &&(&'static str, &[&str])| {
            !placed.contains(entry.0) && entry.1.iter().all(|name| placed.contains(name))
        };
        let next: Vec<&str> = MAY_USE.iter().filter(free).map(|(name, _)| *name).collect();
        assert!(!next.is_empty(), "a circle among those not in {placed:?}");
        placed.extend(next);
    }
}
