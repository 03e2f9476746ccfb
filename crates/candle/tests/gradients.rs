//! Results and gradients of the fused operators beside those of Candle's own, unfused ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod device;

use candle_core::{D, DType, Result, Tensor, Var};
use device::device;
use elinvar::SplitMix64;
use elinvar_candle::{
    Scoring, attention_fused, cross_entropy_fused, layer_norm_fused, log_softmax_fused, lora_forward_fused, rms_norm_fused, rope_fused, rope_i_fused,
    silu_mul_fused, softmax_fused,
};

/// How a tensor lies in the variable that holds it.
#[derive(Clone, Copy, Debug)]
enum Lies {
    RowMajor,
    /// The last two axes exchanged.
    Transposed,
    /// Inside a larger one.
    Narrowed,
}

const ALL: [Lies; 3] = [Lies::RowMajor, Lies::Transposed, Lies::Narrowed];

struct Random(SplitMix64);

impl Random {
    fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.0.next_u64() >> 40) as f32 * 2f32.powi(-23) - 1.0).collect()
    }

    fn tensor(&mut self, dims: &[usize]) -> Tensor {
        Tensor::from_vec(self.values(dims.iter().product()), dims, device()).unwrap()
    }

    fn up_to(&mut self, most: usize) -> usize {
        1 + (self.0.next_u64() % most as u64) as usize
    }

    /// A variable, and a tensor of these extents that lies so in it.
    fn variable(&mut self, dims: &[usize], dtype: DType, lies: Lies) -> (Var, Tensor) {
        let mut held = dims.to_vec();
        let last = held.len() - 1;
        match lies {
            Lies::Transposed if last > 0 => held.swap(last - 1, last),
            Lies::Narrowed => held.iter_mut().for_each(|extent| *extent += 2),
            Lies::RowMajor | Lies::Transposed => {}
        }
        let var = Var::from_tensor(&self.tensor(&held).to_dtype(dtype).unwrap()).unwrap();
        let mut shown = var.as_tensor().clone();
        match lies {
            Lies::Transposed if last > 0 => shown = shown.transpose(last - 1, last).unwrap(),
            Lies::Narrowed => {
                for (axis, extent) in dims.iter().enumerate() {
                    shown = shown.narrow(axis, 1, *extent).unwrap();
                }
            }
            Lies::RowMajor | Lies::Transposed => {}
        }
        (var, shown)
    }
}

fn wide(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Asserts that two tensors agree, beside the largest element.
fn close(what: &str, found: &Tensor, expected: &Tensor, bound: f32) {
    assert_eq!(found.dims(), expected.dims(), "{what}");
    let (found, expected) = (wide(found), wide(expected));
    let largest = expected.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() <= bound * largest, "{what}: element {index} is {found}, {expected} is expected (largest {largest})");
    }
}

type Function<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

/// Compares results and gradients of `fused` with those of `unfused`, which is computed in f32.
fn compare(what: &str, random: &mut Random, dtype: DType, lies: Lies, shapes: &[&[usize]], [fused, unfused]: [Function; 2]) {
    let what = format!("{what} {dtype:?} {lies:?} {shapes:?}");
    let (vars, shown): (Vec<_>, Vec<_>) = shapes.iter().map(|dims| random.variable(dims, dtype, lies)).unzip();
    let widened: Vec<_> = shown.iter().map(|tensor| tensor.to_dtype(DType::F32).unwrap()).collect();
    let (found, expected) = (fused(&shown).unwrap(), unfused(&widened).unwrap());
    let bound = match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 2e-3,
        _ => 1.2e-2,
    };
    close(&what, &found, &expected, bound);
    // The same gradient for both: one that the type holds.
    let upstream = random.tensor(found.dims()).to_dtype(found.dtype()).unwrap().to_dtype(DType::F32).unwrap();
    let loss = |y: &Tensor| (y.to_dtype(DType::F32).unwrap() * &upstream).unwrap().sum_all().unwrap();
    let (found, expected) = (loss(&found).backward().unwrap(), loss(&expected).backward().unwrap());
    for (index, var) in vars.iter().enumerate() {
        let name = format!("{what}: the gradient of input {index}");
        let found = found.get(var).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(found.dtype(), dtype, "{name}");
        close(&name, found, expected.get(var).unwrap(), 2.0 * bound);
    }
}

/// The same for every way to lie and every type that Candle computes with, on shapes that `shapes` makes.
fn everywhere(what: &str, shapes: impl Fn(&mut Random) -> Vec<Vec<usize>>, functions: [Function; 2]) {
    let mut random = Random(SplitMix64::new(what.len() as u64));
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        for lies in ALL {
            let shapes = shapes(&mut random);
            compare(what, &mut random, dtype, lies, &shapes.iter().map(|dims| &dims[..]).collect::<Vec<_>>(), functions);
        }
    }
}

