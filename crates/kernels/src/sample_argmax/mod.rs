//! The end of a greedy decoding step, on the device: the most likely token, and the position after, ready for the next step.
//!
//! `state = [token, position]` becomes `[argmax logits, position + 1]`; of equal logits the first counts. A logit that is NaN or +∞, or a row without
//! a finite one, is an error. Memory: the logits are read once (on a CPU twice), by as many threadgroups as they fill. Exact, so in any order.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

pub use cpu::argmax;
use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, Description, Launch, Operator, Plan, TensorInfo,
    description::describe,
    elementwise::{self, Operand, Space},
    metal::{self, metal_file, params},
    order,
    signature::{misshapen, operands},
};

/// The best of the tokens seen, and its logit.
pub(crate) const BEST: MetalFile = metal_file!("sample_argmax/best.metal");

const FILES: &[MetalFile] = &[
    metal::TYPES,
    metal::LAUNCHES,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    order::METAL,
    Params::METAL,
    BEST,
    metal_file!("sample_argmax/sample_argmax.metal"),
];

pub(crate) const REJECTION: &str = "a logit is NaN or infinite: the model's weights are damaged, or its activations overflow";

/// Chooses the most likely token. Inputs: `state [2]`, i32, updated in place: a token and its position; `logits […, vocabulary]` of one row.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampleArgmax;

params! {
    /// What the kernel gets besides its buffers.
    struct Params {
        /// Logits.
        pub tokens: u64,
        /// Parts that they are taken in.
        pub parts: u64,
    }
}

/// Threads of a threadgroup, and bytes of what its simdgroups find.
const THREADS: u32 = 256;
const FOUND: usize = THREADS as usize / 32 * 8;
/// Most parts of a row: as many as the last threadgroup has threads.
const PARTS: usize = THREADS as usize;

operands! {
    state: update(&[DType::I32]), "[2], a token and its position, updated in place to the token of the greatest logit and the position after";
    logits: read(DType::FLOATS), "[…, vocabulary], one row";
}

/// Checks the shapes of the state and of the logits.
pub(crate) fn check(state: &TensorInfo, logits: &TensorInfo) -> Result<()> {
    if **state.shape() != [2] {
        return Err(misshapen!(state; "[2], a token and its position"));
    }
    let shape = logits.shape();
    if shape.elements() == 0 || shape.last() != Some(&shape.elements()) || shape.elements() > i32::MAX as usize {
        return Err(misshapen!(logits; "one row, not empty"));
    }
    Ok(())
}

impl Operator for SampleArgmax {
    fn name(&self) -> &'static str {
        "sample_argmax"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { state, logits } = operands::Inputs::new(inputs)?;
        check(&state, &logits).map(|()| Vec::new())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (logits, [state, row]) = (inputs.logits, inputs.buffers());
        let tokens = logits.elements();
        let parts = tokens.div_ceil(8 * THREADS as usize).min(PARTS);
        let params = Params { tokens: tokens as u64, parts: parts as u64 };
        if device.simd_width == 1 {
            let launch = Launch::new(KernelKey::new("sample_argmax", &[logits.dtype]), cpu::kernel(logits.dtype)?, &params, [state, row]);
            return Ok(launch.over(Extent::linear(1), Extent::linear(1)).into());
        }
        let found = [("bests", logits.dtype, 0), ("tokens", DType::U32, 1)];
        let (written, read) = (
            found.map(|(name, dtype, index)| (Parameter::write(name, dtype), Argument::Scratch(index))),
            found.map(|(name, dtype, index)| (Parameter::read(name, dtype), Argument::Scratch(index))),
        );
        let launch = |name: &'static str, buffers: Vec<(Parameter, Argument)>, groups: usize| {
            let launch =
                Launch::on_gpu(KernelKey::new(name, &[logits.dtype]), MetalForm::new(FILES, name).with_error_flag(REJECTION), &params, buffers);
            launch.over(Extent::linear(groups as u32), Extent::linear(THREADS)).with_threadgroup_memory(FOUND)
        };
        let part = launch("sample_argmax_part", [vec![row], written.to_vec()].concat(), parts);
        let last = launch("sample_argmax", [vec![state], read.to_vec()].concat(), 1);
        Ok(Plan { launches: vec![part, last], scratch: vec![logits.dtype.size() * parts, 4 * parts] })
    }

    fn updates(&self, index: usize) -> bool {
        index == 0
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("sample_argmax", "the most likely token and the position after, in place: the end of a decoding step", operands, = SampleArgmax)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_greatest_is_found_and_what_is_no_number_named() {
        assert_eq!(argmax(&[-1.0f32, 3.0, 3.0, f32::NEG_INFINITY]).unwrap(), 1);
        assert_eq!(argmax(&[0.0f32, -0.0]).unwrap(), 0);
        assert!(argmax(&[1.0f32, f32::NAN, f32::INFINITY]).unwrap_err().to_string().contains("the logit of token 1 is NaN"));
        assert!(argmax(&[1.0f32, 2.0, f32::INFINITY]).unwrap_err().to_string().contains("the logit of token 2 is inf"));
        assert!(argmax(&[f32::NEG_INFINITY; 3]).unwrap_err().to_string().contains("none of the 3 logits"));
    }
}
