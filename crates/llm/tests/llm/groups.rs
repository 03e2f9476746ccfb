//! A model on a group of devices has the bits that it has on one.

use std::sync::Arc;

use elinvar::{BackendType, DType, Executor, Precision};
use elinvar_llm::{Config, Model, Session, WeightType};

use crate::shakespeare;

/// The logits after a prompt, which is fed in two chunks, and after the next token.
fn logits(model: &Arc<Model>, prompt: &[u32]) -> Vec<u32> {
    let mut session = Session::new(model.clone(), 64, DType::F32).unwrap();
    let (first, rest) = prompt.split_at(prompt.len() / 2);
    let mut all = session.feed_all(first).unwrap();
    all.extend(session.feed_all(rest).unwrap());
    all.extend(session.feed(&[7]).unwrap());
    all.into_iter().map(f32::to_bits).collect()
}

fn group(backend: BackendType, ranks: usize) -> Executor {
    Executor::group(&vec![backend; ranks]).unwrap().with_precision(Precision::Strict)
}

fn one() -> Executor {
    Executor::new_with_backend(BackendType::Cpu).unwrap().with_precision(Precision::Strict)
}

#[test]
fn the_embedded_model_has_the_same_bits_on_groups_of_any_size() {
    let on = |executor: Executor| logits(&shakespeare::model(&executor), &[1, 300, 17, 900, 2000, 5, 5, 64, 3]);
    let expected = on(one());
    for ranks in [1, 2, 4, 8] {
        assert!(on(group(BackendType::Cpu, ranks)) == expected, "{ranks} ranks");
    }
    #[cfg(target_os = "linux")]
    assert!(on(group(BackendType::MetalSim, 2)) == expected, "two simulated GPUs");
}

#[test]
fn random_models_of_every_kind_of_weight_have_the_same_bits() {
    // More ranks than key heads, and a vocabulary that cannot be shared.
    let config = Config::llama3(2, [256, 512], [8, 2], 97);
    for kind in [WeightType::Plain(DType::BF16), WeightType::Plain(DType::F32), "q4_0".parse().unwrap(), "q6_k".parse().unwrap()] {
        let on = |executor: Executor| logits(&Arc::new(Model::random(&executor, config.clone(), kind, 3).unwrap()), &[1, 2, 3, 4, 96]);
        let expected = on(one());
        for ranks in [2, 4, 8] {
            assert!(on(group(BackendType::Cpu, ranks)) == expected, "{ranks} ranks, {kind}");
        }
    }
}

#[test]
fn a_model_that_cannot_be_shared_is_rejected_with_the_numbers_that_fit() {
    let error = Model::random(&group(BackendType::Cpu, 3), Config::llama3(1, [32, 64], [4, 2], 16), WeightType::Plain(DType::F32), 1).err().unwrap();
    assert_eq!(error.to_string(), "4 query heads cannot be shared by 3 devices: use 1 or 2");
}
