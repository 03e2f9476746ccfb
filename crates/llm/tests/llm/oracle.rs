//! The forward pass, plainly, in f64 and without a cache.

use elinvar::kernels::rope::frequencies;
use elinvar_llm::Config;

use crate::fixture::Tensors;

type Rows = Vec<Vec<f64>>;

/// The logits after each token.
pub(crate) fn logits(config: &Config, tensors: &Tensors, tokens: &[u32]) -> Rows {
    logits_of_cache(config, tensors, tokens, <[f64]>::to_vec)
}

/// The same where a head's key, and its value, is kept as `stored` has it.
pub(crate) fn logits_of_cache(config: &Config, tensors: &Tensors, tokens: &[u32], stored: impl Fn(&[f64]) -> Vec<f64>) -> Rows {
    let kept = |rows: Vec<Rows>| rows.iter().map(|heads| heads.iter().map(|head| stored(head)).collect()).collect::<Vec<Rows>>();
    let get = |name: &str| -> &[f32] { &tensors[name].1 };
    let embedding = get("model.embed_tokens.weight");
    let row = |t: &u32| embedding[*t as usize * config.hidden_size..][..config.hidden_size].iter().map(|&v| v.into()).collect();
    let mut stream: Rows = tokens.iter().map(row).collect();
    for layer in 0..config.layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}");
        let linear =
            |x: &Rows, part: &str| apply(x, get(&name(&format!("{part}.weight"))), tensors.get(&name(&format!("{part}.bias"))).map(|b| &*b.1));
        let x = norm(&stream, get(&name("input_layernorm.weight")), config);
        let heads = |x: Rows, norm_name: &str| -> Vec<Rows> {
            let split = |r: &Vec<f64>| r.chunks(config.head_dim).map(<[f64]>::to_vec).collect::<Rows>();
            let rows: Vec<Rows> = x.iter().map(split).collect();
            match tensors.get(&name(norm_name)) {
                Some((_, weight)) => rows.iter().map(|heads| norm(heads, weight, config)).collect(),
                None => rows,
            }
        };
        let turn =
            |rows: Vec<Rows>| rows.iter().enumerate().map(|(t, heads)| heads.iter().map(|h| rotate(h, t, config)).collect()).collect::<Vec<Rows>>();
        let q = turn(heads(linear(&x, "self_attn.q_proj"), "self_attn.q_norm.weight"));
        let k = kept(turn(heads(linear(&x, "self_attn.k_proj"), "self_attn.k_norm.weight")));
        let v = kept(heads(linear(&x, "self_attn.v_proj"), "none"));
        let attended: Rows = (0..tokens.len()).map(|t| attend(t, &q, &k, &v, config, config.windows[layer])).collect();
        stream = add(&stream, &linear(&attended, "self_attn.o_proj"));
        let x = norm(&stream, get(&name("post_attention_layernorm.weight")), config);
        let (gate, up) = (linear(&x, "mlp.gate_proj"), linear(&x, "mlp.up_proj"));
        let gated = |(g, u): (&Vec<f64>, &Vec<f64>)| g.iter().zip(u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        stream = add(&stream, &linear(&gate.iter().zip(&up).map(gated).collect(), "mlp.down_proj"));
    }
    let head = if config.tied_embeddings { "model.embed_tokens.weight" } else { "lm_head.weight" };
    apply(&norm(&stream, get("model.norm.weight"), config), get(head), None)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &Rows, b: &Rows) -> Rows {
    a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
}

fn apply(x: &Rows, weight: &[f32], bias: Option<&[f32]>) -> Rows {
    let project = |row: &Vec<f64>| {
        let column = |(i, w): (usize, &[f32])| dot(row, &w.iter().map(|&v| v.into()).collect::<Vec<_>>()) + bias.map_or(0.0, |b| b[i].into());
        weight.chunks(row.len()).enumerate().map(column).collect()
    };
    x.iter().map(project).collect()
}

fn norm(x: &Rows, weight: &[f32], config: &Config) -> Rows {
    let scale = |row: &Vec<f64>| {
        let r = 1.0 / (dot(row, row) / row.len() as f64 + f64::from(config.norm_epsilon)).sqrt();
        row.iter().zip(weight).map(|(v, &w)| v * r * f64::from(w)).collect()
    };
    x.iter().map(scale).collect()
}

fn rotate(head: &[f64], position: usize, config: &Config) -> Vec<f64> {
    let (rope, half) = (&config.rope, config.rope.dimensions / 2);
    let frequencies = frequencies(&rope.scaling, rope.theta, rope.dimensions).unwrap();
    let mut out = head.to_vec();
    for i in 0..half {
        let (sin, cos) = (position as f64 * f64::from(frequencies[i])).sin_cos();
        out[i] = head[i] * cos - head[i + half] * sin;
        out[i + half] = head[i + half] * cos + head[i] * sin;
    }
    out
}

fn attend(t: usize, q: &[Rows], k: &[Rows], v: &[Rows], config: &Config, window: Option<usize>) -> Vec<f64> {
    let first = window.map_or(0, |w| (t + 1).saturating_sub(w));
    let head = |h: usize| {
        let kv = h / (config.heads / config.kv_heads);
        let weights: Vec<f64> = (first..=t).map(|j| (dot(&q[t][h], &k[j][kv]) / (config.head_dim as f64).sqrt()).exp()).collect();
        let total: f64 = weights.iter().sum();
        (0..config.head_dim).map(|d| (first..=t).zip(&weights).map(|(j, w)| w / total * v[j][kv][d]).sum::<f64>()).collect::<Vec<_>>()
    };
    (0..config.heads).flat_map(head).collect()
}
