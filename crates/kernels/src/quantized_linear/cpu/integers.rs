//! Rows of x as integers, in the layouts that the products of different units ask for.

use super::SUMS;
use crate::{
    float::Float,
    parallel::{Shared, for_each},
    quantized::{CHUNK, format::Fields},
    simd,
};

/// How the integers of an octet lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only units of x86-64 ask for bytes"))]
pub(super) enum Layout {
    /// 16 bits, for fields that are words: element j of a chunk is `[`[`place`]`(j)][chunk][j % 16 / 2]`.
    Words,
    /// 16 bits `256 h + l`, for fields that are bytes: all h, signed, and all l, by halves of chunks: `[plane][j / 16][chunk][j % 16]`.
    Planes,
    /// 8 bits, as the h of planes.
    Bytes,
    /// 16 bits as planes, of fields that are bytes without a sign, by words of four elements: `[plane][j / 4][lane][j % 4]`. Chunks, and what they share, are in
    /// the order of [`LANES`].
    Lanes,
    /// 8 bits, as the h of lanes.
    LaneBytes,
}

/// The chunks that lanes have: the order that comes of turning words round within 128 bits.
const LANES: [usize; SUMS] = [0, 2, 4, 6, 1, 3, 5, 7];

/// What rows of x are made for.
#[derive(Clone, Copy)]
pub(super) struct Form {
    pub(super) layout: Layout,
    pub(super) fields: Fields,
    /// Whether the halves of a chunk have scales of their own.
    pub(super) halves: bool,
}

impl Form {
    /// The greatest integer.
    fn largest(self) -> f32 {
        match self.layout {
            Layout::Words | Layout::Planes | Layout::Lanes => 32767.0,
            Layout::Bytes | Layout::LaneBytes => 127.0,
        }
    }
}

/// Chunks of x side by side, one for each sum. Those after a row's end are zeros.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Octet {
    /// In their layout, which need not fill it.
    integers: [[i16; CHUNK]; SUMS],
    /// Of each chunk.
    pub(super) scales: [f32; SUMS],
    /// The sums of each chunk, or of each half of it where those have scales of their own.
    pub(super) totals: [[f32; SUMS]; 2],
    /// Of the same, what the products of fields as units multiply them are too great by: words less nothing, bytes without a sign.
    pub(super) excess: [[i32; SUMS]; 2],
}

pub(super) const NOTHING: Octet = Octet { integers: [[0; CHUNK]; SUMS], scales: [0.0; SUMS], totals: [[0.0; SUMS]; 2], excess: [[0; SUMS]; 2] };

/// Integers by [`Layout::Words`].
type Words = [[[i16; 8]; SUMS]; 4];
/// Integers by [`Layout::Planes`].
pub(super) type Planes = [[[[u8; 16]; SUMS]; 2]; 2];
/// Integers by [`Layout::Lanes`].
type Lanes = [[[[u8; 4]; SUMS]; CHUNK / 4]; 2];

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only units of x86-64 ask for bytes"))]
impl Octet {
    #[inline(always)]
    pub(super) fn words(&self) -> &Words {
        bytemuck::cast_ref(&self.integers)
    }

    #[inline(always)]
    pub(super) fn planes(&self) -> &Planes {
        bytemuck::cast_ref(&self.integers)
    }

    #[inline(always)]
    pub(super) fn lanes(&self) -> &Lanes {
        bytemuck::cast_ref(&self.integers)
    }

    /// Those of half a chunk by [`Layout::Bytes`].
    #[inline(always)]
    pub(super) fn bytes(&self, half: usize, chunk: usize) -> &[u8; CHUNK / 2] {
        &self.planes()[0][half][chunk]
    }
}

/// The elements of even and of odd places in each half of a chunk are apart.
pub(super) const fn place(j: usize) -> usize {
    j / 16 * 2 + j % 2
}

/// Rows of x.
pub(super) struct Rows {
    pub(super) m: usize,
    pub(super) chunks: usize,
    /// The first of each row, then the second of each…
    octets: Vec<Octet>,
}

impl Rows {
    pub(super) fn new<T: Float>(x: &[T], [m, chunks]: [usize; 2], form: Form) -> Self {
        let mut rows = Self { m, chunks, octets: vec![NOTHING; m * chunks.div_ceil(SUMS)] };
        let places = Shared::new(&mut rows.octets);
        for_each(m, CHUNK * chunks, |row| {
            for (octet, x) in x[CHUNK * chunks * row..][..CHUNK * chunks].chunks(SUMS * CHUNK).enumerate() {
                // SAFETY: this row belongs to this task.
                let octet = &mut unsafe { places.part(m * octet + row, 1) }[0];
                let mut integers = [[0; CHUNK]; SUMS];
                round(octet, &mut integers, x, form.largest());
                arrange(octet, &integers, form);
            }
        });
        rows
    }

