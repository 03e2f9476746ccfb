//! How quantised weights lie in a device's memory: the rows of a file's blocks taken apart, so that neighbouring threads read neighbouring words.
//!
//! A packed row of `c` chunks has, one after another: for each plane of the format's bits (of 8, 4, 2 or 1, the lowest bits first), `4 · bits` bytes of
//! each chunk, in which field `f` of byte `b` is that of element `b + 4 · bits · f`; the chunks' subscales; the blocks' numbers; and zeros up to a
//! multiple of 16 bytes.

use elinvar_core::{Error, Result};

use super::format::{Blocks, CHUNK, Format, Scales, decode_chunk, number, with_blocks};
use crate::simd;

/// Packed rows begin at multiples of it.
const ALIGNMENT: usize = 16;

/// Bits of each plane of fields of `bits` bits; zero where there is none.
pub(crate) const fn planes(bits: usize) -> [usize; 2] {
    match bits {
        3 => [2, 1],
        5 => [4, 1],
        6 => [4, 2],
        whole => [whole, 0],
    }
}

/// Where the parts of a packed row begin, in bytes: its planes, subscales and numbers, and its end.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) planes: [usize; 2],
    pub(crate) subscales: usize,
    pub(crate) numbers: usize,
    end: usize,
}

impl Places {
    /// Of a row of so many chunks, or `None` if there are too many.
    #[inline(always)]
    pub(crate) const fn of<F: Blocks>(chunks: usize) -> Option<Self> {
        if chunks > usize::MAX / 256 {
            return None;
        }
        let [first, second] = planes(F::BITS);
        let subscales = 4 * (first + second) * chunks;
        let numbers = subscales + F::SUBSCALES * chunks;
        let end = numbers + 2 * F::NUMBERS.len() * (chunks / (F::ELEMENTS / CHUNK));
        Some(Self { planes: [0, 4 * first * chunks], subscales, numbers, end })
    }
}

/// `$function` of a plane of `bits` bits of a chunk, with the number of its bytes as a constant: loops over those are then compiled to vectors.
macro_rules! of_bytes {
    ($function:ident($plane:expr, $bits:expr, $shift:expr, $fields:expr)) => {
        match $bits {
            8 => $function::<32>($plane, $shift, $fields),
            4 => $function::<16>($plane, $shift, $fields),
            2 => $function::<8>($plane, $shift, $fields),
            1 => $function::<4>($plane, $shift, $fields),
            _ => {}
        }
    };
}

/// The fields of a plane into the bits of `fields` from `shift` on.
#[inline(always)]
fn get(plane: &[u8], bits: usize, shift: usize, fields: &mut [u8; CHUNK]) {
    #[inline(always)]
    fn of<const BYTES: usize>(plane: &[u8], shift: usize, fields: &mut [u8; CHUNK]) {
        let (bits, mut bytes) = (BYTES / 4, [0; BYTES]);
        bytes.copy_from_slice(&plane[..BYTES]);
        for (place, fields) in fields.as_chunks_mut::<BYTES>().0.iter_mut().enumerate() {
            for (field, byte) in fields.iter_mut().zip(bytes) {
                *field |= (byte >> (bits * place) & (u8::MAX >> (8 - bits))) << shift;
            }
        }
    }
    of_bytes!(of(plane, bits, shift, fields));
}

/// The bits of `fields` from `shift` on into a plane.
#[inline(always)]
fn put(plane: &mut [u8], bits: usize, shift: usize, fields: &[u8; CHUNK]) {
    #[inline(always)]
    fn of<const BYTES: usize>(plane: &mut [u8], shift: usize, fields: &[u8; CHUNK]) {
        let (bits, mut bytes) = (BYTES / 4, [0; BYTES]);
        for (place, fields) in fields.as_chunks::<BYTES>().0.iter().enumerate() {
            for (byte, field) in bytes.iter_mut().zip(fields) {
                *byte |= (field >> shift & (u8::MAX >> (8 - bits))) << (bits * place);
            }
        }
        plane[..BYTES].copy_from_slice(&bytes);
    }
    of_bytes!(of(plane, bits, shift, fields));
}

/// A row of packed weights.
#[derive(Clone, Copy)]
pub(crate) struct PackedRow<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) places: Places,
}

