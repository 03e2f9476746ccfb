//! Metal source, and the kernels compiled from it.

#[cfg(test)]
mod against_clang;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use elinvar_core::{CacheKey, ConstantValue, Error, Result};
use elinvar_metallib::{CompiledLibrary, Kernels, air};
use elinvar_msl::{Folders, FunctionConstant, Kernel, Lint, METAL_VERSION, MetalHeaders, Module, Parameter, ParameterKind, simulator};
use rayon::prelude::*;

use crate::{
    compile::{Compiler, Math, Place, Subnormals, Target},
    confinement,
    loaded::Loaded,
    symbols::COMPILATION_FOLDER,
};

/// Kernels that one run of the compiler takes: reading the source costs as much as several of them, and a file may hold thousands.
const KERNELS_PER_RUN: usize = 24;

/// A Metal source text.
#[derive(Clone, Debug)]
pub struct Source {
    /// What messages call it.
    pub name: String,
    /// The text.
    pub text: String,
    /// Where its `#include "…"` are looked for first.
    pub folder: Option<PathBuf>,
}

impl Source {
    /// A text that includes nothing from a folder of its own.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), folder: None }
    }

    /// A file.
    ///
    /// # Errors
    /// It cannot be read, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|cause| Error::io(format!("cannot read {}: {cause}", path.display())))?;
        let folder = path.parent().map(Path::to_owned).filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| PathBuf::from("."));
        Ok(Self { name: path.display().to_string(), text, folder: Some(folder) })
    }
}

/// How a source is compiled.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Where `#include <…>` (and quoted ones, after the source's own folder) are looked for.
    pub include_dirs: Vec<PathBuf>,
    /// `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
    /// The version of Metal, as `__METAL_VERSION__` has it: 310 is Metal 3.1.
    pub metal_version: u32,
    /// Floating-point arithmetic.
    pub math: Math,
    /// Subnormal numbers.
    pub subnormals: Subnormals,
    /// Whether the kernels check every access while they run.
    pub checked: bool,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            include_dirs: Vec::new(),
            defines: Vec::new(),
            metal_version: METAL_VERSION,
            math: Math::Safe,
            subnormals: Subnormals::Keep,
            checked: true,
        }
    }
}

/// A constant's value as the lowered text takes it.
fn expression(value: ConstantValue) -> String {
    match value {
        ConstantValue::Bool(value) => value.to_string(),
        ConstantValue::Int(i64::MIN) => "(-9223372036854775807l-1)".to_owned(),
        ConstantValue::Int(value) => format!("({value}l)"),
        ConstantValue::Uint(value) => format!("{value}ul"),
        ConstantValue::Float(value) => format!("__builtin_bit_cast(float,{}u)", value.to_bits()),
    }
}

/// A source that was read, or a compiled library: what its kernels are. They are compiled when pipelines are made of them.
#[derive(Clone)]
pub struct Library {
    compiler: Arc<Compiler>,
    name: String,
    kernels: Kernels,
    /// Of the lowered text, or of how functions of compiled libraries are lowered.
    fingerprint: CacheKey,
    options: CompileOptions,
    loaded: Arc<Mutex<HashMap<PathBuf, Arc<Loaded>>>>,
}

impl Library {
    pub(crate) fn new(compiler: Arc<Compiler>, source: &Source, options: &CompileOptions) -> Result<Self> {
        let preprocessed = preprocess(source, options)?;
        let module = Arc::new(Module::read(&preprocessed)?);
        // Without entry points, so that a kernel is found again whichever instantiations stand beside it; and without the name of a text that is no file, which
        // is that of one kernel among them.
        let mut text = module.lower_for_simulator(&[])?.text;
        if source.folder.is_none() {
            text = text.replace(&format!(" \"{}\"\n", source.name), "\n");
        }
        let fingerprint = CacheKey::of([text.as_bytes(), simulator::ENTRIES]);
        let kernels = Kernels::Text(module);
        Ok(Self { compiler, name: source.name.clone(), kernels, fingerprint, options: options.clone(), loaded: Arc::default() })
    }

    pub(crate) fn of_compiled(compiler: Arc<Compiler>, name: &str, file: Arc<[u8]>, options: &CompileOptions) -> Result<Self> {
        let kernels = Kernels::Compiled(CompiledLibrary::read(name, file)?);
        let fingerprint = compiler.lowering_key(name);
        Ok(Self { compiler, name: name.to_owned(), kernels, fingerprint, options: options.clone(), loaded: Arc::default() })
    }

