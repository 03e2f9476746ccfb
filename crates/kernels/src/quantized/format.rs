//! Formats that quantise blocks of elements, as GGUF files have them, or made of what MLX stores apart: a tensor in one is a tensor of bytes, row after row of
//! whole blocks.
//!
//! In every format an element is `scale · q + offset`, with an integer `q` and numbers that 16 or 32 neighbours share and that f32 holds exactly.

use elinvar_core::{Error, Result};
use half::{bf16, f16};

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
        /// 32 elements: a bf16 scale, a bf16 offset and 4 bits each: of a group of MLX's, whose scale and offset are repeated.
        Affine4Bf16 "AFFINE4_BF16",
        /// 32 elements: an f16 scale, an f16 offset and 8 bits each, of MLX.
        Affine8F16 "AFFINE8_F16",
        /// 32 elements: a bf16 scale, a bf16 offset and 8 bits each, of MLX.
        Affine8Bf16 "AFFINE8_BF16",
    }
}

/// Elements that are unpacked at a time.
pub const CHUNK: usize = 32;

/// What 16 neighbours each of a chunk share: element j is `scale[j / 16] · q[j] + offset[j / 16]`.
#[derive(Clone, Copy)]
pub(crate) struct Scales {
    pub(crate) scale: [f32; 2],
    pub(crate) offset: [f32; 2],
}

/// What integers a format's fields stand for.
#[derive(Clone, Copy)]
pub(crate) enum Fields {
    /// Themselves less a number.
    Less(i16),
    /// Bytes of two's complement.
    Signed,
    /// Places in a table.
    Chosen(&'static [i8; 16]),
}

impl Fields {
    #[inline(always)]
    pub(crate) fn integer(self, field: u8) -> i16 {
        match self {
            Self::Less(zero) => i16::from(field) - zero,
            Self::Signed => i16::from(field as i8),
            Self::Chosen(table) => i16::from(table[usize::from(field & 15)]),
        }
    }
}

/// How the blocks of a format lie in a file. Each has its numbers (16-bit floats), and each chunk of it subscales of the numbers and 32 fields.
pub(crate) trait Blocks {
    /// Elements of a block, and its bytes.
    const ELEMENTS: usize;
    const BYTES: usize;
    /// Bits of a field.
    const BITS: usize;
    const FIELDS: Fields;
    /// Elements that share a scale and an offset.
    const GROUP: usize = CHUNK;
    /// Whether there are offsets.
    const OFFSETS: bool = false;
    /// Where in a block its numbers are.
    const NUMBERS: &'static [usize];
    /// Whether its numbers are bf16, not f16.
    const BF16: bool = false;
    /// Bytes of a chunk's subscales.
    const SUBSCALES: usize = 0;

    /// The fields of a chunk.
    fn fields(block: &[u8], index: usize) -> [u8; CHUNK];

    /// The subscales of a chunk, the first [`Blocks::SUBSCALES`] of them.
    #[inline(always)]
    fn subscales(_block: &[u8], _index: usize) -> [u8; 2] {
        [0; 2]
    }

    /// What a chunk's elements share, of the numbers of its block and its subscales.
    fn scales(numbers: [f32; 2], subscales: [u8; 2]) -> Scales;
}

/// The number that begins at a byte.
#[inline(always)]
pub(crate) fn number<F: Blocks>(bytes: &[u8], at: usize) -> f32 {
    let bytes = [bytes[at], bytes[at + 1]];
    if F::BF16 { bf16::from_le_bytes(bytes).to_f32() } else { f16::from_le_bytes(bytes).to_f32() }
}

/// The numbers of a block.
#[inline(always)]
pub(crate) fn numbers<F: Blocks>(block: &[u8]) -> [f32; 2] {
    std::array::from_fn(|index| if index < F::NUMBERS.len() { number::<F>(block, F::NUMBERS[index]) } else { 0.0 })
}

#[inline(always)]
fn alike(scale: f32, offset: f32) -> Scales {
    Scales { scale: [scale; 2], offset: [offset; 2] }
}

/// The fields of a chunk, each by its place. A loop is compiled to vectors where `from_fn` would be a call.
#[inline(always)]
fn each(field: impl Fn(usize) -> u8) -> [u8; CHUNK] {
    let mut fields = [0; CHUNK];
    fields.iter_mut().enumerate().for_each(|(j, to)| *to = field(j));
    fields
}

/// The 4 low bits of the first 16 bytes, then the 4 high ones.
#[inline(always)]
fn nibbles(bytes: &[u8]) -> [u8; CHUNK] {
    let mut fields = [0; CHUNK];
    let (low, high) = fields.split_at_mut(CHUNK / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(&bytes[..CHUNK / 2]) {
        (*low, *high) = (byte & 15, byte >> 4);
    }
    fields
}

/// The same with a fifth bit from a word.
#[inline(always)]
fn fives(bits: &[u8], bytes: &[u8]) -> [u8; CHUNK] {
    let mut fields = nibbles(bytes);
    for (fields, bits) in fields.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
        fields.iter_mut().enumerate().for_each(|(j, field)| *field |= (bits >> j & 1) << 4);
    }
    fields
}

pub(crate) struct Q4_0;

impl Blocks for Q4_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 18;
    const BITS: usize = 4;
    const FIELDS: Fields = Fields::Less(8);
    const NUMBERS: &'static [usize] = &[0];

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        nibbles(&block[2..18])
    }

    #[inline(always)]
    fn scales([scale, _]: [f32; 2], _: [u8; 2]) -> Scales {
        alike(scale, 0.0)
    }
}

