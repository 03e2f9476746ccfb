//! Which kernel a product takes on a GPU, and over how many threadgroups.

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Result};

use super::{
    geometry::Geometry,
    host::{self, Operand, Params},
    operands::{self, AT},
};
use crate::{
    Argument, Launch, dot,
    launch::product_operations,
    metal::{self, metal_file},
    order,
};

/// Lines of operands; needed by tiles.
pub(crate) const LINES: MetalFile = metal_file!("matmul/lines.metal");

/// Tiles of strict dot products, after [`order::METAL`] and [`order::LANES`].
pub(crate) const DOT: MetalFile = metal_file!("matmul/dot.metal");

/// A row that a threadgroup keeps, after [`order::METAL`].
pub(crate) const SHARED_ROW: MetalFile = metal_file!("matmul/shared_row.metal");

/// Threadgroups' tiles of strict dot products, after [`order::METAL`] and [`order::LANES`].
pub(crate) const STRICT: MetalFile = metal_file!("matmul/strict.metal");

/// Tiles of fast products.
pub(crate) const FAST: MetalFile = metal_file!("matmul/fast.metal");

/// Which tile a threadgroup has, after a parameter block with `m` and `n`.
pub(crate) const PLACE: MetalFile = metal_file!("matmul/place.metal");

const FRAME: MetalFile = metal_file!("matmul/frame.metal");

const ALONG: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        metal::LAUNCHES,
        order::METAL,
        order::LANES,
        LINES,
        DOT,
        dot::PAIRS,
        dot::INTEGERS,
        dot::TILE,
        Operand::METAL,
        Params::METAL,
        PLACE,
        FRAME,
        metal_file!("matmul/matmul.metal"),
    ],
    "matmul",
);
const ROW: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        metal::LAUNCHES,
        order::METAL,
        order::LANES,
        LINES,
        DOT,
        SHARED_ROW,
        dot::PAIRS,
        dot::INTEGERS,
        dot::TILE,
        dot::ROW,
        Operand::METAL,
        Params::METAL,
        PLACE,
        FRAME,
        metal_file!("matmul/row.metal"),
    ],
    "matmul_row",
);
const ACROSS: MetalForm = MetalForm::new(
    &[metal::TYPES, order::METAL, LINES, Operand::METAL, Params::METAL, PLACE, FRAME, metal_file!("matmul/across.metal")],
    "matmul_across",
);
const TILED: MetalForm = MetalForm::new(
    &[metal::TYPES, order::METAL, order::LANES, LINES, STRICT, Operand::METAL, Params::METAL, PLACE, FRAME, metal_file!("matmul/tiled.metal")],
    "matmul_tiled",
);
const BLOCKS: MetalForm = MetalForm::new(
    &[
        metal::TYPES,
        order::METAL,
        order::LANES,
        LINES,
        metal_file!("matmul/block.metal"),
        Operand::METAL,
        Params::METAL,
        PLACE,
        FRAME,
        metal_file!("matmul/blocks.metal"),
    ],
    "matmul_blocks",
);
const FIXED: MetalForm = MetalForm::new(
    &[metal::TYPES, LINES, dot::PAIRS, dot::INTEGERS, dot::BLOCKS, Operand::METAL, Params::METAL, PLACE, FRAME, metal_file!("matmul/fixed.metal")],
    "matmul_fixed",
);
const GEMM: MetalForm =
    MetalForm::new(&[metal::TYPES, LINES, FAST, Operand::METAL, Params::METAL, PLACE, FRAME, metal_file!("matmul/gemm.metal")], "matmul_fast");

/// Rows (or columns) up to which a product reads most for what it computes: fast sums would gain nothing.
const FEW: usize = 8;

/// Whether sums in another order can gain.
fn many([m, n]: [usize; 2]) -> bool {
    m > FEW && n > FEW
}

/// Rows (or columns) up to which strict sums take no longer than the vendor's library: for more they read an operand more than once.
pub(crate) const FEW_FOR_LIBRARY: usize = 4;

/// Whether the product is fast and the vendor's library gains: from some rows and columns on, and where tiles of strict sums are the other choice, as of
/// the products of adapters of a small rank and of their gradients.
pub(super) fn gains_by_library(geometry: &Geometry) -> bool {
    let (extents, along) = ([geometry.m, geometry.n], geometry.b.strides[1] == 1);
    let is_tiled = || extents[1] > 1 && matches!(Tiling::new(extents, along, Sums::InOrder), Tiling::Tiled { .. });
    !geometry.is_strict() && (geometry.m.min(geometry.n) > FEW_FOR_LIBRARY || is_tiled())
}

