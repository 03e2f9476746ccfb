//! What `attention` and `attention_scores` share: the attributes of the scores, the layouts, and which keys a query may attend.

use std::ops::Range;

use bytemuck::Zeroable;
use elinvar_core::{DType, Error, MetalFile, Result, Shape};

use crate::{
    TensorInfo,
    attributes::attributes,
    matmul::dtype_code,
    metal::{metal_file, params},
    quantized::cached,
    signature::{mismatch, misshapen, mistyped, shape_of},
};

attributes! {
    /// How queries and keys give scores: `softcap(scale · q·k) + mask`, and which keys a query attends.
    ///
    /// Query `i` of sequence `b` stands at position `p = positions[b, i]`, or `i + offset` without positions. It attends key `j` if `j` is a key
    /// of the sequence (`j < lengths[b]`), is not after it (`causal`: `j ≤ p`), lies in its window (`p − left ≤ j ≤ p + right`) and is not masked.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Scoring {
        /// Factor of the dot product; `None` for `1 / √D`.
        pub scale: Option<f32>,
        /// `s` becomes `c · tanh(s / c)`; zero for none.
        pub softcap: f32 = 0,
        /// Attend no key after the query's position.
        pub causal: bool = false,
        /// Position of query 0 where no positions are given.
        pub offset: i64 = 0,
        /// Attend at most this many keys before the query's position (a sliding window of `w` tokens is `w − 1`); `None` for all.
        pub left_window: Option<u64>,
        /// Attend at most this many keys after it; `None` for all.
        pub right_window: Option<u64>,
    }
}

/// Which keys a query attends, and how a dot product becomes a score, in Metal; after [`ScoreParams`] and the functions of [`crate::math`].
pub(crate) const METAL: MetalFile = metal_file!("attention/scoring.metal");

/// The types of a mask.
pub(crate) const MASKS: &[DType] = &[DType::Bool, DType::F32, DType::F16, DType::BF16];

/// What the optional inputs are.
pub(crate) const MASK: &str = "broadcast to [B, Hq, Tq, Tk]; bool: true attends; float: added to the scores";
pub(crate) const POSITIONS: &str = "[Tq] or [B, Tq]: where each query stands among the keys";
pub(crate) const LENGTHS: &str = "[B]: how many of the Tk keys each sequence has";

impl Scoring {
    /// Checks queries, keys and what goes with them, and gathers what a kernel needs.
    pub(crate) fn params(
        &self,
        [q, k]: [TensorInfo; 2],
        mask: Option<TensorInfo>,
        positions: Option<TensorInfo>,
        lengths: Option<TensorInfo>,
    ) -> Result<ScoreParams> {
        let ([batch, heads, queries, width], [k_batch, kv_heads, keys, _]) = (four("q", &q)?, four("k", &k)?);
        let k_width = cached::width("k", &k)?;
        let fits = batch == k_batch && width == k_width && width > 0 && kv_heads > 0 && heads % kv_heads == 0;
        if !fits {
            return Err(misshapen!(q, k; "[B, Hq, Tq, D] and [B, Hkv, Tk, D] with Hq a multiple of Hkv"));
        }
        if !is_pair(q.dtype, k.dtype) {
            return Err(mistyped!(q, k; "one type, or an f32 q"));
        }
        if !self.softcap.is_finite() || self.softcap < 0.0 {
            return Err(Error::invalid_argument(format!("softcap is {}: expected zero or a positive number", self.softcap)));
        }
        let scores = Shape::new(&[batch, heads, queries, keys])?;
        let (mask, mask_type) = mask_of(mask, scores)?;
        let position_stride = self.positions(positions, q)?;
        if let Some(lengths) = lengths.filter(|lengths| lengths.shape()[..] != [batch]) {
            return Err(misshapen!(lengths, q; "[{batch}]"));
        }
        let given = |input: Option<TensorInfo>, flag: u32| if input.is_some() { flag } else { 0 };
        let given = given(positions, WITH_POSITIONS) + given(lengths, WITH_LENGTHS);
        let limit = |n: Option<u64>| n.map_or(-1, |n| n.min(i64::MAX as u64 / 4) as i64);
        Ok(ScoreParams {
            q: View::new("q", &q, Some(0), 1, 2)?,
            k: View::new("k", &k, Some(0), 1, 2)?,
            mask,
            batch: batch as u64,
            heads: heads as u64,
            kv_heads: kv_heads as u64,
            queries: queries as u64,
            keys: keys as u64,
            width: width as u64,
            position_stride,
            offset: self.offset.clamp(i64::MIN / 4, i64::MAX / 4),
            left: limit(self.left_window),
            right: if self.causal { 0 } else { limit(self.right_window) },
            types: [dtype_code(q.dtype), if k.dtype == DType::U8 { PACKED } else { dtype_code(k.dtype) }],
            mask_type,
            scale: self.scale.unwrap_or_else(|| 1.0 / (width as f32).sqrt()),
            softcap: self.softcap,
            given,
        })
    }

