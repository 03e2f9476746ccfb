use std::sync::Arc;
use std::time::Duration;

use bytemuck::cast_slice;
use clap::Args;
use elinvar::{DType, Error, Executor, Operator, Precision, Result, SplitMix64, Tensor, kernels::registry::find};
use half::{bf16, f16};
use serde_json::{Value, json};

use super::{
    args::RowArgs,
    rows::{CHAIN, Row, chain, rows},
    timing::{replay_profiled, replay_seconds},
};
use crate::{
    measure::{Ceilings, units},
    output::print_line,
    profile::{self, Profiler},
};

/// Arguments of `elinvar bench ops`.
#[derive(Debug, Args)]
pub(crate) struct OpsArgs {
    /// Run only the rows whose name contains this
    #[arg(long, default_value = "", hide_default_value = true)]
    filter: String,
    /// Give every call the same inputs, which may then come from a cache
    #[arg(long)]
    warm: bool,
    #[command(flatten)]
    rows: RowArgs,
}

pub(crate) fn run(args: &OpsArgs) -> Result<()> {
    let trace = args.rows.profile.open()?;
    let executor = args.rows.device.executor()?;
    let mut profiler = args.rows.profile.profiler(&executor)?;
    let properties = executor.properties().clone();
    let ceilings = Ceilings::of(&executor)?;
    let mut results = Vec::new();
    if !args.rows.json {
        print_line(format!("{} · {} {}", properties.name, properties.compute_units, units(&properties)));
        print_line(format!("ceilings: {}\n", ceilings.describe()));
        print_line(format!("{:<62} {:>11} {:>9} {:>9} {:>7}", "operator", "µs", "GB/s", "GFLOP/s", "limit"));
    }
    for row in rows(&properties).into_iter().filter(|r| r.name().contains(&args.filter)) {
        let result = measure(&executor, &row, ceilings, args, &mut profiler)?;
        if !args.rows.json {
            print_line(&result.text);
        }
        results.push(result.json);
    }
    profile::finish(profiler, trace.as_deref())?;
    if args.rows.json {
        print_line(json!({
            "device": properties.name, "compute_units": properties.compute_units, "ceilings": ceilings.json(), "rows": Value::Array(results)
        }));
    }
    Ok(())
}

struct Measured {
    text: String,
    json: Value,
}

fn measure(executor: &Executor, row: &Row, ceilings: Ceilings, args: &OpsArgs, profiler: &mut Option<Profiler>) -> Result<Measured> {
    /// Bytes of inputs to rotate through: more than the largest cache.
    const ARENA: usize = 1 << 30;
    const MAX_SETS: usize = 256;
    /// Bytes of results that a cache keeps.
    const KEPT: usize = 16 << 20;
    /// What one replay takes at least, unless that would be too many calls: launching it and waiting for it must not count.
    const REPLAY_SECONDS: f64 = 4e-3;
    const MAX_CALLS: usize = 1024;
    let operator = if row.operator == CHAIN { None } else { Some(find(row.operator)?) };
    let operator =
        operator.map(|found| Ok::<_, Error>((Arc::<dyn Operator>::from(found.operator(row.attributes.clone())?), found.inputs.len()))).transpose()?;
    let set_bytes = row.input_bytes();
    let sets = match (args.warm, row.is_cold()) {
        (true, _) => 1,
        (false, true) => ARENA.div_ceil(set_bytes.max(1)).clamp(2, MAX_SETS),
        (false, false) => 2,
    };
    let mut inputs = Vec::new();
    for set in 0..sets {
        let make = |(dtype, shape): &(DType, Vec<usize>)| random(executor, *dtype, shape, set as u64);
        inputs.push(row.inputs.iter().map(make).collect::<Result<Vec<_>>>()?);
    }
    let record = |calls: usize| {
        executor.record(|recorded| {
            let mut output_bytes = 0;
            for set in inputs.iter().cycle().take(calls) {
                let outputs = match (&operator, &set[..]) {
                    (None, [a, b, ..]) => vec![chain(recorded, a, b)?],
                    (None, _) => return Err(Error::invalid_argument("a chain of fewer than two tensors")),
                    (Some((operator, inputs)), _) => {
                        let mut bound: Vec<_> = set.iter().map(Some).collect();
                        bound.resize(*inputs, None);
                        recorded.apply(operator.clone(), &bound)?
                    }
                };
                output_bytes = outputs.iter().map(|t| t.shape().elements() * t.dtype().size()).sum();
            }
            Ok(output_bytes)
        })
    };
    let (mut recording, output_bytes) = record(sets)?;
    let once = replay_seconds(executor, &recording, Duration::ZERO)?;
    let calls = sets * ((REPLAY_SECONDS / once).ceil() as usize).clamp(1, MAX_CALLS / sets);
    if calls > sets {
        recording = record(calls)?.0;
    }
    let seconds = replay_seconds(executor, &recording, Duration::from_secs_f64(args.rows.seconds))?;
    replay_profiled(executor, &recording, &row.name(), seconds, profiler)?;
    let time = seconds / calls as f64;
    let bytes = (set_bytes + output_bytes) as f64;
    let (bandwidth, rate) = (bytes / time, row.operations / time);
    // What hardly writes is compared with reading, and so is what writes where a cache keeps it: all calls have the same memory for results.
    let moved = if output_bytes <= KEPT { set_bytes as f64 / time / ceilings.read } else { bandwidth / ceilings.memory };
    let is_fast_bf16 = row.inputs[0].0 == DType::BF16 && row.attributes.contains(&("precision", Precision::Fast.to_string()));
    let limit = moved.max(rate / if is_fast_bf16 { ceilings.bf16 } else { ceilings.arithmetic });
    let shown = |x: f64| if x > 0.0 { format!("{x:.1}") } else { "–".into() };
    let name = row.name();
    let percent = format!("{:.0} %", limit * 100.0);
    let text = format!("{name:<62} {:>11.1} {:>9.1} {:>9} {percent:>7}", time * 1e6, bandwidth / 1e9, shown(rate / 1e9));
    let json = json!({
        "name": name, "work": row.work(), "sets": sets, "calls": calls, "seconds": time, "bytes": bytes, "operations": row.operations,
        "bytes_per_second": bandwidth, "operations_per_second": rate, "fraction_of_limit": limit,
    });
    Ok(Measured { text, json })
}

/// Uniform values in -1..1, and bytes: a pattern whose length is prime, repeated, so that no two rows of a matrix are the same.
fn random(executor: &Executor, dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor> {
    const PATTERN: usize = 1_048_573;
    let mut random = SplitMix64::new(seed);
    let mut next = || (random.next_u64() >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count.min(PATTERN)).map(|_| next()).collect();
    let pattern: Vec<u8> = match dtype {
        DType::F32 => cast_slice(&values).to_vec(),
        DType::F16 => cast_slice(&values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>()).to_vec(),
        DType::BF16 => cast_slice(&values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>()).to_vec(),
        DType::U8 => values.iter().map(|v| (128.0 * (v + 1.0)) as u8).collect(),
        DType::F64 | DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U16 | DType::U32 | DType::U64 => {
            return Err(Error::unsupported(format!("random values of {dtype}")));
        }
    };
    let bytes: Vec<u8> = pattern.iter().copied().cycle().take(count * dtype.size()).collect();
    executor.tensor_from_bytes(dtype, shape, &bytes)
}
