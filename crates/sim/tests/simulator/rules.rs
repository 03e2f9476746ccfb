//! Texts that Apple's compiler would reject are rejected at their lines, and others are not.

use std::{fs, path::Path};

use elinvar_msl::{METAL_VERSION, Module};
use elinvar_sim::{CompileOptions, Judge, Source, preprocess};

/// Line and rule of each finding in a file.
fn judged(path: &Path, metal_version: u32) -> Vec<(u32, String)> {
    let options = CompileOptions { metal_version, ..CompileOptions::default() };
    let module = Module::read(&preprocess(&Source::read(path).unwrap(), &options).unwrap()).unwrap();
    let names: Vec<&str> = module.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
    let lints = Judge::open(None).unwrap().judge(&module, &names, metal_version).unwrap();
    lints.into_iter().map(|lint| (lint.location.line, format!("{}: {}", lint.rule, lint.message))).collect()
}

fn kernels() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels")
}

#[test]
fn what_breaks_a_rule_is_rejected_at_its_line_and_nothing_else_is() {
    let mut rules = 0;
    for entry in fs::read_dir(kernels().join("rules")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let planted = text.lines().enumerate().filter_map(|(at, line)| Some((at as u32 + 1, line.split_once("// rejected: ")?.1)));
        let planted: Vec<(u32, &str)> = planted.collect();
        let mut found = judged(&path, METAL_VERSION);
        // Clang 22 names all words of a line that a version does not have, clang 19 the first.
        found.dedup_by(|next, first| {
            next.0 == first.0 && next.1.split_once(':').map(|(rule, _)| rule) == first.1.split_once(':').map(|(rule, _)| rule)
        });
        let same =
            found.len() == planted.len() && found.iter().zip(&planted).all(|(found, planted)| found.0 == planted.0 && found.1.starts_with(planted.1));
        assert!(same, "{}: {planted:?} are planted, found {found:#?}", path.display());
        rules += planted.len();
    }
    assert!(rules >= 20, "{rules}");
}

#[test]
fn the_version_chooses_the_rules() {
    let rules = kernels().join("rules");
    assert_eq!(judged(&rules.join("version.metal"), 320), []);
    assert_eq!(judged(&rules.join("cxx17.metal"), 400), []);
    assert_eq!(judged(&rules.join("lambda.metal"), 320), []);
}

#[test]
fn sound_kernels_are_not_rejected() {
    for file in ["small.metal", "sound.metal", "initialisers.metal"] {
        assert_eq!(judged(&kernels().join(file), METAL_VERSION), [], "{file}");
    }
    for file in ["cli/tests/kernels/race.metal", "cli/tests/kernels/scale.metal", "metal/src/bytes.metal"] {
        assert_eq!(judged(&kernels().join("../../..").join(file), METAL_VERSION), [], "{file}");
    }
}
