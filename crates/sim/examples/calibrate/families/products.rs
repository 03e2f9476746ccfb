//! Matrices times vectors and matrices.

use crate::launch::{Field, Launch, Name};

/// Two products of a batch. The matrix is a little more than a block of a threadgroup, so that there is a whole step and a rest along both sides.
pub(crate) fn gemv(kernel: Name<'_>) -> Option<Launch> {
    if kernel.begins("gemv_wide") {
        return gemv_wide(kernel);
    }
    let number = |part| kernel.number(part);
    let (bm, bn) = (number("bm")?, number("bn")?);
    let (rows, columns) = (bm * number("sm")? * number("tm")?, bn * number("sn")? * number("tn")?);
    let transposed = kernel.begins("gemv_t");
    let (block, step) = if transposed { (columns, rows) } else { (rows, columns) };
    let (outputs, inputs) = (block + 5, step + 7);
    let matrix = inputs * outputs;
    let launch = Launch::groups([outputs.div_ceil(block), 1, 2], [32, bn, bm]);
    let launch = launch.holds("mat", 2 * matrix as usize).holds("in_vec", 2 * inputs as usize).holds("bias", 2 * outputs as usize);
    let launch = launch.holds("out_vec", 2 * outputs as usize).number("in_vec_size", inputs).number("out_vec_size", outputs);
    let launch = launch.number("marix_ld", if transposed { outputs } else { inputs }).number("bias_stride", 1);
    let launch = masks(batches(launch, inputs, matrix, outputs));
    Some(launch.list("mask_strides", &[1.0, 1.0, 1.0, 2.0, 1.0, 1.0]).list("mask_batch_strides", &[4.0, 4.0, 4.0]))
}

fn batches(launch: Launch, vector: u32, matrix: u32, bias: u32) -> Launch {
    let launch = launch.number("batch_ndim", 1).number("batch_shape", 2).number("alpha", 0.75).number("beta", 1.5);
    let launch = launch.number("vector_batch_stride", vector).number("matrix_batch_stride", matrix).number("bias_batch_stride", bias);
    let launch = launch.number("vector_batch_ndim", 1).number("vector_batch_shape", 2);
    let launch = launch.number("matrix_batch_ndim", 1).number("matrix_batch_shape", 2);
    launch.list("index_batch_strides", &[1.0, 1.0]).list("vec_indices", &[1.0, 0.0]).list("mat_indices", &[1.0, 1.0])
}

/// Masks of as many blocks as any kernel here has, most of them set.
fn masks(launch: Launch) -> Launch {
    ["out_mask", "lhs_mask", "rhs_mask", "mat_mask", "vec_mask"].into_iter().fold(launch, |launch, mask| launch.range(mask, 16, 0, 4))
}

fn gemv_wide(kernel: Name<'_>) -> Option<Launch> {
    let (vectors, lanes) = (kernel.number("nv")? + 1, kernel.number("kl")?);
    let (inputs, outputs) = (4 * lanes * 8 + 36, 9);
    let launch = Launch::groups([1, 3, 2], [32, lanes / 8, 1]);
    let launch = launch.holds("mat", 2 * (inputs * outputs) as usize).holds("in_vec", 2 * (vectors * inputs) as usize);
    let launch = launch.holds("out_vec", 2 * (vectors * outputs) as usize).holds("bias", 2 * (vectors * outputs) as usize);
    let launch = launch.number("in_vec_size", inputs).number("out_vec_size", outputs).number("M", vectors);
    let launch = launch.number("matrix_ld", inputs).number("vector_ld", inputs).number("bias_ld", outputs).number("bias_fd", 1);
    Some(batches(launch, vectors * inputs, inputs * outputs, vectors * outputs))
}

/// How a product of MLX's steel kernels is tiled, and its size.
struct Tiles {
    block: [u32; 3],
    warps: [u32; 2],
    size: [u32; 3],
    transposed: [bool; 2],
}

impl Tiles {
    /// `beyond` is what the size is more than whole tiles.
    fn new(kernel: Name<'_>, whole: [u32; 3], beyond: [u32; 3]) -> Option<Self> {
        let number = |part| kernel.number(part);
        let block = [number("bm")?, number("bn")?, number("bk")?];
        let transposed = [kernel.has("_tn_") || kernel.has("_tt_"), kernel.has("_nt_") || kernel.has("_tt_")];
        let size = std::array::from_fn(|axis| whole[axis] * block[axis] + beyond[axis]);
        Some(Self { block, warps: [number("wm")?, number("wn")?], size, transposed })
    }

    fn counts(&self) -> [u32; 2] {
        [self.size[0].div_ceil(self.block[0]), self.size[1].div_ceil(self.block[1])]
    }

    fn launch(&self, depth: u32) -> Launch {
        let [rows, columns] = self.counts();
        Launch::groups([columns, rows, depth], [32, self.warps[1], self.warps[0]])
    }

    /// M, N and K, and the distances of rows of A, B and D.
    fn sizes(&self) -> [i32; 6] {
        let [m, n, k] = self.size.map(|size| size as i32);
        [m, n, k, if self.transposed[0] { m } else { k }, if self.transposed[1] { k } else { n }, n]
    }

    fn elements(&self, launch: Launch, count: u32) -> Launch {
        let [m, n, k] = self.size;
        let launch = launch.holds("A", (count * m * k) as usize).holds("B", (count * n * k) as usize);
        launch.holds("C", (count * m * n) as usize).holds("D", (count * m * n) as usize)
    }

