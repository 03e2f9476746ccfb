//! The compiler that reads and compiles what is in Metal libraries: clang, as a command.

use std::{
    env,
    ffi::OsStr,
    io::Write,
    process::{Command, Output, Stdio},
};

use elinvar_core::{Error, Result};

/// The oldest clang whose C++ for OpenCL mode has everything the lowered kernels use (bfloat arithmetic came last).
const OLDEST: u32 = 19;
const NAMES: &[&str] = &["clang-19", "clang-20", "clang-21", "clang-22", "clang-23", "clang"];
const ADVICE: &str = "install clang 19 or later (Debian and Ubuntu: `apt install clang-19 lld-19`; without root: `pip install ziglang`), \
                      or name one in ELINVAR_CLANG";

/// A clang of version 19 or later.
#[derive(Clone, Debug)]
pub struct Clang {
    words: Vec<String>,
    version: String,
}

impl Clang {
    /// The compiler that `ELINVAR_CLANG` names (a path, or a command such as `zig clang`); without it the first of clang-19 and its
    /// successors, clang, `zig`, and the Python package `ziglang` that has what `needed` asks for, with what that gives.
    /// `purpose` says what it is for: "the Metal simulator compiles kernels".
    ///
    /// # Errors
    /// None is there, or `ELINVAR_CLANG` names one that cannot be used; with advice how to install one.
    pub fn find<T>(purpose: &str, needed: impl Fn(&Clang) -> Result<T, String>) -> Result<(Self, T)> {
        let probe = |words: Vec<String>| {
            let clang = Self::probe(words)?;
            let had = needed(&clang)?;
            Ok::<_, String>((clang, had))
        };
        let unavailable = |found: &str| Error::device_unavailable(format!("{purpose} with clang {OLDEST} or later: {found}; {ADVICE}"));
        if let Ok(command) = env::var("ELINVAR_CLANG") {
            let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
            return probe(words).map_err(|found| unavailable(&format!("ELINVAR_CLANG is `{command}`: {found}")));
        }
        let mut candidates: Vec<Vec<String>> = NAMES.iter().map(|name| vec![(*name).to_owned()]).collect();
        candidates.push(vec!["zig".to_owned(), "clang".to_owned()]);
        candidates.push(["python3", "-m", "ziglang", "clang"].map(str::to_owned).to_vec());
        let mut found = Vec::new();
        for words in candidates {
            match probe(words) {
                Ok(clang) => return Ok(clang),
                Err(reason) => found.push(reason),
            }
        }
        found.retain(|reason| !reason.ends_with("not found"));
        Err(unavailable(&if found.is_empty() { "no clang was found".to_owned() } else { found.join("; ") }))
    }

    fn probe(words: Vec<String>) -> Result<Self, String> {
        let clang = Self { words, version: String::new() };
        let version = clang.output(&["--version"]).ok_or_else(|| format!("`{}` was not found", clang.name()))?;
        let version = version.lines().next().unwrap_or_default().to_owned();
        if major_version(&version).is_none_or(|major| major < OLDEST) {
            return Err(format!("`{}` is {version:?}, version {OLDEST} or later is needed", clang.name()));
        }
        Ok(Self { version, ..clang })
    }

    /// The command.
    pub fn name(&self) -> String {
        self.words.join(" ")
    }

    /// Its words.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The compiler's own version line.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The command, to be given arguments.
    pub fn command(&self) -> Command {
        command(&self.words)
    }

    /// What it prints when asked something; none if it fails.
    pub fn output(&self, arguments: &[&str]) -> Option<String> {
        output(&self.words, arguments)
    }

    /// LLVM's text for the bitcode of a function, which messages call `name`. It says this machine in place of the one that the bitcode is for.
    ///
    /// # Errors
    /// The compiler cannot read the bitcode, or be run.
    pub fn disassemble(&self, bitcode: &[u8], name: &str) -> Result<String> {
        let mut command = self.command();
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
}

/// A command of these words, without input.
pub fn command(words: &[String]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new("clang"), OsStr::new));
    command.args(words).stdin(Stdio::null());
    command
}

/// What a command prints; none if it fails.
pub fn output(words: &[String], arguments: &[&str]) -> Option<String> {
    let output = command(words).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command on `input`.
///
/// # Errors
/// It cannot be started.
pub fn run(command: &mut Command, input: &[u8]) -> Result<Output> {
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
}
