//! Compiles kernels of a Metal library that Apple's compiler has made to PTX, and counts what becomes of them:
//!
//! ```text
//! cargo run --release -p elinvar-cuda --example library -- mlx.metallib [--step N] [--filter TEXT] [--capability N] [--nonuniform]
//! ```
//!
//! No GPU is needed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a tool that cannot go on ends")]

use std::{
    collections::BTreeMap,
    env, fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use elinvar_core::{CompiledMetal, METAL_VERSION, MetalCode, UserMetal};
use elinvar_cuda::LibraryCompiler;
use elinvar_metallib::CompiledLibrary;
use elinvar_msl::cuda::Threadgroups;

fn main() {
    let mut arguments = env::args().skip(1);
    let (mut file, mut step, mut filter, mut capability, mut threadgroups) = (None, 1, String::new(), 90, Threadgroups::Uniform);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|number| number.parse().ok()).expect("a number");
        match argument.as_str() {
            "--step" => step = number(),
            "--capability" => capability = number() as u32,
            "--filter" => filter = arguments.next().unwrap_or_default(),
            "--nonuniform" => threadgroups = Threadgroups::Nonuniform,
            _ => file = Some(argument),
        }
    }
    let file = file.expect("library FILE [--step N] [--filter TEXT] [--capability N] [--nonuniform]");
    let bytes: Arc<[u8]> = fs::read(&file).unwrap().into();
    let library = CompiledLibrary::read(&file, bytes.clone()).unwrap();
    let compiled = CompiledMetal::new(bytes);
    let compiler = LibraryCompiler::new(None).unwrap();
    let names: Vec<&str> = library.names().filter(|name| name.contains(&filter)).step_by(step).collect();
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<String, (usize, String)>::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let made = compiler.compile(&user(&file, &compiled, name), &compiled, threadgroups, capability);
                    let outcome = made.map_or_else(|error| error.to_string().replace(&format!("`{name}`"), "`…`"), |_| "compiled".to_owned());
                    let mut counts = counts.lock().unwrap();
                    counts.entry(outcome).or_insert_with(|| (0, (*name).to_owned())).0 += 1;
                }
            });
        }
    });
    println!("{} kernels", names.len());
    for (outcome, (count, first)) in counts.into_inner().unwrap() {
        println!("{count:6} {outcome} (first: {first})");
    }
}

fn user(file: &str, library: &CompiledMetal, kernel: &str) -> UserMetal {
    UserMetal {
        name: file.to_owned(),
        code: MetalCode::Library(library.clone()),
        kernel: kernel.to_owned(),
        constants: Vec::new(),
        fast_math: false,
        version: METAL_VERSION,
        buffers: Vec::new(),
        threadgroup: Vec::new(),
        rejections: Vec::new(),
        registers: None,
    }
}
