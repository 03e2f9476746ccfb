//! From a kernel's forms to machine code: preprocess and lower (the `msl` crate), compile (NVRTC). What was made once is found in the cache.

use std::{collections::HashMap, path::Path, sync::Arc};

use elinvar_core::{Cache, CacheKey, CompiledMetal, ConstantValue, Error, KernelSource, Metal, MetalCode, MetalForm, Result, UserMetal};
use elinvar_kernels::cuda::{CudaArchitecture, CudaForm, CudaSource};
use elinvar_msl::{
    Kernel, Module, ParameterKind,
    cuda::{self, CudaEntry, Threadgroups},
};

use crate::{
    nvrtc::{Nvrtc, Request},
    ptx::{LibraryCompiler, Ptx},
};

/// Compiles kernels for NVIDIA GPUs; none need be there.
pub struct Compiler {
    nvrtc: Nvrtc,
    cache: Cache,
    libraries: LibraryCompiler,
    texts: HashMap<String, String>,
}

/// Where a kernel's argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The address of a binding, by index; null if it is absent.
    Buffer(usize),
    /// The parameter block.
    Params,
    /// The address of the launch's error flag.
    ErrorFlag,
    /// Where the threadgroup memory of this number starts: bytes from the first.
    Threadgroup(usize),
    /// The grid's threads.
    Threads,
}

/// A kernel in machine code.
pub(crate) struct Entry {
    pub(crate) symbol: String,
    pub(crate) arguments: Vec<Slot>,
    /// Whether it may start before the launch before it ends, for which it waits itself.
    pub(crate) overlaps: bool,
}

/// Machine code of kernels.
pub(crate) struct Code {
    pub(crate) image: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

/// The compute capability from which launches overlap.
const OVERLAPPING: u32 = 90;

/// Options for texts that are CUDA C++ as they stand.
const PLAIN: [&str; 2] = ["--std=c++17", "-default-device"];

/// The file of texts whose kernels wait themselves for the launches ahead.
const WAITING: &str = "metal/launches.metal";

/// Everything but headers that a run of the compiler gets.
struct Text<'a> {
    name: &'a str,
    text: &'a str,
    target: String,
    fast_math: bool,
    headers: &'a [(&'a str, &'a str)],
    options: Vec<String>,
}

impl Compiler {
    /// With NVRTC as it is found, and a folder for what was compiled (by default, the user's cache folder).
    ///
    /// # Errors
    /// No NVRTC, or the folder cannot be made.
    pub fn new(cache: Option<&Path>) -> Result<Self> {
        Ok(Self { nvrtc: Nvrtc::find()?, cache: Cache::open(cache, "cuda")?, libraries: LibraryCompiler::new(cache)?, texts: HashMap::new() })
    }

    /// The same with other texts for some files of the kernels, by name.
    pub fn with_texts(self, texts: HashMap<String, String>) -> Self {
        Self { texts, ..self }
    }

    /// NVRTC's version.
    pub fn version(&self) -> [i32; 2] {
        self.nvrtc.version()
    }

    /// Whether the compiler makes code for a compute capability (90 for 9.0).
    ///
    /// # Errors
    /// It does not; the message says what to do.
    pub fn check_architecture(&self, capability: u32) -> Result<()> {
        self.nvrtc.check_architecture(capability)
    }

    /// Compiles one kernel in CUDA C++, or kernels that share one Metal text in one run of the compiler for launches of such threadgroups, and gives the size
    /// of their machine code.
    ///
    /// # Errors
    /// They do not compile; or they do not share a text.
    pub fn check(&self, kernels: &[&KernelSource], threadgroups: Threadgroups, capability: u32) -> Result<usize> {
        if let [kernel] = kernels
            && let Some(CudaForm::Source(source)) = kernel.native()
        {
            return Ok(self.source(kernel, source, capability)?.image.len());
        }
        let shared = |kernel: &&KernelSource| {
            Some(match kernel.metal.as_ref()? {
                Metal::Form(form) => (self.text(form), form.fast_math),
                Metal::User(user) => (user_text(user).ok()?.to_owned(), user.fast_math),
            })
        };
        let first = kernels.first().and_then(shared).ok_or_else(|| Error::invalid_argument("no kernel with a Metal text"))?;
        if kernels.iter().any(|kernel| shared(kernel).as_ref() != Some(&first)) {
            return Err(Error::invalid_argument("kernels of different texts cannot be compiled together"));
        }
        Ok(self.metal(kernels, threadgroups, capability)?.image.len())
    }

