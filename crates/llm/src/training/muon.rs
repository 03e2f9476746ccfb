//! What Muon makes of a matrix.

use elinvar::{Error, Result, Tensor};

/// Of the quintic polynomial that moves singular values towards 1 (Jordan et al., *Muon*, 2024).
const COEFFICIENTS: [f64; 3] = [3.4445, -4.775, 2.0315];
const STEPS: usize = 5;
/// Shorter matrices are not stretched to the length 1.
const SHORTEST: f64 = 1e-7;

/// About the orthogonal matrix nearest to `update [rows, columns]`, times 0.2 √max(rows, columns), by Newton and Schulz's iteration.
pub(super) fn orthogonal(update: &Tensor) -> Result<Tensor> {
    let [rows, columns] = update.shape()[..] else { return Err(Error::internal(format!("Muon of an array of shape {:?}", update.shape()))) };
    let [a, b, c] = COEFFICIENTS;
    let is_tall = rows > columns;
    let length = update.sum_square(&[], false)?.sqrt()?;
    let mut x = update.div(&length.clamp(SHORTEST, f64::from(f32::MAX))?)?;
    if is_tall {
        x = x.transpose(0, 1)?;
    }
    for _ in 0..STEPS {
        let gram = x.linear(&x, None)?;
        let factor = (&gram * b)?.add(&(gram.matmul(&gram)? * c)?)?;
        x = (&x * a)?.add(&factor.matmul(&x)?)?;
    }
    if is_tall {
        x = x.transpose(0, 1)?;
    }
    x * (0.2 * (rows.max(columns) as f64).sqrt())
}
