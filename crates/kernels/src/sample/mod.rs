//! The end of a decoding step that samples, on the device: a token drawn from the logits, and the position after, ready for the next step.
//!
//! `state = [token, position]` becomes `[drawn, position + 1]`. Of logits `l`, the greatest of them `m`, token `i` has the score `s_i = (l_i - m) / temperature`.
//! The best tokens are those of greater logits, of equals the lower numbers. Kept are
//!
//! 1. the `top_k` best, if that is not 0;
//! 2. of these the best until their weights `⌊2^31 exp(s_i)⌋` sum to `⌊top_p · their total⌋`, if `top_p` is below 1, and at least one;
//! 3. those with `exp(s_i) ≥ min_p`, if that is above 0.
//!
//! Drawn is the kept token with the greatest `s_i + g_i`, of equals the lower, where `g_i = -log(-log(1 - v_i))` and `v_i = (w_i + 1/2) / 2^32`: a token comes
//! as often as it is likely among those kept (Gumbel, 1954; Maddison, Tarlow and Minka, *A\* Sampling*, 2014). Word `w_i` is number `i mod 4` of Philox
//! 4x32-10 for the counter `(⌊i / 4⌋, position + 1, 0, 0)` and the seed as key. So a draw depends on the logits, the settings, the seed and the place in the
//! text, and on nothing that came before. A temperature of 0 takes the best token.
//!
//! * Memory: the logits are read twice, and by each filter up to nine times more, from the caches.
//! * Order: the functions are the strict ones and sums are of integers, so logits of the same bits give the same token on every device.
//! * A logit that is NaN or +∞, or a row without a finite one, is an error.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;
mod philox;
mod settings;

pub use cpu::choose;
use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Result};
pub use settings::Settings;

use crate::{
    Description, Launch, Operator, Plan, TensorInfo,
    description::describe,
    elementwise::{self, Operand, Space},
    math,
    metal::{self, metal_file, params},
    order, sample_argmax,
    signature::{mismatch, misshapen, operands, shape_of},
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    metal::LAUNCHES,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    order::METAL,
    math::METAL,
    Params::METAL,
    sample_argmax::BEST,
    metal_file!("sample/philox.metal"),
    metal_file!("sample/reach.metal"),
    metal_file!("sample/sample.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "sample").with_error_flag(sample_argmax::REJECTION);

/// Draws a token. Inputs: `state [2]`, i32, updated in place: a token and its position; `logits […, vocabulary]` of one row; `factors [3]`, f32, and
/// `numbers [3]`, u32, as [`Settings`] gives them. Or of several rows, each by itself: `state [rows, 2]`, `logits [rows, vocabulary]`, `factors [rows, 3]`
/// and `numbers [rows, 3]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample;

params! {
    /// What the kernel gets besides its buffers.
    struct Params {
        /// Logits of a row.
        pub tokens: u64,
        /// Rows.
        pub rows: u64,
    }
}

impl Params {
    fn new(inputs: &operands::Inputs) -> Result<Self> {
        let operands::Inputs { state, logits, factors, numbers } = *inputs;
        let &[rows, 2] = &state.shape()[..] else {
            sample_argmax::check(&state, &logits)?;
            for (name, info) in [("factors", factors), ("numbers", numbers)] {
                if **info.shape() != [3] {
                    return Err(mismatch(&[shape_of(name, &info)], "[3]"));
                }
            }
            return Ok(Self { tokens: logits.elements() as u64, rows: 1 });
        };
        let fits = logits.shape().rank() == 2 && logits.shape()[0] == rows && (1..=i32::MAX as usize).contains(&logits.shape()[1]);
        if !fits {
            return Err(misshapen!(state, logits; "[rows, 2] and [rows, vocabulary]"));
        }
        for (name, info) in [("factors", factors), ("numbers", numbers)] {
            if **info.shape() != [rows, 3] {
                return Err(mismatch(&[shape_of(name, &info)], format_args!("[{rows}, 3]")));
            }
        }
        Ok(Self { tokens: logits.shape()[1] as u64, rows: rows as u64 })
    }
}

/// Threads of the threadgroup, and bytes of its memory: two words for each of 256 digits, and what each simdgroup finds.
const THREADS: u32 = 1024;
const SHARED: usize = 2 * 4 * 256 + 8 * THREADS as usize / 32;

operands! {
    state: update(&[DType::I32]), "[2] or [rows, 2], a token and its position, updated in place to the token drawn and the position after";
    logits: read(DType::FLOATS), "[…, vocabulary], one row, or [rows, vocabulary]";
    factors: read(&[DType::F32]), "[3] or [rows, 3]: temperature, top-p, min-p";
    numbers: read(&[DType::U32]), "[3] or [rows, 3]: top-k, the seed's lower and upper word";
}

impl Operator for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        Params::new(&operands::Inputs::new(inputs)?).map(|_| Vec::new())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (logits, buffers) = (inputs.logits, inputs.parameters(outputs)?);
        let params = Params::new(&inputs)?;
        let rows = u32::try_from(params.rows).map_err(|_| Error::unsupported(format!("{} rows: too many for one launch", params.rows)))?;
        let launch = Launch::new(KernelKey::new("sample", &[logits.dtype]), cpu::kernel(logits.dtype)?, &params, buffers).with_metal(METAL);
        Ok(launch.over(Extent::linear(rows), Extent::linear(THREADS)).with_threadgroup_memory(SHARED).into())
    }

    fn updates(&self, index: usize) -> bool {
        index == 0
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("sample", "a token drawn from logits and the position after, in place: the end of a decoding step", operands, = Sample)];

#[cfg(test)]
mod tests;
