//! What an operator plans: kernel launches, before and when their buffers are known.

use std::sync::Arc;

use elinvar_core::{
    Binding, Buffer, Device, Dispatch, Error, Extent, Grid, HostForm, HostKernel, KernelKey, KernelSource, ListBuilder, Metal, MetalForm, Parameter,
    Result, Work,
};

use crate::{collective::Collective, cuda::CudaForm};

/// What an argument of a launch is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Input by index; unbound if the input is absent.
    Input(usize),
    /// Output by index.
    Output(usize),
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
        let written = bound.filter(|(parameter, _)| parameter.access.writes());
        written.filter_map(|(_, argument)| if let Argument::Input(index) = argument { Some(*index) } else { None })
    }

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

    /// The same for a group of devices alone.
    pub fn on_group<P: bytemuck::NoUninit>(
        key: KernelKey,
        collective: Collective,
        params: &P,
        buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    ) -> Self {
        let mut launch = Self::of(key, None, params, buffers);
        Arc::make_mut(&mut launch.kernel).native = Some(Arc::new(collective));
        launch
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
                Argument::Scratch(i) => Some(scratch.get(i).ok_or_else(missing)?.clone()),
                Argument::Absent => None,
            })
        };
        let bindings = launch.arguments.iter().map(bind).collect::<Result<Vec<_>>>()?;
        let pipeline = device.pipeline(&launch.kernel)?;
        let (params, grid, threadgroup) = (launch.params.as_slice().into(), Grid::Threadgroups(launch.grid.0), launch.threadgroup);
        let threadgroup_memory = if launch.threadgroup_memory > 0 { vec![launch.threadgroup_memory] } else { Vec::new() };
        list.dispatch(Dispatch { pipeline, bindings, params, grid, threadgroup, threadgroup_memory, work: launch.work }, device.properties())?;
    }
    Ok(())
}
