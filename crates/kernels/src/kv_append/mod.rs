//! Writes new rows into a key or value cache, at positions that lie on the device.
//!
//! `cache[…, h, positions[t], :] = rows[…, t, h, :]`, rounded to nearest even where the cache is narrower. Reads each new row once and writes it
//! once; the rest of the cache is not touched. As the positions are data, a recorded command list serves every step of a generation.
//!
//! Positions of one sequence must differ from each other. A position outside the cache is an error, and nothing is written there.
//!
//! In a cache of bytes a row is packed in [`Format::Q8_0`](crate::quantized::Format::Q8_0). 32 neighbours `x` become bytes `q` and a scale `d`: with
//! `s = max |x| / 127` and `r = 1 / s`, zero where `s` is, each rounded to f32, `d` is `s` rounded to f16, and `q` is `x · r` rounded to f32 and then to the
//! nearest integer, halves away from zero, of at most 127: ggml's rule. `d · q` is exact in f32. If one of the 32 is NaN or infinite, `d · q` is NaN for all of
//! them. What a packed row is filled up with is not written.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

pub(crate) use cpu::{check_positions, with_pair};
use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Description, Launch, Operator, Plan, TensorInfo,
    attention::{View, is_pair},
    description::describe,
    elementwise::{self, Operand, Space},
    metal::{self, metal_file, params},
    quantized::cached,
    signature::{mismatch, operands, shape_of, type_of},
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    View::METAL,
    Params::METAL,
    cached::METAL,
    metal_file!("kv_append/kv_append.metal"),
];
/// What a kernel says of a position that it rejects.
pub(crate) const REJECTION: &str = "a token goes to a position outside the cache: use a cache with more capacity";

const METAL: MetalForm = MetalForm::new(FILES, "kv_append").with_error_flag(REJECTION);

/// Appends to a cache in place.
///
/// Inputs: `cache [Hkv, capacity, D]`, f32, f16 or bf16, updated, or u8, whose last axis is a row packed in [`Format::Q8_0`](crate::quantized::Format); `rows [T, Hkv,
/// D]`, f32 or the cache's type; `positions [T]`, i32. For a batch:
/// `cache [B, Hkv, capacity, D]`, `rows [B, T, Hkv, D]`, `positions [T]` or `[B, T]`. The cache and the rows may have any strides along
/// which the last axis is contiguous.
#[derive(Clone, Copy, Debug, Default)]
pub struct KvAppend;

params! {
    /// What the kernel gets besides its buffers.
    pub struct Params {
        /// The cache: batch, head, position.
        pub cache: View,
        /// The rows: batch, head, token.
        pub rows: View,
        /// Sequences.
        pub batch: u64,
        /// Tokens of each.
        pub tokens: u64,
        /// Heads.
        pub heads: u64,
        /// Positions the cache has.
        pub capacity: u64,
        /// Elements of a row.
        pub width: u64,
        /// From a sequence's positions to the next one's: zero if all share them.
        pub position_stride: u64,
    }
}

/// What the operands of every operator that appends are.
pub(crate) const CACHE: &str = "[Hkv, capacity, D] or [B, Hkv, capacity, D], updated in place; u8: rows packed in Q8_0";
pub(crate) const ROWS: &str = "[tokens, Hkv, D] or [B, tokens, Hkv, D], f32 or the cache's type";
pub(crate) const POSITIONS: &str = "[tokens] or [B, tokens]: where each token goes, below the capacity, all different";

operands! {
    cache: update(cached::TYPES), CACHE;
    rows: read(DType::FLOATS), ROWS;
    positions: read(&[DType::I32]), POSITIONS;
}

impl operands::Inputs {
    fn params(&self) -> Result<Params> {
        Params::new(("cache", self.cache), ("rows", self.rows), self.positions)
    }
}

impl Operator for KvAppend {
    fn name(&self) -> &'static str {
        "kv_append"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        operands::Inputs::new(inputs)?.params().map(|_| Vec::new())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (params, rows, cache) = (inputs.params()?, inputs.rows.dtype, inputs.cache.dtype);
        let launch = Launch::new(KernelKey::new("kv_append", &[rows, cache]), cpu::kernel(rows, cache)?, &params, inputs.parameters(outputs)?);
        // A simdgroup takes 256 elements at once.
        let most = (device.max_threads_per_threadgroup as u64 / 32).clamp(1, 8);
        let threads = params.width.div_ceil(256).clamp(1, most) as u32 * 32;
        Ok(launch.over(params.grid(), Extent::linear(threads)).with_metal(METAL).into())
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < 2
    }

    fn updates(&self, index: usize) -> bool {
        index == 0
    }
}

impl Params {
    /// A threadgroup for each row.
    pub(crate) fn grid(&self) -> Extent {
        let extent = |n: u64| n.min(u64::from(u32::MAX)) as u32;
        Extent([extent(self.tokens * self.batch), extent(self.heads), u32::from(self.width > 0)])
    }

    pub(crate) fn new((cache_name, cache): (&str, TensorInfo), (rows_name, rows): (&str, TensorInfo), positions: TensorInfo) -> Result<Params> {
        if !is_pair(rows.dtype, cache.dtype) {
            let found = [type_of(rows_name, rows.dtype), type_of(cache_name, cache.dtype)];
            return Err(mismatch(&found, format_args!("one type, or f32 {rows_name}")));
        }
        let reject = |expected: &str| Err(mismatch(&[shape_of(cache_name, &cache), shape_of(rows_name, &rows)], expected));
        let (c, r) = (cache.shape(), rows.shape());
        let ([.., heads, capacity, _], [.., tokens, row_heads, row_width]) = (&c[..], &r[..]) else {
            return reject("[Hkv, capacity, D] and [tokens, Hkv, D]");
        };
        let width = &cached::width(cache_name, &cache)?;
        let batched = c.rank() == 4;
        if !(3..=4).contains(&c.rank()) || r.rank() != c.rank() || (heads, width) != (row_heads, row_width) || batched && c[0] != r[0] {
            return reject("[B, Hkv, capacity, D] and [B, tokens, Hkv, D], both with or both without B");
        }
        let batch = if batched { c[0] } else { 1 };
        let position_stride = match positions.shape()[..] {
            [n] if n == *tokens => 0,
            [b, n] if b == batch && n == *tokens => n as u64,
            _ => {
                let found = [shape_of("positions", &positions), shape_of(rows_name, &rows)];
                return Err(mismatch(&found, format_args!("[{tokens}] or [B, {tokens}]")));
            }
        };
        let lead = usize::from(batched);
        Ok(Params {
            cache: View::new(cache_name, &cache, batched.then_some(0), lead, lead + 1)?,
            rows: View::new(rows_name, &rows, batched.then_some(0), lead + 1, lead)?,
            batch: batch as u64,
            tokens: *tokens as u64,
            heads: *heads as u64,
            capacity: *capacity as u64,
            width: *width as u64,
            position_stride,
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("kv_append", "writes new rows into a key or value cache at given positions, in place", operands, = KvAppend)];
