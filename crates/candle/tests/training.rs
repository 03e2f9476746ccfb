//! A small transformer block trained to the same loss as by Candle's unfused operators.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod device;

use candle_core::{D, DType, Module, Result, Tensor};
use candle_nn::{AdamW, Embedding, Linear, Optimizer, ParamsAdamW, VarBuilder, VarMap, embedding, linear_no_bias};
use device::device;
use elinvar::SplitMix64;
use elinvar_candle::{
    Scoring, cross_entropy_fused,
    nn::{Attention, AttentionConfig, LoraLinear, RmsNorm, attention, lora_linear, rms_norm},
    silu_mul_fused,
};

const VOCABULARY: usize = 11;
const HIDDEN: usize = 16;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const WIDTH: usize = 4;
const TOKENS: usize = 9;

/// Tokens, a block of attention and a gated layer with an adapter, and the head.
struct Model {
    tokens: Embedding,
    norms: [RmsNorm; 2],
    attention: Attention,
    projections: [Linear; 4],
    gate: Linear,
    up: LoraLinear,
    down: Linear,
    head: Linear,
    tables: [Tensor; 2],
}

impl Model {
    fn new(vb: VarBuilder) -> Result<Self> {
        let config = AttentionConfig {
            hidden_size: HIDDEN,
            heads: HEADS,
            kv_heads: KV_HEADS,
            head_dim: WIDTH,
            bias: false,
            scoring: Scoring { causal: true, ..Default::default() },
        };
        let projection = |name: &str, from, to| linear_no_bias(from, to, vb.pp("attention").pp(name));
        let angles: Vec<f32> = (0..TOKENS).flat_map(|at| [at as f32, at as f32 * 0.1]).collect();
        let angles = Tensor::from_vec(angles, (TOKENS, WIDTH / 2), device())?;
        Ok(Self {
            tokens: embedding(VOCABULARY, HIDDEN, vb.pp("tokens"))?,
            norms: [rms_norm(HIDDEN, 1e-5, vb.pp("before"))?, rms_norm(HIDDEN, 1e-5, vb.pp("between"))?],
            attention: attention(config, vb.pp("attention"))?,
            projections: [
                projection("q_proj", HIDDEN, HEADS * WIDTH)?,
                projection("k_proj", HIDDEN, KV_HEADS * WIDTH)?,
                projection("v_proj", HIDDEN, KV_HEADS * WIDTH)?,
                projection("o_proj", HEADS * WIDTH, HIDDEN)?,
            ],
            gate: linear_no_bias(HIDDEN, 2 * HIDDEN, vb.pp("gate"))?,
            up: lora_linear(linear_no_bias(HIDDEN, 2 * HIDDEN, vb.pp("up"))?, 4, 8.0, vb.pp("up"))?,
            down: linear_no_bias(2 * HIDDEN, HIDDEN, vb.pp("down"))?,
            head: linear_no_bias(HIDDEN, VOCABULARY, vb.pp("head"))?,
            tables: [angles.cos()?, angles.sin()?],
        })
    }

    fn fused(&self, tokens: &Tensor, next: &Tensor) -> Result<Tensor> {
        let x = self.tokens.forward(tokens)?;
        let [cos, sin] = &self.tables;
        let x = (&x + self.attention.forward(&self.norms[0].forward(&x)?, Some((cos, sin)), None)?)?;
        let y = self.norms[1].forward(&x)?;
        let x = (x + self.down.forward(&silu_mul_fused(&self.gate.forward(&y)?, &self.up.forward(&y)?)?)?)?;
        cross_entropy_fused(&self.head.forward(&x)?, next)
    }

