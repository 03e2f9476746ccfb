//! Runs whatever a fuzzer has found to be verified on a device: `hostile DEVICE FOLDER`, the folder being a corpus of `fuzz/fuzz_targets/run.rs`.
//!
//! Programs may race and may spend their steps. On the simulator, which checks every access, anything else it reports is a hole in the verifier or
//! the renderer, as is a program that does not compile.

use std::{
    error::Error,
    fs,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use elinvar::{
    BackendType, Executor, ProgramArgument, Result,
    atlas::{self, Constant, LaunchConfig, Limits, Program},
};

/// Elements of each buffer.
const ELEMENTS: usize = 40;
const LIMITS: fn() -> Limits = || Limits { steps: Some(300), ..Limits::default() };

/// The program of a corpus' file, which lacks header and checksum, if it is one that may run.
fn program(contents: &[u8]) -> Option<Program> {
    let mut bytes = [&b"ATLS"[..], &1u32.to_le_bytes(), contents].concat();
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    bytes.extend_from_slice(&sum.to_le_bytes());
    let verified = atlas::verify(atlas::decode(&bytes).ok()?, &LIMITS()).ok()?;
    (!verified.program().uses(elinvar::DType::F64)).then(|| verified.program().clone())
}

fn run(executor: &Executor, program: &Program) -> Result<()> {
    let kernel = executor.compile_program_within(program.clone(), &LIMITS())?;
    let buffers = program.parameters.iter().map(|p| {
        let bytes = [5, 4, 3, 2, 1, 0, 0x80, 0x3f].repeat(ELEMENTS)[..ELEMENTS * p.dtype.size()].to_vec();
        p.access.map(|_| executor.tensor_from_bytes(p.dtype, &[ELEMENTS], &bytes)).transpose()
    });
    let buffers = buffers.collect::<Result<Vec<_>>>()?;
    let arguments = program.parameters.iter().zip(&buffers).map(|(p, buffer)| {
        let scalar = ProgramArgument::Scalar(Constant { dtype: p.dtype, bits: 1 });
        (p.name.as_str(), buffer.as_ref().map_or(scalar, ProgramArgument::Tensor))
    });
    let arguments: Vec<_> = arguments.collect();
    let given = program.shared.iter().find(|shared| shared.length == 0).map_or(0, |shared| 16 * shared.dtype.size() as u32);
    let launch = LaunchConfig::new([2, 1, 1], program.block.unwrap_or([32, 1, 1])).with_shared_memory(given);
    let (recording, ()) = executor.record(|recorded| kernel.on(recorded)?.launch(&launch, &arguments))?;
    executor.replay(&recording)?.wait()
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(device), Some(folder)) = (arguments.next(), arguments.next()) else { return Err("hostile DEVICE FOLDER".into()) };
    let executor = Executor::new_with_backend(device.parse::<BackendType>()?)?;
    let mut programs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        programs.extend(program(&fs::read(&path)?).map(|program| (path, program)));
    }
    let counts: [AtomicUsize; 5] = Default::default();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((path, program)) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let message = run(&executor, program).err().map(|error| error.to_string());
            let class = match message.as_deref() {
                None => 0,
                Some(message) if message.contains("more steps than they may") => 1,
                Some(message) if message.contains("is out of bounds") && message.contains("an element of") => 2,
                Some(message) if message.contains("data-race") || message.contains("no multiple of 32") => 3,
                Some(message) => {
                    println!("{}: {message}\n{}", path.display(), atlas::format(program));
                    4
                }
            };
            counts[class].fetch_add(1, Ordering::Relaxed);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let [ended, stopped, trapped, raced, failed] = counts.map(AtomicUsize::into_inner);
    println!(
        "{} programs: {ended} ended, {stopped} were stopped, {trapped} trapped, {raced} raced or were not launched, {failed} failed",
        programs.len()
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
