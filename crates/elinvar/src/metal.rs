//! A user's own Metal kernels, on every device that runs Metal text.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use elinvar_core::{
    Access, CompiledMetal, ConstantValue, DType, Dispatch, Error, Extent, Grid, KernelKey, KernelSource, METAL_VERSION, Metal, MetalCode, Parameter,
    Pipeline, PipelineInfo, Result, UserMetal,
};
use elinvar_metallib::{CompiledLibrary, Kernels};
use elinvar_msl::{Folders, FunctionConstant, Kernel, Module, ParameterKind, preprocess};

use crate::{executor::Executor, graph::Action, tensor::Tensor, threadgroups};

/// A Metal source text and how it is read.
#[derive(Clone, Debug)]
pub struct MetalSource {
    /// What messages call it; a path, if it was read from a file.
    pub name: String,
    /// The text.
    pub text: String,
    /// Where included files are looked for, after the text's own folder.
    pub include_folders: Vec<PathBuf>,
    /// Macros and their bodies.
    pub defines: Vec<(String, String)>,
    /// Whether the compiler may contract products and sums.
    pub fast_math: bool,
    /// The version of Metal that it is compiled as, and the value of `__METAL_VERSION__`: 310 is Metal 3.1.
    pub version: u32,
}

impl MetalSource {
    /// A text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), include_folders: Vec::new(), defines: Vec::new(), fast_math: false, version: METAL_VERSION }
    }

    /// A file.
    ///
    /// # Errors
    /// It cannot be read, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|cause| Error::io(format!("cannot read {}: {cause}", path.display())))?;
        Ok(Self::new(path.display().to_string(), text))
    }
}

/// A Metal text that was read, or a library that Apple's compiler has made: its kernels are compiled when they are asked for.
#[derive(Clone)]
pub struct MetalLibrary {
    executor: Executor,
    name: String,
    origin: Origin,
    fast_math: bool,
    version: u32,
    kernels: Kernels,
}

/// What kernels are compiled from.
#[derive(Clone)]
enum Origin {
    Text(MetalCode),
    /// A file, and of the libraries in it those of kernels that were asked for, by where they begin: kernels share them.
    File(CompiledLibrary, Arc<Mutex<HashMap<usize, CompiledMetal>>>),
}

impl Executor {
    /// Reads a Metal source text, whose kernels can then be launched on this device.
    ///
    /// ```no_run
    /// use elinvar::{Executor, KernelArgument, MetalSource};
    ///
    /// let executor = Executor::new_auto()?;
    /// let source = "kernel void twice(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
    ///                                 uint i [[thread_position_in_grid]]) { y[i] = 2 * x[i]; }";
    /// let twice = executor.compile_metal(&MetalSource::new("twice.metal", source))?.kernel("twice", &[])?;
    /// let (x, y) = (executor.tensor(&[64], &[1.5f32; 64])?, executor.tensor(&[64], &[0f32; 64])?);
    /// twice.launch([2, 1, 1], [32, 1, 1], &[("x", KernelArgument::Tensor(&x)), ("y", KernelArgument::Tensor(&y))])?;
    /// assert_eq!(y.to_vec::<f32>()?, [3.0; 64]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A device that does not run Metal text, or a text that cannot be preprocessed or read; the message has file and line.
    pub fn compile_metal(&self, source: &MetalSource) -> Result<MetalLibrary> {
        self.runs_metal()?;
        let folders = Folders { quoted: Vec::new(), all: source.include_folders.clone() };
        let version = source.version.to_string();
        let given = source.defines.iter().map(|(name, body)| (name.as_str(), body.as_str()));
        let defines: Vec<_> = [("__METAL_VERSION__", version.as_str())].into_iter().chain(given).collect();
        let text = preprocess(&source.name, &source.text, &defines, &folders)?;
        let kernels = Kernels::Text(Arc::new(Module::read(&text)?));
        let (name, fast_math, version) = (source.name.clone(), source.fast_math, source.version);
        Ok(MetalLibrary { executor: self.clone(), name, origin: Origin::Text(MetalCode::Text(text)), fast_math, version, kernels })
    }

    /// Reads a `.metallib` that Apple's compiler has made, or an application or shared library that has some, whose kernels can then be launched on this
    /// device as those of a text.
    ///
    /// # Errors
    /// A device that does not run Metal; a file that cannot be read, or holds no sound Metal library.
    pub fn load_metal_library(&self, path: &Path) -> Result<MetalLibrary> {
        let bytes = fs::read(path).map_err(|cause| Error::io(format!("cannot read {}: {cause}", path.display())))?;
        self.metal_library(&path.display().to_string(), bytes)
    }