/// Columns from which simdgroups with two each are enough for a GPU.
const MANY: usize = 8192;

/// How threadgroups share a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiling {
    /// Strict, few rows, elements of a line are neighbours: four simdgroups with this many rows and columns each.
    Along { rows: u32, columns: u32 },
    /// Strict, one or two rows, elements of neighbouring columns are neighbours: 32 columns.
    Across { rows: u32 },
    /// Strict: `4 down` rows and `64 / down` columns.
    Tiled { down: u32 },
    /// Strict, of 16-bit operands: blocks of integers.
    Fixed,
    /// Simdgroup matrices.
    Fast,
}

/// How the sums of a product are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// In f32, in the canonical order.
    InOrder,
    /// Of integers, as [`crate::dot`] has it.
    Fixed,
    /// In f32, in any order.
    Fast,
}

impl Sums {
    /// Those of a product of these types.
    pub(crate) fn of(is_strict: bool, [left, right]: [DType; 2]) -> Self {
        match is_strict {
            true if dot::applies(left, right) => Sums::Fixed,
            true => Sums::InOrder,
            false => Sums::Fast,
        }
    }
}

impl Tiling {
    /// For `m` rows and `n` columns, `along` if the elements of a column's line in `b` are neighbours.
    pub(crate) fn new([m, n]: [usize; 2], along: bool, sums: Sums) -> Self {
        match m {
            _ if sums == Sums::Fast && many([m, n]) => Tiling::Fast,
            // A second column halves the reads of the row, and the simdgroups.
            0..=1 if along => Tiling::Along { rows: 1, columns: if n < MANY { 1 } else { 2 } },
            0..=FEW if along => Tiling::Along { rows: m.next_power_of_two().min(4) as u32, columns: 2 },
            _ if sums == Sums::Fixed => Tiling::Fixed,
            0..=2 => Tiling::Across { rows: m.max(1) as u32 },
            3..=4 => Tiling::Tiled { down: 1 },
            5..=FEW => Tiling::Tiled { down: 2 },
            _ => Tiling::Tiled { down: 4 },
        }
    }

    /// Rows and columns of a threadgroup.
    fn tile(self) -> [u32; 2] {
        match self {
            Tiling::Along { rows, columns } => [rows, 4 * columns],
            Tiling::Across { rows } => [rows, 32],
            Tiling::Tiled { down } => [4 * down, 64 / down],
            Tiling::Fixed => [dot::EDGE as u32; 2],
            Tiling::Fast => [64, 64],
        }
    }

    /// The launch over enough threadgroups for `batches` products of `m` by `n`, or sums of such products, of operands of these types.
    pub(crate) fn over(self, launch: Launch, [batches, m, n]: [usize; 3], operands: &[[DType; 2]]) -> Result<Launch> {
        let [height, width] = self.tile();
        let tiles = tiles([batches, m, n], [height as usize, width as usize])?;
        let (threads, bytes) = match self {
            Tiling::Along { .. } => (128, 0),
            Tiling::Across { rows } => (1024, 4 * 32 * 32 * rows as usize),
            // Lines of 64 floats and four to spread them.
            Tiling::Tiled { .. } => (256, 4 * 68 * (height + width) as usize),
            Tiling::Fixed => (256, dot::BLOCKS_BYTES),
            Tiling::Fast => (128, operands.iter().map(|types| types.iter().map(|dtype| staged_bytes(*dtype)).sum()).max().unwrap_or(0)),
        };
        Ok(launch.over(Extent::linear(tiles), Extent::linear(threads)).with_threadgroup_memory(bytes))
    }

    fn form(self) -> MetalForm {
        match self {
            Tiling::Along { .. } => ALONG,
            Tiling::Across { .. } => ACROSS,
            Tiling::Tiled { .. } => TILED,
            Tiling::Fixed => FIXED,
            Tiling::Fast => GEMM,
        }
    }

