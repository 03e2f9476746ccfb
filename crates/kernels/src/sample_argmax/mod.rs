//! The end of a greedy decoding step, on the device: the most likely token, and the position after, ready for the next step.
//!
//! `state = [token, position]` becomes `[argmax logits, position + 1]`; of equal logits the first counts. A logit that is NaN or +∞, or a row without
//! a finite one, is an error. Memory: the logits are read once (on a CPU twice), by as many threadgroups as they fill, or by a cluster. Exact, so in any order.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

pub use cpu::argmax;
use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, Description, Launch, Operator, Plan, TensorInfo,
    cuda::{CudaArchitecture, LARGEST_CLUSTER},
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
    metal::CLUSTERS,
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
        /// Logits that it looks at.
        pub logits: u64,
        /// Whether their tokens are bound: one, or zero.
        pub are_named: u64,
    }
}

/// Threads of a threadgroup, and of one of a cluster.
const THREADS: u32 = 256;
const CLUSTER_THREADS: u32 = 1024;
/// Most parts of a row.
const PARTS: usize = 256;

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
        let (tokens, dtype) = (logits.elements(), logits.dtype);
        if device.simd_width == 1 {
            let params = Params { logits: tokens as u64, are_named: 0 };
            let launch = Launch::new(KernelKey::new("sample_argmax", &[dtype]), cpu::kernel(dtype)?, &params, [state, row]);
            return Ok(launch.over(Extent::linear(1), Extent::linear(1)).into());
        }
        let launch = |key: KernelKey, form: MetalForm, groups: usize, threads: u32, params: Params, buffers: [(Parameter, Argument); 3]| {
            let launch = Launch::on_gpu(key, form.with_error_flag(REJECTION), &params, buffers);
            // What each simdgroup finds, and the threadgroup.
            launch.over(Extent::linear(groups as u32), Extent::linear(threads)).with_threadgroup_memory(8 * (threads as usize / 32 + 1))
        };
        let last = |cluster: usize, threads: u32, seen: usize, logits: (Parameter, Argument), names: Argument| {
            let key = KernelKey::new("sample_argmax", &[dtype]).with("cluster", cluster as u32);
            let form = MetalForm::new(FILES, "sample_argmax").in_clusters(cluster as u32);
            let params = Params { logits: seen as u64, are_named: (names != Argument::Absent).into() };
            launch(key, form, cluster, threads, params, [state.clone(), logits, (Parameter::read("names", DType::U32).or_absent(), names)])
        };
        let parts = tokens.div_ceil(8 * THREADS as usize).min(PARTS);
        if parts == 1 {
            return Ok(last(1, THREADS, tokens, row, Argument::Absent).into());
        }
        if CudaArchitecture::CLUSTERED.is_of(device) {
            return Ok(last(LARGEST_CLUSTER, CLUSTER_THREADS, tokens, row, Argument::Absent).into());
        }
        let (key, form) = (KernelKey::new("sample_argmax_part", &[dtype]), MetalForm::new(FILES, "sample_argmax_part"));
        let [best, token] =
            [(Parameter::write("bests", dtype), Argument::Scratch(0)), (Parameter::write("tokens", DType::U32), Argument::Scratch(1))];
        let part = launch(key, form, parts, THREADS, Params { logits: tokens as u64, are_named: 0 }, [row, best, token]);
        let last = last(1, THREADS, parts, (Parameter::read("bests", dtype), Argument::Scratch(0)), Argument::Scratch(1));
        Ok(Plan { launches: vec![part, last], scratch: vec![dtype.size() * parts, 4 * parts] })
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
