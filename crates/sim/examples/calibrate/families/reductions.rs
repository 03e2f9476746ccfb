//! Kernels that fold, scan or sort rows and columns.

use crate::launch::{Launch, Name};

/// Three rows: of 100 elements in one pass of 32 threads, or of 5,000 in several passes of 1,024, as MLX launches them.
pub(crate) fn rows(kernel: Name<'_>) -> Option<Launch> {
    let (length, threads) = if kernel.has("looped") { (5000, 1024) } else { (100, 32) };
    let launch = Launch::groups([3, 1, 1], [threads, 1, 1]).elements(15_000).number("axis_size", length);
    Some(launch.all(&[("eps", &[1e-5]), ("w_stride", &[1.0]), ("b_stride", &[1.0]), ("n_rows", &[3.0]), ("rows_per_group", &[1.0])]))
}

pub(crate) fn arg_reduce(_: Name<'_>) -> Option<Launch> {
    Some(Launch::threads([32, 3, 1], [32, 1, 1]).elements(300).all(&[
        ("shape", &[3.0]),
        ("in_strides", &[100.0]),
        ("out_strides", &[1.0]),
        ("ndim", &[1.0]),
        ("axis_stride", &[1.0]),
        ("axis_size", &[100.0]),
    ]))
}

pub(crate) fn reduce(kernel: Name<'_>) -> Option<Launch> {
    match () {
        () if kernel.begins("init_reduce") => Some(Launch::threads([10, 1, 1], [10, 1, 1]).elements(10)),
        () if kernel.begins("all_reduce") => {
            Some(Launch::groups([1, 2, 1], [64, 1, 1]).elements(1000).all(&[("in_size", &[1000.0]), ("row_size", &[500.0])]))
        }
        () if kernel.begins("row_reduce_simple") => {
            Some(Launch::groups([1, 2, 1], [32, 1, 1]).elements(1000).all(&[("reduction_size", &[100.0]), ("out_size", &[6.0])]))
        }
        () if kernel.begins("row_reduce") => row_reduce(kernel),
        () if kernel.begins("col_reduce") => col_reduce(kernel),
        () => None,
    }
}

/// Gives the shape of what is reduced beside the rows or columns: that many steps of that stride, in as many dimensions as the kernel is made for.
fn steps(launch: Launch, kernel: Name<'_>, steps: u32, stride: u32) -> Option<Launch> {
    let (steps, stride) = (f64::from(steps), f64::from(stride));
    let (shape, strides): (&[f64], &[f64]) = match kernel
        .number("small")
        .or(kernel.number("looped"))
        .or(kernel.number("longcolumn"))
        .or(kernel.number("2pass"))
        .or(kernel.number("large"))?
    {
        0 | 1 => (&[steps], &[stride]),
        2 => (&[2.0, steps / 2.0], &[steps / 2.0 * stride, stride]),
        _ => (&[2.0, 1.0, steps / 2.0], &[steps / 2.0 * stride, 7.0, stride]),
    };
    let launch = launch.list("reduce_shape", shape).list("reduce_strides", strides);
    Some(launch.number("reduce_ndim", shape.len() as u32))
}

/// Fifteen sums over several rows each: few rows by a thread, many by a simdgroup; or long rows by a threadgroup.
fn row_reduce(kernel: Name<'_>) -> Option<Launch> {
    let (row, rows) = match () {
        () if kernel.has("looped") => (300, 4),
        () if kernel.has("large") => (6, 40),
        () => (70, 4),
    };
    let launch = match () {
        () if kernel.has("looped") => Launch::groups([1, 5, 3], [64, 1, 1]),
        () if rows == 40 => Launch::groups([1, 5, 3], [32, 1, 1]),
        () => Launch::threads([5, 3, 1], [4, 2, 1]),
    };
    let launch = launch.holds("in", (15 * rows * row) as usize).holds("out", 15).number("row_size", row).number("non_row_reductions", rows);
    let outer = f64::from(rows * row);
    steps(launch.list("shape", &[3.0, 5.0]).list("strides", &[5.0 * outer, outer]).number("ndim", 2), kernel, rows, row)
}