    fn unfused(&self, tokens: &Tensor, next: &Tensor) -> Result<Tensor> {
        let norm = |norm: &RmsNorm, x: &Tensor| candle_nn::ops::rms_norm_slow(x, norm.weight(), 1e-5);
        let x = self.tokens.forward(tokens)?;
        let (y, (batch, ..)) = (norm(&self.norms[0], &x)?, x.dims3()?);
        let heads =
            |projection: usize, count: usize| self.projections[projection].forward(&y)?.reshape((batch, TOKENS, count, WIDTH))?.transpose(1, 2);
        let rotated = |x: Tensor| candle_nn::rotary_emb::rope_slow(&x.contiguous()?, &self.tables[0], &self.tables[1]);
        let repeated = |x: Tensor| {
            let all = x.unsqueeze(2)?.broadcast_as((batch, KV_HEADS, HEADS / KV_HEADS, TOKENS, WIDTH))?;
            all.contiguous()?.reshape((batch, HEADS, TOKENS, WIDTH))
        };
        let (q, k, v) = (rotated(heads(0, HEADS)?)?, repeated(rotated(heads(1, KV_HEADS)?)?)?, repeated(heads(2, KV_HEADS)?)?);
        let later = (0..TOKENS * TOKENS).map(|i| if i % TOKENS > i / TOKENS { f32::NEG_INFINITY } else { 0.0 }).collect();
        let scores =
            (q.matmul(&k.t()?.contiguous()?)? / (WIDTH as f64).sqrt())?.broadcast_add(&Tensor::from_vec(later, (TOKENS, TOKENS), device())?)?;
        let y = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?.transpose(1, 2)?.reshape((batch, TOKENS, HEADS * WIDTH))?;
        let x = (x + self.projections[3].forward(&y)?)?;
        let y = norm(&self.norms[1], &x)?;
        let [a, b] = self.up.adapter();
        let adapted = Linear::new(b.clone(), None).forward(&Linear::new(a.clone(), None).forward(&y)?)?;
        let up = (self.up.base().forward(&y)? + (adapted * 2.0)?)?;
        let x = (x + self.down.forward(&(self.gate.forward(&y)?.silu()? * up)?)?)?;
        candle_nn::loss::cross_entropy(&self.head.forward(&x)?.reshape(((), VOCABULARY))?, &next.flatten_all()?)
    }
}

/// A model whose variables are the same in every call.
fn model() -> (VarMap, Model) {
    let map = VarMap::new();
    let model = Model::new(VarBuilder::from_varmap(&map, DType::F32, device())).unwrap();
    let mut random = SplitMix64::new(1);
    let mut vars: Vec<_> = map.data().lock().unwrap().iter().map(|(name, var)| (name.clone(), var.clone())).collect();
    vars.sort_by(|a, b| a.0.cmp(&b.0));
    for (_, var) in vars {
        let values: Vec<f32> = (0..var.elem_count()).map(|_| ((random.next_u64() >> 40) as f32 * 2f32.powi(-23) - 1.0) * 0.5).collect();
        var.set(&Tensor::from_vec(values, var.shape(), device()).unwrap()).unwrap();
    }
    (map, model)
}

fn losses(forward: impl Fn(&Model, &Tensor, &Tensor) -> Result<Tensor>) -> Vec<f32> {
    let (map, model) = model();
    let mut optimizer = AdamW::new(map.all_vars(), ParamsAdamW { lr: 0.01, ..Default::default() }).unwrap();
    let text: Vec<u32> = (0..2 * (TOKENS as u32 + 1)).map(|i| i * i % VOCABULARY as u32).collect();
    let text = Tensor::from_vec(text, (2, TOKENS + 1), device()).unwrap();
    let (tokens, next) = (text.narrow(1, 0, TOKENS).unwrap(), text.narrow(1, 1, TOKENS).unwrap());
    let step = |_| {
        let loss = forward(&model, &tokens, &next).unwrap();
        optimizer.backward_step(&loss).unwrap();
        loss.to_scalar().unwrap()
    };
    (0..25).map(step).collect()
}

#[test]
fn a_block_trains_to_the_same_loss() {
    let (fused, unfused) = (losses(Model::fused), losses(Model::unfused));
    for (step, (fused, unfused)) in fused.iter().zip(&unfused).enumerate() {
        assert!((fused - unfused).abs() <= 1e-4 * unfused.abs(), "step {step}: {fused}, {unfused} by Candle's operators");
    }
    assert!(fused[24] < 0.5 * fused[0], "{fused:?}");
}
