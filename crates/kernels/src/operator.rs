use std::{any::Any, fmt, sync::Arc};

use elinvar_core::{
    Binding, Buffer, DType, Device, DeviceProperties, Dispatch, Error, Extent, Grid, HostForm, HostKernel, KernelKey, KernelSource, Layout,
    ListBuilder, Metal, MetalForm, Parameter, Result, Shape, Work,
};

use crate::{Definition, ElementOp, cuda::CudaForm, elementwise::dispatch::named};

named! {
    /// How a matrix product or attention may be computed.
    #[derive(Default)]
    pub enum Precision("precision") {
        /// The canonical order of operations: the same bits everywhere.
        #[default]
        Strict "strict",
        /// Any order and any matrix unit, f32 accumulation: compared by normalised error.
        Fast "fast",
    }
}

/// What an operator knows of a tensor: the type of its elements and where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Type of the elements.
    pub dtype: DType,
    /// Where they lie, relative to the start of what is bound ([`Layout::span`] starts at zero).
    pub layout: Layout,
}

impl TensorInfo {
    /// A row-major tensor.
    ///
    /// # Errors
    /// A shape beyond the limits of [`Shape::new`].
    pub fn new(dtype: DType, dims: &[usize]) -> Result<Self> {
        Ok(Self { dtype, layout: Layout::contiguous(Shape::new(dims)?) })
    }

    /// A row-major tensor of `shape`.
    pub fn of(dtype: DType, shape: Shape) -> Self {
        Self { dtype, layout: Layout::contiguous(shape) }
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape().elements()
    }

    /// Bytes of its elements, row-major.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }
}

/// An operator: its attributes, and how it is inferred and planned.
///
/// `inputs` always has one entry for each declared input; absent optional inputs are `None`.
pub trait Operator: Any + fmt::Debug + Send + Sync {
    /// Its name, as the registry has it.
    fn name(&self) -> &'static str;

    /// What [`Operator::infer`] gives.
    ///
    /// # Errors
    /// Shapes or data types that do not fit, said in one line that names the operands.
    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>>;

    /// The outputs' types (row-major). An operator that only updates an input in place has none.
    ///
    /// # Errors
    /// Shapes or data types that do not fit: `rms_norm: weight has shape [5], x has shape [2, 4]: expected [4]`.
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.outputs(inputs).map_err(|e| e.context(self.name()))
    }

    /// The launches. Called after [`Operator::infer`] has accepted the inputs.
    ///
    /// # Errors
    /// What the device does not offer.
    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan>;

    /// How sums may be ordered: strict unless the operator offers a choice.
    fn precision(&self) -> Precision {
        Precision::Strict
    }

    /// Whether input `index` may have any strides; others are made row-major before the operator sees them.
    fn accepts_strides(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// Whether input `index` is updated in place.
    fn updates(&self, index: usize) -> bool {
        let _ = index;
        false
    }

    /// The same in strict precision, where the operator offers a choice.
    fn strict(&self) -> Option<Arc<dyn Operator>> {
        None
    }

    /// What it is to a program that computes element by element, if that can have it.
    fn element_op(&self) -> Option<ElementOp> {
        None
    }

    /// For a fused operator: the plain operators whose bits it has.
    ///
    /// # Errors
    /// As [`Operator::infer`].
    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        let _ = inputs;
        Ok(None)
    }
}

impl dyn Operator {
    /// [`Operator::plan`], with errors that name the operator.
    fn named_plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        self.plan(inputs, outputs, device).map_err(|e| e.context(self.name()))
    }

    /// It as an operator of this type, if it is one.
    pub fn downcast_ref<T: Operator>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// Whether both are operators of one type.
    pub fn is_like(&self, other: &dyn Operator) -> bool {
        self.type_id() == other.type_id()
    }

    /// Whether both are the same operator with the same attributes, which its `Debug` form lists.
    pub fn is_same(&self, other: &dyn Operator) -> bool {
        self.is_like(other) && format!("{self:?}") == format!("{other:?}")
    }
}

/// What an argument of a launch is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Input by index; unbound if the input is absent.
    Input(usize),
    /// Output by index.
    Output(usize),
    /// A range of bytes of an output: for launches that write a part of it.
    OutputPart(usize, usize, usize),
    /// Temporary memory by index.
    Scratch(usize),
    /// Nothing: for optional parameters.
    Absent,
}

