//! The embedded model against transformers' results, kept beside it.

use std::{fs, path::PathBuf, sync::Arc};

use elinvar::{DType, Executor};
use elinvar_llm::{Model, Session};
use safetensors::SafeTensors;

use crate::fixture::{open, strict};

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare")
}

pub(crate) fn model(executor: &Executor) -> Arc<Model> {
    open(&folder(), executor).unwrap()
}

fn reference() -> (Vec<u32>, Vec<f32>) {
    let bytes = fs::read(folder().join("reference/reference.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let data = |name: &str| file.tensor(name).unwrap().data().to_vec();
    let tokens = data("tokens").chunks_exact(8).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    (tokens, data("logits").chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

#[test]
fn logits_are_those_of_transformers() {
    let (tokens, expected) = reference();
    for executor in [strict(2), Executor::new_auto().unwrap()] {
        let found = Session::new(model(&executor), 96, DType::F32).unwrap().feed_all(&tokens).unwrap();
        let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert_eq!(found.len(), expected.len());
        assert!(worst < 1e-3, "{worst}");
    }
}

#[test]
fn a_16_bit_cache_stays_near() {
    let (tokens, expected) = reference();
    let model = model(&strict(2));
    for (dtype, bound) in [(DType::F16, 0.05), (DType::BF16, 0.4)] {
        let found = Session::new(model.clone(), 96, dtype).unwrap().feed_all(&tokens).unwrap();
        let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst > 1e-3 && worst < bound, "{dtype}: {worst}");
    }
}
