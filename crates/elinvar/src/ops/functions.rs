//! Functions of each element; see [`elinvar_kernels::unary`] for the types they take and their error bounds.

use elinvar_kernels::{
    binary::BinaryOp,
    ternary::{Clamp, Fma},
    unary::{Unary, UnaryOp, WithScalar},
};

use super::operators;
use crate::tensor::Tensor;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident $into:ident $in_place:ident = $op:ident $x:literal => $shown:literal;)*) => {
        operators! {$(
            $(#[$doc])*
            $name $into $in_place (&self) => Unary { op: UnaryOp::$op };
            errors "A data type the function does not take, or out of memory.";
            example concat!("let x = executor.tensor(", $x, ")?;"); () => $shown;
        )*}
    };
}

functions! {
    /// |x|
    abs abs_into abs_ = Abs "&[2], &[-1.5f32, 2.0]" => "[1.5, 2.0]";
    /// −x
    neg neg_into neg_ = Neg "&[2], &[3i32, -4]" => "[-3,  4]";
    /// −1, 0 or 1 by the sign of x.
    sign sign_into sign_ = Sign "&[3], &[-3i32, 0, 2]" => "[-1,  0,  1]";
    /// x · x
    square square_into square_ = Square "&[2], &[3f32, -0.5]" => "[ 9.0, 0.25]";
    /// max(x, 0)
    relu relu_into relu_ = Relu "&[2], &[-3f32, 2.0]" => "[0.0, 2.0]";
    /// Every bit of an integer inverted.
    bitwise_not bitwise_not_into bitwise_not_ = Not "&[2], &[0i32, 5]" => "[-1, -6]";
    /// How many bits of an integer are one.
    bitwise_count bitwise_count_into bitwise_count_ = Popcount "&[2], &[7i32, 8]" => "[3, 1]";
    /// Rounded down to a whole number.
    floor floor_into floor_ = Floor "&[2], &[1.5f32, 0.7]" => "[1.0, 0.0]";
    /// Rounded up to a whole number.
    ceil ceil_into ceil_ = Ceil "&[2], &[1.5f32, 0.7]" => "[2.0, 1.0]";
    /// Rounded to a whole number, towards zero.
    trunc trunc_into trunc_ = Trunc "&[2], &[-1.5f32, -2.7]" => "[-1.0, -2.0]";
    /// Rounded to the nearest whole number, ties to even.
    round round_into round_ = Round "&[3], &[0.5f32, 1.5, 2.5]" => "[0.0, 2.0, 2.0]";
    /// √x
    sqrt sqrt_into sqrt_ = Sqrt "&[2], &[9f32, 2.25]" => "[3.0, 1.5]";
    /// 1 / √x
    rsqrt rsqrt_into rsqrt_ = Rsqrt "&[2], &[4f32, 0.25]" => "[0.5, 2.0]";
    /// 1 / x
    reciprocal reciprocal_into reciprocal_ = Reciprocal "&[2], &[2f32, 0.25]" => "[0.5, 4.0]";
    /// eˣ
    exp exp_into exp_ = Exp "&[1], &[1f32]" => "[2.7182817]";
    /// 2ˣ
    exp2 exp2_into exp2_ = Exp2 "&[2], &[3f32, -1.0]" => "[8.0, 0.5]";
    /// The natural logarithm.
    log log_into log_ = Log "&[1], &[2f32]" => "[0.6931472]";
    /// The logarithm to base 2.
    log2 log2_into log2_ = Log2 "&[2], &[8f32, 2.0]" => "[3.0, 1.0]";
    /// The logarithm to base 10.
    log10 log10_into log10_ = Log10 "&[2], &[100f32, 10.0]" => "[2.0, 1.0]";
    /// log(1 + x), also where x is small.
    log1p log1p_into log1p_ = Log1p "&[1], &[1f32]" => "[0.6931472]";
    /// The sine of x radians.
    sin sin_into sin_ = Sin "&[1], &[1f32]" => "[0.84147096]";
    /// The cosine of x radians.
    cos cos_into cos_ = Cos "&[1], &[1f32]" => "[0.54030234]";
    /// The tangent of x radians.
    tan tan_into tan_ = Tan "&[1], &[1f32]" => "[1.5574077]";
    /// The hyperbolic tangent.
    tanh tanh_into tanh_ = Tanh "&[1], &[1f32]" => "[0.7615942]";
    /// 1 / (1 + e⁻ˣ)
    sigmoid sigmoid_into sigmoid_ = Sigmoid "&[1], &[1f32]" => "[0.7310586]";
    /// log(1 + eˣ)
    softplus softplus_into softplus_ = Softplus "&[1], &[1f32]" => "[1.3132617]";
    /// x · sigmoid(x)
    silu silu_into silu_ = Silu "&[1], &[1f32]" => "[0.7310586]";
    /// x · tanh(log(1 + eˣ))
    mish mish_into mish_ = Mish "&[1], &[1f32]" => "[0.8650984]";
    /// x / (1 + |x|)
    softsign softsign_into softsign_ = Softsign "&[2], &[-1f32, 3.0]" => "[-0.5, 0.75]";
    /// 1.0507010 · x where positive, else 1.7580993 · (eˣ − 1)
    selu selu_into selu_ = Selu "&[2], &[-100f32, 2.0]" => "[-1.7580993,   2.101402]";
    /// x · clamp(x / 6 + 1/2, 0, 1)
    hard_swish hard_swish_into hard_swish_ = HardSwish "&[2], &[0f32, 3.0]" => "[0.0, 3.0]";
    /// The error function.
    erf erf_into erf_ = Erf "&[1], &[1f32]" => "[0.8427008]";
    /// x · Φ(x), by the error function.
    gelu gelu_into gelu_ = Gelu "&[1], &[1f32]" => "[0.8413448]";
    /// x · Φ(x), by the approximation with tanh.
    gelu_tanh gelu_tanh_into gelu_tanh_ = GeluTanh "&[1], &[1f32]" => "[0.841192]";
}

