//! Movement: one kernel copies any strided view to any strided destination; the operators say which.
//!
//! Elements move as bits, so the kernel exists once for each element size. Contiguous runs are copied whole, and a view whose inner axis
//! strides over another axis that is contiguous is transposed in tiles of whole cache lines. One read and one write of memory.

mod cpu;
mod exchange;
mod join;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;
mod pad;
mod triangle;
mod view;

use elinvar_core::{DType, DeviceProperties, KernelKey, Layout, MetalFile, MetalForm, Parameter, Result};

pub use join::{Concat, Split};
pub use pad::Pad;
pub use triangle::{Trilu, TriluParams};
pub use view::{Expand, Reshape, Slice, Transpose};

use crate::{
    Argument, Definition, Description, Launch, Operator, Plan, TensorInfo,
    description::describe,
    elementwise::{self, Operand, Space, over_elements, over_groups, storage},
    gradient::Gradient,
    metal::{self, metal_file, params},
    signature::operands,
};

const FILES: &[MetalFile] = &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, CopyParams::METAL, metal_file!("copy/copy.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "copy");
const EXCHANGE_FILES: &[MetalFile] =
    &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, CopyParams::METAL, metal_file!("copy/exchange.metal")];
const EXCHANGE: MetalForm = MetalForm::new(EXCHANGE_FILES, "exchange");

/// `x`, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Copy;

params! {
    /// The parameter block.
    pub struct CopyParams {
        /// What is visited, in the destination's order.
        pub space: Space,
        /// Where elements come from.
        pub from: Operand,
        /// Where they go: no element is visited twice, and outer strides span inner ones.
        pub to: Operand,
        /// For an exchange the axis along which the source is contiguous.
        pub axis: u64,
    }
}

impl CopyParams {
    /// The axis along which the source is contiguous while the destination is along the inner one: where tiles change places.
    fn exchanged_axis(&self) -> Option<usize> {
        const LEAST: usize = 8;
        let inner = self.space.axes().len() - 1;
        if self.to.strides[inner] != 1 || matches!(self.from.strides[inner], 0 | 1) || self.space.inner() < LEAST {
            return None;
        }
        (0..inner).find(|&axis| self.from.strides[axis] == 1 && self.space.extents[axis] as usize >= LEAST)
    }
}

operands! {
    x: read(DType::ALL) bits, "any shape";
    -> y: write(like x) bits, "row-major";
}

impl Operator for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(launch(x.dtype, &x.layout, Argument::Input(0), Argument::Output(0)).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| gradient.upstream(0))
    }
}

/// The launch that copies a view into a row-major buffer.
pub(crate) fn launch(dtype: DType, view: &Layout, from: Argument, into: Argument) -> Launch {
    let row_major = Layout::contiguous(*view.shape());
    let bits = storage(dtype);
    record("copy", [view, &row_major], (Parameter::read("x", bits), from), (Parameter::write("y", bits), into))
}

/// The launch that copies a view into a part of a buffer: `part` has the view's shape and lies inside it.
pub(crate) fn launch_into_part(dtype: DType, view: &Layout, part: &Layout, from: Argument, into: Argument) -> Launch {
    let bits = storage(dtype);
    record("copy_part", [view, part], (Parameter::read("x", bits), from), (Parameter::update("y", bits), into))
}

fn record(name: &'static str, layouts: [&Layout; 2], x: (Parameter, Argument), y: (Parameter, Argument)) -> Launch {
    let (space, [from, to]) = Space::collapse(layouts);
    let params = CopyParams { space, from, to, axis: 0 };
    let dtype = x.0.dtype;
    let launch = |name, params| Launch::new(KernelKey::new(name, &[dtype]), cpu::kernel(dtype), &params, [x, y]);
    let Some(axis) = params.exchanged_axis() else {
        return over_elements(launch(name, params).with_metal(METAL), space.elements());
    };
    let (rows, columns) = (space.extents[axis] as usize, space.inner());
    let tiles = space.elements() / (rows * columns) * rows.div_ceil(TILE) * columns.div_ceil(TILE);
    let name = if name == "copy" { "exchange" } else { "exchange_part" };
    let launch = launch(name, CopyParams { axis: axis as u64, ..params }).with_metal(EXCHANGE);
    over_groups(launch, tiles).with_threadgroup_memory(TILE * (TILE + 1) * dtype.size())
}

/// Elements of a side of the tile that a threadgroup exchanges.
const TILE: usize = 32;

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("copy", "x, row-major", operands, = Copy),
    describe!("transpose", "x with its axes in another order", operands, Transpose),
    describe!("slice", "a range of x along each of some axes, as in Python: bounds are clamped, negative ones count from the end", operands, Slice),
    describe!("expand", "x broadcast to a shape", operands, Expand),
    describe!("reshape", "the elements of x in row-major order under another shape", operands, Reshape),
    describe!("concat", "tensors one after the other along an axis", join::joined, Concat),
    describe!("split", "x cut into parts along an axis", join::cut, Split),
    describe!("pad", "x with a value around it, or less of x", operands, Pad),
    describe!("trilu", "the upper or lower triangle of matrices, zero elsewhere", triangle::operands, Trilu),
];
