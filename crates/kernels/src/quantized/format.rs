//! Formats that quantise blocks of elements, as GGUF files have them: a tensor in one is a tensor of bytes, row after row of whole blocks.
//!
//! In every format an element is `scale · q + offset`, with an integer `q` and numbers that 16 or 32 neighbours share and that f32 holds exactly.

use elinvar_core::{Error, Result};
use half::f16;

use crate::elementwise::dispatch::named;

named! {
    /// A format of blocks.
    pub enum Format("format") {
        /// 32 elements: an f16 scale and 4 bits each, less 8.
        Q4_0 "Q4_0",
        /// 32 elements: an f16 scale, an f16 offset and 4 bits each.
        Q4_1 "Q4_1",
        /// 32 elements: an f16 scale and 5 bits each, less 16.
        Q5_0 "Q5_0",
        /// 32 elements: an f16 scale, an f16 offset and 5 bits each.
        Q5_1 "Q5_1",
        /// 32 elements: an f16 scale and 8 bits each, signed.
        Q8_0 "Q8_0",
        /// 256 elements: f16 scales of 4-bit scales and offsets, one of each for 16 elements, and 2 bits each.
        Q2K "Q2_K",
        /// 256 elements: an f16 scale of 6-bit scales less 32, one for 16 elements, and 3 bits each, less 4.
        Q3K "Q3_K",
        /// 256 elements: f16 scales of 6-bit scales and offsets, one of each for 32 elements, and 4 bits each.
        Q4K "Q4_K",
        /// 256 elements: as `Q4_K` with 5 bits each.
        Q5K "Q5_K",
        /// 256 elements: an f16 scale of 8-bit scales, one for 16 elements, and 6 bits each, less 32.
        Q6K "Q6_K",
        /// 32 elements: an f16 scale and 4 bits each, which choose from 16 integers.
        Iq4Nl "IQ4_NL",
        /// 256 elements: an f16 scale of 6-bit scales less 32, one for 32 elements, and 4 bits each, as `IQ4_NL`.
        Iq4Xs "IQ4_XS",
        /// 32 elements: a power of two and 4 bits each: a sign, two bits of exponent and one of mantissa (OCP Microscaling Formats, 2023).
        Mxfp4 "MXFP4",
    }
}

/// Elements that are unpacked at a time.
pub const CHUNK: usize = 32;

/// Elements of a chunk: `scale[j / 16] · q[j] + offset[j / 16]`.
pub(crate) struct Chunk {
    pub(crate) q: [i16; CHUNK],
    pub(crate) scale: [f32; 2],
    pub(crate) offset: [f32; 2],
}

/// How the blocks of a format lie in memory.
pub(crate) trait Blocks {
    /// Elements of a block, and its bytes.
    const ELEMENTS: usize;
    const BYTES: usize;
    /// Elements that share a scale and an offset.
    const GROUP: usize = CHUNK;
    /// Whether there are offsets.
    const OFFSETS: bool = false;

    /// A chunk of a block.
    fn chunk(block: &[u8], index: usize) -> Chunk;
}

#[inline(always)]
fn number(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[inline(always)]
fn alike(q: impl Fn(usize) -> i16, scale: f32, offset: f32) -> Chunk {
    Chunk { q: std::array::from_fn(q), scale: [scale; 2], offset: [offset; 2] }
}

/// The 4 low bits of the first 16 bytes, then the 4 high ones.
#[inline(always)]
fn nibble(bytes: &[u8], j: usize) -> i16 {
    i16::from(if j < 16 { bytes[j] & 15 } else { bytes[j - 16] >> 4 })
}

/// The same with a fifth bit from a word.
#[inline(always)]
fn five(bits: &[u8], bytes: &[u8], j: usize) -> i16 {
    nibble(bytes, j) | i16::from(bits[j / 8] >> (j % 8) & 1) << 4
}

pub(crate) struct Q4_0;

impl Blocks for Q4_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn chunk(block: &[u8], _: usize) -> Chunk {
        alike(|j| nibble(&block[2..18], j) - 8, number(block, 0), 0.0)
    }
}

pub(crate) struct Q4_1;

impl Blocks for Q4_1 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 20;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn chunk(block: &[u8], _: usize) -> Chunk {
        alike(|j| nibble(&block[4..20], j), number(block, 0), number(block, 2))
    }
}

