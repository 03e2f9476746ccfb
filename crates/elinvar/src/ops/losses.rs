//! Losses over the classes on axis 1, as in PyTorch and ONNX.

use elinvar_core::{DType, Error, Result};
use elinvar_kernels::cross_entropy::LossReduction;

use super::recorded;
use crate::tensor::Tensor;

/// Which places count, and how much.
struct Places {
    /// What the loss is of.
    x: Tensor,
    /// Their classes, as they are given.
    targets: Tensor,
    /// Their classes, 0 where a place does not count, and outside the classes where the target is negative.
    classes: Tensor,
    /// Where a place does not count; none if all do.
    ignored: Option<Tensor>,
    /// Of each place, f32; none if all have 1.
    weights: Option<Tensor>,
}

impl Places {
    fn new(name: &str, x: &Tensor, targets: &Tensor, weight: Option<&Tensor>, ignore_index: Option<isize>) -> Result<Self> {
        let fail = |what: String| Err(Error::invalid_argument(format!("{name}: {what}, x has shape {}", x.shape())));
        let [batch, classes, ref rest @ ..] = x.shape()[..] else { return fail("expected x [batch, classes, …]".into()) };
        if targets.shape()[..] != [&[batch], rest].concat() {
            return fail(format!("targets have shape {}: expected that of x without its axis 1", targets.shape()));
        }
        if let Some(weight) = weight.filter(|weight| weight.shape()[..] != [classes]) {
            return fail(format!("weight has shape {}: expected [{classes}]", weight.shape()));
        }
        let on = recorded([Some(x), Some(targets), weight].into_iter().flatten());
        let (x, targets, weight) = (on(x)?, on(targets)?, weight.map(&on).transpose()?);
        let ignored = ignore_index.map(|index| targets.eq(&targets.number((index as i64).into())?)).transpose()?;
        // Gathering counts negative indices from the end; here they are no classes.
        let zero = targets.number(0.into())?;
        let found = targets.lt(&zero)?.select(&targets.number((classes as i64).into())?, &targets)?;
        let found = ignored.as_ref().map_or_else(|| Ok(found.clone()), |ignored| ignored.select(&zero, &found))?;
        let weights = weight.map(|weight| weight.cast(DType::F32)?.gather(&found, 0)).transpose()?;
        Ok(Self { x, targets, classes: found, ignored, weights })
    }

    /// `x`, f32, or 0 where a place does not count.
    fn counted(&self, x: Tensor) -> Result<Tensor> {
        self.ignored.as_ref().map_or_else(|| Ok(x.clone()), |ignored| ignored.select(&x.number(0.into())?, &x))
    }

    /// What becomes of losses, f32, in a type.
    fn reduce(&self, losses: Tensor, reduction: LossReduction, dtype: DType) -> Result<Tensor> {
        let ones = |x: &Tensor| x.executor().ones(DType::F32, x.shape());
        let weighted = self.weights.as_ref().map_or_else(|| Ok(losses.clone()), |weights| losses.mul(weights))?;
        let weighted = self.counted(weighted)?;
        let result = match reduction {
            LossReduction::None => weighted,
            LossReduction::Sum => weighted.sum(&[], false)?,
            LossReduction::Mean if self.ignored.is_none() && self.weights.is_none() => weighted.mean(&[], false)?,
            LossReduction::Mean => {
                let weights = self.weights.as_ref().map_or_else(|| ones(&weighted), |weights| Ok(weights.clone()))?;
                weighted.sum(&[], false)?.div(&self.counted(weights)?.sum(&[], false)?)?
            }
        };
        result.cast(dtype)
    }
}

impl Tensor {
    /// The negative log likelihood: of logarithms of probabilities `[batch, classes, …]`, minus those of the classes in `targets [batch, …]` (i32, i64 or
    /// u32), times the `weight [classes]` of each class. Places whose target is `ignore_index` have none. Computed in f32; the result has this type.
    /// See ONNX `NegativeLogLikelihoodLoss`; `torch.nn.functional.nll_loss`.
    ///
    /// ```
    /// use elinvar::{Executor, LossReduction};
    ///
    /// let executor = Executor::new_auto()?;
    /// let (x, targets) = (executor.tensor(&[2, 2], &[-1f32, -2.0, -3.0, -4.0])?, executor.tensor(&[2], &[1i32, 0])?);
    /// assert_eq!(x.nll_loss(&targets, None, None, LossReduction::None)?.to_vec::<f32>()?, [2.0, 3.0]);
    /// let weight = executor.tensor(&[2], &[1f32, 3.0])?;
    /// assert_eq!(x.nll_loss(&targets, Some(&weight), None, LossReduction::Mean)?.item::<f32>()?, 2.25);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// Not a floating-point tensor, shapes that do not fit, targets of another type, or an `ignore_index` that their type does not have. A target that is
    /// no class is reported when something is read.
    pub fn nll_loss(&self, targets: &Tensor, weight: Option<&Tensor>, ignore_index: Option<isize>, reduction: LossReduction) -> Result<Tensor> {
        let places = Places::new("nll_loss", self, targets, weight, ignore_index)?;
        let chosen = places.x.take_along_axis(&places.classes.unsqueeze(1)?, 1)?.squeeze(1)?;
        places.reduce(chosen.cast(DType::F32)?.neg()?, reduction, self.dtype())
    }

    /// The same of logits `[batch, classes, …]`: [`Tensor::nll_loss`] of their [`log_softmax`](Tensor::log_softmax) along axis 1, which is not in memory.
    /// See ONNX `SoftmaxCrossEntropyLoss`; `torch.nn.functional.cross_entropy`.
    ///
    /// ```
    /// use elinvar::{Executor, LossReduction};
    ///
    /// let executor = Executor::new_auto()?;
    /// let (x, targets) = (executor.tensor(&[2, 2], &[0f32, 0.0, 9.0, 9.0])?, executor.tensor(&[2], &[1i32, -100])?);
    /// assert_eq!(x.cross_entropy_loss(&targets, None, Some(-100), LossReduction::Mean)?.item::<f32>()?, 0.6931472);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::nll_loss`].
    pub fn cross_entropy_loss(
        &self,
        targets: &Tensor,
        weight: Option<&Tensor>,
        ignore_index: Option<isize>,
        reduction: LossReduction,
    ) -> Result<Tensor> {
        let places = Places::new("cross_entropy_loss", self, targets, weight, ignore_index)?;
        let rank = self.shape().rank();
        let classes_last: Vec<_> = std::iter::once(0).chain(2..rank).chain([1]).collect();
        let targets =
            places.ignored.as_ref().map_or_else(|| Ok(places.classes.clone()), |ignored| ignored.select(&places.targets, &places.classes))?;
        let losses = places.x.permute(&classes_last)?.cross_entropy(&targets, ignore_index)?;
        places.reduce(losses, reduction, self.dtype())
    }
}
