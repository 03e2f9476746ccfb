//! What low-rank adapters add to a linear layer whose rows have one each: `y_i = base_i + s_j · (x_i A_jᵀ) B_jᵀ`, with `j` the adapter of row `i`.
//!
//! The matrices of all adapters are stacked, with those of `B` transposed, so that neighbouring columns are neighbours in memory.
//!
//! * Memory: of each row's adapter the matrices once, and 4 bytes for each of the `rows · r` elements of `x Aᵀ`.
//! * Order: that of [`LoraLinear`](crate::lora::LoraLinear) in strict precision; with `base = x Wᵀ + bias` its bits. A row without an adapter keeps those of
//!   `base`. A row's bits depend on the row and its adapter alone, not on the room that the stack has for larger ranks.
//! * Error: that of the two products.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalForm, Parameter, Result};

use crate::{
    Argument, Description, Launch, Operator, Plan, TensorInfo,
    description::describe,
    launch::product_operations,
    matmul::{DOT, LINES, check_extents},
    metal::{self, metal_file, params},
    order,
    signature::{misshapen, operands},
};

const PROJECT: MetalForm = form("lora_rows_project");
const ADD: MetalForm = form("lora_rows");

const fn form(entry: &'static str) -> MetalForm {
    const FILES: &[elinvar_core::MetalFile] =
        &[metal::TYPES, metal::LAUNCHES, order::METAL, order::LANES, LINES, DOT, Params::METAL, metal_file!("lora_rows/lora_rows.metal")];
    MetalForm::new(FILES, entry)
}

/// Adds to each row what its adapter makes of it, always strict.
///
/// Inputs: `base [rows, n]`, `x [rows, k]`, `a [adapters, r, k]`, `b [adapters, r, n]` and `scales [adapters]`, f32; `ranks [adapters]`, i32: of how many rows
/// of `a` and `b` an adapter is, the first; `adapters [rows]`, i32: which one a row has, any other number for none. Output: as `base`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoraRows;

params! {
    /// The layer.
    struct Params {
        /// Rows.
        pub m: u64,
        /// Columns of y.
        pub n: u64,
        /// Elements of a row of x.
        pub k: u64,
        /// The greatest rank that there is room for.
        pub r: u64,
        /// Adapters that there is room for.
        pub count: u64,
    }
}

operands! {
    base: read(&[DType::F32]), "[rows, n]: the layer without adapters";
    x: read(&[DType::F32]), "[rows, k]";
    a: read(&[DType::F32]), "[adapters, r, k]";
    b: read(&[DType::F32]), "[adapters, r, n]";
    scales: read(&[DType::F32]), "[adapters]: the factor of what one adds";
    ranks: read(&[DType::I32]), "[adapters]: how many of the r rows one has; zero, and it adds nothing";
    adapters: read(&[DType::I32]), "[rows]: the adapter of each row; none where there is no adapter of this number, such as -1";
    -> y: write(like base), "as base";
}
use operands::Inputs;

/// Threads of a threadgroup.
const THREADS: usize = 256;

impl Params {
    fn new(&Inputs { base, x, a, b, scales, ranks, adapters }: &Inputs) -> Result<Self> {
        let &[m, n] = &base.shape()[..] else { return Err(misshapen!(base; "[rows, n]")) };
        let k = match &x.shape()[..] {
            &[rows, k] if rows == m => k,
            _ => return Err(misshapen!(x, base; "[{m}, k]")),
        };
        let (count, r) = match &a.shape()[..] {
            &[count, r, width] if width == k => (count, r),
            _ => return Err(misshapen!(a, x; "[adapters, r, {k}]")),
        };
        if **b.shape() != [count, r, n] {
            return Err(misshapen!(b, a, base; "b of [{count}, {r}, {n}]"));
        }
        if **scales.shape() != [count] || **ranks.shape() != [count] {
            return Err(misshapen!(scales, ranks, a; "scales and ranks of [{count}]"));
        }
        if **adapters.shape() != [m] {
            return Err(misshapen!(adapters, base; "[{m}]"));
        }
        Ok(Self { m: m as u64, n: n as u64, k: k as u64, r: r as u64, count: count as u64 })
    }
}

impl Operator for LoraRows {
    fn name(&self) -> &'static str {
        "lora_rows"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = Inputs::new(inputs)?;
        Params::new(&inputs)?;
        Ok(vec![TensorInfo::of(DType::F32, *inputs.base.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(inputs)?;
        let (params, buffers) = (Params::new(&inputs)?, inputs.parameters(outputs)?);
        let [m, n, k, r] = [params.m, params.n, params.k, params.r].map(|extent| extent as usize);
        check_extents([m, n, k], device)?;
        if device.simd_width <= 1 {
            let launch = Launch::new(KernelKey::new("lora_rows", &[DType::F32]), cpu::run, &params, buffers);
            return Ok(launch.over(Extent::linear(u32::from(m * n > 0)), Extent::linear(1)).into());
        }
        let groups = |count: usize| u32::try_from(count).map_err(|_| Error::unsupported(format!("{m} rows of {n} columns: too many for one launch")));
        let projected = |of: fn(&'static str, DType) -> Parameter| (of("projected", DType::F32), Argument::Scratch(0));
        let [base, x, a, b, scales, ranks, adapters, y] = buffers;
        let inputs = [x, a, ranks.clone(), adapters.clone(), projected(Parameter::update)];
        let project = Launch::on_gpu(KernelKey::new("lora_rows_project", &[DType::F32]), PROJECT, &params, inputs);
        let project = project.with_operations(product_operations(&[m, r, k]));
        let project = project.over(Extent::linear(groups(m * r.div_ceil(THREADS / 32))?), Extent::linear(THREADS as u32));
        let add = Launch::on_gpu(
            KernelKey::new("lora_rows", &[DType::F32]),
            ADD,
            &params,
            [base, projected(Parameter::read), b, scales, ranks, adapters, y],
        );
        let add = add.with_operations(product_operations(&[m, n, r]));
        let add = add.over(Extent::linear(groups(m * n.div_ceil(THREADS))?), Extent::linear(THREADS as u32));
        Ok(Plan { launches: vec![project, add], scratch: vec![4 * m * r] })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("lora_rows", "what each row's own low-rank adapter adds to a linear layer: base + scale (x A^T) B^T", operands, = LoraRows)];
