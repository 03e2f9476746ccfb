//! Reading by index: rows along an axis (the embedding lookup), single elements, and slices by coordinate tuples.
//!
//! * Indices are i32, i64 or u32; negative ones count from the end of the axis.
//! * An index outside its axis is an error of the submission that names it; nothing outside the input is read.
//! * Elements move as bits. Memory: the indices and what they name are read once, the output is written once.

mod cpu;
mod elements;
pub(crate) mod index;
mod nd;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, HostKernel, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

pub use elements::{GatherElements, GatherElementsParams};
pub(crate) use nd::TUPLES;
pub use nd::{GatherNd, TupleParams};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    elementwise::{self, Operand, Space, over_elements},
    gradient::Gradient,
    metal::{self, metal_file, params},
    scatter::{Reduction, ScatterNd},
    signature::{self, operands},
};

const FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, index::METAL, GatherParams::METAL, metal_file!("gather/gather.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "gather").with_error_flag(index::OUTSIDE);

attributes! {
    /// The entries of `x` along an axis that the indices name: `x [A…, n, B…]`, `indices [I…]`, output `[A…, I…, B…]`.
    #[derive(Clone, Copy, Debug)]
    pub struct Gather {
        /// The axis; negative counts from the end.
        pub axis: isize = 0,
    }
}

params! {
    /// The parameter block.
    pub struct GatherParams {
        /// Product of the extents before the axis.
        pub outer: u64,
        /// Extent of the axis.
        pub extent: u64,
        /// Product of the extents after it.
        pub inner: u64,
        /// Number of indices.
        pub count: u64,
        /// The axis, for messages.
        pub axis: u64,
    }
}

operands! {
    x: read(DType::ALL) bits, "[A…, n, B…]";
    indices: read(index::TYPES), "[I…], in -n..n; negative ones count from the end";
    -> y: write(like x) bits, "[A…, I…, B…]";
}

impl Operator for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, indices } = operands::Inputs::new(inputs)?;
        let axis = signature::axis("x", &x, self.axis)?;
        let dims = [&x.shape()[..axis], &indices.shape()[..], &x.shape()[axis + 1..]].concat();
        Ok(vec![TensorInfo::new(x.dtype, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let operands::Inputs { x, indices } = inputs;
        let axis = x.shape().axis(self.axis)?;
        let product = |dims: &[usize]| dims.iter().product::<usize>() as u64;
        let params = GatherParams {
            outer: product(&x.shape()[..axis]),
            extent: x.shape()[axis] as u64,
            inner: product(&x.shape()[axis + 1..]),
            count: indices.elements() as u64,
            axis: axis as u64,
        };
        let kernel = cpu::kernel(x.dtype, indices.dtype)?;
        let bytes = |info: &TensorInfo| info.bytes() as u64;
        let launch = launch("gather", kernel, &params, inputs.parameters(outputs)?).with_metal(METAL);
        Ok(over_elements(launch.with_bytes(bytes(&indices) + 2 * bytes(&outputs[0])), outputs[0].elements()).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (x, indices, upstream) = (gradient.input(0)?.info, gradient.input(1)?, gradient.upstream(0)?);
            let axis = x.shape().axis(self.axis)?;
            let entries = indices.info.shape().rank();
            // The axis comes first: of `[A…, I…, B…]` the entries `[I…, A…, B…]`.
            let order =
                |axis: usize, entries: usize, rank: usize| (axis..axis + entries).chain(0..axis).chain(axis + entries..rank).collect::<Vec<_>>();
            let upstream = upstream.view(upstream.info.layout.permute(&order(axis, entries, upstream.info.shape().rank()))?);
            let updates = gradient.widened(upstream)?;
            let dims: Vec<_> = order(axis, 1, x.shape().rank()).into_iter().map(|axis| x.shape()[axis]).collect();
            let tuples = gradient.reshape(indices, &[&indices.info.shape()[..], &[1]].concat())?;
            let zeros = gradient.zeros(DType::F32, &Shape::new(&dims)?)?;
            let sum = gradient.apply(ScatterNd { reduction: Reduction::Add }, &[zeros, tuples, updates])?;
            let back: Vec<_> = (1..=axis).chain([0]).chain(axis + 1..dims.len()).collect();
            Ok(sum.view(sum.info.layout.permute(&back)?))
        })
    }
}

/// A launch that reads `x` by `indices`.
fn launch<P: bytemuck::NoUninit>(name: &'static str, kernel: HostKernel, params: &P, buffers: [(Parameter, Argument); 3]) -> Launch {
    let [(x, _), (indices, _), _] = &buffers;
    Launch::new(KernelKey::new(name, &[x.dtype, indices.dtype]), kernel, params, buffers)
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("gather", "entries of x along an axis by index: the embedding lookup", operands, Gather),
    describe!("gather_elements", "elements of x whose coordinate along an axis is the index at their place", elements::operands, GatherElements),
    describe!("gather_nd", "slices of x by tuples of leading coordinates", nd::operands, GatherNd),
];
