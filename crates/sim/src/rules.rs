//! Judges texts by the rules of Apple's compiler: clang reads them once more, and compiles nothing.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use elinvar_core::{Cache, CacheKey, Result};
use elinvar_metallib::clang;
use elinvar_msl::{Lint, Module, rules};

use crate::{
    cache::folder,
    toolchain::{Toolchain, compile},
};

/// A front end that rejects what Apple's compiler rejects.
#[derive(Clone)]
pub struct Judge {
    toolchain: Toolchain,
    cache: Cache,
    prelude: PathBuf,
}

impl Judge {
    /// One that keeps its headers in `cache` (none means the user's cache folder).
    ///
    /// # Errors
    /// No compiler, with advice how to install one; or the cache folder cannot be written.
    pub fn open(cache: Option<&Path>) -> Result<Self> {
        Self::new(Toolchain::find()?, Cache::open(cache, "sim")?)
    }

    pub(crate) fn new(toolchain: Toolchain, cache: Cache) -> Result<Self> {
        let prelude = folder(&cache, "rules", rules::PRELUDE)?;
        Ok(Self { toolchain, cache, prelude })
    }

    /// What Apple's compiler would reject in a text, compiled as `metal_version`, with `kernels` instantiated; in the order of its lines.
    ///
    /// # Errors
    /// No such kernel; the compiler cannot be run.
    pub fn judge(&self, module: &Module, kernels: &[&str], metal_version: u32) -> Result<Vec<Lint>> {
        let lowered = module.lower_for_rules(kernels)?;
        let mut lints = module.lints(metal_version);
        for define in [None, Some(rules::STRICT_BFLOAT)].into_iter().take(1 + usize::from(lowered.has_bfloat)) {
            let mut command = self.front_end(metal_version, define);
            command.arg("-include-pch").arg(self.precompiled(lowered.header, metal_version, define)?);
            let output = clang::run(command.args(["-fsyntax-only", "-"]), lowered.text.as_bytes())?;
            let found = rules::findings(&String::from_utf8_lossy(&output.stderr), module, define.is_some());
            lints.extend(found.into_iter().filter(|lint| !is_known(&lints, lint)).collect::<Vec<_>>());
        }
        lints.sort_by(|a, b| (&a.location.file, a.location.line).cmp(&(&b.location.file, b.location.line)));
        Ok(lints)
    }

    fn front_end(&self, metal_version: u32, define: Option<&str>) -> Command {
        let mut command = self.toolchain.compiler();
        command.args(rules::flags(metal_version)).args(define.map(|define| format!("-D{define}")));
        command
    }

    /// A header of the prelude, read once for each version.
    fn precompiled(&self, header: &str, metal_version: u32, define: Option<&str>) -> Result<PathBuf> {
        let mut command = self.front_end(metal_version, define);
        let arguments: Vec<&[u8]> = command.get_args().map(|argument| argument.as_encoded_bytes()).collect();
        let fixed = [self.toolchain.clang().version().as_bytes(), self.prelude.as_os_str().as_encoded_bytes(), header.as_bytes()];
        let place = self.cache.path(&CacheKey::of(arguments.into_iter().chain(fixed)), "pch");
        if self.cache.is_sound(&place) {
            return Ok(place);
        }
        let scratch = self.cache.scratch("pch");
        command
            .args(["-c", "-Wno-invalid-constexpr", "-Xclang", "-emit-pch", "-Xclang", "-fno-pch-timestamp", "-o"])
            .arg(&scratch)
            .arg(self.prelude.join(header));
        compile(&mut command, &[], "the prelude of the rules")?;
        self.cache.write_sealed(&place, fs::read(&scratch).map_err(|cause| elinvar_core::cache_error("read", &scratch, cause))?)?;
        fs::remove_file(&scratch).map_err(|cause| elinvar_core::cache_error("remove", &scratch, cause))?;
        Ok(place)
    }
}

/// Whether something like it is known of its line: tokens show some of what clang rejects.
fn is_known(lints: &[Lint], lint: &Lint) -> bool {
    lints.iter().any(|known| (&known.location.file, known.location.line, known.rule) == (&lint.location.file, lint.location.line, lint.rule))
}
