//! Rotary position embedding: pairs of a head's elements rotated by an angle that grows with the token's position.
//!
//! `(u, v) → (u cos φ − v sin φ, v cos φ + u sin φ)` with `φ = position · frequency`, where the pairs of a head's first `rotary_dim`
//! elements are `(i, i + rotary_dim / 2)` (half split: GPT-NeoX, Llama as Hugging Face stores it) or `(2i, 2i + 1)` (interleaved: GPT-J,
//! Llama as Meta stores it). The elements beyond `rotary_dim` are copied. [`Rope`] computes the angles, [`RotaryEmbedding`] takes
//! their cosines and sines from caches.
//!
//! * Memory: `x` is read once and the output written once; cosines and sines are made once for each token and serve all its heads.
//! * Order: `φ` is one f32 product, cosine and sine are [`cos`](crate::math::cos) and [`sin`](crate::math::sin); each product and the sum
//!   are rounded to f32, then once to the type of `x`.
//! * before the rounding of the output, absolute: `(|φ| + 4) · 2^-24 · (|u| + |v|)`.
//! * See Su et al., *RoFormer*, 2021; ONNX `RotaryEmbedding`.

mod cpu;
mod descriptions;
mod embedding;
mod frequencies;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Result};

pub(crate) use cpu::{angles, half_split, interleaved};
pub(crate) use descriptions::DESCRIPTIONS;
pub use embedding::RotaryEmbedding;
pub use frequencies::{RopeScaling, frequencies};

use crate::{
    Definition, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    elementwise,
    gather::index,
    gradient::Gradient,
    math,
    metal::{self, metal_file, params},
    signature::{mismatch, misshapen, operands, shape_of},
    unary::UnaryOp,
};

attributes! {
    /// Rotary position embedding by computed angles.
    ///
    /// Inputs: `x [tokens, heads, head_dim]` or `[batch, tokens, heads, head_dim]` with any strides; `positions [tokens]` or
    /// `[batch, tokens]`, i32, i64 or u32; `frequencies [rotary_dim / 2]` in radians for each position, f32, as [`frequencies()`] gives them.
    /// Positions are converted to f32: exact up to 2^24.
    #[derive(Clone, Copy, Debug)]
    pub struct Rope {
        /// Pairs are neighbours instead of half a head apart.
        pub interleaved: bool = false,
    }
}