impl PackedRow<'_> {
    /// The fields of a chunk.
    #[inline(always)]
    pub(crate) fn fields<F: Blocks>(self, index: usize) -> [u8; CHUNK] {
        let mut fields = [0; CHUNK];
        let [first, second] = const { planes(F::BITS) };
        get(&self.bytes[self.places.planes[0] + 4 * first * index..], first, 0, &mut fields);
        get(&self.bytes[self.places.planes[1] + 4 * second * index..], second, first, &mut fields);
        fields
    }

    /// What the elements of a chunk share.
    #[inline(always)]
    pub(crate) fn scales<F: Blocks>(self, index: usize) -> Scales {
        let subscales = &self.bytes[self.places.subscales + F::SUBSCALES * index..];
        let subscales = std::array::from_fn(|i| if i < F::SUBSCALES { subscales[i] } else { 0 });
        let block = index / (F::ELEMENTS / CHUNK);
        let given = &self.bytes[self.places.numbers + 2 * F::NUMBERS.len() * block..];
        F::scales(std::array::from_fn(|i| if i < F::NUMBERS.len() { number::<F>(given, 2 * i) } else { 0.0 }), subscales)
    }
}

impl Format {
    /// Bytes of a packed row of `weights` weights; `None` if it is not made of whole blocks, or on overflow.
    pub const fn packed_row_bytes(self, weights: usize) -> Option<usize> {
        if !weights.is_multiple_of(self.weights()) {
            return None;
        }
        match with_blocks!(self, F => Places::of::<F>(weights / CHUNK)) {
            Some(places) => places.end.checked_next_multiple_of(ALIGNMENT),
            None => None,
        }
    }

    /// Packs a row of blocks as a file has them. Allocates nothing.
    ///
    /// # Errors
    /// `blocks` are not whole, or `packed` has not the length of [`Format::packed_row_bytes`].
    pub fn pack(self, blocks: &[u8], packed: &mut [u8]) -> Result<()> {
        let weights = blocks.len() / self.bytes() * self.weights();
        if !blocks.len().is_multiple_of(self.bytes()) || self.packed_row_bytes(weights) != Some(packed.len()) {
            return Err(Error::invalid_argument(format!(
                "{} bytes of {self} to pack into {}: expected whole blocks of {} bytes, and the room of a packed row",
                blocks.len(),
                packed.len(),
                self.bytes()
            )));
        }
        with_blocks!(self, F => pack::<F>(blocks, packed));
        Ok(())
    }

    /// Decodes a packed row, to the values that [`Format::decode`] gives. Allocates nothing.
    ///
    /// # Errors
    /// `packed` is not a packed row of as many weights as there are values.
    pub fn decode_packed(self, packed: &[u8], values: &mut [f32]) -> Result<()> {
        if self.packed_row_bytes(values.len()) != Some(packed.len()) {
            return Err(Error::invalid_argument(format!("{} bytes are not a packed row of {} weights in {self}", packed.len(), values.len())));
        }
        with_blocks!(self, F => decode::<F>(packed, values));
        Ok(())
    }
}

simd! {
    fn pack<F: Blocks>(blocks: &[u8], packed: &mut [u8]) {
        let chunks = blocks.len() / F::BYTES * (F::ELEMENTS / CHUNK);
        let Some(places) = Places::of::<F>(chunks) else { return };
        for (number, block) in blocks.chunks_exact(F::BYTES).enumerate() {
            for index in 0..F::ELEMENTS / CHUNK {
                let (fields, at) = (F::fields(block, index), number * (F::ELEMENTS / CHUNK) + index);
                let [first, second] = const { planes(F::BITS) };
                put(&mut packed[places.planes[0] + 4 * first * at..], first, 0, &fields);
                put(&mut packed[places.planes[1] + 4 * second * at..], second, first, &fields);
                let subscales = F::subscales(block, index);
                packed[places.subscales + F::SUBSCALES * at..][..F::SUBSCALES].copy_from_slice(&subscales[..F::SUBSCALES]);
            }
            let numbers = &mut packed[places.numbers + 2 * F::NUMBERS.len() * number..][..2 * F::NUMBERS.len()];
            numbers.chunks_exact_mut(2).zip(F::NUMBERS).for_each(|(to, &from)| to.copy_from_slice(&block[from..from + 2]));
        }
        packed[places.end..].fill(0);
    }
}

simd! {
    /// [`Format::decode_packed`] of a row that has the length.
    pub(crate) fn decode<F: Blocks>(packed: &[u8], values: &mut [f32]) {
        let Some(places) = Places::of::<F>(values.len() / CHUNK) else { return };
        let row = PackedRow { bytes: packed, places };
        for (index, values) in values.chunks_exact_mut(CHUNK).enumerate() {
            decode_chunk::<F>(&row.fields::<F>(index), row.scales::<F>(index), values);
        }
    }
}
