//! Attention of one new token over a cache that it is appended to: [`RopeAppend`], the rotation of the queries and [`Attention`] in one.
//!
//! The new key, rotated by the token's position, and the new value go into the caches; then the rotated queries attend the caches up to that position.
//!
//! * Memory: that of [`Attention`]; on a GPU neither the rotated queries nor the new key and value are read back. There the launches are two, or one where
//!   the keys are one block or are split over a cluster of thread blocks, and the cache's rows may be sent for before the launches ahead have ended.
//! * Order and error: those of the operators it stands for, in strict and invariant precision their bits. On a CPU, and for keys of more than 256 elements,
//!   the plan is theirs; so it is for many keys in invariant precision.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Layout, MetalFile, MetalForm, Parameter, Result, Shape};

use super::{
    Attention, Params,
    blocks::{self, OfTokens, Places},
    gpu, operands as attention,
    scoring::{self, MaskView, ScoreParams, Scoring, View},
    split::{Split, SplitParams, Together},
};
use crate::{
    Argument, Definition, Description, Launch, Operand, Operator, Plan, Precision, TensorInfo,
    attributes::attributes,
    collective::DeliveryFiles,
    cuda::{CudaSource, MATH},
    description::describe,
    kv_append::{self, KvAppend},
    math,
    metal::{self, metal_file, params},
    order,
    quantized::cached,
    rope::{self, Rope},
    rope_append::{self, RopeAppend},
    signature::{misshapen, operands},
};

/// What the kernels of new tokens in Metal's language have first.
pub(super) const TOKENS: [MetalFile; 16] = [
    metal::TYPES,
    metal::LAUNCHES,
    metal::CLUSTERS,
    math::METAL,
    order::METAL,
    order::LANES,
    View::METAL,
    MaskView::METAL,
    ScoreParams::METAL,
    Params::METAL,
    TokenParams::METAL,
    scoring::METAL,
    cached::METAL,
    gpu::STATES,
    gpu::TILE,
    gpu::SUMS,
];
/// And after their places of keys.
pub(super) const TOKEN: MetalFile = metal_file!("attention/decode/decode.metal");
const FILES: &[MetalFile] = &{
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = TOKENS;
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, DecodeParams::METAL, TOKEN, metal_file!("attention/decode/whole.metal")]
};
const METAL: MetalForm = MetalForm::new(FILES, "attention_decode").with_error_flag(kv_append::REJECTION);

/// How tokens' rows are rotated, in CUDA C++.
pub(super) const ROTATED: [MetalFile; 4] = [MATH, math::METAL, TokenParams::METAL, metal_file!("attention/decode/rotation.cu")];

const fn fast<const FILES: usize, const N: usize>(together: Together, delivery: DeliveryFiles) -> [MetalFile; N] {
    let own = [DecodeParams::METAL, DecodeSplitParams::METAL, metal_file!("attention/decode/decode.cu")];
    metal::joined(&[&together.files::<FILES>(delivery), &ROTATED, &own])
}
/// Of each [`Together`], in order, and the same that deliver.
const FAST: [[&[MetalFile]; 3]; 2] = [
    [
        &fast::<16, 23>(Together::ByLaunch, DeliveryFiles::ALONE),
        &fast::<16, 23>(Together::InFour, DeliveryFiles::ALONE),
        &fast::<16, 23>(Together::InEight, DeliveryFiles::ALONE),
    ],
    [
        &fast::<18, 25>(Together::ByLaunch, DeliveryFiles::DELIVERING),
        &fast::<18, 25>(Together::InFour, DeliveryFiles::DELIVERING),
        &fast::<18, 25>(Together::InEight, DeliveryFiles::DELIVERING),
    ],
];

/// Elements of the longest key that the kernel takes.
pub(super) const LONGEST: u64 = 256;

