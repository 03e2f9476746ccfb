//! Block formats: quantised weights as GGUF files store them, and what they stand for.
//!
//! A row of weights is cut into blocks of [`Format::weights`] numbers, each stored in [`Format::bytes`] bytes: small integers beside the scales that
//! turn them into numbers. A quantised tensor is a tensor of bytes, and the [`Format`] says how to read them.
//!
//! Decoding multiplies and subtracts in f32 with one rounding for each operation, in the order that each format's function shows.

mod small;
mod super_blocks;
mod tables;
#[cfg(test)]
mod tests;

use elinvar_core::{Error, Result};
use half::f16;

/// How blocks of quantised weights are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the file format")]
pub enum Format {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 13] = [
        Format::Q4_0,
        Format::Q4_1,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q8_0,
        Format::Q2K,
        Format::Q3K,
        Format::Q4K,
        Format::Q5K,
        Format::Q6K,
        Format::Iq4Nl,
        Format::Iq4Xs,
        Format::Mxfp4,
    ];

    /// The name that GGUF tools use: `Q4_K`.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Q4_0 => "Q4_0",
            Format::Q4_1 => "Q4_1",
            Format::Q5_0 => "Q5_0",
            Format::Q5_1 => "Q5_1",
            Format::Q8_0 => "Q8_0",
            Format::Q2K => "Q2_K",
            Format::Q3K => "Q3_K",
            Format::Q4K => "Q4_K",
            Format::Q5K => "Q5_K",
            Format::Q6K => "Q6_K",
            Format::Iq4Nl => "IQ4_NL",
            Format::Iq4Xs => "IQ4_XS",
            Format::Mxfp4 => "MXFP4",
        }
    }

    /// Weights of a block.
    pub const fn weights(self) -> usize {
        match self {
            Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 | Format::Iq4Nl | Format::Mxfp4 => 32,
            Format::Q2K | Format::Q3K | Format::Q4K | Format::Q5K | Format::Q6K | Format::Iq4Xs => 256,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Format::Q4_0 | Format::Iq4Nl => 18,
            Format::Q4_1 => 20,
            Format::Q5_0 => 22,
            Format::Q5_1 => 24,
            Format::Q8_0 => 34,
            Format::Q2K => 84,
            Format::Q3K => 110,
            Format::Q4K => 144,
            Format::Q5K => 176,
            Format::Q6K => 210,
            Format::Iq4Xs => 136,
            Format::Mxfp4 => 17,
        }
    }

    /// Decodes whole blocks. Allocates nothing.
    ///
    /// # Errors
    /// `blocks` are not whole, or `values` has not the room of exactly their weights.
    pub fn decode(self, blocks: &[u8], values: &mut [f32]) -> Result<()> {
        if !blocks.len().is_multiple_of(self.bytes()) || blocks.len() / self.bytes() * self.weights() != values.len() {
            return Err(Error::invalid_argument(format!(
                "{} bytes of {} for {} values: {} bytes for every {} values expected",
                blocks.len(),
                self.name(),
                values.len(),
                self.bytes(),
                self.weights()
            )));
        }
        match self {
            Format::Q4_0 => each(blocks, values, small::q4_0),
            Format::Q4_1 => each(blocks, values, small::q4_1),
            Format::Q5_0 => each(blocks, values, small::q5_0),
            Format::Q5_1 => each(blocks, values, small::q5_1),
            Format::Q8_0 => each(blocks, values, small::q8_0),
            Format::Q2K => each(blocks, values, super_blocks::q2_k),
            Format::Q3K => each(blocks, values, super_blocks::q3_k),
            Format::Q4K => each(blocks, values, super_blocks::q4_k),
            Format::Q5K => each(blocks, values, super_blocks::q5_k),
            Format::Q6K => each(blocks, values, super_blocks::q6_k),
            Format::Iq4Nl => each(blocks, values, tables::iq4_nl),
            Format::Iq4Xs => each(blocks, values, tables::iq4_xs),
            Format::Mxfp4 => each(blocks, values, tables::mxfp4),
        }
        Ok(())
    }
}

fn each<const BYTES: usize, const WEIGHTS: usize>(blocks: &[u8], values: &mut [f32], decode: impl Fn(&[u8; BYTES], &mut [f32; WEIGHTS])) {
    for (block, values) in blocks.as_chunks().0.iter().zip(values.as_chunks_mut().0) {
        decode(block, values);
    }
}

/// The f16 at a byte of a block.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The `i`-th of 4-bit numbers in blocks of 32: the low halves of 16 bytes, then the high ones.
fn nibble(bytes: &[u8], i: usize) -> u8 {
    if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 }
}