/// The columns of three matrices.
fn col_reduce(kernel: Name<'_>) -> Option<Launch> {
    let (launch, rows, columns, out) = match () {
        () if kernel.has("small") => (Launch::groups([1, 3, 1], [3, 4, 1]), 30, 10, 30),
        () if kernel.has("longcolumn") => (Launch::groups([3, 1, 4], [10, 2, 1]), 30, 10, 120),
        () if kernel.has("2pass") => (Launch::groups([2, 6, 1], [256, 1, 1]), 70, 40, 240),
        () => (Launch::groups([2, 3, 1], [256, 1, 1]), 70, 40, 120),
    };
    let out_size = if kernel.has("longcolumn") { 30 } else { 3 };
    let launch =
        launch.holds("in", (3 * rows * columns) as usize).holds("out", out).number("reduction_size", rows).number("reduction_stride", columns);
    let launch = launch.number("non_col_reductions", 1).number("column_offset", 0).number("out_size", out_size);
    steps(launch.list("shape", &[3.0]).list("strides", &[f64::from(rows * columns)]).number("ndim", 1), kernel, rows, columns)
}

/// Three rows of 300 elements, or columns of 70.
pub(crate) fn scan(kernel: Name<'_>) -> Option<Launch> {
    if kernel.begins("contig_scan") {
        return Some(Launch::groups([1, 3, 1], [64, 1, 1]).elements(900).number("axis_size", 300));
    }
    let reads = if kernel.has("64_") { 2 } else { 4 };
    let launch = Launch::groups([1, 6, 1], [32 * 32 / reads, 1, 1]).elements(3 * 70 * 40);
    Some(launch.number("axis_size", 70).number("stride", 40).number("stride_blocks", 2))
}

/// Two rows, three quarters of what a threadgroup sorts; or one row of one and a half blocks, as the steps of a merge sort get it.
pub(crate) fn sort(kernel: Name<'_>) -> Option<Launch> {
    let (threads, each) = (kernel.number("bn")?, kernel.number("tn")?);
    let block = threads * each;
    let (row, rows) = (block * 3 / 4, block * 3 / 2);
    let of_block = |launch: Launch, size: u32| {
        let launch = launch.elements(2 * size as usize).number("size_sorted_axis", size).number("stride_sorted_axis", 1);
        let launch = launch.number("in_stride_sorted_axis", 1).number("out_stride_sorted_axis", 1);
        let launch = launch.number("in_stride_segment_axis", size).number("out_stride_segment_axis", size);
        let (shape, strides) = (&[2.0], &[f64::from(size)]);
        let launch = launch.number("nc_dim", 1).list("nc_shape", shape).list("nc_strides", strides);
        launch.list("in_nc_strides", strides).list("out_nc_strides", strides)
    };
    let blocks = |launch: Launch| {
        let launch = of_block(launch, rows).number("merge_tiles", 2).number("n_blocks", 2).number("num_tiles", 2);
        launch.range("dev_idxs", rows as usize, 0, rows).range("dev_idxs_in", rows as usize, 0, rows)
    };
    Some(match () {
        () if kernel.begins("sort_mbsort") => blocks(Launch::groups([2, 1, 1], [threads, 1, 1])),
        () if kernel.begins("partition_mbsort") => blocks(Launch::groups([1, 1, 1], [3, 1, 1])),
        () if kernel.begins("merge_mbsort") => {
            let partitions = [0.0, f64::from(block / 2), f64::from(block)];
            blocks(Launch::groups([2, 1, 1], [threads, 1, 1]).list("block_partitions", &partitions))
        }
        () => of_block(Launch::groups([1, 2, 1], [threads, 1, 1]), row),
    })
}

pub(crate) fn dot(kernel: Name<'_>) -> Option<Launch> {
    let (threads, each) = (kernel.number("tg")?, kernel.number("it")?);
    let elements = threads * each + 1001;
    Some(Launch::groups([2, 1, 1], [threads, 1, 1]).elements(elements as usize).number("n", elements))
}