attributes! {
    /// Attention of one token, appended first.
    ///
    /// Inputs: `cache`, `rows`, `positions`, `frequencies`, `value_cache`, `values` and `queries` as for [`RopeAppend`], of one sequence and one token; the
    /// queries stay as they are. Output: `[1, Hq, Dv]` of the queries' type. Query head `h` uses key head `h / (Hq / Hkv)`.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct DecodeAttention {
        /// Factor of the dot product; `None` for `1 / √D`.
        pub scale: Option<f32>,
        /// `s` becomes `c · tanh(s / c)`; zero for none.
        pub softcap: f32 = 0,
        /// Attend at most this many keys before the token; `None` for all.
        pub left_window: Option<u64>,
        /// Pairs are neighbours instead of half of `rotary_dim` apart.
        pub interleaved: bool = false,
        /// How sums may be ordered: as [`Attention`] does.
        pub precision: Precision = strict,
        /// Type of the output; that of `queries` if absent.
        pub output: Option<DType>,
    }
}

params! {
    /// New tokens.
    pub(super) struct TokenParams {
        /// The new keys: head and token.
        pub new_key: View,
        /// The new values, likewise.
        pub new_value: View,
        /// Pairs that rotate.
        pub half_dim: u32,
        /// Whether pairs are neighbours.
        pub interleaved: u32,
    }
}

impl TokenParams {
    /// Those of `rows [tokens, Hkv, D]`, of `values` and of the frequencies of their rotation.
    pub(super) fn new(rows: TensorInfo, values: TensorInfo, frequencies: TensorInfo, interleaved: bool) -> Result<Self> {
        Ok(Self {
            new_key: View::new("rows", &rows, None, 1, 0)?,
            new_value: View::new("values", &values, None, 1, 0)?,
            half_dim: rope::half_of(frequencies, ("rows", rows))?,
            interleaved: interleaved.into(),
        })
    }
}

params! {
    /// What the kernel gets besides its buffers.
    pub(super) struct DecodeParams {
        /// As for attention over the caches.
        pub attention: Params,
        /// The token.
        pub token: TokenParams,
    }
}

params! {
    /// What the kernel for tensor cores gets besides its buffers.
    pub(super) struct DecodeSplitParams {
        /// As for the other.
        pub decode: DecodeParams,
        /// Parts of the keys.
        pub split: SplitParams,
    }
}

// The launch ahead writes none of what is read early: it makes the new rows.
operands! {
    cache: update(cached::TYPES) prefetched, kv_append::CACHE;
    rows: read(DType::FLOATS), kv_append::ROWS;
    positions: read(&[DType::I32]) prefetched, kv_append::POSITIONS;
    frequencies: read(&[DType::F32]) prefetched, rope::FREQUENCIES;
    value_cache: update(like cache) prefetched, rope_append::VALUE_CACHE;
    values: read(like rows), rope_append::VALUES;
    queries: read(like rows), "[1, Hq, D] of the type of rows";
    -> y: write(DType::FLOATS), "[1, Hq, Dv], of type output";
}
use operands::{AT, Inputs};

/// The inputs as [`Attention`] takes them, and what it makes of them.
struct Attended {
    inputs: attention::Inputs,
    params: Params,
    y: TensorInfo,
}

