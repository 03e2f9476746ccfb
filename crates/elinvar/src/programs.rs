//! Users' programs, on every device: see [`atlas`](crate::atlas).

use std::sync::{Arc, OnceLock};

use elinvar_atlas::{
    Constant, LaunchConfig, Limits, Program,
    interpret::{Argument, Interpreter},
    render::{self, Field, MetalProgram, ParameterBlock},
    verify,
};
use elinvar_core::{
    Access, Binding, DType, DeviceKind, Dispatch, Error, Extent, Grid, HostArguments, HostForm, HostProgram, KernelKey, KernelSource, Metal,
    MetalCode, Parameter, Pipeline, Result, UserMetal,
};

use crate::{executor::Executor, graph::Action, tensor::Tensor};

/// Where memory of devices begins: at a multiple of so many bytes.
const ALIGNMENT: usize = 16;

/// What a program's parameter is given.
#[derive(Clone, Copy, Debug)]
pub enum ProgramArgument<'a> {
    /// For a buffer: the memory of a row-major tensor of the elements' type.
    Tensor(&'a Tensor),
    /// For a scalar.
    Scalar(Constant),
}

/// A program prepared for a device.
#[derive(Clone)]
pub struct ProgramKernel {
    executor: Executor,
    prepared: Prepared,
}

/// A program prepared for a device, without that.
#[derive(Clone)]
pub(crate) struct Prepared {
    pipeline: Pipeline,
    /// Whether that is for aligned buffers only.
    is_aligned: bool,
    /// For buffers that begin anywhere, made when they first do.
    unaligned: Arc<OnceLock<Pipeline>>,
    host: Arc<Host>,
}

/// The program and where its parameters lie in the parameter block.
#[derive(Debug)]
struct Host {
    interpreter: Interpreter,
    block: ParameterBlock,
    /// How many registers a thread is to do with, if not as many as the device's compiler likes.
    registers: Option<u32>,
}

impl Executor {
    /// Verifies a program and prepares it for this device: the CPU interprets it, GPUs and the simulator compile it.
    ///
    /// ```
    /// use elinvar::{Executor, ProgramArgument, atlas::{self, Constant, LaunchConfig}};
    ///
    /// let executor = Executor::new_auto()?;
    /// let text = "atlas 1\nprogram scale\nbuffer x: update f32\nscalar a: f32\nkernel\ni = position.x\nv = load x[i]\nv = mul v a\nstore x[i] v\nend";
    /// let scale = executor.compile_program(atlas::parse(text)?)?;
    /// let x = executor.tensor(&[3], &[1f32, 2.0, 3.0])?;
    /// scale.launch(&LaunchConfig::linear(3, 32), &[("x", ProgramArgument::Tensor(&x)), ("a", ProgramArgument::Scalar(Constant::f32(2.0)))])?;
    /// assert_eq!(x.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// A program that is wrong, with line and column.
    pub fn compile_program(&self, program: Program) -> Result<ProgramKernel> {
        self.compile_program_within(program, &Limits::default())
    }

