//! Attention, positions and caches.

use elinvar_core::Result;
use elinvar_kernels::{
    attention::{
        Attention,
        decode::DecodeAttention,
        paged::{PagedAttention, decode::PagedDecodeAttention},
    },
    attention_scores::AttentionScores,
    kv_append::KvAppend,
    rope::{Rope, RotaryEmbedding},
    rope_append::RopeAppend,
    weighted_sum::WeightedSum,
};

use super::operators;
use crate::tensor::Tensor;

operators! {
    /// Attention of this query `[B, heads, tokens, D]` over keys and values `[B, kv_heads, keys, D]`; see [`Attention`] for masks and positions.
    attention attention_into (&self, operator: &Attention, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) =>
        *operator, Some(keys), Some(values), mask, positions, None;
    errors "Shapes or types that do not fit.";
    example "use elinvar::kernels::attention::Attention;\n\
             let (x, keys) = (executor.tensor(&[1, 1, 1, 2], &[0f32, 0.0])?, executor.ones(DType::F32, &[1, 1, 2, 2])?);\n\
             let values = executor.tensor(&[1, 1, 2, 2], &[1f32, 2.0, 3.0, 4.0])?;";
    ("&Attention::default()", "&keys", "&values", "None", "None") => "[[[[2.0, 3.0]]]]";

    /// Causal attention of these queries `[B, heads, tokens, D]` over keys and values `[kv_heads, slots, D]` in pages, which `table [B, pages]` names for each
    /// sequence; as `[B, tokens, heads, D]`. See [`PagedAttention`].
    paged_attention paged_attention_into (&self, operator: &PagedAttention, keys: &Tensor, values: &Tensor, table: &Tensor, positions: &Tensor) =>
        *operator, Some(keys), Some(values), Some(table), Some(positions);
    errors "Shapes or types that do not fit. A page that the cache does not have is reported when something is read.";
    example "use elinvar::kernels::attention::paged::PagedAttention;\n\
             let (x, keys) = (executor.zeros(DType::F32, &[1, 1, 1, 2])?, executor.ones(DType::F32, &[1, 64, 2])?);\n\
             let values = executor.arange(DType::F32, 0, 128, 1)?.reshape(&[1, 64, 2])?;\n\
             let (table, positions) = (executor.tensor(&[1, 1], &[1i32])?, executor.tensor(&[1], &[2i32])?);";
    ("&PagedAttention::default()", "&keys", "&values", "&table", "&positions") => "[[[[66.0, 67.0]]]]";

    /// What [`Tensor::attention`] makes of this query and `keys` before the values come in, as `[B, heads, tokens, keys]`: the scores, or their softmax.
    attention_scores attention_scores_into (&self, operator: &AttentionScores, keys: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) =>
        *operator, Some(keys), mask, positions, None;
    errors "Shapes or types that do not fit.";
    example "use elinvar::kernels::attention_scores::AttentionScores;\n\
             let (x, keys) = (executor.tensor(&[1, 1, 1, 2], &[0f32, 0.0])?, executor.ones(DType::F32, &[1, 1, 2, 2])?);";
    ("&AttentionScores { softmax: true, ..Default::default() }", "&keys", "None", "None") => "[[[[0.5, 0.5]]]]";

    /// Sums of `values [B, kv_heads, keys, D]` with these weights `[B, heads, tokens, keys]`: the last step of attention.
    weighted_sum weighted_sum_into (&self, values: &Tensor) => WeightedSum, Some(values);
    errors "Shapes or types that do not fit.";
    example "let x = executor.tensor(&[1, 1, 1, 2], &[0.5f32, 0.5])?;\nlet values = executor.tensor(&[1, 1, 2, 2], &[1f32, 2.0, 3.0, 4.0])?;";
    ("&values") => "[[[[2.0, 3.0]]]]";

    /// Rotary position embedding of `[…, tokens, heads, head_dim]` at `positions [tokens]` (i32), with the frequencies that
    /// [`elinvar_kernels::rope::frequencies`] gives; pairs at a distance of half a head.
    rope rope_into rope_ (&self, positions: &Tensor, frequencies: &Tensor) => Rope { interleaved: false }, Some(positions), Some(frequencies);
    errors "Shapes or types that do not fit.";
    example "let x = executor.tensor(&[2, 1, 2], &[1f32, 2.0, 3.0, 4.0])?;\n\
             let (positions, frequencies) = (executor.tensor(&[2], &[0i32, 5])?, executor.tensor(&[1], &[0f32])?);";
    ("&positions", "&frequencies") => "[[[1.0, 2.0]],\\n\\n [[3.0, 4.0]]]";

    /// Rotary position embedding of `[batch, heads, tokens, head_dim]` by caches of cosines and sines `[positions, head_dim / 2]`, at
    /// `positions [batch, tokens]`; see [`RotaryEmbedding`] for other layouts.
    rotary_embedding rotary_embedding_into rotary_embedding_
    (&self, operator: &RotaryEmbedding, cosines: &Tensor, sines: &Tensor, positions: Option<&Tensor>) =>
        *operator, Some(cosines), Some(sines), positions;
    errors "Shapes or types that do not fit.";
    example "use elinvar::kernels::rope::RotaryEmbedding;\n\
             let (x, positions) = (executor.tensor(&[1, 1, 1, 2], &[1f32, 2.0])?, executor.tensor(&[1, 1], &[0i32])?);\n\
             let (cosines, sines) = (executor.tensor(&[1, 1], &[0f32])?, executor.tensor(&[1, 1], &[1f32])?);";
    ("&RotaryEmbedding::default()", "&cosines", "&sines", "Some(&positions)") => "[[[[-2.0,  1.0]]]]";
}