#[test]
fn softmax() {
    let dims = |random: &mut Random| vec![vec![random.up_to(4), random.up_to(40), random.up_to(70)]];
    everywhere("softmax", dims, [&|x| softmax_fused(&x[0], D::Minus1), &|x| candle_nn::ops::softmax(&x[0], D::Minus1)]);
    everywhere("softmax along an inner axis", dims, [&|x| softmax_fused(&x[0], 1), &|x| candle_nn::ops::softmax(&x[0], 1)]);
    everywhere("log-softmax", dims, [&|x| log_softmax_fused(&x[0], 2), &|x| candle_nn::ops::log_softmax(&x[0], 2)]);
}

#[test]
fn norms() {
    let mut random = Random(SplitMix64::new(7));
    for n in [1, 3, 64, 130] {
        let rows = random.up_to(50);
        let shapes = |_: &mut Random| vec![vec![2, rows, n], vec![n]];
        everywhere("rms_norm", shapes, [&|x| rms_norm_fused(&x[0], &x[1], 1e-3), &|x| candle_nn::ops::rms_norm_slow(&x[0], &x[1], 1e-3)]);
        let shapes = |_: &mut Random| vec![vec![rows, n], vec![n], vec![n]];
        everywhere(
            "layer_norm",
            shapes,
            [&|x| layer_norm_fused(&x[0], &x[1], Some(&x[2]), 1e-2), &|x| candle_nn::ops::layer_norm_slow(&x[0], &x[1], &x[2], 1e-2)],
        );
    }
}

#[test]
fn rope() {
    let mut random = Random(SplitMix64::new(9));
    for (batch, tokens, positions) in [(1, 5, 5), (3, 7, 20)] {
        let (cos, sin) = (random.tensor(&[positions, 4]), random.tensor(&[positions, 4]));
        let shapes = |_: &mut Random| vec![vec![batch, 2, tokens, 8]];
        let table = |table: &Tensor, x: &Tensor| table.to_dtype(x.dtype());
        let near = |table: &Tensor| table.to_dtype(DType::BF16)?.to_dtype(DType::F32);
        // Values that every type has, so that both sides rotate by the same.
        let (cos, sin) = (near(&cos).unwrap(), near(&sin).unwrap());
        everywhere(
            "rope",
            shapes,
            [&|x| rope_fused(&x[0], &table(&cos, &x[0])?, &table(&sin, &x[0])?), &|x| candle_nn::rotary_emb::rope_slow(&x[0], &cos, &sin)],
        );
        everywhere(
            "rope of neighbours",
            shapes,
            [&|x| rope_i_fused(&x[0], &table(&cos, &x[0])?, &table(&sin, &x[0])?), &|x| {
                candle_nn::rotary_emb::rope_i_slow(&x[0].contiguous()?, &cos, &sin)
            }],
        );
    }
    // A table for each sequence.
    let (cos, sin) = (random.tensor(&[2, 6, 4]), random.tensor(&[2, 6, 4]));
    let x = random.tensor(&[2, 3, 5, 8]);
    let each = |b: usize| {
        let of = |tensor: &Tensor| tensor.narrow(0, b, 1).unwrap();
        candle_nn::rotary_emb::rope_slow(&of(&x), &of(&cos).squeeze(0).unwrap(), &of(&sin).squeeze(0).unwrap()).unwrap()
    };
    let expected = Tensor::cat(&[each(0), each(1)], 0).unwrap();
    close("rope by tables of sequences", &rope_fused(&x, &cos, &sin).unwrap(), &expected, 1e-5);
}

#[test]
fn silu_mul() {
    let both = |random: &mut Random| {
        let dims = vec![random.up_to(9), random.up_to(99)];
        vec![dims.clone(), dims]
    };
    everywhere("silu_mul", both, [&|x| silu_mul_fused(&x[0], &x[1]), &|x| x[0].silu()? * &x[1]]);
}

fn linear(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let (n, k) = weight.dims2()?;
    let mut dims = x.dims().to_vec();
    *dims.last_mut().unwrap() = n;
    x.contiguous()?.reshape(((), k))?.matmul(&weight.contiguous()?.t()?)?.reshape(dims)
}