pub(crate) struct Q5_0;

impl Blocks for Q5_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 22;

    #[inline(always)]
    fn chunk(block: &[u8], _: usize) -> Chunk {
        alike(|j| five(&block[2..6], &block[6..22], j) - 16, number(block, 0), 0.0)
    }
}

pub(crate) struct Q5_1;

impl Blocks for Q5_1 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 24;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn chunk(block: &[u8], _: usize) -> Chunk {
        alike(|j| five(&block[4..8], &block[8..24], j), number(block, 0), number(block, 2))
    }
}

pub(crate) struct Q8_0;

impl Blocks for Q8_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 34;

    #[inline(always)]
    fn chunk(block: &[u8], _: usize) -> Chunk {
        alike(|j| i16::from(block[2 + j] as i8), number(block, 0), 0.0)
    }
}

/// The 6-bit scale and offset of a chunk, of twelve bytes.
#[inline(always)]
fn six(packed: &[u8], index: usize) -> [u8; 2] {
    if index < 4 {
        [packed[index] & 63, packed[index + 4] & 63]
    } else {
        [packed[index + 4] & 15 | packed[index - 4] >> 6 << 4, packed[index + 4] >> 4 | packed[index] >> 6 << 4]
    }
}

#[inline(always)]
fn scaled(block: &[u8], index: usize, q: impl Fn(usize) -> i16) -> Chunk {
    let [scale, offset] = six(&block[4..16], index);
    alike(q, number(block, 0) * f32::from(scale), -(number(block, 2) * f32::from(offset)))
}

pub(crate) struct Q4K;

impl Blocks for Q4K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 144;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn chunk(block: &[u8], index: usize) -> Chunk {
        let bytes = &block[16 + 32 * (index / 2)..][..32];
        scaled(block, index, |j| i16::from(bytes[j] >> (4 * (index % 2)) & 15))
    }
}

pub(crate) struct Q5K;

impl Blocks for Q5K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 176;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn chunk(block: &[u8], index: usize) -> Chunk {
        let (bits, bytes) = (&block[16..48], &block[48 + 32 * (index / 2)..][..32]);
        scaled(block, index, |j| i16::from(bytes[j] >> (4 * (index % 2)) & 15 | (bits[j] >> index & 1) << 4))
    }
}

pub(crate) struct Q6K;

impl Blocks for Q6K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 210;
    const GROUP: usize = 16;

    #[inline(always)]
    fn chunk(block: &[u8], index: usize) -> Chunk {
        let (half, quarter) = (index / 4, index % 4);
        let low = &block[64 * half + 32 * (quarter % 2)..][..32];
        let high = &block[128 + 32 * half..][..32];
        let scale = |group: usize| number(block, 208) * f32::from(block[192 + 2 * index + group] as i8);
        let q = |j: usize| i16::from(low[j] >> (4 * (quarter / 2)) & 15 | (high[j] >> (2 * quarter) & 3) << 4) - 32;
        Chunk { q: std::array::from_fn(q), scale: [scale(0), scale(1)], offset: [0.0; 2] }
    }
}

pub(crate) struct Q2K;

impl Blocks for Q2K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 84;
    const GROUP: usize = 16;
    const OFFSETS: bool = true;

    #[inline(always)]
    fn chunk(block: &[u8], index: usize) -> Chunk {
        let bytes = &block[16 + 32 * (index / 4)..][..32];
        let [scale, offset] = [number(block, 80), number(block, 82)];
        let packed: [u8; 2] = std::array::from_fn(|group| block[2 * index + group]);
        Chunk {
            q: std::array::from_fn(|j| i16::from(bytes[j] >> (2 * (index % 4)) & 3)),
            scale: packed.map(|packed| scale * f32::from(packed & 15)),
            offset: packed.map(|packed| -(offset * f32::from(packed >> 4))),
        }
    }
}

pub(crate) struct Q3K;

