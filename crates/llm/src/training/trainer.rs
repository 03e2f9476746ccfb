//! Steps of training.

use std::collections::BTreeMap;

use elinvar::{DType, Error, Executor, Recording, Result, SplitMix64, Tensor};

use super::{
    batch::{Batch, Packed, Shape},
    loss::{Loss, Preferences, Rewards},
    optimizer::{NUMBERS, Optimizer},
    parameters::Parameters,
};
use crate::{
    adapter::{Adapter, AdapterConfig},
    model::{Checkpointing, Model, Objective, Packing, check_dropout},
};

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// The loss before the step: the mean cross-entropy of the tokens that were to be predicted, in nats, or what [`Loss`] says.
    pub loss: f32,
    /// The length of the gradient, before it was clipped.
    pub norm: f32,
    /// Of pairs.
    pub rewards: Option<Rewards>,
}

/// How a model is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainerOptions {
    /// What is minimised.
    pub loss: Loss,
    /// What a step does with the gradient.
    pub optimizer: Optimizer,
    /// Gradients longer than this are shortened to it.
    pub clip: Option<f64>,
    /// How much is computed again on the way back, for less memory.
    pub checkpointing: Checkpointing,
    /// Of the values that an adapter begins with.
    pub seed: u64,
}

/// A model in training.
pub struct Trainer {
    base: Model,
    parameters: Parameters,
    options: TrainerOptions,
    states: Vec<Tensor>,
    /// Of the optimiser, of the step under way.
    numbers: Tensor,
    /// What each token's loss counts, for each replica.
    factor: Tensor,
    /// Of the dropout of the batches under way, for each replica.
    key: Tensor,
    /// What a step finds: see [`Found`].
    found: Tensor,
    update: Recording,
    /// Gradients of batches of a shape; what was used last is last.
    gradients: Vec<Recorded>,
    losses: Vec<Recorded>,
    steps: u64,
}

/// The parts of what a step finds, which are read together.
struct Found {
    /// The sum of the batches' losses.
    loss: Tensor,
    /// The gradient's length.
    norm: Tensor,
    /// Of pairs: the sums of [`Rewards`]' parts.
    rewards: Tensor,
}

impl Found {
    const COUNT: usize = 5;

    fn of(found: &Tensor) -> Result<Self> {
        let part = |start: usize, count: usize| found.slice(0, start, count, 1);
        Ok(Self { loss: part(0, 1)?, norm: part(1, 1)?, rewards: part(2, 3)? })
    }
}

/// What is done with batches of a shape. Its tensors have a row for the batch of each replica.
struct Recorded {
    shape: Shape,
    tokens: Tensor,
    targets: Tensor,
    packing: Option<Packing>,
    recording: Recording,
}

impl Recorded {
    /// Gives each replica its batch.
    fn write(&self, batches: &[&Batch]) -> Result<()> {
        let write = |to: &Tensor, of: &dyn Fn(&Batch) -> &[i32]| to.write(&batches.iter().flat_map(|batch| of(batch)).copied().collect::<Vec<_>>());
        write(&self.tokens, &|batch| &batch.tokens)?;
        write(&self.targets, &|batch| &batch.targets)?;
        let Some(Packing { positions, places, rows }) = &self.packing else { return Ok(()) };
        let write = |to: &Tensor, of: fn(&Packed) -> &[i32]| write(to, &|batch| batch.packed.as_ref().map_or(&[], of));
        write(positions, |packed| &packed.positions)?;
        write(places, |packed| &packed.places)?;
        write(rows, |packed| &packed.rows)
    }
}

/// Adds to a sum what each replica has, in their order, which is that of their batches.
pub(super) fn add_all(sum: &Tensor, own: &Tensor) -> Result<()> {
    own.all_replicas()?.iter().try_for_each(|more| sum.add_(more))
}

/// The length of a vector. Its squares are added in rows, where it has whole ones, so that a GPU has more to do at once than one sum.
fn length_of(vector: &Tensor) -> Result<Tensor> {
    let count = vector.shape()[0];
    let width = 1 << count.trailing_zeros().min(ROW);
    vector.reshape(&[count / width, width])?.sum_square(&[1], false)?.sum(&[], false)?.sqrt()
}

/// The binary logarithm of the width of those rows, at most.
const ROW: u32 = 12;

