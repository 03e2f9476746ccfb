//! A training from its first step to its last.

use std::time::Instant;

use elinvar::{Error, Result};
use serde_json::json;

use super::{
    batch::{Batch, Order},
    data::{Dataset, Sample},
    folder::TrainingFolder,
    loss::{Loss, Rewards},
    schedule::Schedule,
    trainer::{Trained, Trainer},
};
use crate::model::Model;

/// How long to train, and on what.
#[derive(Clone, Debug)]
pub struct TrainingOptions {
    /// Steps in all.
    pub steps: u64,
    /// Samples of a batch.
    pub batch: usize,
    /// Batches of a step.
    pub accumulation: usize,
    /// Learning rates.
    pub schedule: Schedule,
    /// Samples of a batch are packed: see [`Batch::packed`].
    pub pack: bool,
    /// Of the order of the samples.
    pub seed: u64,
    /// Steps between checkpoints; the last step makes one, too.
    pub save_every: u64,
    /// Steps between evaluations on the validation set; the last step makes one, too.
    pub eval_every: u64,
    /// Batches of an evaluation at most.
    pub eval_batches: usize,
    /// End after so many evaluations in a row that are no better than the best before them.
    pub patience: Option<usize>,
}

/// What happens in a training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrainingEvent {
    /// A step was taken.
    Step {
        /// Its number, from 1.
        step: u64,
        /// The mean loss of its tokens before it.
        loss: f32,
        /// The length of its gradient.
        norm: f32,
        /// Of its pairs, if it has some.
        rewards: Option<Rewards>,
        /// Its learning rate.
        rate: f64,
        /// Tokens that it was computed of, without those that fill texts up.
        tokens: usize,
        /// How long it took.
        seconds: f64,
    },
    /// The validation set was evaluated.
    Validated {
        /// After this step.
        step: u64,
        /// The mean loss of its tokens.
        loss: f64,
    },
    /// Evaluations were no better for long enough: nothing comes after.
    Stopped {
        /// After this step.
        step: u64,
        /// The step of the best evaluation.
        best: u64,
    },
    /// Adapter and checkpoint were written.
    Saved {
        /// After this step.
        step: u64,
    },
}

