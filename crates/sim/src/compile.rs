//! From a lowered text to a loadable library: compile, link. What was made once is found in the cache.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use elinvar_core::{Cache, CacheKey, Result};
use elinvar_metallib::air::{self, Runtime};
use elinvar_msl::simulator;

use crate::{
    cache::{self, folder},
    instrument::instrument,
    rules::Judge,
    subnormals,
    symbols::{COMPILATION_FOLDER, PRELUDE_FOLDER},
    toolchain::{Toolchain, compile},
};

const RUNTIME: &[(&str, &str)] = &[
    ("runtime.cpp", include_str!("runtime/runtime.cpp")),
    ("access.h", include_str!("runtime/access.h")),
    ("context.h", include_str!("runtime/context.h")),
];
const RUNTIME_FLAGS: &[&str] =
    &["-x", "c++", "-std=c++17", "-nostdinc", "-O2", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-stack-protector", "-fno-omit-frame-pointer"];
const KERNEL_FLAGS: &[&str] = &[
    "-x",
    "clcpp",
    "-cl-std=clc++2021",
    "-cl-no-stdinc",
    "-Xclang",
    "-cl-ext=all",
    "-cl-single-precision-constant",
    // Each operation on narrow numbers rounds, as on a GPU.
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-fbfloat16-excess-precision=none",
    "-fno-stack-protector",
    "-fno-finite-loops",
    "-fstack-clash-protection",
    "-gline-tables-only",
];
const OPTIMISATION_FLAGS: &[&str] = &["-w", "-fPIC", "-fno-vectorize", "-fno-slp-vectorize", "-O1"];
/// Instrumentation for the callbacks in `runtime/runtime.cpp`. An array at the end of a structure has its declared length; what gets a pointer to a
/// private array is inlined where it can be, so that its accesses are checked too; frame pointers let a finding in a called function name its caller.
const CHECKED_FLAGS: &[&str] = &[
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-fsanitize=array-bounds,alignment,integer-divide-by-zero",
    "-fstrict-flex-arrays=3",
    "-mllvm",
    "-inline-threshold=10000",
    "-fno-omit-frame-pointer",
];
/// Makes the representation that [`instrument`] adds checks to.
const UNOPTIMISED_FLAGS: &[&str] = &["-Xclang", "-disable-llvm-passes", "-fno-discard-value-names", "-emit-llvm", "-S"];

/// What is added to checked kernels is part of what they are made from.
const INSTRUMENTATION: &[u8] = include_bytes!("instrument.rs");
/// What is changed in kernels that flush subnormals is, too.
const FLUSHING: &[u8] = include_bytes!("subnormals.rs");

/// Compiles for one toolchain into one cache.
pub(crate) struct Compiler {
    toolchain: Toolchain,
    cache: Cache,
    prelude: PathBuf,
    runtime: PathBuf,
}

/// How the compiler may treat floating-point arithmetic. It never reassociates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Math {
    /// As written.
    #[default]
    Safe,
    /// Products and sums may be contracted to fused multiply-adds.
    Fast,
}

/// What becomes of subnormal `float` and `bfloat` numbers; those of `half` are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Subnormals {
    /// Operations take and give them, as IEEE 754 says.
    #[default]
    Keep,
    /// Arithmetic, comparisons and conversions take them for zero, and give zero in place of one, as Apple's GPUs do. What moves or changes bits does not.
    Flush,
}

/// Everything but the text that decides what is compiled.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) checked: bool,
    pub(crate) math: Math,
    pub(crate) subnormals: Subnormals,
    /// `-D` for each function constant.
    pub(crate) constants: Vec<String>,
}

impl Target {
    fn flags(&self) -> Vec<&'static str> {
        let mut flags = [KERNEL_FLAGS, OPTIMISATION_FLAGS, machine_flags()].concat();
        flags.push(match self.math {
            Math::Safe => "-ffp-contract=off",
            Math::Fast => "-ffp-contract=on",
        });
        if self.subnormals == Subnormals::Flush {
            flags.push("-DELV_FLUSH_SUBNORMALS");
        }
        if self.checked {
            flags.extend(CHECKED_FLAGS);
        }
        flags
    }

    /// What changes the compiler's own representation.
    fn passes<'a>(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        [INSTRUMENTATION].into_iter().chain((self.subnormals == Subnormals::Flush).then_some(FLUSHING))
    }
}

/// A compiled kernel: the library and the symbol of its entry point.
pub(crate) struct Place {
    pub(crate) library: PathBuf,
    pub(crate) symbol: String,
}

impl Compiler {
    pub(crate) fn new(toolchain: Toolchain, cache: Cache) -> Result<Self> {
        let functions = ("math.metal", elinvar_math::METAL.text);
        let prelude = folder(&cache, "prelude", &[simulator::PRELUDE, &[functions]].concat())?;
        let sources = folder(&cache, "runtime", RUNTIME)?;
        let mut compiler = Self { toolchain, cache, prelude, runtime: PathBuf::new() };
        compiler.runtime = compiler.runtime_library(&sources)?;
        Ok(compiler)
    }

