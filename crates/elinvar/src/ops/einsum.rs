//! Einstein sums, by matrix products.

use elinvar_core::{Error, Result};

use super::recorded;
use crate::tensor::Tensor;

/// What an axis is called: a letter's code, or for the axes of an ellipsis their distance from its end.
type Label = usize;

/// A tensor, and what each of its axes is called.
#[derive(Clone)]
struct Labelled {
    tensor: Tensor,
    labels: Vec<Label>,
}

/// The labels of a term's axes, if it has `rank` of them; of the result, `ellipsis` axes stand for one.
fn labels(term: &str, ellipsis: impl FnOnce(usize) -> Option<usize>) -> Option<Vec<Label>> {
    let term: String = term.chars().filter(|c| *c != ' ').collect();
    let (before, after) = term.split_once("...").map_or((&term[..], None), |(before, after)| (before, Some(after)));
    let letters = |text: &str| text.bytes().map(|letter| letter.is_ascii_alphabetic().then_some(Label::from(letter))).collect::<Option<Vec<_>>>();
    let (mut all, last) = (letters(before)?, letters(after.unwrap_or_default())?);
    let covered = ellipsis(all.len() + last.len())?;
    if after.is_some() {
        all.extend((0..covered).rev());
    }
    all.extend(last);
    (after.is_some() || covered == 0).then_some(all)
}

impl Labelled {
    fn axis(&self, label: Label) -> Option<usize> {
        self.labels.iter().position(|own| *own == label)
    }

    /// Axes of one label become their diagonal.
    fn diagonal(mut self) -> Result<Self> {
        while let Some(at) = (0..self.labels.len()).find(|&at| self.labels[..at].contains(&self.labels[at])) {
            let label = self.labels[at];
            let others: Vec<_> = (0..self.labels.len()).filter(|&axis| axis != at && Some(axis) != self.axis(label)).collect();
            let pair = [self.axis(label).unwrap_or(at), at];
            let extent = self.tensor.shape()[at];
            let moved = self.tensor.permute(&[&others[..], &pair].concat())?;
            let flat = moved.reshape(&[&moved.shape()[..others.len()], &[extent * extent]].concat())?;
            let labels = others.iter().map(|&axis| self.labels[axis]).chain([label]).collect();
            self = Self { tensor: flat.slice(-1, 0, extent, extent as isize + 1)?, labels };
        }
        Ok(self)
    }

    /// Summed over what is not `kept`.
    fn sum_to(self, kept: impl Fn(Label) -> bool) -> Result<Self> {
        let axes: Vec<_> = (0..self.labels.len()).filter(|&axis| !kept(self.labels[axis])).map(|axis| axis as isize).collect();
        if axes.is_empty() {
            return Ok(self);
        }
        let labels = self.labels.into_iter().filter(|label| kept(*label)).collect();
        Ok(Self { tensor: self.tensor.sum(&axes, false)?, labels })
    }

    /// The axes in this order, each group of them as one.
    fn grouped(&self, groups: &[&[Label]]) -> Result<Tensor> {
        let axes: Vec<_> = groups.concat().into_iter().filter_map(|label| self.axis(label)).collect();
        let extents: Vec<_> = groups.iter().map(|group| group.iter().map(|label| self.extent(*label)).product()).collect();
        self.tensor.permute(&axes)?.reshape(&extents)
    }

    fn extent(&self, label: Label) -> usize {
        self.axis(label).map_or(1, |axis| self.tensor.shape()[axis])
    }

    /// The product with another, summed over the labels that both have and that are not `kept`.
    fn contract(self, other: Self, kept: impl Fn(Label) -> bool) -> Result<Self> {
        let (a, b) = (
            self.clone().sum_to(|label| kept(label) || other.labels.contains(&label))?,
            other.sum_to(|label| kept(label) || self.labels.contains(&label))?,
        );
        let (both, left): (Vec<_>, Vec<_>) = a.labels.iter().partition(|label| b.labels.contains(label));
        let right: Vec<_> = b.labels.iter().copied().filter(|label| !a.labels.contains(label)).collect();
        let (batch, summed): (Vec<_>, Vec<_>) = both.iter().partition(|label| kept(**label));
        let labels = [&batch[..], &left, &right].concat();
        let extents: Vec<_> = labels.iter().map(|label| a.extent(*label).max(b.extent(*label))).collect();
        let product = if summed.is_empty() {
            a.grouped(&[&batch, &left, &[]])?.mul(&b.grouped(&[&batch, &[], &right])?)?
        } else if a.tensor.dtype().is_float() {
            a.grouped(&[&batch, &left, &summed])?.matmul(&b.grouped(&[&batch, &summed, &right])?)?
        } else {
            a.grouped(&[&batch, &left, &[], &summed])?.mul(&b.grouped(&[&batch, &[], &right, &summed])?)?.sum(&[-1], false)?
        };
        Ok(Self { tensor: product.reshape(&extents)?, labels })
    }
}

