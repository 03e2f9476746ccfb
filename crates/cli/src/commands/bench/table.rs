use std::time::Duration;

use elinvar::{
    DType, DeviceKind, Executor, Operator, Precision, Recording, Result, Tensor,
    kernels::{
        binary::{Binary, BinaryOp},
        conformance::{Bound, Case, HostTensor, Placement, run as run_case},
        layer_norm::LayerNorm,
        lora::LoraLinear,
        matmul::MatMul,
        rms_norm::RmsNorm,
        softmax::Softmax,
        unary::{Unary, UnaryOp},
    },
};
use serde_json::{Value, json};

use super::{
    args::RowArgs,
    timing::{replay_profiled, replay_seconds},
};
use crate::{
    measure::published_bandwidth,
    output::print_line,
    profile::{self, Profiler},
};

/// One piece of work and the time that was published for MLX on an M-series chip, whose measurement evaluated lazily.
struct Row {
    name: &'static str,
    case: Case,
    target_us: f64,
}

/// Operators in a row of one recording.
const REPEATS: usize = 100;

const EPSILON: f32 = 1e-5;

pub(crate) fn run(args: &RowArgs) -> Result<()> {
    let trace = args.profile.open()?;
    let executor = args.device.executor()?;
    let mut profiler = args.profile.profiler(&executor)?;
    let properties = executor.properties();
    let bandwidth = if properties.kind == DeviceKind::Metal { published_bandwidth(properties) } else { None };
    let simulated = properties.kind == DeviceKind::MetalSim;
    let mut results = Vec::new();
    if !args.json {
        print_line(format!("{} · f32 · each row verified against float64, then timed; the device is waited for", properties.name));
        print_line("alone: one operator submitted and waited for; of 100: its share of a recording of a hundred that depend on nothing");
        print_line("published: for MLX on an M-series chip, evaluated lazily: not measured here, and not the same work as `alone`");
        if simulated {
            print_line("the simulator runs and checks the kernels on this machine's processor: its times say nothing of a GPU, nor of repetition");
        }
        let limit = bandwidth.map_or_else(String::new, |b| format!("limit: bytes over the {:.0} GB/s that Apple publishes\n", b / 1e9));
        print_line(format!("{limit}\n{:<34} {:>10} {:>10} {:>10} {:>9}", "µs", "alone", "of 100", "published", "limit"));
    }
    for row in rows(executor.precision()) {
        verify(&executor, &row.case)?;
        let mut time = |count, profiled: bool| {
            let mut none = None;
            measure(&executor, &row, count, args.seconds / 2.0, if profiled { &mut profiler } else { &mut none }).map(|seconds| 1e6 * seconds)
        };
        let alone = time(1, simulated)?;
        let of_100 = if simulated { None } else { Some(time(REPEATS, true)?) };
        let limit = bandwidth.map(|bandwidth| 1e6 * bytes(&row.case) as f64 / bandwidth);
        if !args.json {
            let [of_100, limit] = [of_100, limit].map(|us| us.map_or_else(|| "–".to_owned(), |us| format!("{us:.2}")));
            print_line(format!("{:<34} {alone:>10.2} {of_100:>10} {:>10.2} {limit:>9}", row.name, row.target_us));
        }
        results.push(json!({ "name": row.name, "alone_us": alone, "of_100_us": of_100, "published_us": row.target_us, "limit_us": limit }));
    }
    profile::finish(profiler, trace.as_deref())?;
    if args.json {
        print_line(json!({ "device": properties.name, "rows": Value::Array(results) }));
    }
    Ok(())
}

/// Compares a case's results on the device with float64.
fn verify(executor: &Executor, case: &Case) -> Result<()> {
    case.check(&run_case(case, executor.device(), Placement::Aligned)?)
}

/// Seconds of one of `count` operators that are submitted together, timed for so long, and then profiled.
fn measure(executor: &Executor, row: &Row, count: usize, seconds: f64, profiler: &mut Option<Profiler>) -> Result<f64> {
    let case = &row.case;
    let tensor = |host: &HostTensor| executor.tensor_from_bytes(host.dtype(), host.dims(), host.bytes());
    let inputs = case.inputs.iter().map(|input| input.as_ref().map(tensor).transpose()).collect::<Result<Vec<_>>>()?;
    let bound: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
    // Each has outputs of its own, so that none waits for the memory of another.
    let recordings = (0..count).map(|_| executor.record(|recorded| recorded.apply(case.operator.clone(), &bound)).map(|(recording, _)| recording));
    let recording = Recording::concat(&recordings.collect::<Result<Vec<_>>>()?)?;
    let seconds = replay_seconds(executor, &recording, Duration::from_secs_f64(seconds))?;
    replay_profiled(executor, &recording, row.name, seconds, profiler)?;
    Ok(seconds / count as f64)
}

fn bytes(case: &Case) -> usize {
    let inputs = case.inputs.iter().flatten().map(|input| input.bytes().len()).sum::<usize>();
    let outputs = case.infos().and_then(|infos| case.operator.infer(&infos)).unwrap_or_default();
    inputs + outputs.iter().map(|output| output.bytes()).sum::<usize>()
}

fn random(dims: &[usize], seed: u64) -> HostTensor {
    HostTensor::random(DType::F32, dims, -1.0, 1.0, seed)
}

fn case(
    operator: impl Operator + 'static,
    inputs: Vec<HostTensor>,
    bound: Bound,
    exact: impl Fn(&[Vec<f64>]) -> Vec<f64> + Send + Sync + 'static,
) -> Case {
    let inputs: Vec<_> = inputs.into_iter().map(Some).collect();
    Case::new(operator, inputs, bound, move |inputs| vec![exact(inputs)])
}

