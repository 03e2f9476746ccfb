//! Launches kernels of a compiled Metal library as the simulator launched them, and compares what they write, bit by bit:
//!
//! ```text
//! tools/calibrate FOLDER --save CASES
//! cargo run --release -p elinvar --example replay -- mlx.metallib CASES --device cuda
//! ```
//!
//! CASES holds a safetensors file for each launch, or a folder of them for each family.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a tool that cannot go on ends")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use elinvar::{BackendType, ConstantValue, Executor, KernelArgument, MetalKernel, MetalLibrary, Result, Tensor};
use elinvar_msl::ParameterKind;
use safetensors::SafeTensors;

/// A launch and what it must write.
struct Case {
    kernel: String,
    constants: Vec<(u32, String)>,
    /// Threads, or threadgroups.
    grid: [u32; 3],
    counts_threads: bool,
    threadgroup: [u32; 3],
    buffers: Vec<(u32, Vec<u8>)>,
    bytes: Vec<(u32, Vec<u8>)>,
    written: Vec<(u32, Vec<u8>)>,
}

impl Case {
    fn read(file: &Path) -> Self {
        let content = fs::read(file).unwrap();
        let (_, header) = SafeTensors::read_metadata(&content).unwrap();
        let header = header.metadata().as_ref().expect("metadata").clone();
        let numbers = |name: &str| -> Option<[u32; 3]> {
            let numbers: Vec<u32> = header.get(name)?.split(',').map(|number| number.parse().unwrap()).collect();
            numbers.try_into().ok()
        };
        let constants = header.get("constants").map_or("", String::as_str).split(',').filter_map(|constant| constant.split_once('='));
        let tensors = SafeTensors::deserialize(&content).unwrap();
        let of = |kind: &str| -> Vec<(u32, Vec<u8>)> {
            let named = tensors
                .iter()
                .filter_map(|(name, tensor)| Some((name.strip_prefix(kind)?.strip_prefix('.')?.parse().unwrap(), tensor.data().to_vec())));
            named.collect()
        };
        Self {
            kernel: header["kernel"].clone(),
            constants: constants.map(|(index, value)| (index.parse().unwrap(), value.to_owned())).collect(),
            grid: numbers("threads").or_else(|| numbers("threadgroups")).expect("a grid"),
            counts_threads: header.contains_key("threads"),
            threadgroup: numbers("threadgroup").expect("a threadgroup"),
            buffers: of("buffer"),
            bytes: of("bytes"),
            written: of("written"),
        }
    }

    fn prepare(&self, library: &MetalLibrary) -> Result<MetalKernel> {
        let known = library.kernels().constants(&self.kernel)?;
        let given = self.constants.iter().filter_map(|(index, value)| {
            let constant = known.iter().find(|constant| constant.index == *index)?;
            Some((constant.name.as_str(), value_of(&constant.type_name, value)))
        });
        library.kernel(&self.kernel, &given.collect::<Vec<_>>())
    }

    /// How many bytes differ, of how many.
    fn launch(&self, executor: &Executor, kernel: &MetalKernel) -> Result<(usize, usize)> {
        let tensors: Vec<(u32, Tensor)> =
            self.buffers.iter().map(|(index, bytes)| Ok((*index, executor.tensor(&[bytes.len()], bytes)?))).collect::<Result<_>>()?;
        let name = |index: u32| {
            let bound = |kind: &ParameterKind| matches!(kind, ParameterKind::Buffer { index: own, .. } if *own == index);
            kernel.signature().parameters.iter().find(|parameter| bound(&parameter.kind)).map_or("", |parameter| parameter.name.as_str())
        };
        let buffers = tensors.iter().map(|(index, tensor)| (name(*index), KernelArgument::Tensor(tensor)));
        let bytes = self.bytes.iter().map(|(index, bytes)| (name(*index), KernelArgument::Bytes(bytes)));
        let arguments: Vec<_> = buffers.chain(bytes).filter(|(name, _)| !name.is_empty()).collect();
        match self.counts_threads {
            true => kernel.launch_threads(self.grid, self.threadgroup, &arguments)?,
            false => kernel.launch(self.grid, self.threadgroup, &arguments)?,
        }
        let (mut different, mut all) = (0, 0);
        for (index, expected) in &self.written {
            let (_, tensor) = tensors.iter().find(|(own, _)| own == index).expect("a buffer that is written");
            let found = tensor.to_vec::<u8>()?;
            all += expected.len();
            different += found.iter().zip(expected).filter(|(a, b)| a != b).count();
        }
        Ok((different, all))
    }
}

fn value_of(kind: &str, value: &str) -> ConstantValue {
    match (kind, value.parse::<i64>()) {
        ("bool", _) => ConstantValue::Bool(value == "true" || value == "1"),
        ("float" | "half" | "bfloat", _) => ConstantValue::Float(value.parse().unwrap()),
        (kind, Ok(value)) if kind.starts_with('u') => ConstantValue::Uint(value as u64),
        (_, value) => ConstantValue::Int(value.unwrap()),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn main() -> ExitCode {
    let (mut places, mut device, mut arguments) = (Vec::new(), BackendType::MetalSim, env::args().skip(1));
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => device = arguments.next().unwrap_or_default().parse().unwrap(),
            _ => places.push(PathBuf::from(argument)),
        }
    }
    let [library, folder] = places.as_slice() else { panic!("replay LIBRARY CASES [--device NAME]") };
    let executor = Executor::new_with_backend(device).unwrap();
    let library = executor.load_metal_library(library).unwrap();
    let (families, alone): (Vec<_>, Vec<_>) = files(folder).into_iter().partition(|path| path.is_dir());
    println!("| Family | Launches | Equal bits | Different | Failed |\n|---|---|---|---|---|");
    let mut all_equal = true;
    let families = families.iter().map(|family| (family.file_name().unwrap_or_default().to_string_lossy().into_owned(), files(family)));
    for (family, files) in families.chain((!alone.is_empty()).then(|| ("all".to_owned(), alone))) {
        let cases: Vec<Case> = files.iter().map(|file| Case::read(file)).collect();
        // They compile side by side.
        let kernels: Vec<Result<MetalKernel>> = cases.iter().map(|case| case.prepare(&library)).collect();
        let (mut equal, mut different, mut failed) = (0, 0, 0);
        for (case, kernel) in cases.iter().zip(kernels) {
            match kernel.and_then(|kernel| case.launch(&executor, &kernel)) {
                Ok((0, _)) => equal += 1,
                Ok((bytes, all)) => {
                    different += 1;
                    eprintln!("{family}: {}: {bytes} of {all} bytes differ", case.kernel);
                }
                Err(error) => {
                    failed += 1;
                    eprintln!("{family}: {}: {error}", case.kernel);
                }
            }
        }
        println!("| {family} | {} | {equal} | {different} | {failed} |", cases.len());
        all_equal &= different + failed == 0;
    }
    ExitCode::from(u8::from(!all_equal))
}
