//! Every kernel of the library as Apple's compiler would read it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use elinvar_core::{Backend, DeviceProperties, NullBackend};
use elinvar_kernels::conformance;
use elinvar_msl::{MetalHeaders, Module, preprocess};
use elinvar_sim::Judge;

/// The texts that the conformance suite launches on a device of Metal's, each with the lines that make its kernels.
fn texts(device: &DeviceProperties) -> BTreeMap<String, BTreeSet<String>> {
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for case in conformance::cases().into_iter().chain(conformance::refused()) {
        for launch in case.plan(device).unwrap().launches {
            let Some(form) = launch.kernel.metal.as_ref().and_then(|metal| metal.form()) else { continue };
            texts.entry(form.text(|file| file.text)).or_default().insert(form.instance(&launch.kernel.key));
        }
    }
    texts
}

#[test]
fn apples_compiler_would_take_every_kernel_of_the_library() {
    let texts: Vec<(String, BTreeSet<String>)> = texts(NullBackend::new().properties()).into_iter().collect();
    let (judge, next, found) = (Judge::open(None).unwrap(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((text, instances)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let whole: String = std::iter::once(text.as_str()).chain(instances.iter().map(String::as_str)).collect();
            let module = Module::read(&preprocess("library", &whole, &[], &MetalHeaders).unwrap()).unwrap();
            let names: Vec<&str> = module.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
            assert_eq!(names.len(), instances.len());
            found.lock().unwrap().extend(judge.judge(&module, &names, 310).unwrap().iter().map(ToString::to_string));
        }
    };
    thread::scope(|scope| [0, 1].map(|_| scope.spawn(work)).map(|worker| worker.join().unwrap()));
    let kernels: usize = texts.iter().map(|(_, instances)| instances.len()).sum();
    let found: BTreeSet<String> = found.into_inner().unwrap().into_iter().collect();
    println!("{kernels} kernels of {} texts", texts.len());
    assert!(kernels > 1000 && found.is_empty(), "{}", found.into_iter().collect::<Vec<_>>().join("\n"));
}
