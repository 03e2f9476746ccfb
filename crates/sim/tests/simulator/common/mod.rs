//! What the simulator's tests share.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod nonuniform;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, OnceLock},
};

use elinvar_sim::{Buffer, CommandBuffer, CompileOptions, Config, Dispatch, Library, Queue, Report, Simulator, Source};

/// One simulator for a test binary: making another would only repeat the search for the compiler.
pub(crate) fn simulator() -> &'static Simulator {
    static SIMULATOR: OnceLock<Simulator> = OnceLock::new();
    SIMULATOR.get_or_init(|| {
        let config = Config { threads: Some(2), time_limit: std::time::Duration::from_millis(80), ..Config::default() };
        Simulator::new(config).unwrap_or_else(|error| panic!("{error}"))
    })
}

/// A file of `tests/kernels`, read once.
pub(crate) fn library(file: &'static str, checked: bool) -> Library {
    static LIBRARIES: Mutex<BTreeMap<(&str, bool), Library>> = Mutex::new(BTreeMap::new());
    LIBRARIES.lock().unwrap().entry((file, checked)).or_insert_with(|| read(file, checked)).clone()
}

fn read(file: &str, checked: bool) -> Library {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(file);
    let source = Source { name: file.to_owned(), ..Source::read(&path).unwrap() };
    simulator().library(&source, &CompileOptions { checked, ..CompileOptions::default() }).unwrap()
}

/// A buffer of these values.
pub(crate) fn buffer<T: Copy>(name: &str, values: &[T]) -> Buffer {
    // SAFETY: plain numbers.
    let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) };
    simulator().buffer_with(name, bytes).unwrap()
}

/// The values a buffer holds.
pub(crate) fn values<T: Copy>(buffer: &Buffer) -> Vec<T> {
    let bytes = buffer.to_vec();
    // SAFETY: plain numbers, read wherever they lie.
    (0..bytes.len() / size_of::<T>()).map(|at| unsafe { bytes.as_ptr().cast::<T>().add(at).read_unaligned() }).collect()
}

pub(crate) fn queue() -> Queue {
    simulator().queue().unwrap()
}

/// Runs one dispatch.
pub(crate) fn run(queue: &Queue, dispatch: Dispatch, seed: u64) -> Report {
    let mut commands = CommandBuffer::with_seed(seed);
    commands.dispatch(dispatch).unwrap();
    (*queue.submit(commands).wait().unwrap()).clone()
}
