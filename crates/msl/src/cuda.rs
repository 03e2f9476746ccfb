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

use elinvar_core::Result;

use crate::{
    lower::{self, Lowered, braces, constants, edits::Edits, swizzles},
    module::Module,
};
pub use entries::{CudaEntry, Threadgroups};

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

impl Module {
    /// CUDA C++ that behaves as the text does, with an entry point for each of `entries`.
    ///
    /// An entry point is `extern "C" __global__`; its arguments are those of the kernel, in order: a pointer for each buffer (null where none is
    /// bound), for one that is passed inline the value itself, nothing for the first threadgroup memory, which starts where the launch's dynamic
    /// shared memory does, for each further one its offset from there in bytes as a `u32`, nothing for positions; and, where [`Entry::grid`]
    /// says so, the grid's threads as three `u32`. A buffer that the kernel writes may not overlap another one.
    ///
    /// [`Entry::grid`]: crate::Entry::grid
    ///
    /// # Errors
    ///
    /// A kernel that the text does not have.
    pub fn lower_for_cuda(&self, entries: &[CudaEntry<'_>], threadgroups: Threadgroups) -> Result<Lowered> {
        let wanted = entries.iter().map(|entry| Ok((self.kernel(entry.kernel)?, *entry))).collect::<Result<Vec<_>>>()?;
        let mut edits = Edits::new(&self.tokens);
        lower::attributes(self, &mut edits);
        lower::instantiations(self, &mut edits);
        lower::declarations(self, &mut edits);
        pragmas::pragmas(self, &mut edits);
        constants::function_constants(self, &mut edits);
        constants::tables(self, &mut edits, |constexpr| if constexpr { "" } else { "constexpr" });
        qualifiers::threadgroup_variables(self, &mut edits);
        qualifiers::global_names(self, &mut edits);
        qualifiers::address_spaces(self, &mut edits);
        swizzles::swizzles(self, &mut edits);
        ternaries::ternaries(self, &mut edits);
        fills::fills(self, &mut edits);
        literals::literals(self, &mut edits);
        braces::braces(self, &mut edits);
        specialisations::specialisations(self, &mut edits);
        duplicates::duplicates(self, &mut edits);
        let mut text =
            format!("{}#include \"msl.cuh\"\n{}namespace msl {{\n{}", defines(self, threadgroups), constants::defaults(self), edits.apply());
        let entries = entries::entries(&wanted, threadgroups, &mut text);
        text.push_str("} // namespace msl\n");
        Ok(Lowered { text, entries })
    }
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
