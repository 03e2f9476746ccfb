//! Binds a kernel's arguments by name and runs it under each schedule.

use std::{collections::HashSet, time::Duration};

use elinvar_core::{DType, Error, ErrorKind, Grid, Result};
use elinvar_msl::{Kernel, METAL_VERSION, ParameterKind};
use elinvar_sim::{Binding, CommandBuffer, CompileOptions, Config, Dispatch, Library, Math, Output, Pipeline, Simulator, Source, Subnormals};

use crate::{
    contained::{self, Parent},
    elements::{encode, scalar_type},
    expected::{Difference, Expected, check_expected},
    report::{Finding, Report},
    request::{Contents, Request, Threads, Value},
    selection::{choose, constants},
};

/// What came of a check.
pub struct Outcome {
    /// What was found: also by a check that did not end.
    pub report: Report,
    /// The bytes of each buffer after the last run, in the order of the request; none unless they are to be kept and the check came to its end.
    pub buffers: Vec<Vec<u8>>,
    /// Whether nothing was found, or why the check did not end.
    pub verdict: Result<bool>,
    /// Whether the kernel ended its process, or had to be ended with it.
    pub was_ended: bool,
}

/// Checks a kernel in a process of its own.
///
/// # Errors
/// This process has a second thread, or the system rejects a process. What is wrong with the request or the text is the outcome's verdict.
pub fn check(request: &Request) -> Result<Outcome> {
    let limit = Duration::try_from_secs_f64(request.time_limit).unwrap_or(Duration::MAX).min(Duration::from_secs(1 << 30));
    let contained::Outcome { report, files, verdict, was_ended } = contained::run(&request.name, limit, |parent| work(request, limit, parent))?;
    let mut report: Report = match report.as_str() {
        "" => Report::default(),
        json => serde_json::from_str(json).map_err(|cause| Error::invalid_data(format!("the kernel's process sent what cannot be read: {cause}")))?,
    };
    report.error = verdict.as_ref().err().map(Error::to_string);
    Ok(Outcome { report, buffers: files.into_values().collect(), verdict, was_ended })
}

fn send(report: &Report, parent: &mut Parent) -> Result<()> {
    parent.report(serde_json::to_string(report).map_err(|cause| Error::internal(format!("a report that cannot be sent: {cause}")))?)
}

/// Whether nothing was found.
fn work(request: &Request, time_limit: Duration, parent: &mut Parent) -> Result<bool> {
    let simulator = Simulator::new(Config { time_limit, ..Config::default() })?;
    let options = CompileOptions {
        include_dirs: request.include.clone(),
        defines: request.defines.clone(),
        metal_version: request.metal_version.unwrap_or(METAL_VERSION),
        math: if request.fast_math { Math::Fast } else { Math::Safe },
        subnormals: if request.flush_subnormals { Subnormals::Flush } else { Subnormals::Keep },
        ..CompileOptions::default()
    };
    let library = match &request.library {
        Some(file) => simulator.compiled_library(&request.name, file.0.as_slice(), &options)?,
        None => {
            let source = Source { name: request.name.clone(), text: request.text.clone(), folder: request.folder.clone() };
            simulator.library(&source, &options)?
        }
    };
    let mut names = library.kernels().names();
    if !request.compile_only {
        names = vec![choose(&names, request.kernel.as_deref(), &request.name)?];
    }
    let lints: Vec<_> = library.judge(&names)?.iter().map(crate::report::Lint::from).collect();
    let mut report = Report { lints, ..Report::default() };
    // What Apple's compiler would reject does not run here.
    report.rejected = !report.lints.is_empty() && !request.run_anyway;
    match names.as_slice() {
        _ if report.rejected => report.finished = true,
        [kernel] if !request.compile_only => run(request, &simulator, &library, kernel, &mut report, parent)?,
        _ => {
            library.compile_all(&names, &[])?;
            report.kernels = names.iter().map(|name| (*name).to_owned()).collect();
            report.finished = true;
        }
    }
    send(&report, parent)?;
    Ok(report.findings.is_empty() && report.lints.is_empty())
}

