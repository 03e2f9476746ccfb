//! Programs on every device that is there, or on the one that `ELINVAR_DEVICE` names: what they compute, and the bits of the CPU.
//! `ELINVAR_PROGRAMS` says how many random ones, `ELINVAR_SEED` where to start.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

#[path = "../../../atlas/tests/programs/common/mod.rs"]
mod common;
#[macro_use]
mod examples;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use bytemuck::cast_slice;
use common::cooperation::{Cooperation, LAUNCH};
use elinvar::{
    BackendType, DType, Executor, ProgramArgument, Result, Tensor,
    atlas::{self, Constant, LaunchConfig, Limits},
};
use elinvar_math as math;
use examples::run;
use half::bf16;

fn elements<T: elinvar::Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// What a parameter is given.
enum Given {
    Buffer(DType, Vec<u8>),
    Scalar(Constant),
}

fn buffer<T: elinvar::Element>(values: &[T]) -> Given {
    Given::Buffer(T::DTYPE, cast_slice(values).to_vec())
}

fn zeros<T: elinvar::Element>(count: usize) -> Given {
    Given::Buffer(T::DTYPE, vec![0; count * size_of::<T>()])
}

fn scalar(value: u32) -> Given {
    Given::Scalar(Constant::u32(value))
}

/// The devices beside the CPU.
fn devices() -> Vec<Executor> {
    match std::env::var("ELINVAR_DEVICE") {
        Ok(name) => vec![Executor::new_with_backend(name.parse().unwrap()).unwrap()],
        Err(_) => [BackendType::Metal(0), BackendType::Cuda(0), BackendType::MetalSim]
            .into_iter()
            .filter_map(|b| Executor::new_with_backend(b).ok())
            .collect(),
    }
}

fn cpu() -> Executor {
    Executor::new_with_backend(BackendType::Cpu).unwrap()
}

fn run_on(executor: &Executor, program: &atlas::Program, launch: &LaunchConfig, given: &[(&str, Given)]) -> Vec<Vec<u8>> {
    run_within(executor, program, &Limits::default(), launch, given).unwrap_or_else(|error| panic!("{}: {error}", executor.properties().name))
}

/// The buffers after a launch.
fn run_within(
    executor: &Executor,
    program: &atlas::Program,
    limits: &Limits,
    launch: &LaunchConfig,
    given: &[(&str, Given)],
) -> Result<Vec<Vec<u8>>> {
    let kernel = executor.compile_program_within(program.clone(), limits)?;
    let tensors: Vec<Option<Tensor>> = given
        .iter()
        .map(|(_, given)| match given {
            Given::Buffer(dtype, bytes) => Some(executor.tensor_from_bytes(*dtype, &[bytes.len() / dtype.size()], bytes).unwrap()),
            Given::Scalar(_) => None,
        })
        .collect();
    let arguments: Vec<_> = given
        .iter()
        .zip(&tensors)
        .map(|((name, given), tensor)| match (given, tensor) {
            (Given::Scalar(value), _) => (*name, ProgramArgument::Scalar(*value)),
            (_, Some(tensor)) => (*name, ProgramArgument::Tensor(tensor)),
            (_, None) => unreachable!(),
        })
        .collect();
    kernel.launch(launch, &arguments)?;
    tensors.iter().flatten().map(Tensor::to_bytes).collect()
}

fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919) % 1009) as f32 / 100.0 - 5.0).collect()
}

/// Threads copy 17 neighbouring elements each, from `first` on.
fn copies_neighbours(dtype: DType, index: DType, bounds: &str) -> atlas::Program {
    let each = |line: fn(u32) -> String| (0..17).map(line).collect::<String>();
    let text = format!(
        "atlas 1\nprogram copy\nbounds {bounds}\nbuffer x: read {dtype}\nbuffer y: write {dtype}\nscalar first: {index}\nkernel\n\
         p = position.x\nt: {index} = convert p\nt = mul t 17\ni0 = add t first\n{}{}{}end\n",
        each(|k| if k == 0 { String::new() } else { format!("i{k} = add i0 {k}\n") }),
        each(|k| format!("v{k} = load x[i{k}]\n")),
        each(|k| format!("store y[i{k}] v{k}\n")),
    );
    atlas::parse(&text).unwrap()
}

