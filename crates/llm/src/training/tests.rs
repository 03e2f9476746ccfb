//! Training against PEFT and PyTorch: see `tests/references/adapters/make.py`.

mod groups;
mod packed;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use elinvar::{DType, Executor, MemoryInfo, Precision, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Batch, DataOptions, Dataset, Decay, Loss, Optimizer, Rewards, Sample, Schedule, Trained, Trainer, TrainerOptions, TrainingEvent, TrainingFolder,
    TrainingMemory, TrainingOptions, evaluate, optimizer::NUMBERS, train,
};
use crate::{
    Adapter, AdapterConfig, Checkpointing, Config, Model, ModelFiles, Targets, Tokenizer, WeightType, Weights,
    gguf::tests::parse,
    model::tests::{
        quantised,
        references::{Reference, values},
    },
};

#[derive(Deserialize)]
struct Training {
    model: String,
    config: Map<String, Value>,
    rate: f64,
    #[serde(default)]
    muon: bool,
    #[serde(default)]
    losses: Vec<f32>,
    /// Of preferences.
    #[serde(default)]
    beta: f64,
    #[serde(default)]
    steps: Vec<[f32; 4]>,
}

fn references(file: &str) -> BTreeMap<String, Training> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/references/adapters").join(file);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn trainings() -> BTreeMap<String, Training> {
    references("losses.json")
}

fn strict(threads: usize) -> Executor {
    Executor::new_cpu(threads.try_into().unwrap()).unwrap().with_precision(Precision::Strict)
}