/// What the dropout of a batch of a step follows from.
fn dropout_key(seed: u64, step: u64, batch: u64) -> u32 {
    (SplitMix64::nth(SplitMix64::nth(seed, step), batch) >> 32) as u32
}

/// Shapes that are kept.
pub(super) const MAX_SHAPES: usize = 8;

impl Trainer {
    /// Of `model`, which stays as it is: what is trained is an adapter of this configuration, `initial` if it is given.
    ///
    /// # Errors
    /// Options outside their range, an adapter that does not fit the model, or out of memory.
    pub fn new(model: &Model, config: AdapterConfig, initial: Option<&Adapter>, options: TrainerOptions) -> Result<Self> {
        let TrainerOptions { optimizer, clip, seed, .. } = options;
        optimizer.check()?;
        options.loss.check()?;
        if clip.is_some_and(|clip| !(clip > 0.0 && clip.is_finite())) {
            return Err(Error::invalid_argument("gradients are clipped to a positive length"));
        }
        check_dropout(config.dropout)?;
        let executor = model.executor();
        if executor.ranks() > 1 {
            return Err(Error::unsupported("training of a model that several devices share: load it on replicas, Executor::replicated"));
        }
        let parameters = Parameters::new(model, config, initial, seed)?;
        if parameters.config.dropout > 0.0 && !parameters.has_low_rank() {
            return Err(Error::invalid_argument("a dropout would have no effect: it is of what low-rank adapters read, and none is trained"));
        }
        if let (Optimizer::Muon { .. }, Some(part)) = (optimizer, parameters.parts.iter().find(|part| part.dims.len() != 2)) {
            return Err(Error::invalid_argument(format!("muon trains matrices, and '{}' is none: take another optimiser", part.name)));
        }
        let zeros = |count: usize| executor.zeros(DType::F32, &[count]);
        let states = (0..optimizer.states()).map(|_| zeros(parameters.count())).collect::<Result<Vec<_>>>()?;
        let (numbers, factor, found) = (zeros(NUMBERS)?, zeros(executor.replicas())?, zeros(Found::COUNT)?);
        let (update, ()) = executor.record(|recorded| {
            let gradient = parameters.gradient.on(recorded)?;
            let length = length_of(&gradient)?;
            Found::of(&found.on(recorded)?)?.norm.copy_from(&length)?;
            let clipped = match clip {
                // As PyTorch has it.
                Some(clip) => gradient.mul(&((length + 1e-6)?.reciprocal()? * clip)?.clamp(0.0, 1.0)?)?,
                None => gradient.clone(),
            };
            let states = states.iter().map(|state| state.on(recorded)).collect::<Result<Vec<_>>>()?;
            optimizer.step(&parameters.values.on(recorded)?, &parameters.parts, &clipped, &states, &numbers.on(recorded)?)?;
            gradient.fill_(0)
        })?;
        let (base, key) = (model.clone(), executor.zeros(DType::U32, &[executor.replicas(), 1])?);
        Ok(Self { base, parameters, options, states, numbers, factor, key, found, update, gradients: Vec::new(), losses: Vec::new(), steps: 0 })
    }

    /// Launches of the gradient of the last batches.
    #[cfg(test)]
    pub(super) fn launches(&self) -> usize {
        self.gradients.last().map_or(0, |recorded| recorded.recording.len())
    }

    /// Numbers that are trained.
    pub fn parameters(&self) -> usize {
        self.parameters.count()
    }

    /// Steps that were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What a step does with the gradient.
    pub fn optimizer(&self) -> Optimizer {
        self.options.optimizer
    }

    /// What is minimised.
    pub fn minimised(&self) -> Loss {
        self.options.loss
    }

    /// What the loss of a batch is the sum over: its targets, or its pairs, the texts of which are chosen and rejected in turn.
    pub(super) fn terms(&self, batch: &Batch) -> Result<usize> {
        match self.options.loss {
            Loss::CrossEntropy => Ok(batch.targets()),
            Loss::Dpo { .. } if batch.texts % 2 == 1 => Err(Error::invalid_argument(format!("{} texts are no pairs", batch.texts))),
            Loss::Dpo { .. } => Ok(batch.texts / 2),
        }
    }