fn run(request: &Request, simulator: &Simulator, library: &Library, kernel: &str, report: &mut Report, parent: &mut Parent) -> Result<()> {
    let given = request.constants.iter().map(|constant| (constant.name.as_str(), constant.value.as_str()));
    let constants: Vec<_> = constants(library.kernels().constants(kernel)?, given)?.into_iter().map(|(_, index, value)| (index, value)).collect();
    let arguments = Arguments::of(request, library, &library.kernels().kernel(kernel)?)?;
    // The queue's thread begins before the kernel is loaded: later the process may start none.
    let queue = simulator.queue()?;
    (report.kernel, report.seeds) = (Some(kernel.to_owned()), request.seeds.max(1));
    send(report, parent)?;
    let pipeline = library.pipeline(kernel, &constants)?;
    let end = request.seed.saturating_add(report.seeds);
    for seed in request.seed..end {
        let (dispatch, buffers) = arguments.dispatch(request, simulator, &pipeline)?;
        let mut commands = CommandBuffer::with_seed(seed);
        commands.dispatch(dispatch)?;
        let found = queue.submit(commands).wait()?;
        report.threads += found.threads;
        for finding in found.findings.iter().map(|finding| Finding::of_run(finding, seed)) {
            let same = |known: &Finding| {
                (&known.kind, &known.file, known.line, &known.buffer) == (&finding.kind, &finding.file, finding.line, &finding.buffer)
            };
            if !report.findings.iter().any(same) {
                report.findings.push(finding);
            }
        }
        for expected in &arguments.expected {
            let is_known = report.findings.iter().any(|known| known.kind == Difference::KIND && known.buffer.as_deref() == Some(expected.buffer));
            let held = buffers.iter().find(|buffer| buffer.name() == expected.buffer).filter(|_| !is_known);
            if let Some(difference) = held.and_then(|held| expected.compare(&held.to_vec())) {
                report.findings.push(Finding::of_difference(&difference, kernel, seed));
            }
        }
        report.finished = seed + 1 == end;
        if report.finished && request.keep_buffers {
            report.dtypes = arguments.buffers.iter().map(|buffer| buffer.dtype.to_string()).collect();
            (0..).zip(&buffers).try_for_each(|(number, buffer)| parent.save(number, buffer.to_vec()))?;
        }
        send(report, parent)?;
    }
    Ok(())
}

/// A kernel's arguments, as its signature has them.
struct Arguments<'a> {
    buffers: Vec<Bound<'a>>,
    values: Vec<(u32, Vec<u8>)>,
    threadgroup_memory: Vec<(u32, usize)>,
    expected: Vec<Expected<'a>>,
}

/// A buffer and where it is bound.
struct Bound<'a> {
    name: &'a str,
    index: u32,
    dtype: DType,
    bytes: usize,
    /// Its contents, if it has some.
    contents: Option<&'a [u8]>,
    output: Output,
}

impl<'a> Arguments<'a> {
    fn of(request: &'a Request, library: &Library, kernel: &Kernel) -> Result<Self> {
        check_names(request, kernel)?;
        let sizes = library.kernels().element_sizes(kernel)?;
        let size_of = |name: &str| kernel.parameters.iter().zip(&sizes).find(|(parameter, _)| parameter.name == name).and_then(|(_, size)| *size);
        let buffers = request.buffers.iter().map(|buffer| {
            let output = match &request.outputs {
                Some(names) if names.contains(&buffer.name) => Output::Whole,
                Some(_) => Output::Free,
                None => Output::WholeUnlessRead,
            };
            let (index, element) = parameter(kernel, &buffer.name)?;
            let scalar = scalar_type(element);
            let (dtype, bytes, contents) = match &buffer.contents {
                Contents::Given { dtype, bytes } => {
                    check_type(&buffer.name, *dtype, scalar, element)?;
                    (*dtype, bytes.0.len(), Some(bytes.0.as_slice()))
                }
                Contents::Unwritten(elements) => {
                    let unknown =
                        || Error::invalid_argument(format!("'{}' is a buffer of {element}, whose size is not known: give its bytes", buffer.name));
                    let size = size_of(&buffer.name).ok_or_else(unknown)?;
                    let too_large = || Error::invalid_argument(format!("'{}': {elements} elements of {size} bytes are too many", buffer.name));
                    (scalar.unwrap_or(DType::U8), elements.checked_mul(size).ok_or_else(too_large)?, None)
                }
            };
            Ok(Bound { name: &buffer.name, index, dtype, bytes, contents, output })
        });
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        let values = request.values.iter().map(|argument| {
            let (index, element) = parameter(kernel, &argument.name)?;
            let bytes = match &argument.value {
                Value::Bytes(bytes) => bytes.0.clone(),
                Value::Numbers(numbers) => {
                    let unknown = || Error::invalid_argument(format!("'{}' is a {element}: give its bytes or an array", argument.name));
                    let dtype = scalar_type(element).ok_or_else(unknown)?;
                    let encoded = numbers.iter().map(|number| encode(dtype, number)).collect::<Result<Vec<_>>>();
                    encoded.map_err(|error| error.context(format_args!("'{}'", argument.name)))?.concat()
                }
            };
            Ok((index, bytes))
        });
        let values = values.collect::<Result<_>>()?;
        let memory = request.threadgroup_memory.iter().map(|size| Ok((kernel.threadgroup_index(&size.name)?, size.bytes)));
        let threadgroup_memory = memory.collect::<Result<_>>()?;
        let expected = request.expected.iter().map(|memory| {
            let (buffer, dtype, bytes) = (memory.name.as_str(), memory.dtype, memory.bytes.0.as_slice());
            Expected { buffer, dtype, bytes, tolerance: request.tolerance }
        });
        let expected: Vec<_> = expected.collect();
        check_expected(&expected, buffers.iter().map(|buffer| (buffer.name, buffer.dtype, buffer.bytes)))?;
        Ok(Self { buffers, values, threadgroup_memory, expected })
    }

