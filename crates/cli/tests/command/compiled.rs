//! Compiled Metal libraries, listed and checked.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

#[path = "../../../metallib/tests/library/container.rs"]
mod container;

/// A library with one kernel: y = x · factor, doubled if a function constant says so.
fn library(file: &str) -> PathBuf {
    let bitcode = include_bytes!("../../../metallib/tests/library/scale.bc");
    let bytes = container::library(&[container::Compiled { name: "scale", bitcode, constants: &[("doubled", 53, 3)] }]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    fs::write(&path, bytes).unwrap();
    path
}

fn command(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_elinvar")).args(arguments).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn functions_are_listed_as_their_text_would_declare_them() {
    let path = library("listed.metallib");
    let path = path.to_str().unwrap();
    let (code, out, err) = command(&["inspect", path]);
    let line = "kernel scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], constant float& factor [[buffer(4), function_constant]], \
                threadgroup float* shared [[threadgroup(0)]], uint i [[thread_position_in_grid]])  // Metal 3.1, AIR 2.6; at most 64 threads; \
                constants bool doubled = 3; denorms_disable, fast_math_disable";
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert_eq!(out, format!("{line}\n1 functions of the library in {path}\n"));
    let (_, out, _) = command(&["inspect", path, "--filter", "scala"]);
    assert_eq!(out, format!("0 of 1 functions of the library in {path}\n"));
    let (_, out, _) = command(&["inspect", path, "--json"]);
    let json: Value = serde_json::from_str(&out).unwrap();
    let function = &json["functions"][0];
    assert_eq!((&function["name"], &function["kind"], &function["language_version"]), (&"scale".into(), &"kernel".into(), &"3.1".into()));
    let argument = &function["arguments"][1];
    assert_eq!(
        (&argument["name"], &argument["memory"], &argument["access"], &argument["index"]),
        (&"y".into(), &"device".into(), &"read_write".into(), &1.into())
    );
}

#[test]
fn what_cannot_be_listed_is_an_error_of_one_line() {
    let path = library("cut.metallib");
    fs::write(&path, &fs::read(&path).unwrap()[..200]).unwrap();
    let path = path.to_str().unwrap();
    let (code, _, err) = command(&["inspect", path]);
    assert_eq!((code, err), (2, format!("error: {path} is no sound Metal library: it is cut short\n")));
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/scale.metal");
    let (code, _, err) = command(&["inspect", text, "--filter", "x"]);
    assert_eq!((code, err), (2, format!("error: --filter is for Metal libraries, and {text} is none\n")));
    let (code, _, err) = command(&["launch", path, "--device", "cpu", "--kernel", "scale"]);
    let advice = "does not run Metal kernels: use a GPU, or metal-sim for the simulator";
    assert_eq!((code, err), (2, format!("error: the device 'cpu' {advice}\n")));
}

#[cfg(target_os = "linux")]
#[test]
fn kernels_are_disassembled_and_checked() {
    let path = library("checked.metallib");
    let path = path.to_str().unwrap();
    let (code, text, err) = command(&["inspect", path, "--disassemble", "scale"]);
    assert!(code == 0 && text.contains("define void @scale("), "{text}{err}");
    let (code, _, err) = command(&["inspect", path, "--disassemble", "scala"]);
    assert_eq!((code, err), (2, format!("error: {path} has no function `scala`: of its 1, the nearest are scale\n")));

    let launch = [
        "check",
        path,
        "--constant",
        "doubled=true",
        "--grid",
        "1",
        "--threadgroup",
        "64",
        "--value",
        "factor=f32:2",
        "--threadgroup-memory",
        "shared=16",
    ];
    let saved = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled.safetensors");
    let sound = ["--buffer", "x=f32:64:1.5", "--buffer", "y=f32:64", "--save", saved.to_str().unwrap(), "--expect", "y=f32:64:6"];
    let (code, out, err) = command(&[&launch[..], &sound].concat());
    assert_eq!((code, out.as_str(), err.as_str()), (0, "scale: 64 threads, 1 schedule, 0 findings\n", ""));
    let short = ["--buffer", "x=f32:64:1.5", "--buffer", "y=f32:63"];
    let (code, out, err) = command(&[&launch[..], &short].concat());
    let line = 1 + text.lines().position(|line| line.contains("store float")).unwrap();
    assert!(code == 1 && out.starts_with(&format!("{path}/scale.ll:{line}: out-of-bounds-write: ")), "{out}{err}");
    let device = ["launch", path, "--device", "metal-sim"];
    let (code, out, err) = command(&[&device, &launch[2..], &sound].concat());
    assert!(code == 0 && out.starts_with("scale on Metal simulator"), "{out}{err}");
    let (code, out, err) = command(&[&device, &launch[2..], &short].concat());
    let found = format!("{path}/scale.ll:{line}: out-of-bounds-write: ");
    assert!(code == 2 && err.contains(&found), "{out}{err}");
    let wrong = ["--buffer", "x=f32:64:1.5", "--buffer", "y=f32:64", "--value", "factor=u8:2"];
    let (code, _, err) = command(&[&device, &launch[2..8], &launch[10..], &wrong].concat());
    assert_eq!((code, err.as_str()), (2, "error: kernel scale: 'factor' is given 1 bytes, a float takes 4\n"));
    let (code, out, err) = command(&["check", path, "--compile-only"]);
    assert_eq!((code, out.as_str()), (0, "1 kernels compile, 0 lints\n"), "{err}");
}
