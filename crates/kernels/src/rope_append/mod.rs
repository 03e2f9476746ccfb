//! What a step adds to the caches, in one launch: new keys, turned by their positions, new values, and the queries turned in place. The bits of
//! [`crate::rope`] and [`crate::kv_append`].
//!
//! `cache[…, h, p_t, :] = rope(rows[…, t, h, :], p_t)`, `value_cache[…, h, p_t, :] = values[…, t, h, :]` and `queries[…, t, h, :] = rope(queries[…,
//! t, h, :], p_t)` with `p = positions`. Each row is read once and written once; turned keys never go to memory by themselves. Order, rounding and
//! error are those of the two operators: a turned element is rounded to the rows' type, then to the cache's.
//!
//! Positions of one sequence must differ from each other. A position outside the cache is an error; on a CPU nothing is written then.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use bytemuck::Zeroable;
use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, AttributeInfo, Definition, Description, Launch, Operator, Plan, Port, TensorInfo,
    attention::View,
    elementwise::{self, Operand, Space},
    kv_append::{self, KvAppend, Params},
    math,
    metal::{self, metal_file, params},
    optional, required,
    rope::{self, Rope},
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
    TurnedRows::METAL,
    metal_file!("rope_append/rope_append.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "rope_append").with_refusal(kv_append::REFUSAL);

/// Appends turned keys, and values, to caches, and turns queries, all in place.
///
/// Inputs: `cache`, `rows` and `positions` as for [`KvAppend`], and `frequencies [rotary_dim / 2]` as for [`Rope`](rope::Rope); the elements of a row
/// from `rotary_dim` on are copied. Optional: `value_cache` and `values`, as [`KvAppend`] has them, of the types of `cache` and `rows`; `queries [T,
/// Hq, D]` (or with a batch), of the type of `rows`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RopeAppend {
    /// Pairs are neighbours instead of half of `rotary_dim` apart.
    pub interleaved: bool,
}

params! {
    /// What the kernel gets besides its buffers.
    struct TurnedRows {
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
    }
}

impl RopeAppend {
    fn params(&self, inputs: &[Option<TensorInfo>]) -> Result<TurnedRows> {
        let append = KvAppend.params(inputs)?;
        let frequencies = required(inputs, 3, "frequencies")?;
        let half_dim = match **frequencies.shape() {
            [half] if frequencies.dtype == DType::F32 => rope::check_half(half, append.width as usize)?,
            _ => {
                let found = format!("{} {}", frequencies.dtype, frequencies.shape());
                return Err(Error::invalid_argument(format!("frequencies are {found}: f32 [rotary_dim / 2] expected")));
            }
        };
        let values = values(inputs, &append)?;
        let (queries, query_heads) = queries(inputs)?;
        Ok(TurnedRows { append, values, queries, query_heads, half_dim, interleaved: self.interleaved.into() })
    }
}

fn values(inputs: &[Option<TensorInfo>], keys: &Params) -> Result<Params> {
    let (cache, values) = (optional(inputs, 4), optional(inputs, 5));
    let (Some(cache), Some(values)) = (cache, values) else {
        let alone = cache.is_some() || values.is_some();
        return if alone {
            Err(Error::invalid_argument("value_cache and values belong together: give both or neither"))
        } else {
            Ok(Params::zeroed())
        };
    };
    let (key_cache, rows) = (required(inputs, 0, "cache")?, required(inputs, 1, "rows")?);
    if (cache.dtype, values.dtype) != (key_cache.dtype, rows.dtype) {
        let (found, expected) = (format!("{} into {}", values.dtype, cache.dtype), format!("{} into {}", rows.dtype, key_cache.dtype));
        return Err(Error::invalid_argument(format!("values go {found}, keys {expected}: the types must agree")));
    }
    let params = KvAppend.params(&[Some(cache), Some(values), inputs[2]]).map_err(|e| e.context("values"))?;
    if (params.batch, params.capacity) != (keys.batch, keys.capacity) {
        return Err(Error::invalid_argument(format!("cache {} and value_cache {}: batch and capacity must agree", key_cache.shape(), cache.shape())));
    }
    Ok(params)
}

