//! Attention of one new token of each of several sequences over pages that the tokens are appended to: [`RopeAppend`](crate::rope_append::RopeAppend) with
//! slots, the rotation of the queries and [`PagedAttention`] in one.
//!
//! * Memory: that of [`PagedAttention`]; neither the rotated queries nor the new keys and values are read back.
//! * Order and error: the bits of the operators it stands for, whose launches it has but in invariant and fast precision on NVIDIA GPUs of compute capability 9.0. There a
//!   cluster of thread blocks has a key head of a sequence, if these all run at once or have two blocks of keys at most.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Layout, Result, Shape};

use super::{Inputs as Attended, PagedAttention, PagedParams};
use crate::{
    Definition, Description, Operator, Plan, Precision, TensorInfo,
    attention::{
        blocks::{OfTokens, Places},
        decode::TokenParams,
        split::SplitParams,
    },
    attributes::attributes,
    description::describe,
    kv_append::KvAppend,
    metal::params,
    quantized::cached,
    rope::{self, Rope},
    rope_append,
    signature::{misshapen, operands},
};

/// What a kernel reports of a slot or a page that it rejects.
pub(crate) const REJECTION: &str = "a token goes to a slot, or a table names a page, that the cache does not have: give every token a slot, and every attended \
                                    key a page, below the cache's count";

attributes! {
    /// Attention of tokens over pages, to which they are appended first.
    ///
    /// Inputs: `cache [Hkv, slots, D]`, `rows [B, Hkv, D]`, `positions [B]`, `frequencies`, `value_cache`, `values`, `queries [B, Hq, D]` and `slots [B]` as for
    /// [`RopeAppend`](crate::rope_append::RopeAppend), but that the queries stay as they are; `table [B, pages]` as for [`PagedAttention`]. The tokens are of
    /// different sequences: none attends the slot of another. Output: `[B, Hq, Dv]`. Query head `h` uses key head `h / (Hq / Hkv)`.
    #[derive(Clone, Copy, Debug)]
    pub struct PagedDecodeAttention {
        /// Factor of the dot product; `None` for `1 / √D`.
        pub scale: Option<f32>,
        /// `s` becomes `c · tanh(s / c)`; zero for none.
        pub softcap: f32 = 0,
        /// Attend at most this many keys before the token; `None` for all.
        pub left_window: Option<u64>,
        /// Tokens of a page.
        pub page: u64 = 32,
        /// Pairs are neighbours instead of half of `rotary_dim` apart.
        pub interleaved: bool = false,
        /// How sums may be ordered: as [`PagedAttention`] does.
        pub precision: Precision = strict,
        /// Type of the output; that of `queries` if absent.
        pub output: Option<DType>,
    }
}

impl Default for PagedDecodeAttention {
    fn default() -> Self {
        let PagedAttention { scale, softcap, left_window, page, precision, output } = PagedAttention::default();
        Self { scale, softcap, left_window, page, interleaved: false, precision, output }
    }
}

params! {
    /// What the kernel gets besides its buffers.
    pub(in crate::attention) struct PagedDecodeParams {
        /// Attention over pages.
        pub paged: PagedParams,
        /// The tokens.
        pub token: TokenParams,
        /// Parts of the keys.
        pub split: SplitParams,
    }
}

// The launch ahead writes none of what is read early: it makes the new rows.
operands! {
    cache: update(cached::TYPES) prefetched, "[Hkv, slots, D], updated in place";
    rows: read(DType::FLOATS), "[B, Hkv, D]: the new keys";
    positions: read(&[DType::I32]) prefetched, "[B]: where each token stands in its sequence; a negative one attends nothing";
    frequencies: read(&[DType::F32]) prefetched, rope::FREQUENCIES;
    value_cache: update(like cache) prefetched, rope_append::VALUE_CACHE;
    values: read(like rows), rope_append::VALUES;
    queries: read(like rows), "[B, Hq, D] of the type of rows";
    slots: read(&[DType::I32]) prefetched, "[B]: where each token goes";
    table: read(&[DType::I32]) prefetched, "[B, pages]: which page of the cache each page of a sequence is";
    -> y: write(DType::FLOATS), "[B, Hq, Dv], of type output";
}
use operands::{AT, Inputs};

