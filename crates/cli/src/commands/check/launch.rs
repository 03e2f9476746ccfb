//! Binds a kernel's arguments by name and runs it under each schedule.

use std::collections::HashSet;

use elinvar::{DType, Error, Result};
use elinvar_sim::{Binding, Buffer, CommandBuffer, ConstantValue, Dispatch, Finding, Grid, Library, Output, Pipeline, Simulator};

use super::{CheckArgs, arguments::ConstantArgument};
use crate::tensors;

/// What all schedules found together.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The kernel.
    pub(super) kernel: String,
    /// Each finding once, with the first seed that showed it.
    pub(super) found: Vec<(u64, Finding)>,
    /// Schedules tried.
    pub(super) seeds: u64,
    /// GPU threads run, over all schedules.
    pub(super) threads: u64,
}

pub(super) fn run(args: &CheckArgs, simulator: &Simulator, library: &Library, kernel: &str) -> Result<Findings> {
    let pipeline = library.pipeline(kernel, &constants(&args.constant, library)?)?;
    check_names(args, &pipeline)?;
    let queue = simulator.queue()?;
    let mut findings = Findings { kernel: kernel.to_owned(), seeds: args.seeds.max(1), ..Findings::default() };
    for seed in args.seed..args.seed.saturating_add(findings.seeds) {
        let buffers = buffers(args, simulator)?;
        let mut commands = CommandBuffer::with_seed(seed);
        commands.dispatch(dispatch(args, &pipeline, &buffers)?)?;
        let report = queue.submit(commands).wait()?;
        findings.threads += report.threads;
        for finding in &report.findings {
            let same = |known: &Finding| (known.kind, &known.at, &known.buffer) == (finding.kind, &finding.at, &finding.buffer);
            if !findings.found.iter().any(|(_, known)| same(known)) {
                findings.found.push((seed, finding.clone()));
            }
        }
        if seed + 1 == args.seed.saturating_add(findings.seeds)
            && let Some(file) = &args.save
        {
            let named = args.buffer.iter().zip(&buffers);
            let contents = named.map(|(argument, (dtype, buffer))| (argument.name.clone(), *dtype, buffer.to_vec()));
            tensors::write_bytes(file, contents)?;
        }
    }
    Ok(findings)
}

fn buffers(args: &CheckArgs, simulator: &Simulator) -> Result<Vec<(DType, Buffer)>> {
    let make = |(place, argument): (usize, &super::BufferArgument)| {
        let (dtype, bytes) = argument.bytes(args.seed, place).map_err(|e| e.context(format_args!("--buffer {}", argument.name)))?;
        Ok((dtype, simulator.buffer_with(&argument.name, &bytes)?))
    };
    args.buffer.iter().enumerate().map(make).collect()
}

fn dispatch(args: &CheckArgs, pipeline: &Pipeline, buffers: &[(DType, Buffer)]) -> Result<Dispatch> {
    let kernel = pipeline.kernel();
    let mut dispatch = Dispatch::new(pipeline, Grid::Threadgroups(args.grid.0), args.threadgroup.0);
    for (argument, (_, buffer)) in args.buffer.iter().zip(buffers) {
        let output = match &args.outputs {
            Some(names) if names.contains(&argument.name) => Output::Whole,
            Some(_) => Output::Free,
            None => Output::WholeUnlessRead,
        };
        dispatch = dispatch.with(Binding::new(kernel.buffer_index(&argument.name)?, buffer).output(output));
    }
    for value in &args.value {
        dispatch = dispatch.with_bytes(kernel.buffer_index(&value.name)?, value.bytes.clone());
    }
    for memory in &args.threadgroup_memory {
        dispatch = dispatch.with_threadgroup_memory(kernel.threadgroup_index(&memory.name)?, memory.bytes);
    }
    Ok(dispatch)
}

/// Refuses an argument given twice, and an output that is no buffer.
fn check_names(args: &CheckArgs, pipeline: &Pipeline) -> Result<()> {
    let names = args.buffer.iter().map(|b| &b.name).chain(args.value.iter().map(|v| &v.name)).chain(args.threadgroup_memory.iter().map(|m| &m.name));
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::invalid_argument(format!("'{name}' is given twice")));
        }
    }
    for name in args.outputs.iter().flatten() {
        pipeline.kernel().buffer_index(name)?;
        if !args.buffer.iter().any(|buffer| &buffer.name == name) {
            return Err(Error::invalid_argument(format!("--outputs names '{name}', which no --buffer gives")));
        }
    }
    Ok(())
}

/// Function constants by name or index, their values read by their types.
fn constants(arguments: &[ConstantArgument], library: &Library) -> Result<Vec<(u32, ConstantValue)>> {
    let known = library.module().constants();
    let value = |argument: &ConstantArgument| {
        let found = known.iter().find(|c| c.name == argument.name || argument.name.parse() == Ok(c.index));
        let constant = found.ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|c| format!("{} ({})", c.name, c.index)).collect();
            Error::invalid_argument(format!("no function constant '{}': the file has {}", argument.name, names.join(", ")))
        })?;
        let text = argument.value.as_str();
        let value = match constant.type_name.as_str() {
            "bool" => text.parse().ok().map(ConstantValue::Bool),
            "float" | "half" | "bfloat" => text.parse().ok().map(ConstantValue::Float),
            unsigned if unsigned.starts_with('u') => text.parse().ok().map(ConstantValue::Uint),
            _ => text.parse().ok().map(ConstantValue::Int),
        };
        let value = value.ok_or_else(|| Error::invalid_argument(format!("'{text}' is no {} for '{}'", constant.type_name, constant.name)))?;
        Ok((constant.index, value))
    };
    arguments.iter().map(value).collect()
}
