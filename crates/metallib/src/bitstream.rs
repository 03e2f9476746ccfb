//! LLVM's bitstream: blocks of records, which abbreviations make short.

use std::{collections::HashMap, rc::Rc};

/// What is read contradicts itself, in a few words.
pub(crate) type Parsed<T> = Result<T, &'static str>;

const BLOCKINFO: u64 = 0;
const END_BLOCK: u64 = 0;
const ENTER_SUBBLOCK: u64 = 1;
const DEFINE_ABBREVIATION: u64 = 2;
const UNABBREVIATED: u64 = 3;

const CHARACTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";

/// Bits, the lowest of each byte first.
#[derive(Clone)]
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at / 8 >= self.bytes.len()
    }

    /// A number of up to 64 bits.
    pub(crate) fn fixed(&mut self, width: u32) -> Parsed<u64> {
        if width > 64 {
            return Err("a number has more than 64 bits");
        }
        let shift = (self.at % 8) as u32;
        if shift + width < 64
            && let Some(word) = self.bytes.get(self.at / 8..).and_then(|bytes| bytes.first_chunk())
        {
            self.at += width as usize;
            return Ok(u64::from_le_bytes(*word) >> shift & ((1 << width) - 1));
        }
        let (mut value, mut have) = (0u64, 0);
        while have < width {
            let byte = *self.bytes.get(self.at / 8).ok_or("the bitcode ends within a record")?;
            let shift = (self.at % 8) as u32;
            let take = (8 - shift).min(width - have);
            value |= (u64::from(byte >> shift) & ((1 << take) - 1)) << have;
            have += take;
            self.at += take as usize;
        }
        Ok(value)
    }

    /// A number in pieces of `width` bits, of which the highest says that more follow.
    pub(crate) fn variable(&mut self, width: u32) -> Parsed<u64> {
        if !(2..=32).contains(&width) {
            return Err("a number's pieces have an impossible width");
        }
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let piece = self.fixed(width)?;
            let more = piece >> (width - 1) & 1 == 1;
            let bits = piece & ((1 << (width - 1)) - 1);
            if shift >= 64 && bits != 0 {
                return Err("a number has more than 64 bits");
            }
            value |= bits.checked_shl(shift).unwrap_or(0);
            shift = (shift + width - 1).min(64);
            if !more {
                return Ok(value);
            }
        }
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(32);
    }

    /// Whole bytes, padded to 32 bits.
    fn blob(&mut self, length: u64) -> Parsed<&'a [u8]> {
        self.align();
        let start = self.at / 8;
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        let blob = end.and_then(|end| self.bytes.get(start..end)).ok_or("bytes of a record lie beyond the bitcode's end")?;
        self.at = (start + blob.len()) * 8;
        self.align();
        Ok(blob)
    }

    fn skip_words(&mut self, words: u64) -> Parsed<()> {
        let end = usize::try_from(words).ok().and_then(|words| words.checked_mul(32)).and_then(|bits| bits.checked_add(self.at));
        self.at = end.filter(|end| *end <= self.bytes.len() * 8).ok_or("a block ends beyond the bitcode")?;
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Scalar {
    Literal(u64),
    Fixed(u32),
    Variable(u32),
    Character,
}

impl Scalar {
    fn read(self, bits: &mut Bits<'_>) -> Parsed<u64> {
        match self {
            Self::Literal(value) => Ok(value),
            Self::Fixed(width) => bits.fixed(width),
            Self::Variable(width) => bits.variable(width),
            Self::Character => Ok(CHARACTERS[bits.fixed(6)? as usize].into()),
        }
    }
}

#[derive(Clone, Copy)]
enum Operand {
    Scalar(Scalar),
    /// The rest of the record.
    Array(Scalar),
    Blob,
}

type Abbreviation = Rc<[Operand]>;

/// Abbreviations that a block may have; compilers make a handful.
const MOST_ABBREVIATIONS: usize = 256;

/// A record; its parts are reused for the next one.
#[derive(Default)]
pub(crate) struct Record<'a> {
    pub(crate) code: u64,
    pub(crate) operands: Vec<u64>,
    pub(crate) blob: &'a [u8],
}