    /// An octet of each row.
    #[inline(always)]
    pub(super) fn octet(&self, index: usize) -> &[Octet] {
        &self.octets[self.m * index..][..self.m]
    }
}

/// Of what is added to it, the last bit of the sum is one.
const ROUND: f32 = 1.5 * (1u32 << 23) as f32;

simd! {
    /// Up to eight chunks of a row of x: the 32 elements of each as multiples of their scale.
    fn round<T: Float>(octet: &mut Octet, integers: &mut [[i16; CHUNK]; SUMS], x: &[T], most: f32) {
        for (chunk, x) in x.as_chunks::<CHUNK>().0.iter().enumerate() {
            let largest = x.iter().fold(0, |largest, x| largest.max(x.to_f32().to_bits() & 0x7fff_ffff));
            let scale = f32::from_bits(largest) / most;
            if largest >= 0x7f80_0000 || scale < f32::MIN_POSITIVE {
                octet.scales[chunk] = if largest >= 0x7f80_0000 { f32::NAN } else { 0.0 };
                continue;
            }
            octet.scales[chunk] = scale;
            let inverse = 1.0 / scale;
            // Added to a small number, it leaves the nearest integer in the low bits, ties to even: of vectors, unlike a cast that saturates.
            for (q, x) in integers[chunk].iter_mut().zip(x) {
                *q = (x.to_f32() * inverse + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i16;
            }
        }
    }
}

simd! {
    /// The integers of an octet in their layout, and their sums.
    fn arrange(octet: &mut Octet, integers: &[[i16; CHUNK]; SUMS], form: Form) {
        let (zero, is_signed) = match form.fields {
            Fields::Less(zero) => (i32::from(zero), false),
            Fields::Signed | Fields::Chosen(_) => (0, true),
        };
        for (chunk, integers) in integers.iter().enumerate() {
            let (mut totals, mut excess) = ([0; 2], [0; 2]);
            for (half, q) in integers.as_chunks::<16>().0.iter().enumerate() {
                let total: i32 = q.iter().map(|q| i32::from(*q)).sum();
                let high: i32 = q.iter().map(|q| i32::from(*q >> 8)).sum();
                let half = if form.halves { half } else { 0 };
                totals[half] += total;
                // Where bytes have no sign, they are 128 more than the integers.
                excess[half] += match (form.layout, is_signed) {
                    (Layout::Words, _) | (_, false) => zero * total,
                    (Layout::Planes | Layout::Lanes, true) => 128 * 256 * high,
                    (Layout::Bytes | Layout::LaneBytes, true) => 128 * total,
                };
            }
            for half in 0..2 {
                (octet.totals[half][chunk], octet.excess[half][chunk]) = (totals[half] as f32, excess[half]);
            }
        }
        if let Layout::Lanes | Layout::LaneBytes = form.layout {
            octet.scales = LANES.map(|chunk| octet.scales[chunk]);
            for half in 0..2 {
                octet.totals[half] = LANES.map(|chunk| octet.totals[half][chunk]);
                octet.excess[half] = LANES.map(|chunk| octet.excess[half][chunk]);
            }
        }
        match form.layout {
            Layout::Words => {
                let words: &mut Words = bytemuck::cast_mut(&mut octet.integers);
                for (chunk, integers) in integers.iter().enumerate() {
                    integers.iter().enumerate().for_each(|(j, q)| words[place(j)][chunk][j % 16 / 2] = *q);
                }
            }
            Layout::Planes | Layout::Bytes => split(bytemuck::cast_mut(&mut octet.integers), integers, form.layout == Layout::Planes),
            Layout::Lanes | Layout::LaneBytes => {
                let mut planes = [[[[0; 16]; SUMS]; 2]; 2];
                split(&mut planes, integers, form.layout == Layout::Lanes);
                let words: &mut [[[u32; SUMS]; CHUNK / 4]; 2] = bytemuck::cast_mut(&mut octet.integers);
                let planes: &[[[[u32; 4]; SUMS]; 2]; 2] = bytemuck::cast_ref(&planes);
                for (words, halves) in words.iter_mut().zip(planes) {
                    for (four, words) in words.iter_mut().enumerate() {
                        words.iter_mut().zip(LANES).for_each(|(word, chunk)| *word = halves[four / 4][chunk][four % 4]);
                    }
                }
            }
        }
    }
}

/// The high bytes of 16 bits, or 8 bits, and the low ones.
#[inline(always)]
fn split(planes: &mut Planes, integers: &[[i16; CHUNK]; SUMS], is_wide: bool) {
    let shift = if is_wide { 8 } else { 0 };
    for (chunk, integers) in integers.iter().enumerate() {
        for (half, q) in integers.as_chunks::<16>().0.iter().enumerate() {
            planes[0][half][chunk].iter_mut().zip(q).for_each(|(high, q)| *high = (q >> shift) as u8);
            planes[1][half][chunk].iter_mut().zip(q).for_each(|(low, q)| *low = *q as u8);
        }
    }
}