/// The launches of an operator, in order, and the temporary memory they share.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The launches.
    pub launches: Vec<Launch>,
    /// Bytes of each temporary.
    pub scratch: Vec<usize>,
}

impl Plan {
    /// Inputs that a launch writes.
    pub fn updated_inputs(&self) -> impl Iterator<Item = usize> {
        let bound = self.launches.iter().flat_map(|l| l.kernel.parameters.iter().zip(&l.arguments));
        bound.filter_map(|(parameter, argument)| match argument {
            Argument::Input(index) if parameter.access.writes() => Some(*index),
            _ => None,
        })
    }
}

/// A tensor and what it is bound to.
pub(crate) type Bound = (TensorInfo, Argument);

impl Plan {
    /// Adds the launches of an operator, its inputs and its outputs bound to these.
    pub(crate) fn add(&mut self, operator: &dyn Operator, inputs: &[Option<Bound>], outputs: &[Argument], device: &DeviceProperties) -> Result<()> {
        let infos: Vec<_> = inputs.iter().map(|input| input.map(|(info, _)| info)).collect();
        let plan = operator.named_plan(&infos, &operator.infer(&infos)?, device)?;
        let before = self.scratch.len();
        self.scratch.extend(plan.scratch);
        for mut launch in plan.launches {
            for argument in &mut launch.arguments {
                *argument = match *argument {
                    Argument::Input(index) => inputs.get(index).copied().flatten().map_or(Argument::Absent, |(_, to)| to),
                    Argument::Output(index) => outputs.get(index).copied().unwrap_or(Argument::Absent),
                    Argument::Scratch(index) => Argument::Scratch(before + index),
                    other => other,
                };
            }
            self.launches.push(launch);
        }
        Ok(())
    }
}

impl Plan {
    /// The same with the floating-point operations that it takes, all of them its first launch's.
    pub fn with_operations(mut self, operations: u64) -> Self {
        if let Some(launch) = self.launches.first_mut() {
            launch.work.operations = operations;
        }
        self
    }
}

impl From<Launch> for Plan {
    fn from(launch: Launch) -> Self {
        Self { launches: vec![launch], scratch: Vec::new() }
    }
}

/// Operations of a product of these extents, that of its sums among them: two for each of its terms.
pub(crate) fn product_operations(extents: &[usize]) -> u64 {
    extents.iter().fold(2, |count: u64, &extent| count.saturating_mul(extent as u64))
}

/// One kernel launch before its buffers are known.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: Arc<KernelSource>,
    /// Its parameter block.
    pub params: Vec<u8>,
    /// What each of its parameters is bound to.
    pub arguments: Vec<Argument>,
    /// Threadgroups.
    pub grid: Extent,
    /// Threads of a threadgroup.
    pub threadgroup: Extent,
    /// Bytes of threadgroup memory.
    pub threadgroup_memory: usize,
    /// What it costs.
    pub work: Work,
}

impl Launch {
    /// A launch of `key` with its CPU kernel, its parameter block and its buffers in order; of one thread until [`Launch::over`] says otherwise.
    pub fn new<P: bytemuck::NoUninit>(
        key: KernelKey,
        host: HostKernel,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    ) -> Self {
        Self::of(key, Some(host), params, buffers)
    }

    /// The same without a CPU kernel: a launch of plans for GPUs.
    pub fn on_gpu<P: bytemuck::NoUninit>(
        key: KernelKey,
        form: MetalForm,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    ) -> Self {
        Self::of(key, None, params, buffers).with_metal(form)
    }

    /// The same for a CUDA device alone.
    pub fn on_cuda<P: bytemuck::NoUninit>(
        key: KernelKey,
        form: CudaForm,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    ) -> Self {
        Self::of(key, None, params, buffers).with_cuda(form)
    }

    fn of<P: bytemuck::NoUninit>(
        key: KernelKey,
        host: Option<HostKernel>,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    ) -> Self {
        let (parameters, arguments) = buffers.into_iter().unzip();
        let kernel =
            Arc::new(KernelSource { key, parameters, params_bytes: size_of::<P>(), host: host.map(HostForm::Kernel), metal: None, native: None });
        let params = bytemuck::bytes_of(params).to_vec();
        Self { kernel, params, arguments, grid: Extent::linear(1), threadgroup: Extent::linear(1), threadgroup_memory: 0, work: Work::default() }
    }

