//! Every kernel of the conformance suite is compiled by NVRTC to machine code, for several kinds of GPU; none need be there.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

mod nonuniform;
mod properties;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use elinvar_core::{DType, KernelSource, Metal};
use elinvar_cuda::Compiler;
use elinvar_kernels::collective::{CollectiveParams, Delivering, Delivery, Pushing};
use elinvar_kernels::conformance;
use elinvar_kernels::cuda::CudaForm;
use elinvar_msl::cuda::Threadgroups;
use properties::gpu;

/// Compute capabilities: A100, H100 and H200, and the consumer cards after them.
const CAPABILITIES: [u32; 3] = [80, 90, 120];

/// The one that all kernels are compiled for.
const WHOLE: u32 = 90;

/// The kernels of every case, those that share a text together.
fn kernels(capability: u32) -> Vec<Vec<Arc<KernelSource>>> {
    let (device, mut seen, mut of_groups) = (gpu(capability), HashMap::new(), HashSet::new());
    let mut texts: BTreeMap<String, Vec<Arc<KernelSource>>> = BTreeMap::new();
    let gathering = [4, 1 << 20].map(|width| CollectiveParams { rows: 2, width }.among_peers(DType::F32, 2, 0).unwrap());
    let cases = conformance::sample(conformance::cases(), &device);
    for launch in cases.iter().flat_map(|case| case.plan(&device).unwrap().launches).chain(gathering).chain([Delivery::opening(2, 0)]) {
        if seen.insert(launch.kernel.key.clone(), ()).is_some() {
            continue;
        }
        let name = match launch.kernel.native() {
            Some(CudaForm::MatrixProduct | CudaForm::AllGather) => continue,
            Some(CudaForm::Source(_)) => launch.kernel.key.to_string(),
            None => {
                let form =
                    launch.kernel.metal.as_ref().and_then(Metal::form).unwrap_or_else(|| panic!("{} has no form for a GPU", launch.kernel.key));
                format!("{} {}", form.fast_math, form.text(|file| file.text))
            }
        };
        let pushing = Pushing::of(&launch.kernel, &launch.params).map(|Pushing { kernel, .. }| kernel);
        let delivering = Delivering::of(&launch.kernel).map(|Delivering { kernel, .. }| kernel);
        for kernel in pushing.into_iter().chain(delivering) {
            if of_groups.insert((kernel.key.operator.clone(), kernel.key.constants.first().cloned())) {
                texts.insert(kernel.key.to_string(), vec![kernel]);
            }
        }
        texts.entry(name).or_default().push(launch.kernel);
    }
    texts.into_values().collect()
}

/// What of a text's kernels is compiled at once: all of them for one kind of GPU, for the others the first of each operator. What depends on the kind,
/// instructions and limits, hardly depends on the type of the elements; and a kernel takes half a second.
fn portions(capability: u32, text: Vec<Arc<KernelSource>>) -> Vec<Vec<Arc<KernelSource>>> {
    const AT_ONCE: usize = 16;
    let mut operators = HashSet::new();
    let wanted: Vec<_> = text.into_iter().filter(|kernel| operators.insert(kernel.key.operator.clone()) || capability == WHOLE).collect();
    wanted.chunks(AT_ONCE).map(<[_]>::to_vec).collect()
}

#[test]
fn a_key_is_of_one_kernel() {
    for capability in CAPABILITIES {
        let device = gpu(capability);
        let mut texts = HashMap::new();
        for launch in conformance::cases().iter().flat_map(|case| case.plan(&device).unwrap().launches) {
            let Some(CudaForm::Source(source)) = launch.kernel.native() else { continue };
            let optional = launch.kernel.parameters.iter().map(|parameter| parameter.optional).collect::<Vec<_>>();
            let text = (source.entry, source.defines, source.files.iter().map(|file| file.name).collect::<Vec<_>>(), optional);
            let first = texts.entry(launch.kernel.key.clone()).or_insert_with(|| text.clone());
            assert_eq!(*first, text, "sm_{capability}: two kernels are called {}", launch.kernel.key);
        }
    }
}

#[test]
fn every_kernel_compiles_for_every_kind_of_gpu() {
    let compiler = Compiler::new(None).unwrap_or_else(|error| panic!("{error}"));
    let of = |capability: u32| kernels(capability).into_iter().flat_map(move |text| portions(capability, text)).map(move |part| (capability, part));
    let capabilities = if conformance::runs_all() { &CAPABILITIES[..] } else { &[WHOLE] };
    if capabilities.len() < CAPABILITIES.len() {
        conformance::skipped(format_args!("all kinds of GPU but compute capability {WHOLE}"));
    }
    let work: Vec<_> = capabilities.iter().flat_map(|&capability| of(capability)).collect();
    let (next, failures, bytes) = (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((capability, text)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let all: Vec<_> = text.iter().map(|kernel| &**kernel).collect();
                    match compiler.check(&all, Threadgroups::Uniform, *capability) {
                        Ok(size) => drop(bytes.fetch_add(size, Ordering::Relaxed)),
                        Err(error) => failures.lock().unwrap().push(format!("sm_{capability}: {error}")),
                    }
                }
            });
        }
    });
    let (kernels, failures) = (work.iter().map(|(_, text)| text.len()).sum::<usize>(), failures.into_inner().unwrap());
    let (kib, seconds) = (bytes.into_inner() >> 10, start.elapsed().as_secs_f64());
    println!("{kernels} kernels of {} texts: {kib} KiB of machine code in {seconds:.1} s, {} texts failed", work.len(), failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn kernels_compile_for_threadgroups_that_are_smaller_at_the_end() {
    let compiler = Compiler::new(None).unwrap_or_else(|error| panic!("{error}"));
    let kernels: Vec<_> = ["attributes", "exchange", "sums"].into_iter().map(nonuniform::kernel).collect();
    let kernels: Vec<_> = kernels.iter().map(|kernel| &**kernel).collect();
    for threadgroups in [Threadgroups::Uniform, Threadgroups::Nonuniform] {
        for capability in CAPABILITIES {
            compiler.check(&kernels, threadgroups, capability).unwrap_or_else(|error| panic!("sm_{capability}, {threadgroups:?}: {error}"));
        }
    }
}

#[test]
fn a_kernel_may_be_called_as_a_function_of_metals_is() {
    let text = "#include <metal_stdlib>\nusing namespace metal;\n\
        kernel void transpose(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]], uint i [[thread_position_in_grid]]) { out[i] = x[i]; }";
    let compiler = Compiler::new(None).unwrap_or_else(|error| panic!("{error}"));
    let checked = compiler.check(&[&nonuniform::kernel_of("names.metal", text, "transpose")], Threadgroups::Uniform, WHOLE);
    checked.unwrap_or_else(|error| panic!("{error}"));
}
