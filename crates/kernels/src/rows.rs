//! Operators that work row by row along one axis of a row-major tensor.

use std::cell::Cell;

use elinvar_core::{DType, DeviceProperties, KernelKey, Result, Shape};

use crate::{
    Launch,
    elementwise::stream,
    float::{Float, as_f32, as_f32_mut},
    metal::params,
    order,
    parallel::{SERIAL_BELOW, Shared, for_each, for_each_part},
    simd::prefetch,
};

params! {
    /// A tensor seen as rows along one axis: element `k` of row `(o, i)` is at `(o * length + k) * inner + i`.
    pub struct Rows {
        /// Product of the extents before the axis.
        pub outer: u64,
        /// Extent of the axis.
        pub length: u64,
        /// Product of the extents after it: the stride of a row.
        pub inner: u64,
    }
}

impl Rows {
    /// Rows of `shape` along `axis`, which may count from the end.
    ///
    /// # Errors
    /// An axis outside the shape.
    pub fn new(shape: &Shape, axis: isize) -> Result<Self> {
        let axis = shape.axis(axis)?;
        Ok(Self { outer: product(&shape[..axis]), length: shape[axis] as u64, inner: product(&shape[axis + 1..]) })
    }

    /// Rows of `shape` over all its axes from `axis`, which may count from the end.
    ///
    /// # Errors
    /// An axis outside the shape.
    pub fn from_axis(shape: &Shape, axis: isize) -> Result<Self> {
        let axis = shape.axis(axis)?;
        Ok(Self { outer: product(&shape[..axis]), length: product(&shape[axis..]), inner: 1 })
    }

    /// Number of rows.
    pub fn count(&self) -> usize {
        (self.outer * self.inner) as usize
    }

    /// Visits of [`order::row_visits`] if the elements of a row are neighbours.
    fn visits(&self) -> u32 {
        if self.inner == 1 { order::row_visits(self.length as usize) } else { 0 }
    }

    /// The key of a kernel that may keep its rows in registers, with what it is compiled for: [`Rows::visits`], and the threads of such a row, unless it
    /// shares a simdgroup with others: then zero.
    pub(crate) fn key(&self, key: KernelKey) -> KernelKey {
        let (visits, length) = (self.visits(), self.length as usize);
        let count = if visits > 0 && order::row_lanes(length) == 32 { order::row_threads(length) as u32 } else { 0 };
        key.with("visits", visits).with("count", count)
    }

    /// Over the rows as [`order::row_launch`] lays them out; nothing for an empty tensor.
    pub(crate) fn launch(&self, launch: Launch, device: &DeviceProperties) -> Launch {
        let rows = if self.length == 0 { 0 } else { self.count() };
        let [grid, threadgroup] = order::row_launch(rows, self.length as usize, device);
        launch.over(grid, threadgroup)
    }
}

fn product(dims: &[usize]) -> u64 {
    dims.iter().product::<usize>() as u64
}

/// How many rows of `length` elements one task takes, of `count` rows in all: whole tasks of about [`SERIAL_BELOW`] elements.
pub fn rows_per_task(length: usize, count: usize) -> usize {
    (SERIAL_BELOW / length.max(1)).clamp(1, count.max(1))
}

/// Calls `block(first row, input, output)` for blocks of contiguous rows of `length` elements, in parallel.
pub fn for_each_block<A: Sync, B: bytemuck::Pod>(length: usize, input: &[A], output: &mut [B], block: impl Fn(usize, &[A], &mut [B]) + Sync) {
    if input.is_empty() {
        return;
    }
    let rows = rows_per_task(length, input.len() / length);
    let size = rows * length;
    for_each_part(output, size, |task, output| block(task * rows, &input[task * size..][..output.len()], output));
}

/// Elements of a row that are worked on between fetches ahead.
pub const PIECE: usize = 256;

/// The row after the one worked on, input and output. Fetched piece by piece during the arithmetic, it comes from memory meanwhile; the
/// processor alone would begin when the arithmetic is over, at every page anew.
#[derive(Clone, Copy)]
pub struct Ahead {
    input: *const u8,
    /// None where stores go past the caches.
    output: Option<*const u8>,
    piece_bytes: usize,
}

impl Ahead {
    /// What follows these slices, whatever it is.
    #[inline(always)]
    pub fn after<T>(input: &[T], output: &[T]) -> Self {
        Self { output: Some(output.as_ptr_range().end.cast()), ..Self::after_input(input) }
    }

    /// What follows this slice.
    #[inline(always)]
    fn after_input<T>(input: &[T]) -> Self {
        Self { input: input.as_ptr_range().end.cast(), output: None, piece_bytes: PIECE * size_of::<T>() }
    }

    /// Fetches piece number `piece`.
    #[inline(always)]
    pub fn fetch(self, piece: usize) {
        let start = piece * self.piece_bytes;
        for at in (start..start + self.piece_bytes).step_by(64) {
            prefetch(self.input.wrapping_add(at));
            if let Some(output) = self.output {
                prefetch(output.wrapping_add(at));
            }
        }
    }
}

