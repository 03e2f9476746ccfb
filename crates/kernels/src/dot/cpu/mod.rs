//! The CPU kernels: integers of both sides, then for few rows a column's blocks one after the other, with lanes along them, else tiles of rows and columns.
//!
//! Two instructions multiply pairs of 16-bit integers, which makes four products in each i32: 4 · 32767 · 16383 < 2^31. Their upper and lower halves are
//! summed apart, both below 2^24 for a block, so that one fused multiply-add rounds their sum once.

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
