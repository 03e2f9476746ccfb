//! Small kernels give right answers, checked or not, in any order of threads, without findings.

use elinvar_sim::{Binding, CommandBuffer, CompileOptions, ConstantValue, Counters, Dispatch, FindingKind, Grid, Output, Source, Traffic};

use crate::common::{buffer, library, queue, run, simulator, values};

const SEEDS: [u64; 4] = [0, 1, 2, 3];

pub(crate) fn both(test: impl Fn(bool, u64)) {
    for checked in [true, false] {
        SEEDS.into_iter().for_each(|seed| test(checked, seed));
    }
}

#[test]
fn a_vector_is_added_to_the_last_element() {
    let (a, b): (Vec<f32>, Vec<f32>) = (0..1003).map(|i| (i as f32, 0.5 * i as f32)).unzip();
    let queue = queue();
    both(|checked, seed| {
        let pipeline = library("small.metal", checked).pipeline("add", &[]).unwrap();
        let sum = simulator().buffer("sum", 4 * 1003).unwrap();
        let dispatch = Dispatch::new(&pipeline, Grid::Threadgroups([4, 1, 1]), [256, 1, 1])
            .with(Binding::new(0, &buffer("a", &a)))
            .with(Binding::new(1, &buffer("b", &b)))
            .with(Binding::new(2, &sum).output(Output::Whole))
            .with_bytes(3, 1003u32.to_le_bytes());
        let report = run(&queue, dispatch, seed);
        assert_eq!(report.findings, []);
        assert_eq!(report.threads, 1024);
        let device = Traffic { reads: 2 * 1003, read_bytes: 2 * 4012, writes: 1003, written_bytes: 4012 };
        assert_eq!(report.counters, if checked { Counters { device, ..Counters::default() } } else { Counters::default() });
        assert!(values::<f32>(&sum).iter().enumerate().all(|(i, sum)| *sum == 1.5 * i as f32));
        assert_eq!(sum.unwritten_ranges(), []);
    });
}

#[test]
fn barriers_hand_over_threadgroup_memory() {
    let x: Vec<i32> = (0..192).collect();
    let queue = queue();
    both(|checked, seed| {
        let pipeline = library("small.metal", checked).pipeline("reverse", &[]).unwrap();
        let y = simulator().buffer("y", 4 * 192).unwrap();
        let dispatch = Dispatch::new(&pipeline, Grid::Threads([192, 1, 1]), [64, 1, 1])
            .with(Binding::new(0, &buffer("x", &x)))
            .with(Binding::new(1, &y))
            .with_threadgroup_memory(0, 256);
        let report = run(&queue, dispatch, seed);
        assert_eq!(report.findings, []);
        let moved = Traffic { reads: 192, read_bytes: 768, writes: 192, written_bytes: 768 };
        assert_eq!(report.counters, if checked { Counters { device: moved, threadgroup: moved, matrix_products: 0 } } else { Counters::default() });
        let expected: Vec<i32> = (0..192).map(|i| i / 64 * 64 + 63 - i % 64).collect();
        assert_eq!(values::<i32>(&y), expected);
    });
}

#[test]
fn simdgroups_reduce_rows() {
    let x: Vec<f32> = (0..5 * 300).map(|i| (i % 7) as f32).collect();
    let queue = queue();
    both(|checked, seed| {
        let pipeline = library("small.metal", checked).pipeline("row_sum", &[]).unwrap();
        let sums = simulator().buffer("sums", 20).unwrap();
        let row: Vec<u8> = [300u32.to_le_bytes(), 0.25f32.to_le_bytes()].concat();
        let dispatch = Dispatch::new(&pipeline, Grid::Threadgroups([5, 1, 1]), [96, 1, 1])
            .with(Binding::new(0, &buffer("x", &x)))
            .with(Binding::new(1, &sums))
            .with_bytes(2, row);
        assert_eq!(run(&queue, dispatch, seed).findings, []);
        let expected: Vec<f32> = x.chunks(300).map(|row| row.iter().sum::<f32>() + 0.25).collect();
        assert_eq!(values::<f32>(&sums), expected);
    });
}

#[test]
fn positions_agree_where_the_grid_is_cut_off() {
    let queue = queue();
    both(|checked, seed| {
        let pipeline = library("small.metal", checked).pipeline("positions", &[]).unwrap();
        let out = simulator().buffer("out", 4 * 9 * 5 * 3).unwrap();
        let dispatch = Dispatch::new(&pipeline, Grid::Threads([9, 5, 3]), [4, 3, 2]).with(Binding::new(0, &out));
        let report = run(&queue, dispatch, seed);
        assert_eq!((report.findings.len(), report.threads), (0, 135));
        let expected: Vec<u32> = (0..135).map(|i| i % 9 + 100 * (i / 9 % 5) + 10000 * (i / 45)).collect();
        assert_eq!(values::<u32>(&out), expected);
    });
}

