//! `elinvar check` as a user runs it.

#![cfg(target_os = "linux")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use safetensors::SafeTensors;
use serde_json::Value;

const FILE: &str = "tests/kernels/scale.metal";
const SCALE: &[&str] =
    &["--kernel", "scale", "--grid", "4", "--threadgroup", "64", "--buffer", "x=f32:250:1.5", "--buffer", "out=f32:250", "--value", "n=u32:250"];

/// Runs in this crate's folder: exit code, standard output, standard error.
fn check(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_elinvar")).current_dir(env!("CARGO_MANIFEST_DIR")).arg("check").args(arguments).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [&[FILE], first, more].concat()
}

#[test]
fn a_sound_kernel_passes_and_its_results_are_saved() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scaled.safetensors");
    let (code, out, err) = check(&with(SCALE, &["--seeds", "4", "--save", file.to_str().unwrap()]));
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.ends_with("scale: 1024 threads, 4 schedules, 0 findings\n"), "{out}");
    let bytes = fs::read(&file).unwrap();
    let saved = SafeTensors::deserialize(&bytes).unwrap();
    assert!(saved.tensor("out").unwrap().data().chunks_exact(4).all(|c| f32::from_le_bytes(c.try_into().unwrap()) == 3.0));
    let from_file = format!("x={}#out", file.to_str().unwrap());
    let (code, out, _) = check(&[FILE, "--kernel", "beyond", "--threadgroup", "249", "--buffer", &from_file, "--buffer", "out=f32:249"]);
    assert_eq!(code, 0, "{out}");
}

#[test]
fn function_constants_templates_and_threadgroup_memory_are_given_by_name() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("negated.safetensors");
    let (code, out, err) = check(&with(SCALE, &["--constant", "negate=true", "--save", file.to_str().unwrap()]));
    assert_eq!(code, 0, "{out}{err}");
    let bytes = fs::read(&file).unwrap();
    assert_eq!(SafeTensors::deserialize(&bytes).unwrap().tensor("out").unwrap().data()[..4], (-3.0f32).to_le_bytes());
    let arguments =
        ["--kernel", "reverse_half", "--threadgroup", "64", "--buffer", "x=f16:64", "--buffer", "out=f16:64", "--threadgroup-memory", "tile=128"];
    assert_eq!(check(&with(&arguments, &["--seeds", "4"])).0, 0);
    let (code, out, _) = check(&[FILE, "--compile-only"]);
    assert_eq!((code, out.as_str()), (0, "3 kernels compile, 0 lints\n"));
}

#[test]
fn findings_are_reported_with_their_line_and_exit_code_one() {
    let arguments = ["--kernel", "beyond", "--threadgroup", "64", "--buffer", "x=f32:64", "--buffer", "out=f32:64"];
    let (code, out, _) = check(&with(&arguments, &[]));
    let line =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE)).unwrap().lines().position(|l| l.contains("x[i + 1]")).unwrap() + 1;
    assert_eq!(code, 1);
    assert!(out.starts_with(&format!("{FILE}:{line}: out-of-bounds-read: ")) && out.contains("thread (63, 0, 0)"), "{out}");
    let (code, out, _) = check(&with(&arguments, &["--json"]));
    let report: Value = serde_json::from_str(&out).unwrap();
    let finding = &report["findings"][0];
    assert_eq!((code, &finding["kind"], &finding["line"]), (1, &"out-of-bounds-read".into(), &line.into()));
    assert_eq!((&finding["buffer"], &finding["offset"], &finding["thread"]), (&"x".into(), &256.into(), &serde_json::json!([63, 0, 0])));
    let (code, out, _) =
        check(&with(&["--kernel", "scale", "--threadgroup", "64", "--buffer", "x=f32:64", "--buffer", "out=f32:64", "--value", "n=u32:63"], &[]));
    assert!(code == 1 && out.contains("unwritten-output") && out.contains("`out`"), "{out}");
}

#[test]
fn subnormals_are_kept_or_flushed_as_asked() {
    let launch = ["--kernel", "scale", "--grid", "4", "--threadgroup", "64", "--value", "n=u32:250", "--buffer", "out=f32:250"];
    // 2^-130, and twice that.
    let kept = ["--buffer", "x=f32:250:7.346839692639297e-40", "--expect", "out=f32:250:1.4693679385278594e-39"];
    let flushed = ["--buffer", "x=f32:250:7.346839692639297e-40", "--expect", "out=f32:250:0", "--subnormals", "flush"];
    for arguments in [kept.as_slice(), &flushed] {
        let (code, out, err) = check(&with(&launch, arguments));
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
    }
}

