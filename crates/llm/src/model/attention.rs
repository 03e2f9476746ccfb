//! Grouped-query attention with rotary positions, over a cache or over whole texts.

use std::sync::Arc;

use elinvar::{
    Result, Tensor,
    kernels::attention::{self, Scoring, paged::PagedAttention},
};

use super::{
    memo::Memo,
    module::Module,
    packed::Packing,
    parts::{Linear, Linears, Norm},
    source::Source,
};
use crate::config::Config;

/// Keys and values of a layer.
#[derive(Clone)]
pub(super) struct LayerCache {
    /// `[kv_heads, capacity, head_dim]`, or packed rows, `[kv_heads, capacity, bytes]`.
    pub(super) keys: Tensor,
    /// As the keys.
    pub(super) values: Tensor,
}

/// What a layer attends to.
pub(super) struct Context {
    pub(super) kept: Kept,
    /// What is kept of the layer for when it is computed again.
    pub(super) memo: Memo,
    /// By how much the layer's queries and keys are rotated with each position, in a text of this length.
    pub(super) frequencies: Tensor,
}

/// Where keys and values are.
pub(super) enum Kept {
    /// Nowhere: texts of one length, none of which goes on.
    Nothing {
        /// How many.
        texts: usize,
        /// Of texts that are packed: where their tokens lie.
        packing: Option<Arc<Packing>>,
    },
    /// Of one text, whose cache has what came before.
    Text(LayerCache),
    /// Of many texts, in the pages of one cache.
    Pages(LayerCache, Arc<Places>),
}

/// Where the tokens of a step belong whose texts have their keys and values in pages.
pub(super) struct Places {
    /// The slot of each token's key and value.
    pub(super) slots: Tensor,
    /// Tokens of a page.
    pub(super) page: usize,
    /// Which tokens are of which text, one group after the other.
    pub(super) groups: Vec<Group>,
}

/// Texts that have one number of tokens in a step.
pub(super) struct Group {
    /// `[texts, pages]`.
    pub(super) table: Tensor,
    /// `[texts, tokens]`.
    pub(super) positions: Tensor,
}

/// The tokens that attend, and where they are in their text: all, or, over a cache, some.
pub(super) struct Queries {
    /// `[tokens, hidden]`.
    pub(super) x: Tensor,
    pub(super) positions: Tensor,
}

/// The weights of an attention.
#[derive(Clone)]
pub(super) struct Attention {
    q: Linear,
    k: Linear,
    v: Linear,
    output: Linear,
    q_norm: Option<Norm>,
    k_norm: Option<Norm>,
    /// Factors of a query's elements, where rotation scales some of them.
    query_factors: Option<Tensor>,
    scoring: Scoring,
    /// Of a rank.
    heads: usize,
    /// Of a rank.
    kv_heads: usize,
    head_dim: usize,
}

impl Attention {
    pub(super) fn load(config: &Config, index: usize, source: &mut dyn Source) -> Result<Self> {
        let &Config { hidden_size, heads, kv_heads, head_dim, .. } = config;
        let ranks = source.executor().ranks();
        let sharers = config.key_sharers(ranks);
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let path = format!("model.layers.{index}.self_attn");
        let (scale, query_factors) = Self::scale(config, index, source)?;
        let left_window = config.window(index).map(|window| window.saturating_sub(1) as u64);
        let softcap = config.attention_softcap.unwrap_or(0.0);
        let fused = config.fused_projections.then_some(("qkv_proj", queries + 2 * keys));
        let mut inputs = Linears::new(source, path.clone(), fused, hidden_size, config.qkv_bias)?;
        Ok(Self {
            q: inputs.next("q_proj", queries, 1)?,
            k: inputs.next("k_proj", keys, sharers)?,
            v: inputs.next("v_proj", keys, sharers)?,
            output: Linear::load_own(source, &format!("{path}.o_proj"), [hidden_size, queries], config.output_bias, 1)?,
            q_norm: Norm::load_if(config.qk_norm, config, source, &format!("{path}.q_norm"), head_dim)?,
            k_norm: Norm::load_if(config.qk_norm, config, source, &format!("{path}.k_norm"), head_dim)?,
            query_factors,
            scoring: Scoring { causal: true, left_window, scale, softcap, ..Scoring::default() },
            heads: heads / ranks,
            kv_heads: kv_heads * sharers / ranks,
            head_dim,
        })
    }

    /// The factor of scores, and that of each of a query's elements. Cosines and sines of queries and keys have a factor each, which is as much as its square
    /// for the scores of what rotates, so that the cache has keys without it.
    fn scale(config: &Config, index: usize, source: &dyn Source) -> Result<(Option<f32>, Option<Tensor>)> {
        let (rope, dim) = (config.rope_of(index), config.head_dim);
        let factor = rope.attention_factor * rope.attention_factor;
        if factor == 1.0 {
            return Ok((config.attention_scale, None));
        }
        if rope.dimensions == dim {
            return Ok((Some(factor * config.attention_scale.unwrap_or(1.0 / (dim as f32).sqrt())), None));
        }
        let factors: Vec<f32> = (0..dim).map(|element| if element < rope.dimensions { factor } else { 1.0 }).collect();
        Ok((config.attention_scale, Some(source.executor().tensor(&[dim], &factors)?)))
    }

