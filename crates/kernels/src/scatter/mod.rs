//! Writing by index: a copy of a tensor with single elements or slices replaced or combined with updates.
//!
//! * Indices are i32, i64 or u32; negative ones count from the end of the axis.
//! * An index outside its axis is an error of the submission that names it, and nothing outside the output is written.
//! * Order: updates that meet in one element are applied in ascending order, each result rounded to the tensor's type: the same bits always.
//! * Memory: the tensor is copied once; each update and its index are read once, and what they name is read and written once.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, HostKernel, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Argument, Definition, Description, Launch, Operand as Value, Operator, Plan, Scalar, TensorInfo,
    attributes::attributes,
    binary::BinaryOp,
    cast,
    compare::CompareOp,
    copy,
    description::describe,
    elementwise::{self, Operand, Space, THREADS, dispatch::named, over_groups, storage},
    fill::Arange,
    functions,
    gather::{GatherElements, GatherElementsParams, GatherNd, TUPLES, TupleParams, index},
    gradient::{self, Gradient},
    metal::{self, metal_file, params},
    signature::{mismatch, misshapen, operands, type_of},
};

const ELEMENT_FILES: &[MetalFile] = &[
    metal::TYPES,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    functions::METAL,
    BinaryOp::Add.definition(),
    BinaryOp::Mul.definition(),
    BinaryOp::Min.definition(),
    BinaryOp::Max.definition(),
    index::METAL,
    GatherElementsParams::METAL,
    ScatterElementsParams::METAL,
    metal_file!("scatter/scatter.metal"),
    metal_file!("scatter/elements.metal"),
];
const ELEMENTS: MetalForm = MetalForm::new(ELEMENT_FILES, "scatter_elements").with_error_flag(index::OUTSIDE);
const SLICE_FILES: &[MetalFile] = &[
    metal::TYPES,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    functions::METAL,
    BinaryOp::Add.definition(),
    BinaryOp::Mul.definition(),
    BinaryOp::Min.definition(),
    BinaryOp::Max.definition(),
    index::METAL,
    TupleParams::METAL,
    TUPLES,
    ScatterNdParams::METAL,
    metal_file!("scatter/scatter.metal"),
    metal_file!("scatter/slices.metal"),
];
const SLICES: MetalForm = MetalForm::new(SLICE_FILES, "scatter_nd").with_error_flag(index::OUTSIDE);

named! {
    /// What becomes of an element and its update.
    pub enum Reduction("reduction") {
        /// The update.
        None "none",
        /// Their sum.
        Add "add",
        /// Their product.
        Mul "mul",
        /// The smaller.
        Min "min",
        /// The larger.
        Max "max",
    }
}

attributes! {
    /// `y = x`, but `y[…, indices[…, i, …], …]` combined with `updates[…, i, …]` along an axis. `indices` and `updates` have one shape, of the
    /// rank of `x`, no larger but along the axis.
    #[derive(Clone, Copy, Debug)]
    pub struct ScatterElements {
        /// The axis; negative counts from the end.
        pub axis: isize = 0,
        /// What becomes of an element and its updates, in their order; with none the last update replaces it.
        pub reduction: Reduction = none,
    }
}

attributes! {
    /// `y = x`, but slices combined with updates: `x [d1…dk, S…]`, `indices [I…, k]`, `updates [I…, S…]`.
    #[derive(Clone, Copy, Debug)]
    pub struct ScatterNd {
        /// What becomes of an element and its updates, in their order; with none the last update replaces it.
        pub reduction: Reduction = none,
    }
}

params! {
    /// The parameter block of the scatter of elements.
    pub struct ScatterElementsParams {
        /// Where the elements lie.
        pub places: GatherElementsParams,
        /// Lines: updates that share all coordinates but the axis's.
        pub lines: u64,
        /// Updates of a line.
        pub length: u64,
        /// The step from one to the next.
        pub inner: u64,
        /// Lines that a threadgroup takes.
        pub width: u64,
        /// The [`Reduction`], by its place in [`Reduction::ALL`].
        pub reduction: u64,
    }
}

