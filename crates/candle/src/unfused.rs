//! The operators as compositions of Candle's own that pass gradients: for devices that Elinvar does not reach.

use candle_core::{D, DType, Result, Tensor, bail};
use elinvar::kernels::attention::Scoring;

/// Computed in f32, rounded once.
fn widened(x: &Tensor, compute: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    compute(&x.to_dtype(DType::F32)?)?.to_dtype(x.dtype())
}

pub(crate) fn softmax(x: &Tensor, dim: usize, log: bool) -> Result<Tensor> {
    widened(x, |x| if log { candle_nn::ops::log_softmax(x, dim) } else { candle_nn::ops::softmax(x, dim) })
}

pub(crate) fn norm(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f32, centred: bool) -> Result<Tensor> {
    widened(x, |x| {
        let x = if centred { x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)? } else { x.clone() };
        let mut y = x.broadcast_div(&(x.sqr()?.mean_keepdim(D::Minus1)? + f64::from(eps))?.sqrt()?)?;
        if let Some(weight) = weight {
            y = y.broadcast_mul(&weight.to_dtype(DType::F32)?)?;
        }
        match bias {
            Some(bias) => y.broadcast_add(&bias.to_dtype(DType::F32)?),
            None => Ok(y),
        }
    })
}

/// `cos` and `sin` are `[T, d / 2]` or `[b, T, d / 2]`.
pub(crate) fn rope(x: &Tensor, cos: &Tensor, sin: &Tensor, interleaved: bool) -> Result<Tensor> {
    let (batch, heads, tokens, width) = x.dims4()?;
    let table = |table: &Tensor| -> Result<Tensor> {
        let table = table.narrow(D::Minus2, 0, tokens)?.to_dtype(DType::F32)?;
        if table.rank() == 3 { table.unsqueeze(1) } else { Ok(table) }
    };
    let (cos, sin) = (table(cos)?, table(sin)?);
    widened(x, |x| {
        let (u, v) = if interleaved {
            let pairs = x.reshape((batch, heads, tokens, width / 2, 2))?;
            (pairs.narrow(4, 0, 1)?.squeeze(4)?, pairs.narrow(4, 1, 1)?.squeeze(4)?)
        } else {
            (x.narrow(3, 0, width / 2)?, x.narrow(3, width / 2, width / 2)?)
        };
        let a = (u.broadcast_mul(&cos)? - v.broadcast_mul(&sin)?)?;
        let b = (v.broadcast_mul(&cos)? + u.broadcast_mul(&sin)?)?;
        if interleaved { Tensor::stack(&[a, b], 4)?.reshape((batch, heads, tokens, width)) } else { Tensor::cat(&[a, b], 3) }
    })
}

pub(crate) fn silu_mul(gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    widened(gate, |gate| gate.silu()? * up.to_dtype(DType::F32)?)
}

pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let flat = x.flatten_to(D::Minus2)?.to_dtype(DType::F32)?;
    let y = flat.matmul(&weight.to_dtype(DType::F32)?.t()?)?;
    let mut dims = x.dims().to_vec();
    if let Some(last) = dims.last_mut() {
        *last = weight.dim(0)?;
    }
    let y = y.reshape(dims)?;
    match bias {
        Some(bias) => y.broadcast_add(&bias.to_dtype(DType::F32)?),
        None => Ok(y),
    }
}

pub(crate) fn lora(x: &Tensor, [weight, a, b]: [&Tensor; 3], bias: Option<&Tensor>, scale: f32) -> Result<Tensor> {
    let adapted = (linear(&linear(x, a, None)?, b, None)? * f64::from(scale))?;
    (linear(x, weight, bias)? + adapted)?.to_dtype(x.dtype())
}

