//! What a user is told of a CUDA device that cannot be used, by a driver and a compiler library that are not real.

#![cfg(all(target_os = "linux", feature = "embedded-model"))]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

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
        ("incomplete", "the NVIDIA driver has no cuModuleLoadData: a driver for CUDA 12.0 or later is needed"),
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
fn a_model_that_does_not_fit_is_refused_or_computed_on_the_cpu() {
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
fn a_device_that_disappears_is_told_once_and_plainly() {
    for result in [46, 100, 101, 719, 999] {
        let (code, out, err) = elinvar(&format!("allocate={result}"), &["generate", "--device", "cuda", "-n", "2"]);
        let told = "nothing on it can be used any more: start a new process, or use another device";
        assert!(code == 2 && out.is_empty() && err.contains("the GPU failed") && err.contains(told), "{result}: {err}");
        assert!(err.trim_end().lines().count() == 1 && !err.contains("panicked"), "{result}: {err}");
    }
}
