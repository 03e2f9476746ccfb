//! Times fused expressions against the operators they stand for: `cargo run --release -p elinvar --example fusion -- [DEVICE]`. Prints Markdown.
//!
//! Runs alternate; inputs are larger than the caches.

use std::{error::Error, time::Instant};

use elinvar::{
    DType, Executor, ProgramArgument, Recording, Result, Tensor,
    atlas::{self, Constant, LaunchConfig},
};

/// A block adds up a row.
const ROW_SUM: &str = include_str!("../../../examples/row_sum.atlas");

/// Microseconds of a replay: medians of alternating runs.
fn race(executor: &Executor, recordings: [&Recording; 2]) -> Result<[f64; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..16 {
        for (recording, times) in recordings.iter().zip(&mut times) {
            executor.replay(recording)?.wait()?;
            let start = Instant::now();
            executor.replay(recording)?.wait()?;
            if round > 0 {
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}

fn row(name: &str, [ours, theirs]: [f64; 2]) {
    println!("| {name} | {ours:.1} | {theirs:.1} | {:.2} |", theirs / ours);
}

fn random(executor: &Executor, dims: &[usize], dtype: DType) -> Result<Tensor> {
    let values: Vec<f32> =
        (0..dims.iter().product::<usize>() as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 4_194_304.0 - 2.0).collect();
    executor.tensor(dims, &values)?.cast(dtype)
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "cpu".to_owned());
    let executor = Executor::new_with_backend(device.parse()?)?;
    let gpu = executor.properties().has_simdgroups();
    let (n, rows) = if gpu { (1 << 28, [16_384, 8192]) } else { (1 << 24, [4096, 4096]) };
    println!("{}\n\n| work | fused, µs | one by one, µs | ratio |\n| --- | --- | --- | --- |", executor.properties().name);
    for dtype in [DType::F32, DType::BF16] {
        let (a, b) = (random(&executor, &[n], dtype)?, random(&executor, &[n], dtype)?);
        let (fused, y) = executor.record(|recorded| a.on(recorded)?.silu()?.mul(&b)?.add(&a)?.clamp(-1.0, 1.0))?;
        let (first, s) = executor.record(|recorded| a.on(recorded)?.silu())?;
        let (second, m) = executor.record(|recorded| s.on(recorded)?.mul(&b))?;
        let (third, p) = executor.record(|recorded| m.on(recorded)?.add(&a))?;
        let (fourth, z) = executor.record(|recorded| p.on(recorded)?.clamp(-1.0, 1.0))?;
        let single = Recording::concat([&first, &second, &third, &fourth])?;
        let times = race(&executor, [&fused, &single])?;
        assert!(y.to_bytes()? == z.to_bytes()?, "the bits differ");
        row(&format!("clamp(silu(a)·b + a), {dtype}, n = {n}: {} launch, {} launches", fused.len(), single.len()), times);
    }
    let x = random(&executor, &rows, DType::F32)?;
    if gpu {
        let sum = executor.compile_program(atlas::parse(ROW_SUM)?)?;
        let y = executor.zeros(DType::F32, &[rows[0]])?;
        let launch = LaunchConfig::new([rows[0] as u32, 1, 1], [256, 1, 1]);
        let words = Constant::u32(rows[1] as u32 / 4);
        let arguments = [("x", ProgramArgument::Tensor(&x)), ("y", ProgramArgument::Tensor(&y)), ("words", ProgramArgument::Scalar(words))];
        let (program, ()) = executor.record(|recorded| sum.on(recorded)?.launch(&launch, &arguments))?;
        let (kernel, _z) = executor.record(|recorded| x.on(recorded)?.sum(&[-1], false))?;
        row(&format!("block reduction as an Atlas program and `sum`, f32 {rows:?}"), race(&executor, [&program, &kernel])?);
    }
    Ok(())
}
