//! Attention of one new token of each of several sequences over pages that the tokens are appended to: [`RopeAppend`](crate::rope_append::RopeAppend) with
//! slots, the rotation of the queries and [`PagedAttention`] in one.
//!
//! * Memory: that of [`PagedAttention`]; neither the rotated queries nor the new keys and values are read back.
//! * Order and error: the bits of the operators it stands for, whose launches it has on a CPU, on NVIDIA GPUs, and for many sequences of many keys; for few of either
//!   a Metal device has one launch, or two. In invariant and fast precision on NVIDIA GPUs of compute capability 9.0 a cluster of thread blocks has a key head of a
//!   sequence, if these all run at once or have two blocks of keys at most.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Layout, MetalFile, MetalForm, Result, Shape};

use super::{Inputs as Given, PAGES, PagedAttention, PagedParams};
use crate::{
    Argument, Definition, Description, Operator, Plan, Precision, TensorInfo,
    attention::{
        blocks::{OfTokens, Places},
        decode::{self, TokenParams},
        gpu, operands as attention,
        split::SplitParams,
    },
    attributes::attributes,
    cuda::CudaArchitecture,
    description::describe,
    kv_append::KvAppend,
    metal::{metal_file, params},
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
    }
}

params! {
    /// What the kernel for tensor cores gets besides its buffers.
    pub(in crate::attention) struct PagedDecodeSplitParams {
        /// As for the other.
        pub decode: PagedDecodeParams,
        /// Parts of the keys.
        pub split: SplitParams,
    }
}

const FILES: &[MetalFile] = &{
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = decode::TOKENS;
    let (paged, params) = (PagedParams::METAL, PagedDecodeParams::METAL);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, paged, params, PAGES, decode::TOKEN, metal_file!("attention/decode/paged.metal")]
};
const METAL: MetalForm = MetalForm::new(FILES, "attention_paged_decode").with_error_flag(REJECTION);

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

/// The inputs as [`PagedAttention`] takes them, and what it makes of them.
struct Attended {
    given: Given,
    seen: attention::Inputs,
    params: PagedParams,
    y: TensorInfo,
}

impl PagedDecodeAttention {
    /// Whether a device does it in fewer launches than what it stands for.
    pub fn gains(self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> bool {
        let has_kernel = || {
            let inputs = Inputs::new(inputs)?;
            let attended = self.attended(&inputs)?;
            Ok::<_, Error>(self.of_tokens(&inputs, &attended, device).is_some() || self.in_metal(&inputs, &attended, device))
        };
        has_kernel().unwrap_or(false)
    }

    /// Whether the kernel in Metal's language does it: over keys of one block, or of so few tiles that their blocks are apart. On NVIDIA's GPUs it is no
    /// faster than the launches of what it stands for (an H200, one sequence).
    fn in_metal(self, inputs: &Inputs, Attended { given, seen, params, y }: &Attended, device: &DeviceProperties) -> bool {
        let attention = &params.attention;
        let others = self.attention().on_tensor_cores(given, seen, params, y.dtype, device).is_some();
        let (is_metal, width) = (device.has_simdgroups() && !CudaArchitecture::From(0).is_of(device), attention.score.width);
        let fits = is_metal && width <= decode::LONGEST && y.dtype == inputs.queries.dtype;
        let is_apart = attention.score.keys <= gpu::BLOCK || gpu::tiles(attention) <= gpu::BUSY;
        let is_any = attention.rows() * attention.value_width * attention.score.keys > 0;
        !others && fits && is_apart && is_any && params.check_extents(device).is_ok()
    }

    fn attention(self) -> PagedAttention {
        let Self { scale, softcap, left_window, page, precision, output, .. } = self;
        PagedAttention { scale, softcap, left_window, page, precision, output }
    }

    fn append(self) -> rope_append::RopeAppend {
        rope_append::RopeAppend { interleaved: self.interleaved }
    }

    fn attended(self, inputs: &Inputs) -> Result<Attended> {
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
        let given = Given { q, k: cache, v: value_cache, table, positions };
        let (params, y, seen) = self.attention().params(&given)?;
        Ok(Attended { given, seen, params, y })
    }

    fn of_tokens(self, inputs: &Inputs, Attended { params, y, .. }: &Attended, device: &DeviceProperties) -> Option<OfTokens> {
        params.check_extents(device).ok()?;
        let types = [inputs.queries.dtype, inputs.cache.dtype, y.dtype];
        OfTokens::new(&params.attention, types, Places::Pages, self.precision, device)
    }

    fn definition(self, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let y = self.attended(&Inputs::new(inputs)?)?.y;
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
        let view = |dims: &[usize]| Ok::<_, Error>(Layout::contiguous(Shape::new(dims)?));
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
        let y = self.attended(&Inputs::new(inputs)?)?.y;
        operands::OUTPUTS[0].check(y.dtype)?;
        let [batch, _, heads, width] = [0, 1, 2, 3].map(|axis| y.shape()[axis]);
        Ok(vec![TensorInfo::new(y.dtype, &[batch, heads, width])?])
    }

    fn plan(&self, given: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(given)?;
        let attended = self.attended(&inputs)?;
        let of_tokens = self.of_tokens(&inputs, &attended, device);
        if of_tokens.is_none() && !self.in_metal(&inputs, &attended, device) {
            return self.definition(given)?.plan(device);
        }
        let Attended { seen, params, .. } = attended;
        let decode = PagedDecodeParams { paged: params, token: TokenParams::new(inputs.rows, inputs.values, inputs.frequencies, self.interleaved)? };
        let [cache, rows, positions, frequencies, value_cache, values, queries, slots, table] = inputs.buffers();
        let types = [rows.0.dtype, cache.0.dtype];
        let buffers = [cache, value_cache, queries, rows, values, positions, frequencies, slots, table];
        if let Some(of_tokens) = of_tokens {
            let block = PagedDecodeSplitParams { decode, split: of_tokens.split() };
            return Ok(of_tokens.plan(&block, buffers).with_operations(params.attention.operations()));
        }
        let [.., (place, _), (lengths, _)] = seen.buffers();
        let places = [(place, Argument::Input(AT.positions)), (lengths, Argument::Absent)];
        decode::of_tokens(&params.attention, ("attention_paged_decode", METAL), types, &decode, buffers, places, device)
    }

    fn rounded(&self, to: DType, given: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let (operator, inputs) = (Self { output: Some(to), ..*self }, Inputs::new(given)?);
        let stores = self.output.is_none() && operator.of_tokens(&inputs, &operator.attended(&inputs)?, device).is_some();
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