#[test]
fn neighbouring_elements_are_loaded_and_stored_like_others() {
    let n = 203usize;
    let trusted = Limits { unchecked: true, ..Limits::default() };
    for executor in std::iter::once(cpu()).chain(devices()) {
        for (dtype, index) in [(DType::U8, DType::I32), (DType::BF16, DType::U64), (DType::F32, DType::U32), (DType::I64, DType::I64)] {
            let program = copies_neighbours(dtype, index, "checked");
            let kernel = executor.compile_program(program).unwrap();
            let bytes: Vec<u8> = (0..(n + 1) * dtype.size()).map(|i| (i * 37 % 97) as u8).collect();
            // Buffers that begin at a multiple of 16 bytes, and one element further.
            for (start, shift) in [(0usize, 0i64), (0, -3), (1, -3), (1, 0)] {
                let tensor = |bytes: &[u8]| executor.tensor_from_bytes(dtype, &[n + 1], bytes).unwrap();
                let (x, y) = (tensor(&bytes), tensor(&vec![0; bytes.len()]));
                let part = |whole: &Tensor| whole.slice(0, start, n, 1).unwrap();
                // Less than zero is what wraps around, and outside.
                let first = Constant { dtype: index, bits: shift as u64 & (u64::MAX >> (64 - 8 * index.size())) };
                let (x, part_of_y) = (part(&x), part(&y));
                let arguments =
                    [("x", ProgramArgument::Tensor(&x)), ("y", ProgramArgument::Tensor(&part_of_y)), ("first", ProgramArgument::Scalar(first))];
                kernel.launch(&LaunchConfig::linear(16, 16), &arguments).unwrap();
                let name = executor.properties().name.clone();
                assert!(part_of_y.to_bytes().unwrap() == x.to_bytes().unwrap(), "{name}: {dtype}, {index}, {start}, {shift}");
                assert!(y.slice(0, if start == 0 { n } else { 0 }, 1, 1).unwrap().to_bytes().unwrap().iter().all(|byte| *byte == 0), "{name}");
            }
        }
        let program = copies_neighbours(DType::F32, DType::U32, "unchecked");
        let values = floats(17 * 8);
        let given = [("x", buffer(&values)), ("y", zeros::<f32>(17 * 8)), ("first", scalar(0))];
        let found = run_within(&executor, &program, &trusted, &LaunchConfig::linear(8, 8), &given).unwrap();
        assert_eq!(elements::<f32>(&found[1]), values);
    }
}

#[test]
fn functions_of_every_bfloat_are_rounded_like_those_of_f32() {
    let text = "atlas 1\nprogram functions\nbuffer x: read bf16\nbuffer s: write bf16\nbuffer g: write bf16\nkernel\ni = position.x\nv = load x[i]\n\
                a = silu v\nb = sigmoid v\nstore s[i] a\nstore g[i] b\nend";
    let x: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let zeros = || Given::Buffer(DType::BF16, vec![0; 2 * x.len()]);
    let given = [("x", buffer(&x)), ("s", zeros()), ("g", zeros())];
    let program = atlas::parse(text).unwrap();
    for executor in std::iter::once(cpu()).chain(devices()) {
        let found = run_on(&executor, &program, &LaunchConfig::linear(1 << 16, 256), &given);
        let of = |found: &[u8], function: fn(f32) -> f32| {
            elements::<bf16>(found).into_iter().zip(&x).find(|(found, x)| {
                let expected = bf16::from_f32(function(x.to_f32()));
                found.to_bits() != expected.to_bits() && !(found.is_nan() && expected.is_nan())
            })
        };
        assert_eq!((of(&found[1], math::silu), of(&found[2], math::sigmoid)), (None, None), "{}", executor.properties().name);
    }
}

