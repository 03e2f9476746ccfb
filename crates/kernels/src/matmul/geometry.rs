use std::fmt;

use elinvar_core::{DType, MAX_RANK, Result, Shape};

use crate::{
    Precision, TensorInfo,
    signature::{mismatch, misshapen, shape_of},
};

/// Batch axes of a product at most.
pub(super) const BATCH_AXES: usize = MAX_RANK - 1;

/// Where an operand's elements lie: `origin + Σ index[i] * batch[i] + row * strides[0] + k * strides[1]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub(super) dtype: DType,
    pub(super) origin: usize,
    pub(super) batch: [isize; BATCH_AXES],
    pub(super) strides: [isize; 2],
}

/// A batch of products `y[m, n] = Σ_k a[m, k] b[n, k]` with `y` row-major.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(super) batch: [usize; BATCH_AXES],
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Factor,
    pub(super) b: Factor,
    pub(super) alpha: f32,
    pub(super) precision: Precision,
}

/// An operand as a batch of matrices, its rows first.
struct Matrices {
    info: TensorInfo,
    name: &'static str,
    dims: [usize; 2],
    strides: [isize; 2],
    batch: Shape,
    batch_strides: Vec<isize>,
}

impl Matrices {
    /// The last two axes, k last; a single axis is k.
    fn new(info: TensorInfo, name: &'static str, k_first: bool) -> Result<Self> {
        let (dims, strides) = (info.shape(), info.layout.strides());
        let rank = dims.rank();
        if rank == 0 {
            return Err(mismatch(&[shape_of(name, &info)], "at least one axis"));
        }
        if rank == 1 {
            return Ok(Self { info, name, dims: [1, dims[0]], strides: [0, strides[0]], batch: Shape::new(&[])?, batch_strides: Vec::new() });
        }
        let (row, column) = if k_first { (rank - 1, rank - 2) } else { (rank - 2, rank - 1) };
        let batch = Shape::new(&dims[..rank - 2])?;
        let batch_strides = strides[..rank - 2].to_vec();
        Ok(Self { info, name, dims: [dims[row], dims[column]], strides: [strides[row], strides[column]], batch, batch_strides })
    }

    fn factor(&self, batch: &Shape) -> Factor {
        let mut strides = [0; BATCH_AXES];
        let skipped = batch.rank() - self.batch.rank();
        for (axis, (&extent, &stride)) in self.batch.iter().zip(&self.batch_strides).enumerate() {
            strides[skipped + axis] = if extent == 1 { 0 } else { stride };
        }
        Factor { dtype: self.info.dtype, origin: self.info.layout.origin(), batch: strides, strides: self.strides }
    }
}

impl Geometry {
    /// The product of `a […, m, k]` and `b […, k, n]`, or of their transposes, and the extents of the output.
    pub(crate) fn new(a: TensorInfo, b: TensorInfo, [transpose_a, transpose_b]: [bool; 2]) -> Result<(Self, Vec<usize>)> {
        let left = Matrices::new(a, "a", transpose_a)?;
        let right = Matrices::new(b, "b", !transpose_b)?;
        let (geometry, batch) = Self::of(&left, &right)?;
        let rows = (a.shape().rank() > 1).then_some(geometry.m);
        let columns = (b.shape().rank() > 1).then_some(geometry.n);
        let dims = batch.iter().copied().chain(rows).chain(columns).collect();
        Ok((geometry.collapsed(batch.rank()), dims))
    }

