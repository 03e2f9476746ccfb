//! Reductions along axes, what comes first along one, and running sums; see [`elinvar_kernels::reduce`].

use std::sync::Arc;

use elinvar_core::{DType, Result};
use elinvar_kernels::{
    cumsum::CumSum,
    reduce::{ArgReduce, Reduce, Reduction},
    top_k::TopK,
};

use super::{operators, pair};
use crate::tensor::Tensor;

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident $into:ident = $reduction:ident $x:literal => $shown:literal;)*) => {
        operators! {$(
            $(#[$doc])*
            /// Negative axes count from the end, none stand for all.
            $name $into (&self, axes: &[isize], keepdims: bool) => Reduce { reduction: Reduction::$reduction, axes: axes.to_vec(), keepdims };
            errors "A data type it does not take, an axis outside the shape, or out of memory.";
            example concat!("let x = executor.tensor(", $x, ")?;"); ("&[-1]", "false") => $shown of "x.dtype(), &[2]";
        )*}
    };
}

reductions! {
    /// The sum along axes.
    sum sum_into = Sum "&[2, 2], &[1i32, 2, 3, 4]" => "[3, 7]";
    /// The mean along axes.
    mean mean_into = Mean "&[2, 2], &[1f32, 2.0, 3.0, 4.0]" => "[1.5, 3.5]";
    /// The largest element along axes; NaN if there is one. Of truth values, whether any is true.
    max max_into = Max "&[2, 2], &[1i32, 2, 3, 4]" => "[2, 4]";
    /// The smallest element along axes; NaN if there is one. Of truth values, whether all are true.
    min min_into = Min "&[2, 2], &[1i32, 2, 3, 4]" => "[1, 3]";
    /// The product along axes.
    prod prod_into = Prod "&[2, 2], &[1i32, 2, 3, 4]" => "[ 2, 12]";
    /// The sum of the squares along axes.
    sum_square sum_square_into = SumSquare "&[2, 2], &[3f32, 4.0, 1.0, 0.0]" => "[25.0,  1.0]";
    /// The Euclidean norm along axes: the square root of the sum of the squares.
    norm norm_into = L2 "&[2, 2], &[3f32, 4.0, 1.0, 0.0]" => "[5.0, 1.0]";
    /// The logarithm of the sum of the exponentials along axes.
    logsumexp logsumexp_into = LogSumExp "&[2, 1], &[3f32, 4.0]" => "[3.0, 4.0]";
}

operators! {
    /// Where the largest element along an axis is, the first of equals, as i64.
    argmax argmax_into (&self, axis: isize, keepdims: bool) => position(true, axis, keepdims);
    errors "An axis outside the shape or without elements.";
    example "let x = executor.tensor(&[2, 2], &[1f32, 2.0, 4.0, 3.0])?;"; ("-1", "false") => "[1, 0]" of "DType::I64, &[2]";

    /// Where the smallest element along an axis is, the first of equals, as i64.
    argmin argmin_into (&self, axis: isize, keepdims: bool) => position(false, axis, keepdims);
    errors "An axis outside the shape or without elements.";
    example "let x = executor.tensor(&[2, 2], &[1f32, 2.0, 4.0, 3.0])?;"; ("-1", "false") => "[0, 1]" of "DType::I64, &[2]";

    /// The running sum along an axis. [`CumSum`] has other options: see [`Tensor::apply`].
    cumsum cumsum_into cumsum_ (&self, axis: isize) => CumSum { axis, exclusive: false, reverse: false };
    errors "An axis outside the shape, or bools.";
    example "let x = executor.tensor(&[3], &[1i32, 2, 3])?;"; ("0") => "[1, 3, 6]";
}

fn position(largest: bool, axis: isize, keepdims: bool) -> ArgReduce {
    ArgReduce { largest, axis: Some(axis), keepdims, select_last_index: false, dtype: DType::I64 }
}

impl Tensor {
    /// The `k` largest elements along an axis, best first, and where they are (i64).
    ///
    /// ```
    /// # let executor = elinvar::Executor::new_auto()?;
    /// let x = executor.tensor(&[4], &[1f32, 7.0, 3.0, 5.0])?;
    /// let (values, indices) = x.top_k(2, -1)?;
    /// assert_eq!((values.to_vec::<f32>()?, indices.to_vec::<i64>()?), (vec![7.0, 5.0], vec![1, 3]));
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An axis outside the shape or shorter than `k`.
    pub fn top_k(&self, k: usize, axis: isize) -> Result<(Tensor, Tensor)> {
        pair(self.apply_all(Arc::new(TopK { k, axis, largest: true, sorted: true }), &[])?)
    }
}
