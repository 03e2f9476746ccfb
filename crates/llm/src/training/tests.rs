//! Training against PEFT and PyTorch: see `tests/references/adapters/make.py`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use elinvar::{Executor, Precision};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Batch, Optimizer, Sample, Trainer, TrainerOptions};
use crate::{
    Adapter, AdapterConfig, Config, Model, ModelFiles, Weights,
    model::tests::references::{Reference, values},
};

#[derive(Deserialize)]
struct Training {
    model: String,
    config: Map<String, Value>,
    rate: f64,
    losses: Vec<f32>,
}

fn trainings() -> BTreeMap<String, Training> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/references/adapters/losses.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn strict(threads: usize) -> Executor {
    Executor::new_cpu(threads.try_into().unwrap()).unwrap().with_precision(Precision::Strict)
}

fn open(folder: &std::path::Path, executor: &Executor) -> Model {
    let files = ModelFiles::open(folder).unwrap();
    Model::new(executor, Config::read(&files).unwrap(), &Weights::open(&files).unwrap()).unwrap()
}

/// As `SAMPLES` of the script.
fn samples() -> Vec<Sample> {
    let tokens = |n: u32| (0..9 + 6 * n).map(|i| (7 * i * i + 3 * i + 5 + 11 * n) % 29).collect();
    (0..5).map(|n| Sample::new(tokens(n), 2 * n as usize).unwrap()).collect()
}

fn batch(step: usize) -> Batch {
    let samples = samples();
    Batch::new(&[2 * step, 2 * step + 1].map(|place| &samples[place % samples.len()])).unwrap()
}

impl Training {
    fn config(&self) -> AdapterConfig {
        let mut config = self.config.clone();
        config.insert("peft_type".to_owned(), "LORA".into());
        AdapterConfig::parse(&Value::Object(config).to_string()).unwrap()
    }

    fn model(&self, executor: &Executor) -> Model {
        if self.model == "shakespeare" {
            return open(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare"), executor);
        }
        open(Reference::all().into_iter().find(|reference| reference.name == self.model).unwrap().folder().path(), executor)
    }

    fn trainer(&self, executor: &Executor, again: bool) -> Trainer {
        let model = self.model(executor);
        let options = TrainerOptions { optimizer: Optimizer::ADAMW, clip: Some(1.0), checkpointing: again, seed: 1 };
        let new = |initial: Option<&Adapter>| Trainer::new(&model, self.config(), initial, options).unwrap();
        let mut begun = new(None).adapter().unwrap();
        for (name, (dims, array)) in &mut begun.tensors {
            let dims: Vec<_> = dims.iter().map(|&extent| extent as u64).collect();
            if name.contains("lora_A") {
                *array = values(name, &dims, false);
            } else if name.contains("lora_B") {
                *array = values(name, &dims, false).iter().map(|value| 0.1 * value).collect();
            }
        }
        new(Some(&begun))
    }

    fn losses(&self, executor: &Executor, steps: usize, again: bool) -> Vec<f32> {
        let mut trainer = self.trainer(executor, again);
        (0..steps).map(|step| trainer.step(&[batch(step)], self.rate).unwrap().loss).collect()
    }
}

#[track_caller]
fn check(name: &str, found: &[f32], expected: &[f32]) {
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs() / b).fold(0.0, f32::max);
    println!("{name}: {} steps, from {} to {}, at most {worst:e} apart", found.len(), found[0], found[found.len() - 1]);
    assert!(found.len() <= expected.len() && worst < 1e-4, "{name}: {found:?} instead of {expected:?}");
}

#[test]
fn losses_are_those_of_peft_and_pytorch() {
    for (name, training) in trainings().iter().filter(|(name, _)| *name != "shakespeare") {
        check(name, &training.losses(&strict(2), training.losses.len(), false), &training.losses);
    }
}

#[test]
fn the_embedded_model_learns_as_with_peft_and_pytorch() {
    let training = &trainings()["shakespeare"];
    check("shakespeare", &training.losses(&strict(2), 6, false), &training.losses);
}