fn lora(x: &[Tensor], scale: f64) -> Result<Tensor> {
    let y = (linear(&x[0], &x[1])? + (linear(&linear(&x[0], &x[2])?, &x[3])? * scale)?)?;
    x.get(4).map_or(Ok(y.clone()), |bias| y.broadcast_add(bias))
}

/// With a bias five tensors are trained, more than one of Candle's custom operators has.
#[test]
fn lora_of_every_tensor() {
    let shapes = |random: &mut Random| {
        let (k, n, r) = (random.up_to(60), random.up_to(60), random.up_to(8));
        vec![vec![2, random.up_to(9), k], vec![n, k], vec![r, k], vec![n, r]]
    };
    everywhere("lora", shapes, [&|x| lora_forward_fused(&x[0], &x[1], &x[2], &x[3], None, 0.5), &|x| lora(x, 0.5)]);
    let with_bias = |random: &mut Random| {
        let mut shapes = shapes(random);
        shapes.push(vec![shapes[1][0]]);
        shapes
    };
    everywhere("lora with bias", with_bias, [&|x| lora_forward_fused(&x[0], &x[1], &x[2], &x[3], Some(&x[4]), 2.0), &|x| lora(x, 2.0)]);
}

/// An adapter in f32 beside a layer in bf16; only it is trained, or all.
#[test]
fn lora_of_two_types() {
    let mut random = Random(SplitMix64::new(4));
    for (rows, is_trained) in [(5, false), (5, true), (1, true)] {
        let mut variables = |dims: &[usize], dtype| random.variable(dims, dtype, Lies::RowMajor);
        let ((x, _), (weight, _)) = (variables(&[rows, 16], DType::BF16), variables(&[12, 16], DType::BF16));
        let ((a, _), (b, _), (bias, _)) = (variables(&[4, 16], DType::F32), variables(&[12, 4], DType::F32), variables(&[12], DType::BF16));
        let fixed = |var: &Var| if is_trained { var.as_tensor().clone() } else { var.as_detached_tensor() };
        let y = lora_forward_fused(&fixed(&x), &fixed(&weight), &a, &b, Some(&fixed(&bias)), 1.0).unwrap();
        let widened: Vec<_> = [&fixed(&x), &fixed(&weight), &a, &b, &fixed(&bias)].iter().map(|t| t.to_dtype(DType::F32).unwrap()).collect();
        let expected = lora(&widened, 1.0).unwrap();
        assert_eq!(y.dtype(), DType::BF16);
        close("lora of two types", &y, &expected, 1e-2);
        let found = y.to_dtype(DType::F32).unwrap().sum_all().unwrap().backward().unwrap();
        let expected = expected.sum_all().unwrap().backward().unwrap();
        for (name, var) in [("x", &x), ("weight", &weight), ("a", &a), ("b", &b), ("bias", &bias)] {
            assert_eq!(found.get(var).is_some(), is_trained || matches!(name, "a" | "b"), "{name}");
            if let Some(found) = found.get(var) {
                assert_eq!(found.dtype(), var.dtype());
                close(name, found, expected.get(var).unwrap(), 2e-2);
            }
        }
    }
}

/// Attention by Candle's operators, with a mask that is added.
fn attention(x: &[Tensor], mask: Option<&Tensor>, softcap: f64) -> Result<Tensor> {
    let ((batch, heads, _, width), (_, kv_heads, keys, _)) = (x[0].dims4()?, x[1].dims4()?);
    let repeated = |x: &Tensor| {
        let width = x.dim(3)?;
        x.unsqueeze(2)?.broadcast_as((batch, kv_heads, heads / kv_heads, keys, width))?.contiguous()?.reshape((batch, heads, keys, width))
    };
    let mut scores = (x[0].contiguous()?.matmul(&repeated(&x[1])?.t()?.contiguous()?)? / (width as f64).sqrt())?;
    if softcap > 0.0 {
        scores = ((scores / softcap)?.tanh()? * softcap)?;
    }
    if let Some(mask) = mask {
        scores = scores.broadcast_add(mask)?;
    }
    candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&repeated(&x[2])?)
}

/// Zero where `attends`, minus infinity elsewhere.
fn mask(queries: usize, keys: usize, attends: impl Fn(usize, usize) -> bool) -> Tensor {
    let values = (0..queries * keys).map(|i| if attends(i / keys, i % keys) { 0.0 } else { f32::NEG_INFINITY });
    Tensor::from_vec(values.collect(), (queries, keys), device()).unwrap()
}