    /// The kernel's code for a compute capability and launches of such threadgroups.
    pub(crate) fn compile(&self, kernel: &KernelSource, threadgroups: Threadgroups, capability: u32) -> Result<Code> {
        match kernel.native() {
            Some(CudaForm::Source(_)) if threadgroups == Threadgroups::Nonuniform => {
                Err(Error::unsupported(format!("{} runs over whole threadgroups only: round the threads up", kernel.key)))
            }
            Some(CudaForm::Source(source)) => self.source(kernel, source, capability),
            Some(CudaForm::MatrixProduct | CudaForm::AllGather) => Err(Error::invalid_launch(format!("{} has no text to compile", kernel.key))),
            None => match &kernel.metal {
                Some(Metal::User(user)) => match &user.code {
                    MetalCode::Library(library) => self.library(kernel, user, library, threadgroups, capability),
                    MetalCode::Text(_) => self.metal(&[kernel], threadgroups, capability),
                },
                Some(Metal::Form(_)) | None => self.metal(&[kernel], threadgroups, capability),
            },
        }
    }

    fn text(&self, form: &MetalForm) -> String {
        form.text(|file| self.texts.get(file.name).map_or(file.text, String::as_str))
    }

    /// The code of kernels that share their text.
    fn metal(&self, kernels: &[&KernelSource], threadgroups: Threadgroups, capability: u32) -> Result<Code> {
        let found = kernels.first().and_then(|first| Some((first.metal.as_ref()?, first)));
        let (metal, first) = found.ok_or_else(|| Error::unsupported("a kernel without a form for a GPU"))?;
        let name = metal.kernel(&first.key);
        let module = match metal {
            Metal::Form(form) => {
                let form_of = |kernel: &KernelSource| kernel.metal.as_ref().and_then(Metal::form).copied().unwrap_or(*form);
                let instances: String = kernels.iter().map(|kernel| form_of(kernel).instance(&kernel.key)).collect();
                // Launches may overlap, and an instruction chooses bytes; from compute capability 8.0 on, loads carry cache hints, and conversions to bfloat are
                // an instruction that keeps denormals; from 9.0 on, there are clusters.
                const DEFINES: [(&str, &str); 6] = [
                    ("OVERLAPPING_LAUNCHES", "1"),
                    ("BYTE_TABLES", "1"),
                    ("CACHE_HINTS", "1"),
                    ("EXACT_BFLOAT", "1"),
                    ("INTEGER_DOTS", "1"),
                    ("CLUSTERS", "1"),
                ];
                let defines = match capability {
                    ..80 => &DEFINES[..2],
                    80..90 => &DEFINES[..5],
                    90.. => &DEFINES,
                };
                Module::read(&elinvar_msl::preprocess(&name, &(self.text(form) + &instances), defines, &elinvar_msl::MetalHeaders)?)?
            }
            Metal::User(user) => Module::read(user_text(user)?)?,
        };
        let names: Vec<_> = kernels.iter().map(|kernel| kernel.metal.as_ref().unwrap_or(metal).kernel(&kernel.key)).collect();
        let inline: Vec<_> = kernels.iter().map(|kernel| (kernel.params_bytes > 0).then_some(kernel.parameters.len() as u32)).collect();
        // What a caller's own text calls its functions says nothing: its entries wait.
        let wait = metal.form().is_some_and(|form| form.files.iter().any(|file| file.name == WAITING));
        let prefetched: Vec<_> = kernels.iter().map(|kernel| prefetched(kernel)).collect();
        let buffers = inline.iter().zip(&prefetched).map(|(inline, prefetched)| (inline.as_slice(), wait.then_some(prefetched.as_slice())));
        let clusters = kernels.iter().map(|kernel| kernel.metal.as_ref().and_then(Metal::form).map_or(1, |form| form.cluster));
        let wanted = names.iter().zip(buffers).zip(clusters);
        let wanted: Vec<_> = wanted.map(|((kernel, (inline, prefetched)), cluster)| CudaEntry { kernel, inline, prefetched, cluster }).collect();
        let lowered = module.lower_for_cuda(&wanted, threadgroups)?;
        let mut entries = Vec::new();
        for (kernel, entry) in kernels.iter().zip(lowered.entries) {
            let read = module.kernels().iter().find(|read| read.name == entry.kernel);
            let read = read.ok_or_else(|| Error::compile_failed(format!("{}: its text has no such kernel", kernel.key)))?;
            let mut arguments = arguments(kernel, kernel.metal.as_ref().unwrap_or(metal), read)?;
            arguments.extend(entry.grid.then_some(Slot::Threads));
            entries.push(Entry { symbol: entry.symbol, arguments, overlaps: capability >= OVERLAPPING });
        }
        let constants = metal.constants().iter().map(|&(index, value)| format!("--define-macro=ELV_CONSTANT_{index}={}", expression(value)));
        let registers = format!("--maxrregcount={}", metal.registers().unwrap_or(cuda::REGISTERS));
        let options = cuda::OPTIONS.iter().map(|&option| option.to_owned()).chain([registers]).chain(constants).collect();
        let target = format!("sm_{capability}");
        let text = Text { name: &name, text: &lowered.text, target, fast_math: metal.fast_math(), headers: cuda::PRELUDE, options };
        Ok(Code { image: self.cached(&text)?, entries })
    }

