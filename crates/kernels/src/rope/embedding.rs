use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalForm, Parameter, Result};

use super::{FILES, INTERLEAVED, Params, check_half, cpu, position_stride};
use crate::{Argument, AttributeInfo, AttributeKind, Description, Launch, Operator, Plan, Port, TensorInfo, gather::index, optional, required};

/// Rotary position embedding by caches of cosines and sines: ONNX `RotaryEmbedding`.
///
/// Inputs: `x [batch, heads, tokens, head_dim]`, or `[batch, tokens, heads · head_dim]` with `num_heads`; `cos_cache`, `sin_cache` and,
/// optionally, `position_ids [batch, tokens]` or `[tokens]`, i32, i64 or u32. With positions the caches are `[positions, rotary_dim / 2]`, without
/// `[batch, tokens, rotary_dim / 2]`. A position outside the caches is an error of the submission that names it; nothing outside the caches is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct RotaryEmbedding {
    /// Pairs are neighbours instead of half a head apart.
    pub interleaved: bool,
    /// Rotating elements of a head; zero for all of them.
    pub rotary_embedding_dim: usize,
    /// Heads of a three-dimensional `x`; zero otherwise.
    pub num_heads: usize,
}

const METAL: MetalForm = MetalForm::new(FILES, "rotary_embedding").with_refusal("a position is outside the caches: use caches with more rows");

impl RotaryEmbedding {
    fn params(&self, inputs: &[Option<TensorInfo>]) -> Result<Params> {
        let x = required(inputs, 0, "x")?;
        let heads = self.num_heads;
        let ([batches, tokens, heads, dim], head_major) = match **x.shape() {
            [batches, heads, tokens, dim] if self.num_heads == 0 || self.num_heads == heads => ([batches, tokens, heads, dim], true),
            [batches, tokens, hidden] if heads > 0 && hidden.is_multiple_of(heads) => ([batches, tokens, heads, hidden / heads], false),
            _ => {
                return Err(Error::invalid_argument(format!(
                    "x has shape {} and num_heads is {heads}: [batch, heads, tokens, dim], or [batch, tokens, heads · dim] with num_heads, expected",
                    x.shape()
                )));
            }
        };
        let (cos, sin) = (required(inputs, 1, "cos_cache")?, required(inputs, 2, "sin_cache")?);
        if (cos.dtype, cos.shape()) != (sin.dtype, sin.shape()) {
            return Err(Error::invalid_argument(format!("cos_cache has shape {} and sin_cache {}: they must be alike", cos.shape(), sin.shape())));
        }
        let rotary = if self.rotary_embedding_dim == 0 { dim } else { self.rotary_embedding_dim };
        let half = check_half(rotary / 2, dim)?;
        let positions = optional(inputs, 3);
        let cache_rows = match **cos.shape() {
            [rows, n] if positions.is_some() && n == rotary / 2 => rows,
            [b, t, n] if positions.is_none() && (b, t, n) == (batches, tokens, rotary / 2) => b * t,
            _ => {
                let rows = if positions.is_some() { "positions".to_owned() } else { format!("{batches}, {tokens}") };
                return Err(Error::invalid_argument(format!("the caches have shape {}: [{rows}, {}] expected", cos.shape(), rotary / 2)));
            }
        };
        let (token, head) = if head_major { (dim, tokens * dim) } else { (heads * dim, dim) };
        let y = [tokens * heads * dim, token, head].map(|n| n as u64);
        Ok(Params {
            extents: [batches, tokens, heads, dim].map(|n| n as u64),
            x: [y[0] as i64, y[1] as i64, y[2] as i64, 1],
            x_origin: 0,
            y,
            position_stride: positions.map_or(Ok(0), |p| position_stride(&p, Some(batches), tokens))?,
            cache_rows: cache_rows as u64,
            half_dim: half,
            interleaved: self.interleaved.into(),
            indexed: positions.is_some().into(),
            reserved: 0,
        })
    }
}

impl Operator for RotaryEmbedding {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (x, cos) = (required(inputs, 0, "x")?, required(inputs, 1, "cos_cache")?);
        self.params(inputs)?;
        cpu::cached_kernel(x.dtype, cos.dtype, optional(inputs, 3).map_or(DType::I32, |p| p.dtype))?;
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let (x, cos) = (required(inputs, 0, "x")?, required(inputs, 1, "cos_cache")?);
        let positions = optional(inputs, 3).map_or(DType::I32, |p| p.dtype);
        let buffers = [
            (Parameter::read("x", x.dtype), Argument::Input(0)),
            (Parameter::read("cos_cache", cos.dtype), Argument::Input(1)),
            (Parameter::read("sin_cache", cos.dtype), Argument::Input(2)),
            (Parameter::read("position_ids", positions).or_absent(), Argument::Input(3)),
            (Parameter::write("y", x.dtype), Argument::Output(0)),
        ];
        let params = self.params(inputs)?;
        let key = KernelKey::new("rotary_embedding", &[x.dtype, cos.dtype, positions]);
        let launch = Launch::new(key, cpu::cached_kernel(x.dtype, cos.dtype, positions)?, &params, buffers);
        Ok(params.launch(launch.with_metal(METAL), device).into())
    }
}

pub(super) const DESCRIPTION: Description = Description {
    name: "rotary_embedding",
    summary: "rotary position embedding by caches of cosines and sines",
    inputs: &[
        Port::new("x", DType::FLOATS, "[batch, heads, tokens, head_dim], or [batch, tokens, heads * head_dim] with num_heads"),
        Port::new("cos_cache", DType::FLOATS, "[positions, rotary_dim / 2]; without position_ids [batch, tokens, rotary_dim / 2]"),
        Port::new("sin_cache", DType::FLOATS, "as cos_cache"),
        Port::new("position_ids", index::TYPES, "[batch, tokens] or [tokens]").or_absent(),
    ],
    outputs: &[Port::new("y", DType::FLOATS, "as x")],
    attributes: &[
        INTERLEAVED,
        AttributeInfo {
            name: "rotary_embedding_dim",
            kind: AttributeKind::Int,
            default: Some("0"),
            doc: "rotating elements of a head, the rest is copied; 0 for all",
        },
        AttributeInfo { name: "num_heads", kind: AttributeKind::Int, default: Some("0"), doc: "heads of a three-dimensional x" },
    ],
    build: |a| {
        Ok(Box::new(RotaryEmbedding {
            interleaved: a.flag("interleaved")?,
            rotary_embedding_dim: a.get("rotary_embedding_dim")?,
            num_heads: a.get("num_heads")?,
        }))
    },
};
