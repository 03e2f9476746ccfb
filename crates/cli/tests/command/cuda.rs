//! What the command reports of a CUDA device that cannot be used, with a fake driver and a fake compiler library.

#![cfg(all(target_os = "linux", feature = "embedded-model"))]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::{Duration, Instant},
};

use crate::LAUNCH;

/// The folder with the libraries and the kernels compiled with them, made when first asked for. Its subfolder `incomplete` has a driver that lacks a
/// function.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fake-cuda");
        let _ = fs::remove_dir_all(&folder);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake/cuda.rs");
        let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let build = |library: &Path, options: &[&str]| {
            fs::create_dir_all(library.parent().unwrap()).unwrap();
            let command = [&["--edition", "2024", "--crate-type", "cdylib"], options].concat();
            assert!(Command::new(&compiler).args(command).arg("-o").arg(library).arg(&source).status().unwrap().success());
        };
        build(&folder.join("libcuda.so"), &[]);
        build(&folder.join("incomplete/libcuda.so"), &["--cfg", "incomplete"]);
        fs::copy(folder.join("libcuda.so"), folder.join("libnvrtc.so.13")).unwrap();
        folder
    })
}

/// Exit code, standard output and standard error of `elinvar`, beside a driver that does as `fault` says. One that does not end has code 124.
fn elinvar(fault: &str, arguments: &[&str]) -> (i32, String, String) {
    let folder = libraries();
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_elinvar")]).args(arguments).env("FAKE_CUDA", fault).env_remove("ELINVAR_DEVICE");
    command.env("LD_LIBRARY_PATH", if fault == "incomplete" { folder.join(fault) } else { folder.to_owned() });
    // The driver's own file: what CUPTI has is what that was asked for.
    command.env("ELINVAR_CUPTI", fault.strip_prefix("cupti=/").map_or_else(|| folder.join("libcuda.so"), |file| PathBuf::from(format!("/{file}"))));
    if arguments.contains(&"--profile") {
        command.env("NVTX_INJECTION64_PATH", folder.join("libcuda.so"));
    }
    command.env("ELINVAR_NVRTC", fault.strip_prefix("nvrtc=").map_or_else(|| folder.join("libnvrtc.so.13"), PathBuf::from));
    // Not the user's folder: what a real compiler of the same version made would be found there.
    command.env("ELINVAR_CACHE", folder.join("cache"));
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

const GENERATE: &[&str] = &["generate", "--quiet", "-n", "2", "ROMEO:"];

#[test]
fn a_device_that_does_not_open_says_why_and_auto_takes_the_cpu() {
    let faults = [
        ("version=11080", "the NVIDIA driver offers CUDA 11.8: a driver for CUDA 12.0 or later is needed"),
        ("incomplete", "the NVIDIA driver has no cuModuleLoadDataEx: a driver for CUDA 12.0 or later is needed"),
        ("init=803", "the NVIDIA driver does not start: said by the fake (FAKE)"),
        ("init=100", "sees no GPU: pass one to this container"),
        ("devices=0", "sees no GPU: pass one to this container"),
        ("nvrtc=/nowhere/libnvrtc.so", "install it (pip install nvidia-cuda-nvrtc"),
        ("architecture=80", "makes no code for this GPU (sm_90; it knows sm_80 to sm_80): install another version"),
    ];
    let (_, expected, _) = elinvar("version=11080", &[&["generate", "--device", "cpu"], &GENERATE[1..]].concat());
    for (fault, reason) in faults {
        let (code, out, err) = elinvar(fault, &["generate", "--device", "cuda", "-n", "1"]);
        assert!(code == 2 && out.is_empty() && err.trim_end().lines().count() == 1 && err.contains(reason), "{fault}: {err}");
        let (code, out, _) = elinvar(fault, &["devices"]);
        let line = out.lines().find(|line| line.starts_with("cuda")).unwrap();
        assert!(code == 0 && line.contains("not available: ") && line.contains(reason), "{fault}: {line}");
        let (code, out, err) = elinvar(fault, GENERATE);
        assert!(err.starts_with("computing on the cpu, as cuda is not available: ") && err.contains(reason), "{fault}: {err}");
        assert_eq!((code, &out), (0, &expected), "{fault}: {err}");
    }
}

#[test]
fn a_model_that_does_not_fit_is_rejected_or_computed_on_the_cpu() {
    let (code, out, err) = elinvar("free=1000000", GENERATE);
    assert!(
        code == 0 && !out.is_empty() && err.starts_with("cuda has 976.6 KiB free, ") && err.trim_end().ends_with("computing on the cpu"),
        "{err}"
    );
    let (code, out, err) = elinvar("free=1000000", &["generate", "--device", "cuda", "-n", "2"]);
    assert!(code == 2 && out.is_empty() && err.contains("free"), "{err}");
    // What is free now may be gone when it is asked for.
    let (code, _, err) = elinvar("allocate=2", &["generate", "--device", "cuda", "-n", "2"]);
    assert!(code == 2 && err.contains("the GPU's memory is full") && err.trim_end().lines().count() == 1, "{err}");
}

#[test]
fn a_device_that_disappears_is_reported_once_in_one_line() {
    for result in [46, 100, 101, 719, 999] {
        let (code, out, err) = elinvar(&format!("allocate={result}"), &["generate", "--device", "cuda", "-n", "2"]);
        let expected = "nothing on it can be used any more: start a new process, or use another device";
        assert!(code == 2 && out.is_empty() && err.contains("the GPU failed") && err.contains(expected), "{result}: {err}");
        assert!(err.trim_end().lines().count() == 1 && !err.contains("panicked"), "{result}: {err}");
    }
}

#[test]
fn gpus_that_reach_each_other_are_a_group() {
    let arguments = ["bench", "decode", "--shape", "tiny", "--prompt", "8", "--generate", "6", "--rounds", "1", "--devices", "cuda:0,cuda:1"];
    let (code, out, err) = elinvar("devices=2,allocate=0", &arguments);
    assert!(code == 0 && out.starts_with("2 × Fake · ") && out.contains("\ntg6 "), "{out} {err}");
    let (code, out, err) = elinvar("devices=2,allocate=0,peers=0", &arguments);
    assert!(code == 2 && out.is_empty(), "{out}");
    assert_eq!(err, "error: rank 0: CUDA devices 0 and 1 do not reach each other's memory: group others\n");
    // The list of devices has what each reaches.
    let listed = |setting: &str| {
        let (_, out, _) = elinvar(setting, &["devices", "--json"]);
        let devices: serde_json::Value = serde_json::from_str(&out).unwrap();
        let peers: Vec<_> = devices.as_array().unwrap().iter().filter_map(|device| device.get("peers").map(ToString::to_string)).collect();
        (peers[..3].to_vec(), elinvar(setting, &["devices"]).1.matches(" · reaches the memory of cuda").count())
    };
    assert_eq!(
        listed("devices=3,allocate=0"),
        (vec![r#"["cuda:1","cuda:2"]"#.into(), r#"["cuda","cuda:2"]"#.into(), r#"["cuda","cuda:1"]"#.into()], 3)
    );
    assert_eq!(listed("devices=2,allocate=0,peers=0"), (vec!["[]".to_owned(); 3], 0));
}

#[test]
fn a_gpu_of_a_group_that_is_lost_is_named_in_one_line() {
    let (decode, train) = (["bench", "decode", "--rounds", "1"], ["bench", "train", "--length", "32", "--grad-accumulation-steps", "2"]);
    let rest = ["--shape", "tiny", "--devices", "cuda:0,cuda:1"];
    let lost = |command: &[&str], after: usize| {
        let start = Instant::now();
        let (code, out, err) = elinvar(&format!("devices=2,allocate=0,lost=1,after={after}"), &[command, &rest].concat());
        let expected =
            err.starts_with("error: ") && err.contains("rank 1: ") && err.contains("the GPU failed") && err.trim_end().lines().count() == 1;
        assert!(code == 2 && out.is_empty() && expected, "after {after}: {err}");
        assert!(start.elapsed() < Duration::from_secs(10), "after {after}: {:?}", start.elapsed());
    };
    // While weights are loaded, and in what is computed.
    [0, 30, 100, 1000].into_iter().for_each(|after| lost(&decode, after));
    [30, 200].into_iter().for_each(|after| lost(&train, after));
}

#[test]
fn a_profile_has_the_times_that_cupti_gives() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile-cuda");
    let profile = ["--device", "cuda", "--profile", folder.to_str().unwrap()];
    let row = |err: &str, name: &str| -> Vec<String> {
        let line = err.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {err}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let (code, _, err) = elinvar("allocate=0", &[LAUNCH, &["--repeat", "3"], &profile].concat());
    assert!(code == 0 && err.contains("the GPU's, by CUPTI"), "{err}");
    assert_eq!(row(&err, "scale")[..2], ["1", "0.000"], "{err}");
    assert!(err.contains("\nNVTX: list ") && err.contains(" of 1 command from scale\nNVTX: end\n"), "{err}");
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(folder.join("trace.json")).unwrap()).unwrap();
    // The kernel may read what it may write, and the value is a buffer of four bytes.
    let events: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == "scale").collect();
    assert!(events.len() == 4 && events.iter().all(|event| event["dur"] == 0.01 && event["args"]["bytes_at_most"] == 3004), "{events:?}");
    // The steps that are timed are graphs.
    let bench = ["bench", "decode", "--shape", "tiny", "--prompt", "8", "--generate", "6", "--rounds", "1"];
    let (code, _, err) = elinvar("allocate=0", &[&bench, &profile[..]].concat());
    assert_eq!(code, 0, "{err}");
    let (prefill, decode) = err.split_once("\ntg6 ").unwrap();
    assert!(row(prefill, "gather")[0] == "1" && row(decode, "gather")[0] == "6", "{err}");
    assert!(row(decode, "(read to host)").len() > 4 && decode.contains("6 tokens, each busy "), "{err}");
}

#[test]
fn a_profile_without_cupti_is_rejected_before_the_run() {
    for (fault, reason) in [("cupti=/nowhere/libcupti.so", "pip install nvidia-cuda-cupti"), ("cupti=39", "starting: said by the fake (error 39)")] {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile-none");
        let (code, out, err) = elinvar(fault, &[LAUNCH, &["--device", "cuda", "--profile", folder.to_str().unwrap()]].concat());
        assert!(code == 2 && out.is_empty() && err.contains(reason) && err.trim_end().lines().count() == 1, "{fault}: {err}");
    }
}
