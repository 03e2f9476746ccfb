//! Arithmetic of two tensors, broadcast by NumPy's rule: add, sub, mul, div, min, max, pow.
//!
//! * Floating-point types compute in f32 and round once. `min` and `max` are NaN if either side is.
//! * Integers wrap. Division is towards zero, and by zero gives zero. A power with a negative exponent is the exact one towards zero.
//! * `pow` takes an exponent of any numeric type. With a floating-point base the exponent is first converted to the base's type. With an
//!   integer base, an integer exponent gives the exact power's low bits; a floating-point one is computed in f32 and truncated.
//! * Error: none but the rounding of the output, except `pow`: see [`crate::math::pow`].
//! * Memory: each operand is read once and the output written once; large outputs go past the caches.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, Description, Launch, Operator, Plan, Port, TensorInfo, cast,
    elementwise::{self, Dense, Operand, Space, broadcast_shape, over_elements, over_words, same_dtype, with_words},
    math,
    metal::{self, metal_file, params},
    required,
};

const FILES: &[MetalFile] = &[
    metal::TYPES,
    Space::METAL,
    Operand::METAL,
    Dense::METAL,
    elementwise::METAL,
    elementwise::NUMBER,
    BinaryParams::METAL,
    math::METAL,
    metal_file!("binary/binary.metal"),
];
const METAL: MetalForm = MetalForm::new(FILES, "binary");
const DENSE: MetalForm = MetalForm::new(FILES, "binary_dense");

/// `y = op(a, b)`, broadcast. Both of one floating-point or integer type, which is also the output's; for `pow`, `b` may be of another.
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

impl Operator for Binary {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let (a, b) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?);
        if self.op != BinaryOp::Pow {
            same_dtype(self.op, &[&a, &b])?;
        }
        if a.dtype == DType::Bool || b.dtype == DType::Bool {
            return Err(Error::invalid_argument(format!("{} of bool: cast it to a number first", self.op)));
        }
        Ok(vec![TensorInfo::of(a.dtype, broadcast_shape(&[&a, &b])?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let (a, b, y) = (required(inputs, 0, "a")?, required(inputs, 1, "b")?, outputs[0]);
        if self.op == BinaryOp::Pow {
            return power(a, b, y, device);
        }
        self.launch((a, Argument::Input(0)), (b, Argument::Input(1)), (y, Argument::Output(0)), device).map(Plan::from)
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }
}

impl Binary {
    fn launch(&self, a: (TensorInfo, Argument), b: (TensorInfo, Argument), y: (TensorInfo, Argument), device: &DeviceProperties) -> Result<Launch> {
        let (space, [left, right]) = Space::broadcast(*y.0.shape(), [&a.0, &b.0])?;
        let types = [a.0.dtype, b.0.dtype];
        let key = KernelKey::new(self.op.name(), if types[0] == types[1] { &types[..1] } else { &types });
        let buffers = [(Parameter::read("a", types[0]), a.1), (Parameter::read("b", types[1]), b.1), (Parameter::write("y", y.0.dtype), y.1)];
        if device.has_simdgroups() && types[0] == types[1] && left.is_linear(&space) && right.is_linear(&space) {
            let dense = Dense::new(&space, [left.origin, right.origin], 0.0);
            let launch = Launch::on_gpu(with_words(key), DENSE.with_arguments(self.op.function()), &dense, buffers);
            return Ok(over_words(launch, space.elements(), types[0].size()));
        }
        let launch = Launch::new(key, cpu::twin(self.op, types[0], types[1])?, &BinaryParams { space, a: left, b: right }, buffers)
            .with_metal(METAL.with_arguments(self.op.function()));
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

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $name:literal $summary:literal;)*) => {
        crate::elementwise::dispatch::named! {
            /// The operations of [`Binary`].
            pub enum BinaryOp("binary operation") { $($(#[$doc])* $variant $name,)* }
        }

        impl BinaryOp {
            /// The function object in Metal.
            const fn function(self) -> &'static [&'static str] {
                match self { $(BinaryOp::$variant => &[stringify!($variant)],)* }
            }
        }

        pub(crate) const DESCRIPTIONS: &[Description] = &[$(Description {
            name: $name,
            summary: $summary,
            inputs: &[Port::new("a", DType::NUMBERS, "any shape"), Port::new("b", DType::NUMBERS, "any shape that broadcasts with a")],
            outputs: &[Port::new("y", DType::NUMBERS, "the shape a and b broadcast to, of a's type")],
            attributes: &[],
            build: |_| Ok(Box::new(Binary { op: BinaryOp::$variant })),
        },)*];
    };
}

operations! {
    /// a + b.
    Add "add" "a + b, broadcast; integers wrap";
    /// a − b.
    Sub "sub" "a - b, broadcast; integers wrap";
    /// a · b.
    Mul "mul" "a * b, broadcast; integers wrap";
    /// a / b.
    Div "div" "a / b, broadcast; integers towards zero, by zero gives zero";
    /// The smaller.
    Min "min" "the smaller of a and b, broadcast; NaN if either is";
    /// The larger.
    Max "max" "the larger of a and b, broadcast; NaN if either is";
    /// a to the power b.
    Pow "pow" "a to the power b, broadcast; b may be of another numeric type";
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infer(op: BinaryOp, a: (DType, &[usize]), b: (DType, &[usize])) -> Result<Vec<TensorInfo>> {
        let info = |(dtype, dims)| TensorInfo::new(dtype, dims).map(Some);
        Binary { op }.infer(&[info(a)?, info(b)?])
    }

    #[test]
    fn operands_that_do_not_fit_are_refused_in_a_line() {
        let error = infer(BinaryOp::Add, (DType::F32, &[2]), (DType::F16, &[2])).unwrap_err().to_string();
        assert_eq!(error, "add of f32 and f16: cast one to the other's type first");
        assert!(infer(BinaryOp::Mul, (DType::F32, &[2]), (DType::F32, &[3])).is_err());
        assert!(infer(BinaryOp::Mul, (DType::Bool, &[2]), (DType::Bool, &[2])).is_err());
        assert!(infer(BinaryOp::Pow, (DType::F32, &[2]), (DType::Bool, &[2])).is_err());
        assert!(Binary { op: BinaryOp::Add }.infer(&[None, None]).is_err());
    }

    #[test]
    fn broadcasting_and_mixed_exponents_are_inferred() {
        let y = infer(BinaryOp::Pow, (DType::I8, &[2, 1]), (DType::F32, &[3])).unwrap();
        assert_eq!((y[0].dtype, &**y[0].shape()), (DType::I8, &[2, 3][..]));
    }

    #[test]
    fn names_round_trip() {
        for &op in BinaryOp::ALL {
            assert_eq!(op.to_string().parse::<BinaryOp>().unwrap(), op);
        }
        assert!("plus".parse::<BinaryOp>().unwrap_err().to_string().contains("add"));
    }
}