    fn positions(&self, positions: Option<TensorInfo>, q: TensorInfo) -> Result<u64> {
        let Some(positions) = positions else { return Ok(0) };
        if self.offset != 0 {
            return Err(Error::invalid_argument("positions and an offset are given: expected one of them"));
        }
        let (batch, queries) = (q.shape()[0], q.shape()[2]);
        match positions.shape()[..] {
            [n] if n == queries => Ok(0),
            [b, n] if b == batch && n == queries => Ok(n as u64),
            _ => Err(misshapen!(positions, q; "[{queries}] or [{batch}, {queries}]")),
        }
    }
}

/// The extents of a tensor of four axes.
pub(crate) fn four(name: &str, info: &TensorInfo) -> Result<[usize; 4]> {
    <[usize; 4]>::try_from(&info.shape()[..]).map_err(|_| mismatch(&[shape_of(name, info)], "[batch, heads, tokens, elements]"))
}

/// Whether f32 accumulation from these two types is offered: both alike, or f32 beside any, or beside bytes, which are packed rows.
pub(crate) fn is_pair(wide: DType, narrow: DType) -> bool {
    let takes_any = wide == DType::F32;
    wide.is_float() && (narrow.is_float() && (wide == narrow || takes_any) || narrow == DType::U8 && takes_any)
}

fn mask_of(mask: Option<TensorInfo>, scores: Shape) -> Result<(MaskView, u32)> {
    let Some(mask) = mask else { return Ok((MaskView::zeroed(), NO_MASK)) };
    let code = match mask.dtype {
        DType::Bool => BOOL_MASK,
        dtype => dtype_code(dtype),
    };
    let layout = mask.layout.broadcast_to(scores).map_err(|_| misshapen!(mask; "a shape that broadcasts to {scores}, those of q and k"))?;
    let stride = |axis: usize| layout.strides()[axis] as i64;
    let view = View { origin: mask.layout.origin() as u64, batch: stride(0), head: stride(1), token: stride(2) };
    Ok((MaskView { view, key: stride(3) }, code))
}

/// [`ScoreParams::given`] with positions.
pub const WITH_POSITIONS: u32 = 1;

/// [`ScoreParams::given`] with lengths.
pub const WITH_LENGTHS: u32 = 2;

/// [`ScoreParams::types`] of keys and values in packed rows.
pub(crate) const PACKED: u32 = u32::MAX;

/// [`ScoreParams::mask_type`] of no mask.
pub(crate) const NO_MASK: u32 = u32::MAX;

/// [`ScoreParams::mask_type`] of a bool mask.
pub(crate) const BOOL_MASK: u32 = u32::MAX - 1;

params! {
    /// Where the rows of a tensor `[batch, head, token, element]` start, in elements; the elements of a row are contiguous.
    pub struct View {
        /// The first element.
        pub origin: u64,
        /// Stride of sequences.
        pub batch: i64,
        /// Stride of heads.
        pub head: i64,
        /// Stride of tokens.
        pub token: i64,
    }
}

