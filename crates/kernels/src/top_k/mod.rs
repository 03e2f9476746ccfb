//! The `k` largest or smallest elements along one axis, and where they were.
//!
//! * Order: comparisons alone; −0 equals +0, a NaN is larger than any number, and of equal elements the one with the lower index comes
//!   first. `sorted` outputs run from the largest down (the smallest up), others in the order of their indices.
//! * Memory: a row is read once; candidates for the first `k` are kept in at most `2k + 256` slots.
//! * See ONNX `TopK`; `torch.topk`.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Extent, KernelKey, MetalFile, MetalForm, Result, Shape};

use crate::{
    Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    gradient::Gradient,
    metal::{self, metal_file, params},
    order,
    rows::Rows,
    scatter::{Reduction, ScatterElements},
    signature::{self, misshapen, operands},
};

attributes! {
    /// The `k` first elements of each row. Input `x […]`, floats or integers; outputs `values` of its type and `indices`, i64, with `k` for the
    /// extent of the axis.
    #[derive(Clone, Copy, Debug)]
    pub struct TopK {
        /// How many.
        pub k: usize,
        /// The axis; negative counts from the end.
        pub axis: isize = -1,
        /// The largest; else the smallest.
        pub largest: bool = true,
        /// In order; else by index.
        pub sorted: bool = true,
    }
}

params! {
    struct Params {
        pub rows: Rows,
        pub k: u64,
        pub largest: u32,
        pub sorted: u32,
    }
}

const FILES: &[MetalFile] = &[
    metal::TYPES,
    order::METAL,
    order::SLOTS,
    order::KEYS,
    Rows::METAL,
    Params::METAL,
    metal_file!("top_k/sort.metal"),
    metal_file!("top_k/top_k.metal"),
];

/// The most elements that the kernel sorts in threadgroup memory.
const LISTED: usize = 1024;

impl TopK {
    /// Bytes of threadgroup memory: counts of 256 bins and of 32 simdgroups, each twice, and the elements that are sorted in it.
    fn memory(&self, dtype: DType) -> usize {
        let listed = if self.sorted && self.k <= LISTED { self.k * (dtype.size().max(4) + 4) } else { 0 };
        2 * (256 + 32) * 4 + listed
    }
}

operands! {
    x: read(DType::NUMBERS), "[…], any shape with at least one axis";
    -> values: write(like x), "as x, with k for the axis";
    indices: write(&[DType::I64]), "as values";
}

impl Operator for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        let axis = signature::axis("x", &x, self.axis)?;
        let mut dims = x.shape().to_vec();
        if self.k > dims[axis] {
            return Err(misshapen!(x, k = self.k; "k of at most {}, the elements of axis {axis}", dims[axis]));
        }
        if dims[axis] > u32::MAX as usize {
            return Err(misshapen!(x; "at most 2^32 - 1 elements along axis {axis}"));
        }
        dims[axis] = self.k;
        let shape = Shape::new(&dims)?;
        Ok(vec![TensorInfo::of(x.dtype, shape), TensorInfo::of(DType::I64, shape)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let x = inputs.x;
        let rows = Rows::new(x.shape(), self.axis)?;
        let params = Params { rows, k: self.k as u64, largest: self.largest.into(), sorted: self.sorted.into() };
        let launch = Launch::new(KernelKey::new("top_k", &[x.dtype]), cpu::kernel(x.dtype)?, &params, inputs.parameters(outputs)?);
        let launch = launch.with_metal(MetalForm::new(FILES, "top_k")).with_threadgroup_memory(self.memory(x.dtype));
        let groups = if self.k == 0 { 0 } else { rows.count().min(u32::MAX as usize) as u32 };
        Ok(launch.over(Extent::linear(groups), Extent::linear(order::row_threads(rows.length as usize) as u32)).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (x, indices, upstream) = (gradient.input(0)?.info, gradient.output(1)?, gradient.upstream(0)?);
            let zeros = gradient.zeros(x.dtype, x.shape())?;
            gradient.apply(ScatterElements { axis: self.axis, reduction: Reduction::None }, &[zeros, indices, upstream])
        })
    }
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("top_k", "the k largest or smallest elements along an axis and their indices", operands, TopK)];
