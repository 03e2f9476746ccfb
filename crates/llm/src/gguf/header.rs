//! The header of a GGUF file: magic, version, counts, metadata, the table of tensors. The data follow at a multiple of the alignment.

use std::{collections::BTreeMap, ops::Range};

use elinvar::{Error, Result};

use super::{
    types::TensorType,
    value::{Kind, scalar, text},
};

/// What a header says.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) metadata: BTreeMap<String, Entry>,
    pub(super) tensors: BTreeMap<String, TensorInfo>,
}

/// Where the file has a value, which is valid.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// Of an array, the type and number of its values; `range` is theirs.
    pub(super) array: Option<(Kind, usize)>,
    pub(super) range: Range<usize>,
}

/// A tensor's place.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// Its type.
    pub kind: &'static TensorType,
    /// Extents, row-major: the last is contiguous.
    pub dims: Vec<usize>,
    pub(super) part: usize,
    pub(crate) range: Range<usize>,
}

impl TensorInfo {
    /// Bytes in the file.
    pub fn bytes(&self) -> usize {
        self.range.len()
    }
}

/// Keys of metadata and tensors at most. Files have fewer than a hundred and a few thousand; the bounds keep the memory of a hostile file's index small.
const MAX_KEYS: u64 = 1 << 16;
const MAX_TENSORS: u64 = 1 << 16;
/// The shortest key and value, and the shortest entry of the table of tensors.
const MIN_KEY_BYTES: u64 = 14;
const MIN_TENSOR_BYTES: u64 = 25;
const MAX_KEY_LENGTH: usize = 65_535;
const MAX_NAME_LENGTH: usize = 63;
const MAX_DIMS: u32 = 4;
const DEFAULT_ALIGNMENT: usize = 32;

pub(super) fn read(file: &[u8], part: usize) -> Result<Header> {
    let mut cursor = Cursor { file, at: 0 };
    let magic: [u8; 4] = cursor.take()?;
    if magic != *b"GGUF" {
        return Err(Error::invalid_data(format!("it begins with '{}', not with 'GGUF': no GGUF file", magic.escape_ascii())));
    }
    let version = cursor.u32()?;
    match version {
        2 | 3 => {}
        1 => return Err(Error::unsupported("version 1 is not supported: 2 and 3 are; convert the model again")),
        v if v & 0xffff == 0 => return Err(Error::unsupported("the file was written for big-endian machines: little-endian files are supported")),
        v => return Err(Error::unsupported(format!("version {v} is not supported: 2 and 3 are"))),
    }
    let (tensors, keys) = (cursor.u64()?, cursor.u64()?);
    cursor.check_count("tensors", tensors, MIN_TENSOR_BYTES)?;
    cursor.check_count("keys", keys, MIN_KEY_BYTES)?;
    if keys > MAX_KEYS {
        return Err(Error::unsupported(format!("{keys} keys of metadata: at most {MAX_KEYS} are supported")));
    }
    if tensors > MAX_TENSORS {
        return Err(Error::unsupported(format!("{tensors} tensors: at most {MAX_TENSORS} are supported")));
    }
    let metadata = read_metadata(&mut cursor, keys)?;
    let alignment = alignment(file, &metadata)?;
    let tensors = read_tensors(&mut cursor, tensors, alignment, part)?;
    Ok(Header { version, metadata, tensors })
}

fn read_metadata(cursor: &mut Cursor<'_>, keys: u64) -> Result<BTreeMap<String, Entry>> {
    let mut metadata = BTreeMap::new();
    for number in 0..keys {
        let key = cursor.text("key", MAX_KEY_LENGTH).map_err(|e| e.context(format!("key {number}")))?;
        let entry = cursor.entry().map_err(|e| e.context(format!("key '{key}'")))?;
        if metadata.insert(key.to_owned(), entry).is_some() {
            return Err(Error::invalid_data(format!("key '{key}' occurs twice")));
        }
    }
    Ok(metadata)
}