/// 4 bits without a sign.
pub(crate) struct Affine4<const BF16: bool>;

pub(crate) type Q4_1 = Affine4<false>;
pub(crate) type Affine4Bf16 = Affine4<true>;

impl<const BF16: bool> Blocks for Affine4<BF16> {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 20;
    const BITS: usize = 4;
    const FIELDS: Fields = Fields::Less(0);
    const OFFSETS: bool = true;
    const NUMBERS: &'static [usize] = &[0, 2];
    const BF16: bool = BF16;

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        nibbles(&block[4..20])
    }

    #[inline(always)]
    fn scales([scale, offset]: [f32; 2], _: [u8; 2]) -> Scales {
        alike(scale, offset)
    }
}

pub(crate) struct Q5_0;

impl Blocks for Q5_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 22;
    const BITS: usize = 5;
    const FIELDS: Fields = Fields::Less(16);
    const NUMBERS: &'static [usize] = &[0];

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        fives(&block[2..6], &block[6..22])
    }

    #[inline(always)]
    fn scales([scale, _]: [f32; 2], _: [u8; 2]) -> Scales {
        alike(scale, 0.0)
    }
}

pub(crate) struct Q5_1;

impl Blocks for Q5_1 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 24;
    const BITS: usize = 5;
    const FIELDS: Fields = Fields::Less(0);
    const OFFSETS: bool = true;
    const NUMBERS: &'static [usize] = &[0, 2];

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        fives(&block[4..8], &block[8..24])
    }

    #[inline(always)]
    fn scales([scale, offset]: [f32; 2], _: [u8; 2]) -> Scales {
        alike(scale, offset)
    }
}

pub(crate) struct Q8_0;

impl Blocks for Q8_0 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 34;
    const BITS: usize = 8;
    const FIELDS: Fields = Fields::Signed;
    const NUMBERS: &'static [usize] = &[0];

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        each(|j| block[2 + j])
    }

    #[inline(always)]
    fn scales([scale, _]: [f32; 2], _: [u8; 2]) -> Scales {
        alike(scale, 0.0)
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

/// The numbers scale the scale and, subtracted, the offset.
#[inline(always)]
fn both([scale, offset]: [f32; 2], subscales: [u8; 2]) -> Scales {
    alike(scale * f32::from(subscales[0]), -(offset * f32::from(subscales[1])))
}

pub(crate) struct Q4K;

impl Blocks for Q4K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 144;
    const BITS: usize = 4;
    const FIELDS: Fields = Fields::Less(0);
    const OFFSETS: bool = true;
    const NUMBERS: &'static [usize] = &[0, 2];
    const SUBSCALES: usize = 2;

    #[inline(always)]
    fn fields(block: &[u8], index: usize) -> [u8; CHUNK] {
        let bytes = &block[16 + 32 * (index / 2)..][..32];
        each(|j| bytes[j] >> (4 * (index % 2)) & 15)
    }

    #[inline(always)]
    fn subscales(block: &[u8], index: usize) -> [u8; 2] {
        six(&block[4..16], index)
    }

    #[inline(always)]
    fn scales(numbers: [f32; 2], subscales: [u8; 2]) -> Scales {
        both(numbers, subscales)
    }
}

pub(crate) struct Q5K;

impl Blocks for Q5K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 176;
    const BITS: usize = 5;
    const FIELDS: Fields = Fields::Less(0);
    const OFFSETS: bool = true;
    const NUMBERS: &'static [usize] = &[0, 2];
    const SUBSCALES: usize = 2;

    #[inline(always)]
    fn fields(block: &[u8], index: usize) -> [u8; CHUNK] {
        let (bits, bytes) = (&block[16..48], &block[48 + 32 * (index / 2)..][..32]);
        each(|j| bytes[j] >> (4 * (index % 2)) & 15 | (bits[j] >> index & 1) << 4)
    }

    #[inline(always)]
    fn subscales(block: &[u8], index: usize) -> [u8; 2] {
        six(&block[4..16], index)
    }

    #[inline(always)]
    fn scales(numbers: [f32; 2], subscales: [u8; 2]) -> Scales {
        both(numbers, subscales)
    }
}