#[test]
fn a_launch_that_does_not_fit_is_rejected_before_it_starts() {
    let executor = cpu();
    let kernel = executor.compile_program(atlas::parse(example!("saxpy")).unwrap()).unwrap();
    let (x, bytes) = (executor.tensor(&[8], &[0f32; 8]).unwrap(), executor.tensor(&[8], &[0u8; 8]).unwrap());
    let (a, n) = (ProgramArgument::Scalar(Constant::f32(1.0)), ProgramArgument::Scalar(Constant::u32(8)));
    let tensor = ProgramArgument::Tensor;
    let launch = LaunchConfig::linear(8, 32);
    let rejected = |launch: &LaunchConfig, arguments: &[(&str, ProgramArgument<'_>)], expected: &str| {
        let message = kernel.launch(launch, arguments).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    };
    let y = executor.tensor(&[8], &[0f32; 8]).unwrap();
    let whole = [("x", tensor(&x)), ("y", tensor(&y)), ("a", a), ("n", n)];
    rejected(&launch, &whole[..3], "'n' (u32) is not given");
    rejected(&launch, &[whole[0], ("y", tensor(&bytes)), whole[2], whole[3]], "'y' is a buffer of f32, the tensor has u8");
    rejected(&launch, &[whole[0], whole[1], ("a", n), whole[3]], "'a' is a scalar of f32");
    rejected(&launch, &[whole[0], whole[1], whole[2], whole[3], ("z", a)], "there is no parameter 'z'");
    rejected(&launch, &[whole[0], whole[0]], "'x' is given twice");
    rejected(&launch, &[whole[0], ("y", tensor(&x)), whole[2], whole[3]], "overlaps");
    rejected(&LaunchConfig { grid: [0, 1, 1], ..launch }, &whole, "no extent may be zero");
    rejected(&LaunchConfig { block: [2048, 1, 1], ..launch }, &whole, "1024 at most");
    kernel.launch(&launch, &whole).unwrap();
}

#[test]
fn a_launch_gives_a_shared_array_its_length() {
    // A block's elements backwards, and what is beyond the array: zero.
    let text = "atlas 1\nprogram backwards\nbuffer x: read u16\nbuffer y: update u16\nshared fixed: u32[3]\nshared all: u16[]\nkernel\ni = position.x\n\
                t = local_index\nn = block_size.x\nv = load x[i]\nstore fixed[t] t\nstore all[t] v\nbarrier\nb = sub n t\nb = sub b 1\nw = load all[b]\n\
                o = load all[n]\nw = add w o\nstore y[i] w\nend";
    let x: Vec<u16> = (0..192).map(|i| i * 331 % 1000).collect();
    let launch = LaunchConfig::new([2, 1, 1], [96, 1, 1]).with_shared_memory(2 * 96);
    let found = run(text, launch, &[("x", buffer(&x)), ("y", zeros::<u16>(192))]);
    let expected: Vec<u16> = x.chunks(96).flat_map(|block| block.iter().rev().copied()).collect();
    assert_eq!(elements::<u16>(&found[1]), expected);

    let executor = cpu();
    let [backwards, saxpy] = [text, example!("saxpy")].map(|text| executor.compile_program(atlas::parse(text).unwrap()).unwrap());
    let tensors = [(); 2].map(|()| executor.tensor(&[192], &[0u16; 192]).unwrap());
    let arguments = [("x", ProgramArgument::Tensor(&tensors[0])), ("y", ProgramArgument::Tensor(&tensors[1]))];
    let most = Limits::default().shared_bytes as u32;
    for (bytes, expected) in [(0, "one at least"), (191, "whole elements of u16"), (most - 10, "bytes of shared arrays: 30")] {
        let message = backwards.launch(&launch.with_shared_memory(bytes), &arguments).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    backwards.launch(&launch.with_shared_memory(most - 12), &arguments).unwrap();
    let floats = [(); 2].map(|()| executor.tensor(&[8], &[0f32; 8]).unwrap());
    let scalar = ProgramArgument::Scalar;
    let arguments = [
        ("x", ProgramArgument::Tensor(&floats[0])),
        ("y", ProgramArgument::Tensor(&floats[1])),
        ("a", scalar(Constant::f32(1.0))),
        ("n", scalar(Constant::u32(8))),
    ];
    let message = saxpy.launch(&LaunchConfig::linear(8, 32).with_shared_memory(64), &arguments).unwrap_err().to_string();
    assert!(message.contains("no shared array whose length a launch gives"), "{message}");
}

#[test]
fn names_that_mean_something_elsewhere_are_names_like_others() {
    let words = "float device object_data ray_data image2d_t vec_step addrspace_cast char16_t char32_t await_launches metal uint2 NAN __LINE__ __kernel linux";
    let registers: String = words.split(' ').map(|word| format!("{word} = load x[i]\nsum = add sum {word}\n")).collect();
    let text = format!(
        "atlas 1\nprogram _\nbuffer x: update f32\nscalar x_length: f32\nscalar length_x: f32\nshared half: f32[1]\nfunction sampler(y: f32) -> f32\n\
         _ = add y x_length\nreturn _\nend\nkernel\ni = position.x\nsum: f32 = move length_x\n{registers}store half[0] sum\nsum = load half[0]\n\
         sum = call sampler sum\nstore x[i] sum\nend"
    );
    let given = [("x", buffer(&[1f32])), ("x_length", Given::Scalar(Constant::f32(0.25))), ("length_x", Given::Scalar(Constant::f32(0.5)))];
    let found = run(&text, LaunchConfig::new([1, 1, 1], [1, 1, 1]), &given);
    assert_eq!(elements::<f32>(&found[0]), [16.75]);
}

#[test]
fn f64_is_rejected_where_there_is_none() {
    let text = "atlas 1\nprogram wide\nbuffer y: update f64\nkernel\ni = position.x\nv = load y[i]\nv = mul v 1e300\nstore y[i] v\nend";
    let program = atlas::parse(text).unwrap();
    let given = [("y", buffer(&[2.0f64, 1e-300]))];
    let launch = LaunchConfig::new([1, 1, 1], [2, 1, 1]);
    assert_eq!(elements::<f64>(&run_on(&cpu(), &program, &launch, &given)[0]), [2e300, 1.0]);
    let tensor = cpu().tensor(&[2], &[1f64, 2.0]).unwrap();
    for rejected in [tensor.add(&tensor), tensor.cast(DType::F32), cpu().tensor(&[1], &[1f32]).unwrap().cast(DType::F64)] {
        assert!(rejected.err().unwrap().to_string().contains("f64"));
    }
    for device in devices() {
        let message = device.compile_program(program.clone()).err().unwrap().to_string();
        assert!(message.contains("program wide uses f64, which") && message.contains("cpu device"), "{message}");
    }
}

#[test]
fn every_instruction_gives_the_same_everywhere() {
    for executor in devices() {
        for (&dtype, divergent) in DType::ALL.iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
            let table = common::table(dtype, DType::ALL, divergent);
            let inputs = [("a", &table.a), ("b", &table.b), ("c", &table.c)].map(|(name, bytes)| (name, Given::Buffer(dtype, bytes.clone())));
            let outputs = table.outputs.iter().map(|(name, dtype, bytes)| (name.as_str(), Given::Buffer(*dtype, vec![0xa5; bytes.len()])));
            let given: Vec<_> = inputs.into_iter().chain(outputs).collect();
            let program = atlas::parse(&table.text).unwrap();
            let found = run_on(&executor, &program, &LaunchConfig::linear(common::THREADS as u64, 64), &given);
            for (output, found) in found[3..].iter().enumerate() {
                if let Some(difference) = common::difference(&table, output, found) {
                    panic!("{}: {dtype}, divergent {divergent}: {difference}", executor.properties().name);
                }
            }
        }
    }
}

#[test]
fn threads_together_give_the_same_everywhere() {
    for executor in devices() {
        for cooperation in Cooperation::all(DType::ALL) {
            let parameters = cooperation.program.parameters.iter().enumerate();
            let given: Vec<_> = parameters.map(|(index, p)| (p.name.as_str(), Given::Buffer(p.dtype, cooperation.bytes(index)))).collect();
            let found = run_on(&executor, &cooperation.program, &LAUNCH, &given);
            assert_eq!(cooperation.difference(&found), None, "{}", executor.properties().name);
        }
    }
}

#[test]
fn functions_and_fences_do_the_same_everywhere() {
    // The number of steps of Collatz's sequence, by a function that calls another; the last block to arrive adds up what all have stored.
    let text = "atlas 1\nprogram collatz\nbuffer sums: update u32\nbuffer come: update u32\nbuffer total: write u32\n\
        function next(n: u32) -> u32\n  bit = and n 1\n  odd = eq bit 1\n  if odd\n    m = mad n 3 1\n  else\n    m = shr n 1\n  end\n  return m\nend\n\
        function steps(n: u32) -> u32\n  k: u32 = move 0\n  m = move n\n  loop 1000\n    more = gt m 1\n    while more\n    m = call next m\n    k = add k 1\n  end\n  \
        return k\nend\n\
        kernel\n  i = position.x\n  n = add i 1\n  k = call steps n\n  sum = group_add k\n  first = local_index\n  is_first = eq first 0\n  if is_first\n    b = block.x\n    \
        old = atomic_exchange sums[b] sum\n    fence\n    before = atomic_add come[0] 1\n    last = grid_size.x\n    last = sub last 1\n    is_last = eq before last\n    \
        if is_last\n      fence\n      all: u32 = move 0\n      j: u32 = move 0\n      loop\n        inside = le j last\n        while inside\n        \
        one = atomic_or sums[j] 0\n        all = add all one\n        j = add j 1\n      end\n      store total[0] all\n    end\n  end\nend\n";
    let launch = LaunchConfig::new([6, 1, 1], [64, 1, 1]);
    let found = run(text, launch, &[("sums", zeros::<u32>(6)), ("come", zeros::<u32>(1)), ("total", zeros::<u32>(1))]);
    let steps = |n: u32| std::iter::successors(Some(n), |&n| Some(if n % 2 == 1 { 3 * n + 1 } else { n / 2 })).take_while(|&n| n > 1).count() as u32;
    assert_eq!(elements::<u32>(&found[2]), [(1..=384).map(steps).sum::<u32>()]);
}

fn check_random(executor: &Executor, seed: u64) {
    let program = common::random::program(seed, common::random::TYPES);
    let launch = common::random::launch(&program, seed);
    let given: Vec<_> = program
        .parameters
        .iter()
        .zip(common::random::parameters(&program, seed))
        .map(|(parameter, (words, bytes))| match parameter.access {
            Some(_) => (parameter.name.as_str(), Given::Buffer(parameter.dtype, cast_slice::<u64, u8>(&words)[..bytes].to_vec())),
            None => (parameter.name.as_str(), Given::Scalar(Constant { dtype: parameter.dtype, bits: words[0] })),
        })
        .collect();
    let found = run_on(executor, &program, &launch, &given);
    let expected = common::random::run_by_oracle(&program, &launch, seed);
    for ((parameter, found), expected) in program.parameters.iter().zip(&found).zip(&expected) {
        if let Some(place) = common::random::same(parameter.dtype, found, expected) {
            panic!("seed {seed} on {}: {}[{place}] differs\n{}", executor.properties().name, parameter.name, atlas::format(&program));
        }
    }
}

#[test]
fn random_programs_do_everywhere_what_the_oracle_says() {
    let number = |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first = number("ELINVAR_SEED", 1);
    let end = first + number("ELINVAR_PROGRAMS", 12);
    for executor in devices() {
        // Compilers take most of the time.
        let next = AtomicU64::new(first);
        let seeds = || std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < end));
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| seeds().for_each(|seed| check_random(&executor, seed))))));
    }
}

