//! Tensors made of nothing: one value everywhere, and evenly spaced values.
//!
//! * `fill`: the value rounded to the type, to nearest even. `arange`: integers wrap; floating-point element `i` is `fma(i, step, start)` in
//!   f32 with `i`, `step` and `start` rounded to f32, and then rounded to the type.
//! * Memory: the output is written once.

mod arange;
mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, KernelKey, MetalFile, MetalForm, Parameter, Result, Shape};

pub use arange::{Arange, ArangeParams};

use crate::{
    Argument, AttributeInfo, AttributeKind, Description, Launch, Operator, Plan, Port, TensorInfo,
    elementwise::{self, Operand, Space, over_elements, scalar::Scalar, storage},
    metal::{self, metal_file, params},
};

const FILES: &[MetalFile] = &[metal::TYPES, Space::METAL, Operand::METAL, elementwise::METAL, FillParams::METAL, metal_file!("fill/fill.metal")];
const METAL: MetalForm = MetalForm::new(FILES, "fill");

/// A tensor of one value. No inputs.
#[derive(Clone, Debug)]
pub struct Fill {
    /// The extents.
    pub shape: Vec<usize>,
    /// The type.
    pub dtype: DType,
    /// The value.
    pub value: Scalar,
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

impl Operator for Fill {
    fn infer(&self, _inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.value.bits(self.dtype).map_err(|e| e.context("fill"))?;
        Ok(vec![TensorInfo::of(self.dtype, Shape::new(&self.shape)?)])
    }

    fn plan(&self, _inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        Ok(launch(self.dtype, self.value, outputs[0].elements(), Argument::Output(0))?.into())
    }
}

/// The launch that fills a buffer.
pub(crate) fn launch(dtype: DType, value: Scalar, count: usize, into: Argument) -> Result<Launch> {
    let bits = storage(dtype);
    let params = FillParams { count: count as u64, bits: value.bits(dtype)? };
    let launch = Launch::new(KernelKey::new("fill", &[bits]), cpu::fill(bits), &params, [(Parameter::write("y", bits), into)]);
    Ok(over_elements(launch.with_metal(METAL), count))
}

const fn attribute(name: &'static str, kind: AttributeKind, default: Option<&'static str>, doc: &'static str) -> AttributeInfo {
    AttributeInfo { name, kind, default, doc }
}

/// The type named by an attribute.
const DTYPE: AttributeInfo = attribute("dtype", AttributeKind::Text, Some("f32"), "the data type: f32, f16, bf16, i8 to i64, u8 to u64, bool");

pub(crate) const DESCRIPTIONS: &[Description] = &[
    Description {
        name: "fill",
        summary: "a tensor of one value",
        inputs: &[],
        outputs: &[Port::new("y", DType::ALL, "of the given shape")],
        attributes: &[
            attribute("shape", AttributeKind::Ints, None, "the extents"),
            DTYPE,
            attribute("value", AttributeKind::Float, Some("0"), "the value, one that the type has"),
        ],
        build: |a| Ok(Box::new(Fill { shape: a.list("shape")?.unwrap_or_default(), dtype: a.get("dtype")?, value: a.get("value")? })),
    },
    Description {
        name: "arange",
        summary: "start, start + step, ... up to but not including limit",
        inputs: &[],
        outputs: &[Port::new("y", DType::NUMBERS, "[ceil((limit - start) / step)]")],
        attributes: &[
            attribute("start", AttributeKind::Float, Some("0"), "the first value"),
            attribute("limit", AttributeKind::Float, None, "where the values end; it is not one of them"),
            attribute("step", AttributeKind::Float, Some("1"), "the distance, negative to count down"),
            DTYPE,
        ],
        build: |a| Ok(Box::new(Arange { start: a.get("start")?, limit: a.get("limit")?, step: a.get("step")?, dtype: a.get("dtype")? })),
    },
];
