//! Matrices of weights: plain tensors, or quantised in blocks.

use std::sync::Arc;

use elinvar::{
    DType, Error, Executor, Result, Tensor,
    kernels::{
        quantized::{CHUNK, Format},
        quantized_linear::QuantizedLinear,
    },
};

/// A matrix `[rows, columns]`.
#[derive(Clone)]
pub(super) enum Matrix {
    /// A tensor of floats.
    Plain(Tensor),
    /// Packed rows of blocks.
    Packed {
        /// u8, `[rows, packed bytes of a row]`.
        rows: Tensor,
        /// The blocks' format.
        format: Format,
        /// Elements of a row.
        columns: usize,
        /// Whether activations have about 31 bits, not 16.
        wide: Option<Wide>,
    },
}

impl Matrix {
    /// `x Wᵀ + bias`.
    pub(super) fn linear(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => x.linear(weight, bias),
            Self::Packed { rows, format, wide: None, .. } => x.quantized_linear(rows, bias, *format),
            Self::Packed { rows, format, wide: Some(wide), .. } => {
                let y = wide.linear(x, rows, *format)?;
                bias.map_or(Ok(y.clone()), |bias| y.add(bias))
            }
        }
    }

    /// `[rows, columns]`.
    pub(super) fn extents(&self) -> [usize; 2] {
        match self {
            Self::Plain(weight) => [weight.shape()[0], weight.shape()[1]],
            Self::Packed { rows, columns, .. } => [rows.shape()[0], *columns],
        }
    }

    /// Its elements, f32.
    pub(super) fn decoded(&self) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => weight.cast(DType::F32),
            Self::Packed { rows, format, columns, .. } => rows.dequantize(*format, *columns),
        }
    }

    /// Some of its rows.
    pub(super) fn slice(&self, start: usize, count: usize) -> Result<Self> {
        Ok(match self {
            Self::Plain(weight) => Self::Plain(weight.slice(0, start, count, 1)?),
            Self::Packed { rows, format, columns, wide } => {
                Self::Packed { rows: rows.slice(0, start, count, 1)?, format: *format, columns: *columns, wide: wide.clone() }
            }
        })
    }

    /// The rows that indices name, f32.
    pub(super) fn gather(&self, indices: &Tensor) -> Result<Tensor> {
        match self {
            Self::Plain(weight) => weight.gather(indices, 0)?.cast(DType::F32),
            Self::Packed { rows, format, columns, .. } => rows.gather(indices, 0)?.dequantize(*format, *columns),
        }
    }

    /// Gives activations about 31 bits, if the matrix is in blocks.
    pub(super) fn widen(&mut self, to: &Wide) {
        match self {
            Self::Plain(_) => {}
            Self::Packed { wide, .. } => *wide = Some(to.clone()),
        }
    }
}

/// Products with activations of about 31 bits.
///
/// [`quantized_linear`](elinvar::kernels::quantized_linear) makes of 32 neighbours 16-bit multiples of a scale. Here it multiplies another row beside each: what
/// that leaves of x, at most half a scale, whose own error is at most 2^-32 of the largest of the 32. The weights are read once, the products are added.
#[derive(Clone)]
pub(super) struct Wide {
    /// How often the multiples are subtracted in each row, `[2, 1, 1]`: never and once, negated.
    factors: Tensor,
}

impl Wide {
    pub(super) fn new(executor: &Executor) -> Result<Self> {
        Ok(Self { factors: executor.tensor(&[2, 1, 1], &[0f32, -1.0])? })
    }

    /// `x Wᵀ`, of an x of f32.
    fn linear(&self, x: &Tensor, rows: &Tensor, format: Format) -> Result<Tensor> {
        let both = Arc::new(QuantizedLinear::new(format));
        let y = x.executor().apply(both, &[Some(&self.rows(x)?), Some(rows)])?;
        let y = y.into_iter().next().ok_or_else(|| Error::internal("a linear layer gave nothing"))?;
        y.i(0)?.add(&y.i(1)?)
    }