#[test]
fn function_constants_have_the_values_given() {
    let queue = queue();
    let library = library("small.metal", true);
    let x = buffer("x", &[1i32, 2, 3, 4]);
    let pipeline = library.pipeline("shift_by", &[(1, ConstantValue::Int(-7)), (0, ConstantValue::Bool(true))]).unwrap();
    let dispatch = |pipeline| Dispatch::new(pipeline, Grid::Threads([4, 1, 1]), [4, 1, 1]).with(Binding::new(0, &x));
    assert_eq!(run(&queue, dispatch(&pipeline), 0).findings, []);
    assert_eq!(values::<i32>(&x), [-5, -3, -1, 1]);
    let error = library.pipeline("shift_by", &[(5, ConstantValue::Uint(1))]).err().unwrap();
    assert!(error.to_string().contains("no function constant 5; it has 0 (`doubled`), 1 (`offset`)"), "{error}");
}

#[test]
fn a_function_constant_decides_whether_a_buffer_is_bound() {
    let library = library("small.metal", true);
    let x = buffer("x", &[1f32, 2.0]);
    let dispatch = |biased| {
        let pipeline = library.pipeline("add_bias", &[(2, ConstantValue::Bool(biased))]).unwrap();
        Dispatch::new(&pipeline, Grid::Threads([2, 1, 1]), [2, 1, 1]).with(Binding::new(0, &x))
    };
    let queue = queue();
    assert_eq!(run(&queue, dispatch(false), 0).findings, []);
    assert!(CommandBuffer::new().dispatch(dispatch(true)).unwrap_err().to_string().contains("its parameter `bias`, is missing"));
    assert_eq!(run(&queue, dispatch(true).with(Binding::new(1, &buffer("bias", &[0.5f32, 1.0]))), 0).findings, []);
    assert_eq!(values::<f32>(&x), [1.5, 3.0]);
}

#[test]
fn atomics_are_no_race() {
    let queue = queue();
    both(|checked, seed| {
        let pipeline = library("small.metal", checked).pipeline("count", &[]).unwrap();
        let x: Vec<u8> = (0..1000).map(|i| (i * 7 % 251) as u8).collect();
        let bins = buffer("bins", &[0u32; 16]);
        let dispatch =
            Dispatch::new(&pipeline, Grid::Threads([1000, 1, 1]), [128, 1, 1]).with(Binding::new(0, &buffer("x", &x))).with(Binding::new(1, &bins));
        assert_eq!(run(&queue, dispatch, seed).findings, []);
        let mut expected = vec![0u32; 16];
        x.iter().for_each(|x| expected[usize::from(x & 15)] += 1);
        assert_eq!(values::<u32>(&bins), expected);
    });
}

#[test]
fn narrow_types_round_to_nearest_even() {
    let queue = queue();
    let library = library("small.metal", true);
    let pipelines = library.pipelines(&["scale_f16", "scale_bf16"]).unwrap();
    // 1 + 2^-10 and 1 + 2^-7, times 1.5; a bfloat denormal, which stays.
    for (pipeline, x, expected) in [(&pipelines[0], [0x3c01u16, 0x3c00], [0x3e02u16, 0x3e00]), (&pipelines[1], [0x3f81, 0x0002], [0x3fc2, 0x0003])] {
        let x = buffer("x", &x);
        let dispatch = Dispatch::new(pipeline, Grid::Threads([2, 1, 1]), [2, 1, 1]).with(Binding::new(0, &x)).with_bytes(1, 1.5f32.to_le_bytes());
        assert_eq!(run(&queue, dispatch, 0).findings, []);
        assert_eq!(values::<u16>(&x), expected, "{}", pipeline.kernel().name);
    }
}

#[test]
fn matrices_multiply_across_lanes() {
    let queue = queue();
    let a: Vec<f32> = (0..64).map(|i| (i % 5) as f32).collect();
    let b: Vec<f32> = (0..64).map(|i| (i % 3) as f32 - 1.0).collect();
    let expected: Vec<f32> = (0..64).map(|i| (0..8).map(|k| a[i / 8 * 8 + k] * b[k * 8 + i % 8]).sum()).collect();
    both(|checked, seed| {
        let pipeline = library("small.metal", checked).pipeline("matmul8", &[]).unwrap();
        let c = simulator().buffer("c", 256).unwrap();
        let dispatch = Dispatch::new(&pipeline, Grid::Threads([32, 1, 1]), [32, 1, 1])
            .with(Binding::new(0, &buffer("a", &a)))
            .with(Binding::new(1, &buffer("b", &b)))
            .with(Binding::new(2, &c));
        assert_eq!(run(&queue, dispatch, seed).findings, []);
        assert_eq!(values::<f32>(&c), expected);
    });
}

