//! Samples of a batch one after the other, against the same filled up.

use super::{
    Batch, CHECKPOINTINGS, Checkpointing, Loss, OPTIONS, Sample, Trainer, TrainerOptions, dropping, pairs, qwen, references, samples, strict,
    trainer, trainings,
};
use crate::model::{IGNORED, Model, Packing};

fn both(samples: &[Sample]) -> [Batch; 2] {
    let samples: Vec<_> = samples.iter().collect();
    [Batch::new(&samples).unwrap(), Batch::packed(&samples).unwrap()]
}

/// The losses of the tokens that are to be predicted, sample by sample.
fn losses(model: &Model, batch: &Batch) -> Vec<u32> {
    let tensor = |values: &[i32]| model.executor().tensor(&[values.len()], values).unwrap();
    let packing = batch.packed.as_ref().map(|packed| Packing {
        positions: tensor(&packed.positions),
        places: tensor(&packed.places),
        rows: tensor(&packed.rows),
    });
    let texts = model.texts(batch.texts, batch.length, packing).unwrap();
    let losses: Vec<f32> = model.losses(&tensor(&batch.tokens), &tensor(&batch.targets), &texts).unwrap().to_vec().unwrap();
    losses.iter().zip(&batch.targets).filter(|(_, target)| **target != IGNORED).map(|(loss, _)| loss.to_bits()).collect()
}

#[test]
fn each_token_has_the_loss_that_it_has_alone() {
    // Grouped queries; then windows, soft caps and norms of heads.
    for name in ["dora", "layers"] {
        let model = trainings()[name].model(&strict(2));
        let batches = both(&samples());
        let [filled, packed] = batches.each_ref().map(|batch| losses(&model, batch));
        let alone: Vec<u32> = samples().iter().flat_map(|sample| losses(&model, &Batch::new(&[sample]).unwrap())).collect();
        assert_eq!((batches[0].tokens.len(), batches[1].tokens.len()), (5 * 32, 128));
        assert!(packed == filled && packed == alone && !packed.is_empty(), "{name}");
    }
}

/// Sums over rows have other parts, so losses and lengths of gradients are compared, not their bits.
fn near(mut filled: Trainer, mut packed: Trainer, batches: &[[Batch; 2]]) {
    for batches in batches {
        let evaluated = [filled.loss(&batches[0]).unwrap(), packed.loss(&batches[1]).unwrap()];
        let [a, b] = [filled.step(&batches[..1], 1e-2).unwrap(), packed.step(&batches[1..], 1e-2).unwrap()];
        assert!((a.loss - b.loss).abs() < 2e-6 * a.loss && (a.norm - b.norm).abs() < 2e-5 * a.norm, "{a:?} {b:?}");
        assert!((evaluated[0] - evaluated[1]).abs() < 2e-6 * evaluated[0], "{evaluated:?}");
        assert_eq!(a.rewards.map(|rewards| rewards.accuracy), b.rewards.map(|rewards| rewards.accuracy));
    }
}

#[test]
fn packed_batches_are_trained_on_like_filled_up_ones() {
    let samples = samples();
    for checkpointing in CHECKPOINTINGS {
        let options = TrainerOptions { checkpointing, ..OPTIONS };
        let new = || trainer(&qwen(&strict(2)), options);
        near(new(), new(), &[both(&samples[..3]), both(&samples[2..]), both(&samples[..3])]);
    }
}

#[test]
fn packed_pairs_are_preferred_like_filled_up_ones() {
    let (training, pairs) = (references("preferences.json").into_values().next().unwrap(), pairs());
    let new = || training.trainer(&strict(2), Checkpointing::None, Loss::Dpo { beta: training.beta });
    near(new(), new(), &[both(pairs[..2].as_flattened()), both(pairs[1..].as_flattened())]);
}

#[test]
fn packed_batches_are_few_shapes_and_rows_without_a_text_count_for_nothing() {
    let sample = |count: u32| Sample::new((0..count).collect(), 0).unwrap();
    let of = |counts: &[u32]| {
        let samples: Vec<_> = counts.iter().map(|count| sample(*count)).collect();
        Batch::packed(&samples.iter().collect::<Vec<_>>()).unwrap()
    };
    let batch = of(&[33, 9]);
    // 32 tokens would leave no place free, so that there are 64.
    assert_eq!((batch.length, batch.tokens.len(), batch.targets()), (64, 64, 40));
    let packed = batch.packed.unwrap();
    assert_eq!((&packed.positions[31..34], &packed.places[31..34], packed.places[40]), (&[31, 0, 1][..], &[31, 64, 65][..], 32));
    assert_eq!((&packed.rows[31..34], &packed.rows[63..66], packed.rows[127]), (&[31, 40, 40][..], &[40, 32, 33][..], 40));
    let rows = |count: u32| of(&[count; 32]).tokens.len();
    assert_eq!([61, 64, 65, 66].map(rows), [2048, 2048, 2304, 2304]);
    assert!(Batch::packed(&[]).is_err());
    // What is left out follows from a row's number, which packing changes: the loss is that of other elements, but a loss.
    let mut trainer = dropping(&qwen(&strict(1)));
    assert!(trainer.step(&[both(&samples())[1].clone()], 1e-2).unwrap().loss > 0.0);
}
