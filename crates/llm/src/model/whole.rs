//! The forward pass over whole texts, for training: without a cache, and on the tape of what requires a gradient.

use elinvar::{DType, Error, Gradients, Result, Tensor};

use super::{Model, attention::Context};

/// Texts of one length, one after the other, as a step of training sees them.
pub(crate) struct Texts {
    /// Of each text's tokens.
    positions: Tensor,
    /// Of each layer.
    contexts: Vec<Context>,
}

/// A target that does not count.
pub(crate) const IGNORED: i32 = -100;

impl Model {
    /// `count` texts of `length` tokens each.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn texts(&self, count: usize, length: usize) -> Result<Texts> {
        let frequencies = self.frequencies(length)?;
        let contexts = frequencies.into_iter().map(|frequencies| Context { cache: None, texts: count, frequencies }).collect();
        Ok(Texts { positions: self.executor.arange(DType::I32, 0, length as i64, 1)?, contexts })
    }

    /// The sum of the cross-entropies of `targets [texts · length]` after `tokens`, both i32: those that are not [`IGNORED`] count.
    ///
    /// # Errors
    /// Out of memory, or a failed device.
    pub(crate) fn loss(&self, tokens: &Tensor, targets: &Tensor, texts: &Texts) -> Result<Tensor> {
        let mut stream = self.embed(tokens)?;
        for (layer, context) in self.layers.iter().zip(&texts.contexts) {
            stream = layer.forward(&stream, &texts.positions, context)?;
        }
        self.loss_of(&stream, targets)
    }

    fn loss_of(&self, stream: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.project(stream)?.cross_entropy(targets, Some(IGNORED as isize))?.sum(&[], false)
    }

    /// That loss times `factor`, and the gradients of `leaves` by it. With `again` the layers are computed again on the way back, so that one layer's
    /// intermediate results are kept at a time.
    ///
    /// # Errors
    /// A leaf that the loss does not depend on, out of memory, or a failed device.
    pub(crate) fn gradients(
        &self,
        [tokens, targets, factor]: [&Tensor; 3],
        texts: &Texts,
        leaves: &[Tensor],
        again: bool,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        if !again {
            let loss = self.loss(tokens, targets, texts)?.mul(factor)?;
            let gradients = loss.backward()?;
            let found = leaves.iter().map(|leaf| gradients.of(leaf).cloned()).collect::<Result<_>>()?;
            return Ok((loss.detach(), found));
        }
        // The streams between the layers, each of them by itself.
        let mut streams = vec![self.embed(tokens)?];
        for (layer, context) in self.layers.iter().zip(&texts.contexts) {
            let last = streams.last().map_or_else(|| self.embed(tokens), |stream| Ok(stream.clone()))?;
            let next = layer.forward(&last, &texts.positions, context)?;
            let is_tracked = next.is_tracked() || last.is_tracked();
            let next = next.detach();
            streams.push(if is_tracked { next.requires_grad()? } else { next });
        }
        let mut found = Found(vec![None; leaves.len()]);
        let Some(last) = streams.pop() else { return Err(Error::internal("a model without a stream")) };
        let loss = self.loss_of(&last, targets)?.mul(factor)?;
        let gradients = loss.backward()?;
        found.add(leaves, &gradients)?;
        let mut upstream = gradients.get(&last).cloned();
        for ((layer, context), stream) in self.layers.iter().zip(&texts.contexts).zip(&streams).rev() {
            let Some(above) = upstream else { break };
            let gradients = layer.forward(stream, &texts.positions, context)?.backward_from(&above)?;
            found.add(leaves, &gradients)?;
            upstream = gradients.get(stream).cloned();
        }
        Ok((loss.detach(), found.all(leaves)?))
    }
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
