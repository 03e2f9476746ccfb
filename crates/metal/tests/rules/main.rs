//! Every kernel of the library, and every program that Atlas renders, as Apple's compiler would read it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

#[path = "../../../atlas/tests/programs/common/mod.rs"]
mod common;
#[path = "../../../cuda/tests/properties/mod.rs"]
mod properties;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use common::{cooperation::Cooperation, random, table};
use elinvar_atlas::{Bounds, Limits, Program, parse, render, verify};
use elinvar_core::{Backend, DType, DeviceKind, DeviceProperties, METAL_VERSION, NullBackend};
use elinvar_kernels::conformance;
use elinvar_msl::{MetalHeaders, Module, preprocess};
use elinvar_sim::Judge;
use properties::gpu;

/// What is found in texts, each with its version and the number of its kernels.
fn judge(texts: &[(String, u32, usize)]) -> BTreeSet<String> {
    let (judge, next, found) = (Judge::open(None).unwrap(), AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let work = || {
        while let Some((text, version, kernels)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let version_text = version.to_string();
            let module = Module::read(&preprocess("text", text, &[("__METAL_VERSION__", &version_text)], &MetalHeaders).unwrap()).unwrap();
            let names: Vec<&str> = module.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
            assert_eq!(names.len(), *kernels, "{text}");
            found.lock().unwrap().extend(judge.judge(&module, &names, *version).unwrap().iter().map(ToString::to_string));
        }
    };
    thread::scope(|scope| [0, 1].map(|_| scope.spawn(work)).map(|worker| worker.join().unwrap()));
    found.into_inner().unwrap()
}

#[test]
fn every_kernel_of_the_library() {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut functions = [BTreeSet::new(), BTreeSet::new()];
    let metal = DeviceProperties { kind: DeviceKind::Metal, ..NullBackend::new().properties().clone() };
    let cases = conformance::sample(conformance::cases(), &metal).into_iter().chain(conformance::refused());
    for case in cases {
        // Texts that plans for other devices alone take, too.
        for (device, functions) in [&metal, &gpu(90)].into_iter().zip(&mut functions) {
            for launch in case.plan(device).unwrap().launches {
                let Some(form) = launch.kernel.metal.as_ref().and_then(|metal| metal.form()) else { continue };
                texts.entry(form.text(|file| file.text)).or_default().insert(form.instance(&launch.kernel.key));
                functions.insert(form.function);
            }
        }
    }
    // What the suite does not run on the simulator, since no plan for Apple's GPUs takes it, has a test of its own there.
    let [here, elsewhere] = &functions;
    let alone: Vec<_> = elsewhere.difference(here).collect();
    assert!(alone.iter().all(|function| **function == "lora_adapter"), "{alone:?}");
    let kernels: usize = texts.values().map(BTreeSet::len).sum();
    let whole = |(text, instances): (String, BTreeSet<String>)| {
        (text + &instances.iter().map(String::as_str).collect::<String>(), METAL_VERSION, instances.len())
    };
    let texts: Vec<_> = texts.into_iter().map(whole).collect();
    let found = judge(&texts);
    println!("{kernels} kernels of {} texts", texts.len());
    assert!(kernels > if conformance::runs_all() { 1000 } else { 200 } && found.is_empty(), "{kernels} kernels: {found:#?}");
}

/// The text of a program under each policy of bounds.
fn rendered(program: &Program) -> Vec<(String, u32, usize)> {
    let with = |bounds: &Bounds| {
        let limits = Limits { unchecked: true, ..Limits::default() };
        let metal = render::metal(&verify(Program { bounds: *bounds, ..program.clone() }, &limits).unwrap(), true);
        (metal.text, metal.version, 1)
    };
    [Bounds::Checked, Bounds::Unchecked, Bounds::Trap].iter().map(with).collect()
}

#[test]
fn every_operator_of_atlas_on_every_type_and_programs_at_random() {
    let tables = random::TYPES.iter().map(|&dtype| parse(&table(dtype, random::TYPES, dtype == DType::BF16).text).unwrap());
    let together = Cooperation::all(random::TYPES).into_iter().map(|cooperation| cooperation.program);
    let fence = parse("atlas 1\nprogram fenced\nbuffer y: write f32\nkernel\n  fence\n  store y[0] 1.0\nend\n").unwrap();
    let count = if conformance::runs_all() { 40 } else { 8 };
    if count < 40 {
        conformance::skipped("32 of 40 random programs");
    }
    let programs: Vec<Program> =
        [fence].into_iter().chain(tables).chain(together).chain((0..count).map(|seed| random::program(seed, random::TYPES))).collect();
    let texts: Vec<_> = programs.iter().flat_map(rendered).collect();
    assert!(texts.len() > 60 && texts.iter().any(|(_, version, _)| *version > METAL_VERSION));
    let found = judge(&texts);
    assert!(found.is_empty(), "{found:#?}");
}
