//! Which engine computes a product: rows of `B` one after the other where there are few rows of `A`, else register tiles.

use super::{
    gemm,
    level::Level,
    operand::{Matrix, Target},
    plan::Summation,
    rows,
};
use crate::dot;

/// Computes `target = a * b^T`: `a` is `[m, k]`, `b` `[n, k]` and `target` `[m, n]`.
pub(crate) fn product(summation: Summation, a: Matrix<'_>, b: Matrix<'_>, target: &Target<'_>) {
    let level = Level::best();
    if target.rows() == 0 || target.columns() == 0 {
        return;
    }
    if summation == Summation::Strict && dot::applies(a.dtype(), b.dtype()) {
        return dot::cpu::product(level, a, b, target);
    }
    if rows::are_few(summation, a.rows(), a.columns()) && b.has_contiguous_rows() {
        return rows::linear(level, a, b, target);
    }
    if let Some(target) = target.transposed_vector().filter(|_| a.has_contiguous_rows()) {
        return rows::linear(level, b, a, &target);
    }
    gemm::gemm(level, summation, &[[a, b]], target);
}

/// Computes `target = Σ a * b^T` in fast order over the products `[a, b]`, each with a summed extent of its own.
pub(crate) fn sum(products: &[[Matrix<'_>; 2]], target: &Target<'_>) {
    if target.rows() > 0 && target.columns() > 0 {
        gemm::gemm(Level::best(), Summation::Fast, products, target);
    }
}