/// What a program over a buffer `y: update u32` of 64 elements fails with on each device, the CPU first.
fn failures(statements: &str, limits: &Limits) -> Vec<String> {
    let text = format!("atlas 1\nprogram test\nbounds trap\nbuffer y: update u32\n{statements}");
    let program = atlas::parse(&text).unwrap();
    let launch = LaunchConfig::new([1, 1, 1], [64, 1, 1]);
    let failure = |executor: Executor| {
        let message = run_within(&executor, &program, limits, &launch, &[("y", zeros::<u32>(64))]).unwrap_err().to_string();
        // The device goes on.
        let fine = atlas::parse("atlas 1\nprogram fine\nbounds trap\nbuffer y: write u32\nkernel\ni = local_index\nstore y[i] i\nend").unwrap();
        assert_eq!(elements::<u32>(&run_on(&executor, &fine, &launch, &[("y", zeros::<u32>(64))])[0]), (0..64).collect::<Vec<_>>());
        message
    };
    std::iter::once(cpu()).chain(devices()).map(failure).collect()
}

#[test]
fn an_index_out_of_bounds_fails_the_launch_of_a_program_that_traps() {
    let kernel = |access: &str| {
        format!("kernel\n  i = position.x\n  store y[i] i\n  barrier\n  j = add i 60\n  c = ge i 4\n  if c\n    {access}\n  end\nend\n")
    };
    for access in ["i = load y[j]", "store y[j] 3", "atomic_add y[j] 1", "o = atomic_cas y[j] 1 2"] {
        for message in failures(&kernel(access), &Limits::default()) {
            assert!(message.contains("line 12, column 5: ") && message.contains("out of bounds"), "{message}");
        }
    }
}

