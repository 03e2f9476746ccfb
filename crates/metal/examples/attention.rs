//! Attention of a prompt in strict and in fast precision on the simulated Metal device: errors against sums in f64, and what each asks of a GPU.
//! `attention [QUERIES]...` counts for these numbers of queries (512 and 2048), of four heads of 128 elements that share keys, causal.

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queries = std::env::args().skip(1).map(|n| n.parse()).collect::<Result<Vec<usize>, _>>()?;
    simulated::errors()?;
    simulated::work(if queries.is_empty() { &[512, 2048] } else { &queries })?;
    Ok(())
}

#[cfg(target_os = "linux")]
mod simulated {
    use elinvar_core::{DType, Device, DeviceKind, Result};
    use elinvar_kernels::{
        Precision,
        attention::{Attention, Scoring},
        conformance::{self, Bound, Case, HostTensor, Placement},
    };
    use elinvar_metal::{MetalBackend, Simulated, SimulatorOptions, Traffic};

    const WIDTH: usize = 128;
    const PRECISIONS: [Precision; 2] = [Precision::Strict, Precision::Fast];

    /// Causal attention of the last `queries` of `keys` tokens, of `heads` that share keys; numbers of a normal distribution. Nobody checks results.
    fn case(precision: Precision, [q, kv]: [DType; 2], [heads, queries, keys]: [usize; 3]) -> Result<Case> {
        let normal = |dtype, dims: [usize; 4], seed: u64| {
            let uniform: Vec<_> = (0..12u64).map(|i| HostTensor::random(DType::F32, &dims, -0.5, 0.5, 100 * seed + i).to_f64()).collect();
            let sums: Vec<f64> = (0..dims.iter().product()).map(|at| uniform.iter().map(|values| values[at]).sum()).collect();
            Some(HostTensor::from_f64(dtype, &dims, &sums))
        };
        let inputs =
            [normal(q, [1, heads, queries, WIDTH], 1), normal(kv, [1, 1, keys, WIDTH], 2), normal(kv, [1, 1, keys, WIDTH], 3), None, None, None];
        let scoring = Scoring { causal: true, offset: (keys - queries) as i64, ..Scoring::default() };
        Ok(Case::new(Attention { scoring, precision, ..Attention::default() }, inputs, Bound::EXACT, |_| Vec::new()))
    }

    /// The same in f64, for one head.
    fn exact(inputs: &[Vec<f64>], [queries, keys]: [usize; 2]) -> Vec<f64> {
        let row = |t: usize| {
            let dot =
                |j: usize| (0..WIDTH).map(|i| inputs[0][t * WIDTH + i] * inputs[1][j * WIDTH + i]).sum::<f64>() / f64::from((WIDTH as f32).sqrt());
            let scores: Vec<f64> = (0..=t + keys - queries).map(dot).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let sum = weights.iter().sum::<f64>();
            (0..WIDTH).map(|e| weights.iter().enumerate().map(|(j, w)| w * inputs[2][j * WIDTH + e]).sum::<f64>() / sum).collect::<Vec<_>>()
        };
        (0..queries).flat_map(row).collect()
    }

    pub(super) fn errors() -> Result<()> {
        let device =
            Device::new(MetalBackend::new(Simulated::new(SimulatorOptions { checked: false, ..SimulatorOptions::default() })?, DeviceKind::MetalSim));
        let [queries, keys] = [640, 1000];
        println!("{queries} queries over {keys} keys of {WIDTH} elements: the largest error, and the largest normalised error of a row\n");
        println!("| q | k, v | strict | | fast | | rounding the exact result to q's type | |\n| --- | --- | --- | --- | --- | --- | --- | --- |");
        for pair in [[DType::F32; 2], [DType::F32, DType::F16], [DType::F32, DType::BF16], [DType::F16; 2], [DType::BF16; 2]] {
            let mut columns = Vec::new();
            for precision in PRECISIONS {
                let case = case(precision, pair, [1, queries, keys])?;
                let inputs: Vec<_> = case.inputs.iter().flatten().map(HostTensor::to_f64).collect();
                let exact = exact(&inputs, [queries, keys]);
                let found = conformance::run(&case, &device, Placement::Aligned)?;
                columns.push(compare(&found[0].to_f64(), &exact));
                if precision == Precision::Fast {
                    columns.push(compare(&HostTensor::from_f64(pair[0], &[exact.len()], &exact).to_f64(), &exact));
                }
            }
            let columns: Vec<_> = columns.iter().map(|[absolute, normalised]| format!("{absolute:.1e} | {normalised:.1e}")).collect();
            println!("| {} | {} | {} |", pair[0], pair[1], columns.join(" | "));
        }
        Ok(())
    }

    fn compare(found: &[f64], exact: &[f64]) -> [f64; 2] {
        let rows = found.chunks(WIDTH).zip(exact.chunks(WIDTH)).map(|(found, exact)| {
            let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
            let differences = || found.iter().zip(exact).map(|(f, e)| f - e);
            [differences().fold(0.0, |most, d| d.abs().max(most)), norm(&mut differences()) / norm(&mut exact.iter().copied())]
        });
        rows.fold([0.0; 2], |most, row| [most[0].max(row[0]), most[1].max(row[1])])
    }

    pub(super) fn work(queries: &[usize]) -> Result<()> {
        let options = SimulatorOptions::default();
        let meter = options.meter.clone();
        let device = Device::new(MetalBackend::new(Simulated::new(options)?, DeviceKind::MetalSim));
        println!(
            "\n| queries = keys | kernel | threads | device loads | bytes | stores | bytes | threadgroup loads | bytes | stores | bytes | products of matrices |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
        for &queries in queries {
            for precision in PRECISIONS {
                let case = case(precision, [DType::F16; 2], [4, queries, queries])?;
                let plan = case.plan(device.properties())?;
                let kernels: Vec<_> = plan.launches.iter().map(|launch| launch.kernel.key.operator.to_string()).collect();
                let threads: u128 = plan.launches.iter().map(|launch| launch.grid.count() * launch.threadgroup.count()).sum();
                conformance::run(&case, &device, Placement::Aligned)?;
                let counters = meter.take();
                let [device, threadgroup] = [counters.device, counters.threadgroup]
                    .map(|Traffic { reads, read_bytes, writes, written_bytes }| format!("{reads} | {read_bytes} | {writes} | {written_bytes}"));
                println!("| {queries} | {} | {threads} | {device} | {threadgroup} | {} |", kernels.join(", "), counters.matrix_products);
            }
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("the simulator runs on Linux");
}
