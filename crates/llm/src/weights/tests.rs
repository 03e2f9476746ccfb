use std::{borrow::Cow, fs, path::Path};

use ::safetensors::tensor::{Dtype, View};

use super::*;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A tensor to be written.
pub(crate) struct Stored(pub(crate) Dtype, pub(crate) Vec<usize>, pub(crate) Vec<u8>);

impl View for Stored {
    fn dtype(&self) -> Dtype {
        self.0
    }
    fn shape(&self) -> &[usize] {
        &self.1
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.2)
    }
    fn data_len(&self) -> usize {
        self.2.len()
    }
}

fn f32s(dims: &[usize], from: f32) -> Stored {
    let values = (0..dims.iter().product()).flat_map(|i: usize| (from + i as f32).to_le_bytes()).collect();
    Stored(Dtype::F32, dims.to_vec(), values)
}

pub(super) fn write(folder: &Path, name: &str, tensors: Vec<(&str, Stored)>) -> Vec<u8> {
    let bytes = ::safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.join(name), &bytes).unwrap();
    bytes
}

fn open(folder: &Path) -> Result<Weights> {
    Weights::open(&ModelFiles::open(folder)?)
}

fn rejected(folder: &Path) -> String {
    let error = open(folder).map(|_| ()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

/// A file with this header and this much data.
fn raw(header: &str, data: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn a_tensor_lies_in_the_map_and_is_checked_against_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), SINGLE, vec![("a", f32s(&[2, 3], 1.0)), ("odd", Stored(Dtype::I64, vec![1], vec![0; 8]))]);
    let weights = open(folder.path()).unwrap();
    let a = weights.get("a", &[2, 3]).unwrap();
    assert_eq!((a.kind, bytemuck::cast_slice::<u8, f32>(a.memory.bytes())), (WeightType::Plain(DType::F32), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
    // Every time the same bytes: those of the map.
    assert_eq!(a.memory.bytes().as_ptr(), weights.get("a", &[2, 3]).unwrap().memory.bytes().as_ptr());
    assert_eq!((weights.names().collect::<Vec<_>>(), weights.bytes()), (vec!["a", "odd"], 32));

    let error = |name, dims: &[usize]| weights.get(name, dims).map(|_| ()).unwrap_err().to_string();
    assert!(error("a", &[3, 2]).ends_with("model.safetensors: tensor 'a' has shape [2, 3], the configuration asks for [3, 2]"));
    assert!(error("b", &[1]).contains("tensor 'b' is missing"));
    assert!(error("odd", &[1]).contains("type I64: F32, F16 and BF16 are supported"));
}

#[test]
fn a_misaligned_tensor_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let header = r#"{"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}} "#;
    let mut bytes = raw(header, 0);
    bytes.extend([7]);
    bytes.extend([1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()));
    for padding in 0..4 {
        let header = format!("{header}{}", " ".repeat(padding));
        let mut file = raw(&header, 0);
        file.extend(&bytes[bytes.len() - 9..]);
        fs::write(folder.path().join(SINGLE), file).unwrap();
        let x = open(folder.path()).unwrap().get("x", &[2]).unwrap();
        assert_eq!(bytemuck::try_cast_slice::<u8, f32>(x.memory.bytes()).unwrap(), [1.5, -2.0]);
    }
}

#[test]
fn shards_are_found_through_the_index() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "model-1.safetensors", vec![("a", f32s(&[2], 1.0))]);
    write(folder.path(), "model-2.safetensors", vec![("b", f32s(&[1], 9.0))]);
    let index = |map: &str| fs::write(folder.path().join(INDEX), format!(r#"{{"metadata": {{}}, "weight_map": {map}}}"#)).unwrap();
    index(r#"{"a": "model-1.safetensors", "b": "model-2.safetensors"}"#);
    let weights = open(folder.path()).unwrap();
    assert_eq!(weights.get("b", &[1]).unwrap().memory.bytes(), 9f32.to_le_bytes());
    assert_eq!(weights.get("a", &[2]).unwrap().memory.bytes()[..4], 1f32.to_le_bytes());

    index(r#"{"a": "model-2.safetensors"}"#);
    assert!(rejected(folder.path()).contains("tensor 'a' is not in its shard 'model-2.safetensors'"));
    index(r#"{"a": "model-3.safetensors"}"#);
    assert!(rejected(folder.path()).contains("model-3.safetensors"));
    for outside in ["../x.safetensors", "/etc/passwd", "..", "a/../b", "C:x", ""] {
        index(&serde_json::json!({ "a": outside }).to_string());
        assert!(rejected(folder.path()).contains("no plain file name"), "{outside}");
    }
}

#[test]
fn a_file_cut_anywhere_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let whole = write(folder.path(), SINGLE, vec![("a", f32s(&[2, 3], 1.0)), ("b", f32s(&[1], 0.0))]);
    for length in 0..whole.len() {
        fs::write(folder.path().join(SINGLE), &whole[..length]).unwrap();
        let message = rejected(folder.path());
        assert!(message.contains("model.safetensors"), "{length}: {message}");
    }
    fs::write(folder.path().join(SINGLE), &whole[..whole.len() - 4]).unwrap();
    assert!(rejected(folder.path()).contains("it is cut or damaged, fetch it again"));
}

#[test]
fn hostile_headers_are_rejected_with_the_tensor_named() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4, "'x'"),
        (r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, 8, "'x'"),
        (r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}}"#, 8, "'x'"),
        (r#"{"x":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,0]}}"#, 0, "'x'"),
        (r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 4, "overlaps"),
        (r#"{"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}"#, 4, "F99"),
        (r#"{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4, "-1"),
        (r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}}"#, 4, "'x'"),
        ("[1, 2]", 0, "header"),
        ("{", 0, "header"),
    ];
    for (header, data, expected) in cases {
        fs::write(folder.path().join(SINGLE), raw(header, data)).unwrap();
        let message = rejected(folder.path());
        assert!(message.contains(expected), "{header}: {message}");
    }
    let huge: Vec<u8> = u64::MAX.to_le_bytes().into_iter().chain(*b"{}").collect();
    fs::write(folder.path().join(SINGLE), huge).unwrap();
    assert!(rejected(folder.path()).contains("the header takes 18446744073709551615 bytes"));
}

#[test]
fn a_folder_without_weights_says_what_it_wants() {
    let folder = tempfile::tempdir().unwrap();
    assert!(rejected(folder.path()).contains("has neither model.safetensors nor model.safetensors.index.json"));
    fs::create_dir(folder.path().join(SINGLE)).unwrap();
    assert!(rejected(folder.path()).contains("neither"));
    assert!(ModelFiles::open(folder.path().join("nowhere")).unwrap_err().to_string().contains("does not exist"));
}
