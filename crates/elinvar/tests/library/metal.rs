//! A user's Metal kernels, compiled and launched through the public interface; on the simulator, which is there wherever tests run.

#![cfg(target_os = "linux")]

use std::fs;

use elinvar::{BackendType, ConstantValue, Executor, KernelArgument, MetalSource};
use half::f16;

#[path = "../../../metallib/tests/library/container.rs"]
mod container;

const TEXT: &str = r#"
#include <metal_stdlib>
#include "shared.h"
using namespace metal;

struct Line { float slope; float offset; };
constant bool negate [[function_constant(3)]];

kernel void line(device const float* x [[buffer(1)]], device float* y [[buffer(4)]], constant Line& line [[buffer(0)]],
                 constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i < n) {
        y[i] = (negate ? -1 : 1) * fma(line.slope, x[i], line.offset) + EXTRA;
    }
}

template <typename T>
kernel void reverse(device const T* x [[buffer(0)]], device T* y [[buffer(1)]], threadgroup T* first [[threadgroup(1)]],
                    threadgroup T* second [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]]) {
    first[t] = x[t];
    second[t] = x[t] + x[t];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = first[31 - t] + second[31 - t];
}
template [[host_name("reverse_half")]] kernel decltype(reverse<half>) reverse<half>;

[[kernel, max_total_threads_per_threadgroup(64)]] void small(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }
"#;

fn source(folder: &str) -> MetalSource {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("shared.h"), "#define EXTRA ZERO\n").unwrap();
    let source = MetalSource::new("user.metal", TEXT);
    MetalSource { include_folders: vec![folder], defines: vec![("ZERO".into(), "0.0f".into())], ..source }
}

#[test]
fn kernels_run_with_structs_constants_templates_and_threadgroup_memory() {
    let executor = Executor::new_with_backend(BackendType::MetalSim).unwrap();
    let library = executor.compile_metal(&source("run")).unwrap();
    let names = library.kernels().names();
    assert_eq!(names, ["line", "small", "reverse_half"]);

    let line = library.kernel("line", &[("negate", ConstantValue::Bool(true))]).unwrap();
    let x = executor.tensor(&[50], &(0..50).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let y = executor.tensor(&[50], &[0f32; 50]).unwrap();
    let (parameters, n) = ([2.0f32, 0.5], 50u32.to_ne_bytes());
    let arguments = [
        ("x", KernelArgument::Tensor(&x)),
        ("y", KernelArgument::Tensor(&y)),
        ("line", KernelArgument::Bytes(bytemuck::cast_slice(&parameters))),
        ("n", KernelArgument::Bytes(&n)),
    ];
    let (recording, ()) = executor.record(|recorded| line.on(recorded)?.launch([2, 1, 1], [32, 1, 1], &arguments)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0; 50], "a recorded launch waits for its replay");
    executor.replay(&recording).unwrap().wait().unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), (0..50).map(|i| -(2.0 * i as f32 + 0.5)).collect::<Vec<_>>());

    let reverse = library.kernel("reverse_half", &[("negate", ConstantValue::Bool(false))]).unwrap();
    let x = executor.tensor(&[32], &(0..32).map(|i| f16::from_f32(i as f32)).collect::<Vec<_>>()).unwrap();
    let y = executor.tensor(&[32], &[f16::ZERO; 32]).unwrap();
    let memory = |bytes| KernelArgument::ThreadgroupMemory(bytes);
    let arguments = [("x", KernelArgument::Tensor(&x)), ("y", KernelArgument::Tensor(&y)), ("first", memory(64)), ("second", memory(64))];
    reverse.launch([1, 1, 1], [32, 1, 1], &arguments).unwrap();
    assert_eq!(y.to_vec::<f16>().unwrap(), (0..32).map(|i| f16::from_f32(3.0 * (31 - i) as f32)).collect::<Vec<_>>());
}

#[test]
fn launches_over_threads_run_no_other_threads() {
    let executor = Executor::new_with_backend(BackendType::MetalSim).unwrap();
    let text = "kernel void count(device uint* c [[buffer(0)]], uint2 at [[thread_position_in_grid]], uint2 size [[threads_per_threadgroup]],
                                  uint2 full [[dispatch_threads_per_threadgroup]], uint2 n [[threads_per_grid]]) {
                    c[at.y * n.x + at.x] += size.x * 1000 + size.y * 100 + full.x + full.y;
                }";
    let count = executor.compile_metal(&MetalSource::new("count.metal", text)).unwrap().kernel("count", &[]).unwrap();
    let c = executor.tensor(&[7, 13], &[0u32; 91]).unwrap();
    let arguments = [("c", KernelArgument::Tensor(&c))];
    count.launch_threads([13, 7, 1], [8, 4, 1], &arguments).unwrap();
    let size = |at: usize, full: usize, all: usize| full.min(all - at / full * full);
    let expected: Vec<u32> = (0..91).map(|i| (size(i % 13, 8, 13) * 1000 + size(i / 13, 4, 7) * 100 + 12) as u32).collect();
    assert_eq!(c.to_vec::<u32>().unwrap(), expected);
    let (recording, ()) =
        executor.record(|recorded| count.on(recorded)?.launch_threads([13, 7, 1], count.threadgroup_for([13, 7, 1]), &arguments)).unwrap();
    executor.replay(&recording).unwrap().wait().unwrap();
    assert_eq!(c.to_vec::<u32>().unwrap()[0], expected[0] + 13 * 1000 + 7 * 100 + 39);
    count.launch_threads([13, 0, 1], [8, 4, 1], &arguments).unwrap();
    for (threadgroup, expected) in [([0, 1, 1], "0 threads in a threadgroup"), ([64, 32, 1], "2048 threads in a threadgroup")] {
        let error = count.launch_threads([13, 7, 1], threadgroup, &arguments).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("1 to 1024"), "{error}");
    }
}

