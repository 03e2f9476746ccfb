//! Any number of rows: rows and columns in panels, whose tiles are summed in registers, with columns in the lanes.

use super::integers::{Block, Exact, MAX_LANES, Units};
use crate::{
    dot::{BLOCK, Side},
    matmul::cpu::{
        level::Level,
        operand::{Matrix, Target, with_values},
        scratch::Scratch,
        simd::{self, Simd, Work},
    },
    parallel::{spread, spread_parts},
};

/// Integers of the left side that are kept at a time, at most, but for a few panels.
const LEFT: usize = 1 << 22;

/// Integers of a task's panels of columns, at most, but for one.
const RIGHT: usize = 1 << 18;

/// Panels of rows that a task has at least, where there are so many.
const LEAST: usize = 8;

/// Multiplications below which a second thread costs more than it gives.
const SERIAL: usize = 1 << 17;

/// Tasks for each thread: enough to balance.
const TASKS: usize = 4;

/// Rows of a tile, at most.
const MAX_ROWS: usize = 8;

/// Rows and columns of this level's tiles for `m` rows: as many sums as there are registers, and no more rows than fill the tiles.
fn tile(level: Level, m: usize) -> [usize; 2] {
    let [most, width] = match level {
        Level::Portable(_) => [6, 8],
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(_) => [6, 8],
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(_) => [MAX_ROWS, MAX_LANES],
    };
    [m.div_ceil(m.div_ceil(most)), width]
}

/// Computes `target = a * b^T`.
pub(super) fn product(level: Level, a: Matrix<'_>, b: Matrix<'_>, target: &Target<'_>) {
    let ([m, n, k], [height, width]) = ([a.rows(), b.rows(), a.columns()], tile(level, a.rows()));
    let parallel = m * n * k > SERIAL;
    let at_once = (LEFT / k.max(1)).max(LEAST * height).next_multiple_of(height);
    for top in (0..m).step_by(at_once) {
        let rows = at_once.min(m - top);
        let left = Panels::new(level, (Side::Left, a), [top, rows], height, parallel);
        let wanted = if parallel { TASKS * rayon::current_num_threads() } else { 1 };
        let together = (RIGHT / (width * k).max(1)).min(n.div_ceil(width).div_ceil(wanted)).max(1) * width;
        // Where there are few columns, tasks share them and pack the same ones.
        let across = n.div_ceil(together);
        let part = left.count().div_ceil(wanted.div_ceil(across).clamp(1, left.count().div_ceil(LEAST)));
        let down = left.count().div_ceil(part);
        let task = |index: usize| {
            let (column, first) = (index / down * together, index % down * part);
            let right = Panels::new(level, (Side::Right, b), [column, together.min(n - column)], width, false);
            for i in first..left.count().min(first + part) {
                for j in 0..right.count() {
                    let mut sums = [0.0; MAX_ROWS * MAX_LANES];
                    level.run(Tile { rows: height, left: left.panel(i), right: right.panel(j), sums: &mut sums });
                    let ([row, rows], [column, columns]) = (left.lines(i), right.lines(j));
                    for (r, sums) in sums.chunks_exact_mut(width).enumerate().take(rows) {
                        // SAFETY: each tile has elements of its own.
                        unsafe { target.store(row + r, column, &mut sums[..columns]) };
                    }
                }
            }
        };
        if parallel {
            spread(across * down, 1, &task);
        } else {
            (0..across * down).for_each(task);
        }
    }
}

/// Elements of a block of a panel of `width` lines: words of two integers, and units.
const fn block_elements(width: usize) -> usize {
    width * (BLOCK / 2 + 1)
}

/// Lines of a matrix by panels of `width`. Of each block, a word of each line's first two integers, of its next two and so on, then the lines' units. Lines
/// that the last panel lacks are zero.
struct Panels {
    first: usize,
    count: usize,
    width: usize,
    length: usize,
    data: Scratch,
}

impl Panels {
    fn new(level: Level, (side, matrix): (Side, Matrix<'_>), [first, count]: [usize; 2], width: usize, parallel: bool) -> Self {
        let length = matrix.columns().div_ceil(BLOCK) * block_elements(width);
        let mut data = Scratch::new(count.div_ceil(width) * length);
        let pack = |index: usize, panel: &mut [f32]| {
            let start = index * width;
            level.run(Pack { side, matrix, first: first + start, count: width.min(count - start), width, panel });
        };
        if length > 0 && parallel {
            spread_parts(&mut data, length, &pack);
        } else if length > 0 {
            data.chunks_mut(length).enumerate().for_each(|(index, panel)| pack(index, panel));
        }
        Self { first, count, width, length, data }
    }

    fn count(&self) -> usize {
        self.count.div_ceil(self.width)
    }

    fn panel(&self, index: usize) -> &[f32] {
        &self.data[index * self.length..][..self.length]
    }

    /// The lines of a panel: the first and how many.
    fn lines(&self, index: usize) -> [usize; 2] {
        [self.first + index * self.width, self.width.min(self.count - index * self.width)]
    }
}

/// Packs a panel.
struct Pack<'a> {
    side: Side,
    matrix: Matrix<'a>,
    first: usize,
    count: usize,
    width: usize,
    panel: &'a mut [f32],
}

#[repr(align(64))]
struct Lines([[i16; BLOCK]; MAX_LANES]);

impl Work for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        with_values!(self.matrix.values(), |values| self.pack(simd, values));
    }
}

