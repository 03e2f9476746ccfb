//! Launches, and what differs between what two of them wrote.

use std::fmt;

use elinvar_sim::{Binding, Buffer, CommandBuffer, Dispatch, Output, Pipeline, Simulator};

use crate::arguments::{Case, scalars};

/// What a launch wrote, and what was found.
pub(crate) struct Ran {
    pub(crate) written: Vec<Vec<u8>>,
    pub(crate) findings: Vec<String>,
}

impl Ran {
    pub(crate) fn left_a_buffer(&self) -> bool {
        self.findings.iter().any(|finding| finding.contains(": out-of-bounds-"))
    }

    /// Whether Metal defines what it wrote. It defines operations of a part of a simdgroup.
    pub(crate) fn is_defined(&self) -> bool {
        self.findings.iter().all(|finding| finding.contains(": divergent-simd: "))
    }
}

pub(crate) fn run(simulator: &Simulator, pipeline: &Pipeline, case: &Case) -> Ran {
    let mut dispatch = Dispatch::new(pipeline, case.launch.grid, case.launch.threadgroup);
    let mut written: Vec<Buffer> = Vec::new();
    for argument in &case.buffers {
        let buffer = simulator.buffer_with("buffer", &argument.contents).unwrap();
        dispatch = dispatch.with(Binding::new(argument.index, &buffer).output(Output::Free));
        written.extend(argument.written.then_some(buffer));
    }
    for (index, bytes) in &case.bytes {
        dispatch = dispatch.with_bytes(*index, bytes.clone());
    }
    let mut commands = CommandBuffer::with_seed(1);
    if let Err(error) = commands.dispatch(dispatch) {
        return Ran { written: Vec::new(), findings: vec![error.to_string()] };
    }
    let report = simulator.queue().unwrap().submit(commands).wait().unwrap();
    Ran { written: written.iter().map(Buffer::to_vec).collect(), findings: report.findings.iter().map(ToString::to_string).collect() }
}

/// How an output of the text differs from the library's.
pub(crate) struct Difference {
    buffer: String,
    element: String,
    scalars: usize,
    different: usize,
    /// The first that differs.
    at: usize,
    values: Option<(f64, f64)>,
}

impl Difference {
    pub(crate) fn between(case: &Case, text: &Ran, library: &Ran) -> Vec<Self> {
        let outputs = case.buffers.iter().filter(|argument| argument.written);
        let differences = outputs.zip(text.written.iter().zip(&library.written)).filter_map(|(argument, (text, library))| {
            let scalar = scalars(&argument.element).0;
            let size = match scalar {
                "half" | "bfloat" | "short" | "ushort" => 2,
                "int" | "uint" | "float" => 4,
                "long" | "ulong" => 8,
                _ => 1,
            };
            let differs = |(text, library): (&[u8], &[u8])| text != library;
            let pairs = || text.chunks(size).zip(library.chunks(size));
            let at = pairs().position(differs)?;
            let values = pairs().nth(at).and_then(|(text, library)| Some((decode(scalar, text)?, decode(scalar, library)?)));
            let different = pairs().filter(|pair| differs(*pair)).count();
            Some(Self { buffer: argument.name.clone(), element: argument.element.clone(), scalars: pairs().count(), different, at, values })
        });
        differences.collect()
    }
}

fn decode(scalar: &str, bytes: &[u8]) -> Option<f64> {
    Some(match scalar {
        "float" => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        "half" => half::f16::from_le_bytes(bytes.try_into().ok()?).into(),
        "bfloat" => half::bf16::from_le_bytes(bytes.try_into().ok()?).into(),
        "int" => i32::from_le_bytes(bytes.try_into().ok()?).into(),
        "uint" => u32::from_le_bytes(bytes.try_into().ok()?).into(),
        _ => bytes.iter().rev().fold(0.0, |value, byte| value * 256.0 + f64::from(*byte)),
    })
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { buffer, element, scalars, different, at, values } = self;
        write!(f, "{different} of {scalars} numbers of `{buffer}` ({element}) differ")?;
        match values {
            Some((text, library)) => write!(f, ", first at {at}: {text} and {library}"),
            None => write!(f, ", first at {at}"),
        }
    }
}
