//! Programs as the texts that devices compile.

use elinvar_atlas::{
    Limits, Program, Verified,
    render::{self, ParameterBlock},
    verify,
};
use elinvar_core::{DType, Error, Result};
use elinvar_msl::{
    self as msl, MetalHeaders, Module,
    cuda::{CudaEntry, Threadgroups},
};

/// A program in the Metal Shading Language, as it is compiled for buffers that begin at multiples of 16 bytes.
///
/// ```
/// let program = elinvar::atlas::parse("atlas 1\nprogram nothing\nkernel\nend")?;
/// assert!(elinvar::program_metal(&program)?.contains("[[kernel]] void program_nothing("));
/// # Ok::<(), elinvar::Error>(())
/// ```
///
/// # Errors
/// A program that is wrong, or uses f64, which Metal does not have.
pub fn program_metal(program: &Program) -> Result<String> {
    Ok(render::metal(&verified(program)?, true).text)
}

/// The same in CUDA C++, as it is given to NVRTC.
///
/// ```
/// let program = elinvar::atlas::parse("atlas 1\nprogram nothing\nkernel\nend")?;
/// assert!(elinvar::program_cuda(&program)?.contains("__global__"));
/// # Ok::<(), elinvar::Error>(())
/// ```
///
/// # Errors
/// As [`program_metal`].
pub fn program_cuda(program: &Program) -> Result<String> {
    let metal = render::metal(&verified(program)?, true);
    let text = msl::preprocess(&program.name, &metal.text, &[("EXACT_BFLOAT", "1")], &MetalHeaders)?;
    let buffers = program.parameters.iter().filter(|p| p.access.is_some()).count() as u32;
    let inline = (ParameterBlock::of(program).size() > 0).then_some(buffers);
    let entry = CudaEntry { kernel: &metal.kernel, inline: inline.as_slice(), prefetched: None, cluster: 1 };
    Ok(Module::read(&text)?.lower_for_cuda(&[entry], Threadgroups::Uniform)?.text)
}

fn verified(program: &Program) -> Result<Verified> {
    let verified = verify(program.clone(), &Limits { unchecked: true, ..Limits::default() })?;
    if verified.program().uses(DType::F64) {
        return Err(Error::unsupported(format!("program {} uses f64, which Metal does not have", program.name)));
    }
    Ok(verified)
}
