//! Problem sizes, and from which on a GPU is faster than the CPU.

use std::time::Duration;

use elinvar::{Executor, Result, Tensor};
use serde_json::{Value, json};

use super::super::{
    args::RowArgs,
    timing::{median_seconds, replay_seconds},
};
use crate::{measure::spread, output::print_line};

/// An operator whose problems grow.
struct Sweep {
    name: &'static str,
    inputs: usize,
    /// The shape of each input of so many elements, a power of four.
    dims: fn(usize) -> [usize; 2],
    apply: fn(&[Tensor]) -> Result<Tensor>,
}

/// Elements of a row of the row operator, and of the smallest problem.
const ROW: usize = 1 << 10;

const SWEEPS: [Sweep; 3] = [
    Sweep { name: "add", inputs: 2, dims: |n| [n / ROW, ROW], apply: |x| x[0].add(&x[1]) },
    Sweep { name: "softmax, rows of 1024", inputs: 1, dims: |n| [n / ROW, ROW], apply: |x| x[0].softmax(-1) },
    Sweep { name: "matmul, square", inputs: 2, dims: |n| [1 << (n.ilog2() / 2); 2], apply: |x| x[0].matmul(&x[1]) },
];

/// Microseconds of a problem.
struct Point {
    elements: usize,
    cpu: f64,
    gpu: Option<Gpu>,
}

/// Microseconds on a GPU.
#[derive(Clone, Copy)]
struct Gpu {
    /// With the tensors there.
    resident: f64,
    /// With the inputs copied to it and the result back.
    copied: f64,
}

/// Sweeps over sizes up to `largest`, on the CPU and on the GPU, if there is one: prints them, or gives them as JSON.
pub(super) fn run(cpu: &Executor, gpu: Option<&Executor>, largest: usize, args: &RowArgs) -> Result<Vec<Value>> {
    let mut results = Vec::new();
    for sweep in &SWEEPS {
        if !args.json {
            let device = if gpu.is_some() { format!(" {:>12} {:>12}", "there", "copied") } else { String::new() };
            print_line(format!("\n{:<34} {:>12}{device}", format!("{}: elements", sweep.name), "cpu, µs"));
        }
        let mut points = Vec::new();
        for elements in (ROW.ilog2()..=24).step_by(2).map(|power| 1 << power).filter(|elements| *elements <= largest) {
            let point = measure(sweep, elements, cpu, gpu, Duration::from_secs_f64(args.seconds / 3.0))?;
            if !args.json {
                let device = point.gpu.map_or_else(String::new, |gpu| format!(" {:>12.2} {:>12.2}", gpu.resident, gpu.copied));
                print_line(format!("{elements:<34} {:>12.2}{device}", point.cpu));
            }
            points.push(point);
        }
        let wins = gpu.map(|_| [wins_from(&points, |gpu| gpu.resident), wins_from(&points, |gpu| gpu.copied)]);
        if let Some(wins) = wins.filter(|_| !args.json) {
            let [resident, copied] = wins.map(|size| size.map_or_else(|| "at no size".to_owned(), |size| format!("from {size} elements on")));
            print_line(format!("the device is faster with the tensors there {resident}, with the copies to and from it {copied}"));
        }
        results.push(as_json(sweep, &points, wins));
    }
    Ok(results)
}

fn measure(sweep: &Sweep, elements: usize, cpu: &Executor, gpu: Option<&Executor>, budget: Duration) -> Result<Point> {
    let (values, dims) = (spread(elements), (sweep.dims)(elements));
    let on = |executor: &Executor| -> Result<_> {
        let inputs = (0..sweep.inputs).map(|_| executor.tensor(&dims, &values)).collect::<Result<Vec<_>>>()?;
        let (recording, output) = executor.record(|recorded| {
            let moved = inputs.iter().map(|input| input.on(recorded)).collect::<Result<Vec<_>>>()?;
            (sweep.apply)(&moved)
        })?;
        let seconds = replay_seconds(executor, &recording, budget)?;
        Ok((inputs, recording, output, 1e6 * seconds))
    };
    let (.., time) = on(cpu)?;
    let on_gpu = |gpu: &Executor| {
        let (inputs, recording, output, resident) = on(gpu)?;
        let copied = median_seconds(budget, || {
            inputs.iter().try_for_each(|input| input.write(&values))?;
            gpu.replay(&recording)?;
            output.to_vec::<f32>().map(drop)
        })?;
        Ok(Gpu { resident, copied: 1e6 * copied })
    };
    Ok(Point { elements, cpu: time, gpu: gpu.map(on_gpu).transpose()? })
}

/// The smallest problem from which on the GPU is faster at every size.
fn wins_from(points: &[Point], time: fn(Gpu) -> f64) -> Option<usize> {
    let wins = points.iter().rev().take_while(|point| point.gpu.is_some_and(|gpu| time(gpu) < point.cpu));
    wins.last().map(|point| point.elements)
}

fn as_json(sweep: &Sweep, points: &[Point], wins: Option<[Option<usize>; 2]>) -> Value {
    let point = |point: &Point| {
        let mut json = json!({ "elements": point.elements, "cpu_us": point.cpu });
        if let Some(gpu) = point.gpu {
            (json["resident_us"], json["copied_us"]) = (gpu.resident.into(), gpu.copied.into());
        }
        json
    };
    let mut json = json!({ "operator": sweep.name, "points": points.iter().map(point).collect::<Vec<_>>() });
    if let Some([resident, copied]) = wins {
        (json["resident_wins_from"], json["copied_wins_from"]) = (resident.into(), copied.into());
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_pays_from_where_it_is_never_slower_again() {
        let points = |times: &[(f64, f64)]| {
            let point = |(index, &(cpu, resident))| Point { elements: 1usize << index, cpu, gpu: Some(Gpu { resident, copied: 9.0 }) };
            times.iter().enumerate().map(point).collect::<Vec<_>>()
        };
        let from = |times| wins_from(&points(times), |gpu| gpu.resident);
        assert_eq!(from(&[(2.0, 1.0), (2.0, 3.0), (5.0, 4.0), (9.0, 5.0)]), Some(4));
        assert_eq!([from(&[(2.0, 1.0), (2.0, 3.0)]), from(&[]), from(&[(2.0, 1.0)])], [None, None, Some(1)]);
        assert_eq!(wins_from(&points(&[(10.0, 11.0)]), |gpu| gpu.copied), Some(1));
    }
}
