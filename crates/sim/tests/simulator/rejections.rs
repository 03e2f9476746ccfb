//! What cannot be compiled or run is rejected with a message that says why and where.

use std::{env, fs};

use elinvar_core::Error;
use elinvar_sim::{Binding, CommandBuffer, CompileOptions, Dispatch, Grid, Pipeline, Source};

use crate::common::{library, queue, run, simulator, values};

fn rejected(text: &str) -> String {
    let library = simulator().library(&Source::new("user.metal", text), &CompileOptions::default());
    let error = library.and_then(|library| library.pipeline("k", &[]).map(|_| ())).unwrap_err();
    assert!(error.is_compile_failed() || error.is_invalid_argument(), "{error:?}");
    error.to_string()
}

/// The message for a kernel whose body, on line 4, is wrong.
fn body(body: &str) -> String {
    rejected(&format!(
        "#include <metal_stdlib>\nusing namespace metal;\n\
         kernel void k(device float* a [[buffer(0)]], constant float* c [[buffer(1)]], uint i [[thread_position_in_grid]]) {{\n{body}\n}}\n"
    ))
}

#[test]
fn the_compilers_messages_name_the_users_line() {
    let message = body("a[i] = nonsense;");
    assert!(message.starts_with("user.metal:4:8: error: ") && message.contains("nonsense"), "{message}");
    let message = body("a[i] = simd_sum(a);");
    assert!(message.starts_with("user.metal:4:"), "{message}");
    let message = rejected("#include \"absent.h\"\n");
    assert!(message.starts_with("user.metal:1: cannot find \"absent.h\""), "{message}");
}

#[test]
fn address_spaces_do_not_mix() {
    for wrong in [
        "threadgroup float s[4]; device float* p = s; *p = 1;",
        "threadgroup float* p = a; *p = 1;",
        "device float* p = c; *p = 1;",
        "*c = 1;",
        "device float** p = &c; a = *p;",
    ] {
        let message = body(wrong);
        assert!(message.starts_with("user.metal:4:"), "{wrong}: {message}");
    }
}

/// Line and rule of what the type checker finds in a text that compiles.
fn lints(text: &str) -> Vec<(u32, &'static str)> {
    let library = simulator().library(&Source::new("user.metal", text), &CompileOptions::default()).unwrap();
    library.pipeline("k", &[]).unwrap();
    library.judge(&["k"]).unwrap().into_iter().map(|lint| (lint.location.line, lint.rule)).collect()
}

#[test]
fn address_spaces_that_clang_would_convert_are_rejected() {
    let text = |body: &str| {
        format!(
            "#include <metal_stdlib>\nusing namespace metal;\nstruct Item {{ float x; float twice() thread {{ return 2 * x; }} }};\n\
             static void grow(thread float& x) {{ x += 1; }}\n\
             kernel void k(device float* a [[buffer(0)]], constant float* c [[buffer(1)]], uint i [[thread_position_in_grid]]) {{\n\
             {body}\n}}\n"
        )
    };
    let clean = "float x = a[i]; grow(x); thread float* p = &x; device float* q = a + i; Item item = {c[0]}; *q = *p + item.twice();";
    assert_eq!(lints(&text(clean)), []);
    for wrong in
        ["grow(a[i]);", "threadgroup float s[4]; thread float* p = &s[i]; a[i] = *p;", "float* p = a; *p = 1;", "constant float* p = a; a[i] = *p;"]
    {
        assert_eq!(lints(&text(wrong)), [(6, "address-space")], "{wrong}");
    }
}

#[test]
fn kernels_that_cannot_be_launched_are_rejected() {
    let message = rejected("kernel void k(device float* a [[unheard_of]]) {}\n");
    assert!(message.contains("user.metal:1") && message.contains("unheard_of"), "{message}");
    let message = rejected("kernel void other(device float* a [[buffer(0)]]) {}\n");
    assert!(message.contains("\"k\"") && message.contains("other"), "{message}");
}

fn pipeline(name: &str) -> Pipeline {
    library("small.metal", true).pipeline(name, &[]).unwrap()
}

fn launch(dispatch: Dispatch) -> Error {
    let error = CommandBuffer::new().dispatch(dispatch).unwrap_err();
    assert!(error.is_invalid_launch(), "{error:?}");
    error
}