    /// The same for a program that is granted more or less than others are.
    ///
    /// ```
    /// # use elinvar::{Executor, atlas::{self, Limits}};
    /// # let executor = Executor::new_auto()?;
    /// let program = || atlas::parse("atlas 1\nprogram nothing\nbounds unchecked\nkernel\nend");
    /// assert!(executor.compile_program(program()?).is_err());
    /// executor.compile_program_within(program()?, &Limits { unchecked: true, ..Limits::default() })?;
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::compile_program`].
    pub fn compile_program_within(&self, program: Program, limits: &Limits) -> Result<ProgramKernel> {
        Ok(ProgramKernel { executor: self.clone(), prepared: self.prepare_program(program, limits, None)? })
    }

    pub(crate) fn prepare_program(&self, program: Program, limits: &Limits, registers: Option<u32>) -> Result<Prepared> {
        let name = program.name.clone();
        let verified = verify(program, limits)?;
        let (known, kind) = (self.properties().dtypes, self.properties().kind);
        if let Some(dtype) = DType::PROGRAMS.iter().find(|dtype| verified.program().uses(**dtype) && !known.contains(dtype)) {
            return Err(Error::unsupported(format!("program {name} uses {dtype}, which {kind} does not have: run it on the cpu device, or use f32")));
        }
        let block = ParameterBlock::of(verified.program());
        let host = Arc::new(Host { interpreter: Interpreter::new(verified), block, registers });
        let (pipeline, is_aligned) = self.pipeline_of(&host, true)?;
        Ok(Prepared { pipeline, is_aligned, unaligned: Arc::default(), host })
    }

    /// A program interpreted, or, on devices that compile, in Metal: for `aligned` buffers or for all; and whether it is for aligned ones only.
    fn pipeline_of(&self, host: &Arc<Host>, aligned: bool) -> Result<(Pipeline, bool)> {
        let program = host.interpreter.program().program();
        let metal = self.properties().has_simdgroups().then(|| render::metal(host.interpreter.program(), aligned));
        let is_aligned = metal.as_ref().is_some_and(|metal| metal.is_aligned);
        let text = metal.map(|metal| self.metal_text(&program.name, metal, host.registers)).transpose()?;
        let buffers = program.parameters.iter().filter(|p| p.access.is_some());
        let parameters = buffers.map(|p| Parameter {
            name: p.name.clone().into(),
            access: if p.access == Some(Access::Read) { Access::Read } else { Access::ReadWrite },
            dtype: p.dtype,
            optional: false,
            prefetched: false,
        });
        let source = KernelSource {
            key: KernelKey::new(program.name.clone(), &[]),
            parameters: parameters.collect(),
            params_bytes: host.block.size(),
            host: Some(HostForm::Program(host.clone())),
            metal: text.map(|text| Metal::User(Arc::new(text))),
            native: None,
        };
        Ok((self.device.prepare(&Arc::new(source))?, is_aligned))
    }

    fn metal_text(&self, name: &str, metal: MetalProgram, registers: Option<u32>) -> Result<UserMetal> {
        // CUDA's conversions keep denormals.
        let version = metal.version.to_string();
        let mut defines = vec![("__METAL_VERSION__", version.as_str())];
        if self.properties().kind == DeviceKind::Cuda {
            defines.push(("EXACT_BFLOAT", "1"));
        }
        let text = elinvar_msl::preprocess(name, &metal.text, &defines, &elinvar_msl::MetalHeaders)?;
        Ok(UserMetal {
            name: name.to_owned(),
            code: MetalCode::Text(text),
            kernel: metal.kernel,
            constants: Vec::new(),
            fast_math: false,
            version: metal.version,
            buffers: Vec::new(),
            threadgroup: Vec::new(),
            rejections: metal.rejections,
            registers,
        })
    }
}

impl ProgramKernel {
    /// The same for an executor of the same device: one that records, for example.
    ///
    /// # Errors
    /// Another device.
    pub fn on(&self, executor: &Executor) -> Result<ProgramKernel> {
        Ok(ProgramKernel { executor: executor.take_over(&self.executor)?, ..self.clone() })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.prepared.program()
    }

    /// Launches it, or records that inside [`Executor::record`].
    ///
    /// # Errors
    /// An argument that is missing, given twice or unknown, or of another type; tensors of another device or with gaps; a launch that the program
    /// or the device does not allow. Errors of execution are reported when something is read.
    pub fn launch(&self, launch: &LaunchConfig, arguments: &[(&str, ProgramArgument<'_>)]) -> Result<()> {
        self.dispatch(launch, arguments).map_err(|e| e.context(format_args!("program {}", self.program().name)))
    }

    fn dispatch(&self, launch: &LaunchConfig, arguments: &[(&str, ProgramArgument<'_>)]) -> Result<()> {
        let parameters = &self.program().parameters;
        for (index, (name, _)) in arguments.iter().enumerate() {
            if arguments[..index].iter().any(|(other, _)| other == name) {
                return Err(Error::invalid_argument(format!("'{name}' is given twice")));
            }
            if !parameters.iter().any(|p| p.name == *name) {
                let names: Vec<_> = parameters.iter().map(|p| p.name.as_str()).collect();
                return Err(Error::invalid_argument(format!("there is no parameter '{name}': it takes {}", names.join(", "))));
            }
        }
        let (mut inputs, mut writes, mut lengths, mut scalars) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for parameter in parameters {
            let (name, dtype) = (&parameter.name, parameter.dtype);
            let given = arguments.iter().find(|(given, _)| given == name).map(|(_, argument)| argument);
            let (length, scalar) = match (given, parameter.access) {
                (Some(ProgramArgument::Tensor(tensor)), Some(access)) => {
                    inputs.push(Some(self.buffer(name, tensor, dtype)?));
                    writes.push(access != Access::Read);
                    (tensor.shape().elements() as u64, Constant::bool(false))
                }
                (Some(ProgramArgument::Scalar(value)), None) if value.dtype == dtype && value.is_valid() => (0, *value),
                (Some(_), Some(_)) => return Err(Error::invalid_argument(format!("'{name}' is a buffer: a tensor of {dtype} is expected"))),
                (Some(_), None) => return Err(Error::invalid_argument(format!("'{name}' is a scalar of {dtype}"))),
                (None, _) => return Err(Error::invalid_argument(format!("'{name}' ({dtype}) is not given"))),
            };
            lengths.push(length);
            scalars.push(scalar);
        }
        self.prepared.host.interpreter.program().check_launch(launch)?;
        let (prepared, executor, launch) = (self.prepared.clone(), self.executor.with_recorder(None), *launch);
        let make = move |bindings| prepared.dispatch(&executor, &launch, bindings, |index| lengths[index], |index| scalars[index]).map(Some);
        self.executor.dispatch(&inputs, Action::Dispatch { writes: writes.into(), outputs: Arc::new([]), make: Arc::new(make) })
    }

    fn buffer(&self, name: &str, tensor: &Tensor, dtype: DType) -> Result<Tensor> {
        if tensor.dtype() != dtype {
            return Err(Error::invalid_argument(format!("'{name}' is a buffer of {dtype}, the tensor has {}", tensor.dtype())));
        }
        if !tensor.layout().is_contiguous() {
            return Err(Error::invalid_argument(format!("'{name}': a view with gaps: pass its row-major copy (Tensor::contiguous)")));
        }
        Ok(tensor.clone())
    }
}

impl Prepared {
    pub(crate) fn program(&self) -> &Program {
        self.host.interpreter.program().program()
    }

    /// The form for where the buffers begin. Memory that a device allocates begins at a multiple of 16 bytes, what it adopts may begin anywhere.
    fn pipeline(&self, executor: &Executor, bindings: &[Option<Binding>]) -> Result<Pipeline> {
        let is_aligned = |binding: &Binding| binding.offset().is_multiple_of(ALIGNMENT) && !binding.buffer().raw().is_read_only();
        if !self.is_aligned || bindings.iter().flatten().all(is_aligned) {
            return Ok(self.pipeline.clone());
        }
        if let Some(known) = self.unaligned.get() {
            return Ok(known.clone());
        }
        let (made, _) = executor.pipeline_of(&self.host, false)?;
        Ok(self.unaligned.get_or_init(|| made).clone())
    }

    /// A launch of it, given the length or the scalar of each parameter.
    pub(crate) fn dispatch(
        &self,
        executor: &Executor,
        launch: &LaunchConfig,
        bindings: Vec<Option<Binding>>,
        length: impl Fn(usize) -> u64,
        scalar: impl Fn(usize) -> Constant,
    ) -> Result<Dispatch> {
        let program = self.host.interpreter.program().program();
        let params = self.host.block.bytes(length, scalar, |array| program.shared[array].elements(launch).into());
        let pipeline = self.pipeline(executor, &bindings)?;
        let (grid, threadgroup) = (Grid::Threadgroups(launch.grid), Extent(launch.block));
        let threadgroup_memory = if launch.shared_memory == 0 { Vec::new() } else { vec![launch.shared_memory as usize] };
        Ok(Dispatch { pipeline, bindings, params: params.into(), grid, threadgroup, threadgroup_memory, work: Default::default() })
    }
}

impl HostProgram for Host {
    fn run(&self, arguments: &mut HostArguments<'_>) -> Result<()> {
        let program = self.interpreter.program().program();
        let mut block = arguments.params_bytes();
        let (mut scalars, mut shared_memory) = (vec![None; program.parameters.len()], 0);
        for field in self.block.fields() {
            let (bytes, rest) = block.split_at_checked(field.size()).ok_or_else(|| Error::invalid_launch("the parameter block is too short"))?;
            block = rest;
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(bytes);
            let bits = u64::from_le_bytes(bits);
            match *field {
                Field::Scalar(parameter, dtype) => scalars[parameter] = Some(Constant { dtype, bits }),
                Field::Shared(array) => shared_memory = bits as u32 * program.shared[array].dtype.size() as u32,
                Field::Length(_) => {}
            }
        }
        let mut buffer = 0;
        let mut given = Vec::with_capacity(program.parameters.len());
        for (parameter, scalar) in program.parameters.iter().zip(scalars) {
            given.push(match (parameter.access, scalar) {
                (None, Some(scalar)) => Argument::Scalar(scalar),
                (None, None) => return Err(Error::invalid_launch(format!("'{}' is not given", parameter.name))),
                (Some(access), _) => {
                    buffer += 1;
                    if access == Access::Read { Argument::Read(arguments.input(buffer - 1)?) } else { Argument::Write(arguments.output(buffer - 1)?) }
                }
            });
        }
        let launch = LaunchConfig::new(arguments.grid().0, arguments.threadgroup().0).with_shared_memory(shared_memory);
        self.interpreter.run(&launch, given)
    }
}