fn open(folder: &Path, executor: &Executor) -> Model {
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

    fn trainer(&self, executor: &Executor, again: Checkpointing, loss: Loss) -> Trainer {
        let model = self.model(executor);
        let optimizer = if self.muon { Optimizer::MUON } else { Optimizer::ADAMW };
        let options = TrainerOptions { optimizer, clip: Some(1.0), checkpointing: again, seed: 1, loss };
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

    fn losses(&self, executor: &Executor, steps: usize, again: Checkpointing) -> Vec<f32> {
        let mut trainer = self.trainer(executor, again, Loss::CrossEntropy);
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
        check(name, &training.losses(&strict(2), training.losses.len(), Checkpointing::None), &training.losses);
    }
}

#[test]
fn the_embedded_model_learns_as_with_peft_and_pytorch() {
    // Its weights have 16 bits: strict products would have x in 16 bits too, and the reference has it in f32. So this is fast, as training by default is.
    let (training, executor) = (&trainings()["shakespeare"], strict(2).with_precision(Executor::DEFAULT_PRECISION));
    let losses = training.losses(&executor, 6, Checkpointing::None);
    check("shakespeare", &losses, &training.losses);
    assert_eq!(losses, training.losses(&executor.with_precision(Precision::Fast), 6, Checkpointing::None));
}

/// As `PAIRS` of the script.
fn pairs() -> Vec<[Sample; 2]> {
    let pair = |n: u32| {
        let tokens = |a: u32, b: u32, count: u32| (0..count).map(move |i| (a * i * i + b * i + 3 + 7 * n) % 29);
        let text = |answer: &mut dyn Iterator<Item = u32>| Sample::new(tokens(5, 2, 3 + n).chain(answer).collect(), 3 + n as usize).unwrap();
        [text(&mut tokens(7, 1, 6 + 2 * n)), text(&mut tokens(3, 4, 11 - 2 * n))]
    };
    (0..4).map(pair).collect()
}

#[test]
fn preferences_are_learned_as_in_pytorch() {
    let pairs = pairs();
    let run = |training: &Training, again: Checkpointing| -> Vec<[f32; 4]> {
        let mut trainer = training.trainer(&strict(2), again, Loss::Dpo { beta: training.beta });
        let step = |step: usize| {
            let batch = Batch::new(&pairs[step % 2 * 2..][..2].iter().flatten().collect::<Vec<_>>()).unwrap();
            let evaluated = trainer.loss(&batch).unwrap();
            let trained = trainer.step(&[batch], training.rate).unwrap();
            assert!((evaluated / 2.0 - f64::from(trained.loss)).abs() < 1e-6, "{evaluated} {trained:?}");
            let Rewards { chosen, rejected, accuracy } = trained.rewards.unwrap();
            [trained.loss, chosen, rejected, accuracy]
        };
        (0..training.steps.len()).map(step).collect()
    };
    for (name, training) in &references("preferences.json") {
        let found = run(training, Checkpointing::None);
        let worst = found.as_flattened().iter().zip(training.steps.as_flattened()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{name}: {} steps, {:?} to {:?}, at most {worst:e} apart", found.len(), found[0], found[found.len() - 1]);
        assert!(worst < 5e-5, "{name}: {found:?} instead of {:?}", training.steps);
        assert_eq!(run(training, Checkpointing::FeedForward), found, "{name}");
    }
}

#[test]
fn pairs_of_batches_count_as_one_and_train_without_a_second_model() {
    let (model, pairs) = (qwen(&strict(2)), pairs());
    let of_pairs = TrainerOptions { loss: Loss::Dpo { beta: 0.2 }, ..OPTIONS };
    let batch = |pairs: &[[Sample; 2]]| Batch::new(&pairs.iter().flatten().collect::<Vec<_>>()).unwrap();
    let step = |batches: &[Batch]| trainer(&model, of_pairs).step(batches, 1e-2).unwrap();
    let (whole, parts) = (step(&[batch(&pairs[..3])]), step(&[batch(&pairs[..1]), batch(&pairs[1..3])]));
    assert!((whole.loss - parts.loss).abs() < 1e-6 && (whole.norm - parts.norm).abs() < 1e-5, "{whole:?} {parts:?}");
    // Before the first step the model is the one without what is trained.
    assert!((whole.loss - 2f32.ln()).abs() < 1e-6 && whole.rewards.unwrap().chosen.abs() < 1e-6, "{whole:?}");
    assert!(rejected(trainer(&model, of_pairs).step(&[Batch::new(&[&pairs[0][0]]).unwrap()], 1.0)).contains("1 texts are no pairs"));
    let other = TrainerOptions { loss: Loss::Dpo { beta: 0.0 }, ..OPTIONS };
    assert!(rejected(Trainer::new(&model, AdapterConfig::of_layers(&model, 2), None, other)).contains("a beta of 0 would change nothing"));
    let (place, singles) = (tempfile::tempdir().unwrap(), Dataset::new(samples()).unwrap());
    let folder = TrainingFolder::open(place.path()).unwrap();
    let data = Dataset::of_pairs(pairs).unwrap();
    let run = |loss: Loss, data: &Dataset, validation: &Dataset| {
        let mut trainer = trainer(&model, TrainerOptions { loss, ..OPTIONS });
        train(&mut trainer, &folder, (data, Some(validation)), &options(2), &mut |_| Ok(()))
    };
    assert!(rejected(run(Loss::CrossEntropy, &data, &data)).contains("DPO learns from pairs"));
    assert!(rejected(run(Loss::Dpo { beta: 0.1 }, &data, &singles)).contains("DPO learns from pairs"));
    run(Loss::Dpo { beta: 0.1 }, &data, &data).unwrap();
    let lines = folder.logged().unwrap();
    let first = |key: &str| lines[0][key].as_f64().unwrap();
    assert!(first("rewards/margins") == 0.0 && first("rewards/accuracies") == 0.0 && lines.len() == 3, "{lines:?}");
    assert!(lines[2]["validation_loss"].as_f64().unwrap() < f64::from(2f32.ln()), "{lines:?}");
}

#[test]
fn memory_is_known_before_training() {
    let executor = strict(2);
    let config = Config::llama3(3, [64, 192], [4, 2], 1024);
    let model = Model::random(&executor, config, WeightType::Plain(DType::F32), 3).unwrap();
    let adapter = AdapterConfig::default();
    let sample = |n: u32, count: u32| Sample::new((0..count).map(|i| 4 * i + n).collect(), 0).unwrap();
    let data = Dataset::new((0..3).map(|n| sample(n, 96)).chain((0..3).map(|n| sample(n, 250))).collect()).unwrap();
    let before = executor.pool().statistics().live_bytes;
    for checkpointing in [Checkpointing::Layers, Checkpointing::FeedForward, Checkpointing::None] {
        for loss in [Loss::CrossEntropy, Loss::Dpo { beta: 0.1 }].into_iter().skip(usize::from(checkpointing != Checkpointing::None)) {
            let options = TrainerOptions { checkpointing, loss, ..OPTIONS };
            let expected = TrainingMemory::of(&model, &adapter, &options, &data, 2).unwrap();
            let mut trainer = Trainer::new(&model, adapter.clone(), None, options).unwrap();
            for samples in [&data.samples()[..2], &data.samples()[3..5]] {
                trainer.step(&[Batch::new(&samples.iter().collect::<Vec<_>>()).unwrap()], 1e-4).unwrap();
            }
            let found = executor.pool().statistics().live_bytes - before;
            let ratio = expected.total() as f64 / found as f64;
            println!("{checkpointing:?}, {loss:?}: {expected:?}, {found} found, ratio {ratio:.2}");
            assert!((0.9..1.3).contains(&ratio), "{expected:?} expected, {found} found");
            assert!(expected.check(MemoryInfo { total: 1 << 40, available: expected.total() as usize }).is_ok());
            let error = rejected(expected.check(MemoryInfo { total: 1 << 40, available: 1 << 20 }));
            assert!(error.contains("1.0 MiB of 1.0 TiB are free: compute layers again"), "{error}");
        }
    }
}

/// Logits of 128 tokens are in memory together where there are 2^17 words: two texts of 96 tokens are taken in parts, one is not.
#[test]
fn logits_in_parts_give_the_loss_and_the_gradients_of_the_whole() {
    let executor = strict(2);
    let config = Config::llama3(1, [32, 32], [2, 1], 1 << 17);
    let model = Model::random(&executor, config, WeightType::Plain(DType::F32), 3).unwrap();
    let sample = |n: u32| Sample::new((0..97).map(|i| 1300 * i + 17 * n).collect(), 0).unwrap();
    let texts = [sample(0), sample(1)];
    let whole = [Batch::new(&texts.each_ref()).unwrap()];
    let apart = texts.each_ref().map(|text| Batch::new(&[text]).unwrap());
    for again in CHECKPOINTINGS {
        let options = TrainerOptions {
            optimizer: Optimizer::Sgd { momentum: 0.0, weight_decay: 0.0 },
            clip: None,
            checkpointing: again,
            seed: 1,
            loss: Loss::CrossEntropy,
        };
        let run = |batches: &[Batch]| {
            let mut trainer = Trainer::new(&model, AdapterConfig::default(), None, options).unwrap();
            let losses: f64 = batches.iter().map(|batch| trainer.loss(batch).unwrap()).sum();
            let steps = [1.0, 1.0].map(|rate| trainer.step(batches, rate).unwrap());
            [losses, steps[0].loss.into(), steps[0].norm.into(), steps[1].loss.into(), steps[1].norm.into()]
        };
        let (found, expected) = (run(&whole), run(&apart));
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5 * b), "{found:?} instead of {expected:?}");
    }
}

