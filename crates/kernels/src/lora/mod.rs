//! A linear layer with a low-rank adapter: `y = x Wᵀ + s · (x Aᵀ) Bᵀ (+ bias)`, without ever forming `W + s · B A`.
//!
//! Each of the three products is one of [`crate::matmul`]; `t = x Aᵀ` and `d = s · t Bᵀ` stay in f32, and
//! `y = round((x Wᵀ + bias) + d)`.
//!
//! * Memory: as the plain linear layer, which reads `W`, plus the adapter (`r (k + n)` weights for rank `r`) and 4 bytes for each of the
//!   `m (r + n)` intermediate sums (`m r` on a GPU, where one launch makes `t` and another the rest; none for one row of a small rank, nor where
//!   the vendor's library has the long product).
//! * Order, strict: each sum is the strict dot product; a row's bits do not depend on the batch.
//! * Fast, on a CUDA device with cuBLASLt: `y = round(x Wᵀ + round(bias + d))`, with an f32 `x` rounded to a narrower `W`'s type for the long product.
//! * Error, strict, before the rounding of the output: that of the two long sums, with `|t|` in place of the second's operand.
//! * See Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021; `s` is their `α / r`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, AttributeInfo, AttributeKind, Description, Launch, Operator, Plan, Port, Precision, TensorInfo,
    matmul::{ABSENT, DOT, FAST, Geometry, LINES, Operands, PLACE, PRECISION, Product, STRICT, Tiling, check_extents, dtype_code},
    metal::{self, metal_file, params},
    operator::product_operations,
    optional, order, required,
};

const FRAME: MetalFile = metal_file!("lora/frame.metal");
const FEW_FORM: MetalForm =
    MetalForm::new(&[metal::TYPES, order::METAL, order::LANES, LINES, DOT, Params::METAL, PLACE, FRAME, metal_file!("lora/lora.metal")], "lora");
const FUSED_FORM: MetalForm = MetalForm::new(
    &[metal::TYPES, metal::LAUNCHES, order::METAL, order::LANES, LINES, DOT, Params::METAL, PLACE, FRAME, metal_file!("lora/fused.metal")],
    "lora_fused",
);
const TILED_FORM: MetalForm = MetalForm::new(
    &[metal::TYPES, order::METAL, order::LANES, LINES, STRICT, Params::METAL, PLACE, FRAME, metal_file!("lora/tiled.metal")],
    "lora_tiled",
);
const ADAPTER_FORM: MetalForm = MetalForm::new(
    &[metal::TYPES, order::METAL, order::LANES, LINES, DOT, Params::METAL, PLACE, FRAME, metal_file!("lora/adapter.metal")],
    "lora_adapter",
);
const FAST_FORM: MetalForm = MetalForm::new(&[metal::TYPES, LINES, FAST, Params::METAL, PLACE, FRAME, metal_file!("lora/fast.metal")], "lora_fast");

/// A linear layer with a low-rank adapter. Inputs `x […, k]`, `weight [n, k]`, `a [r, k]`, `b [n, r]` and, optionally, `bias [n]`; output
/// `[…, n]` of the type of `x`. The other inputs may have other types.
#[derive(Clone, Copy, Debug)]
pub struct LoraLinear {
    /// Scales the adapter.
    pub scale: f32,
    /// How sums may be ordered.
    pub precision: Precision,
}

params! {
    /// The layer.
    struct Params {
        /// Rows of x and y.
        pub m: u64,
        /// Columns of y.
        pub n: u64,
        /// Elements of a row of x.
        pub k: u64,
        /// The adapter's rank.
        pub r: u64,
        /// Scales the adapter.
        pub scale: f32,
        /// Whether sums have the canonical order.
        pub strict: u32,
        /// Of `x`, `weight`, `a`, `b`, `bias` ([`ABSENT`] for none) and nothing.
        pub dtypes: [u32; 6],
    }
}

const NAMES: [&str; 5] = ["x", "weight", "a", "b", "bias"];

/// `[m, n, k, r]` of a call.
fn extents(inputs: &[Option<TensorInfo>]) -> Result<[usize; 4]> {
    let (x, weight) = (required(inputs, 0, "x")?, required(inputs, 1, "weight")?);
    let (a, b) = (required(inputs, 2, "a")?, required(inputs, 3, "b")?);
    let refuse = |info: TensorInfo, name: &str, expected: &str| {
        Err(Error::invalid_argument(format!("{name} has shape {}: {expected} expected", info.shape())))
    };
    let Some((&k, rows)) = x.shape().split_last() else { return refuse(x, "x", "at least one axis") };
    let [n, _] = **weight.shape() else { return refuse(weight, "weight", "[n, k]") };
    let [r, _] = **a.shape() else { return refuse(a, "a", "[r, k]") };
    for (info, name, dims) in [(weight, "weight", [n, k]), (a, "a", [r, k]), (b, "b", [n, r])] {
        if **info.shape() != dims {
            return refuse(info, name, &format!("{dims:?}"));
        }
    }
    match optional(inputs, 4) {
        Some(bias) if **bias.shape() != [n] => refuse(bias, "bias", &format!("[{n}]")),
        _ => Ok([rows.iter().product(), n, k, r]),
    }
}

