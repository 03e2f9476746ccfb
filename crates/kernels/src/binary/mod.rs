//! Functions of two tensors, broadcast by NumPy's rule: those of [`crate::functions`].
//!
//! * Floating-point types compute in f32 and round once. `min` and `max` are NaN if either side is.
//! * Integers wrap. Division is towards zero, and by zero gives zero. A power with a negative exponent is the exact one towards zero.
//! * `pow` takes an exponent of any numeric type. With a floating-point base the exponent is first converted to the base's type. With an
//!   integer base, an integer exponent gives the exact power's low bits; a floating-point one is computed in f32 and truncated.
//! * Error: [that of the function](BinaryOp::error), and the rounding of the output.
//! * Memory: each operand is read once and the output written once; large outputs go past the caches.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Result};

pub use crate::functions::Binary as BinaryOp;
use crate::{
    Argument, Attributes, Definition, Description, ElementOp, Launch, Operator, Plan, Port, TensorInfo, cast,
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
    BinaryParams::METAL,
    math::METAL,
    functions::METAL,
    BinaryOp::OBJECTS,
    metal_file!("binary/binary.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "binary");
const DENSE: MetalForm = MetalForm::new(FILES, "binary_dense");

/// `y = op(a, b)`, broadcast. Both of one type, which is also the output's; for `pow`, `b` may be of another.
#[derive(Clone, Copy, Debug)]
pub struct Binary {
    /// The operation.
    pub op: BinaryOp,
}

params! {
    /// The parameter block.
    pub struct BinaryParams {
        /// What is visited.
        pub space: Space,
        /// The left operand.
        pub a: Operand,
        /// The right operand.
        pub b: Operand,
    }
}

operands! {
    pub(crate) mod operands {
        a: read(DType::NUMBERS), "any shape";
        b: read(like a), "any shape that broadcasts with a";
        -> y: write(like a), "the shape a and b broadcast to, of a's type";
    }
}

operands! {
    mod powers {
        a: read(DType::NUMBERS), "any shape";
        b: read(DType::NUMBERS), "any shape that broadcasts with a";
        -> y: write(like a), "the shape a and b broadcast to, of a's type";
    }
}

const INTEGERS: &[Port; 3] = &limited(operands::ALL, DType::INTEGERS);

/// The operands of a function.
const fn ports(op: BinaryOp) -> &'static [Port; 3] {
    if matches!(op, BinaryOp::Pow) {
        &powers::ALL
    } else if op.takes(DType::F32) {
        &operands::ALL
    } else {
        INTEGERS
    }
}

impl Operator for Binary {
    fn name(&self) -> &'static str {
        operator_name(self.op).unwrap_or(self.op.name())
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        if operator_name(self.op).is_none() {
            return Err(Error::unsupported("its second argument is a number, as in `WithScalar`"));
        }
        let powers::Inputs { a, b } = powers::Inputs::of(&ports(self.op)[..2], inputs)?;
        Ok(vec![TensorInfo::of(a.dtype, signature::broadcast(&[("a", a), ("b", b)])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let (powers::Inputs { a, b }, y) = (powers::Inputs::new(inputs)?, outputs[0]);
        if self.op == BinaryOp::Pow {
            return power(a, b, y, device);
        }
        self.launch((a, Argument::Input(0)), (b, Argument::Input(1)), (y, Argument::Output(0)), device).map(Plan::from)
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn element_op(&self) -> Option<ElementOp> {
        Some(ElementOp::Binary(self.op))
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        scalar::gradient(self, self.op.derivative(), None, inputs, upstream, wanted)
    }
}

impl Binary {
    fn launch(&self, a: (TensorInfo, Argument), b: (TensorInfo, Argument), y: (TensorInfo, Argument), device: &DeviceProperties) -> Result<Launch> {
        let (space, [left, right]) = Space::broadcast(*y.0.shape(), [&a.0, &b.0])?;
        let types = [a.0.dtype, b.0.dtype];
        let key = KernelKey::new(self.op.name(), if types[0] == types[1] { &types[..1] } else { &types });
        let is_power = self.op == BinaryOp::Pow && types[0].is_integer();
        let object: &'static [&'static str] = if is_power { &["Power"] } else { self.op.object() };
        let mut buffers = powers::Inputs { a: a.0, b: b.0 }.parameters(&[y.0])?;
        buffers.iter_mut().zip([a.1, b.1, y.1]).for_each(|(buffer, to)| buffer.1 = to);
        if device.has_simdgroups() && types[0] == types[1] && left.is_linear(&space) && right.is_linear(&space) {
            let dense = Dense::new(&space, [left.origin, right.origin], 0.0);
            let launch = Launch::on_gpu(with_words(key), DENSE.with_arguments(object), &dense, buffers);
            return Ok(over_words(launch, space.elements(), types[0].size()));
        }
        let kernel = if is_power { cpu::power(types[0], types[1])? } else { cpu::kernel(self.op, types[0])? };
        let launch = Launch::new(key, kernel, &BinaryParams { space, a: left, b: right }, buffers).with_metal(METAL.with_arguments(object));
        Ok(over_elements(launch, space.elements()))
    }
}

/// Powers of operands of several types: those that the kernel does not take are converted before, and its result after.
fn power(a: TensorInfo, b: TensorInfo, y: TensorInfo, device: &DeviceProperties) -> Result<Plan> {
    let unsigned = matches!(b.dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let (base, exponent) = match (a.dtype.is_float(), b.dtype.is_float()) {
        (true, _) => (a.dtype, a.dtype),
        (false, true) => (DType::F32, DType::F32),
        (false, false) => (a.dtype, if unsigned { DType::U64 } else { DType::I64 }),
    };
    let mut plan = Plan::default();
    let mut convert = |x: TensorInfo, from: Argument, to: DType| -> Result<(TensorInfo, Argument)> {
        if x.dtype == to {
            return Ok((x, from));
        }
        let into = Argument::Scratch(plan.scratch.len());
        plan.scratch.push(to.size() * x.elements());
        plan.launches.push(cast::launch(&x, to, from, into)?);
        Ok((TensorInfo::of(to, *x.shape()), into))
    };
    let (a, b) = (convert(a, Argument::Input(0), base)?, convert(b, Argument::Input(1), exponent)?);
    let pow = Binary { op: BinaryOp::Pow };
    if base == y.dtype {
        plan.launches.push(pow.launch(a, b, (y, Argument::Output(0)), device)?);
        return Ok(plan);
    }
    let real = (TensorInfo::of(base, *y.shape()), Argument::Scratch(plan.scratch.len()));
    plan.scratch.push(base.size() * y.elements());
    plan.launches.push(pow.launch(a, b, real, device)?);
    plan.launches.push(cast::launch(&real.0, y.dtype, real.1, Argument::Output(0))?);
    Ok(plan)
}

/// The function of the operator's name.
fn build(attributes: &Attributes) -> Result<Box<dyn Operator>> {
    let name = attributes.operator();
    match BinaryOp::ALL.iter().find(|op| operator_name(**op) == Some(name)) {
        Some(&op) => Ok(Box::new(Binary { op })),
        None => Err(Error::internal(format!("there is no function '{name}' of two numbers"))),
    }
}

/// What the operator is called: as NumPy calls it. None where it is an operator with an attribute instead.
pub(crate) const fn operator_name(op: BinaryOp) -> Option<&'static str> {
    match op {
        BinaryOp::Rem => Some("fmod"),
        BinaryOp::And => Some("bitwise_and"),
        BinaryOp::Or => Some("bitwise_or"),
        BinaryOp::Xor => Some("bitwise_xor"),
        BinaryOp::Shl => Some("left_shift"),
        BinaryOp::Shr => Some("right_shift"),
        BinaryOp::LeakyRelu | BinaryOp::Elu | BinaryOp::HardSigmoid => None,
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Min | BinaryOp::Max | BinaryOp::Pow => Some(op.name()),
    }
}

const fn described(op: BinaryOp, name: &'static str) -> Description {
    let (inputs, outputs) = ports(op).split_at(2);
    Description { name, summary: op.summary(), inputs, outputs, attributes: &[], build }
}

const COUNT: usize = BinaryOp::ALL.len() - 3;

pub(crate) const DESCRIPTIONS: &[Description] = &{
    let (mut all, mut count, mut index) = ([described(BinaryOp::Add, "add"); COUNT], 0, 0);
    while index < BinaryOp::ALL.len() {
        if let Some(name) = operator_name(BinaryOp::ALL[index]) {
            all[count] = described(BinaryOp::ALL[index], name);
            count += 1;
        }
        index += 1;
    }
    all
};