impl PagedDecodeAttention {
    /// Whether a device does it in fewer launches than what it stands for.
    pub fn gains(self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> bool {
        let of_tokens = || {
            let inputs = Inputs::new(inputs)?;
            let (params, y) = self.params(&inputs)?;
            Ok::<_, elinvar_core::Error>(self.of_tokens(&inputs, &params, y.dtype, device).is_some())
        };
        of_tokens().unwrap_or(false)
    }

    fn attention(self) -> PagedAttention {
        let Self { scale, softcap, left_window, page, precision, output, .. } = self;
        PagedAttention { scale, softcap, left_window, page, precision, output }
    }

    fn append(self) -> rope_append::RopeAppend {
        rope_append::RopeAppend { interleaved: self.interleaved }
    }

    /// The parameters of attention, and its result.
    fn params(self, inputs: &Inputs) -> Result<(PagedParams, TensorInfo)> {
        let &Inputs { cache, rows, positions, frequencies, value_cache, values, queries, slots, table } = inputs;
        let appended = [cache, rows, positions, frequencies, value_cache, values, queries, slots].map(Some);
        self.append().outputs(&appended)?;
        if queries.shape().rank() != 3 {
            return Err(misshapen!(queries; "a token of each sequence, [B, Hq, D]"));
        }
        let ([batch, heads, width], key_heads) = ([0, 1, 2].map(|axis| queries.shape()[axis]), cache.shape()[0]);
        if key_heads == 0 || !heads.is_multiple_of(key_heads) {
            return Err(misshapen!(queries, cache; "[B, Hq, D] and [Hkv, slots, D] with Hq a multiple of Hkv"));
        }
        let layout = queries.layout.broadcast_to(Shape::new(&[1, batch, heads, width])?)?.permute(&[1, 2, 0, 3])?;
        let (q, positions) = (TensorInfo { layout, ..queries }, TensorInfo { layout: Layout::contiguous(Shape::new(&[batch, 1])?), ..positions });
        let (params, y, _) = self.attention().params(&Attended { q, k: cache, v: value_cache, table, positions })?;
        Ok((params, y))
    }

    fn of_tokens(self, inputs: &Inputs, params: &PagedParams, y: DType, device: &DeviceProperties) -> Option<OfTokens> {
        params.check_extents(device).ok()?;
        let types = [inputs.queries.dtype, inputs.cache.dtype, y];
        OfTokens::new(&params.attention, types, Places::Pages, self.precision, device)
    }

    fn definition(self, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let (_, y) = self.params(&Inputs::new(inputs)?)?;
        let mut definition = Definition::new(inputs);
        let [cache, rows, positions, frequencies, value_cache, values, queries, slots, table] =
            [AT.cache, AT.rows, AT.positions, AT.frequencies, AT.value_cache, AT.values, AT.queries, AT.slots, AT.table]
                .map(|index| definition.input(index));
        let rope = Rope { interleaved: self.interleaved };
        let key = definition.apply_one(rope, &[rows, positions, frequencies])?;
        definition.apply(KvAppend, &[cache, Some(key), slots])?;
        definition.apply(KvAppend, &[value_cache, values, slots])?;
        let rotated = definition.apply_one(rope, &[queries, positions, frequencies])?;
        let [batch, heads, width] = [0, 1, 2].map(|axis| rotated.info.shape()[axis]);
        let view = |dims: &[usize]| Ok::<_, elinvar_core::Error>(Layout::contiguous(Shape::new(dims)?));
        let (q, places) = (rotated.view(view(&[batch, heads, 1, width])?), view(&[batch, 1])?);
        let positions = positions.map(|positions| positions.view(places));
        let attended = definition.apply_one(self.attention(), &[Some(q), cache, value_cache, table, positions])?;
        definition.outputs.push(attended.view(view(&[batch, heads, y.shape()[3]])?));
        Ok(definition)
    }
}

impl Operator for PagedDecodeAttention {
    fn name(&self) -> &'static str {
        "paged_decode_attention"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (_, y) = self.params(&Inputs::new(inputs)?)?;
        operands::OUTPUTS[0].check(y.dtype)?;
        let [batch, _, heads, width] = [0, 1, 2, 3].map(|axis| y.shape()[axis]);
        Ok(vec![TensorInfo::new(y.dtype, &[batch, heads, width])?])
    }

    fn plan(&self, given: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(given)?;
        let (params, y) = self.params(&inputs)?;
        let Some(of_tokens) = self.of_tokens(&inputs, &params, y.dtype, device) else { return self.definition(given)?.plan(device) };
        let token = TokenParams::new(inputs.rows, inputs.values, inputs.frequencies, self.interleaved)?;
        let block = PagedDecodeParams { paged: params, token, split: of_tokens.split() };
        let [cache, rows, positions, frequencies, value_cache, values, queries, slots, table] = inputs.buffers();
        let buffers = [cache, value_cache, queries, rows, values, positions, frequencies, slots, table];
        Ok(of_tokens.plan(&block, buffers).with_operations(params.attention.operations()))
    }

    fn rounded(&self, to: DType, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let operator = Self { output: Some(to), ..*self };
        let stores = self.output.is_none() && operator.gains(inputs, device);
        Ok(stores.then(|| Arc::new(operator) as Arc<dyn Operator>))
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.definition(inputs).map(Some)
    }

    fn updates(&self, index: usize) -> bool {
        matches!(index, 0 | 4)
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn accepts_strides(&self, index: usize) -> bool {
        ![AT.positions, AT.frequencies, AT.slots, AT.table].contains(&index)
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!(
    "paged_decode_attention",
    "appends a rotated key and a value of each sequence to a cache in pages, in place, and gives the tokens' attention: rope_append and paged_attention in one",
    operands,
    PagedDecodeAttention
)];