    /// A launch over new buffers.
    fn dispatch(&self, request: &Request, simulator: &Simulator, pipeline: &Pipeline) -> Result<(Dispatch, Vec<elinvar_sim::Buffer>)> {
        let grid = match request.threads {
            Threads::Grid(grid) => Grid::Threadgroups(grid),
            Threads::Threads(threads) => Grid::Threads(threads),
        };
        let mut dispatch = Dispatch::new(pipeline, grid, request.threadgroup);
        let mut buffers = Vec::new();
        for argument in &self.buffers {
            let buffer = match argument.contents {
                Some(contents) => simulator.buffer_with(argument.name, contents)?,
                None => simulator.buffer(argument.name, argument.bytes)?,
            };
            dispatch = dispatch.with(Binding::new(argument.index, &buffer).output(argument.output));
            buffers.push(buffer);
        }
        for (index, bytes) in &self.values {
            dispatch = dispatch.with_bytes(*index, bytes.clone());
        }
        for (index, bytes) in &self.threadgroup_memory {
            dispatch = dispatch.with_threadgroup_memory(*index, *bytes);
        }
        Ok((dispatch, buffers))
    }
}

/// Index and elements' type of a kernel's buffer.
fn parameter<'a>(kernel: &'a Kernel, name: &str) -> Result<(u32, &'a str)> {
    let index = kernel.buffer_index(name)?;
    let element = kernel.parameters.iter().find(|parameter| parameter.name == name).and_then(|parameter| match &parameter.kind {
        ParameterKind::Buffer { element, .. } => Some(element.as_str()),
        ParameterKind::Threadgroup { .. } | ParameterKind::Position(_) => None,
    });
    element.map(|element| (index, element)).ok_or_else(|| Error::new(ErrorKind::Internal, format!("`{name}` is and is not a buffer")))
}

/// Rejects elements that are none of the kernel's: f64 for float. Bytes may be anything, and integers of one size signed or not.
fn check_type(name: &str, given: DType, scalar: Option<DType>, element: &str) -> Result<()> {
    let Some(taken) = scalar.filter(|taken| *taken != given) else { return Ok(()) };
    let is_alike = given == DType::U8 || given.is_integer() && taken.is_integer() && given.size() == taken.size();
    if is_alike { Ok(()) } else { Err(Error::invalid_argument(format!("'{name}' holds {given}, the kernel takes {element}: convert it to {taken}"))) }
}

/// Rejects an argument given twice, and an output that is no buffer.
fn check_names(request: &Request, kernel: &Kernel) -> Result<()> {
    let buffers = || request.buffers.iter().map(|buffer| &buffer.name);
    let values = request.values.iter().map(|value| &value.name);
    let memory = request.threadgroup_memory.iter().map(|size| &size.name);
    let mut seen = HashSet::new();
    if let Some(twice) = buffers().chain(values).chain(memory).find(|name| !seen.insert(*name)) {
        return Err(Error::invalid_argument(format!("'{twice}' is given twice")));
    }
    for output in request.outputs.iter().flatten() {
        kernel.buffer_index(output)?;
        if !buffers().any(|buffer| buffer == output) {
            return Err(Error::invalid_argument(format!("outputs names '{output}', which is no buffer that is given")));
        }
    }
    Ok(())
}