/// What comes next in a block.
pub(crate) enum Item {
    /// The record given to `next` was filled.
    Record,
    /// A block begins: its number. It is to be entered or skipped.
    Block(u64),
    /// The block has ended.
    End,
}

/// Reads a bitstream from front to back.
pub(crate) struct Reader<'a> {
    bits: Bits<'a>,
    width: u32,
    abbreviations: Vec<Abbreviation>,
    outer: Vec<(u32, Vec<Abbreviation>)>,
    of_blocks: HashMap<u64, Vec<Abbreviation>>,
    /// Operands that may still come: no more than there are bits, though literals take none.
    left: usize,
}

impl<'a> Reader<'a> {
    /// Of what follows the magic number.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bits: Bits::new(bytes), width: 2, abbreviations: Vec::new(), outer: Vec::new(), of_blocks: HashMap::new(), left: bytes.len() * 8 }
    }

    /// The next record or block. Abbreviations and the blocks that only define them are taken in.
    pub(crate) fn next(&mut self, record: &mut Record<'a>) -> Parsed<Item> {
        loop {
            if self.outer.is_empty() && self.bits.is_at_end() {
                return Ok(Item::End);
            }
            match self.bits.fixed(self.width)? {
                END_BLOCK => {
                    self.bits.align();
                    let (width, abbreviations) = self.outer.pop().ok_or("a block ends that did not begin")?;
                    (self.width, self.abbreviations) = (width, abbreviations);
                    return Ok(Item::End);
                }
                ENTER_SUBBLOCK => match self.bits.variable(8)? {
                    BLOCKINFO => self.block_info(record)?,
                    block => return Ok(Item::Block(block)),
                },
                DEFINE_ABBREVIATION => {
                    let defined = self.abbreviation()?;
                    add(&mut self.abbreviations, defined)?;
                }
                id => {
                    self.record(id, record)?;
                    return Ok(Item::Record);
                }
            }
        }
    }

    /// Enters the block that `next` has met.
    pub(crate) fn enter(&mut self, block: u64) -> Parsed<()> {
        let known = self.of_blocks.get(&block).cloned().unwrap_or_default();
        let width = self.bits.variable(4)?;
        self.bits.align();
        self.bits.fixed(32)?;
        if !(2..=32).contains(&width) {
            return Err("a block's abbreviations have an impossible width");
        }
        let outer = (std::mem::replace(&mut self.width, width as u32), std::mem::replace(&mut self.abbreviations, known));
        self.outer.push(outer);
        Ok(())
    }

    /// Passes over the block that `next` has met.
    pub(crate) fn skip(&mut self) -> Parsed<()> {
        self.bits.variable(4)?;
        self.bits.align();
        let words = self.bits.fixed(32)?;
        self.bits.skip_words(words)
    }

    fn record(&mut self, id: u64, record: &mut Record<'a>) -> Parsed<()> {
        record.operands.clear();
        record.blob = &[];
        if id == UNABBREVIATED {
            record.code = self.bits.variable(6)?;
            for _ in 0..self.bits.variable(6)? {
                record.operands.push(self.bits.variable(6)?);
            }
            return Ok(());
        }
        let abbreviation =
            usize::try_from(id - 4).ok().and_then(|id| self.abbreviations.get(id)).ok_or("a record has an abbreviation that is not defined")?;
        for operand in abbreviation.clone().iter() {
            match operand {
                Operand::Scalar(scalar) => record.operands.push(scalar.read(&mut self.bits)?),
                Operand::Array(scalar) => {
                    for _ in 0..self.bits.variable(6)? {
                        record.operands.push(scalar.read(&mut self.bits)?);
                    }
                }
                Operand::Blob => {
                    let length = self.bits.variable(6)?;
                    record.blob = self.bits.blob(length)?;
                }
            }
        }
        if record.operands.is_empty() {
            return Err("a record has no code");
        }
        record.code = record.operands.remove(0);
        self.left = self.left.checked_sub(record.operands.len()).ok_or("the bitcode's records are longer than the bitcode")?;
        Ok(())
    }

    fn abbreviation(&mut self) -> Parsed<Abbreviation> {
        let count = self.bits.variable(5)?;
        let (mut operands, mut array) = (Vec::new(), false);
        for _ in 0..count {
            let scalar = if self.bits.fixed(1)? == 1 {
                Scalar::Literal(self.bits.variable(8)?)
            } else {
                match self.bits.fixed(3)? {
                    // A width of 0 stands for the number 0.
                    1 => width(self.bits.variable(5)?)?.map_or(Scalar::Literal(0), Scalar::Fixed),
                    2 => width(self.bits.variable(5)?)?.map_or(Scalar::Literal(0), Scalar::Variable),
                    3 if !array => {
                        array = true;
                        continue;
                    }
                    4 => Scalar::Character,
                    5 if !array => {
                        operands.push(Operand::Blob);
                        continue;
                    }
                    _ => return Err("an abbreviation has an unknown encoding"),
                }
            };
            // Elements that take no bits could be any number of them.
            if array && matches!(scalar, Scalar::Literal(_)) {
                return Err("an abbreviation has an array of literals");
            }
            operands.push(if array { Operand::Array(scalar) } else { Operand::Scalar(scalar) });
            array = false;
        }
        if array { Err("an abbreviation's array has no elements") } else { Ok(operands.into()) }
    }

    fn block_info(&mut self, record: &mut Record<'a>) -> Parsed<()> {
        const SET_BLOCK: u64 = 1;
        self.enter(BLOCKINFO)?;
        let mut block = None;
        loop {
            match self.bits.fixed(self.width)? {
                END_BLOCK => {
                    self.bits.align();
                    let (width, abbreviations) = self.outer.pop().ok_or("a block ends that did not begin")?;
                    (self.width, self.abbreviations) = (width, abbreviations);
                    return Ok(());
                }
                ENTER_SUBBLOCK => return Err("a block lies within the block of abbreviations"),
                DEFINE_ABBREVIATION => {
                    let defined = self.abbreviation()?;
                    add(self.of_blocks.entry(block.ok_or("an abbreviation is for no block")?).or_default(), defined)?;
                }
                id => {
                    self.record(id, record)?;
                    if record.code == SET_BLOCK {
                        block = record.operands.first().copied();
                    }
                }
            }
        }
    }
}