#[track_caller]
fn rejected<T>(result: Result<T>) -> String {
    let message = result.map(|_| ()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

const CHECKPOINTINGS: [Checkpointing; 3] = [Checkpointing::None, Checkpointing::Layers, Checkpointing::FeedForward];

const OPTIONS: TrainerOptions =
    TrainerOptions { optimizer: Optimizer::ADAMW, clip: Some(1.0), checkpointing: Checkpointing::None, seed: 1, loss: Loss::CrossEntropy };

fn qwen(executor: &Executor) -> Model {
    trainings()["dora"].model(executor)
}

fn trainer(model: &Model, options: TrainerOptions) -> Trainer {
    Trainer::new(model, AdapterConfig::of_layers(model, 2), None, options).unwrap()
}

fn dropping(model: &Model) -> Trainer {
    Trainer::new(model, AdapterConfig { dropout: 0.2, ..AdapterConfig::of_layers(model, 2) }, None, OPTIONS).unwrap()
}

fn bits(trainer: &Trainer) -> Vec<u32> {
    trainer.arrays().unwrap().into_values().flatten().map(f32::to_bits).collect()
}

#[test]
fn layers_computed_again_have_the_bits_of_layers_that_are_kept() {
    for name in ["dora", "layers", "dropout-dora"] {
        let training = &trainings()[name];
        let bits = |again: Checkpointing| training.losses(&strict(2), 3, again).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let [kept, others @ ..] = CHECKPOINTINGS.map(bits);
        assert_eq!(others, [(); 2].map(|()| kept.clone()), "{name}");
        let [kept, layers, feed_forward] = CHECKPOINTINGS.map(|again| {
            let mut trainer = training.trainer(&strict(2), again, Loss::CrossEntropy);
            trainer.step(&[batch(0)], training.rate).unwrap();
            trainer.launches()
        });
        assert!(kept < feed_forward && feed_forward < layers, "{name}: {kept}, {feed_forward} and {layers} launches");
    }
}

#[test]
fn the_bits_do_not_depend_on_threads() {
    let trained = |threads: usize| {
        let mut trainer = dropping(&qwen(&strict(threads)));
        for step in 0..3 {
            trainer.step(&[batch(step)], 1e-2).unwrap();
        }
        bits(&trainer)
    };
    assert_eq!(trained(1), trained(2));
}

#[test]
fn batches_of_a_step_count_as_one() {
    let (model, samples) = (qwen(&strict(2)), samples());
    let batch = |samples: &[Sample]| Batch::new(&samples.iter().collect::<Vec<_>>()).unwrap();
    let step = |batches: &[Batch]| trainer(&model, OPTIONS).step(batches, 1e-2).unwrap();
    let (whole, parts) = (step(&[batch(&samples[..4])]), step(&[batch(&samples[..1]), batch(&samples[1..4])]));
    assert!((whole.loss - parts.loss).abs() < 1e-5 && (whole.norm - parts.norm).abs() < 1e-5, "{whole:?} {parts:?}");
}

#[test]
fn quantised_weights_are_trained_beside_like_their_decoded_ones() {
    let executor = strict(2);
    let files = ModelFiles::Gguf(Arc::new(parse(&quantised(true)).unwrap()));
    let losses = |weights: &Weights| {
        let model = Model::new(&executor, Config::read(&files).unwrap(), weights).unwrap();
        let config = AdapterConfig { use_dora: true, ..AdapterConfig::of_layers(&model, 1) };
        let mut trainer = Trainer::new(&model, config, None, OPTIONS).unwrap();
        let sample = Sample::new((0..20).map(|i| i * i % 16).collect(), 0).unwrap();
        (0..4).map(|_| trainer.step(&[Batch::new(&[&sample]).unwrap()], 1e-2).unwrap().loss).collect::<Vec<_>>()
    };
    let (packed, decoded) = (losses(&Weights::open(&files).unwrap()), losses(&Weights::open_decoded(&files, DType::F32).unwrap()));
    let near = packed.iter().zip(&decoded).all(|(a, b)| (a - b).abs() < 1e-3 * b);
    assert!(near && packed[3] < packed[0], "{packed:?} {decoded:?}");
}

/// Naive, in f64.
fn expected(optimizer: Optimizer, [p, g]: [f64; 2], state: &mut [f64; 2], rate: f64, step: i32) -> f64 {
    match optimizer {
        Optimizer::AdamW { betas: [b1, b2], epsilon, weight_decay } => {
            *state = [b1 * state[0] + (1.0 - b1) * g, b2 * state[1] + (1.0 - b2) * g * g];
            let (mean, squares) = (state[0] / (1.0 - b1.powi(step)), state[1] / (1.0 - b2.powi(step)));
            p - rate * weight_decay * p - rate * mean / (squares.sqrt() + epsilon)
        }
        Optimizer::Sgd { momentum, weight_decay } => {
            state[0] = momentum * state[0] + g + weight_decay * p;
            p - rate * state[0]
        }
        Optimizer::Lion { betas: [b1, b2], weight_decay } => {
            let sign = (b1 * state[0] + (1.0 - b1) * g).signum();
            state[0] = b2 * state[0] + (1.0 - b2) * g;
            p - rate * (sign + weight_decay * p)
        }
        Optimizer::Muon { .. } => panic!("it is of matrices: PyTorch's losses check it"),
    }
}

#[test]
fn optimisers_do_what_their_papers_say() {
    let executor = strict(1);
    let sgd = Optimizer::Sgd { momentum: 0.9, weight_decay: 0.1 };
    for optimizer in [Optimizer::ADAMW.with_weight_decay(0.1), sgd, Optimizer::LION.with_weight_decay(0.1)] {
        let (mut values, mut states) = ([0.5, -2.0, 3.0], [[0.0; 2]; 3]);
        let parameters = executor.tensor(&[3], &values.map(|value| value as f32)).unwrap();
        let arrays: Vec<_> = (0..optimizer.states()).map(|_| executor.zeros(DType::F32, &[3]).unwrap()).collect();
        for step in 1..=4 {
            let gradient = [0.1 * f64::from(step), -0.3, 2.0 - f64::from(step)];
            let numbers = executor.tensor(&[NUMBERS], &optimizer.numbers(0.1, step as u64)).unwrap();
            optimizer.step(&parameters, &[], &executor.tensor(&[3], &gradient.map(|g| g as f32)).unwrap(), &arrays, &numbers).unwrap();
            for i in 0..3 {
                values[i] = expected(optimizer, [values[i], gradient[i]], &mut states[i], 0.1, step);
            }
        }
        let found = parameters.to_vec::<f32>().unwrap();
        assert!(found.iter().zip(values).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5), "{}: {found:?} instead of {values:?}", optimizer.name());
        assert!(optimizer.with_weight_decay(-1.0).check().is_err());
    }
}

fn options(steps: u64) -> TrainingOptions {
    let schedule = Schedule { rate: 1e-2, warmup: 1, decay: Decay::Cosine };
    TrainingOptions {
        steps,
        batch: 2,
        accumulation: 1,
        schedule,
        pack: false,
        seed: 3,
        save_every: 2,
        eval_every: 2,
        eval_batches: 1,
        patience: None,
    }
}

#[test]
fn a_training_ends_where_evaluations_are_no_better() {
    let (model, data) = (qwen(&strict(2)), Dataset::new(samples()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let run = |patience: usize, steps: u64, resumed: bool, validation: Option<&Dataset>| {
        let folder = TrainingFolder::open(folder.path()).unwrap();
        let mut trainer = trainer(&model, OPTIONS);
        if resumed {
            folder.resume(&mut trainer).unwrap();
        }
        let mut last = None;
        let mut listener = |event: TrainingEvent| {
            last = Some(event);
            Ok(())
        };
        // Steps so long that the loss soon grows.
        let schedule = Schedule { rate: 0.5, warmup: 0, decay: Decay::Constant };
        let options = TrainingOptions { schedule, eval_every: 1, patience: Some(patience), ..options(steps) };
        train(&mut trainer, &folder, (&data, validation), &options, &mut listener).map(|()| (last, trainer.steps(), folder.has_checkpoint()))
    };
    assert!(rejected(run(2, 4, false, None)).contains("patience needs a validation set"));
    assert!(rejected(run(0, 4, false, Some(&data))).contains("patience of 0 evaluations"));
    let (first, steps, _) = run(2, 2, false, Some(&data)).unwrap();
    assert_eq!((first, steps), (Some(TrainingEvent::Saved { step: 2 }), 2));
    let (last, steps, _) = run(2, 60, true, Some(&data)).unwrap();
    assert!(steps < 60 && last == Some(TrainingEvent::Stopped { step: steps, best: steps - 2 }), "{last:?}");
}

#[test]
fn what_goes_on_from_a_checkpoint_has_the_bits_of_what_was_not_interrupted() {
    let (model, data) = (qwen(&strict(2)), Dataset::new(samples()).unwrap());
    // The log without times, as text.
    let losses = |folder: &Path| {
        let text = fs::read_to_string(folder.join("log.jsonl")).unwrap();
        text.lines().map(|line| line.split(",\"seconds\"").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let run = |folder: &Path, ends: &[u64]| {
        let mut last = Vec::new();
        for (part, end) in ends.iter().enumerate() {
            let folder = TrainingFolder::open(folder).unwrap();
            let mut trainer = dropping(&model);
            if part > 0 {
                folder.resume(&mut trainer).unwrap();
            }
            let mut seen = Vec::new();
            let stop = |event: TrainingEvent| match event {
                TrainingEvent::Saved { step } if step == *end => Err(elinvar::Error::io("the power fails")),
                event => {
                    seen.push(event);
                    Ok(())
                }
            };
            assert!(rejected(train(&mut trainer, &folder, (&data, Some(&data)), &options(7), &mut { stop })).contains("power"));
            last = bits(&trainer);
        }
        (last, fs::read(folder.join("adapter_model.safetensors")).unwrap(), losses(folder))
    };
    let (once, twice) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whole = run(once.path(), &[7]);
    assert_eq!(run(twice.path(), &[2, 6, 7]), whole);
    // What is saved is the adapter that was evaluated last.
    let folder = TrainingFolder::open(twice.path()).unwrap();
    let logged: Vec<f64> = folder.logged().unwrap().iter().filter_map(|line| line["validation_loss"].as_f64()).collect();
    let found = evaluate(&model.with_adapter(&folder.adapter().unwrap()).unwrap(), &data, 2, 1).unwrap();
    assert!(logged.len() == 4 && (logged[3] - found).abs() < 1e-5 && logged[3] < logged[0], "{logged:?} {found}");
}

#[test]
fn a_training_that_fails_keeps_what_was_saved() {
    let (model, data) = (qwen(&strict(1)), Dataset::new(samples()).unwrap());
    let place = tempfile::tempdir().unwrap();
    let folder = TrainingFolder::open(place.path()).unwrap();
    assert!(rejected(TrainingFolder::open(place.path())).contains("another process trains in"));
    let mut first = trainer(&model, OPTIONS);
    train(&mut first, &folder, (&data, None), &options(2), &mut |_| Ok(())).unwrap();
    let saved = folder.adapter().unwrap();
    let wild = TrainingOptions { schedule: Schedule { rate: 1e38, warmup: 0, decay: Decay::Constant }, ..options(9) };
    let error = rejected(train(&mut first, &folder, (&data, None), &wild, &mut |_| Ok(())));
    assert!(error.starts_with("step 4: the loss is NaN") || error.starts_with("step 4: the loss is inf"), "{error}");
    assert_eq!(folder.adapter().unwrap(), saved);
    // Of another adapter, another optimiser, another loss, or cut short.
    let of = |config: AdapterConfig, optimizer: Optimizer| Trainer::new(&model, config, None, TrainerOptions { optimizer, ..OPTIONS }).unwrap();
    let config = AdapterConfig::of_layers(&model, 2);
    let mut other = of(AdapterConfig { rank: 3, ..config.clone() }, Optimizer::ADAMW);
    assert!(rejected(folder.resume(&mut other)).contains("it is of an adapter with other settings"));
    assert!(rejected(folder.resume(&mut of(config, Optimizer::LION))).contains("its optimiser is \"adamw\", not lion"));
    let of_loss = |beta: f64| trainer(&model, TrainerOptions { loss: Loss::Dpo { beta }, ..OPTIONS });
    assert!(rejected(folder.resume(&mut of_loss(0.1))).contains("its loss is cross-entropy, not dpo with a beta of 0.1: give the same"));
    {
        let place = tempfile::tempdir().unwrap();
        let folder = TrainingFolder::open(place.path()).unwrap();
        folder.save(&of_loss(0.1)).unwrap();
        assert!(rejected(folder.resume(&mut of_loss(0.2))).contains("its loss is dpo with a beta of 0.1, not dpo with a beta of 0.2"));
        folder.resume(&mut of_loss(0.1)).unwrap();
    }
    let file = folder.file("checkpoint.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    assert!(rejected(folder.resume(&mut trainer(&model, OPTIONS))).contains("is no safetensors file, or damaged"));
    // What a process left that was ended while it wrote goes.
    drop(folder);
    fs::write(place.path().join(".adapter_model.safetensors.77.part"), "half").unwrap();
    TrainingFolder::open(place.path()).unwrap();
    assert!(!place.path().join(".adapter_model.safetensors.77.part").exists());
}

#[test]
fn training_that_would_change_nothing_is_an_error() {
    let model = qwen(&strict(1));
    let new = |config: AdapterConfig| Trainer::new(&model, config, None, OPTIONS);
    let named = |name: &str| AdapterConfig { targets: Targets::Names(vec![name.to_owned()]), ..AdapterConfig::default() };
    let unknown = rejected(new(named("query")));
    assert!(unknown.contains("'query', which is nothing in the model: its matrices are q_proj, k_proj, v_proj, o_proj, gate_proj"), "{unknown}");
    let nothing = rejected(new(AdapterConfig { layers: Some(vec![9]), ..named("q_proj") }));
    assert!(nothing.contains("name nothing in the model"), "{nothing}");
    let dora = AdapterConfig { use_dora: true, ..named("q_proj") };
    let muon = Trainer::new(&model, dora, None, TrainerOptions { optimizer: Optimizer::MUON, ..OPTIONS });
    assert!(rejected(muon).contains("muon trains matrices, and 'model.layers.0.self_attn.q_proj.lora_magnitude_vector' is none"));
    let mut trainer = trainer(&model, OPTIONS);
    let masked = Batch { targets: vec![-100; 64], ..batch(0) };
    assert!(rejected(trainer.step(&[masked], 1.0)).contains("step 1: no token is to be predicted"));
    // The last token is a target alone.
    for tokens in [vec![1, 29], vec![29, 1]] {
        let large = Batch::new(&[&Sample::new(tokens, 0).unwrap()]).unwrap();
        assert!(rejected(trainer.step(&[large], 1.0)).contains("token id 29 is outside the vocabulary of 29"));
    }
    let mut zero = trainer.adapter().unwrap();
    zero.tensors.values_mut().for_each(|(_, values)| values.fill(0.0));
    let mut stuck = Trainer::new(&model, zero.config.clone(), Some(&zero), OPTIONS).unwrap();
    assert!(rejected(stuck.step(&[batch(0)], 1.0)).contains("step 1: the gradient is zero: training would change nothing"));
    let (place, data) = (tempfile::tempdir().unwrap(), Dataset::new(samples()).unwrap());
    let folder = TrainingFolder::open(place.path()).unwrap();
    let mut run = |options: &TrainingOptions| rejected(train(&mut trainer, &folder, (&data, None), options, &mut |_| Ok(())));
    assert!(run(&options(0)).contains("0 steps, of which 0 are taken: training would change nothing"));
    assert!(run(&TrainingOptions { schedule: Schedule { rate: 0.0, warmup: 0, decay: Decay::Linear }, ..options(1) }).contains("learning rate of 0"));
}

#[test]
fn lines_that_are_no_samples_are_named() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/shakespeare");
    let tokenizer = Tokenizer::open(&ModelFiles::open(folder).unwrap()).unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("train.jsonl");
    let read = |text: &str, mask_prompt: bool| {
        fs::write(&path, text).unwrap();
        Dataset::open(&path, &tokenizer, DataOptions { mask_prompt, max_tokens: 40 })
    };
    let good = "{\"text\": \"Once more unto the breach\"}\n\n{\"prompt\": \"ROMEO:\", \"completion\": \" love\"}\n";
    let data = read(good, true).unwrap();
    let [text, completion] = data.samples() else { panic!("two samples") };
    assert_eq!((text.tokens[0], text.tokens.last(), text.prompt), (0, Some(&0), 0));
    // The end of text, two tokens of the prompt without an end, the completion, and its end.
    assert_eq!((completion.tokens.len(), completion.prompt), (5, 3));
    assert_eq!(completion.tokens[3..], [tokenizer.encode_rendered(" love").unwrap(), vec![0]].concat());
    for (line, why) in [
        ("{\"text\": ", "no JSON: EOF while parsing a value at line 1 column 9"),
        ("{\"txt\": \"a\"}", "neither 'text', nor 'prompt' with 'completion', nor 'messages'"),
        ("{\"text\": 5}", "neither 'text'"),
        ("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "'messages' need a chat template, and the model has none"),
        (&format!("{{\"text\": \"{}\"}}", "word ".repeat(60)), "tokens do not fit a context of 40: shorten the text"),
    ] {
        let error = rejected(read(&format!("{good}{line}\n"), true));
        assert!(error.contains("train.jsonl, line 4: ") && error.contains(why), "{error}");
    }
    let pairs = |text: &str| {
        fs::write(&path, text).unwrap();
        Dataset::open_pairs(&path, &tokenizer, DataOptions { mask_prompt: false, max_tokens: 40 })
    };
    let pair = "{\"prompt\": \"ROMEO:\", \"chosen\": \" love\", \"rejected\": \" hate her\"}\n";
    let data = pairs(pair).unwrap();
    let [chosen, other] = data.samples() else { panic!("two samples") };
    assert_eq!((data.len(), data.width(), chosen, other.prompt), (1, 2, completion, 3));
    for (line, why) in [
        ("{\"prompt\": \"a\", \"chosen\": \"b\"}", "line 2: no 'prompt', 'chosen' and 'rejected'"),
        ("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}", "line 2: 'chosen' and 'rejected' are the same"),
        ("{\"prompt\": [], \"chosen\": [], \"rejected\": []}", "line 2: 'messages' need a chat template"),
    ] {
        let error = rejected(pairs(&format!("{pair}{line}\n")));
        assert!(error.contains(why), "{error}");
    }
    assert!(rejected(read("\n", false)).contains("train.jsonl: the data set has no samples"));
    assert!(
        rejected(Dataset::open(&place.path().join("none.jsonl"), &tokenizer, DataOptions { mask_prompt: false, max_tokens: 40 }))
            .contains("cannot read")
    );
}