params! {
    /// Element `e` of head `h` of token `t` of batch `b` is `x[x_origin + b·x[0] + t·x[1] + h·x[2] + e·x[3]]`; likewise `y`, from zero.
    struct Params {
        /// Batches, tokens, heads, elements of a head.
        pub extents: [u64; 4],
        pub x: [i64; 4],
        pub x_origin: u64,
        pub y: [u64; 3],
        /// From one batch's positions to the next's: zero where they are shared.
        pub position_stride: u64,
        /// Rows of the caches; zero without caches.
        pub cache_rows: u64,
        /// Pairs that rotate.
        pub half_dim: u32,
        /// Whether pairs are neighbours.
        pub interleaved: u32,
        /// Whether rows of the caches are named by positions.
        pub indexed: u32,
        /// Zero.
        pub reserved: u32,
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, math::METAL, Params::METAL, metal_file!("rope/rope.metal")];
const PAIRS: MetalForm = MetalForm::new(&[metal::TYPES, math::METAL, Params::METAL, metal_file!("rope/pairs.metal")], "rope_pairs");

/// Heads that a thread of the kernels works on.
const HEADS: u64 = 4;

impl Params {
    /// A column of threads for the pairs and the copied elements of a head, as many columns as give each thread [`HEADS`] heads, and a
    /// threadgroup for each token and block of heads.
    fn launch(&self, launch: Launch, device: &DeviceProperties) -> Launch {
        let [batches, tokens, heads, dim] = self.extents;
        let extent = |n: u64| n.min(u32::MAX.into()) as u32;
        let most = (device.max_threads_per_threadgroup as u64).clamp(32, 256);
        let width = (dim - u64::from(self.half_dim)).next_power_of_two().clamp(32, most);
        let height = (most / width).min(heads.div_ceil(HEADS)).max(1);
        let grid = if heads * dim == 0 { [0; 3] } else { [extent(batches * tokens), extent(heads.div_ceil(HEADS * height)), 1] };
        launch.over(Extent(grid), Extent([width as u32, height as u32, 1]))
    }

    /// Threads that take two neighbouring pairs each, where pairs are half a head apart and even in number, as are the elements that do not rotate.
    fn paired(&self) -> Option<usize> {
        let [batches, tokens, heads, dim] = self.extents.map(|extent| extent as usize);
        let half = self.half_dim as usize;
        let fits = self.interleaved == 0 && self.x[3] == 1 && half.is_multiple_of(2) && dim.is_multiple_of(2);
        let threads = [tokens, heads.div_ceil(HEADS as usize), (dim - half) / 2].iter().try_fold(batches, |product, n| product.checked_mul(*n));
        threads.filter(|threads| fits && u32::try_from(*threads).is_ok())
    }
}

/// `positions` must give one for each token, or one for each token of each batch.
fn position_stride((name, positions): (&str, TensorInfo), x: TensorInfo, batches: Option<usize>, tokens: usize) -> Result<u64> {
    match **positions.shape() {
        [n] if n == tokens => Ok(0),
        [b, n] if n == tokens && Some(b) == batches => Ok(tokens as u64),
        _ => {
            let batched = batches.map_or_else(String::new, |b| format!(" or [{b}, {tokens}]"));
            Err(mismatch(&[shape_of(name, &positions), shape_of("x", &x)], format_args!("[{tokens}]{batched}")))
        }
    }
}

/// Half the rotating part of the heads along the last axis of `x`: there is a frequency for each.
pub(crate) fn half_of(frequencies: TensorInfo, (name, x): (&str, TensorInfo)) -> Result<u32> {
    let most = x.shape().last().map_or(0, |dim| dim / 2).min(u32::MAX as usize);
    match **frequencies.shape() {
        [half] if (1..=most).contains(&half) => Ok(half as u32),
        _ => {
            let found = [shape_of("frequencies", &frequencies), shape_of(name, &x)];
            Err(mismatch(&found, format_args!("one for each pair that rotates, 1 to {most}")))
        }
    }
}

pub(crate) const FREQUENCIES: &str = "[rotary_dim / 2], radians for each position; the rest of a head is copied";

operands! {
    x: read(DType::FLOATS), "[tokens, heads, head_dim] or [batch, tokens, heads, head_dim]";
    positions: read(index::TYPES), "[tokens] or [batch, tokens]";
    frequencies: read(&[DType::F32]), FREQUENCIES;
    -> y: write(like x), "as x";
}

impl Rope {
    fn params(&self, operands::Inputs { x, positions, frequencies }: operands::Inputs) -> Result<Params> {
        let (batches, [tokens, heads, dim]) = match **x.shape() {
            [tokens, heads, dim] => (None, [tokens, heads, dim]),
            [batches, tokens, heads, dim] => (Some(batches), [tokens, heads, dim]),
            _ => return Err(misshapen!(x; "[tokens, heads, dim] or [batch, tokens, heads, dim]")),
        };
        let half = half_of(frequencies, ("x", x))?;
        let mut strides = [0; 4];
        for (to, from) in strides.iter_mut().rev().zip(x.layout.strides().iter().rev()) {
            *to = *from as i64;
        }
        let extents = [batches.unwrap_or(1), tokens, heads, dim].map(|n| n as u64);
        let token = extents[2] * extents[3];
        Ok(Params {
            extents,
            x: strides,
            x_origin: x.layout.origin() as u64,
            y: [extents[1] * token, token, extents[3]],
            position_stride: position_stride(("positions", positions), x, batches, tokens)?,
            cache_rows: 0,
            half_dim: half,
            interleaved: self.interleaved.into(),
            indexed: 1,
            reserved: 0,
        })
    }
}

impl Operator for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = operands::Inputs::new(inputs)?;
        self.params(inputs)?;
        Ok(vec![TensorInfo::of(inputs.x.dtype, *inputs.x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (params, x, positions) = (self.params(inputs)?, inputs.x.dtype, inputs.positions.dtype);
        let launch = |name| Ok(Launch::new(KernelKey::new(name, &[x, positions]), cpu::kernel(x, positions)?, &params, inputs.parameters(outputs)?));
        Ok(match params.paired() {
            Some(threads) => elementwise::over_threads(launch("rope_pairs")?.with_metal(PAIRS), threads).into(),
            None => params.launch(launch("rope")?.with_metal(MetalForm::new(FILES, "rope")), device).into(),
        })
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index == 0
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        // Back by the same angle.
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            if index != operands::AT.x {
                return Err(Error::unsupported("rope has no gradient of its frequencies"));
            }
            let (positions, frequencies, upstream) =
                (gradient.input(operands::AT.positions)?, gradient.input(operands::AT.frequencies)?, gradient.upstream(0)?);
            let back = gradient.unary(UnaryOp::Neg, frequencies)?;
            gradient.apply(*self, &[upstream, positions, back])
        })
    }
}