impl Blocks for Q3K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 110;
    const GROUP: usize = 16;

    #[inline(always)]
    fn chunk(block: &[u8], index: usize) -> Chunk {
        let (bits, bytes, packed) = (&block[..32], &block[32 + 32 * (index / 4)..][..32], &block[96..108]);
        let scale = |group: usize| {
            let low = packed[group % 8] >> (4 * (group / 8)) & 15;
            let high = packed[8 + group % 4] >> (2 * (group / 4)) & 3;
            number(block, 108) * (f32::from(low | high << 4) - 32.0)
        };
        Chunk {
            q: std::array::from_fn(|j| i16::from(bytes[j] >> (2 * (index % 4)) & 3 | (bits[j] >> index & 1) << 2) - 4),
            scale: std::array::from_fn(|group| scale(2 * index + group)),
            offset: [0.0; 2],
        }
    }
}

/// The integers of the nonlinear formats: closer together around zero.
const NONLINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers of four bits.
const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

#[inline(always)]
fn chosen(table: &[i8; 16], bytes: &[u8], scale: f32) -> Chunk {
    alike(|j| i16::from(table[nibble(bytes, j) as usize]), scale, 0.0)
}

pub(crate) struct Iq4Nl;

impl Blocks for Iq4Nl {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 18;

    #[inline(always)]
    fn chunk(block: &[u8], _: usize) -> Chunk {
        chosen(&NONLINEAR, &block[2..18], number(block, 0))
    }
}

pub(crate) struct Iq4Xs;

impl Blocks for Iq4Xs {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 136;

    #[inline(always)]
    fn chunk(block: &[u8], index: usize) -> Chunk {
        let low = block[4 + index / 2] >> (4 * (index % 2)) & 15;
        let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * index) & 3;
        let scale = f32::from(u16::from(low) | high << 4) - 32.0;
        chosen(&NONLINEAR, &block[8 + 16 * index..][..16], number(block, 0) * scale)
    }
}

pub(crate) struct Mxfp4;

impl Blocks for Mxfp4 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 17;

    #[inline(always)]
    fn chunk(block: &[u8], _: usize) -> Chunk {
        // Half the power of two, as the table is doubled; the least two are subnormal.
        let exponent = u32::from(block[0]);
        let half = f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 });
        chosen(&DOUBLED, &block[1..17], half)
    }
}

/// `$body` with `$type` standing for the layout of `$format`.
macro_rules! with_blocks {
    ($format:expr, $type:ident => $body:expr) => {
        $crate::quantized::format::with_blocks!(@ $format, $type => $body; Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K Iq4Nl Iq4Xs Mxfp4)
    };
    (@ $format:expr, $type:ident => $body:expr; $($variant:ident)*) => {
        match $format {
            $($crate::quantized::Format::$variant => {
                type $type = $crate::quantized::format::$variant;
                $body
            })*
        }
    };
}

pub(crate) use with_blocks;

impl Format {
    /// Weights of a block.
    pub const fn weights(self) -> usize {
        with_blocks!(self, F => F::ELEMENTS)
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        with_blocks!(self, F => F::BYTES)
    }

    /// Bytes of a row of `weights` weights; `None` if it is not made of whole blocks, or on overflow.
    pub const fn row_bytes(self, weights: usize) -> Option<usize> {
        if weights.is_multiple_of(self.weights()) { (weights / self.weights()).checked_mul(self.bytes()) } else { None }
    }

    /// Decodes whole blocks, each weight as `scale · q + offset` with both operations rounded. Allocates nothing.
    ///
    /// # Errors
    /// `blocks` are not whole, or `values` has not the room of exactly their weights.
    pub fn decode(self, blocks: &[u8], values: &mut [f32]) -> Result<()> {
        if self.row_bytes(values.len()) != Some(blocks.len()) {
            return Err(Error::invalid_argument(format!(
                "{} bytes of {self} for {} values: expected {} bytes for every {} values",
                blocks.len(),
                values.len(),
                self.bytes(),
                self.weights()
            )));
        }
        with_blocks!(self, F => decode::<F>(blocks, values));
        Ok(())
    }
}

fn decode<F: Blocks>(blocks: &[u8], values: &mut [f32]) {
    for (block, values) in blocks.chunks_exact(F::BYTES).zip(values.chunks_exact_mut(F::ELEMENTS)) {
        for (index, values) in values.chunks_exact_mut(CHUNK).enumerate() {
            let Chunk { q, scale, offset } = F::chunk(block, index);
            for (j, (value, q)) in values.iter_mut().zip(q).enumerate() {
                let scaled = scale[j / 16] * f32::from(q);
                *value = if F::OFFSETS { scaled + offset[j / 16] } else { scaled };
            }
        }
    }
}