/// Trains from the trainer's step to the last, and reports to `listener`.
///
/// # Errors
/// Options outside their range; those of [`Trainer::step`], of the folder, and of `listener`. What was saved last stays.
pub fn train(
    trainer: &mut Trainer,
    folder: &TrainingFolder,
    (data, validation): (&Dataset, Option<&Dataset>),
    options: &TrainingOptions,
    listener: &mut dyn FnMut(TrainingEvent) -> Result<()>,
) -> Result<()> {
    options.schedule.check()?;
    if options.steps <= trainer.steps() {
        return Err(Error::invalid_argument(format!(
            "{} steps, of which {} are taken: training would change nothing",
            options.steps,
            trainer.steps()
        )));
    }
    if options.patience == Some(0) {
        return Err(Error::invalid_argument("patience of 0 evaluations: 1 or more expected"));
    }
    if options.patience.is_some() && validation.is_none() {
        return Err(Error::invalid_argument("patience needs a validation set: add one, or train without"));
    }
    if options.batch == 0 || options.accumulation == 0 {
        return Err(Error::invalid_argument("a step takes at least one sample"));
    }
    for data in [Some(data), validation].into_iter().flatten() {
        let (of_pairs, has_pairs) = (trainer.minimised() != Loss::CrossEntropy, data.width() == 2);
        if of_pairs != has_pairs {
            return Err(Error::invalid_argument("DPO learns from pairs of a chosen and a rejected text, and the cross-entropy from single texts"));
        }
    }
    let mut order = Order::new(options.seed);
    let new_batch = if options.pack { Batch::packed } else { Batch::new };
    let is_due = |step: u64, every: u64| step == options.steps || (every > 0 && step.is_multiple_of(every));
    while trainer.steps() < options.steps {
        let (start, step) = (Instant::now(), trainer.steps() + 1);
        let taken = (options.batch * options.accumulation) as u64;
        let samples = order.samples(data, (step - 1) * taken, options.batch * options.accumulation);
        let batches = Batch::of_step(&samples, options.batch * data.width(), options.pack);
        let rate = options.schedule.at(step, options.steps);
        let trained = trainer.step(&batches, rate)?;
        let (tokens, seconds) = (samples.iter().map(|sample| sample.tokens.len()).sum(), start.elapsed().as_secs_f64());
        let mut line = json!({
            "step": step, "loss": trained.loss, "gradient_norm": trained.norm, "learning_rate": rate, "tokens": tokens, "seconds": seconds,
        });
        if let Some(Rewards { chosen, rejected, accuracy }) = trained.rewards {
            line["rewards/chosen"] = chosen.into();
            line["rewards/rejected"] = rejected.into();
            line["rewards/margins"] = (chosen - rejected).into();
            line["rewards/accuracies"] = accuracy.into();
        }
        folder.log(&line)?;
        let Trained { loss, norm, rewards } = trained;
        listener(TrainingEvent::Step { step, loss, norm, rewards, rate, tokens, seconds })?;
        let evaluated = validation.is_some() && is_due(step, options.eval_every);
        if let Some(validation) = validation.filter(|_| evaluated) {
            let loss = mean_loss(validation, options.batch, options.eval_batches, &mut |samples| {
                let batch = new_batch(samples)?;
                Ok((trainer.loss(&batch)?, trainer.terms(&batch)?))
            })?;
            folder.log(&json!({ "step": step, "validation_loss": loss }))?;
            listener(TrainingEvent::Validated { step, loss })?;
        }
        let stalled = if evaluated { stalled(folder, options.patience)? } else { None };
        if is_due(step, options.save_every) || stalled.is_some() {
            folder.save(trainer)?;
            listener(TrainingEvent::Saved { step })?;
        }
        if let Some(best) = stalled {
            return listener(TrainingEvent::Stopped { step, best });
        }
    }
    Ok(())
}

/// The step of the best evaluation, if the last `patience` are no better. It follows from the log, so a training that goes on counts what came before.
fn stalled(folder: &TrainingFolder, patience: Option<usize>) -> Result<Option<u64>> {
    let Some(patience) = patience else { return Ok(None) };
    let lines = folder.logged()?;
    let losses: Vec<_> = lines.iter().filter_map(|line| Some((line["step"].as_u64()?, line["validation_loss"].as_f64()?))).collect();
    let best = losses.iter().enumerate().reduce(|best, other| if other.1.1 < best.1.1 { other } else { best });
    Ok(best.filter(|(place, _)| losses.len() - 1 - place >= patience).map(|(_, (step, _))| *step))
}

/// The sum of the losses of a batch's samples, and the number of its terms.
type LossOf<'a> = dyn FnMut(&[&Sample]) -> Result<(f64, usize)> + 'a;

/// The mean loss of a data set: of at most so many batches, in the order of the file.
fn mean_loss(data: &Dataset, batch: usize, batches: usize, loss: &mut LossOf<'_>) -> Result<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for samples in data.samples().chunks(batch.max(1) * data.width()).take(batches.max(1)) {
        let (more, terms) = loss(&samples.iter().collect::<Vec<_>>())?;
        sum += more;
        count += terms;
    }
    Ok(sum / count as f64)
}

/// The mean cross-entropy of a data set's targets, in nats: of at most `batches` batches of `batch` samples, in the order of the file.
///
/// # Errors
/// Tokens outside the vocabulary, out of memory, or a failed device.
pub fn evaluate(model: &Model, data: &Dataset, batch: usize, batches: usize) -> Result<f64> {
    let executor = model.executor();
    mean_loss(data, batch, batches, &mut |samples| {
        let batch = Batch::new(samples)?;
        batch.check(model)?;
        let tensor = |values: &[i32]| executor.tensor(&[values.len()], values);
        let loss = model.loss(&tensor(&batch.tokens)?, &tensor(&batch.targets)?, &model.texts(batch.texts, batch.length, None)?)?;
        Ok((f64::from(loss.item::<f32>()?), batch.targets()))
    })
}
