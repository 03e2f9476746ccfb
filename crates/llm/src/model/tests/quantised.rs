//! Logits of a tiny model that MLX has quantised, against those that mlx-lm computed: see `tests/references/make_mlx.py`.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use elinvar::{DType, Executor, Precision};
use half::bf16;
use safetensors::tensor::Dtype;
use serde_json::{Map, Value};

use super::super::{Model, Session};
use crate::{Config, ModelFiles, Weights, weights::tests::Stored};

const TOKENS: usize = 40;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/references/quantised")
}

/// Numbers of 64 bits.
fn random(name: &str, count: usize) -> impl Iterator<Item = u64> {
    let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    })
    .take(count)
}

fn uniform(name: &str, count: usize) -> impl Iterator<Item = f32> {
    random(name, count).map(|state| (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
}

/// As `layer` of `make_mlx.py`.
fn scales(layer: &str, count: usize, columns: usize, bits: u64) -> Vec<bf16> {
    let top = (1u64 << bits) as f32 - 1.0;
    let scale = |u: f32| bf16::from_f32((0.5 + 0.5 * u.abs()).copysign(u) * (12.0 / columns as f32).sqrt() / top);
    uniform(&format!("{layer}.scales"), count).map(scale).collect()
}

fn tensor(name: &str, dims: &[usize], quantization: &Map<String, Value>, shapes: &BTreeMap<String, Vec<usize>>) -> Stored {
    let count = dims.iter().product();
    let (layer, part) = name.rsplit_once('.').unwrap();
    let groups = quantization.get(layer).and_then(Value::as_object).unwrap_or(quantization);
    let bits = groups["bits"].as_u64().unwrap();
    let columns = || 32 * shapes[&format!("{layer}.weight")][1] / bits as usize;
    let bf16s = |numbers: Vec<bf16>| Stored(Dtype::BF16, dims.to_vec(), numbers.iter().flat_map(|x| x.to_le_bytes()).collect());
    match part {
        "scales" => bf16s(scales(layer, count, columns(), bits)),
        "biases" => {
            let top = (1u64 << bits) as f32 - 1.0;
            bf16s(scales(layer, count, columns(), bits).iter().map(|scale| bf16::from_f32(scale.to_f32() * (-top / 2.0))).collect())
        }
        _ if shapes.contains_key(&format!("{layer}.scales")) => {
            let words = random(name, count).flat_map(|state| ((state >> 32) as u32).to_le_bytes());
            Stored(Dtype::U32, dims.to_vec(), words.collect())
        }
        _ => {
            let value = |u: f32| if dims.len() == 1 { 0.5 * u + 1.0 } else { (3.0 / dims[1] as f32).sqrt() * u };
            Stored(Dtype::F32, dims.to_vec(), uniform(name, count).flat_map(|u| value(u).to_le_bytes()).collect())
        }
    }
}

#[test]
fn a_model_in_groups_gives_the_logits_of_mlx() {
    let Value::Object(mut file) = serde_json::from_slice(&fs::read(folder().join("qwen3.json")).unwrap()).unwrap() else { panic!() };
    let shapes: BTreeMap<String, Vec<usize>> = serde_json::from_value(file.remove("tensors").unwrap()).unwrap();
    let config = &file["config"];
    let quantization = config["quantization"].as_object().unwrap();
    let tensors: Vec<_> = shapes.iter().map(|(name, dims)| (name, tensor(name, dims, quantization, &shapes))).collect();
    let made = tempfile::tempdir().unwrap();
    fs::write(made.path().join("config.json"), config.to_string()).unwrap();
    fs::write(made.path().join("model.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    let files = ModelFiles::open(made.path()).unwrap();
    let expected: Vec<f32> = fs::read(folder().join("qwen3.f32")).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| (i * i * 7 + i * 3 + 5) % 29).collect();
    let worst = |weights: Weights, wide: bool| {
        let executor = Executor::new_cpu(2.try_into().unwrap()).unwrap().with_precision(Precision::Strict);
        let mut model = Model::new(&executor, Config::read(&files).unwrap(), &weights).unwrap();
        if wide {
            model = model.with_wide_activations().unwrap();
        }
        let found = Session::new(Arc::new(model), TOKENS, DType::F32).unwrap().feed_all(&tokens).unwrap();
        assert_eq!(found.len(), expected.len());
        found.iter().zip(&expected).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()))
    };
    let decoded = worst(Weights::open_decoded(&files, DType::F32).unwrap(), false);
    let [kept, wide] = [false, true].map(|wide| worst(Weights::open(&files).unwrap(), wide));
    println!("decoded {decoded:e}, in blocks {kept:e}, with wide activations {wide:e}");
    assert!(decoded <= 2e-5 && kept <= 2e-4 && wide <= 2e-5, "decoded {decoded:e}, in blocks {kept:e}, with wide activations {wide:e}");
}