    /// A step over batches, which count as one: the loss is the mean over all their targets, or pairs.
    ///
    /// [Replicas](Executor::replicated) compute a batch each at a time, and gradients are added in the order of the batches: so bits do not depend on the number
    /// of replicas.
    ///
    /// # Errors
    /// Batches that replicas cannot share evenly, or of different shapes; tokens outside the vocabulary; no target; a loss or gradient that is no number, or
    /// zero; out of memory; a failed device. What was trained is then lost.
    pub fn step(&mut self, batches: &[Batch], rate: f64) -> Result<Trained> {
        let step = self.steps + 1;
        let targets: usize = batches.iter().map(Batch::targets).sum();
        if targets == 0 {
            return Err(Error::invalid_argument(format!("step {step}: no token is to be predicted")));
        }
        let (count, replicas) = (batches.len(), self.base.executor().replicas());
        if !count.is_multiple_of(replicas) {
            let fit: Vec<_> = (1..replicas).filter(|replicas| count.is_multiple_of(*replicas)).map(|replicas| replicas.to_string()).collect();
            return Err(Error::invalid_argument(format!(
                "{count} {} of a step cannot be shared by {replicas} devices: use {}, or a multiple of {replicas} batches (--grad-accumulation-steps)",
                if count == 1 { "batch" } else { "batches" },
                fit.join(" or ")
            )));
        }
        let terms: usize = batches.iter().map(|batch| self.terms(batch)).sum::<Result<_>>()?;
        self.found.write(&[0f32; Found::COUNT])?;
        for (round, batches) in batches.chunks(replicas).enumerate() {
            if self.parameters.config.dropout > 0.0 {
                let key = |replica| dropout_key(self.options.seed, step, (round * replicas + replica) as u64);
                self.key.write(&(0..replicas).map(key).collect::<Vec<_>>())?;
            }
            self.replay(batches, 1.0 / terms as f32, true)?;
        }
        self.numbers.write(&self.options.optimizer.numbers(rate, step))?;
        self.base.executor().replay(&self.update)?;
        let [loss, norm, chosen, rejected, accuracy] = self.found.to_vec::<f32>()?[..] else {
            return Err(Error::internal("a step found other parts"));
        };
        let rewards = match self.options.loss {
            Loss::CrossEntropy => None,
            Loss::Dpo { .. } => Some(Rewards { chosen, rejected, accuracy }),
        };
        match (Trained { loss, norm, rewards }) {
            Trained { loss, norm, .. } if !loss.is_finite() || !norm.is_finite() => Err(Error::invalid_data(format!(
                "step {step}: the loss is {loss}, the gradient's length {norm}: training stops; lower the learning rate or clip the gradient"
            ))),
            Trained { norm: 0.0, .. } => Err(Error::invalid_data(format!("step {step}: the gradient is zero: training would change nothing"))),
            trained => {
                self.steps = step;
                Ok(trained)
            }
        }
    }

    /// The sum of the losses of a batch: of the cross-entropies of its targets, in nats, or of its pairs.
    ///
    /// # Errors
    /// Tokens outside the vocabulary, out of memory, or a failed device.
    pub fn loss(&mut self, batch: &Batch) -> Result<f64> {
        self.terms(batch)?;
        self.found.write(&[0f32; Found::COUNT])?;
        self.replay(std::slice::from_ref(batch), 1.0, false)?;
        Found::of(&self.found)?.loss.item::<f32>().map(f64::from)
    }

    /// The adapter as it is now.
    ///
    /// # Errors
    /// A failed device.
    pub fn adapter(&self) -> Result<Adapter> {
        self.parameters.adapter()
    }

    /// What the next step depends on, beside their number.
    pub(super) fn arrays(&self) -> Result<BTreeMap<String, Vec<f32>>> {
        self.named().map(|(name, tensor)| Ok((name, tensor.to_vec()?))).collect()
    }

    /// Goes on after `steps` steps that gave these arrays.
    pub(super) fn restore(&mut self, steps: u64, arrays: &BTreeMap<String, Vec<f32>>) -> Result<()> {
        for (name, tensor) in self.named() {
            match arrays.get(&name) {
                Some(values) if values.len() == tensor.shape()[0] => tensor.write(values)?,
                Some(values) => {
                    return Err(Error::invalid_data(format!("'{name}' has {} numbers, {} are trained", values.len(), tensor.shape()[0])));
                }
                None => return Err(Error::invalid_data(format!("'{name}' is missing"))),
            }
        }
        self.steps = steps;
        Ok(())
    }

    fn named(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let states = self.states.iter().enumerate().map(|(index, state)| (format!("state.{index}"), state));
        [("parameters".to_owned(), &self.parameters.values)].into_iter().chain(states)
    }