fn rows(precision: Precision) -> Vec<Row> {
    const N: usize = 10_000;
    const SIDE: usize = 256;
    let pair = || vec![random(&[N], 1), random(&[N], 2)];
    let each = |x: &[f64], y: &[f64], of: fn(f64, f64) -> f64| x.iter().zip(y).map(|(x, y)| of(*x, *y)).collect::<Vec<_>>();
    let add = case(Binary { op: BinaryOp::Add }, pair(), Bound::EXACT, move |t| each(&t[0], &t[1], |x, y| x + y));
    let mul = case(Binary { op: BinaryOp::Mul }, pair(), Bound::EXACT, move |t| each(&t[0], &t[1], |x, y| x * y));
    let relu = case(Unary { op: UnaryOp::Relu }, vec![random(&[N], 3)], Bound::EXACT, |t| t[0].iter().map(|x| x.max(0.0)).collect());
    let product = case(
        MatMul { precision, ..MatMul::default() },
        vec![random(&[SIDE, SIDE], 4), random(&[SIDE, SIDE], 5)],
        // Strict sums round 256 times at most; fast ones may round the factors.
        Bound::normalised(if precision == Precision::Strict { 1e-6 } else { 5e-3 }),
        |t| linear(&t[0], &transposed(&t[1], SIDE), SIDE),
    );
    let mut rows = vec![
        Row { name: "add [10000]", case: add, target_us: 3.0 },
        Row { name: "mul [10000]", case: mul, target_us: 4.0 },
        Row { name: "relu [10000]", case: relu, target_us: 2.0 },
        Row { name: "matmul 256³", case: product, target_us: 200.0 },
    ];
    rows.extend([("LoRA linear, one row, 512, rank 8", 512, 5.79), ("LoRA linear, one row, 1024, rank 8", 1024, 5.24)].map(lora));
    rows.push(lora(("LoRA linear, one row, 2048, rank 8", 2048, 11.86)));
    rows.extend(norms());
    rows
}

/// `y = x Wᵀ + (x Aᵀ) Bᵀ`.
fn lora((name, d, target_us): (&'static str, usize, f64)) -> Row {
    const RANK: usize = 8;
    let inputs = vec![random(&[1, d], 6), random(&[d, d], 7), random(&[RANK, d], 8), random(&[d, RANK], 9)];
    let operator = LoraLinear { scale: 1.0, precision: Precision::Strict };
    let exact = move |t: &[Vec<f64>]| {
        let adapter = linear(&linear(&t[0], &t[2], d), &t[3], RANK);
        linear(&t[0], &t[1], d).iter().zip(adapter).map(|(y, a)| y + a).collect()
    };
    Row { name, case: case(operator, inputs, Bound::normalised(1e-6), exact), target_us }
}

fn norms() -> [Row; 3] {
    const SHAPE: [usize; 2] = [64, 1024];
    let rows = |t: &[f64], of: &dyn Fn(&[f64]) -> Vec<f64>| t.chunks(SHAPE[1]).flat_map(of).collect::<Vec<_>>();
    let mean = |x: &[f64], of: &dyn Fn(f64) -> f64| x.iter().map(|x| of(*x)).sum::<f64>() / x.len() as f64;
    let inputs = |weights: u64| [vec![random(&SHAPE, 10)], (0..weights).map(|seed| random(&SHAPE[1..], 11 + seed)).collect()].concat();
    let softmax = case(Softmax { axis: -1, log: false }, inputs(0), Bound::normalised(1e-6), move |t| {
        rows(&t[0], &|x| {
            let total = x.iter().map(|x| x.exp()).sum::<f64>();
            x.iter().map(|x| x.exp() / total).collect()
        })
    });
    let layer = case(LayerNorm { axis: -1, epsilon: EPSILON, statistics: false }, inputs(2), Bound::normalised(1e-6), move |t| {
        rows(&t[0], &|x| {
            let centre = mean(x, &|x| x);
            let scale = (mean(x, &|x| (x - centre).powi(2)) + f64::from(EPSILON)).sqrt();
            x.iter().zip(&t[1]).zip(&t[2]).map(|((x, w), b)| (x - centre) / scale * w + b).collect()
        })
    });
    let rms = case(RmsNorm { axis: -1, epsilon: EPSILON }, inputs(1), Bound::normalised(1e-6), move |t| {
        rows(&t[0], &|x| {
            let scale = (mean(x, &|x| x * x) + f64::from(EPSILON)).sqrt();
            x.iter().zip(&t[1]).map(|(x, w)| x / scale * w).collect()
        })
    });
    [
        Row { name: "softmax [64, 1024]", case: softmax, target_us: 5.04 },
        Row { name: "layer_norm [64, 1024]", case: layer, target_us: 2.41 },
        Row { name: "rms_norm [64, 1024]", case: rms, target_us: 4.96 },
    ]
}

/// `[m, k]` times a weight `[n, k]`.
fn linear(x: &[f64], weight: &[f64], k: usize) -> Vec<f64> {
    let dot = |x: &[f64], w: &[f64]| x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
    x.chunks(k).flat_map(|x| weight.chunks(k).map(move |w| dot(x, w))).collect()
}

fn transposed(x: &[f64], side: usize) -> Vec<f64> {
    (0..side * side).map(|i| x[i % side * side + i / side]).collect()
}