fn alignment(file: &[u8], metadata: &BTreeMap<String, Entry>) -> Result<usize> {
    const KEY: &str = "general.alignment";
    let Some(entry) = metadata.get(KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    let bytes = file.get(entry.range.clone()).and_then(<[u8]>::first_chunk);
    match (entry.kind, bytes.map(|b| u32::from_le_bytes(*b))) {
        (Kind::U32, Some(alignment)) if alignment.is_power_of_two() => Ok(alignment as usize),
        (Kind::U32, alignment) => Err(Error::invalid_data(format!("key '{KEY}' is {}: a power of two expected", alignment.unwrap_or(0)))),
        (kind, _) => Err(Error::invalid_data(format!("key '{KEY}' is of type {kind}: u32 expected"))),
    }
}

/// The table; offsets must follow each other, each at the next multiple of the alignment.
fn read_tensors(cursor: &mut Cursor<'_>, count: u64, alignment: usize, part: usize) -> Result<BTreeMap<String, TensorInfo>> {
    let mut listed = Vec::new();
    for number in 0..count {
        let name = cursor.text("name", MAX_NAME_LENGTH).map_err(|e| e.context(format!("tensor {number}")))?;
        listed.push((name, cursor.tensor().map_err(|e| e.context(format!("tensor '{name}'")))?));
    }
    let mut tensors = BTreeMap::new();
    let (mut expected, file) = (0usize, cursor.file.len());
    let start = cursor.at.checked_next_multiple_of(alignment);
    for (name, Listed { kind, dims, bytes, offset }) in listed {
        let reject = |message: String| Error::invalid_data(format!("tensor '{name}': {message}"));
        if usize::try_from(offset).ok() != Some(expected) {
            return Err(reject(format!("its data begin at byte {offset}, but {expected} is next after the tensor before, aligned to {alignment}")));
        }
        let range = start.and_then(|start| start.checked_add(expected)).and_then(|from| Some(from..from.checked_add(bytes)?));
        let range = range.filter(|range| range.end <= file).ok_or_else(|| {
            reject(format!("its {bytes} bytes at byte {offset} of the data exceed the file of {file} bytes: it is cut or damaged, fetch it again"))
        })?;
        // No sum can overflow: what is in the file is smaller than the address space.
        expected = (expected + bytes).checked_next_multiple_of(alignment).ok_or_else(|| reject("its end overflows".to_owned()))?;
        if tensors.insert(name.to_owned(), TensorInfo { kind, dims, part, range }).is_some() {
            return Err(reject("it occurs twice".to_owned()));
        }
    }
    Ok(tensors)
}

/// A tensor as the table has it.
struct Listed {
    kind: &'static TensorType,
    dims: Vec<usize>,
    bytes: usize,
    offset: u64,
}

struct Cursor<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        self.file.get(self.at..).unwrap_or_default()
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let cut = || Error::invalid_data(format!("the file ends after {} bytes, inside the header: it is cut", self.file.len()));
        let bytes = *self.rest().first_chunk().ok_or_else(cut)?;
        self.at += N;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Rejects a number of things that the rest of the file cannot hold.
    fn check_count(&self, what: &str, count: u64, bytes: u64) -> Result<()> {
        let rest = self.rest().len();
        if count.checked_mul(bytes).is_some_and(|needed| needed <= rest as u64) {
            return Ok(());
        }
        Err(Error::invalid_data(format!("{count} {what} in {rest} bytes: the file is cut or damaged")))
    }

    fn text(&mut self, what: &str, most: usize) -> Result<&'a str> {
        let bytes = text(self.rest())?;
        self.at += 8 + bytes.len();
        if bytes.is_empty() || bytes.len() > most {
            return Err(Error::invalid_data(format!("a {what} of {} bytes: 1 to {most} expected", bytes.len())));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::invalid_data(format!("the {what} '{}' is not UTF-8", bytes.escape_ascii())))?;
        // Messages and listings show it.
        match text.contains(char::is_control) {
            true => Err(Error::invalid_data(format!("the {what} '{}' has control characters", text.escape_debug()))),
            false => Ok(text),
        }
    }

    fn entry(&mut self) -> Result<Entry> {
        let kind = Kind::find(self.u32()?)?;
        if kind != Kind::Array {
            return Ok(Entry { kind, array: None, range: self.scalar(kind)? });
        }
        let (of, count) = (Kind::find(self.u32()?)?, self.u64()?);
        self.check_count("values", count, of.bytes() as u64)?;
        let start = self.at;
        let len = usize::try_from(count).map_err(|_| Error::invalid_data(format!("{count} values")))?;
        for _ in 0..len {
            self.scalar(of)?;
        }
        Ok(Entry { kind, array: Some((of, len)), range: start..self.at })
    }

    /// Passes over a value.
    fn scalar(&mut self, kind: Kind) -> Result<Range<usize>> {
        let start = self.at;
        self.at += scalar(kind, self.rest())?.1;
        Ok(start..self.at)
    }

    fn tensor(&mut self) -> Result<Listed> {
        let rank = self.u32()?;
        if rank > MAX_DIMS {
            return Err(Error::invalid_data(format!("{rank} dimensions: at most {MAX_DIMS} are possible")));
        }
        let extents = (0..rank).map(|_| self.u64()).collect::<Result<Vec<_>>>()?;
        let kind = TensorType::find(self.u32()?)?;
        let offset = self.u64()?;
        let row = extents.first().copied().unwrap_or(1);
        if !row.is_multiple_of(kind.weights as u64) {
            return Err(Error::invalid_data(format!("rows of {row} weights are no whole blocks of {} ({})", kind.weights, kind.name)));
        }
        let elements = extents.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent).filter(|&n| n > 0));
        let bytes = elements.and_then(|n| (n / kind.weights as u64).checked_mul(kind.bytes as u64)).and_then(|n| usize::try_from(n).ok());
        let dims = extents.iter().rev().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>().ok();
        match (bytes, dims) {
            (Some(bytes), Some(dims)) => Ok(Listed { kind, dims, bytes, offset }),
            _ => Err(Error::invalid_data(format!("extents {extents:?} have no possible size"))),
        }
    }
}
