//! A linear layer with a low-rank adapter: `y = x Wᵀ + s · (x Aᵀ) Bᵀ (+ bias)`, without ever forming `W + s · B A`.
//!
//! Each of the three products is one of [`crate::matmul`]; `t = x Aᵀ` and `d = s · t Bᵀ` stay in f32, and
//! `y = round((x Wᵀ + bias) + d)`.
//!
//! * Memory: as the plain linear layer, which reads `W`, plus the adapter (`r (k + n)` weights for rank `r`) and 4 bytes for each of the
//!   `m (r + n)` intermediate sums (`m r` on a GPU, where one launch makes `t` and another the rest; none for one row of a small rank, nor where
//!   the vendor's library has the long product).
//! * Order, strict: each sum is the strict dot product; a row's bits do not depend on the batch.
//! * Fast, on a CUDA device with cuBLASLt: `y = round(x Wᵀ + round(bias + d))`, where an f32 `x` or `W` beside a narrower one is rounded to its type
//!   for the long product; of more than 512 rows of 16 bits `A`, `B` and `t` are rounded to their type.
//! * The gradient, fast, of a 16-bit `x`: its products take operands of that type.
//! * Error, strict, before the rounding of the output: that of the two long sums, with `|t|` in place of the second's operand.
//! * See Hu et al., *LoRA: Low-Rank Adaptation of Large Language Models*, 2021; `s` is their `α / r`.

mod cpu;
mod gradient;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, Precision, TensorInfo,
    attributes::attributes,
    binary::{Binary, BinaryOp},
    cast::Cast,
    description::describe,
    dot,
    launch::product_operations,
    matmul::{
        ABSENT, Addend, DOT, FAST, Geometry, LINES, MatMul, MatMulAdd, Operands, PLACE, Product, STRICT, Sums, Tiling, check_extents, dtype_code,
    },
    metal::{self, metal_file, params},
    order,
    signature::{misshapen, operands},
};

const FRAME: MetalFile = metal_file!("lora/frame.metal");
const FEW_FORM: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        order::METAL,
        order::LANES,
        LINES,
        DOT,
        dot::PAIRS,
        dot::INTEGERS,
        dot::TILE,
        Params::METAL,
        PLACE,
        FRAME,
        metal_file!("lora/lora.metal"),
    ],
    "lora",
);
const FUSED_FORM: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        metal::LAUNCHES,
        order::METAL,
        order::LANES,
        LINES,
        DOT,
        dot::PAIRS,
        dot::INTEGERS,
        dot::TILE,
        Params::METAL,
        PLACE,
        FRAME,
        metal_file!("lora/fused.metal"),
    ],
    "lora_fused",
);
const TILED_FORM: MetalForm = MetalForm::new(
    &[metal::TYPES, order::METAL, order::LANES, LINES, STRICT, Params::METAL, PLACE, FRAME, metal_file!("lora/tiled.metal")],
    "lora_tiled",
);
const FIXED_FORM: MetalForm = MetalForm::new(
    &[metal::TYPES, LINES, dot::PAIRS, dot::INTEGERS, dot::BLOCKS, Params::METAL, PLACE, FRAME, metal_file!("lora/fixed.metal")],
    "lora_fixed",
);
const ADAPTER_FORM: MetalForm = MetalForm::new(
    &[metal::TYPES, order::METAL, order::LANES, LINES, DOT, Params::METAL, PLACE, FRAME, metal_file!("lora/adapter.metal")],
    "lora_adapter",
);
const FAST_FORM: MetalForm = MetalForm::new(&[metal::TYPES, LINES, FAST, Params::METAL, PLACE, FRAME, metal_file!("lora/fast.metal")], "lora_fast");

