//! Times of forward passes beside Candle's own operators, in turns: `cargo run --release -p elinvar-candle --example speed [WORD..]`.
//! With `--features cuda` and `ELINVAR_CANDLE_DEVICE=cuda`, on the first GPU.

use std::{env, sync::OnceLock, time::Instant};

use candle_core::{D, DType, Device, Result, Tensor, Var};
use elinvar_candle::{Ops, Scoring};

type Side<'a> = (&'a str, Box<dyn Fn() -> Result<Tensor> + 'a>);

/// Seconds that a line takes.
const SECONDS: f64 = 3.0;

static DEVICE: OnceLock<Device> = OnceLock::new();

/// What `main` has chosen.
fn device() -> &'static Device {
    DEVICE.get_or_init(|| Device::Cpu)
}

/// Calls that are timed together: a GPU works through them while the next are begun.
fn calls() -> u32 {
    if device().is_cuda() { 20 } else { 1 }
}

fn random(dims: &[usize], dtype: DType) -> Result<Tensor> {
    Tensor::randn(0f32, 1.0, dims, device())?.to_dtype(dtype)
}

/// The median and best times of the sides, each called once in turn, and of how many times the first's they are.
fn line(title: &str, sides: Vec<Side>) -> Result<()> {
    let words: Vec<_> = env::args().skip(1).collect();
    if !words.is_empty() && !words.iter().any(|word| title.contains(word.as_str())) {
        return Ok(());
    }
    let expected = sides[0].1()?.to_dtype(DType::F32)?;
    for (name, run) in &sides {
        let far = (run()?.to_dtype(DType::F32)? - &expected)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        let largest = expected.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        if far > 0.02 * largest {
            println!("{title}: {name} is off by {far:.1e}, largest {largest:.1e}");
        }
    }
    let (mut times, begun) = (vec![Vec::new(); sides.len()], Instant::now());
    while begun.elapsed().as_secs_f64() < SECONDS || times[0].len() < 5 {
        for ((_, run), times) in sides.iter().zip(&mut times) {
            device().synchronize()?;
            let start = Instant::now();
            for _ in 0..calls() {
                drop(run()?);
            }
            device().synchronize()?;
            times.push(start.elapsed().as_secs_f64() / f64::from(calls()));
        }
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let of = |times: &[f64]| [times[times.len() / 2], times[0]];
    let first = of(&times[0]);
    let shown = sides.iter().zip(&times).map(|((name, _), times)| {
        let [median, best] = of(times);
        format!("{name} {:.3} ms, best {:.3} ({:.2}x, {:.2}x)", median * 1e3, best * 1e3, median / first[0], best / first[1])
    });
    let shown: Vec<_> = shown.collect();
    println!("{title}: {}", shown.join(", "));
    Ok(())
}

/// The forward pass and the gradients of `sum(y²)`.
fn both(y: Result<Tensor>) -> Result<Tensor> {
    let loss = y?.sqr()?.sum_all()?;
    loss.backward()?;
    Ok(loss)
}

fn main() -> Result<()> {
    let ops = Ops::shared()?;
    if env::var("ELINVAR_CANDLE_DEVICE").is_ok_and(|name| name == "cuda") {
        let gpu = Device::new_cuda(0)?;
        DEVICE.get_or_init(|| gpu);
    }
    println!("{:?}", device().location());
    for dtype in [DType::F32, DType::BF16] {
        for n in [1024, 4096] {
            let (x, weight, bias) = (random(&[n, n], dtype)?, random(&[n], dtype)?, random(&[n], dtype)?);
            let title = |name: &str| format!("{name} {} [{n}, {n}]", dtype.as_str());
            line(
                &title("softmax"),
                vec![
                    ("elinvar", Box::new(|| ops.softmax(&x, 1))),
                    ("candle fused, no gradient", Box::new(|| candle_nn::ops::softmax_last_dim(&x))),
                    ("candle", Box::new(|| candle_nn::ops::softmax(&x, D::Minus1))),
                ],
            )?;
            line(
                &title("rms_norm"),
                vec![
                    ("elinvar", Box::new(|| ops.rms_norm(&x, &weight, 1e-5))),
                    ("candle fused, no gradient", Box::new(|| candle_nn::ops::rms_norm(&x, &weight, 1e-5))),
                    ("candle", Box::new(|| candle_nn::ops::rms_norm_slow(&x, &weight, 1e-5))),
                ],
            )?;
            line(
                &title("layer_norm"),
                vec![
                    ("elinvar", Box::new(|| ops.layer_norm(&x, &weight, Some(&bias), 1e-5))),
                    ("candle fused, no gradient", Box::new(|| candle_nn::ops::layer_norm(&x, &weight, &bias, 1e-5))),
                    ("candle", Box::new(|| candle_nn::ops::layer_norm_slow(&x, &weight, &bias, 1e-5))),
                ],
            )?;
            let var = Var::from_tensor(&x)?;
            line(
                &title("softmax, forward and backward"),
                vec![("elinvar", Box::new(|| both(ops.softmax(&var, 1)))), ("candle", Box::new(|| both(candle_nn::ops::softmax(&var, 1))))],
            )?;
            line(
                &title("rms_norm, forward and backward"),
                vec![
                    ("elinvar", Box::new(|| both(ops.rms_norm(&var, &weight, 1e-5)))),
                    ("candle", Box::new(|| both(candle_nn::ops::rms_norm_slow(&var, &weight, 1e-5)))),
                ],
            )?;
        }
        for (m, r) in [(1, 8), (16, 8), (512, 16)] {
            let (k, n) = (2048, 2048);
            let (x, weight, a, b) = (random(&[m, k], dtype)?, random(&[n, k], dtype)?, random(&[r, k], dtype)?, random(&[n, r], dtype)?);
            let theirs = |x: &Tensor| x.matmul(&weight.t()?)? + (x.matmul(&a.t()?)?.matmul(&b.t()?)? * 2.0)?;
            line(
                &format!("lora {} [{m}, {k}] x [{n}, {k}], rank {r}", dtype.as_str()),
                vec![("elinvar", Box::new(|| ops.lora_forward(&x, &weight, &a, &b, None, 2.0))), ("candle", Box::new(|| theirs(&x)))],
            )?;
        }
        let (q, k) = (random(&[1, 16, 256, 64], dtype)?, random(&[1, 4, 256, 64], dtype)?);
        let scoring = Scoring { causal: true, ..Default::default() };
        let later: Vec<f32> = (0..256 * 256).map(|i| if i % 256 > i / 256 { f32::NEG_INFINITY } else { 0.0 }).collect();
        let later = Tensor::from_vec(later, (256, 256), device())?.to_dtype(dtype)?;
        let repeated = |x: &Tensor| x.unsqueeze(2)?.broadcast_as((1, 4, 4, 256, 64))?.contiguous()?.reshape((1, 16, 256, 64));
        let theirs = || {
            let scores = (q.matmul(&repeated(&k)?.t()?)? * 0.125)?.broadcast_add(&later)?;
            candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&repeated(&k)?)
        };
        line(
            &format!("attention {}, causal, 256 tokens, 16 heads over 4", dtype.as_str()),
            vec![("elinvar", Box::new(|| ops.attention(&q, &k, &k, None, &scoring))), ("candle", Box::new(theirs))],
        )?;
        let gates = random(&[512, 8192], dtype)?;
        line(
            &format!("silu_mul {} [512, 8192]", dtype.as_str()),
            vec![("elinvar", Box::new(|| ops.silu_mul(&gates, &gates))), ("candle", Box::new(|| gates.silu()? * &gates))],
        )?;
    }
    Ok(())
}