impl Operator for LoraLinear {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let [_, n, ..] = extents(inputs)?;
        if let Some((name, info)) = NAMES.iter().zip(inputs.iter().flatten()).find(|(_, i)| !i.dtype.is_float()) {
            return Err(Error::invalid_argument(format!("{name} is {}: f32, f16 or bf16 expected", info.dtype)));
        }
        let x = required(inputs, 0, "x")?;
        let mut dims = x.shape().to_vec();
        if let Some(last) = dims.last_mut() {
            *last = n;
        }
        Ok(vec![TensorInfo::new(x.dtype, &dims)?])
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn strict(&self) -> Option<Arc<dyn Operator>> {
        Some(Arc::new(Self { precision: Precision::Strict, ..*self }))
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let [m, n, k, r] = extents(inputs)?;
        let dtypes = [0, 1, 2, 3, 4].map(|i| optional(inputs, i).map_or(DType::F32, |info| info.dtype));
        let mut codes = [0; 6];
        codes.iter_mut().zip(dtypes).for_each(|(code, dtype)| *code = dtype_code(dtype));
        if optional(inputs, 4).is_none() {
            codes[4] = ABSENT;
        }
        let strict = u32::from(self.precision == Precision::Strict);
        let params = Params { m: m as u64, n: n as u64, k: k as u64, r: r as u64, scale: self.scale, strict, dtypes: codes };
        if device.simd_width > 1 { self.for_gpu(inputs, &params, dtypes, device) } else { Ok(for_cpu(&params, dtypes)) }
    }
}

/// The whole layer in one launch.
fn for_cpu(params: &Params, dtypes: [DType; 5]) -> Plan {
    let [m, n, r] = [params.m, params.n, params.r].map(|extent| extent as usize);
    let [x, weight, a, b, bias] = dtypes;
    let buffers = [
        (Parameter::read("x", x), Argument::Input(0)),
        (Parameter::read("weight", weight), Argument::Input(1)),
        (Parameter::read("a", a), Argument::Input(2)),
        (Parameter::read("b", b), Argument::Input(3)),
        (Parameter::read("bias", bias).or_absent(), Argument::Input(4)),
        (Parameter::write("projected", DType::F32), Argument::Scratch(0)),
        (Parameter::write("delta", DType::F32), Argument::Scratch(1)),
        (Parameter::write("y", x), Argument::Output(0)),
    ];
    let launch = Launch::new(KernelKey::new("lora_linear", &dtypes), cpu::run, params, buffers);
    Plan { launches: vec![launch.over(Extent::linear(u32::from(m * n > 0)), Extent::linear(1))], scratch: vec![4 * m * r, 4 * m * n] }
}

/// Columns that a threadgroup of the fused kernel makes, each by a simdgroup.
const FUSED_COLUMNS: usize = 8;

/// Rank up to which every threadgroup of the fused kernel makes `t = x Aᵀ` for itself, beside as many columns: that costs less than a launch.
const FUSED_RANK: usize = 2 * FUSED_COLUMNS;

/// The layer of one row in one launch.
fn fused(params: &Params, [x, weight, _, b, bias]: [DType; 5]) -> Launch {
    let (n, r) = (params.n as usize, params.r as usize);
    let buffers = [
        (Parameter::read("x", x), Argument::Input(0)),
        (Parameter::read("weight", weight).early(), Argument::Input(1)),
        (Parameter::read("a", weight).early(), Argument::Input(2)),
        (Parameter::read("b", b), Argument::Input(3)),
        (Parameter::read("bias", bias).or_absent(), Argument::Input(4)),
        (Parameter::write("y", x), Argument::Output(0)),
    ];
    let launch = Launch::on_gpu(KernelKey::new("lora_fused", &[x, weight, b, bias]), FUSED_FORM, params, buffers);
    let threadgroups = Extent::linear(n.div_ceil(FUSED_COLUMNS) as u32);
    let launch = launch.with_operations(product_operations(&[n + r, params.k as usize]).saturating_add(product_operations(&[n, r])));
    launch.over(threadgroups, Extent::linear(32 * FUSED_COLUMNS as u32)).with_threadgroup_memory(4 * r)
}

/// Rank up to which [`adapter`] is used: beyond it, every threadgroup reads too much of `b`.
const ADAPTER_RANK: usize = 256;

/// Simdgroups of [`adapter`]'s threadgroups.
const ADAPTER_SIMDGROUPS: u32 = 8;