attributes! {
    /// A linear layer with a low-rank adapter. Inputs `x […, k]`, `weight [n, k]`, `a [r, k]`, `b [n, r]` and, optionally, `bias [n]`; output
    /// `[…, n]` of the type of `x`. The other inputs may have other types.
    #[derive(Clone, Copy, Debug)]
    pub struct LoraLinear {
        /// Scales the adapter.
        pub scale: f32 = 1,
        /// How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order).
        pub precision: Precision = strict,
    }
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

operands! {
    x: read(DType::FLOATS), "[..., k]";
    weight: read(DType::FLOATS), "[n, k]";
    a: read(DType::FLOATS), "[r, k]";
    b: read(DType::FLOATS), "[n, r]";
    bias: read(DType::FLOATS) optional, "[n]; none where absent";
    -> y: write(like x), "[..., n], of the type of x";
}
use operands::{AT, Inputs};

/// The operands as parameters of launches, in the order declared.
type Buffers = [(Parameter, Argument); 6];

/// `[m, n, k, r]` of a call.
fn extents(Inputs { x, weight, a, b, bias }: Inputs) -> Result<[usize; 4]> {
    let Some((&k, rows)) = x.shape().split_last() else { return Err(misshapen!(x; "at least one axis")) };
    let (n, r) = match (&weight.shape()[..], &a.shape()[..]) {
        (&[n, width], _) if width != k => return Err(misshapen!(weight, x; "[{n}, {k}]")),
        (_, &[r, width]) if width != k => return Err(misshapen!(a, x; "[{r}, {k}]")),
        (&[n, _], &[r, _]) => (n, r),
        (&[_, _], _) => return Err(misshapen!(a, x; "[r, {k}]")),
        _ => return Err(misshapen!(weight, x; "[n, {k}]")),
    };
    if **b.shape() != [n, r] {
        return Err(misshapen!(b, weight, a; "b of [{n}, {r}]"));
    }
    match bias {
        Some(bias) if **bias.shape() != [n] => Err(misshapen!(bias, weight; "[{n}]")),
        _ => Ok([rows.iter().product(), n, k, r]),
    }
}

impl Operator for LoraLinear {
    fn name(&self) -> &'static str {
        "lora_linear"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = Inputs::new(inputs)?;
        let ([_, n, ..], x) = (extents(inputs)?, inputs.x);
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

    fn plan(&self, operands: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(operands)?;
        let ([m, n, k, r], buffers) = (extents(inputs)?, inputs.parameters(outputs)?);
        let mut codes = types(&buffers).map(dtype_code);
        codes[AT.y] = 0;
        if inputs.bias.is_none() {
            codes[AT.bias] = ABSENT;
        }
        let strict = u32::from(!self.precision.is_fast());
        let params = Params { m: m as u64, n: n as u64, k: k as u64, r: r as u64, scale: self.scale, strict, dtypes: codes };
        if device.simd_width > 1 { self.for_gpu((operands, inputs), &params, buffers, device) } else { Ok(for_cpu(&params, buffers)) }
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        let Inputs { x, .. } = Inputs::new(inputs)?;
        let is_of_adapter = |index: usize| !wanted[index] || [AT.x, AT.a, AT.b].contains(&index);
        if self.precision.is_fast() && x.dtype.size() == 2 && (0..wanted.len()).all(is_of_adapter) {
            return gradient::of_adapter(self, inputs, upstream, wanted);
        }
        // That of three products and a sum: the adapter's small one is computed again.
        self.apart(inputs)?.gradient(self, upstream, wanted)
    }
}

fn types(buffers: &Buffers) -> [DType; 6] {
    buffers.each_ref().map(|(parameter, _)| parameter.dtype)
}

/// The whole layer in one launch.
fn for_cpu(params: &Params, buffers: Buffers) -> Plan {
    let [m, n, r] = [params.m, params.n, params.r].map(|extent| extent as usize);
    let key = KernelKey::new("lora_linear", &types(&buffers)[..AT.y]);
    let [x, weight, a, b, bias, y] = buffers;
    let temporary = |name, index| (Parameter::write(name, DType::F32), Argument::Scratch(index));
    let buffers = [x, weight, a, b, bias, temporary("projected", 0), temporary("delta", 1), y];
    let launch = Launch::new(key, cpu::run, params, buffers);
    Plan { launches: vec![launch.over(Extent::linear(u32::from(m * n > 0)), Extent::linear(1))], scratch: vec![4 * m * r, 4 * m * n] }
}

/// Columns that a threadgroup of the fused kernel makes, each by a simdgroup.
const FUSED_COLUMNS: usize = 8;

/// Rank up to which every threadgroup of the fused kernel makes `t = x Aᵀ` for itself, beside as many columns: that costs less than a launch.
const FUSED_RANK: usize = 2 * FUSED_COLUMNS;

/// The layer of one row in one launch.
fn fused(params: &Params, mut buffers: Buffers) -> Launch {
    let (n, r) = (params.n as usize, params.r as usize);
    let [x, weight, _, b, bias, _] = types(&buffers);
    [AT.weight, AT.a].into_iter().for_each(|index| buffers[index].0.prefetched = true);
    let launch = Launch::on_gpu(KernelKey::new("lora_fused", &[x, weight, b, bias]).with("fixed", params.strict), FUSED_FORM, params, buffers);
    let threadgroups = Extent::linear(n.div_ceil(FUSED_COLUMNS) as u32);
    let launch = launch.with_operations(product_operations(&[n + r, params.k as usize]).saturating_add(product_operations(&[n, r])));
    launch.over(threadgroups, Extent::linear(32 * FUSED_COLUMNS as u32)).with_threadgroup_memory(4 * r)
}

/// Rank up to which [`adapter`] is used: beyond it, every threadgroup reads too much of `b`.
const ADAPTER_RANK: usize = 256;

/// Rows up to which [`adapter`] takes less than the launches of the library.
const FEW_ROWS: u64 = 512;

/// Simdgroups of [`adapter`]'s threadgroups.
const ADAPTER_SIMDGROUPS: u32 = 8;

/// `y = round(bias + d)`, for the long product to be added to.
fn adapter(params: &Params, buffers: Buffers) -> Result<Launch> {
    let (m, r) = (params.m as usize, params.r as usize);
    // As many threadgroups as a large GPU has places for, before they share rows.
    let rows = if m <= 512 { 1 } else { 4 };
    let [x, _, a, b, bias, _] = types(&buffers);
    let key = KernelKey::new("lora_adapter", &[x, a, b, bias]).with("rows", rows as u32);
    let threadgroups = u32::try_from(m.div_ceil(rows)).map_err(|_| Error::unsupported(format!("{m} rows: too many for one launch")))?;
    let operations = product_operations(&[m, r, (params.k + params.n) as usize]);
    let [x, _, a, b, bias, y] = buffers;
    let launch = Launch::on_gpu(key, ADAPTER_FORM, params, [x, a, b, bias, y]).with_operations(operations);
    Ok(launch.over(Extent::linear(threadgroups), Extent::linear(32 * ADAPTER_SIMDGROUPS)).with_threadgroup_memory(4 * rows * r))
}

impl LoraLinear {
    /// Three products and a sum, each rounded to the type of `x`.
    fn apart(&self, inputs: &[Option<TensorInfo>]) -> Result<Definition> {
        let mut apart = Definition::new(inputs);
        let linear = MatMul { transpose_b: true, precision: self.precision, ..MatMul::default() };
        let output = Some(Inputs::new(inputs)?.x.dtype);
        // Fast products would round f32 to the type of x.
        let between = if self.precision.is_fast() { output } else { Some(DType::F32) };
        let projected = apart.apply_one(MatMul { output: between, ..linear }, &[apart.input(AT.x), apart.input(AT.a)])?;
        let adapted = apart.apply_one(MatMul { alpha: self.scale, output, ..linear }, &[Some(projected), apart.input(AT.b)])?;
        let base = apart.apply_one(linear, &[apart.input(AT.x), apart.input(AT.weight), apart.input(AT.bias)])?;
        apart.outputs = apart.apply(Binary { op: BinaryOp::Add }, &[Some(base), Some(adapted)])?;
        Ok(apart)
    }

    /// The adapter by itself, and the long product of the vendor's library added to it.
    fn by_library(&self, rows: TensorInfo, inputs: Inputs, params: &Params, buffers: &Buffers, device: &DeviceProperties) -> Result<Option<Plan>> {
        if !(1..=ADAPTER_RANK as u64).contains(&params.r) {
            return Ok(None);
        }
        let weight = inputs.weight;
        let geometry = |[rows, weight]: [TensorInfo; 2]| Ok(Geometry::new(rows, weight, [false, true])?.0.with_precision(self.precision));
        let long = Operands { inputs: [rows, weight], bias: None, output: rows.dtype, addend: Addend::Output, geometry: geometry([rows, weight])? };
        let Some(mut plan) = long.plan(device, geometry)? else { return Ok(None) };
        if params.m > FEW_ROWS && params.dtypes[AT.bias] == ABSENT {
            return self.products(rows, inputs)?.plan(device).map(Some);
        }
        plan.launches.insert(0, adapter(params, buffers.clone())?);
        Ok(Some(plan))
    }

    /// The adapter by the vendor's library too: of many rows, which it multiplies at the speed of memory.
    fn products(&self, rows: TensorInfo, Inputs { weight, a, b, .. }: Inputs) -> Result<Definition> {
        let mut products = Definition::new(&[Some(rows), Some(weight), Some(a), Some(b)]);
        let linear = MatMul { transpose_b: true, precision: self.precision, ..MatMul::default() };
        let narrow = |products: &mut Definition, index: usize| {
            let matrix = products.input(index);
            if matrix.is_some_and(|matrix| matrix.info.dtype == rows.dtype) {
                Ok(matrix)
            } else {
                products.apply_one(Cast { to: rows.dtype }, &[matrix]).map(Some)
            }
        };
        let (a, b) = (narrow(&mut products, AT.a)?, narrow(&mut products, AT.b)?);
        let projected = products.apply_one(linear, &[products.input(AT.x), a])?;
        let low = products.apply_one(MatMul { alpha: self.scale, ..linear }, &[Some(projected), b])?;
        let sum = MatMulAdd { transpose_a: false, transpose_b: true, alpha: 1.0, precision: self.precision, output: None };
        products.outputs = products.apply(sum, &[products.input(AT.x), products.input(AT.weight), Some(low)])?;
        Ok(products)
    }

    /// `t = x Aᵀ`, then the rest in one pass over the weight.
    fn for_gpu(
        &self,
        (operands, inputs): (&[Option<TensorInfo>], Inputs),
        params: &Params,
        buffers: Buffers,
        device: &DeviceProperties,
    ) -> Result<Plan> {
        let [m, n, k, r] = [params.m, params.n, params.k, params.r].map(|extent| extent as usize);
        check_extents([m, n, k], device)?;
        if m == 1 && n > 0 && (1..=FUSED_RANK).contains(&r) && inputs.weight.dtype == inputs.a.dtype {
            return Ok(fused(params, buffers).into());
        }
        let [x, weight, _, b, bias, _] = types(&buffers);
        let rows = TensorInfo::new(x, &[m, k])?;
        let sums = Sums::of(params.strict != 0, [x, weight]);
        let tiling = Tiling::new([m, n], true, sums);
        if matches!(tiling, Tiling::Tiled { .. }) && Sums::of(params.strict != 0, [DType::F32, inputs.b.dtype]) == Sums::Fixed {
            // x is f32: so nothing is rounded between.
            return self.apart(operands)?.plan(device);
        }
        if tiling == Tiling::Fast
            && let Some(plan) = self.by_library(rows, inputs, params, &buffers, device)?
        {
            return Ok(plan);
        }
        // Fast sums take the scaled projection as they come.
        let scale = if tiling == Tiling::Fast { self.scale } else { 1.0 };
        let (geometry, _) = Geometry::new(rows, inputs.a, [false, true])?;
        let projection = Product { geometry: geometry.scaled(scale).with_precision(self.precision), bias: None, output: DType::F32 };
        let arguments = [Argument::Input(AT.x), Argument::Input(AT.a), Argument::Absent, Argument::Scratch(0)];
        let projection = projection.launch("matmul", arguments, device)?;
        let mut buffers = buffers;
        if tiling == Tiling::Fixed {
            let (geometry, _) = Geometry::new(TensorInfo::new(DType::F32, &[m, r])?, inputs.b, [false, true])?;
            let adapted = Product { geometry: geometry.scaled(self.scale), bias: None, output: DType::F32 };
            let arguments = [Argument::Scratch(0), Argument::Input(AT.b), Argument::Absent, Argument::Scratch(1)];
            let adapted = adapted.launch("matmul", arguments, device)?;
            let [x_buffer, weight_buffer, _, _, bias_buffer, y] = buffers;
            let delta = (Parameter::read("delta", DType::F32), Argument::Scratch(1));
            let launch = Launch::on_gpu(
                KernelKey::new("lora_fixed", &[x, weight, bias]),
                FIXED_FORM,
                params,
                [x_buffer, weight_buffer, delta, bias_buffer, y],
            );
            let layer = tiling.over(launch.with_operations(product_operations(&[m, n, k])), [1, m, n], &[])?;
            return Ok(Plan { launches: vec![projection, adapted, layer], scratch: vec![4 * m * r, 4 * m * n] });
        }
        // The projection stands for the weight that made it.
        buffers[AT.a] = (Parameter::read("projected", DType::F32), Argument::Scratch(0));
        let fixed = if params.strict != 0 { Sums::Fixed } else { Sums::Fast };
        let key = tiling.key(KernelKey::new("lora_linear", &[x, weight, b, bias]), fixed);
        let form = match tiling {
            Tiling::Fast => FAST_FORM,
            Tiling::Fixed => FIXED_FORM,
            Tiling::Tiled { .. } => TILED_FORM,
            Tiling::Along { .. } | Tiling::Across { .. } => FEW_FORM,
        };
        let layer = Launch::on_gpu(key, form, params, buffers).with_operations(product_operations(&[m, n, k + r]));
        let layer = tiling.over(layer, [1, m, n], &[[DType::F32, b], [x, weight]])?;
        Ok(Plan { launches: vec![projection, layer], scratch: vec![4 * m * r] })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("lora_linear", "linear layer with a low-rank adapter: x W^T + scale (x A^T) B^T + bias", operands, LoraLinear)];