/// A signed scale for each half of a chunk.
#[inline(always)]
fn each_half(number: f32, subscales: [u8; 2]) -> Scales {
    Scales { scale: subscales.map(|sub| number * f32::from(sub as i8)), offset: [0.0; 2] }
}

pub(crate) struct Q6K;

impl Blocks for Q6K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 210;
    const BITS: usize = 6;
    const FIELDS: Fields = Fields::Less(32);
    const GROUP: usize = 16;
    const NUMBERS: &'static [usize] = &[208];
    const SUBSCALES: usize = 2;

    #[inline(always)]
    fn fields(block: &[u8], index: usize) -> [u8; CHUNK] {
        let (half, quarter) = (index / 4, index % 4);
        let low = &block[64 * half + 32 * (quarter % 2)..][..32];
        let high = &block[128 + 32 * half..][..32];
        each(|j| low[j] >> (4 * (quarter / 2)) & 15 | (high[j] >> (2 * quarter) & 3) << 4)
    }

    #[inline(always)]
    fn subscales(block: &[u8], index: usize) -> [u8; 2] {
        std::array::from_fn(|group| block[192 + 2 * index + group])
    }

    #[inline(always)]
    fn scales([number, _]: [f32; 2], subscales: [u8; 2]) -> Scales {
        each_half(number, subscales)
    }
}

pub(crate) struct Q2K;

impl Blocks for Q2K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 84;
    const BITS: usize = 2;
    const FIELDS: Fields = Fields::Less(0);
    const GROUP: usize = 16;
    const OFFSETS: bool = true;
    const NUMBERS: &'static [usize] = &[80, 82];
    const SUBSCALES: usize = 2;

    #[inline(always)]
    fn fields(block: &[u8], index: usize) -> [u8; CHUNK] {
        let bytes = &block[16 + 32 * (index / 4)..][..32];
        each(|j| bytes[j] >> (2 * (index % 4)) & 3)
    }

    #[inline(always)]
    fn subscales(block: &[u8], index: usize) -> [u8; 2] {
        std::array::from_fn(|group| block[2 * index + group])
    }

    #[inline(always)]
    fn scales([scale, offset]: [f32; 2], subscales: [u8; 2]) -> Scales {
        Scales { scale: subscales.map(|sub| scale * f32::from(sub & 15)), offset: subscales.map(|sub| -(offset * f32::from(sub >> 4))) }
    }
}

pub(crate) struct Q3K;

impl Blocks for Q3K {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 110;
    const BITS: usize = 3;
    const FIELDS: Fields = Fields::Less(4);
    const GROUP: usize = 16;
    const NUMBERS: &'static [usize] = &[108];
    const SUBSCALES: usize = 2;

    #[inline(always)]
    fn fields(block: &[u8], index: usize) -> [u8; CHUNK] {
        let (bits, bytes) = (&block[..32], &block[32 + 32 * (index / 4)..][..32]);
        each(|j| bytes[j] >> (2 * (index % 4)) & 3 | (bits[j] >> index & 1) << 2)
    }

    /// The 6-bit scales less 32.
    #[inline(always)]
    fn subscales(block: &[u8], index: usize) -> [u8; 2] {
        let packed = &block[96..108];
        std::array::from_fn(|group| {
            let group = 2 * index + group;
            let low = packed[group % 8] >> (4 * (group / 8)) & 15;
            let high = packed[8 + group % 4] >> (2 * (group / 4)) & 3;
            (low | high << 4).wrapping_sub(32)
        })
    }

    #[inline(always)]
    fn scales([number, _]: [f32; 2], subscales: [u8; 2]) -> Scales {
        each_half(number, subscales)
    }
}

/// The integers of the nonlinear formats: closer together around zero.
pub(super) const NONLINEAR: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the numbers of four bits.
pub(super) const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(crate) struct Iq4Nl;

impl Blocks for Iq4Nl {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 18;
    const BITS: usize = 4;
    const FIELDS: Fields = Fields::Chosen(&NONLINEAR);
    const NUMBERS: &'static [usize] = &[0];

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        nibbles(&block[2..18])
    }

    #[inline(always)]
    fn scales([scale, _]: [f32; 2], _: [u8; 2]) -> Scales {
        alike(scale, 0.0)
    }
}

pub(crate) struct Iq4Xs;

