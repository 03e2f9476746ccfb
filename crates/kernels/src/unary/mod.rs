//! Functions of one tensor, element by element.
//!
//! * Floating-point types compute in f32 and round once. NaN stays NaN.
//! * `abs`, `neg`, `relu`, `sign` and `square` also take integers, which wrap: `abs` and `neg` of the least value are that value.
//! * Error: that of the function in [`crate::math`], or none, and the rounding of the output.
//! * Memory: one read, one write.

mod cpu;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;

use std::{fmt, str::FromStr};

use elinvar_core::{DType, DeviceProperties, Error, KernelKey, MetalFile, MetalForm, Parameter, Result};

use crate::{
    Argument, AttributeInfo, AttributeKind, Description, Launch, Operator, Plan, Port, TensorInfo,
    elementwise::{self, Dense, Operand, Space, dispatch::named, over_elements, over_words, with_words},
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
    UnaryParams::METAL,
    math::METAL,
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

named! {
    /// Forms of the Gaussian error linear unit.
    pub enum Approximation("approximation") {
        /// x · Φ(x), by the error function.
        None "none",
        /// x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³))).
        Tanh "tanh",
    }
}

params! {
    /// The parameter block.
    pub struct UnaryParams {
        /// What is visited.
        pub space: Space,
        /// The input.
        pub x: Operand,
        /// The function's parameter, if it has one.
        pub alpha: f32,
        /// Zero.
        pub padding: u32,
    }
}

impl Operator for Unary {
    fn infer(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let x = required(inputs, 0, "x")?;
        if !self.op.dtypes().contains(&x.dtype) {
            let names: Vec<_> = self.op.dtypes().iter().map(|d| d.name()).collect();
            return Err(Error::invalid_argument(format!("{} of {}: one of {} expected", self.op, x.dtype, names.join(", "))));
        }
        Ok(vec![TensorInfo::of(x.dtype, *x.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let x = required(inputs, 0, "x")?;
        let (space, [operand]) = Space::collapse([&x.layout]);
        let buffers = [(Parameter::read("x", x.dtype), Argument::Input(0)), (Parameter::write("y", x.dtype), Argument::Output(0))];
        let key = KernelKey::new(self.op.kernel(), &[x.dtype]);
        if device.has_simdgroups() && operand.is_linear(&space) {
            let dense = Dense::new(&space, [operand.origin, 0], self.op.alpha());
            let launch = Launch::on_gpu(with_words(key), DENSE.with_arguments(self.op.function()), &dense, buffers);
            return Ok(over_words(launch, space.elements(), x.dtype.size()).into());
        }
        let params = UnaryParams { space, x: operand, alpha: self.op.alpha(), padding: 0 };
        let launch = Launch::new(key, cpu::twin(self.op, x.dtype)?, &params, buffers).with_metal(METAL.with_arguments(self.op.function()));
        Ok(over_elements(launch, space.elements()).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }
}

impl UnaryOp {
    fn alpha(self) -> f32 {
        match self {
            UnaryOp::LeakyRelu(alpha) | UnaryOp::Elu(alpha) => alpha,
            _ => 0.0,
        }
    }

    /// The name of the kernel.
    fn kernel(self) -> &'static str {
        if self == UnaryOp::Gelu(Approximation::Tanh) { "gelu_tanh" } else { self.name() }
    }

    /// The function object in Metal.
    fn function(self) -> &'static [&'static str] {
        if self == UnaryOp::Gelu(Approximation::Tanh) { &["GeluTanh"] } else { self.variant() }
    }
}

impl fmt::Display for UnaryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for UnaryOp {
    type Err = Error;

    /// The function of that name, its attribute at the default.
    fn from_str(name: &str) -> Result<Self> {
        UnaryOp::ALL.iter().copied().find(|op| op.name() == name).ok_or_else(|| {
            let names: Vec<_> = UnaryOp::ALL.iter().map(|op| op.name()).collect();
            Error::invalid_argument(format!("unknown unary function '{name}': use one of {}", names.join(", ")))
        })
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $variant:ident $(($attribute:ident: $type:ty = $default:expr, $text:literal, $kind:ident, $about:literal))?
        $name:literal $dtypes:expr, $summary:literal;)*) => {
        /// The functions of [`Unary`].
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum UnaryOp { $($(#[$doc])* $variant $(($type))?,)* }

        impl UnaryOp {
            /// All of them, attributes at their defaults.
            pub const ALL: &[UnaryOp] = &[$(UnaryOp::$variant $(($default))?,)*];

            /// The name.
            pub const fn name(self) -> &'static str {
                match self { $(functions!(@pattern $variant $($attribute)?) => $name,)* }
            }

            const fn variant(self) -> &'static [&'static str] {
                match self { $(functions!(@pattern $variant $($attribute)?) => &[stringify!($variant)],)* }
            }

            /// The data types it takes.
            pub const fn dtypes(self) -> &'static [DType] {
                match self { $(functions!(@pattern $variant $($attribute)?) => $dtypes,)* }
            }
        }

        pub(crate) const DESCRIPTIONS: &[Description] = &[$(Description {
            name: $name,
            summary: $summary,
            inputs: &[Port::new("x", $dtypes, "any shape")],
            outputs: &[Port::new("y", $dtypes, "as x")],
            attributes: &[$(AttributeInfo { name: stringify!($attribute), kind: AttributeKind::$kind, default: Some($text), doc: $about })?],
            build: |_attributes| Ok(Box::new(Unary { op: UnaryOp::$variant $((_attributes.get::<$type>(stringify!($attribute))?))? })),
        },)*];
    };
    (@pattern $variant:ident) => { UnaryOp::$variant };
    (@pattern $variant:ident $attribute:ident) => { UnaryOp::$variant(_) };
}

functions! {
    /// |x|.
    Abs "abs" DType::NUMBERS, "the absolute value";
    /// −x.
    Neg "neg" DType::NUMBERS, "-x";
    /// −1, 0 or 1.
    Sign "sign" DType::NUMBERS, "-1, 0 or 1 by the sign of x";
    /// x².
    Square "square" DType::NUMBERS, "x * x";
    /// max(x, 0).
    Relu "relu" DType::NUMBERS, "x where positive, else 0";
    /// √x.
    Sqrt "sqrt" DType::FLOATS, "the square root";
    /// 1 / √x, both operations rounded.
    Rsqrt "rsqrt" DType::FLOATS, "1 / sqrt(x)";
    /// 1 / x.
    Reciprocal "reciprocal" DType::FLOATS, "1 / x";
    /// The largest whole number not above x.
    Floor "floor" DType::FLOATS, "rounded down to a whole number";
    /// The smallest whole number not below x.
    Ceil "ceil" DType::FLOATS, "rounded up to a whole number";
    /// The nearest whole number, ties to even.
    Round "round" DType::FLOATS, "rounded to the nearest whole number, ties to even";
    /// eˣ.
    Exp "exp" DType::FLOATS, "e to the power x";
    /// The natural logarithm.
    Log "log" DType::FLOATS, "the natural logarithm";
    /// The sine of x radians.
    Sin "sin" DType::FLOATS, "the sine of x in radians";
    /// The cosine of x radians.
    Cos "cos" DType::FLOATS, "the cosine of x in radians";
    /// The hyperbolic tangent.
    Tanh "tanh" DType::FLOATS, "the hyperbolic tangent";
    /// The error function.
    Erf "erf" DType::FLOATS, "the error function";
    /// 1 / (1 + e⁻ˣ).
    Sigmoid "sigmoid" DType::FLOATS, "1 / (1 + exp(-x))";
    /// log(1 + eˣ).
    Softplus "softplus" DType::FLOATS, "log(1 + exp(x))";
    /// x · sigmoid(x).
    Silu "silu" DType::FLOATS, "x * sigmoid(x), also called swish";
    /// x · clamp(x / 6 + 1/2, 0, 1).
    HardSwish "hard_swish" DType::FLOATS, "x * clamp(x / 6 + 1/2, 0, 1)";
    /// The Gaussian error linear unit.
    Gelu(approximate: Approximation = Approximation::None, "none", Text, "none: by the error function; tanh: by its approximation")
        "gelu" DType::FLOATS, "x * Phi(x), the Gaussian error linear unit";
    /// x where positive, else alpha · x.
    LeakyRelu(alpha: f32 = 0.01, "0.01", Float, "the slope below zero") "leaky_relu" DType::FLOATS, "x where positive, else alpha * x";
    /// x where positive, else alpha · (eˣ − 1).
    Elu(alpha: f32 = 1.0, "1", Float, "minus the limit far below zero") "elu" DType::FLOATS, "x where positive, else alpha * (exp(x) - 1)";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked_by_function() {
        let infer = |op, dtype| Unary { op }.infer(&[Some(TensorInfo::new(dtype, &[2]).unwrap())]);
        assert!(infer(UnaryOp::Abs, DType::I64).is_ok());
        assert_eq!(infer(UnaryOp::Exp, DType::I64).unwrap_err().to_string(), "exp of i64: one of f32, f16, bf16 expected");
        assert!(infer(UnaryOp::Neg, DType::Bool).is_err() && Unary { op: UnaryOp::Neg }.infer(&[None]).is_err());
    }

    #[test]
    fn names_round_trip_and_attributes_are_parsed() {
        for &op in UnaryOp::ALL {
            assert_eq!(op.to_string().parse::<UnaryOp>().unwrap(), op);
        }
        let gelu = DESCRIPTIONS.iter().find(|d| d.name == "gelu").unwrap();
        assert!(format!("{:?}", gelu.operator([("approximate", "tanh")]).unwrap()).contains("Tanh"));
        assert!(gelu.operator([("approximate", "fast")]).is_err());
    }
}