    fn library(
        &self,
        kernel: &KernelSource,
        user: &Arc<UserMetal>,
        library: &CompiledMetal,
        threadgroups: Threadgroups,
        capability: u32,
    ) -> Result<Code> {
        let Ptx { text, symbol, kernel: read } = self.libraries.compile(user, library, threadgroups, capability)?;
        let mut arguments = arguments(kernel, &Metal::User(user.clone()), &read)?;
        arguments.push(Slot::Threads);
        Ok(Code { image: text, entries: vec![Entry { symbol, arguments, overlaps: capability >= OVERLAPPING }] })
    }

    fn source(&self, kernel: &KernelSource, source: &CudaSource, capability: u32) -> Result<Code> {
        let target = match source.architecture {
            CudaArchitecture::From(_) => format!("sm_{capability}"),
            CudaArchitecture::Only(one) => format!("sm_{one}a"),
        };
        let mut text = String::new();
        for file in source.files {
            let content = self.texts.get(file.name).map_or(file.text, String::as_str);
            text += &format!("#line 1 \"{}\"\n{content}\n", file.name);
        }
        let defines = source.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}"));
        let options = PLAIN.map(str::to_owned).into_iter().chain(defines).collect();
        let name = kernel.key.to_string();
        let image = self.cached(&Text { name: &name, text: &text, target, fast_math: false, headers: &[], options })?;
        let params = (kernel.params_bytes > 0).then_some(Slot::Params);
        let rejection = source.rejection.map(|_| Slot::ErrorFlag);
        let arguments = (0..kernel.parameters.len()).map(Slot::Buffer).chain(params).chain(rejection).collect();
        Ok(Code {
            image,
            entries: vec![Entry { symbol: source.entry.to_owned(), arguments, overlaps: source.overlaps && capability >= OVERLAPPING }],
        })
    }

    /// The code of a kernel of the device's own, in CUDA C++, to be launched with two addresses. It waits for the launches ahead itself.
    pub(crate) fn own(&self, symbol: &str, text: &str, capability: u32) -> Result<Code> {
        let (target, options) = (format!("sm_{capability}"), PLAIN.map(str::to_owned).into());
        let image = self.cached(&Text { name: symbol, text, target, fast_math: false, headers: &[], options })?;
        let arguments = vec![Slot::Buffer(0), Slot::Buffer(1)];
        Ok(Code { image, entries: vec![Entry { symbol: symbol.to_owned(), arguments, overlaps: capability >= OVERLAPPING }] })
    }

    fn cached(&self, text: &Text<'_>) -> Result<Vec<u8>> {
        let mut options = vec![format!("--gpu-architecture={}", text.target), format!("--fmad={}", text.fast_math)];
        options.extend(text.options.iter().cloned());
        let version = format!("{:?}", self.nvrtc.version());
        let headers = text.headers.iter().flat_map(|(name, content)| [name.as_bytes(), content.as_bytes()]);
        let parts = options.iter().map(String::as_bytes).chain([version.as_bytes(), text.text.as_bytes()]).chain(headers);
        let place = self.cache.path(&CacheKey::of(parts), "cubin");
        if let Some(found) = self.cache.read_sealed(&place) {
            return Ok(found);
        }
        let request = Request { name: text.name, text: text.text, headers: text.headers, options: &options };
        let made = self.nvrtc.compile(&request).map_err(|log| Error::compile_failed(first_error(&log)).context(text.name))?;
        // What was compiled runs even where it cannot be kept.
        let _ = self.cache.write_sealed(&place, made.clone());
        Ok(made)
    }
}