operators! {
    /// x where positive, else `alpha` · x.
    leaky_relu leaky_relu_into leaky_relu_ (&self, alpha: f32) => WithScalar { op: BinaryOp::LeakyRelu, scalar: alpha };
    errors "Not a floating-point tensor, or out of memory.";
    example "let x = executor.tensor(&[2], &[-4f32, 2.0])?;"; ("0.25") => "[-1.0,  2.0]";

    /// x where positive, else `alpha` · (eˣ − 1).
    elu elu_into elu_ (&self, alpha: f32) => WithScalar { op: BinaryOp::Elu, scalar: alpha };
    errors "Not a floating-point tensor, or out of memory.";
    example "let x = executor.tensor(&[2], &[-100f32, 2.0])?;"; ("0.5") => "[-0.5,  2.0]";

    /// clamp(`alpha` · x + 1/2, 0, 1): ONNX has 0.2 for `alpha`, PyTorch 1/6.
    hard_sigmoid hard_sigmoid_into hard_sigmoid_ (&self, alpha: f32) => WithScalar { op: BinaryOp::HardSigmoid, scalar: alpha };
    errors "Not a floating-point tensor, or out of memory.";
    example "let x = executor.tensor(&[2], &[-9f32, 1.0])?;"; ("0.25") => "[ 0.0, 0.75]";

    /// Elements below `min` become `min`, those above `max` become `max`.
    clamp clamp_into clamp_ (&self, min: f64, max: f64) => Clamp { min: Some(min.into()), max: Some(max.into()) };
    errors "A data type it does not take, or bounds that the type does not have.";
    example "let x = executor.tensor(&[3], &[-5i32, 2, 9])?;"; ("0.0", "4.0") => "[0, 2, 4]";

    /// `self · b + c`, broadcast, rounded once in f32.
    fma fma_into fma_ (&self, b: &Tensor, c: &Tensor) => Fma, Some(b), Some(c);
    errors "Shapes that do not broadcast, or types that differ.";
    example "let x = executor.tensor(&[2], &[1f32, 2.0])?;\nlet (b, c) = (executor.tensor(&[1], &[10f32])?, executor.tensor(&[1], &[0.5f32])?);";
    ("&b", "&c") => "[10.5, 20.5]";
}
