use clap::Args;
use elinvar::{DeviceKind, DeviceProperties, DeviceReport, DeviceState, Executor, Result, devices, format_bytes, kernels::cuda::CudaFeatures};
use serde_json::{Value, json};

use crate::output::print_line;

/// Arguments of `elinvar devices`.
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<()> {
    let reports = devices();
    if args.json {
        print_line(Value::Array(reports.iter().map(as_json).collect()));
        return Ok(());
    }
    for report in &reports {
        print_line(as_text(report));
    }
    print_line(format!("matrix products and attention are {} unless --precision says otherwise", Executor::DEFAULT_PRECISION));
    Ok(())
}

fn as_json(report: &DeviceReport) -> Value {
    match &report.state {
        Ok(DeviceState { properties, family, assumed, memory, peers, software }) => json!({
            "device": report.backend.to_string(),
            "available": true,
            "name": properties.name,
            "family": family,
            "compute_units": properties.compute_units,
            "assumed": assumed,
            "simd_width": properties.simd_width,
            "unified_memory": properties.unified_memory,
            "threadgroup_memory": properties.threadgroup_memory,
            "max_threads_per_threadgroup": properties.max_threads_per_threadgroup,
            "max_buffer_bytes": properties.max_buffer_bytes,
            "memory_total": memory.total,
            "memory_available": memory.available,
            "compute_capability": cuda(properties).map(|cuda| format!("{}.{}", cuda.compute_capability / 10, cuda.compute_capability % 10)),
            "matrix_library": cuda(properties).is_some_and(|cuda| cuda.matrix_library),
            "peers": peers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "software": software,
            "dtypes": properties.dtypes.iter().map(|d| d.name()).collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "device": report.backend.to_string(), "available": false, "reason": error.to_string() }),
    }
}

fn cuda(properties: &DeviceProperties) -> Option<&CudaFeatures> {
    properties.features()
}

/// A device on one line.
pub(super) fn as_text(report: &DeviceReport) -> String {
    match &report.state {
        Ok(DeviceState { properties: p, family, assumed, memory, peers, software }) => {
            let [free, total] = [memory.available, memory.total].map(|bytes| format_bytes(bytes as u64));
            let units = match p.kind {
                DeviceKind::Cuda => "multiprocessors",
                DeviceKind::Metal | DeviceKind::MetalSim => "cores",
                DeviceKind::Cpu | DeviceKind::Null => "threads",
            };
            let mut parts = vec![p.name.clone(), format!("{} {units}", p.compute_units), format!("{free} of {total} free")];
            parts.extend(assumed.clone());
            parts.extend(family.iter().map(|family| format!("family {family}")));
            if p.has_simdgroups() {
                let memory = if p.unified_memory { "memory shared with the host" } else { "memory of its own" };
                let (threads, kib) = (p.max_threads_per_threadgroup, p.threadgroup_memory >> 10);
                parts.extend([memory.to_owned(), format!("threadgroups of {threads} threads and {kib} KiB")]);
            }
            let peers: Vec<_> = peers.iter().map(ToString::to_string).collect();
            parts.extend((!peers.is_empty()).then(|| format!("reaches the memory of {}", peers.join(", "))));
            parts.extend(Some(software.clone()).filter(|software| !software.is_empty()));
            format!("{:<9} {}", report.backend.to_string(), parts.join(" · "))
        }
        Err(error) => format!("{:<9} not available: {error}", report.backend.to_string()),
    }
}
