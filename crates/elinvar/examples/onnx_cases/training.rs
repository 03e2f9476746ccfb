//! ONNX losses, optimisers, norms and activations with parameters, in terms of the methods of `Tensor`.

use elinvar::{Adam, DType, Error, LossReduction, Momentum, Result, Tensor};

use crate::adapter::Context;

pub(crate) fn one_hot(c: &Context<'_>) -> Result<Tensor> {
    let depth = c.ints(1, "")?.and_then(|depth| depth.first().copied()).unwrap_or(0);
    c.input(0)?.one_hot(depth.max(0) as usize, c.int("axis", -1) as isize, c.input(2)?)
}

/// `LpNormalization` of zeros is zeros.
pub(crate) fn normalize(c: &Context<'_>) -> Result<Tensor> {
    c.input(0)?.normalize(c.int("p", 2) as u32, c.int("axis", -1) as isize, f32::MIN_POSITIVE)
}

pub(crate) fn norm(c: &Context<'_>) -> Result<Tensor> {
    let (x, epsilon) = (c.input(0)?, c.float("epsilon", 1e-5) as f32);
    match c.attribute("num_groups") {
        Some(_) => x.group_norm(c.int("num_groups", 0) as usize, c.optional(1), c.optional(2), epsilon),
        None => x.instance_norm(c.optional(1), c.optional(2), epsilon),
    }
}

/// A loss, and the logarithms of the probabilities if they are asked for.
pub(crate) fn loss(c: &Context<'_>, of_logits: bool, outputs: usize) -> Result<Vec<Option<Tensor>>> {
    let (x, targets, weight) = (c.input(0)?, c.input(1)?, c.optional(2));
    let ignore_index = c.attribute("ignore_index").map(|_| c.int("ignore_index", 0) as isize);
    let reduction = match c.attribute("reduction").as_deref() {
        None | Some("mean") => LossReduction::Mean,
        Some("sum") => LossReduction::Sum,
        Some("none") => LossReduction::None,
        Some(other) => return Err(Error::invalid_data(format!("reduction '{other}'"))),
    };
    let loss = if of_logits { Tensor::cross_entropy_loss } else { Tensor::nll_loss };
    let mut results = vec![Some(loss(x, targets, weight, ignore_index, reduction)?)];
    if outputs > 1 {
        results.push(Some(x.log_softmax(1)?));
    }
    Ok(results)
}

/// Inputs are the rate, the step, and then as many tensors of each kind as there are parameters.
pub(crate) fn optimizer(c: &Context<'_>, inputs: usize) -> Result<Vec<Option<Tensor>>> {
    let rate = c.input(0)?.cast(DType::F32)?.item::<f32>()?.into();
    let step = c.input(1)?.cast(DType::U64)?.item::<u64>()?;
    let is_adam = c.attribute("mode").is_none();
    let kinds = if is_adam { 4 } else { 3 };
    let count = (inputs - 2) / kinds;
    let mut results: Vec<Vec<Tensor>> = vec![Vec::new(); kinds - 1];
    for at in 0..count {
        let of = |kind: usize| c.input(2 + kind * count + at);
        let (x, gradient, mean) = (of(0)?, of(1)?, of(2)?);
        let (first, weight_decay) = (c.float("alpha", 0.9), c.float("norm_coefficient", 0.0));
        let next: Vec<Tensor> = if is_adam {
            let [epsilon, decay_after] = [c.float("epsilon", 1e-6), c.float("norm_coefficient_post", 0.0)];
            let settings = Adam { betas: [first, c.float("beta", 0.999)], epsilon, weight_decay, decay_after };
            x.adam(gradient, [mean, of(3)?], rate, step, &settings)?.into()
        } else {
            let nesterov = c.attribute("mode").as_deref() == Some("nesterov");
            let settings = Momentum { momentum: first, scale: c.float("beta", 1.0), weight_decay, nesterov };
            x.momentum(gradient, mean, rate, step, &settings)?.into()
        };
        results.iter_mut().zip(next).for_each(|(results, next)| results.push(next));
    }
    Ok(results.concat().into_iter().map(Some).collect())
}

/// Activations whose parameters the library's do not have.
pub(crate) fn activation(c: &Context<'_>, op: &str) -> Result<Tensor> {
    let x = c.input(0)?;
    let number = |value: f64| c.executor.full(x.dtype(), &[], value);
    let where_above = |a: &Tensor, b: &Tensor, then: &Tensor, otherwise: &Tensor| a.gt(b)?.select(then, otherwise);
    match op {
        "Selu" if c.attribute("alpha").or(c.attribute("gamma")).is_none() => x.selu(),
        "Selu" => x.elu(c.float("alpha", 1.673_263_2) as f32)? * c.float("gamma", 1.050_701),
        "HardSigmoid" => {
            let (alpha, beta) = (c.float("alpha", 0.2), c.float("beta", 0.5));
            let shifted = if beta == 0.5 { x.clone() } else { (x + (beta - 0.5) / alpha)? };
            shifted.hard_sigmoid(alpha as f32)
        }
        "Celu" => {
            let alpha = c.float("alpha", 1.0);
            (x / alpha)?.elu(1.0)? * alpha
        }
        "ThresholdedRelu" => where_above(x, &number(c.float("alpha", 1.0))?, x, &number(0.0)?),
        "Shrink" => {
            let (bound, bias) = (number(c.float("lambd", 0.5))?, number(c.float("bias", 0.0))?);
            let above = where_above(x, &bound, &x.sub(&bias)?, &number(0.0)?)?;
            where_above(&bound.neg()?, x, &x.add(&bias)?, &above)
        }
        _ => Err(Error::invalid_data(format!("'{op}' is no activation"))),
    }
}