impl Tensor {
    /// The Einstein sum: `ij,jk->ik` is the matrix product. Each operand has a term with a letter for each axis, an ellipsis for any number of them;
    /// the result is summed over letters that it does not have. A letter twice in a term takes the diagonal. Without `->` the result has the ellipsis and
    /// the letters that occur once, in the order of the alphabet. Axes of extent one are repeated.
    ///
    /// Operands are multiplied from the left to the right, each product rounded to their type: by [`Tensor::matmul`] where floating-point numbers are
    /// summed. See ONNX `Einsum`; `numpy.einsum`.
    ///
    /// ```
    /// use elinvar::{Executor, Tensor};
    ///
    /// let executor = Executor::new_auto()?;
    /// let (x, y) = (executor.tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0])?, executor.tensor(&[2], &[10f32, 1.0])?);
    /// assert_eq!(Tensor::einsum("ij,j->i", &[&x, &y])?.to_vec::<f32>()?, [12.0, 34.0]);
    /// assert_eq!(Tensor::einsum("ii", &[&x])?.item::<f32>()?, 5.0);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// An equation that does not fit the operands, extents of one letter that differ, or types that differ.
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        let fail = |why: String| Error::invalid_argument(format!("einsum '{equation}': {why}"));
        let (inputs, output) = equation.split_once("->").map_or((equation, None), |(inputs, output)| (inputs, Some(output)));
        let terms: Vec<_> = inputs.split(',').collect();
        if terms.len() != operands.len() {
            return Err(fail(format!("{} terms and {} operands", terms.len(), operands.len())));
        }
        let on = recorded(operands.iter().copied());
        let mut factors = Vec::new();
        for (term, tensor) in terms.iter().zip(operands) {
            let named = labels(term, |letters| tensor.shape().rank().checked_sub(letters));
            let labels =
                named.ok_or_else(|| fail(format!("'{term}' is no term for shape {}: a letter for each axis, or ... for several", tensor.shape())))?;
            factors.push(Labelled { tensor: on(tensor)?, labels });
        }
        let count = |label: Label| factors.iter().flat_map(|factor| &factor.labels).filter(|own| **own == label).count();
        let covered = (0..).take_while(|&label| count(label) > 0).count();
        let result = match output {
            Some(term) => {
                labels(term, |_| Some(if term.contains("...") { covered } else { 0 })).ok_or_else(|| fail(format!("'{term}' is no result")))?
            }
            None => (0..covered).rev().chain((usize::from(b'A')..=usize::from(b'z')).filter(|&letter| count(letter) == 1)).collect(),
        };
        if let Some(at) = (0..result.len()).find(|&at| count(result[at]) == 0 || result[..at].contains(&result[at])) {
            return Err(fail(format!("axis {at} of the result is in no term, or twice in the result")));
        }
        // The extent of each label, where it is not one.
        let mut extents = [1; 128];
        for factor in &factors {
            for (&label, &extent) in factor.labels.iter().zip(&factor.tensor.shape()[..]).filter(|(_, extent)| **extent != 1) {
                if ![1, extent].contains(&extents[label]) {
                    return Err(fail(format!("axes of one letter have extents {} and {extent}", extents[label])));
                }
                extents[label] = extent;
            }
        }
        let rest = factors.into_iter().map(|factor| {
            // What is repeated along an axis is the same without it.
            let repeated = |at: usize| factor.tensor.shape()[at] == 1 && extents[factor.labels[at]] != 1;
            let kept: Vec<_> = (0..factor.labels.len()).filter(|&at| !repeated(at)).collect();
            let dims: Vec<_> = kept.iter().map(|&at| factor.tensor.shape()[at]).collect();
            Labelled { tensor: factor.tensor.reshape(&dims)?, labels: kept.iter().map(|&at| factor.labels[at]).collect() }.diagonal()
        });
        let rest = rest.collect::<Result<Vec<_>>>()?;
        let [first, others @ ..] = &rest[..] else { return Err(fail("no operands".into())) };
        let mut product = first.clone();
        for (at, other) in others.iter().enumerate() {
            let later = |label: Label| result.contains(&label) || others[at + 1..].iter().any(|factor| factor.labels.contains(&label));
            product = product.contract(other.clone(), later)?;
        }
        let product = product.sum_to(|label| result.contains(&label))?;
        let axes: Vec<_> = result.iter().filter_map(|label| product.axis(*label)).collect();
        product.tensor.permute(&axes)
    }
}
