//! The compiler and linker the simulator runs.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use elinvar_core::Result;
use elinvar_metallib::clang::{self, Clang};

use crate::diagnostics;

/// A clang of version 19 or later, and a linker.
#[derive(Clone, Debug)]
pub struct Toolchain {
    clang: Clang,
    linker: Vec<String>,
}

impl Toolchain {
    /// As [`Clang::find`] finds it, with a linker.
    ///
    /// # Errors
    /// None is there, or `ELINVAR_CLANG` names one that cannot be used; with advice how to install one.
    pub fn find() -> Result<Self> {
        let needed = |clang: &Clang| linker(clang).ok_or_else(|| format!("`{}` has no linker (ld.lld or ld)", clang.name()));
        let (clang, linker) = Clang::find("the Metal simulator compiles kernels", needed)?;
        Ok(Self { clang, linker })
    }

    /// The compiler.
    pub fn clang(&self) -> &Clang {
        &self.clang
    }

    /// What was found, for people: the command and its version.
    pub fn describe(&self) -> String {
        format!("{} ({})", self.clang.name(), self.clang.version())
    }

    pub(crate) fn compiler(&self) -> Command {
        self.clang.command()
    }

    pub(crate) fn linker(&self) -> Command {
        clang::command(&self.linker)
    }
}

/// What the command writes; its messages if it fails at making `what`.
pub(crate) fn compile(command: &mut Command, input: &[u8], what: &str) -> Result<Vec<u8>> {
    let output = clang::run(command, input)?;
    if output.status.success() { Ok(output.stdout) } else { Err(diagnostics::error(what, &output.stderr)) }
}

/// `zig clang` comes with `zig ld.lld`; clang knows where its linkers are.
fn linker(clang: &Clang) -> Option<Vec<String>> {
    if let [before @ .., last] = clang.words()
        && last == "clang"
        && !before.is_empty()
    {
        let words: Vec<_> = before.iter().cloned().chain(["ld.lld".to_owned()]).collect();
        return clang::output(&words, &["--version"]).map(|_| words);
    }
    ["ld.lld", "ld"].into_iter().find_map(|name| {
        let path = PathBuf::from(clang.output(&[&format!("-print-prog-name={name}")])?.trim());
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
    fn a_compiler_without_a_linker_is_reported_with_advice() {
        let error = Clang::find("the Metal simulator compiles kernels", |_| Err::<(), _>("no linker".to_owned())).unwrap_err();
        assert!(error.is_device_unavailable());
        let message = error.to_string();
        assert!(message.contains("no linker") && message.contains("apt install clang-19") && message.contains("pip install ziglang"), "{message}");
    }
}