impl Tensor {
    /// Writes `rows [tokens, heads, head_dim]` into this cache `[heads, capacity, head_dim]` at `positions [tokens]` (i32), in place.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// let (cache, positions) = (executor.zeros(DType::F32, &[1, 3, 2])?, executor.tensor(&[1], &[1i32])?);
    /// cache.kv_append(&executor.tensor(&[1, 1, 2], &[5f32, 6.0])?, &positions)?;
    /// assert_eq!(cache.to_vec::<f32>()?, [0.0, 0.0, 5.0, 6.0, 0.0, 0.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or types that do not fit. A position outside the cache is reported when something is read.
    pub fn kv_append(&self, rows: &Tensor, positions: &Tensor) -> Result<()> {
        self.update(KvAppend, &[Some(rows), Some(positions)])
    }

    /// Rotates `rows [tokens, heads, head_dim]` by their positions, as [`Tensor::rope`] does, and writes them into this cache, as [`Tensor::kv_append`]
    /// does; in the same launch `values` (a cache and its new rows) are appended as they are, and `queries [tokens, query_heads, head_dim]` are
    /// rotated in place.
    ///
    /// ```
    /// # use elinvar::{DType, Executor};
    /// # let executor = Executor::new_auto()?;
    /// let cache = executor.zeros(DType::F32, &[1, 2, 2])?;
    /// let (rows, position) = (executor.tensor(&[1, 1, 2], &[5f32, 6.0])?, executor.tensor(&[1], &[0i32])?);
    /// cache.rope_append(&rows, &position, &executor.tensor(&[1], &[1f32])?, None, None)?;
    /// assert_eq!(cache.to_vec::<f32>()?, [5.0, 6.0, 0.0, 0.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or types that do not fit. A position outside the cache is reported when something is read.
    pub fn rope_append(
        &self,
        rows: &Tensor,
        positions: &Tensor,
        frequencies: &Tensor,
        values: Option<(&Tensor, &Tensor)>,
        queries: Option<&Tensor>,
    ) -> Result<()> {
        let (value_cache, values) = values.unzip();
        self.update(RopeAppend { interleaved: false }, &[Some(rows), Some(positions), Some(frequencies), value_cache, values, queries])
    }

    /// Attention of one token's queries `[1, heads, D]` over caches `[kv_heads, capacity, D]` to which its key and value `[1, kv_heads, D]` are appended
    /// first, queries and key rotated by its position: in the fewest launches [`Tensor::rope_append`] and [`Tensor::attention`].
    ///
    /// ```
    /// # use elinvar::{DType, Executor, kernels::attention::decode::DecodeAttention};
    /// # let executor = Executor::new_auto()?;
    /// let (keys, values) = (executor.zeros(DType::F32, &[1, 4, 2])?, executor.zeros(DType::F32, &[1, 4, 2])?);
    /// let token = executor.tensor(&[1, 1, 2], &[5f32, 6.0])?;
    /// let (position, frequencies) = (executor.tensor(&[1], &[0i32])?, executor.tensor(&[1], &[1f32])?);
    /// let y = token.decode_attention(&DecodeAttention::default(), (&keys, &token), (&values, &token), &position, &frequencies)?;
    /// assert_eq!(y.to_vec::<f32>()?, [5.0, 6.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or types that do not fit. A position outside the caches is reported when something is read.
    pub fn decode_attention(
        &self,
        operator: &DecodeAttention,
        (keys, key): (&Tensor, &Tensor),
        (values, value): (&Tensor, &Tensor),
        positions: &Tensor,
        frequencies: &Tensor,
    ) -> Result<Tensor> {
        keys.apply(*operator, &[key, positions, frequencies, values, value, self].map(Some))
    }

    /// Attention of a token of each of several sequences, its queries `[B, heads, D]`, over caches in pages `[kv_heads, slots, D]` to which its key and value
    /// `[B, kv_heads, D]` are appended first, queries and keys rotated by `positions [B]`: each goes to one of `slots [B]`, and attends the pages that `table
    /// [B, pages]` names.
    ///
    /// ```
    /// # use elinvar::{DType, Executor, kernels::attention::paged::decode::PagedDecodeAttention};
    /// # let executor = Executor::new_auto()?;
    /// let (keys, values) = (executor.zeros(DType::F32, &[1, 64, 2])?, executor.zeros(DType::F32, &[1, 64, 2])?);
    /// let token = executor.tensor(&[1, 1, 2], &[5f32, 6.0])?;
    /// let (position, slot) = (executor.tensor(&[1], &[0i32])?, executor.tensor(&[1], &[32i32])?);
    /// let (frequencies, table) = (executor.tensor(&[1], &[1f32])?, executor.tensor(&[1, 1], &[1i32])?);
    /// let operator = PagedDecodeAttention::default();
    /// let y = token.paged_decode_attention(&operator, (&keys, &token), (&values, &token), [&position, &slot], &frequencies, &table)?;
    /// assert_eq!(y.to_vec::<f32>()?, [5.0, 6.0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes or types that do not fit. A slot or a page that the caches do not have is reported when something is read.
    pub fn paged_decode_attention(
        &self,
        operator: &PagedDecodeAttention,
        (keys, key): (&Tensor, &Tensor),
        (values, value): (&Tensor, &Tensor),
        [positions, slots]: [&Tensor; 2],
        frequencies: &Tensor,
        table: &Tensor,
    ) -> Result<Tensor> {
        keys.apply(*operator, &[key, positions, frequencies, values, value, self, slots, table].map(Some))
    }
}
