//! A crate may use only crates on layers below its own; its tests, also its neighbours: devices are compared with each other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

use std::{collections::BTreeMap, fs, path::Path};

/// Folder under `crates/`, or of the root for the Python package, and its layer, from the ground up.
const LAYERS: &[(&str, u32)] = &[
    ("core", 0),
    ("math", 1),
    ("msl", 1),
    ("atlas", 2),
    ("kernels", 2),
    ("metallib", 2),
    ("sim", 3),
    ("check", 4),
    ("cpu", 4),
    ("metal", 4),
    ("cuda", 4),
    ("group", 4),
    ("elinvar", 5),
    ("llm", 6),
    ("server", 7),
    ("candle", 8),
    ("cli", 8),
    ("python", 8),
];

/// The Elinvar crates a manifest depends on, in any section, and whether only tests do.
fn dependencies(manifest: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let (mut in_dependencies, mut for_tests) = (false, false);
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
            for_tests = line.contains("dev-dependencies");
        } else if in_dependencies && line.starts_with("elinvar") {
            let name = line.split(['.', '=', ' ']).next().unwrap();
            found.push((name.strip_prefix("elinvar-").unwrap_or("elinvar").to_owned(), for_tests));
        }
    }
    found
}

fn violations(manifests: &BTreeMap<String, String>, layers: &BTreeMap<&str, u32>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, manifest) in manifests {
        let Some(layer) = layers.get(name.as_str()) else {
            wrong.push(format!("{name} has no layer"));
            continue;
        };
        for (dependency, for_tests) in dependencies(manifest) {
            if layers.get(dependency.as_str()).is_none_or(|other| *other > *layer || *other == *layer && !for_tests) {
                wrong.push(format!("{name} (layer {layer}) uses {dependency}, which is not below it"));
            }
        }
    }
    wrong
}

#[test]
fn every_crate_uses_only_lower_layers() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut manifests = BTreeMap::new();
    let folders = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    for folder in folders.chain([crates.with_file_name("python")]) {
        if let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) {
            manifests.insert(folder.file_name().unwrap().to_str().unwrap().to_owned(), manifest);
        }
    }
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    assert_eq!(manifests.len(), layers.len(), "{:?}", manifests.keys());
    assert_eq!(violations(&manifests, &layers), Vec::<String>::new());
}

#[test]
fn a_dependency_upwards_is_reported() {
    let found = |name: &str, manifest: &str| violations(&BTreeMap::from([(name.to_owned(), manifest.to_owned())]), &LAYERS.iter().copied().collect());
    const TESTS_USE_CPU: &str = "[dev-dependencies]\nelinvar-cpu.workspace = true\n";
    assert_eq!(found("core", TESTS_USE_CPU), ["core (layer 0) uses cpu, which is not below it"]);
    assert!(found("metal", TESTS_USE_CPU).is_empty());
    assert_eq!(found("metal", "[dependencies]\nelinvar-cpu.workspace = true\n"), ["metal (layer 4) uses cpu, which is not below it"]);
}
