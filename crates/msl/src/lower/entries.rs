//! Entry points: one function with C linkage for each wanted kernel, which unpacks the arguments.

use crate::kernel::{Kernel, ParameterKind};

/// The entry point of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The kernel's name.
    pub kernel: String,
    /// The symbol of its `elv_entry` function.
    pub symbol: String,
    /// On CUDA, whether the grid's threads, three `u32`, are a last argument.
    pub grid: bool,
}

/// Appends the entry points to `text`.
pub(super) fn entries(kernels: &[Kernel], text: &mut String) -> Vec<Entry> {
    text.push_str("\n# 1 \"elinvar-entries\"\n");
    let entry = |(number, kernel): (usize, &Kernel)| {
        let symbol = format!("elv_entry_{number}");
        let sources: Vec<String> = kernel.parameters.iter().map(|parameter| source(&parameter.kind)).collect();
        text.push_str(&format!("ELV_ENTRY({symbol}, ({}), {})\n", kernel.address, sources.join(", ")));
        Entry { kernel: kernel.name.clone(), symbol, grid: false }
    };
    kernels.iter().enumerate().map(entry).collect()
}

/// Where the entry point finds the argument, as a type of `entry.h`.
fn source(kind: &ParameterKind) -> String {
    match kind {
        ParameterKind::Buffer { index, .. } => format!("elv::buffer<{index}>"),
        ParameterKind::Threadgroup { index, .. } => format!("elv::threadgroup_memory<{index}>"),
        ParameterKind::Position(position) => format!("elv::position<{}>", *position as u32),
    }
}
