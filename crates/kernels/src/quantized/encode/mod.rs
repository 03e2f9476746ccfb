//! From f32 to blocks, with the least error that a search over scales finds. Of MLX's groups see [`encode_group`]: their blocks are read only.

mod fit;
mod group;
#[cfg(test)]
mod tests;

use elinvar_core::{Error, Result};
use half::f16;

use super::format::{
    Affine4Bf16, Affine8, Blocks, CHUNK, DOUBLED, Format, Iq4Nl, Iq4Xs, Mxfp4, NONLINEAR, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0,
    with_blocks,
};
use fit::{Levels, Whole, levels, line, line_levels, lines, narrow, scale, scales};
pub use group::encode_group;

impl Format {
    /// Encodes one row, or a part of whole blocks of it, so that what [`Format::decode`] gives has a small mean square error.
    ///
    /// `importance` has a number for each value, by which its error counts: the mean square of what the column is multiplied by. Without it, all count alike.
    /// Within a block no value counts less than a thousandth of the most important one. Allocates little.
    ///
    /// # Errors
    /// A format of MLX, lengths that do not fit, a value that is not finite, one that needs a scale beyond f16's range, or an importance that is negative or not finite.
    pub fn encode(self, values: &[f32], importance: Option<&[f32]>, blocks: &mut [u8]) -> Result<()> {
        if self.row_bytes(values.len()) != Some(blocks.len()) {
            return Err(Error::invalid_argument(format!(
                "{} values for {} bytes of {self}: expected {} bytes for every {} values",
                values.len(),
                blocks.len(),
                self.bytes(),
                self.weights()
            )));
        }
        if let Some((at, value)) = values.iter().enumerate().find(|(_, x)| !x.is_finite()) {
            return Err(Error::invalid_data(format!("value {at} is {value}: {self} has finite numbers only")));
        }
        if let Some(importance) = importance {
            if importance.len() != values.len() {
                return Err(Error::invalid_argument(format!(
                    "an importance for {} of {} values: one for each expected",
                    importance.len(),
                    values.len()
                )));
            }
            if let Some((at, w)) = importance.iter().enumerate().find(|(_, w)| !(w.is_finite() && **w >= 0.0)) {
                return Err(Error::invalid_data(format!("the importance of column {at} is {w}: it must be finite and not negative")));
            }
        }
        with_blocks!(self, F => encode::<F>(values, importance, blocks)).map_err(|e| e.context(self))
    }
}

fn encode<F: Encode>(values: &[f32], importance: Option<&[f32]>, blocks: &mut [u8]) -> Result<()> {
    let mut weights = vec![1.0; F::ELEMENTS];
    for (index, (x, block)) in values.chunks_exact(F::ELEMENTS).zip(blocks.chunks_exact_mut(F::BYTES)).enumerate() {
        if let Some(importance) = importance.and_then(|i| i.get(index * F::ELEMENTS..)) {
            let most = importance.iter().take(F::ELEMENTS).copied().fold(f32::MIN_POSITIVE, f32::max);
            weights.iter_mut().zip(importance).for_each(|(w, i)| *w = (i / most).max(1e-3));
        }
        if x.iter().any(|x| x.abs() > F::GREATEST) {
            return Err(too_great());
        }
        block.fill(0);
        F::encode(x, &weights, block)?;
    }
    Ok(())
}

/// How a block is made.
trait Encode: Blocks {
    /// No value beyond this has a block. Squares of what is below do not overflow.
    const GREATEST: f32 = 65_504.0 * 4096.0;

    /// Writes the block of values `x` of weights `w` over zeros.
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()>;
}

fn too_great() -> Error {
    Error::unsupported(format!("a value needs a scale or an offset beyond {}, the greatest f16", f16::MAX))
}

/// Writes an f16 that `narrow` has made.
fn put(block: &mut [u8], at: usize, x: f32) -> Result<()> {
    if !x.is_finite() {
        return Err(too_great());
    }
    block[at..at + 2].copy_from_slice(&f16::from_f32(x).to_le_bytes());
    Ok(())
}

/// 4 bits each: those of the first 16 in the low half of each byte.
fn put_nibbles(bytes: &mut [u8], q: impl Iterator<Item = u8>) {
    q.enumerate().for_each(|(j, q)| bytes[j % 16] |= (q & 15) << (j / 16 * 4));
}

/// The same, and a fifth bit in a word before them.
fn put_fives(bytes: &mut [u8], q: impl Iterator<Item = u8>) {
    let (word, bytes) = bytes.split_at_mut(4);
    put_nibbles(
        bytes,
        q.enumerate().map(|(j, q)| {
            word[j / 8] |= (q >> 4) << (j % 8);
            q
        }),
    );
}

