//! `elinvar check`: anyone's Metal kernels, run on the simulator.

mod args;
mod report;

use std::{fs, path::Path};

use elinvar::{DType, Result};
use elinvar_check::{Argument, Buffer, Bytes, Constant, Contents, Memory, Outcome, Request, Size, Threads, Value};
use elinvar_sim::Source;

pub(super) use args::CheckArgs;
use args::Tiny;

use crate::{kernel, output::print_line, tensors};

/// Whether nothing was found.
pub(crate) fn run(args: &CheckArgs) -> Result<bool> {
    args.kernel.check_folders()?;
    let given = &args.kernel;
    let contents = kernel::contents(&given.buffer, given.seed)?;
    let Outcome { report, buffers, verdict, .. } = elinvar_check::check(&request(args, contents)?)?;
    if let Some(file) = given.save.as_ref().filter(|_| !buffers.is_empty()) {
        let dtypes = report.dtypes.iter().map(|dtype| DType::of_program(dtype)).collect::<Result<Vec<_>>>()?;
        let named = given.buffer.iter().zip(dtypes).zip(buffers);
        tensors::write_bytes(file, &tensors::bytes_of(named.map(|((argument, dtype), bytes)| (argument.name.clone(), dtype, bytes)))?)?;
    }
    let shown = if args.json { report::json(report)? } else { report::text(&report) };
    if !shown.is_empty() {
        print_line(shown);
    }
    verdict
}

/// A text, or a compiled library.
fn source(path: &Path) -> Result<(Source, Option<Bytes>)> {
    match fs::read(path) {
        Ok(file) if elinvar_metallib::is_compiled(&file) => Ok((Source::new(path.display().to_string(), ""), Some(Bytes(file)))),
        Ok(_) | Err(_) => Ok((Source::read(path)?, None)),
    }
}

/// What is to be checked, with what buffers hold at first.
fn request(args: &CheckArgs, contents: Vec<(DType, Vec<u8>)>) -> Result<Request> {
    let given = &args.kernel;
    let (Source { name, text, folder }, library) = source(&given.file)?;
    let buffers = given.buffer.iter().zip(contents);
    let buffers =
        buffers.map(|(argument, (dtype, bytes))| Buffer { name: argument.name.clone(), contents: Contents::Given { dtype, bytes: Bytes(bytes) } });
    let values = given.value.iter().map(|value| Argument { name: value.name.clone(), value: Value::Bytes(Bytes(value.bytes.clone())) });
    let memory = given.threadgroup_memory.iter().map(|size| Size { name: size.name.clone(), bytes: size.bytes });
    let constants = given.constant.iter().map(|constant| Constant { name: constant.name.clone(), value: constant.value.clone() });
    let expected = given.expected()?.into_iter().map(|(name, dtype, bytes)| Memory { name: name.to_owned(), dtype, bytes: Bytes(bytes) });
    Ok(Request {
        name,
        text,
        library,
        folder,
        include: given.include.clone(),
        defines: given.define.clone(),
        metal_version: Some(given.metal_version),
        fast_math: given.fast_math,
        flush_subnormals: matches!(args.subnormals, Tiny::Flush),
        run_anyway: given.run_anyway,
        compile_only: args.compile_only,
        kernel: given.kernel.clone(),
        threads: given.threads.map_or(Threads::Grid(given.grid.0), |threads| Threads::Threads(threads.0)),
        threadgroup: given.threadgroup.0,
        buffers: buffers.collect(),
        values: values.collect(),
        threadgroup_memory: memory.collect(),
        constants: constants.collect(),
        outputs: args.outputs.clone(),
        expected: expected.collect(),
        tolerance: given.tolerance,
        seed: given.seed,
        seeds: args.seeds,
        time_limit: args.time_limit.max(1) as f64,
        keep_buffers: given.save.is_some(),
    })
}
