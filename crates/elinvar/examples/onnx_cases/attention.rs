//! ONNX `Attention`, versions 23 to 25, in terms of `attention` and `attention_scores`.

use elinvar::{DType, Error, Result, Tensor};

use crate::adapter::Context;

pub(crate) fn run(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let flat = c.input(0)?.shape().rank() == 3;
    let (query_heads, kv_heads) = (c.int("q_num_heads", 0) as usize, c.int("kv_num_heads", 0) as usize);
    let q = heads_first(c.input(0)?, query_heads)?;
    let k = with_past(c.optional(4), heads_first(c.input(1)?, kv_heads)?)?;
    let v = with_past(c.optional(5), heads_first(c.input(2)?, kv_heads)?)?;
    let past = c.optional(4).map_or(0, |t| t.shape()[2]);
    let (batch, queries, keys) = (q.shape()[0], q.shape()[2], k.shape()[2]);

    let lengths = c.ints(6, "")?;
    let mask = c.optional(3).map(|mask| padded(c, mask, keys)).transpose()?;
    let positions = match &lengths {
        Some(lengths) if c.optional(4).is_none() => {
            let at = lengths.iter().flat_map(|&n| (0..queries as i64).map(move |i| (n - queries as i64 + i) as i32));
            Some(c.executor.tensor(&[batch, queries], &at.collect::<Vec<_>>())?)
        }
        _ => None,
    };
    let lengths = lengths.map(|l| c.executor.tensor(&[batch], &l.iter().map(|&n| n as i32).collect::<Vec<_>>())).transpose()?;

    let mut attributes =
        vec![("causal", (c.int("is_causal", 0) != 0).to_string()), ("offset", past.to_string()), ("softcap", c.float("softcap", 0.0).to_string())];
    attributes.extend(c.attribute("scale").map(|scale| ("scale", scale)));
    for (name, onnx) in [("left_window", "left_window_size"), ("right_window", "right_window_size")] {
        // Negative: no window.
        attributes.extend(Some(c.int(onnx, -1)).filter(|keys| *keys >= 0).map(|keys| (name, keys.to_string())));
    }
    let scoring = [mask.as_ref(), positions.as_ref(), lengths.as_ref()];

    let y = c.one("attention", &attributes, &[&[Some(&q), Some(&k), Some(&v)], &scoring[..]].concat())?;
    let y = if flat { y.transpose(1, 2)?.reshape(&[batch, queries, y.shape()[1] * y.shape()[3]])? } else { y };
    let scores = match c.int("qk_matmul_output_mode", 0) {
        // Raw and softcapped scores see no mask.
        0 | 1 => {
            let plain: Vec<_> = attributes.iter().filter(|(name, _)| matches!(*name, "scale" | "softcap")).cloned().collect();
            c.one("attention_scores", &plain, &[Some(&q), Some(&k)])?
        }
        2 => c.one("attention_scores", &attributes, &[&[Some(&q), Some(&k)], &scoring[..]].concat())?,
        3 => {
            let attributes = [&attributes[..], &[("softmax", "true".to_owned())]].concat();
            c.one("attention_scores", &attributes, &[&[Some(&q), Some(&k)], &scoring[..]].concat())?
        }
        mode => return Err(Error::unsupported(format!("qk_matmul_output_mode {mode}"))),
    };
    Ok(vec![Some(y), Some(k), Some(v), Some(scores)])
}

/// `[B, T, H · D]` as `[B, H, T, D]`.
fn heads_first(x: &Tensor, heads: usize) -> Result<Tensor> {
    if x.shape().rank() == 4 {
        return Ok(x.clone());
    }
    let [batch, tokens, width] = **x.shape() else { return Err(Error::invalid_data(format!("{x:?} has neither 3 nor 4 axes"))) };
    x.reshape(&[batch, tokens, heads, width / heads.max(1)])?.transpose(1, 2)
}

fn with_past(past: Option<&Tensor>, x: Tensor) -> Result<Tensor> {
    match past {
        Some(past) => Tensor::concat(&[past, &x], 2),
        None => Ok(x),
    }
}

/// A mask shorter than the keys masks the rest.
fn padded(c: &Context<'_>, mask: &Tensor, keys: usize) -> Result<Tensor> {
    let mut dims = mask.shape().to_vec();
    let Some(last) = dims.last_mut().filter(|n| **n < keys && **n > 1) else { return Ok(mask.clone()) };
    *last = keys - *last;
    let count = dims.iter().product();
    let rest = match mask.dtype() {
        DType::Bool => c.executor.tensor_from_bytes(DType::Bool, &dims, &vec![0; count])?,
        dtype => c.executor.tensor(&dims, &vec![f32::NEG_INFINITY; count])?.cast(dtype)?,
    };
    Tensor::concat(&[mask, &rest], -1)
}