impl View {
    /// The rows of `info` with these axes.
    pub(crate) fn new(name: &str, info: &TensorInfo, batch: Option<usize>, head: usize, token: usize) -> Result<Self> {
        let (strides, last) = (info.layout.strides(), info.shape().rank() - 1);
        if strides[last] != 1 && info.shape()[last] > 1 {
            return Err(mismatch(&[format!("the last axis of {name} has stride {}", strides[last])], "a contiguous one"));
        }
        let stride = |axis: usize| strides[axis] as i64;
        Ok(Self { origin: info.layout.origin() as u64, batch: batch.map_or(0, stride), head: stride(head), token: stride(token) })
    }

    /// The first element of a row.
    #[inline(always)]
    pub(crate) fn at(&self, batch: usize, head: usize, token: usize) -> usize {
        (self.origin as i64 + batch as i64 * self.batch + head as i64 * self.head + token as i64 * self.token) as usize
    }
}

params! {
    /// Where the elements of a mask `[batch, head, query, key]` lie; broadcast axes have stride zero.
    pub struct MaskView {
        /// The rows.
        pub view: View,
        /// Stride of keys.
        pub key: i64,
    }
}

params! {
    /// The scores' part of a parameter block.
    pub struct ScoreParams {
        /// Queries.
        pub q: View,
        /// Keys.
        pub k: View,
        /// Mask.
        pub mask: MaskView,
        /// Sequences.
        pub batch: u64,
        /// Query heads.
        pub heads: u64,
        /// Key and value heads; `heads` is a multiple.
        pub kv_heads: u64,
        /// Queries of each sequence and head.
        pub queries: u64,
        /// Keys of each sequence and head.
        pub keys: u64,
        /// Elements of a query and of a key.
        pub width: u64,
        /// From a sequence's positions to the next one's: zero if all share them.
        pub position_stride: u64,
        /// Position of query 0 where no positions are given.
        pub offset: i64,
        /// Keys attended before a query's position; −1 for all.
        pub left: i64,
        /// Keys attended after it; −1 for all.
        pub right: i64,
        /// Types of `q` and `k`: f32 (0), f16 (1) or bf16 (2), or, of keys and values, packed rows (the greatest number).
        pub types: [u32; 2],
        /// Type of the mask, likewise; the two greatest numbers stand for bool and for none.
        pub mask_type: u32,
        /// Factor of the dot product.
        pub scale: f32,
        /// Soft cap; zero for none.
        pub softcap: f32,
        /// Which optional inputs are there: [`WITH_POSITIONS`] + [`WITH_LENGTHS`].
        pub given: u32,
    }
}

impl ScoreParams {
    /// Query heads that share a key and value head.
    pub(crate) fn group(&self) -> usize {
        (self.heads / self.kv_heads) as usize
    }

    /// Pairs of a query and a key that it may attend, of one sequence and head, where the queries are the last of the sequence.
    pub(crate) fn attended_at_the_end(&self) -> u64 {
        let (queries, keys) = (i128::from(self.queries), i128::from(self.keys));
        // The sum of `first + t` for each query `t`, within the keys.
        let sum = |first: i128| {
            let (begun, ended) = ((-first).clamp(0, queries), (keys - first).clamp(0, queries));
            (ended - begun) * (2 * first + begun + ended - 1) / 2 + (queries - ended) * keys
        };
        let first = keys - queries;
        let after = if self.right < 0 { queries * keys } else { sum(first + i128::from(self.right) + 1) };
        let before = if self.left < 0 { 0 } else { sum(first - i128::from(self.left)) };
        u64::try_from((after - before).max(0)).unwrap_or(u64::MAX)
    }

    /// The keys that query `t` of sequence `b` may attend, before any mask.
    #[inline]
    pub(crate) fn attended(&self, b: usize, t: usize, positions: Option<&[i32]>, lengths: Option<&[i32]>) -> Range<usize> {
        let position = positions.map_or(self.offset + t as i64, |p| i64::from(p[b * self.position_stride as usize + t]));
        let keys = self.keys as i64;
        let mut high = lengths.map_or(keys, |l| i64::from(l[b]).min(keys));
        if self.right >= 0 {
            high = high.min(position + self.right + 1);
        }
        let low = if self.left >= 0 { (position - self.left).max(0) } else { 0 };
        low.min(high.max(0)) as usize..high.max(0) as usize
    }
}
