//! What the Metal device costs the host to decode a token with a model of the 8b shape, and what an operator on eight numbers costs on the CPU device:
//! `host_cost [LAYERS]`.
//!
//! Everything is the library's but Metal's objects, which do nothing: what Apple's framework and driver take comes on top. The time is that of whole
//! steps as `elinvar generate` takes them, the reading of the token included, over their launches.

mod nothing;

use std::{
    error::Error,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use elinvar::{BackendType, DType, Executor};
use elinvar_core::{Device, DeviceKind};
use elinvar_llm::{Config, Model, Session};
use elinvar_metal::MetalBackend;
use nothing::Nothing;

/// Tokens of a round, and rounds.
const TOKENS: usize = 100;
const ROUNDS: usize = 51;

fn main() -> Result<(), Box<dyn Error>> {
    let layers = std::env::args().nth(1).map_or(Ok(32), |text| text.parse())?;
    let config = Config::llama3(layers, [4096, 14_336], [32, 8], 128_256);
    let nothing = Nothing::default();
    let executor = Executor::from_device(Device::new(MetalBackend::new(nothing.clone(), DeviceKind::Metal)));
    let model = Arc::new(Model::random(&executor, config, elinvar_llm::WeightType::Plain(DType::BF16), 1)?);
    let mut session = Session::new(model, 8192, DType::F16)?;
    let mut round = || -> Result<f64, Box<dyn Error>> {
        session.truncate(0);
        let start = Instant::now();
        for token in session.greedy(0, TOKENS)? {
            token?;
        }
        Ok(start.elapsed().as_secs_f64() / TOKENS as f64)
    };
    round()?;
    let counts = [&nothing.launches, &nothing.barriers];
    counts.iter().for_each(|count| count.store(0, Relaxed));
    let mut seconds = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<_>, _>>()?;
    seconds.sort_by(f64::total_cmp);
    let [launches, barriers] = counts.map(|count| count.load(Relaxed) as f64 / (ROUNDS * TOKENS) as f64);
    println!("a token: {launches} launches, {barriers} barriers");
    for (name, seconds) in [("fastest", seconds[0]), ("median", seconds[ROUNDS / 2])] {
        println!("{name} of {ROUNDS} rounds of {TOKENS} tokens: {:.1} µs a token, {:.0} ns a launch", 1e6 * seconds, 1e9 * seconds / launches);
    }
    eager()
}

/// One operator after another, each waiting for nothing, on tensors so small that computing them takes no time.
fn eager() -> Result<(), Box<dyn Error>> {
    const CALLS: usize = 10_000;
    let executor = Executor::new_with_backend(BackendType::Cpu)?;
    let (x, y) = (executor.tensor(&[8], &[1f32; 8])?, executor.tensor(&[8], &[2f32; 8])?);
    let round = || -> Result<f64, Box<dyn Error>> {
        let start = Instant::now();
        let mut sum = x.add(&y)?;
        for _ in 1..CALLS {
            sum = x.add(&y)?;
        }
        sum.to_vec::<f32>()?;
        Ok(start.elapsed().as_secs_f64() / CALLS as f64)
    };
    round()?;
    let mut seconds = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<_>, _>>()?;
    seconds.sort_by(f64::total_cmp);
    println!(
        "eager add of 8 numbers on the CPU: fastest of {ROUNDS} rounds of {CALLS} {:.2} µs, median {:.2} µs",
        1e6 * seconds[0],
        1e6 * seconds[ROUNDS / 2]
    );
    Ok(())
}