/// Levels of a group's scale, less the lowest.
fn unsigned<L: Levels>(x: &[f32], scale: f32, lowest: i8) -> impl Iterator<Item = u8> {
    levels::<L>(x, scale).map(move |q| q.wrapping_sub(lowest).cast_unsigned())
}

impl Encode for Q4_0 {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        type L = Whole<-8, 7>;
        let d = narrow(scale::<L>(x, w));
        put(block, 0, d)?;
        put_nibbles(&mut block[2..], unsigned::<L>(x, d, -8));
        Ok(())
    }
}

impl Encode for Q5_0 {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        type L = Whole<-16, 15>;
        let d = narrow(scale::<L>(x, w));
        put(block, 0, d)?;
        put_fives(&mut block[2..], unsigned::<L>(x, d, -16));
        Ok(())
    }
}

impl Encode for Q8_0 {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        // Without −128, which some implementations cannot negate.
        type L = Whole<-127, 127>;
        let d = narrow(scale::<L>(x, w));
        put(block, 0, d)?;
        block[2..].iter_mut().zip(levels::<L>(x, d)).for_each(|(byte, q)| *byte = q.cast_unsigned());
        Ok(())
    }
}

/// Scale and offset of a block of levels 0 to `top`, as f16 has them.
fn put_line(x: &[f32], w: &[f32], top: f32, block: &mut [u8]) -> Result<[f32; 2]> {
    let fitted = line(x, w, top, f32::INFINITY).map(narrow);
    put(block, 0, fitted[0])?;
    put(block, 2, fitted[1])?;
    Ok(fitted)
}

impl Encode for Q4_1 {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        let fitted = put_line(x, w, 15.0, block)?;
        put_nibbles(&mut block[4..], line_levels(x, 15.0, fitted));
        Ok(())
    }
}

impl Encode for Q5_1 {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        let fitted = put_line(x, w, 31.0, block)?;
        put_fives(&mut block[4..], line_levels(x, 31.0, fitted));
        Ok(())
    }
}

/// Eight scales and eight offsets of 6 bits in twelve bytes.
fn put_six(packed: &mut [u8], multiples: &[[f32; 2]; 8]) {
    for (index, [scale, offset]) in multiples.map(|pair| pair.map(|m| m as u8)).into_iter().enumerate() {
        if index < 4 {
            packed[index] |= scale;
            packed[index + 4] |= offset;
        } else {
            packed[index + 4] = scale & 15 | (offset & 15) << 4;
            packed[index - 4] |= scale >> 4 << 6;
            packed[index] |= offset >> 4 << 6;
        }
    }
}

/// Blocks of eight lines; `place` puts level `q` of value `j` of a group.
fn put_eight(x: &[f32], w: &[f32], top: f32, block: &mut [u8], place: impl Fn(&mut [u8], usize, usize, u8)) -> Result<()> {
    let fitted = lines::<8>(x, w, top, 63.0);
    put(block, 0, fitted.units[0])?;
    put(block, 2, fitted.units[1])?;
    put_six(&mut block[4..16], &fitted.multiples);
    for (group, x) in x.chunks_exact(CHUNK).enumerate() {
        line_levels(x, top, fitted.line(group)).enumerate().for_each(|(j, q)| place(block, group, j, q));
    }
    Ok(())
}

impl Encode for Q4K {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        put_eight(x, w, 15.0, block, |block, group, j, q| block[16 + group / 2 * 32 + j] |= q << (group % 2 * 4))
    }
}

impl Encode for Q5K {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        put_eight(x, w, 31.0, block, |block, group, j, q| {
            block[16 + j] |= q >> 4 << group;
            block[48 + group / 2 * 32 + j] |= (q & 15) << (group % 2 * 4);
        })
    }
}

impl Encode for Q2K {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        let fitted = lines::<16>(x, w, 3.0, 15.0);
        put(block, 80, fitted.units[0])?;
        put(block, 82, fitted.units[1])?;
        for (group, x) in x.chunks_exact(16).enumerate() {
            let [scale, offset] = fitted.multiples[group].map(|m| m as u8);
            block[group] = scale | offset << 4;
            for (j, q) in (group * 16..).zip(line_levels(x, 3.0, fitted.line(group))) {
                block[16 + j / 128 * 32 + j % 32] |= q << (j / 32 % 4 * 2);
            }
        }
        Ok(())
    }
}

impl Encode for Q3K {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        type L = Whole<-4, 3>;
        let (d, multiples) = scales::<L, 16>(x, w, [-32.0, 31.0]);
        put(block, 108, d)?;
        for (group, (x, multiple)) in x.chunks_exact(16).zip(multiples).enumerate() {
            let stored = (multiple + 32.0) as u8;
            block[96 + group % 8] |= (stored & 15) << (group / 8 * 4);
            block[104 + group % 4] |= stored >> 4 << (group / 4 * 2);
            for (j, q) in (group * 16..).zip(unsigned::<L>(x, d * multiple, -4)) {
                block[j % 32] |= q >> 2 << (j / 32);
                block[32 + j / 128 * 32 + j % 32] |= (q & 3) << (j / 32 % 4 * 2);
            }
        }
        Ok(())
    }
}

