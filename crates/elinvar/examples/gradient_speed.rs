//! Times forward and backward passes beside which `benchmarks/peers/torch_gradients.py` puts PyTorch's:
//! `cargo run --release -p elinvar --example gradient_speed -- [DEVICE] [SHRINK]`. One line of JSON each, in microseconds and bytes.
//! `SHRINK` divides the sizes.

use std::time::Instant;

use elinvar::{
    BackendType, DType, Error, Executor, Precision, Result, Tensor,
    kernels::{attention::Attention, registry::find},
};

/// Logits in memory together, as in training.
const LOGITS: usize = 1 << 27;

/// Repetitions of a recording, at least, and seconds.
const TIMES: usize = 10;
const SECONDS: f64 = 0.5;

/// Records `work`, and times its replays; its results stay in memory.
fn report(executor: &Executor, name: &str, inputs: usize, work: impl FnOnce(&Executor) -> Result<Vec<Tensor>>) -> Result<()> {
    executor.pool().clear();
    let before = executor.pool().statistics().live_bytes;
    let (recording, results) = executor.record(work)?;
    executor.replay(&recording)?.wait()?;
    let (start, mut taken) = (Instant::now(), Vec::new());
    while taken.len() < TIMES || start.elapsed().as_secs_f64() < SECONDS {
        let begin = Instant::now();
        executor.replay(&recording)?.wait()?;
        taken.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    taken.sort_by(f64::total_cmp);
    let statistics = executor.pool().statistics();
    let above = (statistics.live_bytes + statistics.cached_bytes).saturating_sub(before);
    let finite = results.iter().map(|result| Ok(result.cast(DType::F32)?.abs()?.max(&[], false)?.item::<f32>()?.is_finite()));
    if !finite.collect::<Result<Vec<_>>>()?.into_iter().all(|finite| finite) {
        return Err(Error::internal(format!("{name}: a result is no number")));
    }
    println!(r#"{{"name": "{name}", "us": {:.1}, "bytes_above_inputs": {above}, "input_bytes": {inputs}}}"#, taken[taken.len() / 2]);
    Ok(())
}

/// Random values, of which a part is repeated: they are made on the host.
fn random(executor: &Executor, dims: &[usize], seed: u64) -> Result<Tensor> {
    let count: usize = dims.iter().product();
    let part = (1..=count.min(1 << 20)).rev().find(|part| count.is_multiple_of(*part)).unwrap_or(1);
    executor.randn(&[1, part], seed)?.broadcast_to(&[count / part, part])?.contiguous()?.reshape(dims)
}

fn attention(executor: &Executor, tokens: usize) -> Result<()> {
    let random = |heads: usize, seed: u64| random(executor, &[1, heads, tokens, 128], seed)?.cast(DType::BF16);
    let [q, k, v, dy] = [random(32, 1)?, random(8, 2)?, random(8, 3)?, random(32, 4)?];
    let mut operator = Attention { precision: Precision::Fast, ..Attention::default() };
    operator.scoring.causal = true;
    let y = q.attention(&operator, &k, &v, None, None)?;
    let attributes = [("causal", "true".to_owned()), ("precision", "fast".to_owned())];
    let gradient: std::sync::Arc<dyn elinvar::Operator> = find("attention_gradient")?.operator(attributes)?.into();
    report(executor, &format!("attention backward {tokens}"), 0, |recorded| {
        recorded.apply(gradient, &[Some(&q), Some(&k), Some(&v), None, None, None, Some(&y), Some(&dy)])
    })
}

fn rows(executor: &Executor, dtype: DType, [count, length]: [usize; 2]) -> Result<()> {
    let random = |dims: &[usize], seed: u64| random(executor, dims, seed)?.cast(dtype);
    let (x, dy) = (random(&[count, length], 1)?.requires_grad()?, random(&[count, length], 2)?);
    let (weight, bias) = (random(&[length], 3)?.requires_grad()?, random(&[length], 4)?.requires_grad()?);
    let both = |name: &str, leaves: &[&Tensor], forward: &dyn Fn(&Tensor) -> Result<Tensor>| {
        report(executor, &format!("{name} {dtype} forward and backward"), 0, |recorded| {
            let y = forward(&x.on(recorded)?)?;
            let gradients = y.backward_from(&dy)?;
            leaves.iter().map(|leaf| gradients.of(leaf).cloned()).chain([Ok(y.detach())]).collect()
        })
    };
    both("softmax", &[&x], &|x| x.softmax(-1))?;
    both("rms_norm", &[&x, &weight], &|x| x.rms_norm(Some(&weight), 1e-5))?;
    both("layer_norm", &[&x, &weight, &bias], &|x| x.layer_norm(Some(&weight), Some(&bias), 1e-5))
}

fn gates(executor: &Executor, dtype: DType, dims: [usize; 2]) -> Result<()> {
    let [gate, up, dy] = [1, 2, 3].map(|seed| random(executor, &dims, seed)?.cast(dtype));
    let (gate, up, dy) = (gate?.requires_grad()?, up?.requires_grad()?, dy?);
    report(executor, &format!("swiglu {dtype}"), 0, |recorded| Ok(vec![gate.detach().on(recorded)?.swiglu(&up.detach())?]))?;
    report(executor, &format!("swiglu {dtype} forward and backward"), 0, |recorded| {
        let y = gate.on(recorded)?.swiglu(&up)?;
        let gradients = y.backward_from(&dy)?;
        [&gate, &up].into_iter().map(|leaf| gradients.of(leaf).cloned()).chain([Ok(y.detach())]).collect()
    })
}

fn losses(executor: &Executor, dtype: DType, [count, classes]: [usize; 2]) -> Result<()> {
    let logits = random(executor, &[count, classes], 1)?.cast(dtype)?;
    let classes_of: Vec<i32> = (0..count).map(|row| (row * 7919 % classes) as i32).collect();
    let (targets, dy) = (executor.tensor(&[count], &classes_of)?, executor.ones(DType::F32, &[count])?);
    let operator = |name: &str, attributes: &[(&str, &str)]| -> Result<std::sync::Arc<dyn elinvar::Operator>> {
        Ok(find(name)?.operator(attributes.iter().map(|&(name, value)| (name, value.to_owned())))?.into())
    };
    let (loss, gradient) = (operator("cross_entropy", &[("statistics", "true")])?, operator("cross_entropy_gradient", &[])?);
    let both = operator("cross_entropy_with_gradient", &[])?;
    let known = executor.apply(loss.clone(), &[Some(&logits), Some(&targets)])?;
    let given = [Some(&logits), Some(&targets), Some(&dy), known.get(1), known.get(2)];
    report(executor, &format!("cross_entropy {dtype}"), 0, |recorded| recorded.apply(loss, &given[..2]))?;
    report(executor, &format!("cross_entropy {dtype} backward"), 0, |recorded| recorded.apply(gradient, &given))?;
    report(executor, &format!("cross_entropy {dtype} forward and backward at once"), 0, |recorded| {
        recorded.apply(both, &[given[0], given[1], given[2], None, None])
    })
}

fn linear_cross_entropy(executor: &Executor, [count, width, classes]: [usize; 3], is_frozen: bool) -> Result<()> {
    let random = |dims: &[usize], seed: u64| (random(executor, dims, seed)? * 0.02)?.cast(DType::BF16);
    let (x, weight) = (random(&[count, width], 1)?, random(&[classes, width], 2)?);
    let weight = if is_frozen { weight } else { weight.requires_grad()? };
    let classes_of: Vec<i32> = (0..count).map(|row| (row * 7919 % classes) as i32).collect();
    let targets = executor.tensor(&[count], &classes_of)?;
    let part = count.div_ceil(count.div_ceil((LOGITS / classes).max(1)));
    let name = if is_frozen { "linear and cross-entropy, frozen weight" } else { "linear and cross-entropy" };
    report(executor, name, 2 * width * (count + classes), |recorded| {
        let (mut losses, mut dx, mut dw) = (Vec::new(), Vec::new(), None);
        for first in (0..count).step_by(part) {
            let rows = part.min(count - first);
            let x = x.on(recorded)?.slice(0, first, rows, 1)?.requires_grad()?;
            let loss = x.linear(&weight, None)?.cross_entropy(&targets.slice(0, first, rows, 1)?, None)?.sum(&[], false)?;
            let loss = (loss * (1.0 / count as f64))?;
            let gradients = loss.backward()?;
            dx.push(gradients.of(&x)?.clone());
            if !is_frozen {
                let more = gradients.of(&weight)?;
                dw = Some(match dw {
                    Some(sum) => more.add(&sum)?,
                    None => more.clone(),
                });
            }
            losses.push(loss.detach());
        }
        let dx = Tensor::concat(&dx.iter().collect::<Vec<_>>(), 0)?;
        let loss = losses.into_iter().map(Ok).reduce(|sum, loss| sum?.add(&loss?)).ok_or_else(|| Error::internal("no rows"))??;
        Ok([dx, loss].into_iter().chain(dw).collect())
    })
}

/// Times all of it.
///
/// # Errors
/// A device that is not there, or failed.
pub fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let executor = match arguments.next().as_deref() {
        None | Some("auto") => Executor::new_auto()?,
        Some("cuda") => Executor::new_with_backend(BackendType::Cuda(0))?,
        Some("cpu") => Executor::new_with_backend(BackendType::Cpu)?,
        Some(name) => return Err(Error::invalid_argument(format!("device '{name}': auto, cuda or cpu expected"))),
    };
    let executor = executor.with_precision(Precision::Fast);
    let shrink: usize = arguments.next().and_then(|argument| argument.parse().ok()).unwrap_or(1);
    for tokens in [4096, 16384] {
        attention(&executor, tokens / shrink)?;
    }
    for dtype in [DType::F32, DType::BF16] {
        rows(&executor, dtype, [16384 / shrink, 8192 / shrink])?;
    }
    for dtype in [DType::F32, DType::BF16] {
        losses(&executor, dtype, [4096 / shrink, 128_256 / shrink])?;
        gates(&executor, dtype, [16384 / shrink, 8192 / shrink])?;
    }
    let sizes = [4096, 2048, 128_256].map(|extent| extent / shrink);
    linear_cross_entropy(&executor, sizes, true)?;
    linear_cross_entropy(&executor, sizes, false)
}
