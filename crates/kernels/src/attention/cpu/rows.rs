//! Rows of f32, f16 or bf16 as registers take them: widened and padded, or transposed. Those of packed caches are decoded first.

use elinvar_core::{DType, HostArguments, Result};

use crate::{
    attention::scoring::PACKED,
    matmul::{
        self,
        cpu::{
            level::Level,
            operand::{Load, Values, with_values},
            simd::{Simd, Work},
        },
    },
    quantized::cached,
};

/// The most lanes of a vector; rows are padded to whole vectors of any level.
pub(crate) const LANES: usize = 16;

/// Elements of a row after padding.
pub(crate) fn padded(width: usize) -> usize {
    width.next_multiple_of(LANES)
}

/// Where consecutive rows lie: row `i` at `start + i · stride`, with `width` elements.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) stride: i64,
    pub(crate) width: usize,
    pub(crate) count: usize,
}

/// Keys or values.
#[derive(Clone, Copy)]
pub(crate) enum Cache<'a> {
    Floats(Values<'a>),
    /// Rows packed in Q8_0.
    Packed(&'a [u8]),
}

impl<'a> Cache<'a> {
    /// What is bound at `index`, of the type that `code` stands for.
    pub(crate) fn bound(arguments: &HostArguments<'a>, index: usize, code: u32) -> Result<Self> {
        Ok(if code == PACKED { Self::Packed(arguments.input(index)?) } else { Self::Floats(matmul::values(arguments, index, code)?) })
    }

    /// Rows as floats: where they lie, or decoded into `memory`.
    pub(crate) fn floats<'b>(self, span: Span, memory: &'b mut Vec<f32>) -> (Values<'b>, Span)
    where
        'a: 'b,
    {
        match self {
            Self::Floats(values) => (values, span),
            Self::Packed(bytes) => {
                let Span { start, stride, width, count } = span;
                memory.resize(memory.len().max(count * width), 0.0);
                cached::decode(bytes, start, stride, width, &mut memory[..count * width]);
                (Values::F32(memory), Span { start: 0, stride: width as i64, ..span })
            }
        }
    }
}

/// Consecutive rows of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a, T> {
    pub(crate) values: &'a [T],
    pub(crate) span: Span,
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl<T: Load> Rows<'_, T> {
    /// Where a row starts, which lies in `values` with its whole width.
    #[inline(always)]
    pub(crate) fn start(&self, index: usize) -> usize {
        let start = (self.span.start as i64 + index as i64 * self.span.stride) as usize;
        assert!(start <= self.values.len() && self.span.width <= self.values.len() - start);
        start
    }

    /// Where an element of the row that starts at `start` lies, after word to the caches of what follows.
    ///
    /// # Safety
    /// `start` is that of a row, and `element < width`.
    #[inline(always)]
    pub(crate) unsafe fn announce<S: Simd>(&self, simd: S, start: usize, element: usize) -> *const T {
        // SAFETY: the caller's promise.
        let address = unsafe { self.values.as_ptr().add(start + element) };
        if (element * size_of::<T>()).is_multiple_of(LINE) {
            simd.prefetch_after(address);
        }
        address
    }
}

/// Widens rows into `to`, which has whole padded rows; the padding is `padding`.
pub(crate) fn widen(level: Level, values: Values<'_>, span: Span, padding: f32, to: &mut [f32]) {
    with_values!(values, |values| level.run(Widen { rows: Rows { values, span }, padding, to }));
}

struct Widen<'a, T> {
    rows: Rows<'a, T>,
    padding: f32,
    to: &'a mut [f32],
}

impl<T: Load> Work for Widen<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (rows, width) = (&self.rows, self.rows.span.width);
        let whole = width - width % S::LANES;
        for (i, to) in self.to.chunks_exact_mut(padded(width)).take(rows.span.count).enumerate() {
            let start = rows.start(i);
            for element in (0..whole).step_by(S::LANES) {
                // SAFETY: `whole` does not exceed the row's width, nor that `to`'s length.
                unsafe { simd.store(to.as_mut_ptr().add(element), T::load(simd, rows.announce(simd, start, element))) };
            }
            for (to, value) in to[whole..width].iter_mut().zip(&rows.values[start + whole..]) {
                *to = value.to_f32();
            }
            to[width..].fill(self.padding);
        }
    }
}

/// Transposes up to a vector's `LANES` of rows: `panel[e · LANES + i]` is element `e` of row `i`, the last row again where there are fewer.
/// The padding is zero.
pub(crate) fn pack(level: Level, values: Values<'_>, span: Span, panel: &mut [f32]) {
    with_values!(values, |values| level.run(Pack { rows: Rows { values, span }, panel }));
}

struct Pack<'a, T> {
    rows: Rows<'a, T>,
    panel: &'a mut [f32],
}

impl<T: Load> Work for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (rows, width) = (&self.rows, self.rows.span.width);
        let panel = &mut self.panel[..padded(width) * S::LANES];
        let mut starts = [0; LANES];
        for (i, start) in starts.iter_mut().enumerate() {
            *start = rows.start(i.min(rows.span.count - 1));
        }
        let mut element = 0;
        while T::DTYPE == DType::BF16 && element + 2 * S::LANES <= width {
            // Pairs are moved as one, and split at the end: half the work.
            let mut square = [simd.splat(0.0); LANES];
            for i in 0..S::LANES {
                // SAFETY: a vector of pairs is as long as two vectors, which lie in the row.
                square[i] = unsafe { f32::load(simd, rows.announce(simd, starts[i], element).cast()) };
            }
            simd.transpose(&mut square[..S::LANES]);
            for i in 0..S::LANES {
                let [even, odd] = simd.split_bf16(square[i]);
                // SAFETY: the panel has `LANES` places for each element.
                unsafe {
                    let place = panel.as_mut_ptr().add((element + 2 * i) * S::LANES);
                    simd.store(place, even);
                    simd.store(place.add(S::LANES), odd);
                }
            }
            element += 2 * S::LANES;
        }
        while element + S::LANES <= width {
            let mut square = [simd.splat(0.0); LANES];
            for i in 0..S::LANES {
                // SAFETY: the vector lies in the row.
                square[i] = unsafe { T::load(simd, rows.announce(simd, starts[i], element)) };
            }
            simd.transpose(&mut square[..S::LANES]);
            for i in 0..S::LANES {
                // SAFETY: the panel has `LANES` places for each element.
                unsafe { simd.store(panel.as_mut_ptr().add((element + i) * S::LANES), square[i]) };
            }
            element += S::LANES;
        }
        for (element, panel) in panel.chunks_exact_mut(S::LANES).enumerate().skip(element) {
            for (i, place) in panel.iter_mut().enumerate() {
                *place = if element < width { rows.values[starts[i] + element].to_f32() } else { 0.0 };
            }
        }
    }
}
