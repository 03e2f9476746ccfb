//! `elinvar launch` as a user runs it, on the simulator.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use safetensors::{Dtype, SafeTensors};

const SCALE: &[&str] = &[
    "tests/kernels/scale.metal",
    "--kernel",
    "scale",
    "--grid",
    "4",
    "--threadgroup",
    "64",
    "--buffer",
    "x=f32:250:1.5",
    "--buffer",
    "out=f32:250:0",
    "--value",
    "n=u32:250",
    "--constant",
    "negate=true",
];

fn launch(device: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["launch", "--device", device]).args(arguments);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_kernel_s_results_are_saved_and_its_time_reported() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("launched.safetensors");
    let (code, out, err) = launch("metal-sim", &[SCALE, &["--save", file.to_str().unwrap(), "--repeat", "3", "--json"]].concat());
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(report["kernel"] == "scale" && report["seconds"].as_f64().unwrap() > 0.0, "{out}");
    let bytes = fs::read(&file).unwrap();
    let saved = SafeTensors::deserialize(&bytes).unwrap();
    let out = saved.tensor("out").unwrap();
    assert_eq!((out.dtype(), out.shape()), (Dtype::F32, &[250][..]));
    assert!(out.data().chunks_exact(4).all(|c| f32::from_le_bytes(c.try_into().unwrap()) == -3.0));
}

#[test]
fn a_launch_over_threads_has_no_more_of_them() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("threads.safetensors");
    // A bound far beyond the buffers, which more threads than asked for would leave.
    let buffers = ["--buffer", "x=f32:250:1.5", "--buffer", "out=f32:250:0", "--value", "n=u32:1000", "--save", file.to_str().unwrap()];
    let launched = |extent| launch("metal-sim", &[&SCALE[..3], &[extent, "250", "--threadgroup", "64"], &buffers].concat());
    let (code, _, err) = launched("--threads");
    assert_eq!((code, err.as_str()), (0, ""));
    let bytes = fs::read(&file).unwrap();
    let out = SafeTensors::deserialize(&bytes).unwrap().tensor("out").unwrap().data().to_vec();
    assert!(out.chunks_exact(4).all(|c| f32::from_le_bytes(c.try_into().unwrap()) == 3.0));
    let (code, _, err) = launched("--grid");
    assert!(code == 2 && err.contains("out-of-bounds"), "{err}");
}

#[test]
fn a_result_is_compared_with_what_is_expected() {
    let (code, out, err) = launch("metal-sim", &[SCALE, &["--expect", "out=f32:250:-3"]].concat());
    assert!(code == 0 && out.starts_with("scale on "), "{out}{err}");
    let (code, out, _) = launch("metal-sim", &[SCALE, &["--expect", "out=f32:250:-3.5"]].concat());
    assert!(code == 1 && out.starts_with("unexpected-output: `out` holds -3.0 at offset 0, where -3.5 is expected [250 elements]\n"), "{out}");
}

#[test]
fn the_sample_kernels_compute_what_they_should() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let arguments = [env!("CARGO_BIN_EXE_elinvar"), "launch", "--device", "metal-sim"];
    let Output { status, stdout, stderr } = Command::new(root.join("examples/metal/run")).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success() && out.lines().count() == 3, "{out}{err}");
}

#[test]
fn invalid_launches_are_rejected() {
    let (code, _, err) = launch("cpu", SCALE);
    assert!(code == 2 && err.contains("metal-sim"), "{err}");
    let (code, _, err) = launch("metal-sim", &SCALE[..11]);
    assert!(code == 2 && err.contains("'n'"), "{err}");
    let (code, _, err) = launch("metal-sim", &["tests/kernels/scale.metal"]);
    assert!(code == 2 && err.contains("3 kernels: choose one: "), "{err}");
    let (code, _, err) = launch("metal-sim", &["tests/kernels/none.metal"]);
    assert!(code == 2 && err.contains("cannot read"), "{err}");
}
