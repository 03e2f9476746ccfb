use std::time::Duration;

use clap::Args;
use elinvar::{DType, DeviceKind, Error, Executor, Precision, Result, Tensor, kernels::registry::find};
use serde_json::{Value, json};

use super::{ceiling::Ceilings, timing::replay_seconds};
use crate::{args::DeviceArgs, commands::print_line};

/// Arguments of `elinvar bench ops`.
#[derive(Debug, Args)]
pub(crate) struct OpsArgs {
    /// Only rows whose name contains this
    #[arg(long, default_value = "", hide_default_value = true)]
    filter: String,
    /// Seconds spent on each row
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// One measured operator: its inputs are random, rotated so that they come from memory and not from a cache.
struct Row {
    operator: &'static str,
    attributes: Vec<(&'static str, String)>,
    inputs: Vec<Option<(DType, Vec<usize>)>>,
    /// Arithmetic operations, where arithmetic may be the limit.
    operations: f64,
}

impl Row {
    fn new(operator: &'static str, dtype: DType, shapes: &[&[usize]]) -> Self {
        let inputs = shapes.iter().map(|s| Some((dtype, s.to_vec()))).collect();
        Self { operator, attributes: Vec::new(), inputs, operations: 0.0 }
    }

    fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    fn product(dtype: DType, m: usize, n: usize, k: usize, precision: Precision) -> Self {
        let row = Row::new("matmul", dtype, &[&[m, k], &[n, k]]).with("transpose_b", true);
        let precision = if precision == Precision::Strict { "strict" } else { "fast" };
        Row { operations: 2.0 * (m * n * k) as f64, ..row }.with("precision", precision)
    }

    fn name(&self) -> String {
        let inputs: Vec<_> = self.inputs.iter().flatten().map(|(dtype, shape)| format!("{dtype}{shape:?}")).collect();
        let attributes: Vec<_> = self.attributes.iter().map(|(k, v)| format!(" {k}={v}")).collect();
        format!("{} {}{}", self.operator, inputs.join(" "), attributes.concat())
    }
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        rows.push(Row::new("add", dtype, &[&[1 << 24], &[1 << 24]]));
        rows.push(Row::new("silu", dtype, &[&[1 << 24]]));
        for shape in [[1024, 1024], [4096, 4096]] {
            rows.push(Row::new("softmax", dtype, &[&shape]));
            rows.push(Row::new("rms_norm", dtype, &[&shape, &shape[1..]]));
            rows.push(Row::new("layer_norm", dtype, &[&shape, &shape[1..], &shape[1..]]));
        }
        rows.push(Row::new("reduce_sum", dtype, &[&[4096, 4096]]).with("axes", -1));
        rows.push(Row::product(dtype, 1, 4096, 4096, Precision::Strict));
        rows.push(Row::product(dtype, 1024, 1024, 1024, Precision::Strict));
        rows.push(Row::product(dtype, 1024, 1024, 1024, Precision::Fast));
    }
    rows
}

pub(crate) fn run(args: &OpsArgs) -> Result<()> {
    let executor = args.device.executor()?;
    let properties = executor.properties().clone();
    let ceilings = (properties.kind == DeviceKind::Cpu).then(|| Ceilings::of_host(properties.compute_units));
    let mut results = Vec::new();
    if !args.json {
        print_line(format!("{} · {} threads", properties.name, properties.compute_units));
        if let Some(c) = ceilings {
            print_line(format!("ceilings measured now: read {:.1} GB/s, f32 fused multiply-add {:.0} GFLOP/s\n", c.read / 1e9, c.arithmetic / 1e9));
        }
        print_line(format!("{:<62} {:>11} {:>9} {:>9} {:>7}", "operator", "µs", "GB/s", "GFLOP/s", "limit"));
    }
    for row in rows().into_iter().filter(|r| r.name().contains(&args.filter)) {
        let result = measure(&executor, &row, ceilings, args.seconds)?;
        if !args.json {
            print_line(&result.text);
        }
        results.push(result.json);
    }
    if args.json {
        let ceilings = ceilings.map(|c| json!({ "read_bytes_per_second": c.read, "f32_operations_per_second": c.arithmetic }));
        print_line(json!({ "device": properties.name, "threads": properties.compute_units, "ceilings": ceilings, "rows": Value::Array(results) }));
    }
    Ok(())
}

struct Measured {
    text: String,
    json: Value,
}

fn measure(executor: &Executor, row: &Row, ceilings: Option<Ceilings>, seconds: f64) -> Result<Measured> {
    /// Bytes of inputs to rotate through: more than the largest cache.
    const ARENA: usize = 1 << 30;
    const MOST_SETS: usize = 256;
    let description = find(row.operator)?;
    let operator = description.operator(row.attributes.clone())?;
    let set_bytes: usize = row.inputs.iter().flatten().map(|(dtype, shape)| shape.iter().product::<usize>() * dtype.size()).sum();
    let cold = row.operations == 0.0 || row.inputs.iter().flatten().any(|(_, shape)| shape[0] == 1);
    let sets = if cold { ARENA.div_ceil(set_bytes.max(1)).clamp(2, MOST_SETS) } else { 2 };
    let mut inputs = Vec::new();
    for set in 0..sets {
        let make = |input: &Option<(DType, Vec<usize>)>| input.as_ref().map(|(dtype, shape)| random(executor, *dtype, shape, set as u64)).transpose();
        inputs.push(row.inputs.iter().map(make).collect::<Result<Vec<_>>>()?);
    }
    let mut output_bytes = 0;
    let (recording, ()) = executor.record(|| {
        for set in &inputs {
            let mut bound: Vec<_> = set.iter().map(Option::as_ref).collect();
            bound.resize(description.inputs.len(), None);
            let outputs = executor.apply(operator.as_ref(), &bound)?;
            output_bytes = outputs.iter().map(|t| t.shape().elements() * t.dtype().size()).sum();
        }
        Ok(())
    })?;
    let time = replay_seconds(executor, &recording, Duration::from_secs_f64(seconds))? / sets as f64;
    let bytes = (set_bytes + output_bytes) as f64;
    let (bandwidth, rate) = (bytes / time, row.operations / time);
    let limit = ceilings.map(|c| (bandwidth / c.read).max(rate / c.arithmetic));
    let shown = |x: f64| if x > 0.0 { format!("{x:.1}") } else { "–".into() };
    let percent = limit.map_or("–".into(), |l| format!("{:.0} %", l * 100.0));
    let name = row.name();
    let text = format!("{name:<62} {:>11.1} {:>9.1} {:>9} {percent:>7}", time * 1e6, bandwidth / 1e9, shown(rate / 1e9));
    let json = json!({
        "name": name, "seconds": time, "bytes": bytes, "operations": row.operations,
        "bytes_per_second": bandwidth, "operations_per_second": rate, "fraction_of_limit": limit,
    });
    Ok(Measured { text, json })
}

/// Uniform values in -1..1, made on the device from a cheap host pattern.
fn random(executor: &Executor, dtype: DType, shape: &[usize], seed: u64) -> Result<Tensor> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        // Xorshift (Marsaglia, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| next()).collect();
    match dtype {
        DType::F32 => executor.tensor(shape, &values),
        DType::F16 | DType::BF16 => executor.tensor(shape, &values)?.cast(dtype),
        _ => Err(Error::unsupported(format!("random values of {dtype}"))),
    }
}
