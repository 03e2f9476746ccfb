//! What a step adds to the caches, in one launch: new keys, rotated by their positions, new values, and the queries rotated in place. The bits of
//! [`crate::rope`] and [`crate::kv_append`].
//!
//! `cache[…, h, p_t, :] = rope(rows[…, t, h, :], p_t)`, `value_cache[…, h, p_t, :] = values[…, t, h, :]` and `queries[…, t, h, :] = rope(queries[…,
//! t, h, :], p_t)` with `p = positions`. Each row is read once and written once; rotated keys never go to memory by themselves. Order, rounding and
//! error are those of the two operators: a rotated element is rounded to the rows' type, then to the cache's.
//!
//! Positions of one sequence must differ from each other. A position outside the cache is an error; on a CPU nothing is written then. With `slots`, as in a
//! cache in pages, rows go to `cache[…, h, slots_t, :]` instead, and what is said of positions is said of slots.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use bytemuck::Zeroable;
use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Definition, Description, Launch, Operator, Plan, TensorInfo,
    attention::View,
    attributes::attributes,
    description::describe,
    elementwise::{self, Operand, Space},
    kv_append::{self, KvAppend, Params},
    math,
    metal::{self, metal_file, params},
    quantized::cached,
    rope::{self, Rope},
    signature::{misshapen, operands},
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    metal::LAUNCHES,
    math::METAL,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    View::METAL,
    Params::METAL,
    RotatedRows::METAL,
    cached::METAL,
    metal_file!("rope_append/rope_append.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "rope_append").with_error_flag(kv_append::REJECTION);

/// Tokens from which so many heads share what is made of an angle.
const MANY: u32 = 16;
const SHARED: u64 = 8;

attributes! {
    /// Appends rotated keys, and values, to caches, and rotates queries, all in place.
    ///
    /// Inputs: `cache`, `rows` and `positions` as for [`KvAppend`], and `frequencies [rotary_dim / 2]` as for [`Rope`]; the elements of a row
    /// from `rotary_dim` on are copied. Optional: `value_cache` and `values`, as [`KvAppend`] has them, of the types of `cache` and `rows`; `queries [T,
    /// Hq, D]` (or with a batch), of the type of `rows`; `slots`, as `positions`: where the rows go.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct RopeAppend {
        /// Pairs are neighbours instead of half of `rotary_dim` apart.
        pub interleaved: bool = false,
    }
}

params! {
    /// What the kernel gets besides its buffers.
    struct RotatedRows {
        /// Where the keys come from and go to.
        pub append: Params,
        /// Where the values come from and go to; no heads where there are none.
        pub values: Params,
        /// The queries: batch, head, token.
        pub queries: View,
        /// Heads of the queries; none where there are none.
        pub query_heads: u64,
        /// Pairs that rotate.
        pub half_dim: u32,
        /// Whether pairs are neighbours.
        pub interleaved: u32,
        /// Whether rows go to slots.
        pub slotted: u64,
    }
}

pub(crate) const VALUE_CACHE: &str = "as cache, updated in place";
pub(crate) const VALUES: &str = "as rows, what goes into value_cache as it is";

operands! {
    cache: update(cached::TYPES), kv_append::CACHE;
    rows: read(DType::FLOATS), kv_append::ROWS;
    positions: read(&[DType::I32]), kv_append::POSITIONS;
    frequencies: read(&[DType::F32]), rope::FREQUENCIES;
    value_cache: update(like cache) optional, VALUE_CACHE;
    values: read(like rows) optional, VALUES;
    queries: update(like rows) optional, "[tokens, Hq, D] or [B, tokens, Hq, D] of the type of rows, rotated in place";
    slots: read(&[DType::I32]) optional, "as positions: where each token goes, if not to its position";
}
use operands::{AT, Inputs};