#[test]
fn rejected_arguments_are_named() {
    let executor = Executor::new_with_backend(BackendType::MetalSim).unwrap();
    let library = executor.compile_metal(&source("rejected")).unwrap();
    assert!(library.kernel("lines", &[]).err().unwrap().to_string().contains("line"));
    assert!(library.kernel("line", &[("negate", ConstantValue::Int(1))]).err().unwrap().to_string().contains("bool"));
    assert!(library.kernel("line", &[("negated", ConstantValue::Bool(true))]).err().unwrap().to_string().contains("negate"));
    let line = library.kernel("line", &[("negate", ConstantValue::Bool(true))]).unwrap();
    let x = executor.tensor(&[32], &[0f32; 32]).unwrap();
    let y = executor.tensor(&[32], &[0f32; 32]).unwrap();
    let n = 32u32.to_ne_bytes();
    let (x_, y_, line_, n_) = (
        ("x", KernelArgument::Tensor(&x)),
        ("y", KernelArgument::Tensor(&y)),
        ("line", KernelArgument::Bytes(&[0; 8])),
        ("n", KernelArgument::Bytes(&n)),
    );
    let fail = |arguments: &[(&str, KernelArgument<'_>)]| line.launch([1, 1, 1], [32, 1, 1], arguments).unwrap_err().to_string();
    assert!(fail(&[x_, y_, line_]).contains("'n'"));
    assert!(fail(&[x_, x_, y_, line_, n_]).contains("twice"));
    assert!(fail(&[x_, y_, line_, ("n", KernelArgument::Bytes(&[1]))]).contains("takes 4"));
    assert!(fail(&[x_, y_, line_, n_, ("z", KernelArgument::Tensor(&x))]).contains("'z'") || fail(&[x_, y_, line_, n_, ("z", n_.1)]).contains("`z`"));
    let small = library.kernel("small", &[("negate", ConstantValue::Bool(true))]).unwrap();
    assert!(small.launch([1, 1, 1], [128, 1, 1], &[x_]).unwrap_err().to_string().contains("at most 64"));
    let broken = executor.compile_metal(&MetalSource::new("broken.metal", "kernel void k(device float* x [[buffer(0)]]) { x[0] = nothing; }"));
    let error = broken.unwrap().kernel("k", &[]).err().unwrap();
    assert!(error.to_string().contains("broken.metal"), "{error}");
}

#[test]
fn the_cpu_device_says_where_metal_text_runs() {
    let executor = Executor::new_with_backend(BackendType::Cpu).unwrap();
    let error = executor.compile_metal(&MetalSource::new("k.metal", "")).err().unwrap();
    assert!(error.is_unsupported() && error.to_string().contains("metal-sim"), "{error}");
}

#[test]
fn compiled_libraries_run_as_texts_do() {
    let executor = Executor::new_with_backend(BackendType::MetalSim).unwrap();
    let bitcode = include_bytes!("../../../metallib/tests/library/scale.bc");
    let file = container::library(&[container::Compiled { name: "scale", bitcode, constants: &[("doubled", 53, 3)] }]);
    // Beside another library, as applications have them.
    let other = container::library(&[container::Compiled { name: "other", bitcode, constants: &[] }]);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("two.metallib");
    fs::write(&path, [b"\xcf\xfa\xed\xfe", other.as_slice(), file.as_slice()].concat()).unwrap();
    for library in [executor.metal_library("one.metallib", file).unwrap(), executor.load_metal_library(&path).unwrap()] {
        assert!(library.kernels().names().ends_with(&["scale"]));
        let scale = library.kernel("scale", &[("doubled", ConstantValue::Bool(true))]).unwrap();
        let (x, y) = (executor.tensor(&[64], &[1.5f32; 64]).unwrap(), executor.tensor(&[64], &[0f32; 64]).unwrap());
        let factor = 2f32.to_ne_bytes();
        let arguments = [
            ("x", KernelArgument::Tensor(&x)),
            ("y", KernelArgument::Tensor(&y)),
            ("factor", KernelArgument::Bytes(&factor)),
            ("shared", KernelArgument::ThreadgroupMemory(16)),
        ];
        scale.launch([1, 1, 1], [64, 1, 1], &arguments).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [6.0; 64]);
        assert!(library.kernel("scale", &[("tripled", ConstantValue::Bool(true))]).is_err());
    }
    let error = executor.load_metal_library(std::path::Path::new("nothing.metallib")).err().unwrap().to_string();
    assert!(error.starts_with("cannot read nothing.metallib: "), "{error}");
    let error = Executor::new_with_backend(BackendType::Cpu).unwrap().metal_library("one.metallib", Vec::new()).err().unwrap();
    assert_eq!(error.to_string(), "the device 'cpu' does not run Metal kernels: use a GPU, or metal-sim for the simulator");
}