/// Calls `kernel(first row, x, y, ahead)` for all rows together if they are f32, otherwise for each row widened and then narrowed in cache,
/// with what to fetch meanwhile; without, each row is followed by the next.
pub fn in_f32<T: Float>(length: usize, input: &[T], output: &mut [T], mut kernel: impl FnMut(usize, &[f32], &mut [f32], Option<Ahead>)) {
    if let (Some(x), Some(y)) = (as_f32(input), as_f32_mut(output)) {
        return kernel(0, x, y, None);
    }
    with_scratch(2 * length, |scratch| {
        let (wide, result) = scratch.split_at_mut(length);
        for (row, (x, y)) in input.chunks_exact(length).zip(output.chunks_exact_mut(length)).enumerate() {
            T::widen_into(x, wide);
            kernel(row, wide, result, Some(Ahead::after(x, y)));
            T::narrow_into(result, y);
        }
    });
}

/// Normalises rows of `length` elements: `whole(number, row)` is what results need of the whole row, `part(that, start, x, y)` makes the results
/// from element `start` on. Tensors that are large go past the caches.
pub fn normalise<T: Float, S>(
    (length, first): (usize, usize),
    input: &[T],
    output: &mut [T],
    is_large: bool,
    whole: impl Fn(usize, &[f32]) -> S,
    part: impl Fn(&S, usize, &[f32], &mut [f32]),
) {
    let mut narrow = [T::zeroed(); PIECE];
    with_scratch(length + PIECE, |scratch| {
        let (wide, results) = scratch.split_at_mut(length);
        for (row, (x, y)) in input.chunks_exact(length).zip(output.chunks_exact_mut(length)).enumerate() {
            let ahead = if is_large { Ahead::after_input(x) } else { Ahead::after(x, y) };
            let x = match as_f32(x) {
                Some(x) => x,
                None => {
                    T::widen_into(x, wide);
                    &*wide
                }
            };
            let known = whole(first + row, x);
            for (piece, (x, y)) in x.chunks(PIECE).zip(y.chunks_mut(PIECE)).enumerate() {
                ahead.fetch(piece);
                match as_f32_mut(y).filter(|_| !is_large) {
                    Some(y) => part(&known, piece * PIECE, x, y),
                    None => {
                        let (results, narrow) = (&mut results[..x.len()], &mut narrow[..x.len()]);
                        part(&known, piece * PIECE, x, results);
                        if !is_large {
                            T::narrow_into(results, y);
                        } else if T::DTYPE == DType::F32 {
                            stream::copy(bytemuck::cast_slice(results), bytemuck::cast_slice_mut(y));
                        } else {
                            T::narrow_into(results, narrow);
                            stream::copy(bytemuck::cast_slice(narrow), bytemuck::cast_slice_mut(y));
                        }
                    }
                }
            }
        }
    });
    if is_large {
        stream::finish();
    }
}

/// Calls `tile(lines, width, rest)` for tiles of neighbouring strided rows, in parallel: `lines` holds element 0 of `width` rows, then their
/// element 1, …, in f32, and is written back; `rest` are `scratch(width)` floats for its own use.
pub fn for_each_tile<T: Float>(
    rows: Rows,
    input: &[T],
    output: &mut [T],
    scratch: impl Fn(usize) -> usize + Sync,
    tile: impl Fn(&mut [f32], usize, &mut [f32]) + Sync,
) {
    /// Floats of a tile: what L2 holds beside the lines streamed through it.
    const TILE: usize = 1 << 17;
    let (length, inner) = (rows.length as usize, rows.inner as usize);
    if input.is_empty() {
        return;
    }
    let width = (TILE / length).next_multiple_of(16).min(inner);
    let tiles = inner.div_ceil(width);
    let shared = Shared::new(output);
    let work = |task: usize| {
        let (o, first) = (task / tiles, task % tiles * width);
        let (base, width) = (o * length * inner + first, width.min(inner - first));
        with_scratch(length * width + scratch(width), |all| {
            let (lines, rest) = all.split_at_mut(length * width);
            for (k, line) in lines.chunks_exact_mut(width).enumerate() {
                T::widen_into(&input[base + k * inner..][..width], line);
            }
            tile(lines, width, rest);
            for (k, line) in lines.chunks_exact(width).enumerate() {
                // SAFETY: element k of this tile's rows, which belong to this task.
                T::narrow_into(line, unsafe { shared.part(base + k * inner, width) });
            }
        });
    };
    for_each(rows.outer as usize * tiles, length * width, work);
}

thread_local! {
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Calls `work` with `length` floats of any value, kept from call to call on each thread.
pub fn with_scratch<R>(length: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    let mut scratch = SCRATCH.take();
    if scratch.len() < length {
        scratch.resize(length, 0.0);
    }
    let result = work(&mut scratch[..length]);
    SCRATCH.set(scratch);
    result
}