impl RopeAppend {
    fn params(&self, inputs: &Inputs) -> Result<RotatedRows> {
        let positions = inputs.positions;
        if let Some(slots) = inputs.slots.filter(|slots| slots.shape() != positions.shape()) {
            return Err(misshapen!(slots, positions; "one shape"));
        }
        let append = Params::new(("cache", inputs.cache), ("rows", inputs.rows), positions)?;
        let half_dim = rope::half_of(inputs.frequencies, ("rows", inputs.rows))?;
        let values = values(inputs, &append)?;
        let (queries, query_heads) = queries(inputs)?;
        Ok(RotatedRows {
            append,
            values,
            queries,
            query_heads,
            half_dim,
            interleaved: self.interleaved.into(),
            slotted: inputs.slots.is_some().into(),
        })
    }
}

fn values(inputs: &Inputs, keys: &Params) -> Result<Params> {
    let (Some(value_cache), Some(values)) = (inputs.value_cache, inputs.values) else {
        let alone = inputs.value_cache.is_some() || inputs.values.is_some();
        return if alone {
            Err(Error::invalid_argument("one of value_cache and values is given: expected both or neither"))
        } else {
            Ok(Params::zeroed())
        };
    };
    let params = Params::new(("value_cache", value_cache), ("values", values), inputs.positions)?;
    if (params.batch, params.capacity) != (keys.batch, keys.capacity) {
        let cache = inputs.cache;
        return Err(misshapen!(value_cache, cache; "one batch and one capacity"));
    }
    Ok(params)
}

fn queries(inputs: &Inputs) -> Result<(View, u64)> {
    let Some(queries) = inputs.queries else { return Ok((View::zeroed(), 0)) };
    let rows = inputs.rows;
    let (q, r) = (queries.shape(), rows.shape());
    let heads = q.rank().wrapping_sub(2);
    let alike = q.rank() == r.rank() && (0..q.rank()).all(|axis| axis == heads || q[axis] == r[axis]);
    if !alike {
        return Err(misshapen!(queries, rows; "one shape but for the number of heads"));
    }
    Ok((View::new("queries", &queries, (q.rank() == 4).then_some(0), heads, heads - 1)?, q[heads] as u64))
}

impl Operator for RopeAppend {
    fn name(&self) -> &'static str {
        "rope_append"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.params(&Inputs::new(inputs)?).map(|_| Vec::new())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(inputs)?;
        let (params, rows, cache) = (self.params(&inputs)?, inputs.rows.dtype, inputs.cache.dtype);
        let launch = Launch::new(KernelKey::new("rope_append", &[rows, cache]), cpu::kernel(rows, cache)?, &params, inputs.parameters(outputs)?);
        let threads = (params.append.width as u32 - params.half_dim)
            .next_multiple_of(32)
            .min((device.max_threads_per_threadgroup as u32 / 32 * 32).clamp(32, 256));
        let Extent([tokens, heads, any]) = params.append.grid();
        let shared = if tokens >= MANY { SHARED } else { 1 };
        let heads = params.values.heads + u64::from(heads).max(params.query_heads).div_ceil(shared);
        let heads = u32::try_from(heads).map_err(|_| Error::unsupported(format!("{heads} heads: too many for one launch")))?;
        Ok(launch.over(Extent([tokens, heads, any]), Extent::linear(threads)).with_metal(METAL).into())
    }

    fn accepts_strides(&self, index: usize) -> bool {
        index != AT.positions && index != AT.frequencies && index != AT.slots
    }

    fn updates(&self, index: usize) -> bool {
        matches!(index, 0 | 4 | 6)
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        let mut definition = Definition::new(inputs);
        let [cache, rows, positions, frequencies, value_cache, values, queries, slots] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|index| definition.input(index));
        let slots = slots.or(positions);
        let rope = Rope { interleaved: self.interleaved };
        let keys = definition.apply_one(rope, &[rows, positions, frequencies])?;
        definition.apply(KvAppend, &[cache, Some(keys), slots])?;
        if value_cache.is_some() {
            definition.apply(KvAppend, &[value_cache, values, slots])?;
        }
        if queries.is_some() {
            let rotated = definition.apply_one(rope, &[queries, positions, frequencies])?;
            definition.updated.push((6, rotated));
        }
        Ok(Some(definition))
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[describe!(
    "rope_append",
    "rotates new keys by their positions and writes them into a cache, in place, beside values and queries: rope and kv_append in one",
    operands,
    RopeAppend
)];