    /// Its linear layers.
    pub(super) fn modules(&mut self, path: &str, fused: bool) -> Vec<Module<'_>> {
        let inputs = [("q_proj", &mut self.q), ("k_proj", &mut self.k), ("v_proj", &mut self.v)];
        let mut modules = Module::all(&format!("{path}.self_attn"), fused.then_some("qkv_proj"), inputs);
        modules.extend(Module::all(&format!("{path}.self_attn"), None, [("o_proj", &mut self.output)]));
        modules
    }

    /// Its norms of heads, if it has some.
    pub(super) fn norms(&mut self, path: &str) -> impl Iterator<Item = (String, &mut Norm)> {
        let norms = [("q_norm", self.q_norm.as_mut()), ("k_norm", self.k_norm.as_mut())];
        norms.into_iter().filter_map(move |(name, norm)| Some((format!("{path}.self_attn.{name}"), norm?)))
    }

    /// Attention of the queries to `x [tokens, hidden]`: of one text over the cache, to which the keys and values of `x` are appended; of whole texts, one after
    /// the other, each over its own. Each rank attends by its own heads and gives its own part, added to its part of `residual` if there is one.
    pub(super) fn forward(&self, queries: &Queries, x: &Tensor, positions: &Tensor, context: &Context, residual: Option<&Tensor>) -> Result<Tensor> {
        let (rows, dim) = (queries.x.shape()[0], self.head_dim);
        let heads = |x: &Tensor, linear: &Linear, count: usize, norm: Option<&Norm>| -> Result<Tensor> {
            let heads = context.memo.keep(linear.apply(x)?)?.reshape(&[x.shape()[0], count, dim])?;
            match norm {
                Some(norm) => norm.apply(&heads),
                None => Ok(heads),
            }
        };
        let mut q = heads(&queries.x, &self.q, self.heads, self.q_norm.as_ref())?;
        if let Some(factors) = &self.query_factors {
            q = q.mul(&factors.cast(q.dtype())?)?;
        }
        let k = heads(x, &self.k, self.kv_heads, self.k_norm.as_ref())?;
        let v = heads(x, &self.v, self.kv_heads, None)?;
        let attention = attention::Attention { scoring: self.scoring, tokens_first: true, precision: x.executor().precision(), output: None };
        let frequencies = &context.frequencies;
        let append = |LayerCache { keys, values }: &LayerCache, places: &Tensor| {
            keys.kv_append(&k.rope(positions, frequencies)?, places)?;
            values.kv_append(&v, places)
        };
        let attended = match &context.kept {
            Kept::Text(cache) => {
                append(cache, positions)?;
                let LayerCache { keys, values } = cache;
                let positions = &queries.positions;
                let q = q.rope(positions, frequencies)?.reshape(&[1, rows, self.heads, dim])?.transpose(1, 2)?;
                let batched = |cache: &Tensor| cache.reshape(&[1, self.kv_heads, cache.shape()[1], cache.shape()[2]]);
                q.attention(&attention, &batched(keys)?, &batched(values)?, None, Some(positions))?
            }
            Kept::Pages(cache, places) => {
                append(cache, &places.slots)?;
                self.in_pages(&q.rope(positions, frequencies)?, cache, places)?
            }
            Kept::Nothing { texts, packing } => {
                let apart = |x: Tensor, count: usize| x.reshape(&[*texts, positions.shape()[0], count, dim]);
                let (q, k, v) = match packing {
                    None => {
                        let rotated = |x: Tensor, count: usize| apart(x, count)?.rope(positions, frequencies);
                        (rotated(q, self.heads)?, rotated(k, self.kv_heads)?, apart(v, self.kv_heads)?)
                    }
                    Some(packing) => {
                        let spread = |x: &Tensor, count: usize| apart(packing.apart(&x.reshape(&[rows, count * dim])?)?, count);
                        let rotated =
                            |x: Tensor, count: usize| spread(&x.reshape(&[1, rows, count, dim])?.rope(&packing.positions, frequencies)?, count);
                        (rotated(q, self.heads)?, rotated(k, self.kv_heads)?, spread(&v, self.kv_heads)?)
                    }
                };
                let v = v.transpose(1, 2)?;
                let attended = q.transpose(1, 2)?.attention(&attention, &k.transpose(1, 2)?, &v, None, Some(positions))?;
                match packing {
                    None => attended,
                    Some(packing) => packing.together(&attended.reshape(&[texts * positions.shape()[0], self.heads * dim])?)?,
                }
            }
        };
        self.output.add_to(residual, &attended.reshape(&[rows, self.heads * dim])?.all_gather()?)
    }

    /// Attention of rotated queries `[tokens, heads, head_dim]` of many texts.
    fn in_pages(&self, q: &Tensor, LayerCache { keys, values }: &LayerCache, places: &Places) -> Result<Tensor> {
        let Scoring { scale, softcap, left_window, .. } = self.scoring;
        let attention = PagedAttention { scale, softcap, left_window, page: places.page as u64, precision: q.executor().precision(), output: None };
        let mut first = 0;
        let groups = places.groups.iter().map(|Group { table, positions }| {
            let [texts, tokens] = [0, 1].map(|axis| positions.shape()[axis]);
            let q = q.slice(0, first, texts * tokens, 1)?.reshape(&[texts, tokens, self.heads, self.head_dim])?;
            first += texts * tokens;
            let attended = q.transpose(1, 2)?.paged_attention(&attention, keys, values, table, positions)?;
            attended.reshape(&[texts * tokens, self.heads * self.head_dim])
        });
        match &groups.collect::<Result<Vec<_>>>()?[..] {
            [all] => Ok(all.clone()),
            groups => Tensor::concat(&groups.iter().collect::<Vec<_>>(), 0),
        }
    }
}