    /// Its kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// What Apple's compiler would reject of the text, with the kernels named instantiated: clang reads it once more, by Metal's rules.
    ///
    /// # Errors
    /// No such kernel; the compiler cannot be run.
    pub fn judge(&self, kernels: &[&str]) -> Result<Vec<Lint>> {
        match &self.kernels {
            Kernels::Text(module) => self.compiler.judge()?.judge(module, kernels, self.options.metal_version),
            // Apple's compiler has accepted it.
            Kernels::Compiled(_) => Ok(Vec::new()),
        }
    }

    /// Compiles (or finds in the cache) a kernel, with values for function constants by index.
    ///
    /// # Errors
    /// No such kernel or function constant; it does not compile: the compiler's messages at the source's own lines.
    pub fn pipeline(&self, kernel: &str, constants: &[(u32, ConstantValue)]) -> Result<Pipeline> {
        let target = self.target(kernel, constants)?;
        let place = match self.compiler.find(&self.key(kernel, &target)?) {
            Some(place) => place,
            None => match &self.kernels {
                Kernels::Text(module) => {
                    let places = self.compile(module, &[kernel], &target)?;
                    places.into_iter().next().ok_or_else(|| Error::compile_failed(format!("{}: no entry", self.name)))?
                }
                Kernels::Compiled(library) => self.compile_function(library, kernel, constants, &target)?,
            },
        };
        self.make(kernel, constants, &place)
    }

    /// Compiles many kernels with the same values for function constants into the cache: several in one run of the compiler, several runs at once.
    ///
    /// # Errors
    /// As [`Library::pipeline`].
    pub fn compile_all(&self, kernels: &[&str], constants: &[(u32, ConstantValue)]) -> Result<()> {
        let mut missing = Vec::new();
        for kernel in kernels.iter().copied() {
            let target = self.target(kernel, constants)?;
            if self.compiler.find(&self.key(kernel, &target)?).is_none() {
                missing.push((kernel, target));
            }
        }
        match &self.kernels {
            Kernels::Text(module) => missing.par_chunks(KERNELS_PER_RUN).try_for_each(|chunk| {
                let names: Vec<&str> = chunk.iter().map(|(kernel, _)| *kernel).collect();
                self.compile(module, &names, &chunk[0].1).map(drop)
            }),
            Kernels::Compiled(library) => {
                missing.par_iter().try_for_each(|(kernel, target)| self.compile_function(library, kernel, constants, target).map(drop))
            }
        }
    }

    /// The key that a kernel is found by in the cache.
    fn key(&self, kernel: &str, target: &Target) -> Result<CacheKey> {
        match &self.kernels {
            Kernels::Text(_) => Ok(self.compiler.kernel_key(&self.fingerprint, kernel, target)),
            Kernels::Compiled(library) => {
                let code = CacheKey::of([self.fingerprint.as_bytes(), library.bitcode(kernel)?]);
                Ok(self.compiler.kernel_key(&code, kernel, target))
            }
        }
    }

    /// Pipelines of many kernels without function constants, as [`Library::compile_all`] compiles them.
    ///
    /// # Errors
    /// As [`Library::pipeline`].
    pub fn pipelines(&self, kernels: &[&str]) -> Result<Vec<Pipeline>> {
        self.compile_all(kernels, &[])?;
        kernels.par_iter().map(|kernel| self.pipeline(kernel, &[])).collect()
    }

    fn target(&self, kernel: &str, constants: &[(u32, ConstantValue)]) -> Result<Target> {
        let CompileOptions { checked, math, subnormals, .. } = self.options;
        Ok(Target { checked, math, subnormals, constants: self.definitions(kernel, constants)? })
    }

    fn compile(&self, module: &Module, kernels: &[&str], target: &Target) -> Result<Vec<Place>> {
        let lowered = module.lower_for_simulator(kernels)?;
        let library = self.compiler.kernels(&self.name, &lowered.text, target)?;
        let mut places = Vec::new();
        for entry in lowered.entries {
            let place = Place { library: library.clone(), symbol: entry.symbol };
            self.compiler.remember(&self.key(&entry.kernel, target)?, &place)?;
            places.push(place);
        }
        Ok(places)
    }