/// The mask: u8 (not zero attends), or a number that is added to the scores.
pub(crate) fn attention([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>, scoring: &Scoring) -> Result<Tensor> {
    let ((batch, heads, queries, width), (_, kv_heads, keys, _)) = (q.dims4()?, k.dims4()?);
    if kv_heads == 0 || heads % kv_heads != 0 {
        bail!("attention: q has {heads} heads, k has {kv_heads}: a multiple is expected");
    }
    let repeated = |x: &Tensor| -> Result<Tensor> {
        let (_, _, tokens, width) = x.dims4()?;
        let x = x.to_dtype(DType::F32)?.unsqueeze(2)?.broadcast_as((batch, kv_heads, heads / kv_heads, tokens, width))?;
        x.contiguous()?.reshape((batch, heads, tokens, width))
    };
    let scale = scoring.scale.unwrap_or_else(|| 1.0 / (width as f32).sqrt());
    let mut scores = (q.to_dtype(DType::F32)?.contiguous()?.matmul(&repeated(k)?.t()?)? * f64::from(scale))?;
    if scoring.softcap > 0.0 {
        let cap = f64::from(scoring.softcap);
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    let far = i64::MAX / 4;
    let bound = |window: Option<u64>| window.map_or(far, |window| i64::try_from(window).unwrap_or(far).min(far));
    let (left, right) = (bound(scoring.left_window), if scoring.causal { 0 } else { bound(scoring.right_window) });
    let allowed: Vec<f32> = (0..queries as i64)
        .flat_map(|query| {
            let at = query + scoring.offset;
            (0..keys as i64).map(move |key| if key >= at - left && key <= at + right { 0.0 } else { f32::NEG_INFINITY })
        })
        .collect();
    let mut added = Tensor::from_vec(allowed, (1, 1, queries, keys), q.device())?;
    if let Some(mask) = mask {
        let mask = match mask.dtype() {
            DType::U8 => {
                let zero = Tensor::zeros(mask.shape(), DType::F32, mask.device())?;
                mask.where_cond(&zero, &(zero.clone() + f64::NEG_INFINITY)?)?
            }
            _ => mask.to_dtype(DType::F32)?,
        };
        added = added.broadcast_add(&mask)?;
    }
    let scores = scores.broadcast_add(&added)?;
    // A query that attends no key gives zeros.
    let most = scores.max_keepdim(D::Minus1)?.detach().clamp(f32::MIN, f32::MAX)?;
    let weights = scores.broadcast_sub(&most)?.exp()?;
    let sums = weights.sum_keepdim(D::Minus1)?.clamp(f32::MIN_POSITIVE, f32::MAX)?;
    weights.broadcast_div(&sums)?.matmul(&repeated(v)?)?.to_dtype(q.dtype())
}

/// The mean over the rows of `logits [rows, classes]`.
pub(crate) fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let classes = logits.dim(D::Minus1)?;
    candle_nn::loss::cross_entropy(&logits.to_dtype(DType::F32)?.reshape(((), classes))?, &targets.flatten_all()?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{Ops, fallback};

    fn tensor(dims: &[usize], step: f32) -> Tensor {
        let values = (0..dims.iter().product::<usize>()).map(|i| (i as f32 * step).sin()).collect();
        Tensor::from_vec(values, dims, &Device::Cpu).unwrap()
    }

    #[test]
    fn what_stands_for_the_operators_gives_the_same() {
        let ops = Ops::shared().unwrap();
        let (x, weight, bias) = (tensor(&[2, 3, 4, 6], 0.7), tensor(&[6], 0.3), tensor(&[6], 0.9));
        let (cos, sin) = (tensor(&[5, 3], 1.0), tensor(&[5, 3], 2.0));
        let (k, truth) = (tensor(&[2, 1, 7, 6], 1.3), tensor(&[4, 7], 5.0).ge(-0.5f32).unwrap());
        let scoring = Scoring { causal: true, left_window: Some(2), softcap: 2.0, offset: -1, ..Default::default() };
        let (a, b, base) = (tensor(&[2, 6], 0.2), tensor(&[5, 2], 0.4), tensor(&[5, 6], 0.6));
        let classes = Tensor::new(&[[[3u32, 0, 5, 1], [2, 2, 4, 0], [1, 5, 5, 3]]], &Device::Cpu).unwrap();
        let logits = tensor(&[1, 3, 4, 6], 2.2);
        let n = tensor(&[5], 1.9);
        let pairs = [
            (ops.softmax(&x, 1), softmax(&x, 1, false)),
            (ops.log_softmax(&x, 3), softmax(&x, 3, true)),
            (ops.rms_norm(&x, &weight, 0.1), norm(&x, Some(&weight), None, 0.1, false)),
            (ops.layer_norm(&x, &weight, Some(&bias), 0.1), norm(&x, Some(&weight), Some(&bias), 0.1, true)),
            (ops.rope(&x, &cos, &sin), rope(&x, &cos, &sin, false)),
            (ops.rope_i(&x, &cos, &sin), rope(&x, &cos, &sin, true)),
            (ops.silu_mul(&x, &x), silu_mul(&x, &x)),
            (ops.lora_forward(&x, &base, &a, &b, Some(&n), 0.5), lora(&x, [&base, &a, &b], Some(&n), 0.5)),
            (ops.attention(&x, &k, &k, Some(&truth), &scoring), attention([&x, &k, &k], Some(&truth), &scoring)),
            (ops.cross_entropy(&logits, &classes), cross_entropy(&logits, &classes)),
        ];
        for (index, (fused, unfused)) in pairs.into_iter().enumerate() {
            let (fused, unfused) = (fused.unwrap(), unfused.unwrap());
            assert_eq!(fused.dims(), unfused.dims(), "{index}");
            let far = (fused - unfused).unwrap().abs().unwrap().flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
            assert!(far < 1e-5, "{index}: {far}");
        }
        fallback::count("softmax", &Device::Cpu);
        assert_eq!(crate::fallbacks(), 1);
    }
}