#[test]
fn attention_causal_grouped_windowed_and_capped() {
    let shapes = |heads: usize, kv_heads: usize, queries: usize, keys: usize| {
        move |_: &mut Random| vec![vec![2, heads, queries, 8], vec![2, kv_heads, keys, 8], vec![2, kv_heads, keys, 6]]
    };
    let plain = Scoring::default();
    everywhere("attention", shapes(2, 2, 5, 11), [&|x| attention_fused(&x[0], &x[1], &x[2], None, &plain), &|x| attention(x, None, 0.0)]);
    let causal = Scoring { causal: true, offset: 4, ..plain };
    let after = mask(5, 9, |query, key| key <= query + 4);
    everywhere("causal", shapes(4, 2, 5, 9), [&|x| attention_fused(&x[0], &x[1], &x[2], None, &causal), &|x| attention(x, Some(&after), 0.0)]);
    let windowed = Scoring { causal: true, left_window: Some(2), softcap: 1.5, ..plain };
    let near = mask(7, 7, |query, key| key <= query && key + 2 >= query);
    everywhere("windowed", shapes(3, 1, 7, 7), [&|x| attention_fused(&x[0], &x[1], &x[2], None, &windowed), &|x| attention(x, Some(&near), 1.5)]);
    let given = mask(5, 11, |query, key| (query + key) % 3 > 0);
    let truth = given.ge(0f32).unwrap();
    everywhere(
        "masked",
        shapes(2, 1, 5, 11),
        [&|x| attention_fused(&x[0], &x[1], &x[2], Some(&truth), &plain), &|x| attention(x, Some(&given), 0.0)],
    );
    everywhere("added", shapes(2, 1, 5, 11), [&|x| attention_fused(&x[0], &x[1], &x[2], Some(&given), &plain), &|x| attention(x, Some(&given), 0.0)]);
}

/// One tensor as queries, keys and values: its gradient is the sum of three.
#[test]
fn attention_of_a_tensor_over_itself() {
    let mut random = Random(SplitMix64::new(5));
    let shapes: &[&[usize]] = &[&[1, 2, 6, 8]];
    let fused: Function = &|x| attention_fused(&x[0], &x[0], &x[0], None, &Scoring::default());
    compare(
        "itself",
        &mut random,
        DType::F32,
        Lies::Transposed,
        shapes,
        [fused, &|x| attention(&[x[0].clone(), x[0].clone(), x[0].clone()], None, 0.0)],
    );
}

#[test]
fn cross_entropy() {
    let targets = Tensor::new(&[0u32, 4, 2, 2, 1, 3, 0], device()).unwrap();
    for dtype in [DType::U32, DType::I64, DType::U8] {
        let targets = targets.to_dtype(dtype).unwrap();
        let shapes = |_: &mut Random| vec![vec![7, 5]];
        everywhere("cross-entropy", shapes, [&|x| cross_entropy_fused(&x[0], &targets), &|x| candle_nn::loss::cross_entropy(&x[0], &targets)]);
    }
}

/// Candle's own fused operators end the tape without a word; these do not.
#[test]
fn gradients_pass_where_those_of_candle_s_fused_operators_are_dropped() {
    let mut random = Random(SplitMix64::new(6));
    let x = Var::from_tensor(&random.tensor(&[1, 2, 3, 4])).unwrap();
    let (weight, bias) = (random.tensor(&[4]), random.tensor(&[4]));
    let (cos, sin) = (random.tensor(&[3, 2]), random.tensor(&[3, 2]));
    let pairs: [(&str, Result<Tensor>, Result<Tensor>); 5] = [
        ("softmax", candle_nn::ops::softmax_last_dim(&x), softmax_fused(&x, D::Minus1)),
        ("rms_norm", candle_nn::ops::rms_norm(&x, &weight, 1e-5), rms_norm_fused(&x, &weight, 1e-5)),
        ("layer_norm", candle_nn::ops::layer_norm(&x, &weight, &bias, 1e-5), layer_norm_fused(&x, &weight, Some(&bias), 1e-5)),
        ("rope", candle_nn::rotary_emb::rope(&x, &cos, &sin), rope_fused(&x, &cos, &sin)),
        ("rope_i", candle_nn::rotary_emb::rope_i(&x, &cos, &sin), rope_i_fused(&x, &cos, &sin)),
    ];
    for (name, theirs, ours) in pairs {
        let (theirs, ours) = (theirs.unwrap(), ours.unwrap());
        close(name, &ours, &theirs, 1e-5);
        assert!(theirs.sqr().unwrap().sum_all().unwrap().backward().unwrap().get(&x).is_none(), "{name}: Candle's passes a gradient now");
        let found = ours.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        assert!(wide(found.get(&x).unwrap()).iter().any(|gradient| gradient.abs() > 1e-6), "{name}");
    }
}