    /// The library that must be loaded before any kernel.
    pub(crate) fn runtime(&self) -> &Path {
        &self.runtime
    }

    pub(crate) fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    /// The key of one kernel of a text, whichever library it is compiled into.
    pub(crate) fn kernel_key(&self, text: &CacheKey, kernel: &str, target: &Target) -> CacheKey {
        let mut command = self.toolchain.compiler();
        command.args(target.flags()).args(&target.constants);
        let made_of = [text.as_bytes(), kernel.as_bytes()];
        self.key(&command, made_of.into_iter().chain(target.passes()))
    }

    /// Where a kernel was compiled to, if it was.
    pub(crate) fn find(&self, key: &CacheKey) -> Option<Place> {
        let found = fs::read_to_string(self.cache.path(key, "kernel")).ok()?;
        let (library, symbol) = found.trim_end().split_once(' ')?;
        let library = self.cache.folder().join(library);
        self.cache.is_sound(&library).then(|| Place { library, symbol: symbol.to_owned() })
    }

    pub(crate) fn remember(&self, key: &CacheKey, place: &Place) -> Result<()> {
        let library = place.library.file_name().unwrap_or_default().to_string_lossy();
        self.cache.write(&self.cache.path(key, "kernel"), format!("{library} {}\n", place.symbol).as_bytes())
    }

    /// The library for a lowered text.
    pub(crate) fn kernels(&self, name: &str, lowered: &str, target: &Target) -> Result<PathBuf> {
        let flags = target.flags();
        let mut command = self.toolchain.compiler();
        command.args(&flags).args(&target.constants);
        let key = self.key(&command, [lowered.as_bytes()].into_iter().chain(target.passes()));
        self.cached(&key, |object| {
            let header = self.precompiled(&flags)?;
            self.add_places(&mut command);
            command.args(["-fno-color-diagnostics", "-fno-caret-diagnostics", "-include-pch"]).arg(&header);
            if !target.checked && target.subnormals == Subnormals::Keep {
                return compile(command.args(["-c", "-o"]).arg(object).arg("-"), lowered.as_bytes(), name).map(drop);
            }
            let module = compile(command.args(UNOPTIMISED_FLAGS).args(["-o", "-", "-"]), lowered.as_bytes(), name)?;
            let mut module = String::from_utf8_lossy(&module).into_owned();
            let mut command = self.toolchain.compiler();
            command.args(["-x", "ir"]).args(OPTIMISATION_FLAGS).args(machine_flags());
            if target.subnormals == Subnormals::Flush {
                module = subnormals::flush(&module);
            }
            if target.checked {
                module = instrument(&module);
                command.args(CHECKED_FLAGS);
            }
            compile(command.args(["-c", "-o"]).arg(object).arg("-"), module.as_bytes(), name).map(drop)
        })
    }

    /// The key of how functions of a compiled library are lowered.
    pub(crate) fn lowering_key(&self, library: &str) -> CacheKey {
        CacheKey::of([library.as_bytes(), air::SIMULATOR_RUNTIME.as_bytes()].into_iter().chain(air::LOWERING.iter().copied()))
    }

