//! What low-rank adapters add to linear layers whose rows have one each: `y_i = base_i + s_j · (x_i A_jᵀ) B_jᵀ`, with `j` the adapter of row `i`, for one to
//! three layers of one input.
//!
//! The matrices of all adapters are stacked, with those of `B` transposed, so that neighbouring columns are neighbours in memory.
//!
//! * Memory: of each row's adapter the matrices once, and 4 bytes for each of the `rows · r` elements of `x Aᵀ`.
//! * Order: that of [`LoraLinear`](crate::lora::LoraLinear) in strict precision; with `base = x Wᵀ + bias` its bits. A row without an adapter keeps those of
//!   `base`. A row's bits depend on the row and its adapter alone, not on the room that the stack has for larger ranks, nor on the other layers.
//! * Error: that of the two products.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalForm, Parameter, Result};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    description::describe,
    launch::product_operations,
    matmul::check_extents,
    metal::{self, metal_file, params},
    order,
    signature::{mismatch, misshapen, operands, shape_of},
};

const PROJECT: MetalForm = form("lora_rows_project");
const ADD: MetalForm = form("lora_rows");

const fn form(entry: &'static str) -> MetalForm {
    const FILES: &[elinvar_core::MetalFile] = &[metal::TYPES, metal::LAUNCHES, order::METAL, Params::METAL, metal_file!("lora_rows/lora_rows.metal")];
    MetalForm::new(FILES, entry)
}

/// Adds to each row what its adapter makes of it, always strict.
///
/// Inputs: `x [rows, k]`, f32; `adapters [rows]`, i32: which adapter a row has, any other number for none; then for each of one to three layers
/// `base [rows, n]`, `a [adapters, r, k]`, `b [adapters, r, n]` and `scales [adapters]`, f32, and `ranks [adapters]`, i32: of how many rows of `a` and `b` an
/// adapter is, the first. Outputs: as each `base`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoraRows;

/// Layers that one takes at most.
pub const LAYERS: usize = 3;

params! {
    /// The layers.
    struct Params {
        /// Rows.
        pub m: u64,
        /// Elements of a row of x.
        pub k: u64,
        /// Columns of each layer; zero where it is absent.
        pub n: [u64; 3],
        /// The greatest rank that each layer has room for.
        pub r: [u64; 3],
        /// Adapters that each layer has room for.
        pub count: [u64; 3],
    }
}

operands! {
    x: read(&[DType::F32]), "[rows, k]";
    adapters: read(&[DType::I32]), "[rows]: the adapter of each row; none where there is no adapter of this number, such as -1";
    base0: read(&[DType::F32]), "[rows, n0]: the layer without adapters";
    a0: read(&[DType::F32]), "[adapters, r0, k]";
    b0: read(&[DType::F32]), "[adapters, r0, n0]";
    scales0: read(&[DType::F32]), "[adapters]: the factor of what one adds";
    ranks0: read(&[DType::I32]), "[adapters]: how many of the r0 rows one has; zero, and it adds nothing";
    base1: read(&[DType::F32]) optional, "[rows, n1]: a second layer, whose other operands are beside it";
    a1: read(&[DType::F32]) optional, "[adapters, r1, k]";
    b1: read(&[DType::F32]) optional, "[adapters, r1, n1]";
    scales1: read(&[DType::F32]) optional, "[adapters]";
    ranks1: read(&[DType::I32]) optional, "[adapters]";
    base2: read(&[DType::F32]) optional, "[rows, n2]: a third layer, after a second";
    a2: read(&[DType::F32]) optional, "[adapters, r2, k]";
    b2: read(&[DType::F32]) optional, "[adapters, r2, n2]";
    scales2: read(&[DType::F32]) optional, "[adapters]";
    ranks2: read(&[DType::I32]) optional, "[adapters]";
    -> y0: write(&[DType::F32]), "as base0";
    y1: write(&[DType::F32]) optional, "as base1";
    y2: write(&[DType::F32]) optional, "as base2";
}
use operands::{AT, Inputs};

/// Operands of a layer: where its first is, those of the next follow.
const OF_LAYER: usize = AT.base1 - AT.base0;

/// Threads of a threadgroup.
const THREADS: usize = 256;
/// Elements of a row that one lane of the canonical order has before the next lane's begin.
const SLOTS: usize = 8;

impl Inputs {
    /// The operands of each layer, as declared for the first.
    fn layers(&self) -> Result<Vec<[TensorInfo; OF_LAYER]>> {
        let all = [
            [Some(self.base0), Some(self.a0), Some(self.b0), Some(self.scales0), Some(self.ranks0)],
            [self.base1, self.a1, self.b1, self.scales1, self.ranks1],
            [self.base2, self.a2, self.b2, self.scales2, self.ranks2],
        ];
        let count = all.iter().rposition(|layer| layer.iter().any(Option::is_some)).map_or(0, |last| last + 1);
        let complete = |(index, layer): (usize, &[Option<TensorInfo>; OF_LAYER])| {
            let missing = layer.iter().position(Option::is_none).map(|at| operands::INPUTS[AT.base0 + index * OF_LAYER + at].name);
            let of = |name| Error::invalid_argument(format!("input '{name}' is missing: expected all operands of a layer, and of those before it"));
            missing.map_or_else(|| Ok(layer.map(|info| info.unwrap_or(self.base0))), |name| Err(of(name)))
        };
        all[..count].iter().enumerate().map(complete).collect()
    }
}

