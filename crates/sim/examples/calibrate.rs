//! Runs MLX's kernels from text and from the library that Apple's compiler made of them, on the same inputs, and compares what they write, bit by bit:
//!
//! ```text
//! cargo run --release -p elinvar-sim --example calibrate -- mlx.metallib SOURCE [-I INCLUDE]... [--step N] [--family NAME]...
//! ```
//!
//! SOURCE is a checkout of MLX. `tools/calibrate` fetches the library and its headers. Every launch is checked.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a tool that cannot go on ends")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use elinvar_sim::{
    Binding, Buffer, CommandBuffer, CompileOptions, Config, ConstantValue, Dispatch, Grid, Library, Output, Pipeline, Simulator, Source,
};

/// A file of kernels, and how those whose names begin so are launched.
struct Family {
    name: &'static str,
    file: &'static str,
    launch: fn(&str) -> Option<Shape>,
}

/// A launch: its threads, and the numbers that its kernel is given, by parameter.
struct Shape {
    threads: [u32; 3],
    threadgroup: [u32; 3],
    /// Elements that inputs and outputs have at least.
    elements: usize,
    numbers: &'static [(&'static str, &'static [f64])],
}

const FAMILIES: &[Family] = &[
    Family { name: "unary", file: "unary", launch: elementwise },
    Family { name: "binary", file: "binary", launch: elementwise },
    Family { name: "ternary", file: "ternary", launch: elementwise },
    Family { name: "copy", file: "copy", launch: elementwise },
    Family { name: "arange", file: "arange", launch: arange },
    Family { name: "softmax", file: "softmax", launch: rows },
    Family { name: "logsumexp", file: "logsumexp", launch: rows },
    Family { name: "rms_norm", file: "rms_norm", launch: rows },
    Family { name: "layer_norm", file: "layer_norm", launch: rows },
    Family { name: "rope", file: "rope", launch: rope },
    Family { name: "reduce", file: "reduce", launch: reduce },
    Family { name: "scan", file: "scan", launch: scan },
    Family { name: "arg_reduce", file: "arg_reduce", launch: arg_reduce },
    Family { name: "random", file: "random", launch: random },
];

/// 3 × 5 × 7 elements, read with other strides than they are written with where the kernel takes strides.
fn elementwise(kernel: &str) -> Option<Shape> {
    const LINE: &[(&str, &[f64])] =
        &[("size", &[105.0]), ("a_stride", &[2.0]), ("b_stride", &[1.0]), ("c_stride", &[3.0]), ("src_stride", &[2.0]), ("dst_stride", &[1.0])];
    const PLANE: &[(&str, &[f64])] = &[
        ("size", &[105.0]),
        ("a_strides", &[1.0, 15.0]),
        ("b_strides", &[7.0, 1.0]),
        ("c_strides", &[0.0, 1.0]),
        ("src_strides", &[1.0, 15.0]),
        ("dst_strides", &[7.0, 1.0]),
    ];
    const SPACE: &[(&str, &[f64])] = &[
        ("in_shape", &[3.0, 5.0, 7.0]),
        ("in_strides", &[7.0, 21.0, 1.0]),
        ("shape", &[3.0, 5.0, 7.0]),
        ("src_shape", &[3.0, 5.0, 7.0]),
        ("a_strides", &[7.0, 21.0, 1.0]),
        ("b_strides", &[0.0, 7.0, 1.0]),
        ("c_strides", &[35.0, 7.0, 1.0]),
        ("src_strides", &[7.0, 21.0, 1.0]),
        ("dst_strides", &[35.0, 7.0, 1.0]),
        ("ndim", &[3.0]),
    ];
    let (form, _) = kernel.split_once('_')?;
    let form = form.trim_end_matches("large");
    let is = |forms: &[&str]| forms.contains(&form);
    let (threads, numbers): ([u32; 3], _) = match form {
        _ if is(&["g1", "gg1"]) => ([105, 1, 1], LINE),
        _ if is(&["g2", "gg2"]) => ([7, 15, 1], PLANE),
        _ if is(&["g3", "gg3"]) || form.starts_with("gn") || form.starts_with("ggn") => ([7, 5, 3], SPACE),
        // As many threads as elements: those of kernels that take several elements a thread see the end themselves.
        _ if form.ends_with('2') => ([15, 7, 1], PLANE),
        _ if is(&["s", "v", "sn", "vn", "ss", "sv", "vs", "vv", "svn", "vsn", "vvn"]) => ([105, 1, 1], LINE),
        _ => return None,
    };
    Some(Shape { threads, threadgroup: if numbers.len() == LINE.len() { [32, 1, 1] } else { [8, 4, 1] }, elements: 400, numbers })
}