    /// The library for a function of a compiled library, which `lower` rewrites for the functions that there are.
    pub(crate) fn compiled(&self, name: &str, target: &Target, lower: impl FnOnce(&HashSet<String>) -> Result<String>) -> Result<PathBuf> {
        let Runtime { bitcode: runtime, functions } = self.air_runtime(target)?;
        let mut module = lower(&functions)?;
        let mut command = self.toolchain.compiler();
        command.args(["-x", "ir"]).args(OPTIMISATION_FLAGS).args(machine_flags());
        let key = self.key(&command, [module.as_bytes(), runtime.as_os_str().as_encoded_bytes()].into_iter().chain(target.passes()));
        self.cached(&key, |object| {
            if target.subnormals == Subnormals::Flush {
                module = subnormals::flush(&module);
            }
            if target.checked {
                module = instrument(&module);
                command.args(CHECKED_FLAGS);
            }
            command.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]).arg(&runtime);
            compile(command.args(["-c", "-o"]).arg(object).arg("-"), module.as_bytes(), name).map(drop)
        })
    }

    /// The bitcode of the functions that compiled libraries call, and their names.
    fn air_runtime(&self, target: &Target) -> Result<Runtime> {
        let flags = target.flags();
        let mut command = self.toolchain.compiler();
        command.args(&flags);
        let key = self.key(&command, [air::SIMULATOR_RUNTIME.as_bytes()].into_iter().chain(target.passes()));
        let what = "the functions that compiled Metal libraries call";
        let module = || {
            self.add_places(&mut command);
            command.arg("-include-pch").arg(self.precompiled(&flags)?).args(UNOPTIMISED_FLAGS).args(["-o", "-", "-"]);
            let mut module = String::from_utf8_lossy(&compile(&mut command, air::SIMULATOR_RUNTIME.as_bytes(), what)?).into_owned();
            if target.subnormals == Subnormals::Flush {
                module = subnormals::flush(&module);
            }
            Ok(if target.checked { instrument(&module) } else { module })
        };
        let assemble = |module: &str| {
            let mut command = self.toolchain.compiler();
            command.args(["-x", "ir", "-c", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-w", "-o", "-", "-"]).args(machine_flags());
            compile(&mut command, module.as_bytes(), what)
        };
        Runtime::find(&self.cache, &key, module, assemble)
    }

    /// What judges texts by the rules of Apple's compiler.
    pub(crate) fn judge(&self) -> Result<Judge> {
        Judge::new(self.toolchain.clone(), self.cache.clone())
    }

    /// The prelude, read by the compiler once for each set of flags.
    fn precompiled(&self, flags: &[&str]) -> Result<PathBuf> {
        let mut command = self.toolchain.compiler();
        command.args(flags).args(["-Xclang", "-emit-pch", "-Xclang", "-fno-pch-timestamp", "-Wno-invalid-constexpr"]);
        let place = self.cache.path(&self.key(&command, []), "pch");
        if self.cache.is_sound(&place) {
            return Ok(place);
        }
        let scratch = self.cache.scratch("pch");
        self.add_places(&mut command);
        compile(command.args(["-c", "-o"]).arg(&scratch).arg(self.prelude.join("msl.h")), &[], "the Metal prelude")?;
        cache::seal(&self.cache, &scratch, &place).map(|()| place)
    }

    /// Names in line tables that do not depend on the machine.
    fn add_places(&self, command: &mut Command) {
        command.arg(format!("-ffile-prefix-map={}={PRELUDE_FOLDER}", self.prelude.display()));
        command.arg(format!("-fdebug-compilation-dir={COMPILATION_FOLDER}"));
    }

    fn runtime_library(&self, sources: &Path) -> Result<PathBuf> {
        let mut command = self.toolchain.compiler();
        command.args(RUNTIME_FLAGS).args(machine_flags());
        let key = self.key(&command, RUNTIME.iter().map(|(_, text)| text.as_bytes()));
        self.cached(&key, |object| {
            command.arg(format!("-I{}", self.prelude.display())).args(["-c", "-o"]).arg(object).arg(sources.join("runtime.cpp"));
            compile(&mut command, &[], "the simulator's runtime").map(drop)
        })
    }

    /// Of a command's arguments, the compiler, the prelude, the runtime that libraries are linked with, and `inputs`.
    fn key<'a>(&'a self, command: &'a Command, inputs: impl IntoIterator<Item = &'a [u8]>) -> CacheKey {
        let arguments: Vec<&[u8]> = command.get_args().map(|argument| argument.as_encoded_bytes()).collect();
        let [prelude, runtime] = [&self.prelude, &self.runtime].map(|path| path.as_os_str().as_encoded_bytes());
        let fixed = [self.toolchain.clang().version().as_bytes(), prelude, runtime];
        CacheKey::of(arguments.into_iter().chain(fixed).chain(inputs))
    }

    /// The library under `key`; without one, what `compile` makes an object file of, linked.
    fn cached(&self, key: &CacheKey, compile: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let place = self.cache.path(key, "so");
        if self.cache.is_sound(&place) {
            return Ok(place);
        }
        let (object, library) = (self.cache.scratch("o"), self.cache.scratch("so"));
        let made = compile(&object).and_then(|()| self.link(&object, &library, &place)).and_then(|()| cache::seal(&self.cache, &library, &place));
        for scratch in [object, library] {
            // Already gone when it was kept.
            let _ = fs::remove_file(scratch);
        }
        made.map(|()| place)
    }

    fn link(&self, object: &Path, library: &Path, place: &Path) -> Result<()> {
        let mut command = self.toolchain.linker();
        command.args(["-shared", "-Bsymbolic", "-o"]).arg(library).arg(object);
        if self.runtime.as_os_str().is_empty() {
            command.arg("-soname").args(place.file_name());
        } else {
            command.arg(&self.runtime);
        }
        compile(&mut command, &[], "linking a kernel").map(drop)
    }
}

/// Fixed for each processor architecture, so that a shared cache serves different machines: the fused multiply-add and the half-precision
/// conversions, without which kernels would be far slower. Not bfloat's, which flush denormals.
fn machine_flags() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") && std::arch::is_x86_feature_detected!("f16c") {
        return &["-march=x86-64-v3"];
    }
    &[]
}