    /// The same of a file's bytes, which messages call `name`.
    ///
    /// # Errors
    /// As [`Executor::load_metal_library`].
    pub fn metal_library(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<MetalLibrary> {
        self.runs_metal()?;
        let library = CompiledLibrary::read(name, bytes.into())?;
        let (kernels, origin) = (Kernels::Compiled(library.clone()), Origin::File(library, Arc::default()));
        Ok(MetalLibrary { executor: self.clone(), name: name.to_owned(), origin, fast_math: false, version: METAL_VERSION, kernels })
    }

    fn runs_metal(&self) -> Result<()> {
        if self.properties().has_simdgroups() {
            return Ok(());
        }
        let kind = self.properties().kind;
        Err(Error::unsupported(format!("the device '{kind}' does not run Metal kernels: use a GPU, or metal-sim for the simulator")))
    }
}

impl MetalLibrary {
    /// What was read: its kernels, their signatures, its function constants.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The same, where products and sums that a compiled library leaves to the device are contracted.
    pub fn with_fast_math(self) -> Self {
        Self { fast_math: true, ..self }
    }

    /// What a kernel is compiled from: of a file that holds several libraries, its own.
    fn code(&self, kernel: &str) -> Result<MetalCode> {
        match &self.origin {
            Origin::Text(code) => Ok(code.clone()),
            Origin::File(file, libraries) => {
                let place = file.library(kernel)?;
                let made = || {
                    let is_whole = place.len() == file.bytes().len();
                    CompiledMetal::new(if is_whole { file.bytes().clone() } else { file.bytes()[place.clone()].into() })
                };
                let mut libraries = libraries.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(MetalCode::Library(libraries.entry(place.start).or_insert_with(made).clone()))
            }
        }
    }

    /// Compiles the kernel of that name (its `host_name` if it has one) with these function constants, by name.
    ///
    /// # Errors
    /// No such kernel or constant, a value of another kind than the constant's type, or a text that does not compile.
    pub fn kernel(&self, name: &str, constants: &[(&str, ConstantValue)]) -> Result<MetalKernel> {
        let kernel = self.kernels.kernel(name)?;
        let known = self.kernels.constants(name)?;
        let constants = constants.iter().map(|&(name, value)| self.constant(known, name, value)).collect::<Result<Vec<_>>>()?;
        let (mut parameters, mut buffers, mut threadgroup) = (Vec::new(), Vec::new(), Vec::new());
        for parameter in &kernel.parameters {
            match &parameter.kind {
                ParameterKind::Buffer { index, written, element, .. } => {
                    buffers.push(*index);
                    parameters.push(Parameter {
                        name: parameter.name.clone().into(),
                        access: if *written { Access::ReadWrite } else { Access::Read },
                        dtype: element_type(element),
                        optional: parameter.condition.is_some(),
                        prefetched: false,
                    });
                }
                ParameterKind::Threadgroup { index, .. } => threadgroup.push(*index),
                ParameterKind::Position(_) => {}
            }
        }
        let user = UserMetal {
            name: self.name.clone(),
            code: self.code(name)?,
            kernel: name.to_owned(),
            constants,
            fast_math: self.fast_math,
            version: self.version,
            buffers,
            threadgroup,
            rejections: Vec::new(),
            registers: None,
        };
        let key = KernelKey::new(name.to_owned(), &[]);
        let source = KernelSource { key, parameters, params_bytes: 0, host: None, metal: Some(Metal::User(Arc::new(user))), native: None };
        let pipeline = self.executor.device.prepare(&Arc::new(source)).map_err(|e| e.context(&self.name))?;
        let element_sizes = self.kernels.element_sizes(&kernel)?.into();
        Ok(MetalKernel { executor: self.executor.clone(), pipeline, kernel, element_sizes })
    }

