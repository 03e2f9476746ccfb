//! An adapter in the weights of a model's files.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use elinvar::{Error, ErrorKind, HostMemory, Result};
use serde_json::{Map, Value};

use super::Adapter;
use crate::{
    convert::{StoredTensor, Texts, write_tensors},
    files::ModelFiles,
    model::{EMBEDDING, HEAD, Model, Place},
    weights::Weights,
    whole::write_folder,
};

const CONFIG: &str = "config.json";

/// Writes a new folder with the files of `model`, which was opened from `files` and `weights`, and the adapter in its weights, of the types that they are
/// stored in: whole or not at all. Reports the bytes of tensors written, and of all, to `progress`.
///
/// # Errors
/// A GGUF file, an adapter for another model, a folder that exists, or the system's: a full disk, no permission.
pub fn fuse(files: &ModelFiles, weights: &Weights, model: &Model, adapter: &Adapter, path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
    if let ModelFiles::Gguf(file) = files {
        return Err(Error::unsupported(format!("{}: adapters are fused into folders: convert the file to one first", file.label())));
    }
    let (config, places) = (model.config(), model.places());
    let changed: Vec<Place> = adapter.config.changes(&places)?.into_iter().map(|(place, _)| place).collect();
    let adapted = model.with_adapter(adapter)?;
    // What shared a matrix with the embedding gets its own.
    let parted = config.tied_embeddings && changed.iter().any(|place| [EMBEDDING, HEAD].contains(&place.name.as_str()));
    let name = |place: &Place| format!("{}{}.weight", config.tensor_prefix, place.name);
    let mut merged: BTreeMap<String, &Place> = changed.iter().map(|place| (name(place), place)).collect();
    let mut tensors = weights.names().map(|name| StoredTensor::of(weights, name)).collect::<Result<Vec<_>>>()?;
    if let Some(head) = places.iter().find(|place| parted && place.name == HEAD) {
        let embedding = places.iter().find(|place| place.name == EMBEDDING).map(name).unwrap_or_default();
        let dtype = StoredTensor::of(weights, &embedding)?.dtype;
        tensors.retain(|tensor| tensor.name != name(head));
        tensors.push(StoredTensor { name: name(head), dtype, dims: head.extents.to_vec() });
        merged.insert(name(head), head);
    }
    if let Some(missing) = merged.keys().find(|name| !tensors.iter().any(|tensor| tensor.name == **name)) {
        return Err(Error::internal(format!("tensor '{missing}' is to be fused and not there")));
    }
    let texts = Texts::of_folder(files, config_text(files, parted)?)?;
    write_folder(path, |folder| {
        texts.write(folder, path)?;
        let mut get = |tensor: &StoredTensor| match merged.get(&tensor.name) {
            Some(place) => Ok(HostMemory::new(Arc::new(adapted.merged(place)?.cast(tensor.dtype)?.to_bytes()?))),
            None => Ok(weights.get(&tensor.name, &tensor.dims)?.memory),
        };
        write_tensors(&folder.join("model.safetensors"), &tensors, &mut get, progress)
    })
}

/// The text of `config.json`; `parted` says that the output projection is no longer the embedding.
fn config_text(files: &ModelFiles, parted: bool) -> Result<Vec<u8>> {
    let text = files.read(CONFIG)?.ok_or_else(|| Error::io(format!("{} is missing", files.label(CONFIG))))?;
    if !parted {
        return Ok(text.into_owned());
    }
    let mut config: Map<String, Value> =
        serde_json::from_slice(&text).map_err(|e| Error::with_source(ErrorKind::InvalidData, files.label(CONFIG), e))?;
    let key = "tie_word_embeddings".to_owned();
    match config.get_mut("text_config").and_then(Value::as_object_mut) {
        Some(inner) => inner.insert(key.clone(), false.into()),
        None => None,
    };
    config.insert(key, false.into());
    Ok(format!("{:#}\n", Value::Object(config)).into_bytes())
}
