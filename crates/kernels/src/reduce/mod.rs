//! Reductions along any set of axes, and the position of the largest or smallest element along one ([`ArgReduce`]).
//!
//! * Memory: the input is read once (twice for `log_sum_exp`), whichever axes are reduced: rows along the last axis, else lines of
//!   neighbouring outputs.
//! * Order: an output's elements, in row-major order over the reduced axes, are a row of [`crate::order`]; `sum_square` and `l2` fold by
//!   `fma(x, x, a)`. f16 and bf16 are folded in f32 and rounded once.
//! * `mean = Σ x / n`; `l2 = sqrt(Σ x²)`; `log_sum_exp = log Σ exp(x − m) + m` with `m = max x` (zero where that is not finite).
//! * Error, before the rounding of the output: `(d(n) + 1) · 2^-24 · Σ |x|` for `sum`, as much over `n` for `mean`; relative
//!   `(d(n) + 1) · 2^-24` for `sum_square`, `prod` with `n` for `d(n)`, half for `l2`; `(d(n) + 3) · 2^-24` absolute beside `2^-23` relative
//!   for `log_sum_exp`; none for `max` and `min`.
//! * A NaN among the elements makes the result NaN. Nothing reduces to the identity: 0, 1, −∞ (or the smallest integer) for `max`, +∞
//!   (or the largest) for `min`, −∞ for `log_sum_exp`, NaN for `mean`.
//! * Integers take part in `sum`, `prod`, `max` and `min` and wrap; `max` and `min` of bools are "any" and "all".

mod arg;
mod arg_cpu;
mod cpu;
mod geometry;
mod gradient;
mod integer;
#[cfg(any(test, feature = "conformance"))]
pub(crate) mod oracle;
mod reduction;

use elinvar_core::{DType, DeviceProperties, HostKernel, KernelKey, MetalFile, MetalForm, Result};

pub use arg::ArgReduce;
use geometry::{Geometry, SHARED, lay_out, output_shape, reduced_axes};
pub use reduction::Reduction;

use crate::{
    Definition, Description, Launch, Operator, Plan, Port, TensorInfo,
    attributes::attributes,
    metal::metal_file,
    signature::{limited, operands},
};

attributes! {
    /// A reduction. Input `x […]`; output of its type.
    #[derive(Clone, Debug)]
    pub struct Reduce {
        /// The reduced axes, negative ones counting from the end; none for all of them.
        pub axes: Vec<isize> = [],
        /// Keep the reduced axes, with extents of one.
        pub keepdims: bool = true,
    } and {
        /// What is computed.
        pub reduction: Reduction,
    }
}

const FILES: &[MetalFile] = &{
    let [a, b, c, d, e, f, g, h] = SHARED;
    [a, b, c, d, e, f, g, h, metal_file!("reduce/reduce.metal")]
};

/// The kernel, and the bytes of its accumulators.
fn metal(reduction: Reduction, dtype: DType) -> (MetalForm, usize) {
    let reduce = |arguments| MetalForm::new(FILES, "reduce").with_arguments(arguments);
    let form = match reduction {
        Reduction::Sum => reduce(&["Sum"]),
        Reduction::Mean => reduce(&["Mean"]),
        Reduction::Max => reduce(&["Largest"]),
        Reduction::Min => reduce(&["Smallest"]),
        Reduction::Prod => reduce(&["Product"]),
        Reduction::SumSquare => reduce(&["SumSquare"]),
        Reduction::L2 => reduce(&["L2"]),
        Reduction::LogSumExp => MetalForm::new(FILES, "log_sum_exp"),
    };
    (form, dtype.size().max(4))
}

fn kernel(reduction: Reduction, dtype: DType) -> Result<HostKernel> {
    if dtype.is_float() { cpu::kernel(reduction, dtype) } else { integer::kernel(reduction, dtype) }
}

operands! {
    pub(super) mod operands {
        x: read(DType::ALL), "[…]";
        -> y: write(like x), "the shape of x without the reduced axes, or 1 there";
    }
}

const FLOATS: &[Port; 2] = &limited(operands::ALL, DType::FLOATS);
const NUMBERS: &[Port; 2] = &limited(operands::ALL, DType::NUMBERS);

impl Reduction {
    /// The operands: any type has an order, a number has sums.
    const fn ports(self) -> &'static [Port; 2] {
        match self {
            Reduction::Max | Reduction::Min => &operands::ALL,
            Reduction::Sum | Reduction::Prod => NUMBERS,
            Reduction::Mean | Reduction::SumSquare | Reduction::L2 | Reduction::LogSumExp => FLOATS,
        }
    }
}

impl Operator for Reduce {
    fn name(&self) -> &'static str {
        self.reduction.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::of(&self.reduction.ports()[..1], inputs)?;
        let reduced = reduced_axes(&x, &self.axes)?;
        Ok(vec![TensorInfo::of(x.dtype, output_shape(x.shape(), &reduced, self.keepdims)?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        let inputs = operands::Inputs::new(inputs)?;
        let x = inputs.x;
        let geometry = Geometry::new(x.shape(), &reduced_axes(&x, &self.axes)?);
        let key = KernelKey::new(self.reduction.name(), &[x.dtype]).with("columns", geometry.inner > 1);
        let (form, accumulator) = metal(self.reduction, x.dtype);
        let launch = Launch::new(key, kernel(self.reduction, x.dtype)?, &geometry, inputs.parameters(outputs)?).with_metal(form);
        let folds = if self.reduction == Reduction::LogSumExp { 2 } else { 1 };
        Ok(lay_out(launch, &geometry, device, accumulator, folds).into())
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        gradient::gradient(self, inputs, upstream, wanted)
    }
}

macro_rules! description {
    ($reduction:expr, $summary:expr) => {
        Description {
            name: $reduction.name(),
            summary: $summary,
            inputs: $reduction.ports().split_at(1).0,
            outputs: $reduction.ports().split_at(1).1,
            attributes: Reduce::ATTRIBUTES,
            build: |a| Ok(Box::new(Reduce::read(a, $reduction)?)),
        }
    };
}

pub(crate) const DESCRIPTIONS: &[Description] = &[
    description!(Reduction::Sum, "sum along axes"),
    description!(Reduction::Mean, "mean along axes"),
    description!(Reduction::Max, "largest element along axes"),
    description!(Reduction::Min, "smallest element along axes"),
    description!(Reduction::Prod, "product along axes"),
    description!(Reduction::SumSquare, "sum of the squares along axes"),
    description!(Reduction::L2, "square root of the sum of the squares along axes"),
    description!(Reduction::LogSumExp, "logarithm of the sum of the exponentials along axes"),
    arg::ARGMAX,
    arg::ARGMIN,
];
