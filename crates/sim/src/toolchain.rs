//! The compiler and linker the simulator runs.

use std::{
    env,
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use elinvar_core::{Error, Result};

use crate::diagnostics;

/// The oldest clang whose C++ for OpenCL mode has everything the lowered kernels use (bfloat arithmetic came last).
const OLDEST: u32 = 19;
const NAMES: &[&str] = &["clang-19", "clang-20", "clang-21", "clang-22", "clang-23", "clang"];
const ADVICE: &str = "install clang 19 or later (Debian and Ubuntu: `apt install clang-19 lld-19`; without root: `pip install ziglang`), \
                      or name one in ELINVAR_CLANG";

/// A clang of version 19 or later, and a linker.
#[derive(Clone, Debug)]
pub struct Toolchain {
    compiler: Vec<String>,
    linker: Vec<String>,
    version: String,
}

impl Toolchain {
    /// The compiler that `ELINVAR_CLANG` names (a path, or a command such as `zig clang`); without it the first of clang-19 and its
    /// successors, clang, `zig`, and the Python package `ziglang`.
    ///
    /// # Errors
    /// None is there, or `ELINVAR_CLANG` names one that cannot be used; with advice how to install one.
    pub fn find() -> Result<Self> {
        if let Ok(command) = env::var("ELINVAR_CLANG") {
            let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
            return Self::probe(words).map_err(|found| unavailable(&format!("ELINVAR_CLANG is `{command}`: {found}")));
        }
        let mut candidates: Vec<Vec<String>> = NAMES.iter().map(|name| vec![(*name).to_owned()]).collect();
        candidates.push(vec!["zig".to_owned(), "clang".to_owned()]);
        candidates.push(["python3", "-m", "ziglang", "clang"].map(str::to_owned).to_vec());
        let mut found = Vec::new();
        for words in candidates {
            match Self::probe(words) {
                Ok(toolchain) => return Ok(toolchain),
                Err(reason) => found.push(reason),
            }
        }
        found.retain(|reason| !reason.ends_with("not found"));
        Err(unavailable(&if found.is_empty() { "no clang was found".to_owned() } else { found.join("; ") }))
    }

    fn probe(compiler: Vec<String>) -> Result<Self, String> {
        let shown = compiler.join(" ");
        let version = output(&compiler, &["--version"]).ok_or_else(|| format!("`{shown}` was not found"))?;
        let line = version.lines().next().unwrap_or_default().to_owned();
        if major_version(&line).is_none_or(|major| major < OLDEST) {
            return Err(format!("`{shown}` is {line:?}, version {OLDEST} or later is needed"));
        }
        let linker = linker(&compiler).ok_or_else(|| format!("`{shown}` has no linker (ld.lld or ld)"))?;
        Ok(Self { compiler, linker, version: line })
    }

    /// The compiler's own version line.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What was found, for people: the command and its version.
    pub fn describe(&self) -> String {
        format!("{} ({})", self.compiler.join(" "), self.version)
    }

    /// LLVM's text for the bitcode of a function, which messages call `name`. It says this machine in place of the one that the bitcode is for.
    ///
    /// # Errors
    /// The compiler cannot read the bitcode, or be run.
    pub fn disassemble(&self, bitcode: &[u8], name: &str) -> Result<String> {
        let mut command = self.compiler();
        command.args(["-x", "ir", "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-w", "-o", "-", "-"]);
        let output = run(&mut command, bitcode)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason =
            said.lines().map(|line| line.trim_start_matches("error: ")).find(|line| !line.is_empty()).unwrap_or("it ended without a message");
        Err(Error::invalid_data(format!("{name}: {} cannot read its bitcode: {reason}; a later clang reads what newer compilers made", self.version)))
    }

    pub(crate) fn compiler(&self) -> Command {
        command(&self.compiler)
    }

    pub(crate) fn linker(&self) -> Command {
        command(&self.linker)
    }
}

fn unavailable(found: &str) -> Error {
    Error::device_unavailable(format!("the Metal simulator compiles kernels with clang {OLDEST} or later: {found}; {ADVICE}"))
}

fn command(words: &[String]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new("clang"), OsStr::new));
    command.args(words).stdin(Stdio::null());
    command
}

fn output(words: &[String], arguments: &[&str]) -> Option<String> {
    let output = command(words).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the command writes; its messages if it fails at making `what`.
pub(crate) fn compile(command: &mut Command, input: &[u8], what: &str) -> Result<Vec<u8>> {
    let output = run(command, input)?;
    if output.status.success() { Ok(output.stdout) } else { Err(diagnostics::error(what, &output.stderr)) }
}

pub(crate) fn run(command: &mut Command, input: &[u8]) -> Result<Output> {
    let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |cause: std::io::Error| Error::compile_failed(format!("cannot run `{program}`: {cause}"));
    let mut child = started.map_err(failed)?;
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        // Written beside the reading of the output, or both sides could wait for each other. A compiler that stops reading says why itself.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output().map_err(failed)
    })
}

/// The number after the word `version`.
fn major_version(line: &str) -> Option<u32> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == "version")?;
    words.next()?.split('.').next()?.parse().ok()
}

/// `zig clang` comes with `zig ld.lld`; clang knows where its linkers are.
fn linker(compiler: &[String]) -> Option<Vec<String>> {
    if let [before @ .., last] = compiler
        && last == "clang"
        && !before.is_empty()
    {
        let words: Vec<_> = before.iter().cloned().chain(["ld.lld".to_owned()]).collect();
        return output(&words, &["--version"]).map(|_| words);
    }
    ["ld.lld", "ld"].into_iter().find_map(|name| {
        let path = PathBuf::from(output(compiler, &[&format!("-print-prog-name={name}")])?.trim());
        let path = if path.is_absolute() { path } else { in_search_path(&path)? };
        Some(vec![path.into_os_string().into_string().ok()?])
    })
}

fn in_search_path(name: &Path) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_every_vendors_line() {
        assert_eq!(major_version("Debian clang version 19.1.7 (3~deb12u1)"), Some(19));
        assert_eq!(major_version("clang version 22.1.0 (https://github.com/ziglang/zig-bootstrap abc)"), Some(22));
        assert_eq!(major_version("Apple clang version 16.0.0"), Some(16));
        assert_eq!(major_version("gcc (Debian) 12"), None);
    }

    #[test]
    fn a_missing_compiler_is_reported_with_advice() {
        let error = Toolchain::probe(vec!["/nonexistent/clang".to_owned()]).map_err(|found| unavailable(&found)).unwrap_err();
        assert!(error.is_device_unavailable());
        let message = error.to_string();
        assert!(
            message.contains("/nonexistent/clang") && message.contains("apt install clang-19") && message.contains("pip install ziglang"),
            "{message}"
        );
    }
}