    /// The key with the kernel's constants.
    pub(crate) fn key(self, key: KernelKey, sums: Sums) -> KernelKey {
        match self {
            Tiling::Along { rows, columns } => key.with("rows", rows).with("columns", columns).with("fixed", u32::from(sums == Sums::Fixed)),
            Tiling::Across { rows } => key.with("across", rows),
            Tiling::Tiled { down } => key.with("down", down),
            Tiling::Fixed | Tiling::Fast => key,
        }
    }
}

/// Bytes of threadgroup memory of an operand's part in a fast product: 64 lines of 32 elements and 16 bytes. The finished tile's strips are smaller.
const fn staged_bytes(dtype: DType) -> usize {
    64 * (32 * dtype.size() + 16)
}

/// Threadgroups for `batches` products of `m` by `n`, each with a tile of `height` by `width`.
fn tiles([batches, m, n]: [usize; 3], [height, width]: [usize; 2]) -> Result<u32> {
    let tiles = batches as u128 * m.div_ceil(height) as u128 * n.div_ceil(width) as u128;
    u32::try_from(tiles).map_err(|_| Error::unsupported(format!("{batches} products of {m} by {n}: too many for one launch")))
}

/// Bytes of threadgroup memory that a row of `k` elements takes: whole visits of a simdgroup, in f32.
pub(crate) const fn shared_row_bytes(k: usize) -> usize {
    4 * k.next_multiple_of(32 * 8)
}

/// The same as these sums take it.
pub(crate) const fn kept_row_bytes(k: usize, sums: Sums) -> usize {
    match sums {
        Sums::InOrder | Sums::Fast => shared_row_bytes(k),
        Sums::Fixed => dot::row_bytes(k),
    }
}

/// Bytes of a row up to which threadgroups keep one: two of them find room in a multiprocessor.
const KEPT_ROW: usize = 96 << 10;

/// Simdgroups of a threadgroup that keeps its row, each with a column at a time.
const ROW_SIMDGROUPS: usize = 8;

/// Threadgroups of those that a GPU's core runs at once.
const ROWS_AT_ONCE: usize = 2;

/// Rows and columns of a block of strict sums.
const BLOCK: usize = 64;

/// Visits to its lines that a block makes with what is brought at once.
const BLOCK_VISITS: usize = 4;

/// Bytes of threadgroup memory of a block: twice eight elements of each of these visits for all of its lines, in f32.
const BLOCK_BYTES: usize = 4 * 2 * 8 * BLOCK_VISITS * 2 * BLOCK;

/// A GPU counts rows, columns and k in 32 bits.
pub(crate) fn check_extents(extents: [usize; 3], device: &DeviceProperties) -> Result<()> {
    if device.simd_width > 1 && extents.into_iter().any(|n| n > i32::MAX as usize) {
        return Err(Error::unsupported(format!("a product with m, n, k = {extents:?} on {}: extents below 2^31 expected", device.name)));
    }
    Ok(())
}

/// A product and what becomes of its sums.
pub(crate) struct Product {
    pub(crate) geometry: Geometry,
    pub(crate) bias: Option<DType>,
    pub(crate) output: DType,
}