    /// The product of `matrix […, n, k]` and `vector […, k]`.
    pub(crate) fn of_vector(vector: TensorInfo, matrix: TensorInfo) -> Result<(Self, Vec<usize>)> {
        let right = Matrices::new(matrix, "matrix", false)?;
        if matrix.shape().rank() < 2 {
            return Err(misshapen!(matrix; "at least two axes"));
        }
        let (dims, strides) = (vector.shape(), vector.layout.strides());
        let Some(last) = dims.rank().checked_sub(1) else {
            return Err(misshapen!(vector; "at least one axis"));
        };
        let left = Matrices {
            info: vector,
            name: "vector",
            dims: [1, dims[last]],
            strides: [0, strides[last]],
            batch: Shape::new(&dims[..last])?,
            batch_strides: strides[..last].to_vec(),
        };
        let (geometry, batch) = Self::of(&left, &right)?;
        let dims = batch.iter().copied().chain([geometry.n]).collect();
        Ok((geometry.collapsed(batch.rank()), dims))
    }

    fn of(left: &Matrices, right: &Matrices) -> Result<(Self, Shape)> {
        let ([m, k], [n, other]) = (left.dims, right.dims);
        let reject = |expected: fmt::Arguments<'_>| mismatch(&[left, right].map(|matrices| shape_of(matrices.name, &matrices.info)), expected);
        if k != other {
            return Err(reject(format_args!("equal extents along the summed axes, not {k} and {other}")));
        }
        let batch = left.batch.broadcast(&right.batch).map_err(|_| reject(format_args!("batches that broadcast")))?;
        let mut extents = [1; BATCH_AXES];
        extents[..batch.rank()].copy_from_slice(&batch);
        let (a, b) = (left.factor(&batch), right.factor(&batch));
        Ok((Self { batch: extents, m, n, k, a, b, alpha: 1.0, precision: Precision::Strict }, batch))
    }

    /// The same, with batch axes along which `b` does not move and `a` goes on like its rows made rows: more rows share one reading of `b`.
    fn collapsed(mut self, rank: usize) -> Self {
        for axis in (0..rank).rev() {
            let (extent, stride) = (self.batch[axis], self.a.batch[axis]);
            if extent == 1 {
                continue;
            }
            if self.b.batch[axis] != 0 || self.m != 1 && stride != self.a.strides[0] * self.m as isize {
                break;
            }
            if self.m == 1 {
                self.a.strides[0] = stride;
            }
            self.m *= extent;
            self.batch[axis] = 1;
        }
        self
    }

    /// A single column as a single row, which has the same elements in the same order.
    pub(super) fn vector_as_row(self) -> Self {
        if self.n == 1 && self.m > 1 { Self { m: 1, n: self.m, a: self.b, b: self.a, ..self } } else { self }
    }

    pub(crate) fn scaled(self, alpha: f32) -> Self {
        Self { alpha, ..self }
    }

    pub(crate) fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// Whether its sums are strict; invariant ones are where no kernel gains by another order.
    pub(super) fn is_strict(&self) -> bool {
        !self.precision.is_fast()
    }

    pub(super) fn dtypes(&self) -> [DType; 2] {
        [self.a.dtype, self.b.dtype]
    }

    /// Batches, rows and columns.
    pub(super) fn extents(&self) -> [usize; 3] {
        [self.batch.iter().product(), self.m, self.n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(dims: &[usize]) -> TensorInfo {
        TensorInfo::new(DType::F32, dims).unwrap()
    }

    #[test]
    fn rows_that_share_b_become_one_product() {
        let (geometry, _) = Geometry::new(info(&[2, 3, 5, 4]), info(&[4, 6]), [false, false]).unwrap();
        assert_eq!((geometry.extents(), geometry.a.strides), ([1, 30, 6], [4, 1]));
        let (geometry, _) = Geometry::new(info(&[2, 3, 5, 4]), info(&[2, 1, 4, 6]), [false, false]).unwrap();
        assert_eq!((geometry.extents(), geometry.a.batch[0]), ([2, 15, 6], 60));
        let (geometry, _) = Geometry::new(info(&[3, 4, 5]), info(&[4, 6]), [true, false]).unwrap();
        assert_eq!(geometry.extents(), [3, 5, 6]);
        let (geometry, _) = Geometry::of_vector(info(&[7, 4]), info(&[6, 4])).unwrap();
        assert_eq!(geometry.extents(), [1, 7, 6]);
    }
}