    /// Computes a batch on each replica; of fewer batches the last again, which counts for nothing.
    fn replay(&mut self, batches: &[Batch], factor: f32, with_gradients: bool) -> Result<()> {
        let Some(last) = batches.last() else { return Err(Error::internal("replicas without a batch")) };
        let shape = last.shape();
        if batches.iter().any(|batch| batch.shape() != shape) {
            return Err(Error::invalid_argument("batches that devices compute side by side have different shapes: make them by Batch::of_step"));
        }
        batches.iter().try_for_each(|batch| batch.check(&self.base))?;
        let replicas = 0..self.base.executor().replicas();
        self.factor.write(&replicas.clone().map(|replica| if replica < batches.len() { factor } else { 0.0 }).collect::<Vec<_>>())?;
        let known = if with_gradients { &mut self.gradients } else { &mut self.losses };
        let recorded = match known.iter().position(|recorded| recorded.shape == shape) {
            Some(place) => known.remove(place),
            None => {
                if known.len() == MAX_SHAPES {
                    known.remove(0);
                }
                self.record(shape, with_gradients)?
            }
        };
        recorded.write(&replicas.map(|replica| batches.get(replica).unwrap_or(last)).collect::<Vec<_>>())?;
        self.base.executor().replay(&recorded.recording)?;
        if with_gradients { &mut self.gradients } else { &mut self.losses }.push(recorded);
        Ok(())
    }

    /// Adds batches' losses to the loss, and their gradients to the gradient.
    fn record(&self, shape: Shape, with_gradients: bool) -> Result<Recorded> {
        let Shape { texts, length, rows, is_packed } = shape;
        let executor = self.base.executor();
        let zeros = |count: usize| executor.zeros(DType::I32, &[executor.replicas(), count]);
        let packing = || Ok::<_, Error>(Packing { positions: zeros(rows)?, places: zeros(rows)?, rows: zeros(texts * length)? });
        let (tokens, targets, packing) = (zeros(rows)?, zeros(rows)?, is_packed.then(packing).transpose()?);
        let body = |recorded: &Executor| {
            let (model, leaves) = self.parameters.model(&self.base, recorded)?;
            let sums = Found::of(&self.found.on(recorded)?)?;
            let own = |tensor: &Tensor| tensor.on(recorded)?.own_replica();
            let (tokens, targets, factor) = (own(&tokens)?, own(&targets)?, own(&self.factor)?);
            let packing = match &packing {
                Some(Packing { positions, places, rows }) => Some(Packing { positions: own(positions)?, places: own(places)?, rows: own(rows)? }),
                None => None,
            };
            let layout = self.base.texts(texts, length, packing)?;
            let preferences = |losses: &Tensor, beta: f64| {
                let reference = self.base.losses(&tokens, &targets, &layout)?;
                Preferences::new(&layout.apart(losses)?, &layout.apart(&reference)?, texts, beta, &factor)
            };
            let of_pairs = |losses: &Tensor| match self.options.loss {
                Loss::CrossEntropy => Err(Error::internal("a loss without pairs")),
                Loss::Dpo { beta } => {
                    let found = preferences(losses, beta)?;
                    add_all(&sums.rewards, &found.rewards)?;
                    Ok((found.loss, layout.together(&found.slopes)?))
                }
            };
            let rate = self.parameters.config.dropout;
            let model = if with_gradients && rate > 0.0 { model.with_dropout(rate, &own(&self.key)?)? } else { model };
            let loss = match (with_gradients, self.options.loss) {
                (true, loss) => {
                    let objective = if loss == Loss::CrossEntropy { Objective::Sum(&factor) } else { Objective::Of(&of_pairs) };
                    let (loss, gradients) = model.gradients([&tokens, &targets], &objective, &layout, &leaves, self.options.checkpointing)?;
                    self.parameters.add_gradients(recorded, &gradients)?;
                    loss
                }
                (false, Loss::CrossEntropy) => model.loss(&tokens, &targets, &layout)?.detach().mul(&factor)?,
                (false, Loss::Dpo { beta }) => preferences(&model.losses(&tokens, &targets, &layout)?, beta)?.loss,
            };
            add_all(&sums.loss, &loss)
        };
        let (recording, ()) = executor.record(body)?;
        Ok(Recorded { shape, tokens, targets, packing, recording })
    }
}