impl DecodeAttention {
    /// Whether a device does it in fewer launches than what it stands for.
    pub fn gains(self, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> bool {
        self.attended(inputs).is_ok_and(|(_, attended)| self.fits(&attended, device))
    }

    fn fits(self, attended: &Attended, device: &DeviceProperties) -> bool {
        let Attended { inputs, params, y } = attended;
        let in_blocks = blocks::plan(params, *inputs, y.dtype, self.precision, device).is_some();
        let others = device.simd_width > 1 && params.score.width <= LONGEST && y.dtype == inputs.q.dtype;
        if in_blocks { self.in_blocks(attended, device).is_some() } else { others }
    }

    /// The kernel of invariant precision, where it serves.
    fn in_blocks(self, Attended { inputs, params, y }: &Attended, device: &DeviceProperties) -> Option<OfTokens> {
        OfTokens::new(params, [inputs.q.dtype, inputs.k.dtype, y.dtype], Places::Whole, self.precision, device)
    }

    fn append(self) -> RopeAppend {
        RopeAppend { interleaved: self.interleaved }
    }

    fn attention(self) -> Attention {
        let Self { scale, softcap, left_window, precision, output, .. } = self;
        let scoring = Scoring { scale, softcap, left_window, causal: true, ..Scoring::default() };
        Attention { scoring, precision, output, ..Attention::default() }
    }

    fn attended(self, inputs: &[Option<TensorInfo>]) -> Result<(Inputs, Attended)> {
        let given = Inputs::new(inputs)?;
        let Inputs { queries, cache, value_cache, positions, .. } = given;
        self.append().outputs(inputs)?;
        if queries.shape().rank() != 3 || queries.shape()[0] != 1 {
            return Err(misshapen!(queries; "one token of one sequence, [1, Hq, D]"));
        }
        let (heads, width) = (cache.shape()[0], cached::width("cache", &cache)?);
        if heads == 0 || width == 0 || queries.shape()[2] != width || !queries.shape()[1].is_multiple_of(heads) {
            return Err(misshapen!(queries, cache; "[1, Hq, D] and [Hkv, capacity, D] with Hq a multiple of Hkv"));
        }
        if value_cache.shape()[0] != heads {
            return Err(misshapen!(value_cache, cache; "as many heads"));
        }
        let batched = |info: &TensorInfo| -> Result<TensorInfo> {
            let [heads, tokens, width] = [0, 1, 2].map(|axis| info.shape()[axis]);
            Ok(TensorInfo { layout: info.layout.broadcast_to(Shape::new(&[1, heads, tokens, width])?)?, ..*info })
        };
        let heads_first = TensorInfo { layout: queries.layout.permute(&[1, 0, 2])?, ..queries };
        let (q, k, v) = (batched(&heads_first)?, batched(&cache)?, batched(&value_cache)?);
        let inputs = attention::Inputs { q, k, v, mask: None, positions: Some(positions), lengths: None };
        let (params, y) = self.attention().params(inputs)?;
        Ok((given, Attended { inputs, params, y }))
    }

    fn definition(self, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let y = self.attended(inputs)?.1.y;
        let mut definition = Definition::new(inputs);
        let [cache, rows, positions, frequencies, value_cache, values, queries] =
            [AT.cache, AT.rows, AT.positions, AT.frequencies, AT.value_cache, AT.values, AT.queries].map(|index| definition.input(index));
        let rope = Rope { interleaved: self.interleaved };
        let key = definition.apply_one(rope, &[rows, positions, frequencies])?;
        definition.apply(KvAppend, &[cache, Some(key), positions])?;
        definition.apply(KvAppend, &[value_cache, values, positions])?;
        let rotated = definition.apply_one(rope, &[queries, positions, frequencies])?;
        let batched =
            |operand: Operand, dims: [usize; 4]| -> Result<Operand> { Ok(operand.view(operand.info.layout.broadcast_to(Shape::new(&dims)?)?)) };
        let whole = |cache: Option<Operand>| {
            let extents = |cache: Operand| [0, 1, 2].map(|axis| cache.info.shape()[axis]);
            cache
                .map(|cache| (extents(cache), cache))
                .map(|([heads, capacity, width], cache)| batched(cache, [1, heads, capacity, width]))
                .transpose()
        };
        let [_, heads, width] = [0, 1, 2].map(|axis| rotated.info.shape()[axis]);
        let heads_first = rotated.view(Layout::contiguous(Shape::new(&[1, heads, 1, width])?));
        let attention = Attention { tokens_first: true, ..self.attention() };
        let attended = definition.apply_one(attention, &[Some(heads_first), whole(cache)?, whole(value_cache)?, None, positions, None])?;
        let dims = [1, heads, y.shape()[3]];
        definition.outputs.push(attended.view(Layout::contiguous(Shape::new(&dims)?)));
        Ok(definition)
    }

    fn for_gpu(self, inputs: Inputs, attended: &Attended, device: &DeviceProperties) -> Result<Plan> {
        let params = attended.params;
        gpu::check_extents(&params, device)?;
        let token = TokenParams::new(inputs.rows, inputs.values, inputs.frequencies, self.interleaved)?;
        let block = DecodeParams { attention: params, token };
        let [cache, rows, positions, frequencies, value_cache, values, queries] = inputs.buffers();
        let (q, kv) = (rows.0.dtype, cache.0.dtype);
        let buffers = [cache, value_cache, queries, rows, values, positions, frequencies];
        if let Some(of_tokens) = self.in_blocks(attended, device) {
            let block = DecodeSplitParams { decode: block, split: of_tokens.split() };
            return Ok(of_tokens.plan(&block, buffers).with_operations(params.operations()));
        }
        if let Some(split) = Split::new(&params, attended.inputs, self.precision, device)? {
            let block = DecodeSplitParams { decode: block, split: split.block };
            let source = CudaSource { rejection: Some(kv_append::REJECTION), ..split.source("attention_decode_fast") };
            // Cosines and sines of each pair, and the new key.
            return Ok(split.plan(FAST, source, &block, buffers, 8 * params.score.width as usize).with_operations(params.operations()));
        }
        let [.., (place, _), (lengths, _)] = attended.inputs.buffers();
        let places = [(place, Argument::Input(AT.positions)), (lengths, Argument::Absent)];
        of_tokens(&params, ("attention_decode", METAL), [q, kv], &block, buffers, places, device)
    }
}

/// The plan of a kernel of new tokens in Metal's language, over rows and caches of these types; `places` are the positions and the lengths.
pub(super) fn of_tokens<P: bytemuck::NoUninit>(
    params: &Params,
    (name, form): (&'static str, MetalForm),
    [q, kv]: [DType; 2],
    block: &P,
    buffers: impl IntoIterator<Item = (Parameter, Argument)>,
    places: [(Parameter, Argument); 2],
    device: &DeviceProperties,
) -> Result<Plan> {
    let shape = gpu::Shape::spread(params, device);
    // The new key and value.
    let memory = shape.memory() + 4 * (8 * shape.lanes + shape.padded_width()) as usize;
    let end = gpu::End::of(&shape, params, memory, device);
    let key = end.key(shape.key(name, &[q, kv]));
    let launch = Launch::on_gpu(key, end.form(form), block, buffers.into_iter().chain(end.buffers(q)));
    let launch = shape.over_blocks(launch, params)?.with_threadgroup_memory(memory + end.memory(&shape));
    Ok(end.plan(launch, params, q, places)?.with_operations(params.operations()))
}

impl Operator for DecodeAttention {
    fn name(&self) -> &'static str {
        "decode_attention"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let y = self.attended(inputs)?.1.y;
        operands::OUTPUTS[0].check(y.dtype)?;
        let [_, heads, _, width] = [0, 1, 2, 3].map(|axis| y.shape()[axis]);
        Ok(vec![TensorInfo::new(y.dtype, &[1, heads, width])?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let (given, attended) = self.attended(inputs)?;
        let params = &attended.params;
        let is_any = params.rows() * params.value_width * params.score.keys > 0;
        if is_any && self.fits(&attended, device) { self.for_gpu(given, &attended, device) } else { self.definition(inputs)?.plan(device) }
    }

    fn rounded(&self, to: DType, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let operator = Self { output: Some(to), ..*self };
        let stores = self.output.is_none() && operator.in_blocks(&operator.attended(inputs)?.1, device).is_some();
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
        index != AT.positions && index != AT.frequencies
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!(
    "decode_attention",
    "appends a token's rotated key and its value to the caches, in place, and gives its attention: rope_append and attention in one",
    operands,
    DecodeAttention
)];
