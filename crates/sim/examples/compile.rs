//! What of a compiled Metal library the simulator compiles:
//!
//! ```text
//! cargo run --release -p elinvar-sim --example compile -- FILE [--step N]
//! ```
//!
//! Every kernel is disassembled. Compiled, with every check, are each Nth one, and one for every function that any of them calls, so that a function which
//! the simulator does not have cannot go unseen. Rejections are counted by reason.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a tool that cannot go on ends")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env, fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use elinvar_metallib::{FunctionKind, Library as Contents};
use elinvar_sim::{CompileOptions, Config, Simulator};
use rayon::prelude::*;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (file, step) = match arguments.as_slice() {
        [file] => (file, 1),
        [file, option, step] if option == "--step" => (file, step.parse().expect("--step N")),
        _ => panic!("compile FILE [--step N]"),
    };
    let bytes = fs::read(file).unwrap();
    let simulator = Simulator::new(Config::default()).unwrap();
    let clang = simulator.toolchain().clang();
    let contents = Contents::read(file, &bytes).unwrap();
    let functions: Vec<_> = contents.functions().iter().enumerate().filter(|(_, function)| function.kind == FunctionKind::Kernel).collect();
    let done = AtomicUsize::new(0);
    let called = functions.par_iter().map(|(at, function)| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(2000) {
            eprintln!("{done} of {} disassembled", functions.len());
        }
        let text = clang.disassemble(function.bitcode, function.name).unwrap_or_else(|error| panic!("{error}"));
        let declared = text.lines().filter(|line| line.starts_with("declare ")).filter_map(|line| line.split_once('@')?.1.split('(').next());
        let declared: Vec<String> = declared.filter(|name| !name.starts_with("llvm.")).map(str::to_owned).collect();
        (*at, declared)
    });
    let mut callers = HashMap::new();
    for (at, declared) in called.collect::<Vec<_>>() {
        for name in declared {
            callers.entry(name).or_insert(at);
        }
    }
    let sample = functions.iter().step_by(step).map(|(at, _)| *at);
    let chosen: BTreeSet<usize> = callers.values().copied().chain(sample).collect();
    // A file may hold several functions of one name, each in a library of its own.
    let open = |library: &[u8]| simulator.compiled_library(file, library, &CompileOptions::default()).unwrap();
    let mut libraries = HashMap::new();
    for &at in &chosen {
        let library = contents.functions()[at].library;
        libraries.entry(library.as_ptr().addr()).or_insert_with(|| open(library));
    }
    let outcomes = chosen.par_iter().map(|&at| {
        let function = &contents.functions()[at];
        let compiled = libraries[&function.library.as_ptr().addr()].compile_all(&[function.name], &[]);
        compiled.err().map(|error| error.to_string().replace(function.name, "…").lines().next().unwrap_or_default().to_owned())
    });
    let mut reasons = BTreeMap::<String, usize>::new();
    outcomes.collect::<Vec<_>>().into_iter().flatten().for_each(|reason| *reasons.entry(reason).or_default() += 1);
    let rejected: usize = reasons.values().sum();
    println!("{} kernels disassembled; they call {} functions of Metal's library", functions.len(), callers.len());
    println!("{} compiled, {rejected} rejected", chosen.len() - rejected);
    reasons.iter().for_each(|(reason, count)| println!("{count}: {reason}"));
}