    /// The same with the kernel's Metal form.
    pub fn with_metal(mut self, form: MetalForm) -> Self {
        Arc::make_mut(&mut self.kernel).metal = Some(Metal::Form(form));
        self
    }

    /// The same with what a CUDA device runs in place of the Metal form.
    pub fn with_cuda(mut self, form: CudaForm) -> Self {
        Arc::make_mut(&mut self.kernel).native = Some(Arc::new(form));
        self
    }

    /// The same over `grid` threadgroups of `threadgroup` threads.
    pub fn over(mut self, grid: Extent, threadgroup: Extent) -> Self {
        self.grid = grid;
        self.threadgroup = threadgroup;
        self
    }

    /// The same with threadgroup memory.
    pub fn with_threadgroup_memory(mut self, bytes: usize) -> Self {
        self.threadgroup_memory = bytes;
        self
    }

    /// The same with the floating-point operations that it takes.
    pub fn with_operations(mut self, operations: u64) -> Self {
        self.work.operations = operations;
        self
    }

    /// The same with the bytes that it reads and writes, where they are fewer than those bound.
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.work.bytes = Some(bytes);
        self
    }
}

/// An operator's launches on a device whose kernels are prepared for them. A kernel that needs many registers may run with fewer threads than the
/// device's properties say: the operator is then asked for launches of no more than these, until its kernels can run them or it has no smaller ones,
/// which the device compiles the kernel for, or rejects when they are submitted.
///
/// # Errors
/// What the operator rejects, or a kernel that does not compile.
pub fn plan_for(operator: &dyn Operator, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &Device) -> Result<Plan> {
    let mut plan = operator.named_plan(inputs, outputs, device.properties())?;
    let mut most = device.properties().max_threads_per_threadgroup;
    if !device.properties().has_simdgroups() {
        return Ok(plan);
    }
    loop {
        let mut fewer = most;
        for launch in &plan.launches {
            let limit = device.pipeline(&launch.kernel)?.info().map_or(usize::MAX, |info| info.max_threads);
            if launch.threadgroup.count() > limit as u128 {
                fewer = fewer.min(limit);
            }
        }
        if fewer == most {
            return Ok(plan);
        }
        most = fewer;
        plan = operator.named_plan(inputs, outputs, &DeviceProperties { max_threads_per_threadgroup: most, ..device.properties().clone() })?;
    }
}

/// Records a plan's launches over real buffers; `allocate` provides its temporaries.
///
/// # Errors
/// Out of memory for temporaries, a kernel that does not compile, or a launch that contradicts its signature.
pub fn encode(
    plan: &Plan,
    inputs: &[Option<Binding>],
    outputs: &[Binding],
    device: &Device,
    list: &mut ListBuilder,
    mut allocate: impl FnMut(usize) -> Result<Buffer>,
) -> Result<()> {
    let scratch = plan.scratch.iter().map(|&bytes| allocate(bytes)?.bind(0, bytes)).collect::<Result<Vec<_>>>()?;
    for launch in &plan.launches {
        let bind = |argument: &Argument| -> Result<Option<Binding>> {
            let missing = || Error::invalid_launch(format!("{}: {argument:?} does not exist", launch.kernel.key));
            Ok(match *argument {
                // Optional inputs at the end may be left out.
                Argument::Input(i) => inputs.get(i).cloned().flatten(),
                Argument::Output(i) => Some(outputs.get(i).ok_or_else(missing)?.clone()),
                Argument::OutputPart(i, offset, bytes) => {
                    let whole = outputs.get(i).ok_or_else(missing)?;
                    Some(whole.buffer().bind(whole.offset() + offset, bytes)?)
                }
                Argument::Scratch(i) => Some(scratch.get(i).ok_or_else(missing)?.clone()),
                Argument::Absent => None,
            })
        };
        let bindings = launch.arguments.iter().map(bind).collect::<Result<Vec<_>>>()?;
        let pipeline = device.pipeline(&launch.kernel)?;
        let (params, grid, threadgroup) = (launch.params.clone(), Grid::Threadgroups(launch.grid.0), launch.threadgroup);
        let threadgroup_memory = if launch.threadgroup_memory > 0 { vec![launch.threadgroup_memory] } else { Vec::new() };
        list.dispatch(Dispatch { pipeline, bindings, params, grid, threadgroup, threadgroup_memory, work: launch.work }, device.properties())?;
    }
    Ok(())
}
