//! Entry points: one `__global__` function with C linkage for each wanted kernel, which passes on its arguments and where the thread is.

use std::fmt::Write;

use super::qualifiers::without_address_spaces;
use crate::{
    kernel::{Kernel, ParameterKind},
    lower::Entry,
    tokens::{Tokens, join},
};

/// A kernel wanted of a text.
#[derive(Clone, Copy, Debug)]
pub struct CudaEntry<'a> {
    /// What the host calls it.
    pub kernel: &'a str,
    /// Indices of the `constant T&` buffers that are passed by value, as bytes of the launch.
    pub inline: &'a [u32],
    /// Of a kernel that waits for the launches ahead itself (`elv::await_launches`), indices of the buffers that it reads before, which no launch in
    /// flight may write. `None`: the entry waits before the kernel begins.
    pub prefetched: Option<&'a [u32]>,
    /// Threadgroups of a cluster.
    pub cluster: u32,
}

/// The threadgroups of the launches that a lowered text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threadgroups {
    /// All of one size.
    Uniform,
    /// At the grid's end smaller than the others.
    Nonuniform,
}

/// Threads that a block can have at most.
const MAX_THREADS: u32 = 1024;

/// Appends the entry points to `text`.
pub(super) fn entries(wanted: &[(Kernel, CudaEntry<'_>)], threadgroups: Threadgroups, text: &mut String) -> Vec<Entry> {
    text.push_str("\n# 1 \"elinvar-entries\"\n");
    wanted.iter().enumerate().map(|(number, (kernel, wanted))| entry(number, kernel, wanted, threadgroups, text)).collect()
}

/// A symbol of its own that says in a profiler which kernel it is.
fn symbol(number: usize, kernel: &str) -> String {
    let legible: String = kernel.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(100).collect();
    format!("elv_{number}_{legible}")
}

/// The entry waits for the launches ahead, unless the kernel does. What those write may not be restricted here, though the kernel only reads it: its loads
/// could then be moved before the wait, or be served by a cache that never hears of writes.
fn entry(number: usize, kernel: &Kernel, wanted: &CudaEntry<'_>, threadgroups: Threadgroups, text: &mut String) -> Entry {
    let symbol = symbol(number, &kernel.name);
    let function = format!("elv_kernel_{number}");
    // The namespace that holds the text.
    let address = Tokens::new(&kernel.address.replacen("&::", "&::msl::", 1));
    let address = join(without_address_spaces((0..address.len()).map(|at| address.text(at))));
    let (mut parameters, mut arguments, mut shared) = (Vec::new(), Vec::new(), 0);
    for (at, parameter) in kernel.parameters.iter().enumerate() {
        match &parameter.kind {
            ParameterKind::Buffer { index, .. } if wanted.inline.contains(index) => {
                parameters.push(format!("const __grid_constant__ elv::value_t<elv::target_t<{at}, {function}>> a{at}"));
                arguments.push(format!("elv::bind<elv::parameter_t<{at}, {function}>>::to(&a{at})"));
            }
            ParameterKind::Buffer { index, written, .. } => {
                let is_prefetched = wanted.prefetched.is_some_and(|prefetched| prefetched.contains(index));
                let restrict = if is_prefetched && !written { "__restrict__ " } else { "" };
                parameters.push(format!("elv::target_t<{at}, {function}>* {restrict}a{at}"));
                arguments.push(format!("elv::bind<elv::parameter_t<{at}, {function}>>::to(a{at})"));
            }
            ParameterKind::Threadgroup { .. } => {
                let offset = if shared == 0 { String::new() } else { format!(" + a{at}") };
                if shared > 0 {
                    parameters.push(format!("uint a{at}"));
                }
                arguments.push(format!("elv::bind<elv::parameter_t<{at}, {function}>>::to((elv::target_t<{at}, {function}>*)(elv_shared{offset}))"));
                shared += 1;
            }
            ParameterKind::Position(position) => {
                arguments.push(format!("elv::position<elv::parameter_t<{at}, {function}>>::from(ELV_{})", position.attribute()));
            }
        }
    }
    let is_nonuniform = threadgroups == Threadgroups::Nonuniform;
    let grid = is_nonuniform || kernel.counts_threads();
    if grid {
        parameters.push("elv::extent elv_grid".to_owned());
    }
    let bounds = match kernel.max_total_threads {
        Some(threads) if threads < MAX_THREADS => format!("__launch_bounds__({threads}) "),
        _ => String::new(),
    };
    let cluster = if wanted.cluster > 1 { format!("__cluster_dims__({}, 1, 1) ", wanted.cluster) } else { String::new() };
    let _ = writeln!(text, "typedef decltype({address}) {function};");
    let _ = writeln!(text, "extern \"C\" __global__ void {cluster}{bounds}{symbol}({}) {{", parameters.join(", "));
    if shared > 0 {
        text.push_str("  extern __shared__ __align__(16) char elv_shared[];\n");
    }
    if wanted.prefetched.is_none() {
        text.push_str("  elv::await_launches();\n");
    }
    if is_nonuniform {
        text.push_str("  const elv::extent elv_size = elv::threadgroup_size(elv_grid);\n  if (elv::is_outside(elv_size)) return;\n");
        text.push_str("  const elv::extent elv_place = elv::position_in_threadgroup(elv_size);\n");
    }
    let _ = writeln!(text, "  ({address})({});\n}}", arguments.join(", "));
    Entry { kernel: kernel.name.clone(), symbol, grid }
}
