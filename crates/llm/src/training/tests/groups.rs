//! A training has the same bits on any number of devices.

use elinvar::BackendType;

use super::*;

/// Replicas on a device.
fn replicas(backend: BackendType, count: usize) -> Executor {
    Executor::group(&vec![backend; count]).unwrap().with_precision(Precision::Strict).replicated()
}

/// Four batches of one shape, or half as many of pairs.
fn batches(pack: bool) -> Vec<Batch> {
    let samples = samples();
    Batch::of_step(&(0..8).map(|place| &samples[place % samples.len()]).collect::<Vec<_>>(), 2, pack)
}

/// An adapter, how it is trained, and whether batches are packed.
type Kind<'a> = (&'a dyn Fn(&Model) -> AdapterConfig, TrainerOptions, bool);

/// What two steps and an evaluation leave, as bits.
fn trained(executor: &Executor, (config, options, pack): Kind<'_>) -> Vec<u32> {
    let model = qwen(executor);
    let mut trainer = Trainer::new(&model, config(&model), None, options).unwrap();
    let mut found = Vec::new();
    for _ in 0..2 {
        let Trained { loss, norm, rewards } = trainer.step(&batches(pack), 1e-2).unwrap();
        found.extend([loss, norm]);
        found.extend(rewards.into_iter().flat_map(|rewards| [rewards.chosen, rewards.rejected, rewards.accuracy]));
    }
    found.push(trainer.loss(&batches(pack)[1]).unwrap() as f32);
    found.into_iter().map(f32::to_bits).chain(bits(&trainer)).collect()
}

#[test]
fn steps_have_the_same_bits_on_any_number_of_devices() {
    let dropping = |model: &Model| AdapterConfig { dropout: 0.2, ..AdapterConfig::of_layers(model, 2) };
    let dora = |model: &Model| AdapterConfig { use_dora: true, ..AdapterConfig::of_layers(model, 2) };
    let whole = |model: &Model| AdapterConfig::whole_layers(model, 1);
    let muon = TrainerOptions { optimizer: Optimizer::MUON, checkpointing: Checkpointing::Layers, ..OPTIONS };
    let dpo = TrainerOptions { loss: Loss::Dpo { beta: 0.5 }, optimizer: Optimizer::LION, ..OPTIONS };
    let kinds: [Kind<'_>; 5] =
        [(&dropping, muon, false), (&dropping, OPTIONS, true), (&dora, OPTIONS, false), (&whole, OPTIONS, false), (&dora, dpo, true)];
    for (index, kind) in kinds.into_iter().enumerate() {
        let expected = trained(&strict(2), kind);
        for count in [2, 4] {
            assert!(trained(&replicas(BackendType::Cpu, count), kind) == expected, "kind {index} on {count} devices");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_step_has_the_same_bits_on_two_simulated_gpus() {
    let step = |executor: &Executor| {
        let mut trainer = trainer(&qwen(executor), OPTIONS);
        trainer.step(&batches(false)[..2], 1e-2).unwrap();
        bits(&trainer)
    };
    assert_eq!(step(&replicas(BackendType::MetalSim, 2)), step(&strict(2)));
}

#[test]
fn a_training_goes_on_with_its_bits_on_other_devices() {
    let (data, options) = (Dataset::new(samples()).unwrap(), |steps: u64| TrainingOptions {
        steps,
        batch: 1,
        accumulation: 4,
        schedule: Schedule { rate: 1e-2, warmup: 1, decay: Decay::Cosine },
        pack: false,
        seed: 3,
        save_every: 2,
        eval_every: 1,
        eval_batches: 3,
        patience: None,
    });
    let train_on = |path: &Path, executor: &Executor, steps: u64| {
        let (folder, mut trainer) = (TrainingFolder::open(path).unwrap(), dropping(&qwen(executor)));
        if folder.has_checkpoint() {
            folder.resume(&mut trainer).unwrap();
        }
        // What is trained towards is the same.
        let stop = |event: TrainingEvent| match matches!(event, TrainingEvent::Saved { step } if step == steps) {
            true => Err(elinvar::Error::invalid_argument("enough")),
            false => Ok(()),
        };
        train(&mut trainer, &folder, (&data, Some(&data)), &options(4), &mut { stop }).unwrap_err();
    };
    let written = |path: &Path| {
        let lines = TrainingFolder::open(path).unwrap().logged().unwrap().into_iter().map(|mut line| {
            line.as_object_mut().unwrap().remove("seconds");
            line.to_string()
        });
        let files = ["adapter_model.safetensors", "checkpoint.safetensors"].map(|name| fs::read(path.join(name)).unwrap());
        (lines.collect::<Vec<_>>(), files)
    };
    let [alone, moved] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    train_on(alone.path(), &strict(2), 4);
    train_on(moved.path(), &replicas(BackendType::Cpu, 4), 2);
    train_on(moved.path(), &replicas(BackendType::Cpu, 2), 4);
    assert!(written(moved.path()) == written(alone.path()));
}

#[test]
fn batches_that_devices_cannot_share_are_rejected() {
    let mut two = trainer(&qwen(&replicas(BackendType::Cpu, 2)), OPTIONS);
    let step = |trainer: &mut Trainer, batches: &[Batch]| rejected(trainer.step(batches, 1e-2));
    let expected = "3 batches of a step cannot be shared by 2 devices: use 1, or a multiple of 2 batches (--grad-accumulation-steps)";
    assert_eq!(step(&mut two, &batches(false)[..3]), expected);
    let samples = samples();
    let unlike = [Batch::new(&[&samples[0]]).unwrap(), Batch::new(&[&samples[0], &samples[1]]).unwrap()];
    assert!(step(&mut two, &unlike).contains("have different shapes: make them by Batch::of_step"));
    let shared = Executor::group(&[BackendType::Cpu; 2]).unwrap();
    let model = Model::random(&shared, Config::llama3(1, [32, 64], [4, 2], 16), WeightType::Plain(DType::F32), 1).unwrap();
    assert!(rejected(Trainer::new(&model, AdapterConfig::of_layers(&model, 1), None, OPTIONS)).contains("load it on replicas"));
}