impl Pack<'_> {
    #[inline(always)]
    fn pack<S: Simd, T: Block>(self, simd: S, values: &[T]) {
        let mut lines = Lines([[0; BLOCK]; MAX_LANES]);
        let mut elements = [[T::from_f32(0.0); BLOCK]; MAX_LANES];
        for (block, to) in self.panel.chunks_exact_mut(block_elements(self.width)).enumerate() {
            let (words, units) = to.split_at_mut(self.width * BLOCK / 2);
            gather(values, self.matrix, [self.first, self.count], block * BLOCK, &mut elements);
            let of = Units::new(simd, self.side, &elements[..self.count]);
            for i in 0..self.count {
                of.round(simd, self.side, i, &elements[i], &mut lines.0[i]);
            }
            units.copy_from_slice(&of.units[..self.width]);
            interleave(simd, &lines.0, self.width, words);
        }
    }
}

/// The block from element `start` on of some lines, of which neighbours may be neighbours in memory; what the last one lacks is zero.
#[inline(always)]
fn gather<T: Block>(values: &[T], matrix: Matrix<'_>, [first, count]: [usize; 2], start: usize, lines: &mut [[T; BLOCK]; MAX_LANES]) {
    let length = BLOCK.min(matrix.columns() - start);
    if length < BLOCK {
        lines.as_flattened_mut().fill(T::from_f32(0.0));
    }
    if matrix.has_contiguous_rows() {
        for (i, line) in lines.iter_mut().enumerate().take(count) {
            line[..length].copy_from_slice(&values[matrix.index(first + i, start)..][..length]);
        }
        return;
    }
    for k in 0..length {
        for i in 0..count {
            lines[i][k] = values[matrix.index(first + i, start + k)];
        }
    }
}

/// The words of each line beside those of the others.
#[inline(always)]
fn interleave<S: Simd>(simd: S, lines: &[[i16; BLOCK]; MAX_LANES], width: usize, words: &mut [f32]) {
    if width != S::LANES {
        for (line, integers) in lines.iter().enumerate().take(width) {
            for (word, pair) in words.chunks_exact_mut(width).zip(integers.as_chunks().0) {
                word[line] = f32::from_bits(simd::pair(*pair) as u32);
            }
        }
        return;
    }
    assert!(words.len() == width * BLOCK / 2);
    for place in (0..BLOCK / 2).step_by(S::LANES) {
        let mut vectors = [simd.splat(0.0); MAX_LANES];
        // SAFETY: so many words are there, which are moved only.
        unsafe {
            for i in 0..S::LANES {
                vectors[i] = simd.load(lines[i].as_ptr().cast::<f32>().add(place));
            }
            simd.transpose(&mut vectors[..S::LANES]);
            for i in 0..S::LANES {
                simd.store(words.as_mut_ptr().add((place + i) * width), vectors[i]);
            }
        }
    }
}

/// The products of a panel of rows and one of columns, row by row.
struct Tile<'a> {
    rows: usize,
    left: &'a [f32],
    right: &'a [f32],
    sums: &'a mut [f32; MAX_ROWS * MAX_LANES],
}

impl Work for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.rows {
            1 => self.sum::<S, 1>(simd),
            2 => self.sum::<S, 2>(simd),
            3 => self.sum::<S, 3>(simd),
            4 => self.sum::<S, 4>(simd),
            5 => self.sum::<S, 5>(simd),
            6 => self.sum::<S, 6>(simd),
            7 => self.sum::<S, 7>(simd),
            _ => self.sum::<S, MAX_ROWS>(simd),
        }
    }
}

impl Tile<'_> {
    #[inline(always)]
    fn sum<S: Simd, const ROWS: usize>(self, simd: S) {
        let mut sums = [simd.splat(0.0); ROWS];
        let blocks = self.left.chunks_exact(block_elements(ROWS)).zip(self.right.chunks_exact(block_elements(S::LANES)));
        for (left, right) in blocks {
            let mut exact = [Exact::zero(simd); ROWS];
            for word in (0..BLOCK / 2).step_by(2) {
                let mut columns = [simd.zero_integers(); 2];
                for i in 0..2 {
                    // SAFETY: there are so many words.
                    columns[i] = unsafe { simd.load_integers(right.as_ptr().add((word + i) * S::LANES).cast()) };
                }
                for row in 0..ROWS {
                    let mut pairs = [simd.zero_integers(); 2];
                    for i in 0..2 {
                        // SAFETY: as above.
                        pairs[i] = simd.splat_pair(unsafe { *left.get_unchecked((word + i) * ROWS + row) }.to_bits() as i32);
                    }
                    exact[row].add(simd, simd.add_integers(simd.multiply_pairs(columns[0], pairs[0]), simd.multiply_pairs(columns[1], pairs[1])));
                }
            }
            // SAFETY: a vector of units follows the words.
            let units = unsafe { simd.load(right.as_ptr().add(S::LANES * BLOCK / 2)) };
            for row in 0..ROWS {
                let units = simd.multiply(simd.splat(left[ROWS * BLOCK / 2 + row]), units);
                sums[row] = simd.add(sums[row], simd.multiply(exact[row].rounded(simd), units));
            }
        }
        for row in 0..ROWS {
            // SAFETY: there is room for so many vectors.
            unsafe { simd.store(self.sums.as_mut_ptr().add(row * S::LANES), sums[row]) };
        }
    }
}