fn arange(_: &str) -> Option<Shape> {
    Some(Shape { threads: [100, 1, 1], threadgroup: [32, 1, 1], elements: 100, numbers: &[("start", &[3.0]), ("step", &[2.0])] })
}

/// Three rows: of 100 elements in one pass of 32 threads, or of 5,000 in several passes of 1,024, as MLX launches them.
fn rows(kernel: &str) -> Option<Shape> {
    const SHORT: &[(&str, &[f64])] =
        &[("axis_size", &[100.0]), ("eps", &[1e-5]), ("w_stride", &[1.0]), ("b_stride", &[1.0]), ("n_rows", &[3.0]), ("rows_per_group", &[1.0])];
    const LONG: &[(&str, &[f64])] =
        &[("axis_size", &[5000.0]), ("eps", &[1e-5]), ("w_stride", &[1.0]), ("b_stride", &[1.0]), ("n_rows", &[3.0]), ("rows_per_group", &[1.0])];
    let looped = kernel.contains("looped");
    let threads = if looped { 1024 } else { 32 };
    Some(Shape { threads: [3 * threads, 1, 1], threadgroup: [threads, 1, 1], elements: 15_000, numbers: if looped { LONG } else { SHORT } })
}

fn rope(kernel: &str) -> Option<Shape> {
    const ONE: &[(&str, &[f64])] = &[("offset", &[7.0]), ("scale", &[1.0]), ("stride", &[32.0]), ("base", &[13.287_712]), ("freq_stride", &[1.0])];
    const MANY: &[(&str, &[f64])] = &[
        ("offset", &[7.0, 9.0]),
        ("scale", &[1.0]),
        ("strides", &[256.0, 32.0, 1.0]),
        ("out_strides", &[256.0, 32.0, 1.0]),
        ("offset_stride", &[1.0]),
        ("n_head", &[4.0]),
        ("base", &[13.287_712]),
        ("freq_stride", &[1.0]),
    ];
    let (threads, numbers): ([u32; 3], _) = if kernel.starts_with("rope_single") { ([16, 4, 1], ONE) } else { ([16, 8, 2], MANY) };
    Some(Shape { threads, threadgroup: [16, 1, 1], elements: 4096, numbers })
}

fn reduce(kernel: &str) -> Option<Shape> {
    const NUMBERS: &[(&str, &[f64])] = &[("in_size", &[1000.0]), ("row_size", &[500.0]), ("reduction_size", &[100.0]), ("out_size", &[6.0])];
    match kernel {
        _ if kernel.starts_with("init_reduce") => Some(Shape { threads: [10, 1, 1], threadgroup: [10, 1, 1], elements: 10, numbers: NUMBERS }),
        _ if kernel.starts_with("all_reduce") => Some(Shape { threads: [64, 2, 1], threadgroup: [64, 1, 1], elements: 1000, numbers: NUMBERS }),
        _ if kernel.starts_with("row_reduce_simple") => {
            Some(Shape { threads: [32, 2, 1], threadgroup: [32, 1, 1], elements: 1000, numbers: NUMBERS })
        }
        _ => None,
    }
}

fn scan(kernel: &str) -> Option<Shape> {
    const NUMBERS: &[(&str, &[f64])] = &[("axis_size", &[300.0])];
    kernel.starts_with("contig_scan").then_some(Shape { threads: [64, 3, 1], threadgroup: [64, 1, 1], elements: 900, numbers: NUMBERS })
}

fn arg_reduce(_: &str) -> Option<Shape> {
    const NUMBERS: &[(&str, &[f64])] =
        &[("shape", &[3.0]), ("in_strides", &[100.0]), ("out_strides", &[1.0]), ("ndim", &[1.0]), ("axis_stride", &[1.0]), ("axis_size", &[100.0])];
    Some(Shape { threads: [32, 3, 1], threadgroup: [32, 1, 1], elements: 300, numbers: NUMBERS })
}

fn random(kernel: &str) -> Option<Shape> {
    const NUMBERS: &[(&str, &[f64])] =
        &[("odd", &[0.0]), ("bytes_per_key", &[64.0]), ("ndim", &[1.0]), ("key_shape", &[8.0]), ("key_strides", &[1.0])];
    kernel.starts_with("rbits").then_some(Shape { threads: [4, 8, 1], threadgroup: [4, 8, 1], elements: 256, numbers: NUMBERS })
}