    fn compile_function(&self, library: &CompiledLibrary, name: &str, constants: &[(u32, ConstantValue)], target: &Target) -> Result<Place> {
        let bitcode = library.bitcode(name)?;
        let what = format!("{}, function `{name}`", library.name());
        let kernel = library.kernel(name)?;
        let module = self.compiler.toolchain().clang().disassemble(bitcode, &what)?;
        let lower = |runtime: &_| {
            let request = air::Request {
                library: library.name(),
                kernel: &kernel,
                constants,
                contracted: target.math == Math::Fast,
                machine: air::Machine::Simulator(air::Simulator { checked: target.checked, folder: COMPILATION_FOLDER }),
                runtime,
            };
            air::lower(&module, &request)
        };
        let place = Place { library: self.compiler.compiled(&what, target, lower)?, symbol: air::SIMULATOR_ENTRY.to_owned() };
        self.compiler.remember(&self.key(name, target)?, &place)?;
        Ok(place)
    }

    fn make(&self, kernel: &str, constants: &[(u32, ConstantValue)], place: &Place) -> Result<Pipeline> {
        let load = || {
            let loaded = self.load(&place.library)?;
            let entry = loaded.entry(&place.symbol)?;
            Ok((loaded, entry))
        };
        let (loaded, entry) = confinement::load(load, |(loaded, _)| loaded.prepare())?;
        let (kernel, known) = (self.kernels.kernel(kernel)?, self.kernels.constants(kernel)?);
        let required = kernel.parameters.iter().map(|parameter| is_required(parameter, known, constants)).collect();
        Ok(Pipeline(Arc::new(Compiled { kernel, required, entry, checked: self.options.checked, loaded })))
    }

    fn definitions(&self, kernel: &str, constants: &[(u32, ConstantValue)]) -> Result<Vec<String>> {
        let known = self.kernels.constants(kernel)?;
        let mut definitions = Vec::new();
        for (index, value) in constants {
            if !known.iter().any(|constant| constant.index == *index) {
                let all: Vec<_> = known.iter().map(|constant| format!("{} (`{}`)", constant.index, constant.name)).collect();
                return Err(Error::invalid_argument(format!(
                    "{} has no function constant {index}; it has {}",
                    self.name,
                    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
                )));
            }
            definitions.push(format!("-DELV_CONSTANT_{index}={}", expression(*value)));
        }
        definitions.sort();
        Ok(definitions)
    }

    fn load(&self, path: &Path) -> Result<Arc<Loaded>> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = loaded.get(path) {
            return Ok(found.clone());
        }
        let new = Arc::new(Loaded::open(path)?);
        loaded.insert(path.to_owned(), new.clone());
        Ok(new)
    }
}

/// Whether an argument must be bound: a function constant may say that there is none.
fn is_required(parameter: &Parameter, known: &[FunctionConstant], constants: &[(u32, ConstantValue)]) -> bool {
    let Some(condition) = &parameter.condition else { return true };
    let index = known.iter().find(|constant| constant.name == *condition).map(|constant| constant.index);
    constants.iter().any(|(given, value)| Some(*given) == index && *value == ConstantValue::Bool(true))
}

/// The text with macros expanded and files included.
///
/// # Errors
/// A file that is not found, or what the preprocessor rejects, with its line.
pub fn preprocess(source: &Source, options: &CompileOptions) -> Result<String> {
    let version = options.metal_version.to_string();
    let given = options.defines.iter().map(|define| define.split_once('=').unwrap_or((define, "1")));
    let defines: Vec<(&str, &str)> = [("__METAL_VERSION__", version.as_str())].into_iter().chain(given).collect();
    if source.folder.is_none() && options.include_dirs.is_empty() {
        return elinvar_msl::preprocess(&source.name, &source.text, &defines, &MetalHeaders);
    }
    let folders = Folders { quoted: source.folder.iter().cloned().collect(), all: options.include_dirs.clone() };
    elinvar_msl::preprocess(&source.name, &source.text, &defines, &folders)
}

/// A compiled kernel.
#[derive(Clone)]
pub struct Pipeline(pub(crate) Arc<Compiled>);

pub(crate) struct Compiled {
    pub(crate) kernel: Kernel,
    /// For each parameter, whether a dispatch must bind it.
    pub(crate) required: Vec<bool>,
    pub(crate) entry: crate::abi::Entry,
    pub(crate) checked: bool,
    pub(crate) loaded: Arc<Loaded>,
}

impl Pipeline {
    /// The kernel's signature.
    pub fn kernel(&self) -> &Kernel {
        &self.0.kernel
    }

    /// Whether the kernel may write what is bound to `index`.
    pub(crate) fn writes(&self, index: u32) -> bool {
        self.0
            .kernel
            .parameters
            .iter()
            .any(|parameter| matches!(parameter.kind, ParameterKind::Buffer { index: at, written: true, .. } if at == index))
    }

    /// Whether it checks its accesses.
    pub fn is_checked(&self) -> bool {
        self.0.checked
    }
}