#[test]
fn commands_take_effect_in_order() {
    let queue = queue();
    let pipeline = library("small.metal", true).pipeline("shift_by", &[(0, ConstantValue::Bool(false)), (1, ConstantValue::Int(1))]).unwrap();
    let (x, y) = (simulator().buffer("x", 16).unwrap(), simulator().buffer("y", 32).unwrap());
    let mut commands = CommandBuffer::new();
    commands.fill(&x, 0, 16, 0).unwrap();
    let dispatch = Dispatch::new(&pipeline, Grid::Threads([4, 1, 1]), [2, 1, 1]).with(Binding::new(0, &x));
    commands.dispatch(dispatch.clone()).unwrap();
    commands.copy(&x, 4, &y, 0, 12).unwrap();
    commands.dispatch(dispatch).unwrap();
    let completions: Vec<_> = (0..3).map(|_| queue.submit(commands.clone())).collect();
    for completion in completions {
        assert_eq!(completion.wait().unwrap().findings, []);
    }
    assert_eq!(values::<i32>(&x), [2; 4]);
    assert_eq!(values::<i32>(&y), [1, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!(y.unwritten_ranges(), vec![12..32]);
}

#[test]
fn commands_that_no_barrier_orders_race_where_they_touch_the_same_bytes() {
    let queue = queue();
    let pipeline = library("small.metal", true).pipeline("shift_by", &[(0, ConstantValue::Bool(false)), (1, ConstantValue::Int(1))]).unwrap();
    for (seed, ordered, offset) in SEEDS.into_iter().flat_map(|seed| [(seed, false, 12), (seed, true, 12), (seed, false, 16)]) {
        let x = buffer("x", &[0i32; 8]);
        let mut commands = CommandBuffer::with_seed(seed);
        // The first 16 bytes.
        commands.dispatch(Dispatch::new(&pipeline, Grid::Threads([4, 1, 1]), [2, 1, 1]).with(Binding::new(0, &x))).unwrap();
        if ordered {
            commands.barrier();
        }
        commands.fill(&x, offset, 4, 9).unwrap();
        commands.barrier();
        let report = queue.submit(commands).wait().unwrap();
        let races = !ordered && offset < 16;
        assert_eq!(report.findings.is_empty(), !races, "{:?}", report.findings);
        for finding in &report.findings {
            let kernels = [finding.kernel.as_str(), finding.other.as_ref().unwrap().kernel.as_str()];
            assert!(finding.kind == FindingKind::DataRace && finding.offset == Some(12), "{finding}");
            assert!(kernels == ["fill", "shift_by"] || kernels == ["shift_by", "fill"], "{finding}");
        }
    }
}

#[test]
fn constants_are_computed_before_kernels_run_and_may_not_fault() {
    let queue = queue();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/initialisers.metal");
    for (checked, faulty) in [(true, false), (false, false), (true, true), (false, true)] {
        let defines = if faulty { vec!["FAULTY".to_owned()] } else { Vec::new() };
        let options = CompileOptions { checked, defines, ..CompileOptions::default() };
        let pipeline = simulator().library(&Source::read(&path).unwrap(), &options).unwrap().pipeline("constants", &[]).unwrap();
        let o = simulator().buffer("o", 12).unwrap();
        let dispatch = Dispatch::new(&pipeline, Grid::Threads([1, 1, 1]), [1, 1, 1]).with(Binding::new(0, &o));
        let report = run(&queue, dispatch, 0);
        assert_eq!((report.stopped, report.findings.len()), (faulty, usize::from(faulty)), "{:?}", report.findings);
        match report.findings.first() {
            Some(finding) => assert_eq!((finding.kind, finding.at.as_ref().unwrap().line), (FindingKind::IntegerDivision, 7)),
            None => assert_eq!(values::<i32>(&o)[..2], [42, 7]),
        }
    }
}

#[test]
fn a_kernel_may_be_called_as_a_function_of_metals_is() {
    let text = "#include <metal_stdlib>\nusing namespace metal;\n\
        kernel void transpose(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = i; }\n\
        template <typename T> [[kernel]] void dot(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = T(2 * i); }\n\
        template [[host_name(\"dot_float\")]] [[kernel]] void dot<float>(device float* x, uint i);\n";
    let library = simulator().library(&Source::new("names.metal", text), &CompileOptions::default()).unwrap();
    let queue = queue();
    for (name, factor) in [("transpose", 1.0), ("dot_float", 2.0)] {
        let x = simulator().buffer("x", 4 * 32).unwrap();
        let pipeline = library.pipeline(name, &[]).unwrap();
        run(&queue, Dispatch::new(&pipeline, Grid::Threads([32, 1, 1]), [32, 1, 1]).with(Binding::new(0, &x)), 0);
        assert!(values::<f32>(&x).iter().enumerate().all(|(i, x)| *x == factor * i as f32), "{name}");
    }
}
