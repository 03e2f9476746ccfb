use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalForm, Result};

use super::{FILES, Params, cpu, position_stride};
use crate::{
    Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    gather::index,
    gradient::Gradient,
    signature::{misshapen, operands},
    unary::UnaryOp,
};

attributes! {
    /// Rotary position embedding by caches of cosines and sines: ONNX `RotaryEmbedding`.
    ///
    /// Inputs: `x [batch, heads, tokens, head_dim]`, or `[batch, tokens, heads · head_dim]` with `num_heads`; `cos_cache`, `sin_cache` and,
    /// optionally, `position_ids [batch, tokens]` or `[tokens]`, i32, i64 or u32. With positions the caches are `[positions, rotary_dim / 2]`, without
    /// `[batch, tokens, rotary_dim / 2]`. A position outside the caches is an error of the submission that names it; nothing outside the caches is read.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct RotaryEmbedding {
        /// Pairs are neighbours instead of half a head apart.
        pub interleaved: bool = false,
        /// Rotating elements of a head; zero for all of them.
        pub rotary_embedding_dim: usize = 0,
        /// Heads of a three-dimensional `x`; zero otherwise.
        pub num_heads: usize = 0,
    }
}

const METAL: MetalForm = MetalForm::new(FILES, "rotary_embedding").with_error_flag("a position is outside the caches: use caches with more rows");

operands! {
    pub(super) mod operands {
        x: read(DType::FLOATS), "[batch, heads, tokens, head_dim], or [batch, tokens, heads * head_dim] with num_heads";
        cos_cache: read(DType::FLOATS), "[positions, rotary_dim / 2]; without position_ids [batch, tokens, rotary_dim / 2]";
        sin_cache: read(like cos_cache), "as cos_cache";
        position_ids: read(index::TYPES) optional, "[batch, tokens] or [tokens]";
        -> y: write(like x), "as x";
    }
}

impl RotaryEmbedding {
    fn params(&self, inputs: operands::Inputs) -> Result<Params> {
        let operands::Inputs { x, cos_cache, sin_cache, position_ids: positions } = inputs;
        let heads = self.num_heads;
        let ([batches, tokens, heads, dim], head_major) = match **x.shape() {
            [batches, heads, tokens, dim] if self.num_heads == 0 || self.num_heads == heads => ([batches, tokens, heads, dim], true),
            [batches, tokens, hidden] if heads > 0 && hidden.is_multiple_of(heads) => ([batches, tokens, heads, hidden / heads], false),
            _ => {
                return Err(misshapen!(x, num_heads = heads; "[batch, heads, tokens, dim], or [batch, tokens, heads · dim] with num_heads"));
            }
        };
        if cos_cache.shape() != sin_cache.shape() {
            return Err(misshapen!(cos_cache, sin_cache; "one shape"));
        }
        let rotary = if self.rotary_embedding_dim == 0 { dim } else { self.rotary_embedding_dim };
        let half_dim = match u32::try_from(rotary / 2) {
            Ok(half) if half > 0 && rotary <= dim => half,
            _ => return Err(misshapen!(x, rotary_embedding_dim = rotary; "2 to {dim}, the elements of a head")),
        };
        let cache_rows = match **cos_cache.shape() {
            [rows, n] if positions.is_some() && n == rotary / 2 => rows,
            [b, t, n] if positions.is_none() && (b, t, n) == (batches, tokens, rotary / 2) => b * t,
            _ => {
                let rows = if positions.is_some() { "positions".to_owned() } else { format!("{batches}, {tokens}") };
                return Err(misshapen!(cos_cache, sin_cache, x; "caches of [{rows}, {}]", rotary / 2));
            }
        };
        let (token, head) = if head_major { (dim, tokens * dim) } else { (heads * dim, dim) };
        let y = [tokens * heads * dim, token, head].map(|n| n as u64);
        Ok(Params {
            extents: [batches, tokens, heads, dim].map(|n| n as u64),
            x: [y[0] as i64, y[1] as i64, y[2] as i64, 1],
            x_origin: 0,
            y,
            position_stride: positions.map_or(Ok(0), |p| position_stride(("position_ids", p), x, Some(batches), tokens))?,
            cache_rows: cache_rows as u64,
            half_dim,
            interleaved: self.interleaved.into(),
            indexed: positions.is_some().into(),
            reserved: 0,
        })
    }
}

impl Operator for RotaryEmbedding {
    fn name(&self) -> &'static str {
        "rotary_embedding"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = operands::Inputs::new(inputs)?;
        self.params(inputs)?;
        Ok(vec![TensorInfo::of(inputs.x.dtype, *inputs.x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (params, x, cos, positions) = (self.params(inputs)?, inputs.x.dtype, inputs.cos_cache.dtype, inputs.dtype(operands::AT.position_ids));
        let key = KernelKey::new("rotary_embedding", &[x, cos, positions]);
        let launch = Launch::new(key, cpu::cached_kernel(x, cos, positions)?, &params, inputs.parameters(outputs)?);
        Ok(params.launch(launch.with_metal(METAL), device).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            if index != operands::AT.x {
                return Err(Error::unsupported("rotary_embedding has no gradient of its caches"));
            }
            let (cosines, sines, upstream) =
                (gradient.input(operands::AT.cos_cache)?, gradient.input(operands::AT.sin_cache)?, gradient.upstream(0)?);
            let back = gradient.unary(UnaryOp::Neg, sines)?;
            let found = gradient.apply_all(*self, &[Some(upstream), Some(cosines), Some(back), gradient.optional(operands::AT.position_ids)])?;
            found.first().copied().ok_or_else(|| Error::internal("a rotation gives nothing"))
        })
    }
}

pub(super) const DESCRIPTION: Description =
    describe!("rotary_embedding", "rotary position embedding by caches of cosines and sines", operands, RotaryEmbedding);
