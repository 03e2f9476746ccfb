//! The launches on a GPU: rows of x as integers first, unless every threadgroup keeps a single row; then all layers in one.

use elinvar_core::{DType, DeviceProperties, Error, Extent, KernelKey, MetalFile, MetalForm, Parameter, Result};

use super::{AT, Layers, Params, QuantizedLinear, SUMS, hopper};
use crate::{
    Argument, Launch, Plan, TensorInfo,
    collective::DeliveryFiles,
    cuda::CudaFeatures,
    dot,
    launch::product_operations,
    math,
    matmul::SHARED_ROW,
    metal::{self, metal_file},
    order,
    quantized::{self, CHUNK},
    rms_norm::{NORMALISED, RmsNorm},
};

const fn files<const N: usize>(delivery: DeliveryFiles) -> [MetalFile; N] {
    let first = [metal::TYPES, metal::LAUNCHES, math::METAL, order::METAL];
    let last = [order::LANES, SHARED_ROW, NORMALISED, Params::METAL, dot::PAIRS, quantized::METAL];
    let own = [
        metal_file!("quantized_linear/integers.metal"),
        metal_file!("quantized_linear/tile.metal"),
        metal_file!("quantized_linear/layers.metal"),
        metal_file!("quantized_linear/quantized_linear.metal"),
        metal_file!("quantized_linear/blocks.metal"),
    ];
    metal::joined(&[&first, delivery.outbox, delivery.row, &last, &own])
}
const FILES: &[MetalFile] = &files::<17>(DeliveryFiles::ALONE);
const DELIVERING: &[MetalFile] = &files::<19>(DeliveryFiles::DELIVERING);

/// Simdgroups of a threadgroup.
const SIMDGROUPS: usize = 8;
/// Threads of a threadgroup.
const THREADS: usize = 32 * SIMDGROUPS;
/// Threads of a threadgroup that normalises a row and makes integers of it, at most.
const NORMALISING: usize = 512;
/// Rows of x that share what is unpacked of a weight.
const ROWS: usize = 4;
/// Simdgroups that share a row of x on a unit where they keep it, in one threadgroup or several.
const AT_ONCE: usize = 16;
/// Least and most rows of a tile on matrix units, and columns of one of their products.
const TILE_ROWS: [usize; 2] = [8, 64];
const COLUMN_BLOCK: usize = 8;
/// Columns of a narrow tile, which is faster for so many rows or where wide ones are too few for the units, and of a wide one, which reads
/// the rows less often.
const NARROW: usize = 32;
const MOST_ROWS_NARROW: usize = 16;
const WIDE: usize = 64;
/// Rows of x from which matrix units gain.
const MANY: usize = 2;
/// Bytes of eight chunks of so many rows of weights in threadgroup memory, and of at most six numbers of each.
const fn staged_bytes(columns: usize) -> usize {
    4 * (72 * columns + 6 * 8 * (columns + 4))
}
/// Bytes of a chunk of a row of x: integers, their sums and their scale.
const CHUNK_BYTES: usize = 2 * CHUNK + 8 + 4;

