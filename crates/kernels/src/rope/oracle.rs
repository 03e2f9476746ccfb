//! The naive reference, in f64.

use elinvar_core::{DType, Layout, Result};

use super::{Rope, RopeScaling, RotaryEmbedding, frequencies};
use crate::conformance::case::{Bound, Case, HostTensor, made};

/// One head's vector, rotated by angles.
pub(crate) fn rotate(x: &[f64], angles: &[f64], interleaved: bool) -> Vec<f64> {
    let mut y = x.to_vec();
    for (i, angle) in angles.iter().enumerate() {
        let (u, v) = if interleaved { (2 * i, 2 * i + 1) } else { (i, i + angles.len()) };
        (y[u], y[v]) = (x[u] * angle.cos() - x[v] * angle.sin(), x[v] * angle.cos() + x[u] * angle.sin());
    }
    y
}

/// An angle as it is defined: a product rounded to f32.
pub(crate) fn angle(position: f64, frequency: f64) -> f64 {
    f64::from(position as f32 * frequency as f32)
}

const BOUND: Bound = Bound::relative(0.0).with_absolute(2e-6);

struct Form {
    dims: [usize; 4],
    rotary: usize,
    interleaved: bool,
    shared: bool,
}

/// `x` is a view with `dims` of a tensor with `stored`; a rank of three leaves the batch out.
fn computed(dtype: DType, form: Form, stored: &[usize], view: impl FnOnce(Layout) -> Result<Layout>) -> Case {
    let Form { dims: [batches, tokens, heads, dim], rotary, interleaved, shared } = form;
    let x = made(HostTensor::random(dtype, stored, -4.0, 4.0, 1).viewed(view));
    let position_dims = if shared { vec![tokens] } else { vec![batches, tokens] };
    let positions: Vec<i32> = (0..position_dims.iter().product::<usize>() as i32).map(|i| i * i * 37 % 5000).collect();
    let table = made(frequencies(&RopeScaling::None, 10_000.0, rotary));
    let inputs = [x, HostTensor::new(&position_dims, &positions), HostTensor::new(&[rotary / 2], &table)];
    Case::new(Rope { interleaved }, inputs.map(Some), BOUND, move |i| {
        let vectors = i[0].chunks(dim).enumerate();
        let rotated = vectors.flat_map(|(index, x)| {
            let token = index / heads % if shared { tokens } else { batches * tokens };
            rotate(x, &i[2].iter().map(|&f| angle(i[1][token], f)).collect::<Vec<_>>(), interleaved)
        });
        vec![rotated.collect()]
    })
}

fn cached(dims: &[usize], rotary: usize, interleaved: bool, indexed: bool) -> Case {
    let (batches, head_major) = (dims[0], dims.len() == 4);
    let (tokens, heads) = if head_major { (dims[2], dims[1]) } else { (dims[1], 3) };
    let dim = dims.iter().product::<usize>() / (batches * tokens * heads);
    let positions: Vec<i64> = (0..(batches * tokens) as i64).map(|i| 49 - i * 7 % 50).collect();
    let angles: Vec<f64> = (0..50 * rotary / 2).map(|i| i as f64 * 0.37).collect();
    let cache_dims = if indexed { vec![50, rotary / 2] } else { vec![batches, tokens, rotary / 2] };
    let cached = &angles[..cache_dims.iter().product()];
    let cache = |f: fn(f64) -> f64| HostTensor::from_f64(DType::F32, &cache_dims, &cached.iter().map(|&a| f(a)).collect::<Vec<_>>());
    let (cos, sin) = (cache(f64::cos), cache(f64::sin));
    let ids = indexed.then(|| HostTensor::new(&[batches, tokens], &positions));
    let x = HostTensor::random(DType::F32, dims, -4.0, 4.0, 2);
    let operator = RotaryEmbedding { interleaved, rotary_embedding_dim: rotary, num_heads: if head_major { 0 } else { heads } };
    Case::new(operator, [Some(x), Some(cos), Some(sin), ids], BOUND, move |i| {
        let rotated = i[0].chunks(dim).enumerate().flat_map(|(index, x)| {
            let token = if head_major { index / (heads * tokens) * tokens + index % tokens } else { index / heads };
            let row = if indexed { positions[token] as usize } else { token };
            rotate(x, &angles[row * rotary / 2..][..rotary / 2], interleaved)
        });
        vec![rotated.collect()]
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let form = |dims, rotary, interleaved, shared| Form { dims, rotary, interleaved, shared };
    let mut cases = Vec::new();
    for &dtype in DType::FLOATS {
        for interleaved in [false, true] {
            // Whole heads, part of a head, no tokens, and the middle heads of a fused projection.
            cases.push(computed(dtype, form([1, 5, 3, 64], 64, interleaved, true), &[5, 3, 64], Ok));
            cases.push(computed(dtype, form([3, 50, 7, 34], 20, interleaved, false), &[3, 50, 7, 34], Ok));
            cases.push(computed(dtype, form([2, 0, 3, 64], 64, interleaved, true), &[2, 0, 3, 64], Ok));
            cases.push(computed(dtype, form([1, 9, 2, 32], 32, interleaved, true), &[9, 6, 32], |l| l.slice(1, 3, 2, 1)));
        }
    }
    cases.push(computed(DType::F32, form([2, 4, 3, 16], 16, false, true), &[2, 3, 4, 16], |l| l.permute(&[0, 2, 1, 3])));
    cases.push(computed(DType::F32, form([1, 4, 3, 16], 12, true, true), &[16, 3, 4], |l| l.permute(&[2, 1, 0])));
    // Several blocks of heads, and heads wider than a threadgroup.
    for interleaved in [false, true] {
        cases.push(computed(DType::BF16, form([1, 2, 40, 12], 8, interleaved, true), &[2, 40, 12], Ok));
        cases.push(computed(DType::F32, form([1, 2, 1, 700], 560, interleaved, true), &[2, 1, 700], Ok));
    }
    for (interleaved, indexed) in [(false, false), (false, true), (true, false), (true, true)] {
        cases.push(cached(&[2, 4, 3, 8], 8, interleaved, indexed));
        cases.push(cached(&[2, 3, 36], 10, interleaved, indexed));
    }
    cases
}
