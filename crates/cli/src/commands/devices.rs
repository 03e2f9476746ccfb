use clap::Args;
use elinvar::{DeviceKind, DeviceReport, DeviceState, Result, devices};
use serde_json::{Value, json};

use super::print_line;

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
    Ok(())
}

fn as_json(report: &DeviceReport) -> Value {
    match &report.state {
        Ok(DeviceState { properties, memory, software }) => json!({
            "device": report.backend.to_string(),
            "available": true,
            "name": properties.name,
            "compute_units": properties.compute_units,
            "simd_width": properties.simd_width,
            "unified_memory": properties.unified_memory,
            "memory_total": memory.total,
            "memory_available": memory.available,
            "compute_capability": properties.compute_capability.map(|c| format!("{}.{}", c / 10, c % 10)),
            "matrix_library": properties.matrix_library,
            "software": software,
            "dtypes": properties.dtypes.iter().map(|d| d.name()).collect::<Vec<_>>(),
        }),
        Err(error) => json!({ "device": report.backend.to_string(), "available": false, "reason": error.to_string() }),
    }
}

fn as_text(report: &DeviceReport) -> String {
    match &report.state {
        Ok(DeviceState { properties: p, memory, software }) => {
            const GIB: f64 = (1u64 << 30) as f64;
            let (free, total) = (memory.available as f64 / GIB, memory.total as f64 / GIB);
            let units = match p.kind {
                DeviceKind::Cuda => "multiprocessors",
                DeviceKind::Metal => "cores at least",
                _ => "threads",
            };
            let software = if software.is_empty() { String::new() } else { format!(" · {software}") };
            format!("{:<9} {} · {} {units} · {free:.1} of {total:.1} GiB free{software}", report.backend.to_string(), p.name, p.compute_units)
        }
        Err(error) => format!("{:<9} not available: {error}", report.backend.to_string()),
    }
}