impl Encode for Q6K {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        type L = Whole<-32, 31>;
        let (d, multiples) = scales::<L, 16>(x, w, [-128.0, 127.0]);
        put(block, 208, d)?;
        for (group, (x, multiple)) in x.chunks_exact(16).zip(multiples).enumerate() {
            block[192 + group] = (multiple as i8).cast_unsigned();
            for (j, q) in (group * 16..).zip(unsigned::<L>(x, d * multiple, -32)) {
                block[j / 128 * 64 + j % 64] |= (q & 15) << (j / 64 % 2 * 4);
                block[128 + j / 128 * 32 + j % 32] |= q >> 4 << (j / 32 % 4 * 2);
            }
        }
        Ok(())
    }
}

/// The integers of [`NONLINEAR`].
struct Chosen;

impl Levels for Chosen {
    const ENDS: [f32; 2] = [NONLINEAR[0] as f32, NONLINEAR[15] as f32];

    #[inline(always)]
    fn nearest(x: f32) -> f32 {
        let mut level = f32::from(NONLINEAR[0]);
        for pair in NONLINEAR.windows(2) {
            let [low, high] = [f32::from(pair[0]), f32::from(pair[1])];
            level += if x > 0.5 * (low + high) { high - low } else { 0.0 };
        }
        level
    }
}

/// The places of the nearest integers in [`NONLINEAR`].
fn places(x: &[f32], scale: f32) -> impl Iterator<Item = u8> {
    levels::<Chosen>(x, scale).map(|level| NONLINEAR.iter().take_while(|l| **l < level).count() as u8)
}

impl Encode for Iq4Nl {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        let d = narrow(scale::<Chosen>(x, w));
        put(block, 0, d)?;
        put_nibbles(&mut block[2..], places(x, d));
        Ok(())
    }
}

impl Encode for Iq4Xs {
    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        let (d, multiples) = scales::<Chosen, 8>(x, w, [-32.0, 31.0]);
        put(block, 0, d)?;
        for (group, (x, multiple)) in x.chunks_exact(CHUNK).zip(multiples).enumerate() {
            let stored = (multiple + 32.0) as u8;
            block[2 + group / 4] |= stored >> 4 << (group % 4 * 2);
            block[4 + group / 2] |= (stored & 15) << (group % 2 * 4);
            put_nibbles(&mut block[8 + group * 16..], places(x, d * multiple));
        }
        Ok(())
    }
}

impl Encode for Mxfp4 {
    const GREATEST: f32 = f32::MAX;

    fn encode(x: &[f32], w: &[f32], block: &mut [u8]) -> Result<()> {
        /// The nearest of the 16 numbers, which are multiples of `unit`, half the power of two.
        fn level(x: f32, unit: f64) -> (u8, f64) {
            let magnitude = f64::from(x.abs()) / unit;
            let nearer = |pair: &&[i8]| {
                let [low, high] = [f64::from(pair[0]), f64::from(pair[1])];
                2.0 * magnitude > low + high && high * unit <= f64::from(f32::MAX)
            };
            let index = DOUBLED[..8].windows(2).take_while(nearer).count();
            (index as u8 + if x < 0.0 { 8 } else { 0 }, f64::from(DOUBLED[index]) * unit - f64::from(x.abs()))
        }
        let most = f64::from(x.iter().fold(0.0, |most: f32, x| most.max(x.abs())));
        let unit = |exponent: i32| 2f64.powi(exponent - 128);
        // The least exponent at which nothing is cut off much, and those around it.
        let around = if most > 0.0 { (most / 6.0).log2().ceil() as i32 + 127 } else { 0 };
        let (mut least, mut best) = (f64::INFINITY, 0);
        for exponent in [around - 1, around, around + 1].map(|e| e.clamp(0, 254)) {
            let error = x.iter().zip(w).map(|(x, w)| f64::from(*w) * level(*x, unit(exponent)).1.powi(2)).sum();
            if error < least {
                (least, best) = (error, exponent);
            }
        }
        block[0] = best as u8;
        put_nibbles(&mut block[1..], x.iter().map(|x| level(*x, unit(best)).0));
        Ok(())
    }
}

fn read_only() -> Error {
    Error::unsupported("the format is read and not written")
}

impl Encode for Affine4Bf16 {
    fn encode(_: &[f32], _: &[f32], _: &mut [u8]) -> Result<()> {
        Err(read_only())
    }
}

impl<const BF16: bool> Encode for Affine8<BF16> {
    fn encode(_: &[f32], _: &[f32], _: &mut [u8]) -> Result<()> {
        Err(read_only())
    }
}
