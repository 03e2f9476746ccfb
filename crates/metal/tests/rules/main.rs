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
use elinvar_core::{Backend, DType, DeviceKind, DeviceProperties, METAL_VERSION, NullBackend, metal_type};
use elinvar_kernels::{
    Launch,
    conformance::{self, Case},
};
use elinvar_msl::{MetalHeaders, Module, Parameter, ParameterKind, preprocess};
use elinvar_sim::Judge;
use properties::gpu;

fn preprocessed(text: &str, version: u32) -> String {
    preprocess("text", text, &[("__METAL_VERSION__", &version.to_string())], &MetalHeaders).unwrap()
}

/// What is found in texts, each with its version and the number of its kernels.
fn judge(texts: &[(String, u32, usize)]) -> BTreeSet<String> {
    let (judge, next, found) = (Judge::open(None).unwrap(), AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let work = || {
        while let Some((text, version, kernels)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let module = Module::read(&preprocessed(text, *version)).unwrap();
            let names: Vec<&str> = module.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
            assert_eq!(names.len(), *kernels, "{text}");
            found.lock().unwrap().extend(judge.judge(&module, &names, *version).unwrap().iter().map(ToString::to_string));
        }
    };
    thread::scope(|scope| [0, 1].map(|_| scope.spawn(work)).map(|worker| worker.join().unwrap()));
    found.into_inner().unwrap()
}

/// The launches of cases on GPUs, one for each kernel, by the text and the instance of it that they take.
fn launches(cases: impl IntoIterator<Item = Case>) -> BTreeMap<String, BTreeMap<String, Launch>> {
    let metal = DeviceProperties { kind: DeviceKind::Metal, ..NullBackend::new().properties().clone() };
    let mut texts: BTreeMap<String, BTreeMap<String, Launch>> = BTreeMap::new();
    for case in cases {
        // Texts that plans for other devices alone take, too.
        let launches = [&metal, &gpu(90)].map(|device| case.plan(device).unwrap().launches);
        for launch in launches.into_iter().flatten() {
            let Some(form) = launch.kernel.metal.as_ref().and_then(|metal| metal.form()) else { continue };
            texts.entry(form.text(|file| file.text)).or_default().insert(form.instance(&launch.kernel.key), launch);
        }
    }
    texts
}

fn with_instances(text: String, launches: &BTreeMap<String, Launch>) -> String {
    text + &launches.keys().map(String::as_str).collect::<String>()
}

#[test]
fn every_kernel_of_the_library() {
    let metal = DeviceProperties { kind: DeviceKind::Metal, ..NullBackend::new().properties().clone() };
    let cases: Vec<_> = conformance::sample(conformance::cases(), &metal).into_iter().chain(conformance::rejected()).collect();
    // What the suite does not run on the simulator, since no plan for Apple's GPUs takes it, has a test of its own there.
    let functions = |device: &DeviceProperties| -> BTreeSet<_> {
        let forms =
            |case: &Case| case.plan(device).unwrap().launches.into_iter().filter_map(|launch| Some(launch.kernel.metal.as_ref()?.form()?.function));
        cases.iter().flat_map(forms).collect()
    };
    let (here, elsewhere) = (functions(&metal), functions(&gpu(90)));
    let alone: Vec<_> = elsewhere.difference(&here).collect();
    let tested = ["lora_adapter", "normalised_row_bytes", "quantized_linear_blocks", "quantized_row_bytes"];
    assert!(alone.iter().all(|function| tested.contains(*function)), "{alone:?}");
    let texts = launches(cases);
    let kernels: usize = texts.values().map(BTreeMap::len).sum();
    let whole = |(text, launches): (String, BTreeMap<String, Launch>)| (with_instances(text, &launches), METAL_VERSION, launches.len());
    let texts: Vec<_> = texts.into_iter().map(whole).collect();
    let found = judge(&texts);
    println!("{kernels} kernels of {} texts", texts.len());
    assert!(kernels > if conformance::runs_all() { 1000 } else { 200 } && found.is_empty(), "{kernels} kernels: {found:#?}");
}

/// What a kernel's text takes is what its launch declares: names, order, types of elements, and what is only read.
#[test]
fn every_kernel_takes_the_operands_that_its_launch_declares() {
    let (mut kernels, mut wrong) = (0, BTreeSet::new());
    for (text, launches) in launches(conformance::cases().into_iter().chain(conformance::rejected())) {
        let module = Module::read(&preprocessed(&with_instances(text, &launches), METAL_VERSION)).unwrap();
        for launch in launches.values() {
            let (source, name) = (&launch.kernel, launch.kernel.key.to_string());
            let kernel = module.kernels().iter().find(|kernel| kernel.name == name).unwrap();
            // The parameter block and the word of a kernel that rejects come after the operands.
            let others = usize::from(!launch.params.is_empty()) + usize::from(source.rejects());
            let declared = source.parameters.iter().enumerate();
            let declared = declared.map(|(index, p)| (index as u32, p.name.to_string(), p.access.writes(), metal_type(p.dtype).to_owned()));
            let mut found: Vec<_> = kernel.parameters.iter().filter_map(operand).collect();
            if found.len() != source.parameters.len() + others {
                wrong.insert(format!("{name} has {} buffers: {} and {others} others declared", found.len(), source.parameters.len()));
            }
            found.truncate(source.parameters.len());
            let differ = declared.zip(found).filter(|(declared, found)| declared != found);
            wrong.extend(differ.map(|(declared, found)| format!("{} takes {found:?}: {declared:?} declared", source.key.operator)));
            kernels += 1;
        }
    }
    println!("{kernels} kernels");
    assert!(kernels > 1000 && wrong.is_empty(), "{kernels} kernels: {wrong:#?}");
}

/// A buffer's index, name, whether it is written, and the type of its elements.
fn operand(parameter: &Parameter) -> Option<(u32, String, bool, String)> {
    match &parameter.kind {
        ParameterKind::Buffer { index, written, element, .. } => Some((*index, parameter.name.clone(), *written, element.clone())),
        ParameterKind::Threadgroup { .. } | ParameterKind::Position(_) => None,
    }
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
