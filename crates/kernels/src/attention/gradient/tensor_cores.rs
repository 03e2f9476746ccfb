//! The gradient on tensor cores: CUDA kernels of fast precision, first for the queries and then for keys and values.

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, Parameter};

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

/// A kernel and its launch; shared memory in bytes.
pub(super) struct Kernel {
    pub(super) entry: &'static str,
    pub(super) files: &'static [MetalFile],
    pub(super) architecture: CudaArchitecture,
    pub(super) groups: u64,
    pub(super) threads: u32,
    pub(super) memory: u64,
}

/// The launches, where the kernels serve: for queries, keys and values of one type of 16 bits.
pub(super) fn plan(params: &Params, inputs: Inputs, buffers: [(Parameter, Argument); AT.dv + 1], device: &DeviceProperties) -> Option<Plan> {
    let s = &params.score;
    let serves = is_plain(params) && inputs.q.dtype == inputs.k.dtype && s.queries.max(s.keys) <= 1 << 30 && s.queries.min(s.keys) > 0;
    if !serves {
        return None;
    }
    let defines = defines([inputs.q.dtype; 3], s.width)?;
    let kernels = hopper::kernels(s, device).or_else(|| ampere::kernels(s, device))?;
    let [q, k, v, _, positions, lengths, y, dy, dq, dk, dv] = buffers;
    let statistics = |parameter| (parameter, Argument::Scratch(0));
    let given = [q, k, v, positions, lengths];
    let queries = given.clone().into_iter().chain([y, dy.clone(), dq, statistics(Parameter::write("statistics", DType::F32))]);
    let keys = given.into_iter().chain([dy, statistics(Parameter::read("statistics", DType::F32)), dk, dv]);
    let launches = kernels.into_iter().zip([queries.collect::<Vec<_>>(), keys.collect()]).map(|(kernel, buffers)| {
        let Kernel { entry, files, architecture, groups, threads, memory } = kernel;
        let fits = memory <= device.threadgroup_memory as u64 && threads as usize <= device.max_threads_per_threadgroup;
        let groups = u32::try_from(groups).ok().filter(|&groups| fits && groups <= i32::MAX as u32)?;
        let source = CudaSource { files, entry, defines, architecture, overlaps: false, rejection: None, pushing: None };
        let key = KernelKey::new(entry, &[inputs.q.dtype]).with("width", s.width as u32);
        let launch = Launch::on_cuda(key, CudaForm::Source(source), params, buffers);
        Some(launch.over(Extent::linear(groups), Extent::linear(threads)).with_threadgroup_memory(memory as usize))
    });
    Some(Plan { launches: launches.collect::<Option<_>>()?, scratch: vec![(8 * s.batch * s.heads * s.queries) as usize] })
}