    /// `GEMMParams`, of a batch of one dimension.
    fn parameters(&self, launch: Launch, strides: [i64; 3]) -> Launch {
        let ([rows, columns], [a, b, d]) = (self.counts(), strides);
        let mut fields = self.sizes().map(Field::Int).to_vec();
        fields.extend([columns, rows].map(|tiles| Field::Int(tiles as i32)));
        fields.extend([a, b, d].map(Field::Long));
        fields.extend([0, (self.size[2] / self.block[2]) as i32, 1].map(Field::Int));
        launch.structure("params", &fields)
    }

    fn areas(&self) -> [i64; 3] {
        let [m, n, k] = self.size.map(i64::from);
        [m * k, n * k, m * n]
    }
}

/// A batch of two: αAB + βC, with a rest of every side. In float32 whole tiles.
pub(crate) fn steel_fused(kernel: Name<'_>) -> Option<Launch> {
    let whole = kernel.has("float32_float32");
    let tiles = Tiles::new(kernel, [1, 1, 2], if whole { [0; 3] } else { [3, 5, 3] })?;
    let strides = tiles.areas();
    let launch = tiles.parameters(tiles.elements(tiles.launch(2), 2), strides);
    let launch = launch.structure(
        "addmm_params",
        &[Field::Int(tiles.size[1] as i32), Field::Int(1), Field::Long(strides[2]), Field::Float(0.75), Field::Float(1.5)],
    );
    let launch = launch.number("batch_shape", 2).list("batch_strides", &strides.map(|stride| stride as f64));
    Some(if whole { launch } else { launch.off(&["align_M", "align_N", "align_K"]) })
}

/// Two partitions of K; and their sum.
pub(crate) fn steel_splitk(kernel: Name<'_>) -> Option<Launch> {
    if kernel.begins("steel_gemm_splitk_accum") {
        let launch = Launch::threads([10, 7, 1], [8, 4, 1]).elements(140).number("k_partitions", 2).number("partition_stride", 70);
        return Some(launch.all(&[("ldd", &[10.0]), ("ldc", &[10.0]), ("fdc", &[1.0]), ("alpha", &[0.75]), ("beta", &[1.5])]));
    }
    let beyond = if kernel.has("MN_taligned") { [0, 0] } else { [3, 5] };
    let tiles = Tiles::new(kernel, [1, 1, 4], [beyond[0], beyond[1], if kernel.has("K_taligned") { 0 } else { 3 }])?;
    let ([rows, columns], step) = (tiles.counts(), tiles.block[2] as i32);
    let mut fields = tiles.sizes().to_vec();
    fields.extend([columns as i32, rows as i32, 2, tiles.areas()[2] as i32, 2 * step, 0, 2]);
    let fields: Vec<Field> = fields.into_iter().map(Field::Int).collect();
    Some(tiles.elements(tiles.launch(2), 2).structure("params", &fields))
}

/// Matrices chosen by index; or groups of rows that have a matrix each.
pub(crate) fn steel_gather(kernel: Name<'_>) -> Option<Launch> {
    let tiles = Tiles::new(kernel, [1, 1, 2], [3, 5, 3])?;
    let areas = tiles.areas();
    let unaligned = &["align_M", "align_N", "align_K"];
    let launch = if kernel.has("_rhs_") {
        let [rows, columns] = tiles.counts();
        let launch = Launch::groups([columns, rows + 2, 1], [32, tiles.warps[1], tiles.warps[0]]);
        tiles.parameters(launch, areas).list("offsets", &[0.0, 7.0]).number("num_groups", 2)
    } else {
        let launch = tiles.parameters(tiles.launch(2), [1, 1, areas[2]]);
        let launch = launch.list("lhs_indices", &[1.0, 0.0]).list("rhs_indices", &[1.0, 1.0]);
        let launch = launch.number("indices_shape", 2).number("lhs_strides", 1).number("rhs_strides", 1);
        let launch = launch.number("batch_ndim_a", 1).number("batch_shape_a", 2).number("batch_strides_a", areas[0] as u32);
        launch.number("batch_ndim_b", 1).number("batch_shape_b", 2).number("batch_strides_b", areas[1] as u32)
    };
    Some(tiles.elements(launch, 2).off(unaligned))
}

/// Two segments of K.
pub(crate) fn steel_segmented(kernel: Name<'_>) -> Option<Launch> {
    let tiles = Tiles::new(kernel, [1, 1, 2], [3, 5, 3])?;
    let launch = tiles.parameters(tiles.elements(tiles.launch(2), 2), tiles.areas());
    Some(launch.list("segments", &[0.0, 19.0, 19.0, 35.0]).off(&["align_M", "align_N"]))
}

/// Blocks of the operands and of the result are left out, or multiplied by a mask's number.
pub(crate) fn steel_masked(kernel: Name<'_>) -> Option<Launch> {
    let beyond = if kernel.has("MN_taligned") { [0, 0] } else { [3, 5] };
    let steps = kernel.number("bm")? / kernel.number("bk")?;
    let tiles = Tiles::new(kernel, [1, 1, 2 * steps], [beyond[0], beyond[1], if kernel.has("K_taligned") { 0 } else { 3 }])?;
    let launch = masks(tiles.parameters(tiles.elements(tiles.launch(1), 1), tiles.areas()));
    let launch = launch.number("batch_shape", 1).list("batch_strides", &[0.0; 6]);
    Some(launch.list("mask_strides", &[1.0, 4.0, 1.0, 4.0, 1.0, 4.0]))
}