#[test]
fn a_buffer_is_compared_with_what_is_expected() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("expected.safetensors");
    assert_eq!(check(&with(SCALE, &["--save", file.to_str().unwrap()])).0, 0);
    let (same, other) = (format!("out={}#out", file.to_str().unwrap()), format!("out={}#x", file.to_str().unwrap()));
    assert_eq!(check(&with(SCALE, &["--seeds", "2", "--expect", &same])).0, 0);
    let (code, out, _) = check(&with(SCALE, &["--seeds", "2", "--expect", &other]));
    let expected = "unexpected-output: `out` holds 3.0 at offset 0, where 1.5 is expected [250 elements] (seed 0)\n";
    assert!(code == 1 && out.starts_with(expected) && out.ends_with("2 schedules, 1 findings\n"), "{out}");
    let (code, out, _) = check(&with(SCALE, &["--expect", "out=f32:250:3.01", "--json"]));
    let finding = &serde_json::from_str::<Value>(&out).unwrap()["findings"][0];
    assert_eq!((code, &finding["kind"], &finding["buffer"]), (1, &"unexpected-output".into(), &"out".into()));
    assert_eq!((&finding["count"], &finding["offset"]), (&250.into(), &0.into()));
    assert_eq!(check(&with(SCALE, &["--expect", "out=f32:250:3.01", "--tolerance", "0.01"])).0, 0);
}

#[test]
fn a_kernel_without_a_bounds_check_runs_over_exactly_the_threads_asked_for() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unguarded.metal");
    fs::write(
        &file,
        "#include <metal_stdlib>\nusing namespace metal;\nkernel void add(device const float* a [[buffer(0)]], device float* c [[buffer(1)]],\n\
         uint id [[thread_position_in_grid]]) {\n    c[id] = a[id] + 1;\n}\n",
    )
    .unwrap();
    let over = |extent: &[&str]| {
        let buffers = ["--threadgroup", "256", "--buffer", "a=f32:1000:1", "--buffer", "c=f32:1000", "--expect", "c=f32:1000:2"];
        check(&[&[file.to_str().unwrap()], extent, &buffers].concat())
    };
    let (code, out, err) = over(&["--threads", "1000"]);
    assert_eq!((code, out.as_str()), (0, "add: 1000 threads, 1 schedule, 0 findings\n"), "{err}");
    let (code, out, _) = over(&["--grid", "4"]);
    assert!(code == 1 && out.contains("unguarded.metal:5: out-of-bounds-read"), "{out}");
    for (extent, wanted) in [("0", "at least 1"), ("4294967296", "at most 4294967295"), ("1,1,1,1", "write X, X,Y or X,Y,Z")] {
        let (code, _, err) = over(&["--threads", extent]);
        assert!(code == 2 && err.contains(wanted), "{extent}: {err}");
    }
    let (code, _, err) = over(&["--threads", "1000", "--grid", "4"]);
    assert!(code == 2 && err.contains("cannot be used with"), "{err}");
    let (code, _, err) = check(&[file.to_str().unwrap(), "--threads", "9", "--threadgroup", "33,32", "--buffer", "a=f32:9", "--buffer", "c=f32:9"]);
    assert!(code == 2 && err.contains("1 to 1024"), "{err}");
}

#[test]
fn the_race_of_the_readme_is_reported() {
    let shape = [
        "--grid",
        "4",
        "--threadgroup",
        "64",
        "--buffer",
        "x=f32:256",
        "--buffer",
        "out=f32:4",
        "--threadgroup-memory",
        "partial=256",
        "--seeds",
        "4",
    ];
    let (code, out, _) = check(&[&["tests/kernels/race.metal"], &shape[..]].concat());
    assert!(
        code == 1 && out.starts_with("tests/kernels/race.metal:13: data-race: ") && out.ends_with("sum: 1024 threads, 4 schedules, 2 findings\n"),
        "{out}"
    );
}