    fn constant(&self, known: &[FunctionConstant], name: &str, value: ConstantValue) -> Result<(u32, ConstantValue)> {
        let Some(constant) = known.iter().find(|c| c.name == name) else {
            let names: Vec<_> = known.iter().map(|c| c.name.as_str()).collect();
            return Err(Error::invalid_argument(format!("no function constant '{name}': {} has {}", self.name, names.join(", "))));
        };
        let fits = match (constant.type_name.as_str(), value) {
            ("bool", ConstantValue::Bool(_)) | ("float" | "half" | "bfloat", ConstantValue::Float(_)) => true,
            ("bool" | "float" | "half" | "bfloat", _) => false,
            (name, ConstantValue::Uint(_)) => name.starts_with('u'),
            (name, ConstantValue::Int(_)) => !name.starts_with('u'),
            _ => false,
        };
        if !fits {
            return Err(Error::invalid_argument(format!("{value:?} for the function constant '{name}', a {}", constant.type_name)));
        }
        Ok((constant.index, value))
    }
}

/// What a kernel's parameter is given, by its name.
#[derive(Clone, Copy, Debug)]
pub enum KernelArgument<'a> {
    /// For a buffer: the memory of a row-major tensor.
    Tensor(&'a Tensor),
    /// For a buffer: bytes, as for a `constant` struct.
    Bytes(&'a [u8]),
    /// For a threadgroup argument: how many bytes it has.
    ThreadgroupMemory(usize),
}

/// A compiled kernel of a user's.
#[derive(Clone)]
pub struct MetalKernel {
    executor: Executor,
    pipeline: Pipeline,
    kernel: Kernel,
    /// See [`Kernels::element_sizes`].
    element_sizes: Arc<[Option<usize>]>,
}

impl MetalKernel {
    /// The same for an executor of the same device: one that records, for example.
    ///
    /// # Errors
    /// Another device.
    pub fn on(&self, executor: &Executor) -> Result<MetalKernel> {
        Ok(MetalKernel { executor: executor.take_over(&self.executor)?, ..self.clone() })
    }

    /// What it takes.
    pub fn signature(&self) -> &Kernel {
        &self.kernel
    }

    /// What the device says of it: the width of its simdgroups, and how many threads its threadgroups may have at most.
    pub fn info(&self) -> PipelineInfo {
        let properties = self.executor.properties();
        let (execution_width, max_threads) = (properties.simd_width, properties.max_threads_per_threadgroup);
        let info = self.pipeline.info().unwrap_or(PipelineInfo { execution_width, max_threads, threadgroup_memory: 0 });
        let declared = self.kernel.max_total_threads.map_or(usize::MAX, |most| most as usize);
        PipelineInfo { max_threads: info.max_threads.min(declared), ..info }
    }

    /// A threadgroup for [`MetalKernel::launch_threads`] over `threads` threads in one, two or three dimensions: whole simdgroups along the first.
    pub fn threadgroup_for(&self, threads: [u32; 3]) -> [u32; 3] {
        let PipelineInfo { execution_width, max_threads, .. } = self.info();
        let [width, most] = [execution_width, max_threads].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        threadgroups::threadgroup(threads, width, most)
    }

    /// Launches it over exactly `threads` threads in threadgroups of `threadgroup` threads (Metal's `dispatchThreads`), or records that inside
    /// [`Executor::record`]. The last threadgroup along an axis is smaller where they do not divide, so that a kernel needs no bounds check. No thread runs
    /// where `threads` is zero along an axis.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use elinvar::{BackendType, Executor, KernelArgument, MetalSource};
    ///
    /// let executor = Executor::new_with_backend(BackendType::MetalSim)?;
    /// let source = "kernel void add(device const float* a [[buffer(0)]], device float* c [[buffer(1)]],
    ///                               uint id [[thread_position_in_grid]]) { c[id] += a[id]; }";
    /// let add = executor.compile_metal(&MetalSource::new("add.metal", source))?.kernel("add", &[])?;
    /// let (a, c) = (executor.tensor(&[1000], &[1.5f32; 1000])?, executor.tensor(&[1000], &[2f32; 1000])?);
    /// let threads = [1000, 1, 1];
    /// add.launch_threads(threads, add.threadgroup_for(threads), &[("a", KernelArgument::Tensor(&a)), ("c", KernelArgument::Tensor(&c))])?;
    /// assert_eq!(c.to_vec::<f32>()?, [3.5; 1000]);
    /// # }
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`MetalKernel::launch`].
    pub fn launch_threads(&self, threads: [u32; 3], threadgroup: [u32; 3], arguments: &[(&str, KernelArgument<'_>)]) -> Result<()> {
        self.dispatch(Grid::Threads(threads), threadgroup, arguments)
    }

    /// Launches it over `grid` threadgroups of `threadgroup` threads (Metal's `dispatchThreadgroups`), or records that inside [`Executor::record`].
    ///
    /// # Errors
    /// An argument that is missing, given twice or unknown, of the wrong kind or too short; tensors of another device or with gaps; a launch
    /// beyond the device's limits. Errors of execution are reported when something is read.
    pub fn launch(&self, grid: [u32; 3], threadgroup: [u32; 3], arguments: &[(&str, KernelArgument<'_>)]) -> Result<()> {
        self.dispatch(Grid::Threadgroups(grid), threadgroup, arguments)
    }

    fn dispatch(&self, grid: Grid, threadgroup: [u32; 3], arguments: &[(&str, KernelArgument<'_>)]) -> Result<()> {
        self.check(threadgroup, arguments).map_err(|e| e.context(format_args!("kernel {}", self.kernel.name)))?;
        let given = |name: &str| arguments.iter().find(|(given, _)| *given == name).map(|(_, argument)| *argument);
        let (mut inputs, mut writes, mut threadgroup_memory) = (Vec::new(), Vec::new(), Vec::new());
        for parameter in &self.kernel.parameters {
            match parameter.kind {
                ParameterKind::Buffer { written, .. } => {
                    inputs.push(given(&parameter.name).map(|argument| self.buffer(argument)).transpose()?);
                    writes.push(written);
                }
                ParameterKind::Threadgroup { .. } => threadgroup_memory.push(match given(&parameter.name) {
                    Some(KernelArgument::ThreadgroupMemory(bytes)) => bytes,
                    _ => 0,
                }),
                ParameterKind::Position(_) => {}
            }
        }
        let (pipeline, threadgroup) = (self.pipeline.clone(), Extent(threadgroup));
        let make = move |bindings| {
            let (pipeline, threadgroup_memory) = (pipeline.clone(), threadgroup_memory.clone());
            Ok(Some(Dispatch { pipeline, bindings, params: [].into(), grid, threadgroup, threadgroup_memory, work: Default::default() }))
        };
        self.executor.dispatch(&inputs, Action::Dispatch { writes: writes.into(), outputs: Arc::new([]), make: Arc::new(make) })
    }

    fn check(&self, threadgroup: [u32; 3], arguments: &[(&str, KernelArgument<'_>)]) -> Result<()> {
        let threads = Extent(threadgroup).count();
        if let Some(most) = self.kernel.max_total_threads.filter(|&most| threads > u128::from(most)) {
            return Err(Error::invalid_launch(format!("{threads} threads in a threadgroup: it is declared for at most {most}")));
        }
        for (index, (name, argument)) in arguments.iter().enumerate() {
            if arguments[..index].iter().any(|(other, _)| other == name) {
                return Err(Error::invalid_argument(format!("'{name}' is given twice")));
            }
            match argument {
                KernelArgument::ThreadgroupMemory(_) => drop(self.kernel.threadgroup_index(name)?),
                KernelArgument::Tensor(_) => drop(self.kernel.buffer_index(name)?),
                KernelArgument::Bytes(bytes) => {
                    self.kernel.buffer_index(name)?;
                    self.check_size(name, bytes.len())?;
                }
            }
        }
        let missing = self.kernel.parameters.iter().find(|p| {
            let taken = !matches!(p.kind, ParameterKind::Position(_)) && p.condition.is_none();
            taken && !arguments.iter().any(|(name, _)| *name == p.name)
        });
        missing.map_or(Ok(()), |p| Err(Error::invalid_argument(format!("'{}' ({}) is not given", p.name, p.type_name))))
    }

    /// Bytes for a reference must hold the value it refers to, where the size of its type is known.
    fn check_size(&self, name: &str, bytes: usize) -> Result<()> {
        let found = self.kernel.parameters.iter().zip(&*self.element_sizes).find(|(parameter, _)| parameter.name == name);
        let Some((elinvar_msl::Parameter { kind: ParameterKind::Buffer { element, reference: true, .. }, .. }, Some(size))) = found else {
            return Ok(());
        };
        if *size > bytes {
            return Err(Error::invalid_argument(format!("'{name}' is given {bytes} bytes, a {element} takes {size}")));
        }
        Ok(())
    }

    fn buffer(&self, argument: KernelArgument<'_>) -> Result<Tensor> {
        match argument {
            KernelArgument::Tensor(tensor) if tensor.layout().is_contiguous() => Ok(tensor.clone()),
            KernelArgument::Tensor(tensor) => {
                Err(Error::invalid_argument(format!("{tensor:?} is a view with gaps: pass its row-major copy (Tensor::contiguous)")))
            }
            KernelArgument::Bytes(bytes) => self.executor.tensor(&[bytes.len()], bytes),
            KernelArgument::ThreadgroupMemory(_) => Err(Error::invalid_argument("threadgroup memory is no buffer")),
        }
    }
}

/// The data type of a buffer's elements, where Metal's name is one of ours; bytes otherwise (vectors, structs).
fn element_type(name: &str) -> DType {
    match name {
        "float" => DType::F32,
        "half" => DType::F16,
        "bfloat" => DType::BF16,
        "char" | "int8_t" => DType::I8,
        "short" | "int16_t" => DType::I16,
        "int" | "int32_t" => DType::I32,
        "long" | "int64_t" => DType::I64,
        "ushort" | "uint16_t" => DType::U16,
        "uint" | "uint32_t" => DType::U32,
        "ulong" | "uint64_t" => DType::U64,
        _ => DType::U8,
    }
}