#[test]
fn a_loop_without_end_is_stopped() {
    let limits = Limits { steps: Some(2000), ..Limits::default() };
    for (kernel, line) in [
        // All threads of a block together.
        ("kernel\n  n = block.x\n  loop\n    c = ge n 0\n    while c\n    barrier\n    s = group_add n\n  end\nend\n", "line 7"),
        // Threads of their own, before they meet.
        ("kernel\n  i = local_index\n  loop\n    c = ge i 10\n    while c\n  end\n  s = group_add i\n  store y[i] s\nend\n", "line 7"),
        // Bounded loops in one another.
        ("kernel\n  i = local_index\n  loop 4000000000\n    loop 4000000000\n      j = add i 1\n    end\n  end\n  store y[i] j\nend\n", "line "),
        // In a function, with what is the same for a block, when some threads have spent their steps and others have not.
        (
            "function f(n: u32) -> u32\n  k: u32 = move 0\n  loop\n    c = ge n 0\n    while c\n    k = add k 1\n    e = lt k 100\n    while e\n  end\n  return k\n\
             end\nkernel\n  i = local_index\n  loop\n    c = lt i 32\n    while c\n  end\n  n = block.x\n  k = call f n\n  d = eq k 100\n  if d\n    barrier\n  \
             end\n  store y[i] k\nend\n",
            "line 18",
        ),
    ] {
        for message in failures(kernel, &limits) {
            assert!(message.contains(line) && message.contains("more steps than they may"), "{kernel}{message}");
        }
    }
}
