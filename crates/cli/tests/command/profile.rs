//! `--profile` as a user asks for it.

#![cfg(feature = "embedded-model")]

use std::{fs, path::Path, process::Command};

use crate::LAUNCH;

/// Exit code, standard output and standard error.
fn elinvar(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_elinvar")).current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

const GENERATE: &[&str] = &["generate", "--device", "cpu", "--quiet", "-n", "4", "ROMEO:"];
const RUN: &[&str] = &[
    "run",
    "../../examples/saxpy.atlas",
    "--device",
    "cpu",
    "--threads",
    "100",
    "--buffer",
    "x=f32:100",
    "--buffer",
    "y=f32:100:1",
    "--scalar",
    "a=2",
    "--scalar",
    "n=100",
];
const SIMULATED: &[&str] = &["--device", "metal-sim"];
const DECODE: &[&str] = &["bench", "decode", "--device", "cpu", "--shape", "tiny", "--prompt", "4", "--generate", "3", "--rounds", "1"];

/// Standard output and standard error of a command with a profile, and the number of its timeline's events of each name and phase.
fn profiled(name: &str, arguments: &[&str]) -> (String, String, impl Fn(&str) -> usize + use<>) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    let (code, out, err) = elinvar(&[arguments, &["--profile", folder.to_str().unwrap()]].concat());
    assert_eq!(code, 0, "{err}");
    let file = folder.join("trace.json");
    assert!(err.contains(&format!("timeline: {}", file.display())), "{err}");
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap().clone();
    for event in events.iter().filter(|event| event["ph"] != "M") {
        let whole = ["ts", "dur"].iter().all(|key| event[key].as_f64().is_some_and(|number| number >= 0.0));
        assert!(event["ph"] == "X" && whole && event["pid"].is_u64() && event["tid"].is_u64() && event["name"].is_string(), "{event}");
    }
    (out, err, move |name| events.iter().filter(|event| event["ph"] == "X" && event["name"] == name).count())
}

#[test]
fn a_text_is_generated_as_without_a_profile() {
    let (out, err, count) = profiled("profile-generate", GENERATE);
    assert_eq!(out, elinvar(GENERATE).1);
    assert_eq!([count("prefill"), count("decode"), count("gather_u16_i32")], [1, 1, 4], "{err}");
    assert!(err.contains("; 3 tokens, each busy "), "{err}");
}

#[test]
fn programs_kernels_and_benchmarks_are_profiled() {
    let (_, err, count) = profiled("profile-run", &[RUN, &["--repeat", "2"]].concat());
    assert_eq!([count("saxpy"), count("first launch"), count("repeated")], [3, 1, 1], "{err}");
    let (_, err, count) = profiled("profile-decode", DECODE);
    assert_eq!([count("pp4"), count("tg3"), count("sample_argmax_f32")], [1, 1, 3], "{err}");
    assert!(err.contains(" without a profile; 3 tokens"), "{err}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_kernel_on_the_simulator_is_profiled_in_its_own_process() {
    let (_, err, count) = profiled("profile-launch", &[LAUNCH, SIMULATED].concat());
    assert!(count("scale") == 1 && err.contains("the simulator's on this machine's processor, not a GPU's"), "{err}");
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_before_the_run() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-folder");
    fs::write(&file, "").unwrap();
    for arguments in [GENERATE, RUN, &[LAUNCH, SIMULATED].concat(), DECODE, &["bench", "ops"], &["bench", "table"]] {
        let (code, out, err) = elinvar(&[arguments, &["--profile", file.to_str().unwrap()]].concat());
        let expected = format!("error: --profile: cannot write {}: ", file.display());
        assert!(code == 2 && out.is_empty() && err.starts_with(&expected) && err.lines().count() == 1, "{arguments:?}: {err}");
    }
}
