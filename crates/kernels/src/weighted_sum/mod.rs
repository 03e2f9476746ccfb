//! Weighted sums of values, as attention's last step does them: `y[b, h, t] = Σ_j p[b, h, t, j] · v[b, h / group, j]`.
//!
//! For weights that are at hand as a tensor; [`crate::attention`] never makes them one.
//!
//! * Memory: `p` is read once, `v` once for every 64 rows of weights.
//! * Order: keys in groups of 32 by index; in a group, from +0.0, one fma after the other, ascending; then `((0 + g_0) + g_1) + …` over all
//!   groups. Keys whose weight is zero are passed over, whatever their values hold.
//! * before the rounding of the output: `(33 + Tk / 32) · 2^-24 · Σ |p v|`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Definition, Description, Launch, Operand, Operator, Plan, TensorInfo,
    attention::{View, four, is_pair},
    description::describe,
    gradient::Gradient,
    launch::product_operations,
    matmul::{MatMul, dtype_code},
    metal::{self, metal_file, params},
    signature::{misshapen, mistyped, operands},
};

/// Weighted sums of values.
///
/// Inputs: `p [B, Hq, Tq, Tk]` and `v [B, Hkv, Tk, Dv]`, of one float type or `p` f32 beside another; `Hq` is a multiple of `Hkv`. Both may have
/// any strides along which the last axis is contiguous. Output: `[B, Hq, Tq, Dv]` of `p`'s type.
#[derive(Clone, Copy, Debug, Default)]
pub struct WeightedSum;

params! {
    /// What the kernel gets besides its buffers.
    pub struct Params {
        /// Weights.
        pub p: View,
        /// Values.
        pub v: View,
        /// Sequences.
        pub batch: u64,
        /// Heads of weights.
        pub heads: u64,
        /// Heads of values; `heads` is a multiple.
        pub kv_heads: u64,
        /// Queries of each sequence and head.
        pub queries: u64,
        /// Keys of each sequence and head.
        pub keys: u64,
        /// Elements of a value.
        pub width: u64,
        /// Types of `p` and `v`: f32 (0), f16 (1) or bf16 (2).
        pub types: [u32; 2],
    }
}

const FILES: &[MetalFile] = &[metal::TYPES, View::METAL, Params::METAL, metal_file!("weighted_sum/weighted_sum.metal")];

operands! {
    p: read(DType::FLOATS), "[B, Hq, Tq, Tk], weights of each key";
    v: read(DType::FLOATS), "[B, Hkv, Tk, Dv], of p's type or any beside an f32 p";
    -> y: write(like p), "[B, Hq, Tq, Dv], of p's type";
}

impl Operator for WeightedSum {
    fn name(&self) -> &'static str {
        "weighted_sum"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = operands::Inputs::new(inputs)?;
        let params = Self::params(inputs)?;
        let dims = [params.batch, params.heads, params.queries, params.width].map(|n| n as usize);
        Ok(vec![TensorInfo::new(inputs.p.dtype, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let (params, p, v) = (Self::params(inputs)?, inputs.p.dtype, inputs.v.dtype);
        let form = MetalForm::new(FILES, "weighted_sum");
        let launch = Launch::new(KernelKey::new("weighted_sum", &[p, v]), cpu::run, &params, inputs.parameters(outputs)?).with_metal(form);
        let extent = |n: u64| n.min(u64::from(u32::MAX)) as u32;
        // A simdgroup for eight rows and 128 columns, up to four of them side by side.
        let rows = params.queries * (params.heads / params.kv_heads);
        let simdgroups = rows.div_ceil(8).clamp(1, 4);
        let tiles = rows.div_ceil(8 * simdgroups) * params.width.div_ceil(128);
        let empty = outputs.iter().all(|y| y.elements() == 0);
        let grid = if empty { [0; 3] } else { [tiles, params.kv_heads, params.batch].map(extent) };
        let extents = [params.batch * params.heads, params.queries, params.keys, params.width].map(|extent| extent as usize);
        let launch = launch.with_operations(product_operations(&extents));
        Ok(launch.over(Extent(grid), Extent::linear(32 * simdgroups as u32)).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        // The heads that share values are rows of one product.
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            let (p, v, upstream) = (gradient.input(operands::AT.p)?, gradient.input(operands::AT.v)?, gradient.upstream(0)?);
            let product = MatMul { output: Some(DType::F32), ..MatMul::default() };
            let upstream = shared_rows(gradient, upstream, v)?;
            if index == operands::AT.p {
                let found = gradient.apply(MatMul { transpose_b: true, ..product }, &[upstream, v])?;
                return gradient.reshape(found, p.info.shape());
            }
            let p = shared_rows(gradient, p, v)?;
            gradient.apply(MatMul { transpose_a: true, ..product }, &[p, upstream])
        })
    }
}

/// `[B, Hq, T, n]` as `[B, Hkv, Hq / Hkv · T, n]`, with the heads of keys or values `[B, Hkv, …]`.
pub(crate) fn shared_rows(gradient: &mut Gradient, x: Operand, keys: Operand) -> Result<Operand> {
    let ([batch, heads, tokens, n], kv_heads) = (four("x", &x.info)?, keys.info.shape()[1]);
    gradient.reshape(x, &[batch, kv_heads, heads / kv_heads * tokens, n])
}

impl WeightedSum {
    fn params(operands::Inputs { p, v }: operands::Inputs) -> Result<Params> {
        let ([batch, heads, queries, keys], [v_batch, kv_heads, v_keys, width]) = (four("p", &p)?, four("v", &v)?);
        if (batch, keys) != (v_batch, v_keys) || kv_heads == 0 || heads % kv_heads != 0 {
            return Err(misshapen!(p, v; "[B, Hq, Tq, Tk] and [B, Hkv, Tk, Dv] with Hq a multiple of Hkv"));
        }
        if !is_pair(p.dtype, v.dtype) {
            return Err(mistyped!(p, v; "one type, or an f32 p"));
        }
        Ok(Params {
            p: View::new("p", &p, Some(0), 1, 2)?,
            v: View::new("v", &v, Some(0), 1, 2)?,
            batch: batch as u64,
            heads: heads as u64,
            kv_heads: kv_heads as u64,
            queries: queries as u64,
            keys: keys as u64,
            width: width as u64,
            types: [p.dtype, v.dtype].map(dtype_code),
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("weighted_sum", "sums of values weighted by attention's probabilities: p v, with grouped heads", operands, = WeightedSum)];
