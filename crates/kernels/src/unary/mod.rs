//! Functions of one tensor, element by element: those of [`crate::functions`].
//!
//! * Floating-point types compute in f32 and round once. NaN stays NaN.
//! * Integers wrap: `abs` and `neg` of the least value are that value.
//! * Error: [that of the function](UnaryOp::error), and the rounding of the output.
//! * Memory: one read, one write. On a CPU without AVX-512 long functions of many 16-bit elements are looked up in a table of 128 KiB.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, HostKernel, KernelKey, MetalFile, MetalForm, Result};

pub use crate::functions::Unary as UnaryOp;
use crate::{
    Attributes, Definition, Description, ElementOp, Launch, Operator, Plan, Port, TensorInfo,
    attributes::attributes,
    binary::BinaryOp,
    elementwise::{self, Dense, Operand, Space, over_elements, over_words, with_words},
    functions,
    gradient::scalar,
    math,
    metal::{self, metal_file, params},
    signature::{self, limited, operands},
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    Space::METAL,
    Operand::METAL,
    Dense::METAL,
    elementwise::METAL,
    UnaryParams::METAL,
    math::METAL,
    functions::METAL,
    UnaryOp::OBJECTS,
    BinaryOp::OBJECTS,
    metal_file!("unary/unary.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "unary");
const DENSE: MetalForm = MetalForm::new(FILES, "unary_dense");

/// `y = op(x)`.
#[derive(Clone, Copy, Debug)]
pub struct Unary {
    /// The function.
    pub op: UnaryOp,
}

/// `y = op(x, scalar)`, of floating-point numbers.
#[derive(Clone, Copy, Debug)]
pub struct WithScalar {
    /// The function.
    pub op: BinaryOp,
    /// Its second argument.
    pub scalar: f32,
}

params! {
    /// The parameter block.
    pub struct UnaryParams {
        /// What is visited.
        pub space: Space,
        /// The input.
        pub x: Operand,
        /// The function's second argument, if it has one.
        pub scalar: f32,
        /// Zero.
        pub padding: u32,
    }
}

operands! {
    x: read(DType::NUMBERS), "any shape";
    -> y: write(like x), "as x";
}

const FLOATS: &[Port; 2] = &limited(operands::ALL, DType::FLOATS);
const INTEGERS: &[Port; 2] = &limited(operands::ALL, DType::INTEGERS);

/// The operands of a function.
const fn ports(op: UnaryOp) -> &'static [Port; 2] {
    match (op.takes(DType::F32), op.takes(DType::I32)) {
        (true, false) => FLOATS,
        (false, _) => INTEGERS,
        (true, true) => &operands::ALL,
    }
}

/// The input and the output of an operator with these operands.
fn outputs(ports: &[Port; 2], inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
    let operands::Inputs { x } = operands::Inputs::of(&ports[..1], inputs)?;
    Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
}

/// The launch of a function object with that name.
fn plan(
    name: String,
    object: &'static [&'static str],
    kernel: impl FnOnce(DType) -> Option<HostKernel>,
    scalar: f32,
    inputs: &[Option<TensorInfo>],
    outputs: &[TensorInfo],
    device: &DeviceProperties,
) -> Result<Plan> {
    let inputs = operands::Inputs::new(inputs)?;
    let (x, buffers) = (inputs.x, inputs.parameters(outputs)?);
    let (space, [operand]) = Space::collapse([&x.layout]);
    let key = KernelKey::new(name, &[x.dtype]);
    if device.has_simdgroups() && operand.is_linear(&space) {
        let dense = Dense::new(&space, [operand.origin, 0], scalar);
        let launch = Launch::on_gpu(with_words(key), DENSE.with_arguments(object), &dense, buffers);
        return Ok(over_words(launch, space.elements(), x.dtype.size()).into());
    }
    let kernel = kernel(x.dtype).ok_or_else(|| signature::no_kernel(x.dtype))?;
    let params = UnaryParams { space, x: operand, scalar, padding: 0 };
    Ok(over_elements(Launch::new(key, kernel, &params, buffers).with_metal(METAL.with_arguments(object)), space.elements()).into())
}

impl Operator for Unary {
    fn name(&self) -> &'static str {
        operator_name(self.op)
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        outputs(ports(self.op), inputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let kernel = |dtype| self.op.visit(dtype, cpu::Kernels(dtype)).flatten();
        plan(self.op.name().to_owned(), self.op.object(), kernel, 0.0, inputs, outputs, device)
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Unary(self.op))
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        scalar::gradient(self, self.op.derivative(), None, inputs, upstream, wanted)
    }
}

impl Operator for WithScalar {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        outputs(FLOATS, inputs)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let kernel = |dtype| self.op.visit(dtype, cpu::Kernels(dtype)).flatten();
        plan(format!("{}_scalar", self.op.name()), self.op.object(), kernel, self.scalar, inputs, outputs, device)
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::WithScalar(self.op, self.scalar))
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        scalar::gradient(self, self.op.derivative(), Some(self.scalar), inputs, upstream, wanted)
    }
}

/// The function of the operator's name.
fn build(attributes: &Attributes) -> Result<Box<dyn Operator>> {
    let name = attributes.operator();
    match UnaryOp::ALL.iter().find(|op| operator_name(**op) == name) {
        Some(&op) => Ok(Box::new(Unary { op })),
        None => Err(Error::internal(format!("there is no function '{name}' of one number"))),
    }
}

/// What the operator is called: as NumPy calls it.
const fn operator_name(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Not => "bitwise_not",
        UnaryOp::Popcount => "bitwise_count",
        op => op.name(),
    }
}

const fn described(op: UnaryOp) -> Description {
    let (inputs, outputs) = ports(op).split_at(1);
    Description { name: operator_name(op), summary: op.summary(), inputs, outputs, attributes: &[], build }
}

attributes! {
    struct LeakyRelu {
        /// The slope below zero.
        alpha: f32 = 0.01,
    }
}

attributes! {
    struct Elu {
        /// Minus the limit far below zero.
        alpha: f32 = 1,
    }
}

attributes! {
    struct HardSigmoid {
        /// The slope; 1/6 is PyTorch's.
        alpha: f32 = 0.2,
    }
}

/// A function with a parameter.
macro_rules! with_scalar {
    ($op:ident $summary:literal) => {
        Description {
            name: BinaryOp::$op.name(),
            summary: $summary,
            inputs: FLOATS.split_at(1).0,
            outputs: FLOATS.split_at(1).1,
            attributes: $op::ATTRIBUTES,
            build: |a| Ok(Box::new(WithScalar { op: BinaryOp::$op, scalar: $op::read(a)?.alpha })),
        }
    };
}

const WITH_SCALAR: [Description; 3] = [
    with_scalar!(LeakyRelu "`x` where positive, else `alpha * x`."),
    with_scalar!(Elu "`x` where positive, else `alpha * (exp(x) - 1)`."),
    with_scalar!(HardSigmoid "`clamp(alpha * x + 1/2, 0, 1)`, rounded once."),
];

const COUNT: usize = UnaryOp::ALL.len() + WITH_SCALAR.len();

pub(crate) const DESCRIPTIONS: &[Description] = &{
    let (mut all, mut index) = ([WITH_SCALAR[0]; COUNT], 1);
    while index < COUNT {
        all[index] = if index < WITH_SCALAR.len() { WITH_SCALAR[index] } else { described(UnaryOp::ALL[index - WITH_SCALAR.len()]) };
        index += 1;
    }
    all
};