    /// x, and what its multiples leave of it: `[2, …]`.
    fn rows(&self, x: &Tensor) -> Result<Tensor> {
        let chunks = x.reshape(&[1, x.shape().elements() / CHUNK, CHUNK])?;
        // As the operator has it. What is too small for a scale is zero there, in both rows.
        let scale = (chunks.abs()?.max(&[-1], true)? / 32767.0)?.clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX))?;
        let multiples = chunks.mul(&scale.reciprocal()?)?.round()?;
        let dims: Vec<usize> = [2].iter().chain(x.shape().iter()).copied().collect();
        multiples.mul(&self.factors)?.fma(&scale, &chunks)?.reshape(&dims)
    }
}

#[cfg(test)]
mod tests {
    use elinvar::Precision;
    use elinvar_core::SplitMix64;

    use super::*;

    const COLUMNS: usize = 512;
    const ROWS: usize = 20;

    #[test]
    fn wide_activations_have_the_error_of_f32() {
        let executor = Executor::new_cpu(2.try_into().unwrap()).unwrap().with_precision(Precision::Fast);
        let uniform = |seed: u64, i: usize| (SplitMix64::nth(seed, i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0;
        // One of 32 is large; chunks are of all sizes, one is too small for a scale, one zero.
        let x: Vec<f32> = (0..3 * COLUMNS)
            .map(|i| uniform(1, i) * if i % 37 == 0 { 300.0 } else { 1.0 } * [1.0, 1e-3, 1e4, 1e-37, 0.0, 1.0, 1.0, 1.0][i / CHUNK % 8])
            .collect();
        let bias: Vec<f32> = (0..ROWS).map(|i| uniform(2, i)).collect();
        for format in [Format::Q4_0, Format::Q8_0, Format::Q4K, Format::Q6K, Format::Mxfp4] {
            let weights: Vec<f32> = (0..ROWS * COLUMNS).map(|i| uniform(3, i)).collect();
            let (mut blocks, mut decoded) = (vec![0; format.row_bytes(COLUMNS).unwrap()], vec![0.0; COLUMNS]);
            let mut packed = vec![0; ROWS * format.packed_row_bytes(COLUMNS).unwrap()];
            let mut exact = vec![0.0; 3 * ROWS];
            for (row, packed) in packed.chunks_mut(format.packed_row_bytes(COLUMNS).unwrap()).enumerate() {
                format.encode(&weights[row * COLUMNS..][..COLUMNS], None, &mut blocks).unwrap();
                format.pack(&blocks, packed).unwrap();
                format.decode(&blocks, &mut decoded).unwrap();
                for (text, x) in x.chunks(COLUMNS).enumerate() {
                    exact[text * ROWS + row] = x.iter().zip(&decoded).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() + f64::from(bias[row]);
                }
            }
            let rows = executor.tensor(&[ROWS, packed.len() / ROWS], &packed).unwrap();
            let mut matrix = Matrix::Packed { rows, format, columns: COLUMNS, wide: None };
            let (x, bias) = (executor.tensor(&[3, COLUMNS], &x).unwrap(), executor.tensor(&[ROWS], &bias).unwrap());
            let error = |matrix: &Matrix| {
                let y = matrix.linear(&x, Some(&bias)).unwrap();
                let recorded = executor.fuse(|recorded| matrix.linear(&x.on(recorded)?, Some(&bias))).unwrap();
                assert_eq!(recorded.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
                y.to_vec::<f32>().unwrap().iter().zip(&exact).map(|(y, exact)| (f64::from(*y) - exact).abs()).fold(0.0, f64::max)
            };
            let narrow = error(&matrix);
            matrix.widen(&Wide::new(&executor).unwrap());
            let (wide, greatest) = (error(&matrix), exact.iter().fold(0f64, |most, y| most.max(y.abs())));
            println!("{format}: {narrow:e}, wide {wide:e} of up to {greatest:e}");
            assert!(wide < 1e-6 * greatest && narrow > 10.0 * wide, "{format}: {narrow:e}, wide {wide:e} of up to {greatest:e}");
        }
    }
}