/// `y = round(bias + d)`, for the long product to be added to.
fn adapter(params: &Params, [x, _, a, b, bias]: [DType; 5]) -> Result<Launch> {
    let (m, r) = (params.m as usize, params.r as usize);
    // As many threadgroups as a large GPU has places for, before they share rows.
    let rows = if m <= 512 { 1 } else { 4 };
    let buffers = [
        (Parameter::read("x", x), Argument::Input(0)),
        (Parameter::read("a", a), Argument::Input(2)),
        (Parameter::read("b", b), Argument::Input(3)),
        (Parameter::read("bias", bias).or_absent(), Argument::Input(4)),
        (Parameter::write("y", x), Argument::Output(0)),
    ];
    let key = KernelKey::new("lora_adapter", &[x, a, b, bias]).with("rows", rows as u32);
    let threadgroups = u32::try_from(m.div_ceil(rows)).map_err(|_| Error::unsupported(format!("{m} rows: too many for one launch")))?;
    let operations = product_operations(&[m, r, (params.k + params.n) as usize]);
    let launch = Launch::on_gpu(key, ADAPTER_FORM, params, buffers).with_operations(operations);
    Ok(launch.over(Extent::linear(threadgroups), Extent::linear(32 * ADAPTER_SIMDGROUPS)).with_threadgroup_memory(4 * rows * r))
}

impl LoraLinear {
    /// The adapter by itself, and the long product of the vendor's library added to it.
    fn by_library(
        &self,
        rows: TensorInfo,
        weight: TensorInfo,
        params: &Params,
        dtypes: [DType; 5],
        device: &DeviceProperties,
    ) -> Result<Option<Plan>> {
        if !(1..=ADAPTER_RANK as u64).contains(&params.r) {
            return Ok(None);
        }
        let geometry = |rows| Ok(Geometry::new(rows, weight, [false, true])?.0.with_precision(self.precision));
        let long = Operands { inputs: [rows, weight], bias: None, output: rows.dtype, adds: true, geometry: geometry(rows)? };
        let Some(mut plan) = long.plan(device, geometry)? else { return Ok(None) };
        plan.launches.insert(0, adapter(params, dtypes)?);
        Ok(Some(plan))
    }

    /// `t = x Aᵀ`, then the rest in one pass over the weight.
    fn for_gpu(&self, inputs: &[Option<TensorInfo>], params: &Params, dtypes: [DType; 5], device: &DeviceProperties) -> Result<Plan> {
        let [m, n, k, r] = [params.m, params.n, params.k, params.r].map(|extent| extent as usize);
        check_extents([m, n, k], device)?;
        if m == 1 && n > 0 && (1..=FUSED_RANK).contains(&r) && dtypes[1] == dtypes[2] {
            return Ok(fused(params, dtypes).into());
        }
        let [x, weight, _, b, bias] = dtypes;
        let rows = TensorInfo::new(x, &[m, k])?;
        let tiling = Tiling::new([m, n], true, params.strict != 0);
        if tiling == Tiling::Fast
            && let Some(plan) = self.by_library(rows, required(inputs, 1, "weight")?, params, dtypes, device)?
        {
            return Ok(plan);
        }
        // Fast sums take the scaled projection as they come.
        let scale = if tiling == Tiling::Fast { self.scale } else { 1.0 };
        let (geometry, _) = Geometry::new(rows, required(inputs, 2, "a")?, [false, true])?;
        let projection = Product { geometry: geometry.scaled(scale).with_precision(self.precision), bias: None, output: DType::F32 };
        let arguments = [Argument::Input(0), Argument::Input(2), Argument::Absent, Argument::Scratch(0)];
        let buffers = [
            (Parameter::read("x", x), Argument::Input(0)),
            (Parameter::read("weight", weight), Argument::Input(1)),
            (Parameter::read("projected", DType::F32), Argument::Scratch(0)),
            (Parameter::read("b", b), Argument::Input(3)),
            (Parameter::read("bias", bias).or_absent(), Argument::Input(4)),
            (Parameter::write("y", x), Argument::Output(0)),
        ];
        let key = tiling.key(KernelKey::new("lora_linear", &[x, weight, b, bias]));
        let form = match tiling {
            Tiling::Fast => FAST_FORM,
            Tiling::Tiled { .. } => TILED_FORM,
            Tiling::Along { .. } | Tiling::Across { .. } => FEW_FORM,
        };
        let layer = Launch::on_gpu(key, form, params, buffers).with_operations(product_operations(&[m, n, k + r]));
        let layer = tiling.over(layer, [1, m, n], &[[DType::F32, b], [x, weight]])?;
        Ok(Plan { launches: vec![projection.launch("matmul", arguments, device)?, layer], scratch: vec![4 * m * r] })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[Description {
    name: "lora_linear",
    summary: "linear layer with a low-rank adapter: x W^T + scale (x A^T) B^T + bias",
    inputs: &[
        Port::new("x", DType::FLOATS, "[..., k]"),
        Port::new("weight", DType::FLOATS, "[n, k]"),
        Port::new("a", DType::FLOATS, "[r, k]"),
        Port::new("b", DType::FLOATS, "[n, r]"),
        Port::new("bias", DType::FLOATS, "[n]; none where absent").or_absent(),
    ],
    outputs: &[Port::new("y", DType::FLOATS, "[..., n], of the type of x")],
    attributes: &[AttributeInfo { name: "scale", kind: AttributeKind::Float, default: Some("1"), doc: "scales the adapter: alpha / r" }, PRECISION],
    build: |a| Ok(Box::new(LoraLinear { scale: a.get("scale")?, precision: a.get("precision")? })),
}];