impl Blocks for Iq4Xs {
    const ELEMENTS: usize = 256;
    const BYTES: usize = 136;
    const BITS: usize = 4;
    const FIELDS: Fields = Fields::Chosen(&NONLINEAR);
    const NUMBERS: &'static [usize] = &[0];
    const SUBSCALES: usize = 1;

    #[inline(always)]
    fn fields(block: &[u8], index: usize) -> [u8; CHUNK] {
        nibbles(&block[8 + 16 * index..][..16])
    }

    /// The 6-bit scale less 32.
    #[inline(always)]
    fn subscales(block: &[u8], index: usize) -> [u8; 2] {
        let low = block[4 + index / 2] >> (4 * (index % 2)) & 15;
        let high = (u16::from_le_bytes([block[2], block[3]]) >> (2 * index) & 3) as u8;
        [(low | high << 4).wrapping_sub(32), 0]
    }

    #[inline(always)]
    fn scales([number, _]: [f32; 2], [sub, _]: [u8; 2]) -> Scales {
        each_half(number, [sub; 2])
    }
}

pub(crate) struct Mxfp4;

impl Blocks for Mxfp4 {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 17;
    const BITS: usize = 4;
    const FIELDS: Fields = Fields::Chosen(&DOUBLED);
    const NUMBERS: &'static [usize] = &[];
    const SUBSCALES: usize = 1;

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        nibbles(&block[1..17])
    }

    #[inline(always)]
    fn subscales(block: &[u8], _: usize) -> [u8; 2] {
        [block[0], 0]
    }

    /// Half the power of two, as the table is doubled; the least two are subnormal.
    #[inline(always)]
    fn scales(_: [f32; 2], [exponent, _]: [u8; 2]) -> Scales {
        let exponent = u32::from(exponent);
        alike(f32::from_bits(if exponent < 2 { 0x0020_0000 << exponent } else { (exponent - 1) << 23 }), 0.0)
    }
}

/// 8 bits without a sign. Products are of signed bytes, so the fields are kept less 128, which the offset makes good.
pub(crate) struct Affine8<const BF16: bool>;

pub(crate) type Affine8F16 = Affine8<false>;
pub(crate) type Affine8Bf16 = Affine8<true>;

impl<const BF16: bool> Blocks for Affine8<BF16> {
    const ELEMENTS: usize = 32;
    const BYTES: usize = 36;
    const BITS: usize = 8;
    const FIELDS: Fields = Fields::Signed;
    const OFFSETS: bool = true;
    const NUMBERS: &'static [usize] = &[0, 2];
    const BF16: bool = BF16;

    #[inline(always)]
    fn fields(block: &[u8], _: usize) -> [u8; CHUNK] {
        each(|j| block[4 + j] ^ 0x80)
    }

    #[inline(always)]
    fn scales([scale, offset]: [f32; 2], _: [u8; 2]) -> Scales {
        alike(scale, scale.mul_add(128.0, offset))
    }
}

/// `$body` with `$type` standing for the layout of `$format`.
macro_rules! with_blocks {
    ($format:expr, $type:ident => $body:expr) => {
        $crate::quantized::format::with_blocks!(@ $format, $type => $body; Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2K Q3K Q4K Q5K Q6K Iq4Nl Iq4Xs Mxfp4 Affine4Bf16 Affine8F16 Affine8Bf16)
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

    /// Bits of a weight's field.
    pub const fn bits(self) -> usize {
        with_blocks!(self, F => F::BITS)
    }

    /// Where in a block its numbers are, 16 bits each: a scale and, in some formats, an offset.
    pub const fn numbers(self) -> &'static [usize] {
        with_blocks!(self, F => F::NUMBERS)
    }

    /// The bytes of a number of a block, rounded to the format's type of numbers.
    pub fn number(self, value: f32) -> [u8; 2] {
        match with_blocks!(self, F => F::BF16) {
            true => bf16::from_f32(value).to_le_bytes(),
            false => f16::from_f32(value).to_le_bytes(),
        }
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
            decode_chunk::<F>(&F::fields(block, index), F::scales(numbers::<F>(block), F::subscales(block, index)), values);
        }
    }
}

/// The elements of a chunk, each as `scale · q + offset` with both operations rounded.
#[inline(always)]
pub(super) fn decode_chunk<F: Blocks>(fields: &[u8; CHUNK], Scales { scale, offset }: Scales, values: &mut [f32]) {
    for (j, (value, field)) in values.iter_mut().zip(fields).enumerate() {
        let scaled = scale[j / 16] * f32::from(F::FIELDS.integer(*field));
        *value = if F::OFFSETS { scaled + offset[j / 16] } else { scaled };
    }
}