/// Indices of the buffers that a library's kernel reads before the launches ahead have ended.
fn prefetched(kernel: &KernelSource) -> Vec<u32> {
    let indices = (0..).zip(&kernel.parameters);
    indices.filter(|(_, parameter)| parameter.prefetched).map(|(index, _)| index).collect()
}

/// What each argument of a lowered entry is, in order; positions have none.
fn arguments(kernel: &KernelSource, metal: &Metal, read: &Kernel) -> Result<Vec<Slot>> {
    let bindings = kernel.parameters.len();
    let params = usize::from(kernel.params_bytes > 0);
    let mut slots = Vec::new();
    let mut threadgroup = 0;
    for parameter in &read.parameters {
        match parameter.kind {
            ParameterKind::Buffer { index, .. } => {
                let index = index as usize;
                slots.push(match (0..bindings).find(|&parameter| metal.buffer_index(parameter) == index) {
                    Some(parameter) => Slot::Buffer(parameter),
                    None if params > 0 && index == bindings => Slot::Params,
                    None if metal.rejects() && index == bindings + params => Slot::ErrorFlag,
                    None => return Err(Error::invalid_launch(format!("{}: nothing is bound to buffer {index}", kernel.key))),
                });
            }
            ParameterKind::Threadgroup { .. } => {
                // The first is at offset 0 of the dynamic shared memory, and has no argument.
                if threadgroup > 0 {
                    slots.push(Slot::Threadgroup(threadgroup));
                }
                threadgroup += 1;
            }
            ParameterKind::Position(_) => {}
        }
    }
    Ok(slots)
}

fn user_text(user: &UserMetal) -> Result<&str> {
    match &user.code {
        MetalCode::Text(text) => Ok(text),
        MetalCode::Library(_) => Err(Error::unsupported(format!("{} is a compiled library: its kernels are compiled one by one", user.name))),
    }
}

/// A function constant's value in C++.
fn expression(value: ConstantValue) -> String {
    match value {
        ConstantValue::Bool(value) => value.to_string(),
        ConstantValue::Int(i64::MIN) => "(-9223372036854775807ll-1)".to_owned(),
        ConstantValue::Int(value) => format!("({value}ll)"),
        ConstantValue::Uint(value) => format!("{value}ull"),
        ConstantValue::Float(value) if value.is_nan() => "__builtin_nanf(\"\")".to_owned(),
        ConstantValue::Float(value) if value.is_infinite() => format!("({}__builtin_huge_valf())", if value > 0.0 { "" } else { "-" }),
        // Rust prints the shortest decimal that is read back as the same number.
        ConstantValue::Float(value) => format!("({value:e}f)"),
    }
}

/// The first error of NVRTC's log as `file:line: message`.
fn first_error(log: &str) -> String {
    let line = log.lines().find(|line| line.contains("error")).or_else(|| log.lines().find(|line| !line.trim().is_empty()));
    let line = line.unwrap_or("NVRTC gives no reason").trim();
    let placed = line.split_once("): error: ").and_then(|(place, message)| {
        let (file, number) = place.rsplit_once('(')?;
        Some(format!("{file}:{number}: {message}"))
    });
    placed.unwrap_or_else(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_file_and_line() {
        let log = "softmax/softmax.metal(12): warning: x\n\nsoftmax/softmax.metal(14): error: identifier \"y\" is undefined\n  y;\n1 error detected";
        assert_eq!(first_error(log), "softmax/softmax.metal:14: identifier \"y\" is undefined");
        assert_eq!(
            first_error("nvrtc: error: invalid value for --gpu-architecture (-arch)\n"),
            "nvrtc: error: invalid value for --gpu-architecture (-arch)"
        );
    }
}
