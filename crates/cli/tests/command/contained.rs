//! Kernels that do what no Metal kernel can end with a message, and harm nothing.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What the texts below do without the C library.
const NATIVE: &str = if cfg!(target_arch = "x86_64") {
    "static void native(long call, long argument) { asm volatile(\"syscall\" : \"+a\"(call) : \"D\"(argument) : \"rcx\", \"r11\", \"memory\"); }\n\
     static void smash() { asm volatile(\"xor %%esp, %%esp\\n push %%rax\" ::: \"memory\"); }\n\
     enum { EXIT = 60, GROUP = 231, WRITE = 1 };\n"
} else {
    "static void native(long call, long argument) {\n\
     register long x8 asm(\"x8\") = call; register long x0 asm(\"x0\") = argument; asm volatile(\"svc 0\" : \"+r\"(x0) : \"r\"(x8) : \"memory\"); }\n\
     static void smash() { asm volatile(\"mov sp, xzr\\n str x0, [sp, #-16]!\" ::: \"memory\"); }\n\
     enum { EXIT = 93, GROUP = 94, WRITE = 64 };\n"
};

fn kernel(name: &str, declarations: &str, body: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("contained-{name}.metal"));
    let position = "uint i [[thread_position_in_grid]]";
    let text = format!(
        "#include <metal_stdlib>\nusing namespace metal;\n{declarations}\nkernel void k(device uint* x [[buffer(0)]], {position}) {{ x[i] = i; {body} }}\n"
    );
    fs::write(&file, text).unwrap();
    file
}

/// Exit code (124 if it does not end), standard output and standard error of the command on a kernel of two threads.
fn elinvar(arguments: &[&str], file: &Path) -> (i32, String, String) {
    let mut command = Command::new("timeout");
    command.args(["120", env!("CARGO_BIN_EXE_elinvar")]).args(arguments).arg(file).args([
        "--run-anyway",
        "--threadgroup",
        "2",
        "--buffer",
        "x=u32:2:0",
    ]);
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

const LAUNCH: &[&str] = &["launch", "--device", "metal-sim"];

#[test]
fn system_calls_are_named_and_end_the_kernel() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let made = folder.join("made-by-a-kernel");
    let _ = fs::remove_file(&made);
    let touch = format!("x[0] = system((long)\"touch {}\");", made.display());
    let cases = [
        ("exit", NATIVE, "native(EXIT, 0);", "made a system call (exit)"),
        ("exit-group", NATIVE, "native(GROUP, 0);", "made a system call (exit_group)"),
        ("write", NATIVE, "native(WRITE, 1);", "made a system call (write)"),
        ("library-exit", "extern \"C\" void _exit(int);", "_exit(0);", "ended its process (exit code 0)"),
        ("system", "extern \"C\" int system(long);", &touch, "made a system call"),
        ("socket", "extern \"C\" int socket(int, int, int);", "x[0] = socket(1, 1, 0);", "made a system call (socket)"),
        ("kill", "extern \"C\" int kill(int, int);", "x[0] = kill(1, 0);", "made a system call (kill)"),
        ("creat", "extern \"C\" int creat(long, int);", "x[0] = creat((long)\"made-by-a-kernel\", 420);", "made a system call ("),
        ("load", "extern \"C\" void _init() { native(GROUP, 0); }", "", "ended its process (exit code 0)"),
        ("smash", NATIVE, "smash();", "crashed (SIGSEGV)"),
    ];
    for (name, declarations, body, expected) in cases {
        let declarations = if name == "load" { format!("{NATIVE}{declarations}") } else { declarations.to_owned() };
        let file = kernel(name, &declarations, body);
        let (code, out, err) = elinvar(LAUNCH, &file);
        assert_eq!((code, out.as_str()), (2, ""), "{name}: {err}");
        assert!(err.starts_with(&format!("error: {}: the kernel", file.display())) && err.contains(expected), "{name}: {err}");
        assert_eq!(err.trim_end().lines().count(), 1, "{name}: {err}");
    }
    assert!(!made.exists());
}

#[test]
fn a_thread_that_is_gone_or_deaf_does_not_hang_the_check() {
    let call = "extern \"C\" long syscall(long, long);";
    let file = kernel("gone", call, if cfg!(target_arch = "x86_64") { "syscall(60, 0);" } else { "syscall(93, 0);" });
    let (code, _, err) = elinvar(&["check", "--time-limit", "1"], &file);
    assert!(code == 2 && err.ends_with("the kernel ran or waited for more than 1s in one threadgroup: its process was ended\n"), "{code} {err}");
}

#[test]
fn what_was_found_before_the_end_is_reported() {
    // The C library's first random number is a known one: the first schedule goes well.
    let body = "if (i == 0) x[2] = 1; if (i == 1 && rand() != 1804289383) native(EXIT, 0);";
    let file = kernel("later", &format!("{NATIVE}extern \"C\" int rand();"), body);
    let (code, out, err) = elinvar(&["check", "--seeds", "2"], &file);
    assert!(code == 2 && err.contains("(exit)"), "{err}");
    assert!(out.contains("Metal takes no assembly") && out.contains("out-of-bounds-write") && !out.contains("schedules"), "{out}");
    let (code, out, _) = elinvar(&["check", "--seeds", "2", "--json"], &file);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == 2 && report["error"].as_str().unwrap().contains("(exit)") && report["findings"][0]["kind"] == "out-of-bounds-write", "{out}");
}

#[test]
fn files_cannot_be_opened_by_a_kernel() {
    let file = kernel("open", "extern \"C\" int open(long, int);", "x[i] = open((long)\"/etc/passwd\", 0);");
    let saved = Path::new(env!("CARGO_TARGET_TMPDIR")).join("opened.safetensors");
    let (code, _, err) = elinvar(&[LAUNCH, &["--save", saved.to_str().unwrap()]].concat(), &file);
    assert_eq!(code, 0, "{err}");
    let bytes = fs::read(&saved).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(tensors.tensor("x").unwrap().data()[..4], (-1i32).to_le_bytes());
}
