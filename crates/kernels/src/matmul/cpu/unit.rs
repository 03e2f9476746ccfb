use super::{
    level::Level,
    operand::{Matrix, Values},
    pack::pack,
    plan::{Plan, Summation},
    tile::Tile,
};

#[cfg(target_arch = "x86_64")]
use super::bf16::{Bf16Pairs, pack_pairs};

/// What multiplies panels, and so what their elements are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// f32, by fused multiply-add.
    Vectors(Level),
    /// Pairs of bf16, by the processor's own dot products.
    #[cfg(target_arch = "x86_64")]
    Bf16Pairs(Bf16Pairs),
}

impl Unit {
    /// The fastest that may sum these operands in this order.
    pub(crate) fn best(level: Level, summation: Summation, a: Values<'_>, b: Values<'_>) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let (Level::Avx512(_), Summation::Fast, Values::Bf16(_), Values::Bf16(_)) = (level, summation, a, b)
            && let Some(pairs) = Bf16Pairs::detect()
        {
            return Unit::Bf16Pairs(pairs);
        }
        let _ = (summation, a, b);
        Unit::Vectors(level)
    }

    /// Elements that a row of `k` values has in a panel.
    pub(crate) fn elements(self, k: usize) -> usize {
        match self {
            Unit::Vectors(_) => k,
            #[cfg(target_arch = "x86_64")]
            Unit::Bf16Pairs(_) => k.div_ceil(2),
        }
    }

    /// Packs rows of a matrix into a panel.
    pub(crate) fn pack(self, plan: &Plan, matrix: Matrix<'_>, rows: [usize; 2], width: usize, panel: &mut [f32]) {
        match self {
            Unit::Vectors(level) => pack(level, plan, matrix, rows, width, panel),
            #[cfg(target_arch = "x86_64")]
            Unit::Bf16Pairs(pairs) => pack_pairs(pairs, plan, matrix, rows, width, panel),
        }
    }

    /// Sums a tile.
    pub(crate) fn run(self, tile: Tile<'_>) {
        match self {
            Unit::Vectors(level) => level.run(tile),
            #[cfg(target_arch = "x86_64")]
            Unit::Bf16Pairs(pairs) => pairs.run(tile),
        }
    }
}