/// A number as an element of that type.
fn encode(kind: &str, value: f64) -> Option<Vec<u8>> {
    Some(match kind {
        "bool" => vec![u8::from(value != 0.0)],
        "char" | "int8_t" => (value as i8).to_le_bytes().to_vec(),
        "uchar" | "uint8_t" => (value as i64 as u8).to_le_bytes().to_vec(),
        "short" | "int16_t" => (value as i16).to_le_bytes().to_vec(),
        "ushort" | "uint16_t" => (value as i64 as u16).to_le_bytes().to_vec(),
        "int" | "int32_t" => (value as i32).to_le_bytes().to_vec(),
        "uint" | "uint32_t" => (value as i64 as u32).to_le_bytes().to_vec(),
        "long" | "int64_t" => (value as i64).to_le_bytes().to_vec(),
        "ulong" | "uint64_t" | "size_t" => (value as i64 as u64).to_le_bytes().to_vec(),
        "float" => (value as f32).to_le_bytes().to_vec(),
        "half" => half::f16::from_f64(value).to_le_bytes().to_vec(),
        "bfloat" => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// The inputs' elements: between -4 and 4, and small where the type has no sign. Integers that may be divisors are not zero, for such a quotient is undefined.
fn filled(kind: &str, elements: usize, salt: u64, is_divisor: bool) -> Option<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ salt;
    let mut bytes = Vec::new();
    for _ in 0..elements {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let unit = (state >> 11) as f64 / (1u64 << 53) as f64;
        let value = match kind {
            "float" | "half" | "bfloat" => unit * 8.0 - 4.0,
            "char" | "short" | "int" | "long" => (unit * 20.0).floor() - 10.0,
            "bool" => (unit * 2.0).floor(),
            _ => (unit * 10.0).floor(),
        };
        bytes.extend(encode(kind, if is_divisor && value == 0.0 { 1.0 } else { value })?);
    }
    Some(bytes)
}

/// What a kernel is launched with.
struct Case {
    shape: Shape,
    /// Index, contents, and whether it is written.
    buffers: Vec<(u32, Vec<u8>, bool)>,
    bytes: Vec<(u32, Vec<u8>)>,
    constants: Vec<(u32, ConstantValue)>,
}

/// Plausible arguments; none where a type or parameter is not provided for.
fn case(library: &Library, name: &str, shape: Shape) -> Option<Case> {
    use elinvar_msl::ParameterKind;
    let kernel = library.kernels().kernel(name).ok()?;
    let (mut buffers, mut bytes) = (Vec::new(), Vec::new());
    for parameter in &kernel.parameters {
        let ParameterKind::Buffer { index, written, element, .. } = &parameter.kind else { continue };
        let numbers = shape.numbers.iter().find(|(known, _)| *known == parameter.name).map(|(_, numbers)| *numbers);
        match (parameter.name.as_str(), numbers) {
            (_, Some(numbers)) => bytes.push((*index, numbers.iter().map(|number| encode(element, *number)).collect::<Option<Vec<_>>>()?.concat())),
            ("in" | "a" | "b" | "c" | "d" | "out" | "src" | "dst" | "x" | "w" | "g" | "gx" | "gw" | "freqs" | "keys", None) => {
                let size = encode(element, 0.0)?.len();
                let contents = if *written {
                    vec![0; size * shape.elements]
                } else {
                    filled(element, shape.elements, u64::from(*index), parameter.name == "b")?
                };
                buffers.push((*index, contents, *written));
            }
            (_, None) => return None,
        }
    }
    let constants = library.kernels().constants(name).ok()?.iter().map(|constant| (constant.index, ConstantValue::Bool(true))).collect();
    Some(Case { shape, buffers, bytes, constants })
}

/// What a launch wrote, and what was found.
fn launch(simulator: &Simulator, pipeline: &Pipeline, case: &Case) -> (Vec<Vec<u8>>, Vec<String>) {
    let mut dispatch = Dispatch::new(pipeline, Grid::Threads(case.shape.threads), case.shape.threadgroup);
    let mut written: Vec<Buffer> = Vec::new();
    for (index, contents, is_written) in &case.buffers {
        let buffer = simulator.buffer_with("buffer", contents).unwrap();
        dispatch = dispatch.with(Binding::new(*index, &buffer).output(Output::Free));
        written.extend(is_written.then_some(buffer));
    }
    for (index, bytes) in &case.bytes {
        dispatch = dispatch.with_bytes(*index, bytes.clone());
    }
    let mut commands = CommandBuffer::with_seed(1);
    if let Err(error) = commands.dispatch(dispatch) {
        return (Vec::new(), vec![error.to_string()]);
    }
    let report = simulator.queue().unwrap().submit(commands).wait().unwrap();
    (written.iter().map(Buffer::to_vec).collect(), report.findings.iter().map(ToString::to_string).collect())
}

#[derive(Default)]
struct Count {
    kernels: usize,
    no_launch: usize,
    text_fails: usize,
    library_fails: usize,
    equal: usize,
    different: usize,
    findings: usize,
}

fn main() {
    let mut arguments = env::args().skip(1);
    let (mut include_dirs, mut step, mut wanted, mut places) = (Vec::new(), 1, Vec::new(), Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-I" => include_dirs.extend(arguments.next().map(PathBuf::from)),
            "--step" => step = arguments.next().and_then(|step| step.parse().ok()).unwrap_or(1),
            "--family" => wanted.extend(arguments.next()),
            _ => places.push(argument),
        }
    }
    let [library, source] = places.as_slice() else { panic!("calibrate LIBRARY SOURCE [-I INCLUDE]... [--step N] [--family NAME]...") };
    let simulator = Simulator::new(Config::default()).unwrap();
    let compiled = simulator.compiled_library("mlx.metallib", fs::read(library).unwrap(), &CompileOptions::default()).unwrap();
    let options = CompileOptions {
        include_dirs: include_dirs.into_iter().chain([PathBuf::from(source)]).collect(),
        // From 3.2 on MLX's headers have Metal's own logger, which the kernels that are launched here do not use.
        metal_version: 320,
        ..CompileOptions::default()
    };
    let mut all = BTreeMap::new();
    for family in FAMILIES.iter().filter(|family| wanted.is_empty() || wanted.iter().any(|wanted| wanted == family.name)) {
        all.insert(family.name, calibrate(&simulator, &compiled, Path::new(source), &options, family, step));
    }
    println!("| Family | Kernels | Run both ways | Equal bits | Different | With findings | Text rejected | Library rejected | No launch known |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for (family, count) in all {
        let Count { kernels, no_launch, text_fails, library_fails, equal, different, findings } = count;
        println!(
            "| {family} | {kernels} | {} | {equal} | {different} | {findings} | {text_fails} | {library_fails} | {no_launch} |",
            equal + different
        );
    }
}

fn calibrate(simulator: &Simulator, compiled: &Library, source: &Path, options: &CompileOptions, family: &Family, step: usize) -> Count {
    let path = source.join(format!("mlx/backend/metal/kernels/{}.metal", family.file));
    let text = match Source::read(&path).and_then(|text| simulator.library(&text, options)) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{}: {error}", family.name);
            return Count::default();
        }
    };
    let (mut count, mut cases) = (Count::default(), Vec::new());
    for name in text.kernels().names().into_iter().step_by(step) {
        if compiled.kernels().kernel(name).is_err() {
            continue;
        }
        count.kernels += 1;
        match (family.launch)(name).and_then(|shape| case(compiled, name, shape)) {
            Some(case) => cases.push((name, case)),
            None => count.no_launch += 1,
        }
    }
    let plain: Vec<&str> = cases.iter().filter(|(_, case)| case.constants.is_empty()).map(|(name, _)| *name).collect();
    // Several in one run of the compiler; what fails is reported below, one by one.
    let _ = text.compile_all(&plain);
    for (name, case) in &cases {
        let of_text = match text.pipeline(name, &case.constants) {
            Ok(pipeline) => pipeline,
            Err(error) => {
                eprintln!("{name}: text: {}", error.to_string().lines().next().unwrap_or_default());
                count.text_fails += 1;
                continue;
            }
        };
        let of_library = match compiled.pipeline(name, &case.constants) {
            Ok(pipeline) => pipeline,
            Err(error) => {
                eprintln!("{name}: library: {error}");
                count.library_fails += 1;
                continue;
            }
        };
        let ((text, text_findings), (library, library_findings)) = (launch(simulator, &of_text, case), launch(simulator, &of_library, case));
        if text == library {
            count.equal += 1;
        } else {
            count.different += 1;
            let bytes = text.iter().flatten().zip(library.iter().flatten()).filter(|(a, b)| a != b).count();
            eprintln!("{name}: {bytes} of {} bytes differ", text.iter().flatten().count());
        }
        if !text_findings.is_empty() || !library_findings.is_empty() {
            count.findings += 1;
            for finding in text_findings.iter().take(2).chain(library_findings.iter().take(2)) {
                eprintln!("{name}: {finding}");
            }
        }
    }
    count
}
