//! Gradients of every operator beside those of PyTorch's autograd, which `tests/references/gradients.py` wrote down.

use std::collections::BTreeMap;

use elinvar::{
    Adam, BackendType, Executor, LossReduction, Precision, Result, Tensor,
    kernels::attention::{Attention, Scoring},
};

/// What the script makes of the same numbers.
fn made(executor: &Executor, dims: &[usize], seed: usize) -> Tensor {
    let values: Vec<f32> = (0..dims.iter().product()).map(|i: usize| (((i * 7919 + seed * 104_729) % 2003) as f64 / 1001.5 - 1.0) as f32).collect();
    executor.tensor(dims, &values).unwrap()
}

type Function = fn(&[Tensor]) -> Result<Tensor>;

fn attention(x: &[Tensor], scoring: Scoring) -> Result<Tensor> {
    let operator = Attention { scoring: Scoring { causal: true, ..scoring }, precision: Precision::Strict, ..Attention::default() };
    x[0].attention(&operator, &x[1], &x[2], None, None)
}

fn cases() -> Vec<(&'static str, Vec<&'static [usize]>, Function)> {
    let one = || vec![&[4, 6][..]];
    let mut cases: Vec<(&str, Vec<&[usize]>, Function)> = Vec::new();
    let unary: [(&str, Function); 26] = [
        ("exp", |x| x[0].exp()),
        ("log", |x| (&x[0] + 2.0)?.log()),
        ("sqrt", |x| (&x[0] + 2.0)?.sqrt()),
        ("rsqrt", |x| (&x[0] + 2.0)?.rsqrt()),
        ("sin", |x| x[0].sin()),
        ("cos", |x| x[0].cos()),
        ("tan", |x| x[0].tan()),
        ("tanh", |x| x[0].tanh()),
        ("sigmoid", |x| x[0].sigmoid()),
        ("softplus", |x| x[0].softplus()),
        ("silu", |x| x[0].silu()),
        ("mish", |x| x[0].mish()),
        ("softsign", |x| x[0].softsign()),
        ("hard_swish", |x| x[0].hard_swish()),
        ("erf", |x| x[0].erf()),
        ("gelu", |x| x[0].gelu()),
        ("gelu_tanh", |x| x[0].gelu_tanh()),
        ("relu", |x| x[0].relu()),
        ("abs", |x| x[0].abs()),
        ("square", |x| x[0].square()),
        ("reciprocal", |x| (&x[0] + 2.0)?.reciprocal()),
        ("selu", |x| (&x[0] * 3.0)?.selu()),
        ("hard_sigmoid", |x| (&x[0] * 6.0)?.hard_sigmoid(1.0 / 6.0)),
        ("leaky_relu", |x| x[0].leaky_relu(0.25)),
        ("elu", |x| x[0].elu(0.5)),
        ("clamp", |x| x[0].clamp(-0.5, 0.25)),
    ];
    cases.extend(unary.map(|(name, function)| (name, one(), function)));
    let reductions: [(&str, Function); 9] = [
        ("sum", |x| x[0].sum(&[1], false)),
        ("mean", |x| x[0].mean(&[0], false)),
        ("max", |x| x[0].max(&[1], false)),
        ("prod", |x| x[0].prod(&[1], false)),
        ("norm", |x| x[0].norm(&[1], false)),
        ("logsumexp", |x| x[0].logsumexp(&[1], false)),
        ("cumsum", |x| x[0].cumsum(1)),
        ("softmax", |x| (&x[0] * 3.0)?.softmax(1)),
        ("log_softmax", |x| (&x[0] * 3.0)?.log_softmax(1)),
    ];
    cases.extend(reductions.map(|(name, function)| (name, one(), function)));
    let others: [(&str, Vec<&[usize]>, Function); 22] = [
        ("cross_entropy", vec![&[4, 6]], |x| (&x[0] * 3.0)?.cross_entropy(&x[0].executor().tensor(&[4], &[1i32, 5, -100, 0])?, Some(-100))),
        ("add", vec![&[4, 6], &[6]], |x| x[0].add(&x[1])),
        ("sub", vec![&[4, 6], &[4, 1]], |x| x[0].sub(&x[1])),
        ("mul", vec![&[4, 6], &[6]], |x| x[0].mul(&x[1])),
        ("div", vec![&[4, 6], &[6]], |x| x[0].div(&(&x[1] + 2.0)?)),
        ("pow", vec![&[4, 6], &[6]], |x| (&x[0] + 2.0)?.pow(&x[1])),
        ("maximum", vec![&[4, 6], &[4, 6]], |x| x[0].maximum(&x[1])),
        ("fma", vec![&[4, 6], &[6], &[4, 1]], |x| x[0].fma(&x[1], &x[2])),
        ("matmul", vec![&[2, 3, 4], &[4, 5]], |x| x[0].matmul(&x[1])),
        ("batched_matmul", vec![&[2, 1, 3, 4], &[3, 4, 5]], |x| x[0].matmul(&x[1])),
        ("linear", vec![&[2, 3, 4], &[5, 4], &[5]], |x| x[0].linear(&x[1], Some(&x[2]))),
        ("lora_linear", vec![&[3, 6], &[5, 6], &[2, 6], &[5, 2]], |x| x[0].lora_linear(&x[1], &x[2], &x[3], 0.5)),
        ("gather", vec![&[5, 4]], |x| x[0].gather(&x[0].executor().tensor(&[4], &[1i32, 3, 1, 0])?, 0)),
        ("take_along_axis", vec![&[3, 4]], |x| x[0].take_along_axis(&x[0].executor().tensor(&[3, 2], &[0i64, 0, 3, 1, 2, 2])?, 1)),
        ("concat", vec![&[2, 3], &[2, 4]], |x| Tensor::concat(&[&x[0], &x[1]], 1)),
        ("rms_norm", vec![&[4, 6], &[6]], |x| x[0].rms_norm(Some(&x[1]), 1e-5)),
        ("layer_norm", vec![&[4, 6], &[6], &[6]], |x| x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
        ("swiglu", vec![&[4, 6], &[4, 6]], |x| x[0].swiglu(&x[1])),
        ("rope", vec![&[3, 2, 8]], |x| {
            let executor = x[0].executor();
            x[0].rope(&executor.tensor(&[3], &[0i32, 1, 5])?, &executor.tensor(&[4], &[1f32, 0.5, 0.25, 0.125])?)
        }),
        ("attention", vec![&[1, 4, 9, 8], &[1, 2, 9, 8], &[1, 2, 9, 8]], |x| attention(x, Scoring::default())),
        ("attention_of_a_cache", vec![&[1, 2, 3, 8], &[1, 1, 40, 8], &[1, 1, 40, 8]], |x| {
            attention(x, Scoring { offset: 37, softcap: 0.7, ..Scoring::default() })
        }),
        ("attention_in_a_window", vec![&[1, 1, 40, 8]; 3], |x| attention(x, Scoring { left_window: Some(5), ..Scoring::default() })),
    ];
    cases.extend(others);
    cases.extend(compositions());
    cases
}

fn compositions() -> [(&'static str, Vec<&'static [usize]>, Function); 11] {
    fn targets(x: &Tensor, ignored: i64) -> Result<Tensor> {
        x.executor().tensor(&[3, 2], &[1i64, 3, ignored, 0, 2, 2])
    }
    fn weight(x: &Tensor) -> Result<Tensor> {
        x.executor().tensor(&[4], &[0.5f32, 2.0, 1.0, 3.0])
    }
    [
        ("group_norm", vec![&[2, 4, 3], &[4], &[4]], |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5)),
        ("instance_norm", vec![&[2, 3, 5], &[3], &[3]], |x| x[0].instance_norm(Some(&x[1]), Some(&x[2]), 1e-5)),
        ("normalize", vec![&[4, 6]], |x| x[0].normalize(2, 0, 1e-12)),
        ("normalize_by_magnitudes", vec![&[4, 6]], |x| x[0].normalize(1, 1, 1e-12)),
        ("one_hot", vec![&[2]], |x| x[0].executor().tensor(&[3], &[2i32, 0, 1])?.one_hot(3, -1, &x[0])),
        ("nll_loss", vec![&[3, 4, 2]], |x| x[0].nll_loss(&targets(&x[0], -1)?, Some(&weight(&x[0])?), Some(-1), LossReduction::Mean)),
        ("cross_entropy_loss", vec![&[3, 4, 2]], |x| {
            (&x[0] * 3.0)?.cross_entropy_loss(&targets(&x[0], 9)?, Some(&weight(&x[0])?), Some(9), LossReduction::Mean)
        }),
        ("cross_entropy_loss_of_places", vec![&[3, 4, 2]], |x| {
            (&x[0] * 3.0)?.cross_entropy_loss(&targets(&x[0], 0)?, None, None, LossReduction::None)
        }),
        ("einsum", vec![&[2, 3, 4], &[4, 5, 2], &[3, 5]], |x| Tensor::einsum("bij,jkb,ik->ikb", &[&x[0], &x[1], &x[2]])),
        ("einsum_of_a_diagonal", vec![&[2, 3, 3], &[3, 4]], |x| Tensor::einsum("...ii,ik", &[&x[0], &x[1]])),
        ("adam", vec![&[4, 6]; 4], |x| {
            let settings = Adam { betas: [0.9, 0.99], epsilon: 1e-3, weight_decay: 0.1, ..Adam::default() };
            let [next, ..] = x[0].adam(&x[1], [&x[2], &(&x[3] + 2.0)?], 0.5, 3, &settings)?;
            Ok(next)
        }),
    ]
}