impl Params {
    fn new(inputs: &Inputs) -> Result<Self> {
        let Inputs { x, adapters, .. } = *inputs;
        let &[m, k] = &x.shape()[..] else { return Err(misshapen!(x; "[rows, k]")) };
        if **adapters.shape() != [m] {
            return Err(misshapen!(adapters, x; "[{m}]"));
        }
        let mut params = Self { m: m as u64, k: k as u64, n: [0; LAYERS], r: [0; LAYERS], count: [0; LAYERS] };
        for (index, infos) in inputs.layers()?.iter().enumerate() {
            let [base, a, b, scales, ranks] = infos;
            let found = |at: usize| shape_of(operands::INPUTS[AT.base0 + index * OF_LAYER + at].name, &infos[at]);
            let n = match &base.shape()[..] {
                &[rows, n] if rows == m => n,
                _ => return Err(mismatch(&[found(0), shape_of("x", &x)], format_args!("[{m}, n]"))),
            };
            let (count, r) = match &a.shape()[..] {
                &[count, r, width] if width == k => (count, r),
                _ => return Err(mismatch(&[found(1), shape_of("x", &x)], format_args!("[adapters, r, {k}]"))),
            };
            if **b.shape() != [count, r, n] {
                return Err(mismatch(&[found(2), found(1), found(0)], format_args!("b of [{count}, {r}, {n}]")));
            }
            if **scales.shape() != [count] || **ranks.shape() != [count] {
                return Err(mismatch(&[found(3), found(4), found(1)], format_args!("scales and ranks of [{count}]")));
            }
            (params.n[index], params.r[index], params.count[index]) = (n as u64, r as u64, count as u64);
        }
        Ok(params)
    }

    /// Rows of all layers' `a` together.
    fn ranks(&self) -> usize {
        self.r.iter().sum::<u64>() as usize
    }
}

impl Operator for LoraRows {
    fn name(&self) -> &'static str {
        "lora_rows"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = Inputs::new(inputs)?;
        Params::new(&inputs)?;
        Ok(inputs.layers()?.iter().map(|[base, ..]| TensorInfo::of(DType::F32, *base.shape())).collect())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = Inputs::new(inputs)?;
        let (params, buffers) = (Params::new(&inputs)?, inputs.parameters(outputs)?);
        let [m, k, columns] = [params.m, params.k, params.n.iter().sum()].map(|extent| extent as usize);
        check_extents([m, columns, k], device)?;
        if device.simd_width <= 1 {
            let launch = Launch::new(KernelKey::new("lora_rows", &[DType::F32]), cpu::run, &params, buffers);
            return Ok(launch.over(Extent::linear(u32::from(m * columns > 0)), Extent::linear(1)).into());
        }
        let groups =
            |count: usize| u32::try_from(count).map_err(|_| Error::unsupported(format!("{m} rows of {columns} columns: too many for one launch")));
        let projected = |of: fn(&'static str, DType) -> Parameter| (of("projected", DType::F32), Argument::Scratch(0));
        let of_layers = |at: usize| [0, 1, 2].map(|index| buffers[at + index * OF_LAYER].clone());
        let operands = [vec![buffers[AT.x].clone()], of_layers(AT.a0).into(), of_layers(AT.ranks0).into(), vec![buffers[AT.adapters].clone()]];
        let operands = operands.into_iter().flatten().chain([projected(Parameter::update)]);
        let project = Launch::on_gpu(KernelKey::new("lora_rows_project", &[DType::F32]), PROJECT, &params, operands);
        let project = project.with_operations(product_operations(&[m, params.ranks(), k])).with_threadgroup_memory(order::PARTIALS);
        let project = project.over(Extent::linear(groups(m * params.ranks())?), Extent::linear(THREADS as u32));
        // Lanes of the canonical order that have elements.
        let rank = params.r.iter().max().copied().unwrap_or(0) as usize;
        let key = KernelKey::new("lora_rows", &[DType::F32]).with("lanes", rank.div_ceil(SLOTS).next_power_of_two().min(32) as u32);
        let operands = [of_layers(AT.base0), of_layers(AT.b0), of_layers(AT.scales0), of_layers(AT.ranks0)].into_iter().flatten();
        let results = [AT.y0, AT.y1, AT.y2].map(|at| buffers[at].clone());
        let operands = operands.chain([buffers[AT.adapters].clone(), projected(Parameter::read)]).chain(results);
        let add = Launch::on_gpu(key, ADD, &params, operands);
        let operations = (0..LAYERS).map(|layer| product_operations(&[m, params.n[layer] as usize, params.r[layer] as usize])).sum();
        let tiles = params.n.iter().map(|&n| (n as usize).div_ceil(THREADS)).sum::<usize>();
        let add = add.with_operations(operations).over(Extent::linear(groups(m * tiles)?), Extent::linear(THREADS as u32));
        Ok(Plan { launches: vec![project, add], scratch: vec![4 * m * params.ranks()] })
    }

    fn stands_for(&self, inputs: &[Option<TensorInfo>]) -> Result<Option<Definition>> {
        let found = Inputs::new(inputs)?;
        let count = found.layers()?.len();
        if count == 1 {
            return Ok(None);
        }
        let mut definition = Definition::new(inputs);
        for layer in 0..count {
            let own = (0..OF_LAYER).map(|at| definition.input(AT.base0 + layer * OF_LAYER + at));
            let operands: Vec<_> = [AT.x, AT.adapters].map(|at| definition.input(at)).into_iter().chain(own).collect();
            let result = definition.apply_one(LoraRows, &operands)?;
            definition.outputs.push(result);
        }
        Ok(Some(definition))
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("lora_rows", "what each row's own low-rank adapter adds to linear layers of one input: base + scale (x A^T) B^T", operands, = LoraRows),
];
