//! The CPU kernels: integers of both sides, then for few rows a column's blocks one after the other, with lanes along them, else tiles of rows and columns.
//!
//! Two instructions multiply pairs of 16-bit integers, which makes four products in each i32: 4 · 32767 · 16383 < 2^31. Their sums are taken modulo 2^32, and
//! those of their upper halves apart. The difference of both, modulo 2^32, is the sum of the lower halves. So a block's sum is two integers below 2^24, which
//! one fused multiply-add adds and rounds once.

mod few;
mod integers;
mod tiles;

use super::Side;
use crate::matmul::cpu::{
    level::Level,
    operand::{Matrix, Target},
};

/// Computes `target = a * b^T`: `a`, the left side, is `[m, k]`, `b` `[n, k]` and `target` `[m, n]`.
pub(crate) fn product(level: Level, a: Matrix<'_>, b: Matrix<'_>, target: &Target<'_>) {
    if a.rows() <= few::MAX_ROWS && b.has_contiguous_rows() {
        return few::product(level, (Side::Left, a), (Side::Right, b), target);
    }
    match target.transposed_vector().filter(|_| a.has_contiguous_rows()) {
        Some(target) => few::product(level, (Side::Right, b), (Side::Left, a), &target),
        None => tiles::product(level, a, b, target),
    }
}