fn add(abbreviations: &mut Vec<Abbreviation>, defined: Abbreviation) -> Parsed<()> {
    if abbreviations.len() == MOST_ABBREVIATIONS {
        return Err("a block has too many abbreviations");
    }
    abbreviations.push(defined);
    Ok(())
}

fn width(bits: u64) -> Parsed<Option<u32>> {
    match u32::try_from(bits) {
        Ok(0) => Ok(None),
        Ok(bits @ 1..=64) => Ok(Some(bits)),
        Ok(_) | Err(_) => Err("an abbreviation has an impossible width"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_across_bytes() {
        let mut bits = Bits::new(&[0b1010_0110, 0b0000_0011]);
        assert_eq!((bits.fixed(3), bits.fixed(7), bits.fixed(0)), (Ok(0b110), Ok(0b1110100), Ok(0)));
        assert!(bits.fixed(7).is_err());
        // 3 bits each: 0b01 with more to come, then 0b10.
        assert_eq!(Bits::new(&[0b0001_0101]).variable(3), Ok(0b1001));
    }

    #[test]
    fn numbers_do_not_exceed_64_bits() {
        assert!(Bits::new(&[0xff; 32]).variable(6).is_err());
        assert!(Bits::new(&[0xff; 32]).variable(32).is_err());
        assert!(Bits::new(&[0xff; 32]).fixed(65).is_err());
    }
}
