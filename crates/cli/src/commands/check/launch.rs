//! Binds a kernel's arguments by name and runs it under each schedule.

use std::collections::HashSet;

use elinvar::{DType, Error, Result};
use elinvar_sim::{Binding, Buffer, CommandBuffer, Dispatch, Finding, Grid, Library, Lint, Output, Pipeline, Simulator};

use super::{args::CheckArgs, findings::Findings, report};
use crate::{
    contained::Parent,
    kernel::{self, expected},
    tensors,
};

pub(super) fn run(args: &CheckArgs, simulator: &Simulator, library: &Library, kernel: &str, lints: &[Lint], parent: &mut Parent) -> Result<Findings> {
    let constants: Vec<_> = args.kernel.constants(library.module())?.into_iter().map(|(_, index, value)| (index, value)).collect();
    // Files are read, and the queue's thread begins, before the kernel is loaded: later the process may do neither.
    let contents = kernel::contents(&args.kernel.buffer, args.kernel.seed)?;
    let expected = expected::read(&args.kernel, &contents)?;
    let queue = simulator.queue()?;
    let mut findings = Findings { kernel: kernel.to_owned(), seeds: args.seeds.max(1), ..Findings::default() };
    parent.report(report::found(&findings, lints, args.json, false))?;
    let pipeline = library.pipeline(kernel, &constants)?;
    check_names(args, &pipeline)?;
    let end = args.kernel.seed.saturating_add(findings.seeds);
    for seed in args.kernel.seed..end {
        let buffers = buffers(args, simulator, &contents)?;
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
        for (argument, buffer) in args.kernel.buffer.iter().zip(&buffers) {
            let is_known = findings.differences.iter().any(|(_, known)| known.buffer == argument.name);
            let expected = expected.iter().find(|expected| expected.is_of(argument)).filter(|_| !is_known);
            findings.differences.extend(expected.and_then(|expected| expected.compare(&buffer.to_vec())).map(|difference| (seed, difference)));
        }
        let is_over = seed + 1 == end;
        if is_over && args.kernel.save.is_some() {
            let named = args.kernel.buffer.iter().zip(&contents).zip(&buffers);
            parent.save(0, tensors::bytes_of(named.map(|((argument, (dtype, _)), buffer)| (argument.name.clone(), *dtype, buffer.to_vec())))?)?;
        }
        parent.report(report::found(&findings, lints, args.json, is_over))?;
    }
    Ok(findings)
}

fn buffers(args: &CheckArgs, simulator: &Simulator, contents: &[(DType, Vec<u8>)]) -> Result<Vec<Buffer>> {
    let named = args.kernel.buffer.iter().zip(contents);
    named.map(|(argument, (_, bytes))| simulator.buffer_with(&argument.name, bytes)).collect()
}

fn dispatch(args: &CheckArgs, pipeline: &Pipeline, buffers: &[Buffer]) -> Result<Dispatch> {
    let kernel = pipeline.kernel();
    let grid = args.kernel.threads.map_or(Grid::Threadgroups(args.kernel.grid.0), |threads| Grid::Threads(threads.0));
    let mut dispatch = Dispatch::new(pipeline, grid, args.kernel.threadgroup.0);
    for (argument, buffer) in args.kernel.buffer.iter().zip(buffers) {
        let output = match &args.outputs {
            Some(names) if names.contains(&argument.name) => Output::Whole,
            Some(_) => Output::Free,
            None => Output::WholeUnlessRead,
        };
        dispatch = dispatch.with(Binding::new(kernel.buffer_index(&argument.name)?, buffer).output(output));
    }
    for value in &args.kernel.value {
        dispatch = dispatch.with_bytes(kernel.buffer_index(&value.name)?, value.bytes.clone());
    }
    for memory in &args.kernel.threadgroup_memory {
        dispatch = dispatch.with_threadgroup_memory(kernel.threadgroup_index(&memory.name)?, memory.bytes);
    }
    Ok(dispatch)
}

/// Rejects an argument given twice, and an output that is no buffer.
fn check_names(args: &CheckArgs, pipeline: &Pipeline) -> Result<()> {
    let names = args
        .kernel
        .buffer
        .iter()
        .map(|b| &b.name)
        .chain(args.kernel.value.iter().map(|v| &v.name))
        .chain(args.kernel.threadgroup_memory.iter().map(|m| &m.name));
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::invalid_argument(format!("'{name}' is given twice")));
        }
    }
    for name in args.outputs.iter().flatten() {
        pipeline.kernel().buffer_index(name)?;
        if !args.kernel.buffer.iter().any(|buffer| &buffer.name == name) {
            return Err(Error::invalid_argument(format!("--outputs names '{name}', which no --buffer gives")));
        }
    }
    Ok(())
}
