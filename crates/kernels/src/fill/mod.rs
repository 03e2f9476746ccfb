//! Tensors made of nothing: one value everywhere, and evenly spaced values.
//!
//! * `fill`: the value rounded to the type, to nearest even. `arange`: integers wrap; floating-point element `i` is `fma(i, step, start)` in
//!   f32 with `i`, `step` and `start` rounded to f32, and then rounded to the type.
//! * Memory: the output is written once.

mod arange;
mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Result, Shape};

pub use arange::{Arange, ArangeParams};

use crate::{
    Argument, Description, Launch, Operator, Plan, TensorInfo,
    attributes::attributes,
    description::describe,
    elementwise::{self, Operand, Space, over_elements, scalar::Scalar},
    metal::{self, metal_file, params},
    signature::operands,
};

const FILES: &[MetalFile] = &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, FillParams::METAL, metal_file!("fill/fill.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "fill");

attributes! {
    /// A tensor of one value. No inputs.
    #[derive(Clone, Debug)]
    pub struct Fill {
        /// The extents.
        pub shape: Vec<usize>,
        /// The type.
        pub dtype: DType = f32,
        /// The value.
        pub value: Scalar = 0,
    }
}

params! {
    /// The parameter block.
    pub struct FillParams {
        /// Number of elements.
        pub count: u64,
        /// The bits of the value, in the low bytes.
        pub bits: u64,
    }
}

operands! {
    -> y: write(DType::ALL) bits, "of the given shape";
}

impl Operator for Fill {
    fn name(&self) -> &'static str {
        "fill"
    }

    fn outputs(&self, _inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.value.bits(self.dtype)?;
        Ok(vec![TensorInfo::of(self.dtype, Shape::new(&self.shape)?)])
    }

    fn plan(&self, _inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        Ok(launch(self.value, &outputs[0], Argument::Output(0))?.into())
    }
}

/// The launch that fills a tensor.
pub(crate) fn launch(value: Scalar, y: &TensorInfo, into: Argument) -> Result<Launch> {
    let params = FillParams { count: y.elements() as u64, bits: value.bits(y.dtype)? };
    let [(parameter, _)] = operands::Inputs {}.parameters(&[*y])?;
    let bits = parameter.dtype;
    let launch = Launch::new(KernelKey::new("fill", &[bits]), cpu::fill(bits), &params, [(parameter, into)]);
    Ok(over_elements(launch.with_metal(METAL), y.elements()))
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    describe!("fill", "a tensor of one value", operands, Fill),
    describe!("arange", "start, start + step, ... up to but not including limit", arange::operands, Arange),
];
