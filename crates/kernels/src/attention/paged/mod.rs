//! Attention of several sequences over keys and values in pages that they share: a cache of slots, and for each sequence a table of its pages.
//!
//! Key `j` of sequence `b` lies in slot `table[b, j / page] · page + j mod page`. Sequences may have pages in common. Queries attend causally: the query at
//! position `p` attends the keys `0 … p`, or the last of them within the window; one at a negative position attends none, and gives zeros.
//!
//! * Memory: that of [`Attention`], and a table's entry for every 32 keys.
//! * Order and error: those of [`Attention`] over keys in one piece; in strict precision its bits, since the order runs over positions.
//!   In fast precision tensor cores of compute capability 9.0 multiply, few queries as in invariant precision.

mod cpu;
pub mod decode;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

use super::{
    Attention, Params, blocks, gpu, operands as attention, prefill,
    scoring::{self, MaskView, ScoreParams, Scoring, View, four},
};
use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, Precision, TensorInfo,
    attributes::attributes,
    description::describe,
    math,
    metal::{self, metal_file, params},
    order,
    quantized::cached,
    signature::{misshapen, operands},
};

/// Pages have a multiple of so many tokens: the keys that one simdgroup, or one group of values, takes.
pub const PAGE: usize = 32;

/// What a kernel reports of a page that it rejects.
pub(crate) const REJECTION: &str = "a table names a page that the cache does not have: give every attended key a page below the cache's count";

const fn files(walk: MetalFile, kernel: MetalFile) -> [MetalFile; 19] {
    [
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
        PagedParams::METAL,
        scoring::METAL,
        cached::METAL,
        gpu::STATES,
        gpu::TILE,
        gpu::SUMS,
        walk,
        PAGES,
        kernel,
    ]
}
const PAGES: MetalFile = metal_file!("attention/paged/pages.metal");
const WHOLE: gpu::Walks = {
    const KERNEL: MetalFile = metal_file!("attention/paged/paged.metal");
    gpu::Walks {
        tiles: MetalForm::new(&files(gpu::WALK, KERNEL), "attention_paged").with_error_flag(REJECTION),
        panels: MetalForm::new(&files(gpu::PANELS, KERNEL), "attention_paged").with_error_flag(REJECTION),
    }
};
const SPLIT: MetalForm =
    MetalForm::new(&files(gpu::WALK, metal_file!("attention/paged/split.metal")), "attention_paged_split").with_error_flag(REJECTION);

attributes! {
    /// Causal attention over pages.
    ///
    /// Inputs: `q [B, Hq, Tq, D]`, `k [Hkv, slots, D]` and `v [Hkv, slots, Dv]` as for [`Attention`], of types that it takes; `table [B, pages]`, i32;
    /// `positions [Tq]` or `[B, Tq]`, i32. `slots` and `page` are multiples of 32 and of `page`. Entries of pages that no query attends may be anything.
    /// Output: `[B, Tq, Hq, Dv]`. Query head `h` uses key head `h / (Hq / Hkv)`.
    #[derive(Clone, Copy, Debug)]
    pub struct PagedAttention {
        /// Factor of the dot product; `None` for `1 / √D`.
        pub scale: Option<f32>,
        /// `s` becomes `c · tanh(s / c)`; zero for none.
        pub softcap: f32 = 0,
        /// Attend at most this many keys before the query's position; `None` for all.
        pub left_window: Option<u64>,
        /// Tokens of a page.
        pub page: u64 = 32,
        /// How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order).
        pub precision: Precision = strict,
        /// Type of the output; that of `q` if absent.
        pub output: Option<DType>,
    }
}

impl Default for PagedAttention {
    fn default() -> Self {
        Self { scale: None, softcap: 0.0, left_window: None, page: PAGE as u64, precision: Precision::Strict, output: None }
    }
}

params! {
    /// What the kernel gets besides its buffers.
    pub(super) struct PagedParams {
        /// As for attention over keys in one piece.
        pub attention: Params,
        /// Tokens of a page.
        pub page: u64,
        /// Entries of a sequence's table.
        pub entries: u64,
        /// Pages of the cache.
        pub pages: u64,
    }
}

operands! {
    q: read(DType::FLOATS), "[B, Hq, Tq, D]";
    k: read(cached::TYPES), "[Hkv, slots, D], of q's type or any beside an f32 q; u8: rows packed in Q8_0";
    v: read(like k), "[Hkv, slots, Dv], of k's type";
    table: read(&[DType::I32]), "[B, pages]: which page of the cache each page of a sequence is";
    positions: read(&[DType::I32]), "[Tq] or [B, Tq]: where each query stands in its sequence; a negative one attends nothing";
    -> y: write(DType::FLOATS), "[B, Tq, Hq, Dv], of type output";
}
use operands::{AT, Inputs};

impl PagedParams {
    /// Those of a sequence's keys and of the whole cache.
    fn check_extents(&self, device: &DeviceProperties) -> Result<()> {
        let mut reach = self.attention;
        reach.score.keys = reach.score.keys.max(self.pages * self.page);
        gpu::check_extents(&reach, device)
    }
}

