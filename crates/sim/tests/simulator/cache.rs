//! Compiled kernels are kept, and made again when what was kept is damaged.

use std::{collections::BTreeSet, env, fs, path::Path};

use elinvar_sim::{Binding, CommandBuffer, CompileOptions, Config, Dispatch, Grid, Simulator, Source};

const TEXT: &str = "kernel void k(device int* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = int(i) + 1; }\n";

/// Compiles and runs a kernel with this cache, as a process of its own would.
fn run(folder: &Path) {
    let simulator = Simulator::new(Config { cache_dir: Some(folder.to_owned()), threads: Some(1), ..Config::default() }).unwrap();
    let library = simulator.library(&Source::new("k.metal", TEXT), &CompileOptions::default()).unwrap();
    let x = simulator.buffer("x", 16).unwrap();
    let mut commands = CommandBuffer::new();
    let pipeline = library.pipeline("k", &[]).unwrap();
    commands.dispatch(Dispatch::new(&pipeline, Grid::Threads([4, 1, 1]), [4, 1, 1]).with(Binding::new(0, &x))).unwrap();
    assert_eq!(simulator.queue().unwrap().submit(commands).wait().unwrap().findings, []);
    assert_eq!(x.to_vec(), [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
}

fn files(folder: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(folder.join("sim")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains('.')).collect()
}

#[test]
fn a_damaged_cache_is_repaired() {
    let folder = env::temp_dir().join(format!("elinvar-damaged-{}", std::process::id()));
    run(&folder);
    let made = files(&folder);
    assert!(made.iter().all(|name| !name.starts_with("new-")), "{made:?}");
    for name in &made {
        let path = folder.join("sim").join(name);
        let bytes = fs::read(&path).unwrap();
        // What is loaded is still mapped: replace the file, do not cut it.
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    }
    run(&folder);
    assert_eq!(files(&folder), made);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_kernel_compiled_beside_others_is_found_by_itself() {
    let folder = env::temp_dir().join(format!("elinvar-beside-{}", std::process::id()));
    let simulator = Simulator::new(Config { cache_dir: Some(folder.clone()), threads: Some(1), ..Config::default() }).unwrap();
    let library = |name: &str, types: &[&str]| {
        let template = "template <typename T> [[kernel]] void k(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = T(i); }\n";
        let instance = |t: &&str| format!("template [[host_name(\"k_{t}\")]] [[kernel]] void k<{t}>(device {t}*, uint);\n");
        let text = template.to_owned() + &types.iter().map(instance).collect::<String>();
        simulator.library(&Source::new(name, text), &CompileOptions::default()).unwrap()
    };
    library("k_int", &["int", "float"]).compile_all(&["k_int", "k_float"], &[]).unwrap();
    let made = files(&folder);
    library("k_float", &["float"]).pipeline("k_float", &[]).unwrap();
    assert_eq!(files(&folder), made);
    fs::remove_dir_all(&folder).unwrap();
}
