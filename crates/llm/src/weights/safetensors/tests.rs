use std::{fs, path::Path};

use ::safetensors::tensor::Dtype;
use elinvar::{DType, Result};
use half::{bf16, f16};

use crate::{
    ModelFiles, Weights,
    weights::{
        WeightType,
        tests::{Stored, write},
    },
};

const ROWS: usize = 3;
const COLUMNS: usize = 256;

fn configure(folder: &Path, quantization: &str) {
    fs::write(folder.join("config.json"), format!(r#"{{"quantization": {quantization}}}"#)).unwrap();
}

fn open(folder: &Path, decoded: Option<DType>) -> Result<Weights> {
    let files = ModelFiles::open(folder)?;
    decoded.map_or_else(|| Weights::open(&files), |dtype| Weights::open_decoded(&files, dtype))
}

/// Integers of so many bits, as they follow each other in a row's words.
fn words(integers: &[u8], bits: usize) -> Vec<u8> {
    let mut bytes = vec![0; integers.len() * bits / 8];
    for (at, bit) in integers.iter().flat_map(|q| (0..bits).map(move |bit| q >> bit & 1)).enumerate() {
        bytes[at / 8] |= bit << (at % 8);
    }
    bytes
}

fn integer(at: usize, bits: usize) -> u8 {
    ((at * 2_654_435_761) >> 7) as u8 & (u8::MAX >> (8 - bits))
}

/// Scales and biases of both signs; all types have them.
fn number(at: usize, bias: bool) -> f32 {
    let sign = if at.is_multiple_of(3) { -1.0 } else { 1.0 };
    if bias { -sign * (at % 113) as f32 / 64.0 } else { sign * (1 + at % 127) as f32 / 1024.0 }
}

fn numbers(dtype: Dtype, dims: &[usize], bias: bool) -> Stored {
    let values = (0..dims.iter().product()).map(|at| number(at, bias));
    let bytes = match dtype {
        Dtype::F32 => values.flat_map(f32::to_le_bytes).collect(),
        Dtype::F16 => values.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
        _ => values.flat_map(|x| bf16::from_f32(x).to_le_bytes()).collect(),
    };
    Stored(dtype, dims.to_vec(), bytes)
}

/// `x`, a quantised layer.
fn layer(dtype: Dtype, size: usize, bits: usize) -> Vec<(&'static str, Stored)> {
    let integers: Vec<u8> = (0..ROWS * COLUMNS).map(|at| integer(at, bits)).collect();
    let dims = [ROWS, COLUMNS / size];
    let words = Stored(Dtype::U32, vec![ROWS, COLUMNS * bits / 32], words(&integers, bits));
    vec![("x.weight", words), ("x.scales", numbers(dtype, &dims, false)), ("x.biases", numbers(dtype, &dims, true))]
}

#[test]
fn groups_have_their_scale_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    for (size, bits) in [32, 64, 128].into_iter().flat_map(|size| [2, 3, 4, 5, 6, 8].map(|bits| (size, bits))) {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            configure(folder.path(), &format!(r#"{{"group_size": {size}, "bits": {bits}, "mode": "affine"}}"#));
            write(folder.path(), "model.safetensors", layer(dtype, size, bits));
            let element = |at: usize| number(at / size, false) * f32::from(integer(at, bits)) + number(at / size, true);
            let exact: Vec<f32> = (0..ROWS * COLUMNS).map(element).collect();
            let weights = open(folder.path(), Some(DType::F32)).unwrap();
            let weight = weights.get("x.weight", &[ROWS, COLUMNS]).unwrap();
            let found = bytemuck::cast_slice::<u8, f32>(weight.memory.bytes());
            assert!(found == exact, "{bits} bits in groups of {size}, {dtype}");
            assert_eq!((weights.names().collect::<Vec<_>>(), weights.bytes()), (vec!["x.weight"], 4 * found.len() as u64));
            let weights = open(folder.path(), None).unwrap();
            let weight = weights.get("x.weight", &[ROWS, COLUMNS]).unwrap();
            assert_eq!(weights.bytes(), weight.memory.bytes().len() as u64);
            let WeightType::Block(format) = weight.kind else {
                assert_eq!((dtype, weight.kind), (Dtype::F32, WeightType::Plain(DType::F32)));
                continue;
            };
            let mut found = vec![f32::NAN; ROWS * COLUMNS];
            for (packed, values) in weight.memory.bytes().chunks(weight.kind.row_bytes(COLUMNS).unwrap()).zip(found.chunks_mut(COLUMNS)) {
                format.decode_packed(packed, values).unwrap();
            }
            // These numbers' products and sums are exact.
            assert!(found == exact, "{bits} bits in groups of {size}, {dtype}, as {format}");
        }
    }
    let narrow = open(folder.path(), Some(DType::BF16)).unwrap().get("x.weight", &[ROWS, COLUMNS]).unwrap();
    assert_eq!((narrow.kind, narrow.memory.bytes().len()), (WeightType::Plain(DType::BF16), 2 * ROWS * COLUMNS));
}

#[test]
fn a_layer_may_have_groups_of_its_own_or_none() {
    let folder = tempfile::tempdir().unwrap();
    configure(folder.path(), r#"{"group_size": 64, "bits": 4, "x": {"group_size": 32, "bits": 8}, "y": false}"#);
    let mut tensors = layer(Dtype::BF16, 32, 8);
    tensors.push(("y.weight", numbers(Dtype::F16, &[2, 4], false)));
    write(folder.path(), "model.safetensors", tensors);
    let weights = open(folder.path(), None).unwrap();
    assert!(weights.get("x.weight", &[ROWS, COLUMNS]).is_ok());
    assert_eq!(weights.get("y.weight", &[2, 4]).unwrap().kind, WeightType::Plain(DType::F16));
    assert_eq!(weights.names().collect::<Vec<_>>(), ["x.weight", "y.weight"]);
    // As mlx-lm writes mixtures: what is null has MLX's default.
    configure(folder.path(), r#"{"group_size": 32, "bits": 3, "x": {"group_size": null, "bits": 8, "mode": "affine"}}"#);
    write(folder.path(), "model.safetensors", layer(Dtype::BF16, 64, 8));
    assert!(open(folder.path(), None).unwrap().get("x.weight", &[ROWS, COLUMNS]).is_ok());
}

#[test]
fn parts_that_contradict_each_other_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let rejected = |tensors: Vec<(&str, Stored)>, dims: &[usize], expected: &str| {
        write(folder.path(), "model.safetensors", tensors);
        let message = open(folder.path(), None).unwrap().get("x.weight", dims).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("model.safetensors: tensor 'x.weight'") && message.contains(expected) && !message.contains('\n'), "{message}");
    };
    let without = |part: &str| layer(Dtype::BF16, 64, 4).into_iter().filter(|(name, _)| *name != part).collect::<Vec<_>>();
    let with = |part: &'static str, stored: Stored| without(part).into_iter().chain([(part, stored)]).collect::<Vec<_>>();
    configure(folder.path(), r#"{"group_size": 64, "bits": 4}"#);
    rejected(layer(Dtype::BF16, 64, 4), &[ROWS, 128], "has shape [3, 256], the configuration asks for [3, 128]");
    rejected(layer(Dtype::BF16, 32, 4), &[ROWS, COLUMNS], "its scales [3, 8] and biases [3, 8]: in groups of 64 with 4 bits each");
    rejected(layer(Dtype::BF16, 64, 8), &[ROWS, COLUMNS], "[3, 8] expected");
    rejected(without("x.biases"), &[ROWS, COLUMNS], "has scales and no biases");
    rejected(without("x.scales"), &[ROWS, 32], "is of type U32");
    rejected(with("x.biases", numbers(Dtype::F16, &[ROWS, 4], true)), &[ROWS, COLUMNS], "of types U32, BF16 and F16");
    rejected(with("x.scales", Stored(Dtype::U8, vec![ROWS, 4], vec![0; 12])), &[ROWS, COLUMNS], "of types U32, U8 and BF16");
    rejected(with("x.weight", Stored(Dtype::U32, vec![96], vec![0; 384])), &[ROWS, COLUMNS], "matrices of two axes are supported");
}

#[test]
fn what_is_not_understood_of_a_quantisation_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    for (quantization, expected) in [
        (r#"{"group_size": 64, "bits": 1}"#, "'bits' of 'quantization' is 1: it must be one of [2, 3, 4, 5, 6, 8]"),
        (r#"{"group_size": 16, "bits": 4}"#, "'group_size' of 'quantization' is 16"),
        (r#"{"group_size": 64, "bits": 7}"#, "'bits' of 'quantization' is 7"),
        (r#"{"group_size": 32, "bits": 4, "mode": "mxfp4"}"#, "mode 'mxfp4' is not supported: affine is"),
        (r#"{"group_size": 64, "bits": 4, "x": {"group_size": 64, "bits": "8"}}"#, "'bits' of 'quantization' is \"8\""),
        (r#"{"group_size": 64, "bits": 4, "quant_method": "awq"}"#, "has a key 'quant_method' that may change the result"),
    ] {
        configure(folder.path(), quantization);
        write(folder.path(), "model.safetensors", layer(Dtype::BF16, 64, 4));
        let message = open(folder.path(), None).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("config.json") && message.contains(expected) && !message.contains('\n'), "{message}");
    }
}