impl PagedAttention {
    fn params(&self, inputs: &Inputs) -> Result<(PagedParams, TensorInfo, attention::Inputs)> {
        let Self { scale, softcap, left_window, page, .. } = *self;
        let Inputs { q, k, v, table, positions } = *inputs;
        if page == 0 || !page.is_multiple_of(PAGE as u64) {
            return Err(Error::invalid_argument(format!("page is {page}: expected a multiple of {PAGE}")));
        }
        let batch = four("q", &q)?[0];
        let (&[heads, slots, _], &[value_heads, value_slots, _]) = (&k.shape()[..], &v.shape()[..]) else {
            return Err(misshapen!(k, v; "[Hkv, slots, D] and [Hkv, slots, Dv]"));
        };
        if (heads, slots) != (value_heads, value_slots) || !(slots as u64).is_multiple_of(page) {
            return Err(misshapen!(k, v; "one number of heads, and one of slots, whole pages of {page}"));
        }
        let &[rows, entries] = &table.shape()[..] else { return Err(misshapen!(table; "[B, pages]")) };
        if rows != batch {
            return Err(misshapen!(table, q; "a row for each sequence, [{batch}, pages]"));
        }
        // Every sequence sees the whole cache.
        let shared = |info: TensorInfo| -> Result<TensorInfo> {
            let [heads, slots, width] = [0, 1, 2].map(|axis| info.shape()[axis]);
            Ok(TensorInfo { layout: info.layout.broadcast_to(Shape::new(&[batch, heads, slots, width])?)?, ..info })
        };
        let seen = attention::Inputs { q, k: shared(k)?, v: shared(v)?, mask: None, positions: Some(positions), lengths: None };
        let scoring = Scoring { scale, softcap, left_window, causal: true, ..Scoring::default() };
        let (mut attention, y) = Attention { scoring, tokens_first: true, output: self.output, ..Attention::default() }.params(seen)?;
        attention.score.keys = entries as u64 * page;
        Ok((PagedParams { attention, page, entries: entries as u64, pages: slots as u64 / page }, y, seen))
    }

    /// The plan of kernels for tensor cores, which may store another type than that of the queries.
    fn on_tensor_cores(&self, inputs: &Inputs, seen: &attention::Inputs, params: &PagedParams, y: DType, device: &DeviceProperties) -> Option<Plan> {
        let (types, [.., lengths]) = ([inputs.q.dtype, inputs.k.dtype, y], seen.buffers());
        params.check_extents(device).ok()?;
        prefill::plan_paged(params, types, inputs.buffers(), self.precision, device)
            .or_else(|| blocks::plan_paged(params, types, inputs.buffers(), lengths, self.precision, device))
    }

    fn for_gpu(&self, inputs: &Inputs, seen: &attention::Inputs, params: &PagedParams, device: &DeviceProperties) -> Result<Plan> {
        let attention = &params.attention;
        params.check_extents(device)?;
        if attention.rows() * attention.value_width == 0 {
            return Ok(Plan::default());
        }
        let (types, [q, k, v, table, positions], [.., lengths]) = ([inputs.q.dtype, inputs.k.dtype], inputs.buffers(), seen.buffers());
        let buffers = [q, k, v, table, positions.clone()];
        let shape = gpu::Shape::spread(attention, device);
        if gpu::is_split(attention, gpu::tiles(attention)) {
            let end = gpu::End::of(&shape, attention, shape.memory(), device);
            let key = end.key(shape.key("attention_paged_split", &types));
            let launch = Launch::on_gpu(key, end.form(SPLIT), params, buffers.into_iter().chain(end.buffers(inputs.q.dtype)));
            let launch = shape.over_blocks(launch, attention)?.with_threadgroup_memory(shape.memory() + end.memory(&shape));
            return end.plan(launch, attention, inputs.q.dtype, [positions, lengths]);
        }
        let buffers = buffers.into_iter().chain([(Parameter::write("y", inputs.q.dtype), Argument::Output(0))]);
        Ok(WHOLE.launch(&types, shape, attention, params, buffers, device)?.into())
    }
}

impl Operator for PagedAttention {
    fn name(&self) -> &'static str {
        "paged_attention"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let y = self.params(&Inputs::new(inputs)?)?.1;
        operands::OUTPUTS[0].check(y.dtype)?;
        Ok(vec![y])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let (definition, inputs) = (self.stands_for(inputs)?, Inputs::new(inputs)?);
        let (params, y, seen) = self.params(&inputs)?;
        let attention = &params.attention;
        let plan = match (self.on_tensor_cores(&inputs, &seen, &params, y.dtype, device), definition) {
            (Some(plan), _) => Some(plan),
            (None, Some(definition)) => return definition.plan(device),
            (None, None) if device.simd_width > 1 => Some(self.for_gpu(&inputs, &seen, &params, device)?),
            (None, None) => None,
        };
        if let Some(plan) = plan {
            return Ok(plan.with_operations(attention.operations()));
        }
        let key = KernelKey::new("paged_attention", &[inputs.q.dtype, inputs.k.dtype]);
        let launch = Launch::new(key, cpu::run, &params, inputs.parameters(outputs)?);
        Ok(launch.over(Extent::linear(u32::from(attention.rows() * attention.value_width > 0)), Extent::linear(1)).into())
    }

    fn rounded(&self, to: DType, inputs: &[Option<TensorInfo>], device: &DeviceProperties) -> Result<Option<Arc<dyn Operator>>> {
        let (inputs, operator) = (Inputs::new(inputs)?, Self { output: Some(to), ..*self });
        let (params, _, seen) = self.params(&inputs)?;
        let stores = self.output.is_none() && self.on_tensor_cores(&inputs, &seen, &params, to, device).is_some();
        Ok(stores.then(|| Arc::new(operator) as Arc<dyn Operator>))
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        Definition::converted(Self { output: None, ..*self }, inputs, AT.q, self.output)
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index < AT.table
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!(
    "paged_attention",
    "causal attention of several sequences over keys and values in pages, which a table names for each of them",
    operands,
    PagedAttention
)];