impl Product {
    /// The launch of a kernel called `name` with `a`, `b`, bias and `y` as its buffers.
    pub(crate) fn launch(&self, name: &'static str, arguments: [Argument; 4], device: &DeviceProperties) -> Result<Launch> {
        let [mut first, mut second, bias, y] = arguments;
        let mut geometry = self.geometry;
        let sums = Sums::of(geometry.is_strict(), geometry.dtypes());
        // Integers of the left side have other bits than those of the right one.
        if self.bias.is_none() && geometry.n == 1 && geometry.m > 1 && sums != Sums::Fixed {
            geometry = geometry.vector_as_row();
            (first, second) = (second, first);
        }
        check_extents([geometry.m, geometry.n, geometry.k], device)?;
        let [a, b] = geometry.dtypes();
        let bias_type = self.bias.unwrap_or(operands::ALL[AT.bias].dtypes[0]);
        let tiling = Tiling::new([geometry.m, geometry.n], geometry.k <= 1 || geometry.b.strides[1] == 1, sums);
        let (dtypes, bound) = ([a, b, bias_type, self.output], [first, second, bias, y]);
        let mut buffers: [_; 4] = std::array::from_fn(|index| operands::ALL[index].bind(dtypes[index], bound[index]));
        buffers[AT.b].0.prefetched = matches!(tiling, Tiling::Along { .. });
        let (extents, params) = (geometry.extents(), Params::new(geometry, self.bias, self.output));
        let [batches, m, n] = extents;
        let operations = product_operations(&[batches, m, n, geometry.k]);
        let launch = |key, form| Launch::new(key, host::run, &params, buffers).with_metal(form).with_operations(operations);
        let key = KernelKey::new(if tiling == Tiling::Fixed { "matmul_fixed" } else { name }, &dtypes);
        let row_bytes = kept_row_bytes(geometry.k, sums);
        match tiling {
            Tiling::Along { rows: 1, .. } if row_bytes <= device.threadgroup_memory.min(KEPT_ROW) => {
                let (threadgroups, words) = row_launch(extents, device)?;
                let key = key.with("ahead", (2 * words / b.size()) as u32).with("fixed", u32::from(sums == Sums::Fixed));
                let launch = launch(key, ROW);
                Ok(launch.over(threadgroups, Extent::linear(32 * ROW_SIMDGROUPS as u32)).with_threadgroup_memory(row_bytes.max(16)))
            }
            Tiling::Tiled { down: 4 } if has_blocks(extents, device)? => {
                let blocks = Extent::linear(tiles(extents, [BLOCK; 2])?);
                Ok(launch(key.with("visits", BLOCK_VISITS as u32), BLOCKS).over(blocks, Extent::linear(256)).with_threadgroup_memory(BLOCK_BYTES))
            }
            Tiling::Along { .. } | Tiling::Across { .. } | Tiling::Tiled { .. } | Tiling::Fixed | Tiling::Fast => {
                tiling.over(launch(tiling.key(key, sums), tiling.form()), extents, &[[a, b]])
            }
        }
    }
}

/// Threadgroups of products of one row, which take columns in turn unless the products are several, and words of 16 bytes that each lane has in flight:
/// fewer where a simdgroup has one column alone.
fn row_launch(extents: [usize; 3], device: &DeviceProperties) -> Result<(Extent, usize)> {
    let all = tiles(extents, [1, ROW_SIMDGROUPS])?;
    let busy = (ROWS_AT_ONCE * device.compute_units.max(1)) as u32;
    let in_turn = extents[0] == 1 && all > busy;
    Ok(if in_turn { (Extent::linear(busy), 8) } else { (Extent::linear(all), 4) })
}

/// Whether blocks keep enough of a GPU busy: one takes a quarter of the time of the tiles it stands for.
fn has_blocks(extents: [usize; 3], device: &DeviceProperties) -> Result<bool> {
    let [_, m, n] = extents;
    let enough = 4 * tiles(extents, [BLOCK; 2])? as usize >= device.compute_units;
    Ok(m.min(n) >= BLOCK / 2 && enough && device.threadgroup_memory >= BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rows_are_summed_strictly_and_many_by_tiles() {
        let tiling = |m, n, along, sums| Tiling::new([m, n], along, sums);
        assert_eq!(tiling(1, 4096, true, Sums::Fast), Tiling::Along { rows: 1, columns: 1 });
        assert_eq!(tiling(2, 4096, false, Sums::InOrder), Tiling::Across { rows: 2 });
        assert_eq!(tiling(100, 8, true, Sums::Fast), Tiling::Tiled { down: 4 });
        assert_eq!(tiling(9, 9, true, Sums::Fast), Tiling::Fast);
        let memory = |operands: &[[DType; 2]]| {
            let launch = Launch::on_gpu(KernelKey::new("matmul", &[]), GEMM, &0u32, []);
            Tiling::Fast.over(launch, [1, 9, 9], operands).unwrap().threadgroup_memory
        };
        let (wide, mixed, narrow) = ([DType::F32; 2], [DType::F32, DType::BF16], [DType::F16; 2]);
        assert_eq!([memory(&[wide]), memory(&[mixed]), memory(&[narrow]), memory(&[mixed, narrow])], [18_432, 14_336, 10_240, 14_336]);
        assert_eq!(tiling(5, 9, true, Sums::InOrder), Tiling::Along { rows: 4, columns: 2 });
        assert_eq!(tiling(5, 9, false, Sums::InOrder), Tiling::Tiled { down: 2 });
        assert_eq!([tiling(1, 9, false, Sums::Fixed), tiling(9, 9, true, Sums::Fixed)], [Tiling::Fixed; 2]);
    }
}