#[test]
fn what_cannot_be_checked_is_one_line_and_exit_code_two() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let broken = folder.join("broken.metal");
    fs::write(&broken, "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float* x [[buffer(0)]]) {\n    x[0] = y;\n}\n")
        .unwrap();
    let rejection = |arguments: &[&str], wanted: &str| {
        let (code, out, err) = check(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
        assert!(err.contains(wanted) && !err.contains("panicked"), "{arguments:?}: {err}");
    };
    let (code, out, err) = check(&[broken.to_str().unwrap(), "--buffer", "x=f32:1", "--run-anyway"]);
    assert!(code == 2 && out.contains("broken.metal:4: use of undeclared identifier 'y'") && err.contains("broken.metal:4"), "{out}{err}");
    rejection(&with(SCALE, &["-I", "no/such/folder"]), "-I no/such/folder: no such folder");
    rejection(&["nowhere.metal"], "nowhere.metal");
    rejection(&[FILE], "3 kernels: choose one: ");
    rejection(&with(&["--kernel", "scalar"], &[]), "scalar");
    rejection(&with(&["--kernel", "scale", "--buffer", "x=f32:4", "--value", "n=u32:4"], &[]), "`out`, is missing");
    rejection(&with(SCALE, &["--buffer", "z=f32:4"]), "no parameter `z`: it takes x, out, n");
    rejection(&with(SCALE, &["--value", "n=u32:4"]), "'n' is given twice");
    rejection(&with(&["--kernel", "scale", "--grid", "0"], &[]), "at least 1");
    rejection(&with(SCALE, &["--constant", "negated=true"]), "negate (0)");
    rejection(&with(SCALE, &["--outputs", "z"]), "no parameter `z`");
    rejection(&with(SCALE, &["--expect", "z=f32:250:1"]), "expect z: no buffer of that name");
    rejection(&with(SCALE, &["--expect", "out=f32:25:1"]), "the buffer holds 250 elements of f32, expected are 25 elements of f32");
}

#[test]
fn what_apples_compiler_would_reject_is_reported() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unqualified.metal");
    fs::write(&file, "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float* x [[buffer(0)]]) {\n    float* y = &x[0];\n    y[0] = double(1);\n}\n").unwrap();
    let run = [file.to_str().unwrap(), "--threadgroup", "1", "--buffer", "x=f32:1"];
    let (code, out, _) = check(&run);
    assert!(code == 1 && out.contains("unqualified.metal:4") && out.contains("unqualified.metal:5"), "{out}");
    assert!(out.ends_with("not run; --run-anyway runs it all the same\n"), "{out}");
    let (code, out, _) = check(&[&run[..], &["--run-anyway"]].concat());
    assert!(code == 1 && out.ends_with("k: 1 threads, 1 schedule, 0 findings\n"), "{out}");
}

#[test]
fn many_errors_are_cut_short_in_the_order_of_their_lines() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hundred.metal");
    let wrong: String = (0..100).map(|line| format!("    x[{line}] = nothing{line};\n")).collect();
    fs::write(&file, format!("#include <metal_stdlib>\nkernel void k(device float* x [[buffer(0)]]) {{\n{wrong}}}\n")).unwrap();
    let (code, out, _) = check(&[file.to_str().unwrap(), "--compile-only"]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len(), lines[20]), (1, 22, "… and 80 more"), "{out}");
    assert!((0..20).all(|at| lines[at].contains(&format!("hundred.metal:{}: ", at + 3))), "{out}");
}

#[test]
fn a_kernel_that_never_ends_is_reported() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endless.metal");
    fs::write(&file, "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device uint* x [[buffer(0)]]) {\n    while (x[0] < 7) {}\n}\n")
        .unwrap();
    let (code, out, _) = check(&[file.to_str().unwrap(), "--threadgroup", "1", "--buffer", "x=u32:1:0", "--time-limit", "1"]);
    assert!(code == 1 && out.contains("time-limit") && out.contains("endless.metal:4"), "{out}");
}

#[test]
fn a_missing_compiler_is_reported_with_advice() {
    let output = Command::new(env!("CARGO_BIN_EXE_elinvar"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["check", FILE, "--compile-only"])
        .env("ELINVAR_CLANG", "/nonexistent/clang")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("/nonexistent/clang") && error.contains("install clang"), "{error}");
}