#[test]
fn gradients_are_those_of_pytorch() {
    let executor = Executor::new_with_backend(BackendType::Cpu).unwrap().with_precision(Precision::Strict);
    let lines = include_str!("../references/gradients.txt").lines().map(|line| line.split_once(' ').unwrap());
    let mut expected: BTreeMap<_, _> = lines.collect();
    for (name, shapes, function) in cases() {
        let inputs: Vec<_> = shapes.iter().zip(1..).map(|(dims, seed)| made(&executor, dims, seed).requires_grad().unwrap()).collect();
        let y = function(&inputs).unwrap();
        let gradients = y.mul(&made(&executor, y.shape(), 9)).unwrap().sum(&[], false).unwrap().backward().unwrap();
        let found: Vec<f32> = inputs.iter().flat_map(|input| gradients.of(input).unwrap().to_vec::<f32>().unwrap()).collect();
        let theirs: Vec<f32> = expected.remove(name).unwrap().split(' ').map(|value| value.parse().unwrap()).collect();
        assert_eq!(found.len(), theirs.len(), "{name}");
        let largest = theirs.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        let difference = found.iter().zip(&theirs).fold(0f32, |largest, (a, b)| largest.max((a - b).abs())) / largest;
        println!("{name}: {difference:.1e} of the largest");
        assert!(difference <= 5e-6, "{name}: {difference:e} of the largest");
    }
    assert!(expected.is_empty(), "not compared: {:?}", expected.keys());
}