fn queries(inputs: &[Option<TensorInfo>]) -> Result<(View, u64)> {
    let Some(queries) = optional(inputs, 6) else { return Ok((View::zeroed(), 0)) };
    let rows = required(inputs, 1, "rows")?;
    let (q, r) = (queries.shape(), rows.shape());
    let heads = q.rank().wrapping_sub(2);
    let alike = q.rank() == r.rank() && (0..q.rank()).all(|axis| axis == heads || q[axis] == r[axis]);
    if queries.dtype != rows.dtype || !alike {
        return Err(Error::invalid_argument(format!(
            "queries are {} {q}, rows {} {r}: they must agree in all but the number of heads",
            queries.dtype, rows.dtype
        )));
    }
    Ok((View::new("queries", &queries, (q.rank() == 4).then_some(0), heads, heads - 1)?, q[heads] as u64))
}

impl Operator for RopeAppend {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.params(inputs).map(|_| Vec::new())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let params = self.params(inputs)?;
        let (cache, rows) = (required(inputs, 0, "cache")?.dtype, required(inputs, 1, "rows")?.dtype);
        let others = [
            (Parameter::read("frequencies", DType::F32), Argument::Input(3)),
            (Parameter::update("value_cache", cache).or_absent(), Argument::Input(4)),
            (Parameter::read("values", rows).or_absent(), Argument::Input(5)),
            (Parameter::update("queries", rows).or_absent(), Argument::Input(6)),
        ];
        let buffers = kv_append::buffers(rows, cache).into_iter().chain(others);
        let launch = Launch::new(KernelKey::new("rope_append", &[rows, cache]), cpu::kernel(rows, cache)?, &params, buffers);
        let threads = (params.append.width as u32 - params.half_dim)
            .next_multiple_of(32)
            .min((device.max_threads_per_threadgroup as u32 / 32 * 32).clamp(32, 256));
        let Extent([tokens, heads, any]) = params.append.grid();
        let heads = u64::from(heads) + params.values.heads + params.query_heads;
        let heads = u32::try_from(heads).map_err(|_| Error::unsupported(format!("{heads} heads: too many for one launch")))?;
        Ok(launch.over(Extent([tokens, heads, any]), Extent::linear(threads)).with_metal(METAL).into())
    }

    fn accepts_strides(&self, index: usize) -> bool {
        matches!(index, 0 | 1 | 4 | 5 | 6)
    }

    fn updates(&self, index: usize) -> bool {
        matches!(index, 0 | 4 | 6)
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        self.infer(inputs)?;
        let mut definition = Definition::new(inputs);
        let [cache, rows, positions, frequencies, value_cache, values, queries] = [0, 1, 2, 3, 4, 5, 6].map(|index| definition.input(index));
        let rope = Rope { interleaved: self.interleaved };
        let keys = definition.apply_one(rope, &[rows, positions, frequencies])?;
        definition.apply(KvAppend, &[cache, Some(keys), positions])?;
        if value_cache.is_some() {
            definition.apply(KvAppend, &[value_cache, values, positions])?;
        }
        if queries.is_some() {
            let rotated = definition.apply_one(rope, &[queries, positions, frequencies])?;
            definition.updated.push((6, rotated));
        }
        Ok(Some(definition))
    }
}

pub(crate) const VALUE_CACHE: Port = Port::new("value_cache", DType::FLOATS, "as cache, updated in place");
pub(crate) const VALUES: Port = Port::new("values", DType::FLOATS, "as rows, what goes into value_cache as it is");
const QUERIES: Port = Port::new("queries", DType::FLOATS, "[tokens, Hq, D] or [B, tokens, Hq, D] of the type of rows, turned in place");

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "rope_append",
    summary: "turns new keys by their positions and writes them into a cache, in place, beside values and queries: rope and kv_append in one",
    inputs: {
        const ALL: [Port; 7] = {
            let [cache, rows, positions] = kv_append::INPUTS;
            [cache, rows, positions, rope::FREQUENCIES, VALUE_CACHE.or_absent(), VALUES.or_absent(), QUERIES.or_absent()]
        };
        &ALL
    },
    outputs: {
        const ALL: [Port; 3] = {
            let [cache, ..] = kv_append::INPUTS;
            [cache, VALUE_CACHE.or_absent(), QUERIES.or_absent()]
        };
        &ALL
    },
    attributes: {
        const ALL: [AttributeInfo; 1] = [rope::INTERLEAVED];
        &ALL
    },
    build: |a| Ok(Box::new(RopeAppend { interleaved: a.flag("interleaved")? })),
}];
