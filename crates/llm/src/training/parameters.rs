//! What is trained, in one array.

use std::ops::Range;

use elinvar::{DType, Error, Executor, Result, SplitMix64, Tensor};

use super::trainer::add_all;
use crate::{
    adapter::{Adapter, AdapterConfig},
    model::{Change, Model, Place},
};

/// Parameters with their gradient, f32, on a device.
pub(super) struct Parameters {
    pub(super) config: AdapterConfig,
    changes: Vec<(Place, Change)>,
    pub(super) parts: Vec<Part>,
    pub(super) values: Tensor,
    pub(super) gradient: Tensor,
}

/// A tensor of the adapter.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) dims: Vec<usize>,
    /// Where it lies in the array.
    pub(super) range: Range<usize>,
}

impl Part {
    /// It in an array.
    pub(super) fn of(&self, array: &Tensor) -> Result<Tensor> {
        array.slice(0, self.range.start, self.range.len(), 1)?.reshape(&self.dims)
    }
}

impl Parameters {
    /// Of an adapter: those of `initial`, or such that the model is at first as it was.
    pub(super) fn new(model: &Model, config: AdapterConfig, initial: Option<&Adapter>, seed: u64) -> Result<Self> {
        let changes = config.changes(&model.places())?;
        let (mut parts, mut values) = (Vec::new(), Vec::new());
        for (number, (place, change)) in changes.iter().enumerate() {
            for (kind, dims) in place.tensors(*change) {
                let name = format!("{}.{kind}", place.name);
                let first = values.len();
                match initial {
                    Some(adapter) => values.extend(given(adapter, &name, &dims)?),
                    None => values.extend(begin(model, place, kind, dims.iter().product(), SplitMix64::nth(seed, number as u64))?),
                }
                parts.push(Part { name, dims, range: first..values.len() });
            }
        }
        let executor = model.executor();
        let gradient = executor.zeros(DType::F32, &[values.len()])?;
        Ok(Self { config, changes, parts, values: executor.tensor(&[values.len()], &values)?, gradient })
    }

    /// Whether there are low-rank adapters.
    pub(super) fn has_low_rank(&self) -> bool {
        self.changes.iter().any(|(_, change)| matches!(change, Change::LowRank { .. }))
    }

    /// How many numbers.
    pub(super) fn count(&self) -> usize {
        self.values.shape()[0]
    }

    /// The model with them, for an executor that may record; and the leaves of the tape, in order.
    pub(super) fn model(&self, base: &Model, executor: &Executor) -> Result<(Model, Vec<Tensor>)> {
        let mut leaves = Vec::new();
        let values = self.values.on(executor)?;
        let model = base.changed(&self.changes, &mut |_, dims| {
            let part = self.parts.get(leaves.len()).ok_or_else(|| Error::internal("a change of more tensors than were planned"))?;
            let leaf = values.slice(0, part.range.start, part.range.len(), 1)?.reshape(dims)?.requires_grad()?;
            leaves.push(leaf.clone());
            Ok(leaf)
        })?;
        Ok((model, leaves))
    }

    /// Adds to the gradient those of the leaves, of all replicas.
    pub(super) fn add_gradients(&self, executor: &Executor, gradients: &[Tensor]) -> Result<()> {
        let sum = self.gradient.on(executor)?;
        let flat: Vec<_> = gradients.iter().map(|gradient| gradient.reshape(&[gradient.shape().elements()])).collect::<Result<_>>()?;
        for run in runs(&self.parts) {
            let (first, end) = (self.parts[run.start].range.start, self.parts[run.end - 1].range.end);
            let found = match &flat[run] {
                [one] => one.clone(),
                several => Tensor::concat(&several.iter().collect::<Vec<_>>(), 0)?,
            };
            add_all(&sum.slice(0, first, end - first, 1)?, &found)?;
        }
        Ok(())
    }

    /// They as an adapter.
    pub(super) fn adapter(&self) -> Result<Adapter> {
        let values = self.values.to_vec::<f32>()?;
        let tensor = |part: &Part| (part.name.clone(), (part.dims.clone(), values[part.range.clone()].to_vec()));
        Ok(Adapter { config: self.config.clone(), tensors: self.parts.iter().map(tensor).collect() })
    }
}

/// Numbers of parts whose gradients are added at once, at most, unless one has more.
pub(super) const TOGETHER: usize = 1 << 20;

/// Parts that follow each other, of at most [`TOGETHER`] numbers.
fn runs(parts: &[Part]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match runs.last_mut().filter(|run| part.range.end - parts[run.start].range.start <= TOGETHER) {
            Some(run) => run.end = index + 1,
            None => runs.push(index..index + 1),
        }
    }
    runs
}

fn given(adapter: &Adapter, name: &str, dims: &[usize]) -> Result<Vec<f32>> {
    match adapter.tensors.get(name) {
        Some((found, values)) if found == dims => Ok(values.clone()),
        Some((found, _)) => Err(Error::invalid_data(format!("the adapter's tensor '{name}' has shape {found:?}, {dims:?} is to be trained"))),
        None => Err(Error::invalid_data(format!("the adapter has no tensor '{name}', which is to be trained"))),
    }
}

/// Values to begin with: `B` is zero, so that the model is as it was; `A` is uniform up to `1 / √columns`, as PEFT has it; magnitudes are the rows' own.
fn begin(model: &Model, place: &Place, kind: &str, count: usize, seed: u64) -> Result<Vec<f32>> {
    let matrix = || model.merged(place)?.cast(DType::F32);
    match kind {
        "lora_A.weight" => {
            let bound = 1.0 / (place.extents[1] as f32).sqrt();
            let mut random = SplitMix64::new(seed);
            Ok((0..count).map(|_| bound * ((random.next_u64() >> 40) as f32 * 2f32.powi(-23) - 1.0)).collect())
        }
        "lora_B.weight" => Ok(vec![0.0; count]),
        "lora_magnitude_vector" => matrix()?.sum_square(&[1], false)?.sqrt()?.to_vec(),
        "weight" => matrix()?.to_vec(),
        other => Err(Error::internal(format!("nothing is known of '{other}'"))),
    }
}
