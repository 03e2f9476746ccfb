//! What the tasks multiply: rows of a head, their transposed panel, and products of a few rows with either, by vectors.

use std::ops::Range;

use crate::{
    float::Float,
    matmul::cpu::{
        level::Level,
        operand::{Load, Values, with_values},
        simd::{Simd, Work},
    },
};

/// Rows of a panel.
pub(super) const BLOCK: usize = 32;

/// Rows that share the loads of a panel: buffers of rows have whole groups.
pub(super) const GROUP: usize = 8;

/// Elements of a row in memory are whole vectors.
const VECTOR: usize = 16;

/// Rows of one width, widened and filled up with zeros to whole groups of whole vectors.
pub(super) struct Rows {
    pub(super) values: Vec<f32>,
    pub(super) width: usize,
    pub(super) stride: usize,
}

impl Rows {
    pub(super) fn new(count: usize, width: usize) -> Self {
        let stride = width.max(1).next_multiple_of(VECTOR);
        Self { values: vec![0.0; count.next_multiple_of(GROUP) * stride], width, stride }
    }

    pub(super) fn row(&mut self, index: usize) -> &mut [f32] {
        &mut self.values[index * self.stride..][..self.width]
    }

    pub(super) fn load(&mut self, index: usize, values: Values<'_>, start: usize) {
        let row = self.row(index);
        if !row.is_empty() {
            with_values!(values, |values| row.iter_mut().zip(&values[start..]).for_each(|(to, from)| *to = from.to_f32()));
        }
    }
}

/// Up to [`BLOCK`] rows, and the same transposed: element `e` of row `i` at `32 e + i`.
pub(super) struct Panel {
    pub(super) rows: Rows,
    pub(super) transposed: Vec<f32>,
    count: usize,
}

impl Panel {
    pub(super) fn new(width: usize) -> Self {
        let rows = Rows::new(BLOCK, width);
        Self { transposed: vec![0.0; BLOCK * rows.stride], rows, count: 0 }
    }

    /// Takes the rows that begin at these places.
    pub(super) fn load(&mut self, level: Level, values: Values<'_>, starts: impl Iterator<Item = usize>) {
        let mut places = [0; BLOCK];
        let count = places.iter_mut().zip(starts).map(|(place, start)| *place = start).count();
        if count < self.count {
            self.rows.values.fill(0.0);
            self.transposed.fill(0.0);
        }
        self.count = count;
        let (stride, width) = (self.rows.stride, self.rows.width);
        let (rows, transposed) = (&mut self.rows.values[..], &mut self.transposed[..]);
        with_values!(values, |values| level.run(Transpose { values, places: &places[..count], width, stride, rows, transposed }));
    }

    /// Whether each element is a finite number: then a product with a factor of zero adds nothing.
    pub(super) fn is_finite(&self) -> bool {
        greatest_bits(&self.rows.values) < f32::INFINITY.to_bits()
    }
}

crate::simd! {
    fn greatest_bits(values: &[f32]) -> u32 {
        values.iter().fold(0, |most: u32, x| most.max(x.to_bits() & i32::MAX as u32))
    }
}

struct Transpose<'a, T> {
    values: &'a [T],
    places: &'a [usize],
    width: usize,
    stride: usize,
    rows: &'a mut [f32],
    transposed: &'a mut [f32],
}

impl<T: Load> Work for Transpose<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let whole = self.width - self.width % S::LANES;
        let groups = self.places.len() - self.places.len() % S::LANES;
        for first in (0..groups).step_by(S::LANES) {
            for at in (0..whole).step_by(S::LANES) {
                self.square(simd, first, at);
            }
            self.elements(first..first + S::LANES, whole..self.width);
        }
        self.elements(groups..self.places.len(), 0..self.width);
    }
}

impl<T: Load> Transpose<'_, T> {
    #[inline(always)]
    fn square<S: Simd>(&mut self, simd: S, first: usize, at: usize) {
        let mut square = [simd.splat(0.0); 16];
        for i in 0..S::LANES {
            let source = &self.values[self.places[first + i] + at..][..S::LANES];
            let row = &mut self.rows[(first + i) * self.stride + at..][..S::LANES];
            // SAFETY: both slices have as many elements as a vector.
            unsafe {
                square[i] = T::load(simd, source.as_ptr());
                simd.store(row.as_mut_ptr(), square[i]);
            }
        }
        simd.transpose(&mut square[..S::LANES]);
        for (i, column) in square.iter().enumerate().take(S::LANES) {
            let target = &mut self.transposed[(at + i) * BLOCK + first..][..S::LANES];
            // SAFETY: as above.
            unsafe { simd.store(target.as_mut_ptr(), *column) };
        }
    }

    #[inline(always)]
    fn elements(&mut self, rows: Range<usize>, elements: Range<usize>) {
        for row in rows {
            for element in elements.clone() {
                let x = self.values[self.places[row] + element].to_f32();
                self.rows[row * self.stride + element] = x;
                self.transposed[element * BLOCK + row] = x;
            }
        }
    }
}

/// `out[r, c] = Σ_j a[r, j] · b[j, c]` over `terms`, one fma after the other from +0.0; with `added`, that sum is added to what is there.
pub(super) struct Products<'a> {
    /// Whole groups of rows.
    pub(super) a: &'a [f32],
    pub(super) a_stride: usize,
    pub(super) b: &'a [f32],
    pub(super) b_stride: usize,
    pub(super) terms: Range<usize>,
    pub(super) out: &'a mut [f32],
    /// Whole vectors.
    pub(super) columns: usize,
    pub(super) added: bool,
}

impl Work for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { a, a_stride, b, b_stride, terms, out, columns, added } = self;
        assert!(columns.is_multiple_of(S::LANES) && terms.end <= a_stride && columns <= b_stride && b.len() >= terms.end * b_stride);
        for (a, out) in a.chunks_exact(GROUP * a_stride).zip(out.chunks_exact_mut(GROUP * columns)) {
            for column in (0..columns).step_by(S::LANES) {
                let mut sums = [simd.splat(0.0); GROUP];
                for j in terms.clone() {
                    // SAFETY: `b` has whole rows up to the last term, and `columns` of each; a group of `a` has `GROUP` rows of `a_stride` elements.
                    unsafe {
                        let b = simd.load(b.as_ptr().add(j * b_stride + column));
                        for (row, sum) in sums.iter_mut().enumerate() {
                            *sum = simd.fma(simd.splat(*a.as_ptr().add(row * a_stride + j)), b, *sum);
                        }
                    }
                }
                for (row, sum) in sums.into_iter().enumerate() {
                    let target = &mut out[row * columns + column..][..S::LANES];
                    // SAFETY: the slice has as many elements as a vector.
                    unsafe {
                        let sum = if added { simd.add(simd.load(target.as_ptr()), sum) } else { sum };
                        simd.store(target.as_mut_ptr(), sum);
                    }
                }
            }
        }
    }
}
