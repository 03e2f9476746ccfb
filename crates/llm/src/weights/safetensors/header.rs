//! The header of a safetensors file: its length (u64, little-endian), then JSON that gives each tensor's type, shape and byte range.

use std::collections::BTreeMap;

use ::safetensors::{SafeTensorError, SafeTensors, tensor::TensorInfo};
use elinvar::{Error, Result};
use serde_json::{Map, Value};

/// Bytes before the JSON.
const LENGTH: usize = 8;

/// Where the data begins, and every tensor (ranges count from there). All ranges are inside the file, without gaps or overlaps.
pub(super) fn read(file: &[u8]) -> Result<(usize, BTreeMap<String, TensorInfo>)> {
    let (bytes, metadata) = SafeTensors::read_metadata(file).map_err(|error| explain(file, error))?;
    let tensors = metadata.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
    Ok((LENGTH + bytes, tensors))
}

/// Says in one line which tensor is at fault, or that the file was cut.
fn explain(file: &[u8], error: SafeTensorError) -> Error {
    use SafeTensorError::*;
    let declared = file.first_chunk::<LENGTH>().map(|n| u64::from_le_bytes(*n));
    let message = match (&error, declared) {
        (_, None) => format!("{} bytes are no safetensors file: it is empty or cut", file.len()),
        (HeaderTooLarge | InvalidHeaderLength, Some(header)) => {
            format!("the header takes {header} bytes, the file has {}: it is cut, or no safetensors file", file.len())
        }
        (MetadataIncompleteBuffer, Some(header)) => match describe(file, header) {
            Some(end) => format!("its tensors end at byte {end}, the file has {}: it is cut or damaged, fetch it again", file.len()),
            None => "the header does not cover the file: it is damaged, fetch it again".to_owned(),
        },
        (TensorInvalidInfo | ValidationOverflow | MisalignedSlice, Some(header)) => match tensors(file, header).as_ref().and_then(faulty) {
            Some(name) => format!("tensor '{name}': its byte range does not hold its shape and type"),
            None => "a tensor's byte range does not hold its shape and type".to_owned(),
        },
        (InvalidOffset(name), _) => format!("tensor '{name}': its byte range leaves a gap to the one before, or overlaps it"),
        _ => error.to_string(),
    };
    Error::invalid_data(message)
}

fn tensors(file: &[u8], header: u64) -> Option<Map<String, Value>> {
    let end = usize::try_from(header).ok()?.checked_add(LENGTH)?;
    serde_json::from_slice(file.get(LENGTH..end)?).ok()
}

/// The byte at which the last tensor ends.
fn describe(file: &[u8], header: u64) -> Option<u64> {
    let ends = tensors(file, header)?.values().filter_map(|v| v.get("data_offsets")?.get(1)?.as_u64()).max()?;
    header.checked_add(LENGTH as u64)?.checked_add(ends)
}

/// The first tensor whose range has another size than its shape and type.
fn faulty(tensors: &Map<String, Value>) -> Option<&String> {
    let fits = |value: &Value| -> Option<bool> {
        let info: TensorInfo = serde_json::from_value(value.clone()).ok()?;
        let bits = info.shape.iter().try_fold(info.dtype.bitsize(), |n, &d| n.checked_mul(d));
        let bytes = info.data_offsets.1.checked_sub(info.data_offsets.0)?;
        Some(bits.is_some_and(|bits| Some(bits) == bytes.checked_mul(8)))
    };
    tensors.iter().filter(|(name, _)| *name != "__metadata__").find(|(_, value)| fits(value) != Some(true)).map(|(name, _)| name)
}
