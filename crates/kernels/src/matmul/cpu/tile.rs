//! The register tile: `ROWS x COLUMNS` sums by outer products of packed panels, in the order of a [`Plan`].

use super::{
    plan::{LEVELS, Plan},
    simd::{Level, Simd, Work},
};

/// Elements of the largest tile.
pub(crate) const MAX_ELEMENTS: usize = 14 * 32;

/// Where the stack holds +0.0, for merging with sums of no elements.
const EMPTY: usize = LEVELS;

/// The sums in the making, one tile for each level; the last level is the result.
#[repr(align(64))]
pub(crate) struct Stack([[f32; MAX_ELEMENTS]; LEVELS + 1]);

impl Stack {
    pub(crate) fn new() -> Self {
        Self([[0.0; MAX_ELEMENTS]; LEVELS + 1])
    }

    /// The finished sums, row-major.
    pub(crate) fn result(&mut self) -> &mut [f32; MAX_ELEMENTS] {
        &mut self.0[LEVELS - 1]
    }
}

/// The shape of the register tile of a level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Rows of the tile.
    pub(crate) rows: usize,
    /// Rows of a packed panel of the left operand: `rows`, rounded up to whole vectors.
    pub(crate) left: usize,
    /// Columns of the tile and rows of a packed panel of the right operand.
    pub(crate) right: usize,
}

impl Shape {
    pub(crate) fn of(level: Level) -> Self {
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => Self { rows: 14, left: 16, right: 32 },
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => Self { rows: 6, left: 8, right: 16 },
            Level::Portable(_) => Self { rows: 4, left: 8, right: 16 },
        }
    }
}

/// Multiplies a packed left panel with a packed right panel; the result is the top of `stack`.
pub(crate) fn multiply(level: Level, plan: &Plan, left: &[f32], right: &[f32], stack: &mut Stack) {
    let shape = Shape::of(level);
    assert!(left.len() >= shape.left * plan.k() && right.len() >= shape.right * plan.k());
    if plan.k() == 0 {
        stack.result().fill(0.0);
        return;
    }
    level.run(Tile { plan, left, right, stack });
}

struct Tile<'a> {
    plan: &'a Plan,
    left: &'a [f32],
    right: &'a [f32],
    stack: &'a mut Stack,
}

impl Work for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // The shapes of `Shape::of`, as constants.
        match S::LANES {
            16 => self.sum::<S, 14, 16>(simd),
            _ if S::PORTABLE => self.sum::<S, 4, 8>(simd),
            _ => self.sum::<S, 6, 8>(simd),
        }
    }
}

impl Tile<'_> {
    #[inline(always)]
    fn sum<S: Simd, const ROWS: usize, const LEFT: usize>(self, simd: S) {
        let (mut left, mut right) = (self.left.as_ptr(), self.right.as_ptr());
        for step in self.plan.steps() {
            let mut sums = [[simd.splat(0.0); 2]; ROWS];
            for _ in 0..step.run {
                // SAFETY: the runs of a plan have k elements together, and the panels hold k rows of `LEFT` and `2 * LANES`.
                unsafe {
                    let columns = [simd.load(right), simd.load(right.add(S::LANES))];
                    for row in 0..ROWS {
                        let value = simd.splat(*left.add(row));
                        sums[row][0] = simd.fma(value, columns[0], sums[row][0]);
                        sums[row][1] = simd.fma(value, columns[1], sums[row][1]);
                    }
                    left = left.add(LEFT);
                    right = right.add(2 * S::LANES);
                }
            }
            for level in 0..usize::from(step.merges) {
                let empty = step.empty >> level & 1 == 1;
                let earlier = self.stack.0[if empty { EMPTY } else { level }].as_ptr();
                for row in 0..ROWS {
                    for half in 0..2 {
                        // SAFETY: a tile has at most `MAX_ELEMENTS` elements.
                        let earlier = unsafe { simd.load(earlier.add((2 * row + half) * S::LANES)) };
                        sums[row][half] = simd.add(earlier, sums[row][half]);
                    }
                }
            }
            let target = self.stack.0[usize::from(step.level)].as_mut_ptr();
            for row in 0..ROWS {
                for half in 0..2 {
                    // SAFETY: as above.
                    unsafe { simd.store(target.add((2 * row + half) * S::LANES), sums[row][half]) };
                }
            }
        }
    }
}