pub(super) fn plan(operator: QuantizedLinear, layers: &Layers, outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
    if let Some(plan) = hopper::plan(operator, layers, outputs, device)? {
        return Ok(plan);
    }
    let [m, k] = layers.extents();
    let n = [0, 1, 2].map(|index| layers.n(index));
    let chunks = k / CHUNK;
    let shared = order::PARTIALS + CHUNK_BYTES * chunks.next_multiple_of(SUMS);
    let kept = m == 1 && shared <= device.threadgroup_memory;
    let inside = kept && order::row_threads(k) <= THREADS;
    let has_units = device.features().is_some_and(|cuda: &CudaFeatures| cuda.compute_capability >= 80);
    let block = if has_units && m >= MANY { Some(m.next_power_of_two().clamp(TILE_ROWS[0], TILE_ROWS[1])) } else { None };
    // What makes integers of rows normalises them, where a threadgroup has all of one.
    let with_norm = block.is_some() && operator.epsilon.is_some() && order::row_threads(k) <= NORMALISING;
    let mut plan = Plan::default();
    let (mut params, mut x) = (layers.params(operator), Argument::Input(AT.x));
    if let Some(epsilon) = operator.epsilon.filter(|_| !inside && !with_norm) {
        plan.scratch.push(layers.x.bytes());
        x = Argument::Scratch(0);
        let inputs = [Some((layers.x, Argument::Input(AT.x))), layers.norm.map(|norm| (norm, Argument::Input(AT.norm)))];
        plan.add(&RmsNorm { epsilon, ..RmsNorm::default() }, &inputs, &[x], device)?;
    }
    let mut buffers = layers.parameters(outputs)?;
    buffers[AT.x].1 = x;
    let groups = |count: usize| {
        u32::try_from(count).map_err(|_| Error::unsupported(format!("{m} rows of {} columns are too many for one launch", n.iter().sum::<usize>())))
    };
    if !kept {
        let stored = block.map_or(m, |rows| m.next_multiple_of(rows));
        plan.scratch.push(CHUNK_BYTES * stored * chunks);
        let integers = Argument::Scratch(plan.scratch.len() - 1);
        let (x, write) = (buffers[AT.x].clone(), (Parameter::write("stored", layers.x.dtype), integers));
        let launch = |name, dtypes: &[DType], buffers: Vec<(Parameter, Argument)>| {
            let key = block.iter().fold(KernelKey::new(name, dtypes), |key, &rows| key.with("rows", rows as u32));
            Launch::on_gpu(key, MetalForm::new(FILES, name), &params, buffers)
        };
        let over = |launch: Launch, threads: usize| -> Result<Launch> {
            Ok(launch.over(Extent::linear(groups((stored * chunks * threads).div_ceil(THREADS))?), Extent::linear(THREADS as u32)))
        };
        plan.launches.push(match block {
            Some(_) if with_norm => {
                let launch = launch("normalised_row_bytes", &[layers.dtype(AT.norm)], vec![x, buffers[AT.norm].clone(), write]);
                let threads = (k / 8).next_multiple_of(32).clamp(order::row_threads(k), NORMALISING);
                launch.over(Extent::linear(groups(stored)?), Extent::linear(threads as u32)).with_threadgroup_memory(order::PARTIALS)
            }
            Some(rows) => over(launch("quantized_row_bytes", &[layers.x.dtype], vec![x, write]), if rows == TILE_ROWS[0] { 4 } else { 2 })?,
            None => over(launch("quantized_rows", &[layers.x.dtype], vec![x, write]), CHUNK / 8)?,
        });
        buffers[AT.x].1 = integers;
    }
    let types = [AT.x, AT.norm, AT.b0].map(|index| layers.dtype(index));
    let arguments = operator.format.object();
    let operations = product_operations(&[m, k, n.iter().sum()]);
    if let Some(rows) = block {
        let key = KernelKey::new(format!("quantized_linear_blocks_{}", operator.format), &types);
        let tiles_of =
            |columns: usize| if operator.gated { n[0].div_ceil(columns / 2) } else { n.iter().map(|n| n.div_ceil(columns)).sum::<usize>() };
        let is_wide = rows > MOST_ROWS_NARROW && m.div_ceil(rows) * tiles_of(WIDE) >= 2 * device.compute_units;
        let columns = if is_wide { WIDE } else { NARROW };
        let tiles = tiles_of(columns);
        let key = key.with("gated", u32::from(operator.gated)).with("rows", rows as u32).with("columns", columns as u32);
        let form = MetalForm::new(FILES, "quantized_linear_blocks").with_arguments(arguments);
        let sums = 4 * SUMS * rows * COLUMN_BLOCK * if operator.gated { 2 } else { 1 };
        let launch = Launch::on_gpu(key, form, &params, buffers).with_operations(operations);
        let grid = Extent::linear(groups(m.div_ceil(rows) * tiles)?);
        // A thread for each of eight chunks of each row of weights, and two places for these.
        let (threads, staged) = (8 * columns, 2 * staged_bytes(columns));
        plan.launches.push(launch.over(grid, Extent::linear(threads as u32)).with_threadgroup_memory(staged.max(sums)));
        return Ok(plan);
    }
    let source: u32 = match operator.epsilon {
        Some(_) if inside => 2,
        _ => u32::from(kept),
    };
    let rows = m.next_power_of_two().clamp(1, ROWS);
    // Eight lanes have two columns where enough simdgroups are left.
    let is_many = n.iter().sum::<usize>() >= 8 * SIMDGROUPS * device.compute_units.max(1);
    let columns = if operator.gated || rows > 1 || is_many { 2 } else { 1 };
    let units = device.compute_units.max(1);
    let tiles_of = |rows: usize| if operator.gated { n[0].div_ceil(rows) } else { n.iter().map(|n| n.div_ceil(rows * columns)).sum::<usize>() };
    // Where eight lanes to a column would leave half of the simdgroups without any, sixteen have it.
    let lanes = if kept && columns == 1 && chunks.is_multiple_of(16) && 2 * tiles_of(4) <= AT_ONCE * units { 16 } else { 8 };
    let tiles = tiles_of(32 / lanes);
    // Where threadgroups keep the row, no more of them than run at once. On an H200 one to a unit, which makes the row's integers once, is faster than two,
    // but not for layers that are not gated where its threads have fewer than eight elements each to normalise.
    let is_filled = operator.gated || operator.epsilon.is_none() || k >= 8 * 32 * AT_ONCE;
    let is_alone = kept && is_filled && device.features().is_some_and(|_: &CudaFeatures| true);
    let (simdgroups, grid) = match (is_alone, kept) {
        (true, _) => (AT_ONCE, tiles.min(units)),
        (false, true) => (SIMDGROUPS, tiles.div_ceil(SIMDGROUPS).min(AT_ONCE / SIMDGROUPS * units)),
        (false, false) => (SIMDGROUPS, tiles.div_ceil(SIMDGROUPS)),
    };
    params.tiles = groups(tiles)?.into();
    let form = MetalForm::new(FILES, "quantized_linear").with_arguments(arguments).with_delivering(DELIVERING);
    let key = KernelKey::new(format!("quantized_linear_{}", operator.format), &types);
    let key = key.with("source", source).with("gated", u32::from(operator.gated)).with("rows", rows as u32).with("columns", columns as u32);
    let key = key.with("lanes", lanes as u32).with("simdgroups", simdgroups as u32);
    let key = key.with("sharing", if source == 2 { order::sharing_threads(k) as u32 } else { 0 });
    let launch = Launch::on_gpu(key, form, &params, buffers).with_operations(operations);
    let grid = Extent::linear(groups(grid * m.div_ceil(rows))?);
    let memory = if kept { shared } else { order::PARTIALS };
    plan.launches.push(launch.over(grid, Extent::linear(32 * simdgroups as u32)).with_threadgroup_memory(memory));
    Ok(plan)
}