#[test]
fn launches_are_checked_against_the_signature_and_the_limits() {
    let (x, y) = (simulator().buffer("x", 64).unwrap(), simulator().buffer("y", 64).unwrap());
    let reverse = pipeline("reverse");
    let whole = |grid, threads| Dispatch::new(&reverse, grid, threads).with(Binding::new(0, &x)).with(Binding::new(1, &y));
    let rejected = |dispatch: Dispatch, words: &str| {
        let message = launch(dispatch).to_string();
        assert!(message.starts_with("kernel `reverse`: ") && message.contains(words), "{message}");
    };
    let grid = Grid::Threads([16, 1, 1]);
    rejected(whole(grid, [16, 1, 1]), "the size of threadgroup(0), its parameter `tile`, is missing");
    rejected(Dispatch::new(&reverse, grid, [16, 1, 1]).with(Binding::new(0, &x)), "buffer(1), its parameter `y`, is missing");
    rejected(whole(Grid::Threads([16, 0, 1]), [16, 1, 1]), "holds no thread");
    rejected(whole(Grid::Threadgroups([0, 1, 1]), [16, 1, 1]), "holds no thread");
    rejected(whole(grid, [0, 1, 1]), "it must hold 1 to 1024");
    rejected(whole(grid, [64, 32, 1]), "it must hold 1 to 1024");
    rejected(whole(grid, [u32::MAX, u32::MAX, 2]), "it must hold 1 to 1024");
    rejected(whole(Grid::Threadgroups([1 << 20, 1 << 20, 1]), [1, 1, 1]), "more threadgroups than");
    rejected(whole(grid, [16, 1, 1]).with(Binding::new(1, &y)), "buffer(1) was given twice");
    rejected(whole(grid, [16, 1, 1]).with(Binding::new(31, &y)), "indices end at 30");
    rejected(whole(grid, [16, 1, 1]).with(Binding::new(2, &y).range(32, 64)), "buffer(2) binds 64 bytes at offset 32 of `y`, which holds 64");
    rejected(whole(grid, [16, 1, 1]).with(Binding::new(2, &y).at(usize::MAX)), "which holds 64");
    rejected(whole(grid, [16, 1, 1]).with_bytes(2, Vec::new()), "was given 0 bytes");
}

#[test]
fn a_grid_of_more_threads_than_a_kernel_can_count_is_rejected_where_it_counts_them() {
    let text = "kernel void counts(device uint* x [[buffer(0)]], uint2 n [[threads_per_grid]]) { x[0] = n.x; }\n\
                kernel void other(device uint* x [[buffer(0)]]) { x[0] = 1; }";
    let library = simulator().library(&Source::new("grid.metal", text), &CompileOptions::default()).unwrap();
    let x = simulator().buffer("x", 4).unwrap();
    let over = |kernel: &str, groups| {
        let pipeline = library.pipeline(kernel, &[]).unwrap();
        let dispatch = Dispatch::new(&pipeline, Grid::Threadgroups([groups, 1, 1]), [256, 1, 1]).with(Binding::new(0, &x));
        CommandBuffer::new().dispatch(dispatch)
    };
    let message = over("counts", 1 << 24).unwrap_err().to_string();
    assert!(message.starts_with("kernel `counts`: 4294967296 threads along an axis"), "{message}");
    over("counts", (1 << 24) - 1).unwrap();
    over("other", 1 << 24).unwrap();
}

#[test]
fn ranges_outside_a_buffer_are_rejected() {
    let x = simulator().buffer("x", 16).unwrap();
    assert!(x.write(9, &[0; 8]).unwrap_err().to_string().contains("cannot write 8 bytes at offset 9 of buffer `x`: it holds 16 bytes"));
    assert!(x.read(usize::MAX, &mut [0; 2]).is_err());
    assert!(CommandBuffer::new().copy(&x, 0, &x, 8, 9).is_err());
    assert!(CommandBuffer::new().fill(&x, 16, 1, 0).is_err());
    assert!(simulator().buffer("huge", usize::MAX).err().unwrap().is_out_of_memory());
}

#[test]
fn files_include_what_lies_beside_them() {
    let folder = env::temp_dir().join(format!("elinvar-includes-{}", std::process::id()));
    fs::create_dir_all(folder.join("deep")).unwrap();
    fs::write(folder.join("deep/value.h"), "constant float VALUE = FACTOR * 2;\n").unwrap();
    fs::write(folder.join("k.metal"), "#include \"deep/value.h\"\nkernel void k(device float* a [[buffer(0)]]) { a[0] = VALUE; }\n").unwrap();
    let options = CompileOptions { defines: vec!["FACTOR=3".to_owned()], ..CompileOptions::default() };
    let source = Source::read(&folder.join("k.metal")).unwrap();
    let pipeline = simulator().library(&source, &options).unwrap().pipeline("k", &[]).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let a = simulator().buffer("a", 4).unwrap();
    let dispatch = Dispatch::new(&pipeline, Grid::Threads([1, 1, 1]), [1, 1, 1]).with(Binding::new(0, &a));
    assert_eq!(run(&queue(), dispatch, 0).findings, []);
    assert_eq!(values::<f32>(&a), [6.0]);
}
