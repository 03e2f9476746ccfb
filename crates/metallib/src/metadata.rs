//! The metadata of a module of LLVM bitcode.

use crate::bitstream::{Bits, Item, Parsed, Reader, Record};

const MODULE: u64 = 8;
const CONSTANTS: u64 = 11;
const METADATA: u64 = 15;

/// Of a module: one for each global variable, function and alias, in the order of values.
const GLOBALS: [u64; 5] = [7, 8, 9, 14, 15];

/// Of constants.
const SET_TYPE: u64 = 1;
const NULL: u64 = 2;
const INTEGER: u64 = 4;

/// Of metadata.
const STRING_OLD: u64 = 1;
const VALUE: u64 = 2;
const NODE: u64 = 3;
const NAME: u64 = 4;
const DISTINCT_NODE: u64 = 5;
const KIND: u64 = 6;
const NAMED_NODE: u64 = 10;
const STRINGS: u64 = 35;
const GLOBAL_ATTACHMENT: u64 = 36;
const INDEX_OFFSET: u64 = 38;
const INDEX: u64 = 39;

/// An entry of the metadata.
pub(crate) enum Entry<'a> {
    Text(std::borrow::Cow<'a, str>),
    Integer(i64),
    /// The number of each operand's entry.
    Node(Vec<Option<usize>>),
    /// What descriptions do not need.
    Other,
}

/// The metadata of a module.
#[derive(Default)]
pub(crate) struct Metadata<'a> {
    entries: Vec<Entry<'a>>,
    named: Vec<(String, Vec<usize>)>,
}

impl<'a> Metadata<'a> {
    /// Of LLVM bitcode, in its wrapper or without.
    pub(crate) fn read(bitcode: &'a [u8]) -> Parsed<Self> {
        let stream = unwrapped(bitcode)?.strip_prefix(b"BC\xc0\xde").ok_or("it is no LLVM bitcode")?;
        let (mut reader, mut record) = (Reader::new(stream), Record::default());
        while let Item::Block(block) = reader.next(&mut record)? {
            if block == MODULE {
                reader.enter(block)?;
                return Self::module(&mut reader, &mut record);
            }
            reader.skip()?;
        }
        Err("it holds no module")
    }

    fn module(reader: &mut Reader<'a>, record: &mut Record<'a>) -> Parsed<Self> {
        let (mut read, mut values) = (Self::default(), Vec::new());
        loop {
            match reader.next(record)? {
                Item::Record if GLOBALS.contains(&record.code) => values.push(None),
                Item::Record => {}
                Item::Block(block @ CONSTANTS) => {
                    reader.enter(block)?;
                    constants(reader, record, &mut values)?;
                }
                Item::Block(block @ METADATA) => {
                    reader.enter(block)?;
                    read.block(reader, record, &values)?;
                }
                Item::Block(_) => reader.skip()?,
                Item::End => return Ok(read),
            }
        }
    }

    fn block(&mut self, reader: &mut Reader<'a>, record: &mut Record<'a>, values: &[Option<i64>]) -> Parsed<()> {
        let mut name = None;
        loop {
            match reader.next(record)? {
                Item::End => return Ok(()),
                Item::Block(_) => {
                    reader.skip()?;
                    continue;
                }
                Item::Record => {}
            }
            let operands = &record.operands;
            let entry = match record.code {
                STRINGS => {
                    let &[count, offset] = operands.as_slice() else { return Err("a record of strings is not complete") };
                    self.strings(count, offset, record.blob)?;
                    continue;
                }
                NAME => {
                    name = Some(characters(operands));
                    continue;
                }
                NAMED_NODE => {
                    let nodes = operands.iter().filter_map(|node| usize::try_from(*node).ok()).collect();
                    self.named.push((name.take().unwrap_or_default(), nodes));
                    continue;
                }
                KIND | GLOBAL_ATTACHMENT | INDEX_OFFSET | INDEX => continue,
                STRING_OLD => Entry::Text(characters(operands).into()),
                VALUE => {
                    let value = operands.get(1).and_then(|value| values.get(usize::try_from(*value).ok()?).copied().flatten());
                    value.map_or(Entry::Other, Entry::Integer)
                }
                // Operands count from 1; 0 is none.
                NODE | DISTINCT_NODE => Entry::Node(operands.iter().map(|node| usize::try_from(node.checked_sub(1)?).ok()).collect()),
                _ => Entry::Other,
            };
            self.entries.push(entry);
        }
    }

