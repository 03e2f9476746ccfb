//! Conversion between data types.
//!
//! * To a floating-point type: one rounding, to nearest even, from any type; too large is infinity; NaN stays NaN.
//! * From a floating-point to an integer type: towards zero; the nearest bound if too large; NaN gives zero.
//! * Between integer types: the low bits, as in C. From bool: 0 or 1. To bool: whether it is not zero (NaN is not).
//! * Memory: one read, one write.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result};

use crate::{
    Argument, Definition, Description, ElementOp, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    copy,
    description::describe,
    elementwise::{self, Operand, Space, over_elements, storage},
    gradient::{self, Gradient},
    metal::{self, metal_file, params},
    signature::operands,
};

const FILES: &[MetalFile] = &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, CastParams::METAL, metal_file!("cast/cast.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "cast");

attributes! {
    /// `x` converted to another type; the shape stays.
    #[derive(Clone, Copy, Debug)]
    pub struct Cast {
        /// The type.
        pub to: DType,
    }
}

params! {
    /// The parameter block.
    pub struct CastParams {
        /// What is visited.
        pub space: Space,
        /// The input.
        pub x: Operand,
    }
}

operands! {
    x: read(DType::ALL), "any shape";
    -> y: write(DType::ALL), "as x, of type to";
}

impl Operator for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        Ok(vec![TensorInfo::of(self.to, *operands::Inputs::new(inputs)?.x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        Ok(launch(&operands::Inputs::new(inputs)?.x, self.to, Argument::Input(0), Argument::Output(0))?.into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Cast(self.to))
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        if !self.to.is_float() {
            return Err(gradient::none(self));
        }
        // The conversion back is what ends every gradient.
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| gradient.upstream(0))
    }
}

/// The types whose conversion moves the same bits: the sign of an integer matters only where it is widened.
fn canonical(from: DType, to: DType) -> (DType, DType) {
    let target = if to.is_integer() && !from.is_float() { storage(to) } else { to };
    let narrows = to == DType::Bool || to.is_integer() && to.size() <= from.size();
    (if from.is_integer() && narrows { storage(from) } else { from }, target)
}

/// The launch that converts `x` into a row-major buffer.
pub(crate) fn launch(x: &TensorInfo, to: DType, from: Argument, into: Argument) -> Result<Launch> {
    let (source, target) = canonical(x.dtype, to);
    if source == target {
        return Ok(copy::launch(to, &x.layout, from, into));
    }
    let (space, [operand]) = Space::collapse([&x.layout]);
    let [(x, _), (y, _)] = operands::Inputs { x: TensorInfo { dtype: source, ..*x } }.parameters(&[TensorInfo::of(target, *x.shape())])?;
    let launch = Launch::new(
        KernelKey::new("cast", &[source, target]),
        cpu::kernel(source, target)?,
        &CastParams { space, x: operand },
        [(x, from), (y, into)],
    );
    Ok(over_elements(launch.with_metal(METAL), space.elements()))
}

pub(crate) const DESCRIPTIONS: &[Description] =
    &[describe!("cast", "conversion to another data type: to nearest even, towards zero and saturating, low bits, or not zero", operands, Cast)];