params! {
    /// The parameter block of the scatter by tuples.
    pub struct ScatterNdParams {
        /// Where the slices lie.
        pub places: TupleParams,
        /// Elements of a slice that a threadgroup takes.
        pub width: u64,
        /// The [`Reduction`], by its place in [`Reduction::ALL`].
        pub reduction: u64,
    }
}

/// Lines of updates that a threadgroup takes, of `lines` in all: enough for whole words of memory.
fn width(lines: u64) -> u64 {
    lines.clamp(1, 32).next_power_of_two()
}

operands! {
    mod elements {
        x: read(DType::ALL), "[…]";
        indices: read(index::TYPES), "of x's rank, no larger than x but along the axis; negative ones count from the end";
        updates: read(like x), "as indices, of x's type";
        -> y: write(like x), "as x";
    }
}

operands! {
    mod slices {
        x: read(DType::ALL), "[d1…dk, S…]";
        indices: read(index::TYPES), "[I…, k]; negative ones count from the end";
        updates: read(like x), "[I…, S…], of x's type";
        -> y: write(like x), "as x";
    }
}

operands! {
    /// What the launch takes that updates the copy.
    mod updating {
        indices: read(&[DType::I64]), "as i64";
        updates: read(DType::ALL), "as given, bits where they replace";
        y: update(like updates), "the copy";
    }
}

impl elements::Inputs {
    fn checked(reduction: Reduction, inputs: &[Option<TensorInfo>]) -> Result<Self> {
        let inputs = Self::new(inputs)?;
        if inputs.x.dtype == DType::Bool && reduction != Reduction::None {
            return Err(mismatch(&[type_of("x", DType::Bool), format!("reduction is {reduction}")], "reduction none"));
        }
        Ok(inputs)
    }

    fn expect_updates(&self, shape: &[usize]) -> Result<Vec<TensorInfo>> {
        let Self { x, indices, updates } = self;
        if updates.shape()[..] != *shape {
            return Err(misshapen!(updates, indices, x; "updates of {shape:?}"));
        }
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    /// The copy, the indices as i64, and the launch that updates the copy, of so many lines of updates.
    fn plan<P: bytemuck::NoUninit>(
        &self,
        reduction: Reduction,
        (metal, kernel): (MetalForm, fn(DType) -> Result<HostKernel>),
        params: &P,
        lines: u64,
    ) -> Result<Plan> {
        let mut plan = Plan::from(copy::launch(self.x.dtype, &self.x.layout, Argument::Input(elements::AT.x), Argument::Output(0)));
        let mut indices = Argument::Input(elements::AT.indices);
        if self.indices.dtype != DType::I64 {
            indices = Argument::Scratch(0);
            plan.scratch.push(DType::I64.size() * self.indices.elements());
            plan.launches.push(cast::launch(&self.indices, DType::I64, Argument::Input(elements::AT.indices), indices)?);
        }
        let dtype = if reduction == Reduction::None { storage(self.x.dtype) } else { self.x.dtype };
        let of = |info: &TensorInfo, dtype| TensorInfo { dtype, ..*info };
        let operands = updating::Inputs { indices: of(&self.indices, DType::I64), updates: of(&self.updates, dtype), y: of(&self.x, dtype) };
        let bound = [indices, Argument::Input(elements::AT.updates), Argument::Output(0)];
        let buffers = operands.parameters(&[])?.into_iter().zip(bound).map(|((parameter, _), to)| (parameter, to));
        let key = KernelKey::new(metal.function, &[dtype]).with("reduction", reduction as u32);
        let groups = if self.updates.elements() > 0 { lines.div_ceil(width(lines)) as usize } else { 0 };
        let launch = over_groups(Launch::new(key, kernel(dtype)?, params, buffers), groups).with_metal(metal);
        plan.launches.push(launch.with_threadgroup_memory(THREADS * size_of::<u64>()));
        Ok(plan)
    }
}

impl Operator for ScatterElements {
    fn name(&self) -> &'static str {
        "scatter_elements"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = elements::Inputs::checked(self.reduction, inputs)?;
        GatherElementsParams::new(&inputs.x, &inputs.indices, self.axis)?;
        inputs.expect_updates(inputs.indices.shape())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = elements::Inputs::checked(self.reduction, inputs)?;
        let places = GatherElementsParams::new(&outputs[0], &inputs.indices, self.axis)?;
        let shape = inputs.indices.shape();
        let axis = shape.axis(self.axis)?;
        let product = |dims: &[usize]| dims.iter().product::<usize>() as u64;
        let (length, inner) = (shape[axis] as u64, product(&shape[axis + 1..]));
        let lines = product(&shape[..axis]) * inner;
        let params = ScatterElementsParams { places, lines, length, inner, width: width(lines), reduction: self.reduction as u64 };
        inputs.plan(self.reduction, (ELEMENTS, cpu::elements), &params, lines)
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            let replaced = ScatterElements { axis: self.axis, reduction: Reduction::None };
            of_updated(gradient, (self, self.reduction), index, replaced, GatherElements { axis: self.axis })
        })
    }
}

