//! Lowering to CUDA C++, which NVRTC compiles at run time.
//!
//! CUDA has no address spaces in its types, so most of it is dropping words; the headers of [`PRELUDE`] give Metal's vocabulary. A simdgroup is a
//! warp, threadgroup memory is shared memory, and all of it lives in a namespace of its own.

mod duplicates;
mod entries;
mod fills;
mod literals;
mod pragmas;
mod qualifiers;
mod specialisations;
mod ternaries;
#[cfg(test)]
mod tests;

use crate::{
    kernel::Kernel,
    lower::{self, Lowered, braces, constants, edits::Edits, swizzles},
    module::Module,
};

/// The prelude's files, name and text. The lowered text includes `msl.cuh`; no header of the toolkit is needed.
pub const PRELUDE: &[(&str, &str)] = prelude! {
    "cuda/prelude/":
    "msl.cuh" "language.cuh" "scalars.cuh" "half.cuh" "limits.cuh" "vector.cuh" "packed.cuh" "math.cuh" "integer.cuh" "synchronization.cuh"
    "collective.cuh" "simdgroup.cuh" "quadgroup.cuh" "simdgroup_matrix.cuh" "atomic.cuh" "utility.cuh" "entry.cuh"
};

/// NVRTC's options for a lowered text, besides `--gpu-architecture` and `-DELV_CONSTANT_n=…` for function constants. Strict kernels need
/// `--fmad=false` too, and all of them `--maxrregcount=…`: [`REGISTERS`] unless a kernel does with fewer.
///
/// (What is suppressed: Metal allows to repeat `const`, to compare an unsigned number with zero and to leave variables and functions unused.)
pub const OPTIONS: &[&str] = &["--std=c++17", "-default-device", "--diag-suppress=83,128,177,186,550"];

/// A kernel that does not say how many threads its threadgroups have may be launched with 1024: then a thread can have so many registers.
pub const REGISTERS: u32 = 64;

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
}

/// The threadgroups of the launches that a lowered text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threadgroups {
    /// All of one size.
    Uniform,
    /// At the grid's end smaller than the others.
    Nonuniform,
}

pub(crate) fn lower(module: &Module, wanted: &[(Kernel, CudaEntry<'_>)], threadgroups: Threadgroups) -> Lowered {
    let mut edits = Edits::new(&module.tokens);
    lower::attributes(module, &mut edits);
    lower::instantiations(module, &mut edits);
    lower::declarations(module, &mut edits);
    pragmas::pragmas(module, &mut edits);
    constants::function_constants(module, &mut edits);
    constants::tables(module, &mut edits, |constexpr| if constexpr { "" } else { "constexpr" });
    qualifiers::threadgroup_variables(module, &mut edits);
    qualifiers::global_names(module, &mut edits);
    qualifiers::address_spaces(module, &mut edits);
    swizzles::swizzles(module, &mut edits);
    ternaries::ternaries(module, &mut edits);
    fills::fills(module, &mut edits);
    literals::literals(module, &mut edits);
    braces::braces(module, &mut edits);
    specialisations::specialisations(module, &mut edits);
    duplicates::duplicates(module, &mut edits);
    let mut text =
        format!("{}#include \"msl.cuh\"\n{}namespace msl {{\n{}", defines(module, threadgroups), constants::defaults(module), edits.apply());
    let entries = entries::entries(wanted, threadgroups, &mut text);
    text.push_str("} // namespace msl\n");
    Lowered { text, entries }
}

/// What the prelude has to know of a text: which of its rarer parts are used, whether it looks into the matrices of simdgroups, what it is for.
fn defines(module: &Module, threadgroups: Threadgroups) -> String {
    let tokens = &module.tokens;
    let words = || (0..tokens.len()).filter(|&at| tokens.is_identifier(at)).map(|at| tokens.text(at));
    let starts = |prefixes: &[&str]| words().any(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)));
    let defines = [
        ("ELV_THREAD_ELEMENTS", starts(&["thread_elements"])),
        ("ELV_PACK", starts(&["pack_", "unpack_"])),
        ("ELV_TEXTURE", starts(&["texture", "sampler", "depth2d"])),
        ("ELV_INTERNALS", starts(&["__metal_", "__METAL_"])),
        ("ELV_NONUNIFORM", threadgroups == Threadgroups::Nonuniform),
    ];
    defines.iter().filter(|(_, used)| *used).map(|(name, _)| format!("#define {name}\n")).collect()
}
