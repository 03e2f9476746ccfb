//! Single elements along an axis, by an index for each.

use elinvar_core::{DType, DeviceProperties, Element, HostArguments, HostKernel, Layout, MetalFile, MetalForm, Result, Shape};

use super::{
    index::{self, Index, check_all, for_indices},
    launch,
};
use crate::{
    Definition, Operator, Plan, TensorInfo,
    attributes::attributes,
    elementwise::{
        self, Operand, Space,
        blocks::{TASK, walk},
        dispatch::for_storage,
        over_elements,
    },
    gradient::Gradient,
    metal::{self, metal_file, params},
    parallel::for_each_part,
    scatter::{Reduction, ScatterElements},
    signature::{self, misshapen, no_kernel, operands},
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    Space::METAL,
    Operand::METAL,
    elementwise::METAL,
    index::METAL,
    GatherElementsParams::METAL,
    metal_file!("gather/elements.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "gather_elements").with_error_flag(index::OUTSIDE);

attributes! {
    /// `y[…, i, …] = x[…, indices[…, i, …], …]` along an axis. `indices` has the rank of `x` and is no larger but along the axis.
    #[derive(Clone, Copy, Debug)]
    pub struct GatherElements {
        /// The axis; negative counts from the end.
        pub axis: isize = 0,
    }
}

params! {
    /// The parameter block, also of the scatter of elements.
    pub struct GatherElementsParams {
        /// The extents of the indices.
        pub space: Space,
        /// Where in `x` the element of coordinate zero along the axis lies.
        pub x: Operand,
        /// The stride of the axis in `x`.
        pub stride: u64,
        /// The extent of the axis in `x`.
        pub extent: u64,
        /// The axis, for messages.
        pub axis: u64,
    }
}

impl GatherElementsParams {
    /// For a row-major `x` and row-major indices.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub(crate) fn new(x: &TensorInfo, indices: &TensorInfo, axis: isize) -> Result<Self> {
        let axis = signature::axis("x", x, axis)?;
        let (from, by) = (x.shape(), indices.shape());
        if from.rank() != by.rank() || (0..from.rank()).any(|i| i != axis && by[i] > from[i]) {
            return Err(misshapen!(indices, x; "x's rank, and extents no larger than its own but along axis {axis}"));
        }
        // The coordinate along the axis comes from the index: here it stays zero.
        let mut lines = if from[axis] == 0 { Layout::contiguous(Shape::new(&[])?) } else { x.layout.slice(axis, 0, 1, 1)? };
        for i in (0..from.rank()).filter(|&i| i != axis && from[axis] > 0) {
            lines = lines.slice(i, 0, by[i], 1)?;
        }
        let (space, [operand, _]) = Space::collapse([&lines.broadcast_to(*by)?, &Layout::contiguous(*by)]);
        Ok(Self { space, x: operand, stride: x.layout.strides()[axis] as u64, extent: from[axis] as u64, axis: axis as u64 })
    }
}

operands! {
    pub(super) mod operands {
        x: read(DType::ALL) bits, "[…]";
        indices: read(index::TYPES), "of x's rank, no larger than x but along the axis; negative ones count from the end";
        -> y: write(like x) bits, "as indices";
    }
}

impl Operator for GatherElements {
    fn name(&self) -> &'static str {
        "gather_elements"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x, indices } = operands::Inputs::new(inputs)?;
        GatherElementsParams::new(&x, &indices, self.axis)?;
        Ok(vec![TensorInfo::of(x.dtype, *indices.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let operands::Inputs { x, indices } = inputs;
        let params = GatherElementsParams::new(&x, &indices, self.axis)?;
        let kernel: Option<HostKernel> = for_storage!(x.dtype, T => for_indices!(indices.dtype, I => run::<T, I>));
        let kernel = kernel.ok_or_else(|| no_kernel(indices.dtype))?;
        Ok(over_elements(launch("gather_elements", kernel, &params, inputs.parameters(outputs)?).with_metal(METAL), indices.elements()).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (x, indices, upstream) = (gradient.input(0)?.info, gradient.input(1)?, gradient.upstream(0)?);
            let updates = gradient.widened(upstream)?;
            let zeros = gradient.zeros(DType::F32, x.shape())?;
            gradient.apply(ScatterElements { axis: self.axis, reduction: Reduction::Add }, &[zeros, indices, updates])
        })
    }
}

fn run<T: Element, I: Index>(arguments: &mut HostArguments<'_>) -> Result<()> {
    let GatherElementsParams { space, x: operand, stride, extent, axis } = arguments.params()?;
    let (x, indices, y) =
        (arguments.input::<T>(operands::AT.x)?, arguments.input::<I>(operands::AT.indices)?, arguments.output::<T>(operands::AT.y)?);
    let (stride, extent) = (stride as usize, extent as usize);
    check_all(indices, axis as usize, extent)?;
    let step = operand.strides[space.axes().len() - 1] as usize;
    for_each_part(y, TASK, |number, y| {
        let (mut done, indices) = (0, &indices[number * TASK..]);
        walk(&space, [&operand], number * TASK, y.len(), |[at], length| {
            for (i, (y, index)) in y[done..done + length].iter_mut().zip(&indices[done..]).enumerate() {
                if let Some(entry) = index.resolve(extent) {
                    *y = x[at + i * step + entry * stride];
                }
            }
            done += length;
        });
    });
    Ok(())
}