impl Operator for ScatterNd {
    fn name(&self) -> &'static str {
        "scatter_nd"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let inputs = elements::Inputs::checked(self.reduction, inputs)?;
        let (_, shape) = TupleParams::new(&inputs.x, &inputs.indices, 0)?;
        inputs.expect_updates(&shape)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = elements::Inputs::checked(self.reduction, inputs)?;
        let (places, _) = TupleParams::new(&outputs[0], &inputs.indices, 0)?;
        let params = ScatterNdParams { places, width: width(places.inner), reduction: self.reduction as u64 };
        inputs.plan(self.reduction, (SLICES, cpu::slices), &params, places.inner)
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            of_updated(gradient, (self, self.reduction), index, ScatterNd { reduction: Reduction::None }, GatherNd { batch_dims: 0 })
        })
    }
}

/// The gradient of an input of a scatter, given the operator that replaces elements and the one that reads them.
fn of_updated(
    gradient: &mut Gradient,
    (operator, reduction): (&dyn Operator, Reduction),
    index: usize,
    replaced: impl Operator,
    read: impl Operator + Clone,
) -> Result<Value> {
    let (x, indices, updates, upstream) = (gradient.input(0)?, gradient.input(1)?, gradient.input(2)?, gradient.upstream(0)?);
    match (reduction, index) {
        (Reduction::Add, 0) => Ok(upstream),
        (Reduction::Add, _) => gradient.apply(read, &[upstream, indices]),
        (Reduction::None, 0) => {
            let zeros = gradient.zeros(updates.info.dtype, updates.info.shape())?;
            gradient.apply(replaced, &[upstream, indices, zeros])
        }
        (Reduction::None, _) => {
            // Of updates that meet, the last one's number stays.
            let (count, dtype) = (updates.info.elements(), DType::I64);
            let [start, limit, step] = [0, count as i128, 1].map(Scalar::Int);
            let numbers = gradient.apply(Arange { start, limit, step, dtype }, &[])?;
            let numbers = gradient.reshape(numbers, updates.info.shape())?;
            let zeros = gradient.zeros(dtype, x.info.shape())?;
            let last = gradient.apply(replaced, &[zeros, indices, numbers])?;
            let (last, found) = (gradient.apply(read.clone(), &[last, indices])?, gradient.apply(read, &[upstream, indices])?);
            let (stays, zero) = (gradient.compare(CompareOp::Eq, last, numbers)?, gradient.number(found.info.dtype, 0.0)?);
            gradient.choose(stays, found, zero)
        }
        (Reduction::Mul | Reduction::Min | Reduction::Max, _) => Err(gradient::none(operator)),
    }
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("scatter_elements", "x with single elements along an axis combined with updates, by an index for each", elements, ScatterElements),
    describe!("scatter_nd", "x with slices combined with updates, by tuples of leading coordinates", slices, ScatterNd),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_are_numbered_as_listed() {
        for (i, &reduction) in Reduction::ALL.iter().enumerate() {
            assert_eq!(reduction as usize, i);
            assert_eq!(reduction.to_string().parse::<Reduction>().unwrap(), reduction);
        }
    }
}