    /// Lengths, each in pieces of 6 bits, and from `offset` on the characters.
    fn strings(&mut self, count: u64, offset: u64, blob: &'a [u8]) -> Parsed<()> {
        let offset = usize::try_from(offset).ok().filter(|offset| *offset <= blob.len()).ok_or("strings of the metadata lie beyond their record")?;
        let (lengths, mut text) = blob.split_at(offset);
        let mut lengths = Bits::new(lengths);
        for _ in 0..count {
            let length = lengths.variable(6)?;
            let split = usize::try_from(length).ok().and_then(|length| text.split_at_checked(length));
            let (string, rest) = split.ok_or("a string of the metadata lies beyond its record")?;
            self.entries.push(Entry::Text(String::from_utf8_lossy(string)));
            text = rest;
        }
        Ok(())
    }

    /// The nodes of a name, such as `air.kernel`.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &[Option<usize>]> {
        let nodes = self.named.iter().filter(move |(known, _)| known == name).flat_map(|(_, nodes)| nodes);
        nodes.filter_map(|node| self.node(Some(*node)))
    }

    fn entry(&self, at: Option<usize>) -> Option<&Entry<'a>> {
        self.entries.get(at?)
    }

    pub(crate) fn node(&self, at: Option<usize>) -> Option<&[Option<usize>]> {
        match self.entry(at)? {
            Entry::Node(operands) => Some(operands),
            Entry::Text(_) | Entry::Integer(_) | Entry::Other => None,
        }
    }

    pub(crate) fn text(&self, at: Option<usize>) -> Option<&str> {
        match self.entry(at)? {
            Entry::Text(text) => Some(text),
            Entry::Node(_) | Entry::Integer(_) | Entry::Other => None,
        }
    }

    pub(crate) fn integer(&self, at: Option<usize>) -> Option<i64> {
        match self.entry(at)? {
            Entry::Integer(value) => Some(*value),
            Entry::Node(_) | Entry::Text(_) | Entry::Other => None,
        }
    }
}

/// What the wrapper that Apple puts around bitcode holds.
fn unwrapped(bitcode: &[u8]) -> Parsed<&[u8]> {
    if !bitcode.starts_with(&0x0b17_c0deu32.to_le_bytes()) {
        return Ok(bitcode);
    }
    let word = |at: usize| Some(u32::from_le_bytes(bitcode.get(at..at + 4)?.try_into().ok()?) as usize);
    let range = word(8).zip(word(12)).and_then(|(start, bytes)| Some(start..start.checked_add(bytes)?));
    range.and_then(|range| bitcode.get(range)).ok_or("it lies beyond its wrapper")
}

fn constants<'a>(reader: &mut Reader<'a>, record: &mut Record<'a>, values: &mut Vec<Option<i64>>) -> Parsed<()> {
    loop {
        match reader.next(record)? {
            Item::Record => match record.code {
                SET_TYPE => {}
                NULL => values.push(Some(0)),
                // The sign is in the lowest bit.
                INTEGER => {
                    values.push(record.operands.first().map(|value| if value & 1 == 0 { (value >> 1) as i64 } else { -((value >> 1) as i64) }))
                }
                _ => values.push(None),
            },
            Item::Block(_) => reader.skip()?,
            Item::End => return Ok(()),
        }
    }
}

fn characters(operands: &[u64]) -> String {
    operands.iter().map(|character| char::from(*character as u8)).collect()
}
