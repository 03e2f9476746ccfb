//! The gradient on tensor cores: CUDA kernels of fast precision, first for the queries and then for keys and values.

use elinvar_core::{DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

use super::{
    ampere, hopper,
    operands::{AT, Inputs},
};
use crate::{
    Argument, Launch, Plan,
    attention::{
        Params,
        tensor_cores::{defines, is_plain},
    },
    cuda::{CudaArchitecture, CudaForm, CudaSource},
    metal::metal_file,
};

/// The product of an output with its gradient, after the types of numbers.
pub(super) const OUTPUTS: MetalFile = metal_file!("attention/gradient/outputs.cu");

/// The operator's inputs and outputs.
pub(super) type Buffers = [(Parameter, Argument); AT.dv + 1];

/// A kernel, its launch, and what it is given; shared memory in bytes.
pub(super) struct Kernel {
    pub(super) entry: &'static str,
    pub(super) files: &'static [MetalFile],
    pub(super) architecture: CudaArchitecture,
    pub(super) groups: u64,
    pub(super) threads: u32,
    pub(super) memory: u64,
    pub(super) buffers: Vec<(Parameter, Argument)>,
}

/// Kernels in order, and the bytes of scratch memory that they share.
pub(super) struct Kernels {
    pub(super) kernels: Vec<Kernel>,
    pub(super) scratch: Vec<usize>,
}

/// The launches, where the kernels serve: for queries, keys and values of one type of 16 bits.
pub(super) fn plan(params: &Params, inputs: Inputs, buffers: &Buffers, device: &DeviceProperties) -> Option<Plan> {
    let s = &params.score;
    let serves = is_plain(params) && inputs.q.dtype == inputs.k.dtype && s.queries.max(s.keys) <= 1 << 30 && s.queries.min(s.keys) > 0;
    if !serves {
        return None;
    }
    let defines = defines([inputs.q.dtype; 3], s.width)?;
    let Kernels { kernels, scratch } = hopper::kernels(s, buffers, device).or_else(|| ampere::kernels(s, buffers, device))?;
    let launches = kernels.into_iter().map(|Kernel { entry, files, architecture, groups, threads, memory, buffers }| {
        let fits = memory <= device.threadgroup_memory as u64 && threads as usize <= device.max_threads_per_threadgroup;
        let groups = u32::try_from(groups).ok().filter(|&groups| fits && groups <= i32::MAX as u32)?;
        let source = CudaSource::new(files, entry, defines, architecture);
        let key = KernelKey::new(entry, &[inputs.q.dtype]).with("width", s.width as u32);
        let launch = Launch::on_cuda(key, CudaForm::Source(source), params, buffers);
        Some(launch.over(Extent::linear(groups), Extent::linear(threads)).with_threadgroup_memory(memory as usize))
    });
    Some(Plan { launches: launches.collect::<Option<_>>()?, scratch })
}
