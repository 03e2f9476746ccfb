//! The forward pass over whole texts, for training: without a cache, and on the tape of what requires a gradient.

use std::{ops::Range, sync::Arc};

use elinvar::{DType, Error, Gradients, Precision, Result, Tensor};

use super::{
    Model,
    attention::{Context, Kept},
    memo::{Checkpointing, Memo},
    packed::Packing,
};

/// Texts of one length, one after the other, or packed, as a step of training sees them.
pub(crate) struct Texts {
    /// Of each text's tokens.
    positions: Tensor,
    packing: Option<Arc<Packing>>,
    /// Of each layer.
    contexts: Vec<Context>,
}

impl Texts {
    /// Numbers of the tokens, `[rows]`, as those of texts of one length, `[texts · length]`.
    pub(crate) fn apart(&self, rows: &Tensor) -> Result<Tensor> {
        self.packing.as_ref().map_or_else(|| Ok(rows.clone()), |packing| packing.apart(rows))
    }

    /// The same the other way round.
    pub(crate) fn together(&self, places: &Tensor) -> Result<Tensor> {
        self.packing.as_ref().map_or_else(|| Ok(places.clone()), |packing| packing.together(places))
    }
}

/// What is made of the cross-entropies of tokens.
pub(crate) enum Objective<'a> {
    /// Their sum times this.
    Sum(&'a Tensor),
    /// What this gives of all of them, with its gradient by each.
    Of(&'a dyn Fn(&Tensor) -> Result<(Tensor, Tensor)>),
}

/// A target that does not count.
pub(crate) const IGNORED: i32 = -100;

/// Logits in memory together, at most, unless one row has more: 64 MiB of f32 for a processor's cache. A loss is the sum of those of the parts, so strict
/// precision has the same everywhere; in fast precision a GPU, which reads the output projection once
/// for each part, has 512 MiB.
const LOGITS: usize = 1 << 24;
const GPU_LOGITS: usize = 1 << 27;

impl Model {
    /// `count` texts of `length` tokens each; where they are packed, of at most as many.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn texts(&self, count: usize, length: usize, packing: Option<Packing>) -> Result<Texts> {
        let packing = packing.map(Arc::new);
        let context = |frequencies| Context { kept: Kept::Nothing { texts: count, packing: packing.clone() }, memo: Memo::default(), frequencies };
        let contexts = self.frequencies(length)?.into_iter().map(context).collect();
        Ok(Texts { positions: self.executor.arange(DType::I32, 0, length as i64, 1)?, packing, contexts })
    }

    /// The sum of the cross-entropies of `targets`, a row for each token, after `tokens`, both i32: those that are not [`IGNORED`] count.
    ///
    /// # Errors
    /// Out of memory, or a failed device.
    pub(crate) fn loss(&self, tokens: &Tensor, targets: &Tensor, texts: &Texts) -> Result<Tensor> {
        let stream = self.stream(tokens, texts)?;
        let losses = self.parts(&stream).map(|rows| self.losses_of(&stream.i(rows.clone())?, &targets.i(rows)?)?.sum(&[], false));
        sum(losses)
    }

    /// Those cross-entropies, off the tape: zero where a target does not count.
    ///
    /// # Errors
    /// Out of memory, or a failed device.
    pub(crate) fn losses(&self, tokens: &Tensor, targets: &Tensor, texts: &Texts) -> Result<Tensor> {
        self.losses_after(&self.stream(tokens, texts)?, targets)
    }

    fn losses_after(&self, stream: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let stream = stream.detach();
        let parts =
            self.parts(&stream).map(|rows| Ok(self.starting_at(rows.start)?.losses_of(&stream.i(rows.clone())?, &targets.i(rows)?)?.detach()));
        match &parts.collect::<Result<Vec<_>>>()?[..] {
            [whole] => Ok(whole.clone()),
            parts => Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0),
        }
    }

    fn stream(&self, tokens: &Tensor, texts: &Texts) -> Result<Tensor> {
        let layers = self.layers.iter().zip(&texts.contexts);
        layers.fold(self.begin(tokens), |stream, (layer, context)| layer.forward(&stream?, &texts.positions, context))
    }

    /// The stream before the first layer, with the precision of what follows. In fast precision a GPU computes in bf16 if that is the weights' type: mixed
    /// precision, in which what is trained, its gradient and sums are f32. f16 has too small a range for gradients.
    fn begin(&self, tokens: &Tensor) -> Result<Tensor> {
        let stream = self.embed(tokens)?.cast(self.stream_type())?;
        stream.on(&stream.executor().with_precision(self.whole_precision()))
    }

    /// The precision of whole texts: losses and what is trained by them are sums over tokens.
    fn whole_precision(&self) -> Precision {
        self.executor.precision().of_gradients()
    }

    /// The type of the stream between the layers.
    pub(crate) fn stream_type(&self) -> DType {
        if self.is_fast_gpu() && self.is_bf16() { DType::BF16 } else { DType::F32 }
    }

    /// Rows whose logits are in memory together, at most.
    pub(crate) fn rows_of_logits(&self) -> usize {
        (if self.is_fast_gpu() { GPU_LOGITS } else { LOGITS } / self.config.vocab_size).max(1)
    }

    fn is_fast_gpu(&self) -> bool {
        self.executor.properties().simd_width > 1 && self.whole_precision().is_fast()
    }

    /// Rows of the stream whose logits are in memory together: parts of about the same size.
    fn parts(&self, stream: &Tensor) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, most) = (stream.shape()[0], self.rows_of_logits());
        let part = rows.div_ceil(rows.div_ceil(most).max(1)).max(1);
        (0..rows).step_by(part).map(move |first| first..rows.min(first + part))
    }

    fn losses_of(&self, stream: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.project(stream)?.cross_entropy(targets, Some(IGNORED as isize))
    }

    /// The objective of those cross-entropies, and the gradients of `leaves` by it. Where layers are computed again on the way back, what is computed again of
    /// one is in memory at a time.
    ///
    /// # Errors
    /// A leaf that the loss does not depend on, out of memory, or a failed device.
    pub(crate) fn gradients(
        &self,
        [tokens, targets]: [&Tensor; 2],
        objective: &Objective<'_>,
        texts: &Texts,
        leaves: &[Tensor],
        checkpointing: Checkpointing,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let mut found = Found(vec![None; leaves.len()]);
        if checkpointing == Checkpointing::None {
            let last = self.stream(tokens, texts)?;
            let (loss, upstream) = self.head_gradients(&last, targets, objective, leaves, &mut found)?;
            if let Some(upstream) = upstream {
                found.add(leaves, &last.backward_from(&upstream)?)?;
            }
            return Ok((loss, found.all(leaves)?));
        }
        // The streams between the layers, each of them by itself.
        let mut streams = vec![self.begin(tokens)?];
        for (layer, context) in self.layers.iter().zip(&texts.contexts) {
            let last = streams.last().map_or_else(|| self.begin(tokens), |stream| Ok(stream.clone()))?;
            let forward = || layer.forward(&last, &texts.positions, context);
            let next = if checkpointing == Checkpointing::FeedForward { context.memo.keeping(forward) } else { forward() }?;
            let is_tracked = next.is_tracked() || last.is_tracked();
            let next = next.detach();
            streams.push(if is_tracked { next.requires_grad()? } else { next });
        }
        let Some(last) = streams.pop() else { return Err(Error::internal("a model without a stream")) };
        let (loss, mut upstream) = self.head_gradients(&last, targets, objective, leaves, &mut found)?;
        let mut next = last;
        for ((layer, context), stream) in self.layers.iter().zip(&texts.contexts).zip(streams.iter().cloned()).rev() {
            let Some(above) = upstream else { break };
            let again = context.memo.repeating(|| layer.forward(&stream, &texts.positions, context))?;
            let gradients = next.in_place_of(&again)?.backward_from(&above)?;
            found.add(leaves, &gradients)?;
            upstream = gradients.get(&stream).cloned();
            next = stream;
        }
        Ok((loss, found.all(leaves)?))
    }

    /// The objective of the last stream, and the stream's gradient if it is on the tape: part by part, so that the logits of one part are in
    /// memory at a time.
    fn head_gradients(
        &self,
        stream: &Tensor,
        targets: &Tensor,
        objective: &Objective<'_>,
        leaves: &[Tensor],
        found: &mut Found,
    ) -> Result<(Tensor, Option<Tensor>)> {
        // Where all logits are one part, that part's losses are all of them.
        let is_one_part = self.parts(stream).count() == 1;
        let mut whole = match objective {
            Objective::Of(objective) if !is_one_part => Some(objective(&self.losses_after(stream, targets)?)?),
            Objective::Of(_) | Objective::Sum(_) => None,
        };
        let (mut losses, mut upstream) = (Vec::new(), Vec::new());
        for rows in self.parts(stream) {
            let part = stream.i(rows.clone())?.detach();
            let part = if stream.is_tracked() { part.requires_grad()? } else { part };
            let part_losses = self.starting_at(rows.start)?.losses_of(&part, &targets.i(rows.clone())?)?;
            let loss = match objective {
                Objective::Sum(factor) => part_losses.sum(&[], false)?.mul(factor)?,
                Objective::Of(objective) => {
                    let (_, slopes) = match &whole {
                        Some(whole) => whole,
                        None => whole.insert(objective(&part_losses.detach())?),
                    };
                    part_losses.mul(&slopes.i(rows)?)?.sum(&[], false)?
                }
            };
            let gradients = loss.backward()?;
            found.add(leaves, &gradients)?;
            upstream.extend(gradients.get(&part).cloned());
            losses.push(Ok(loss.detach()));
        }
        let upstream = match &upstream[..] {
            [] => None,
            [whole] => Some(whole.clone()),
            parts => Some(Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0)?),
        };
        Ok((whole.map_or_else(|| sum(losses), |(loss, _)| Ok(loss))?, upstream))
    }
}

/// The sum of losses, in their order.
fn sum(losses: impl IntoIterator<Item = Result<Tensor>>) -> Result<Tensor> {
    let sum = losses.into_iter().reduce(|sum, loss| sum?.add(&loss?));
    sum.unwrap_or_else(|| Err(Error::internal("a loss of no tokens")))
}

/// Gradients of leaves, as they come.
struct Found(Vec<Option<Tensor>>);

impl Found {
    fn add(&mut self, leaves: &[Tensor], gradients: &Gradients) -> Result<()> {
        for (sum, leaf) in self.0.iter_mut().zip(leaves) {
            if let Some(more) = gradients.get(leaf) {
                *sum = Some(match sum.take() {
                    Some(sum) => sum.add(more)?,
                    None => more.clone(),
                });
            }
        }
        Ok(())
    }

    fn all(self, leaves: &[Tensor]) -> Result<Vec<Tensor>> {
        let missing = |leaf: &Tensor| Error::internal(format!("the loss does not depend on {leaf:?}"));
        self.0.into_iter().zip(leaves).map(|(found, leaf)| found.ok_or_else(|| missing(leaf))).collect()
    }
}
