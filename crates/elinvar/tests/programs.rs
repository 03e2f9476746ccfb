//! The example programs, on the CPU and on the simulator: what they calculate, and the same bits.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails fails its test")]

#[path = "../../atlas/tests/common/mod.rs"]
mod common;

use std::path::Path;

use bytemuck::cast_slice;
use elinvar::{
    BackendType, DType, Executor, ProgramArgument, Tensor,
    atlas::{self, Constant, LaunchConfig},
};

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

fn run_on(executor: &Executor, program: &atlas::Program, launch: &LaunchConfig, given: &[(&str, Given)]) -> Vec<Vec<u8>> {
    let kernel = executor.compile_program(program.clone()).unwrap();
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
    kernel.launch(launch, &arguments).unwrap();
    tensors.iter().flatten().map(|tensor| tensor.to_bytes().unwrap()).collect()
}

fn example(name: &str) -> atlas::Program {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name).with_extension("atlas");
    atlas::parse(&std::fs::read_to_string(path).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The buffers after a launch; both devices must agree on every bit.
fn run(name: &str, launch: LaunchConfig, given: &[(&str, Given)]) -> Vec<Vec<u8>> {
    let program = example(name);
    let expected = run_on(&Executor::new_with_backend(BackendType::Cpu).unwrap(), &program, &launch, given);
    let found = run_on(&Executor::new_with_backend(BackendType::MetalSim).unwrap(), &program, &launch, given);
    assert!(expected == found, "{name} differs between the devices");
    expected
}

fn floats(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919) % 1009) as f32 / 100.0 - 5.0).collect()
}

fn close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() <= tolerance * expected.abs().max(1.0), "{index}: {found}, {expected} expected");
    }
}

#[test]
fn saxpy() {
    let (x, y) = (floats(1000), floats(1000));
    let given = [("x", buffer(&x)), ("y", buffer(&y)), ("a", Given::Scalar(Constant::f32(1.5))), ("n", scalar(1000))];
    let found = run("saxpy", LaunchConfig::linear(1000, 128), &given);
    assert!(elements::<f32>(&found[1]).iter().zip(x.iter().zip(&y)).all(|(found, (x, y))| *found == x.mul_add(1.5, *y)));
}

#[test]
fn histogram() {
    let data: Vec<u8> = (0..5000u32).map(|i| (i * i % 251) as u8).collect();
    let given = [("data", buffer(&data)), ("counts", zeros::<u32>(256)), ("n", scalar(5000))];
    let found = run("histogram", LaunchConfig { grid: [4, 1, 1], block: [256, 1, 1] }, &given);
    let mut expected = [0u32; 256];
    data.iter().for_each(|value| expected[usize::from(*value)] += 1);
    assert_eq!(elements::<u32>(&found[1]), expected);
}

#[test]
fn block_sum() {
    let x = floats(1000);
    let found = run("block_sum", LaunchConfig::linear(1000, 256), &[("x", buffer(&x)), ("sums", zeros::<f32>(4))]);
    let expected: Vec<f64> = x.chunks(256).map(|block| block.iter().map(|v| f64::from(*v)).sum()).collect();
    close(&elements::<f32>(&found[1]), &expected, 1e-5);
}

#[test]
fn prefix_sum() {
    let x: Vec<u32> = (0..600).map(|i| i * i).collect();
    let found = run("prefix_sum", LaunchConfig::linear(600, 256), &[("x", buffer(&x)), ("sums", zeros::<u32>(600))]);
    let sums = |block: &[u32]| {
        block
            .iter()
            .scan(0u32, |sum, v| {
                Some({
                    *sum += v;
                    *sum
                })
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(elements::<u32>(&found[1]), x.chunks(256).flat_map(sums).collect::<Vec<_>>());
}

#[test]
fn transpose() {
    let (rows, columns) = (37usize, 50usize);
    let x = floats(rows * columns);
    let given = [("x", buffer(&x)), ("y", zeros::<f32>(rows * columns)), ("rows", scalar(37)), ("columns", scalar(50))];
    let found = run("transpose", LaunchConfig { grid: [4, 3, 1], block: [16, 16, 1] }, &given);
    let y = elements::<f32>(&found[1]);
    assert!((0..rows * columns).all(|i| y[i % columns * rows + i / columns] == x[i]));
}

#[test]
fn matmul() {
    let (m, n, k) = (33usize, 20usize, 45usize);
    let (a, b) = (floats(m * k), floats(k * n));
    let given = [("a", buffer(&a)), ("b", buffer(&b)), ("c", zeros::<f32>(m * n)), ("m", scalar(33)), ("n", scalar(20)), ("k", scalar(45))];
    let found = run("matmul", LaunchConfig { grid: [2, 3, 1], block: [16, 16, 1] }, &given);
    let element = |i: usize| (0..k).fold(0f32, |sum, l| a[i / n * k + l].mul_add(b[l * n + i % n], sum));
    assert_eq!(elements::<f32>(&found[2]), (0..m * n).map(element).collect::<Vec<_>>());
}

#[test]
fn softmax() {
    let x = floats(3 * 700);
    let given = [("x", buffer(&x)), ("y", zeros::<f32>(3 * 700)), ("n", scalar(700))];
    let found = run("softmax", LaunchConfig { grid: [3, 1, 1], block: [256, 1, 1] }, &given);
    let row = |row: &[f32]| {
        let exponentials: Vec<f64> = row.iter().map(|v| f64::from(*v).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        exponentials.into_iter().map(move |e| e / sum).collect::<Vec<_>>()
    };
    close(&elements::<f32>(&found[1]), &x.chunks(700).flat_map(row).collect::<Vec<_>>(), 1e-7);
}

#[test]
fn mandelbrot() {
    let given = [("counts", zeros::<u32>(48 * 30)), ("width", scalar(48)), ("height", scalar(30))];
    let found = run("mandelbrot", LaunchConfig { grid: [3, 2, 1], block: [16, 16, 1] }, &given);
    let point = |i: usize| {
        let (cr, ci) = ((i % 48) as f32 / 48.0 * 3.5 - 2.5, (i / 48) as f32 / 30.0 * 2.0 - 1.0);
        let (mut zr, mut zi) = (0f32, 0f32);
        (0..256u32)
            .find(|_| {
                let (rr, ii, product) = (zr * zr, zi * zi, zr * zi);
                (zr, zi) = (rr - ii + cr, product + product + ci);
                rr + ii > 4.0
            })
            .unwrap_or(256)
    };
    assert_eq!(elements::<u32>(&found[0]), (0..48 * 30).map(point).collect::<Vec<_>>());
}

#[test]
fn life() {
    let (width, height) = (40usize, 30usize);
    let cells: Vec<u8> = (0..width * height).map(|i| u8::from(i * i % 7 < 3)).collect();
    let given = [("cells", buffer(&cells)), ("next", zeros::<u8>(width * height)), ("width", scalar(40)), ("height", scalar(30))];
    let found = run("life", LaunchConfig { grid: [3, 4, 1], block: [16, 8, 1] }, &given);
    let next = |i: usize| {
        let at = |dx: usize, dy: usize| cells[(i / width + height + dy - 1) % height * width + (i % width + width + dx - 1) % width];
        let neighbours: u8 = (0..9).filter(|n| *n != 4).map(|n| at(n % 3, n / 3)).sum();
        u8::from(neighbours == 3 || neighbours == 2 && cells[i] == 1)
    };
    assert_eq!(found[1], (0..width * height).map(next).collect::<Vec<_>>());
}

#[test]
fn nbody() {
    let n = 300usize;
    let bodies = floats(4 * n);
    let given =
        [("bodies", buffer(&bodies)), ("acceleration", zeros::<f32>(3 * n)), ("n", scalar(300)), ("softening", Given::Scalar(Constant::f32(0.1)))];
    let found = run("nbody", LaunchConfig::linear(300, 256), &given);
    let body = |i: usize| std::array::from_fn::<f64, 4, _>(|axis| f64::from(bodies[4 * i + axis]));
    let expected: Vec<f64> = (0..n)
        .flat_map(|i| {
            let mut sum = [0f64; 3];
            for other in (0..n).map(body) {
                let distance: [f64; 3] = std::array::from_fn(|axis| other[axis] - body(i)[axis]);
                let square = distance.iter().map(|d| d * d).sum::<f64>() + f64::from(0.1f32);
                (0..3).for_each(|axis| sum[axis] += other[3] * square.powf(-1.5) * distance[axis]);
            }
            sum
        })
        .collect();
    close(&elements::<f32>(&found[1]), &expected, 1e-3);
}

#[test]
fn a_launch_that_does_not_fit_is_refused_before_it_starts() {
    let executor = Executor::new_with_backend(BackendType::Cpu).unwrap();
    let kernel = executor.compile_program(example("saxpy")).unwrap();
    let (x, bytes) = (executor.tensor(&[8], &[0f32; 8]).unwrap(), executor.tensor(&[8], &[0u8; 8]).unwrap());
    let (a, n) = (ProgramArgument::Scalar(Constant::f32(1.0)), ProgramArgument::Scalar(Constant::u32(8)));
    let tensor = ProgramArgument::Tensor;
    let launch = LaunchConfig::linear(8, 32);
    let refused = |launch: &LaunchConfig, arguments: &[(&str, ProgramArgument<'_>)], told: &str| {
        let message = kernel.launch(launch, arguments).unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    };
    let y = executor.tensor(&[8], &[0f32; 8]).unwrap();
    let whole = [("x", tensor(&x)), ("y", tensor(&y)), ("a", a), ("n", n)];
    refused(&launch, &whole[..3], "'n' (u32) is not given");
    refused(&launch, &[whole[0], ("y", tensor(&bytes)), whole[2], whole[3]], "'y' is a buffer of f32, the tensor has u8");
    refused(&launch, &[whole[0], whole[1], ("a", n), whole[3]], "'a' is a scalar of f32");
    refused(&launch, &[whole[0], whole[1], whole[2], whole[3], ("z", a)], "there is no parameter 'z'");
    refused(&launch, &[whole[0], whole[0]], "'x' is given twice");
    refused(&launch, &[whole[0], ("y", tensor(&x)), whole[2], whole[3]], "overlaps");
    refused(&LaunchConfig { grid: [0, 1, 1], ..launch }, &whole, "no extent may be zero");
    refused(&LaunchConfig { block: [2048, 1, 1], ..launch }, &whole, "1024 at most");
    kernel.launch(&launch, &whole).unwrap();
}

#[test]
fn every_instruction_gives_the_same_on_the_simulator() {
    let executor = Executor::new_with_backend(BackendType::MetalSim).unwrap();
    for (&dtype, divergent) in DType::ALL.iter().flat_map(|dtype| [(dtype, false), (dtype, true)]) {
        let table = common::table(dtype, divergent);
        let inputs = [("a", &table.a), ("b", &table.b), ("c", &table.c)].map(|(name, bytes)| (name, Given::Buffer(dtype, bytes.clone())));
        let outputs = table.outputs.iter().map(|(name, dtype, bytes)| (name.as_str(), Given::Buffer(*dtype, vec![0xa5; bytes.len()])));
        let given: Vec<_> = inputs.into_iter().chain(outputs).collect();
        let program = atlas::parse(&table.text).unwrap();
        let found = run_on(&executor, &program, &LaunchConfig::linear(common::THREADS as u64, 64), &given);
        for (output, found) in found[3..].iter().enumerate() {
            if let Some(difference) = common::difference(&table, output, found) {
                panic!("{dtype}, divergent {divergent}: {difference}");
            }
        }
    }
}

#[test]
fn random_programs_do_on_the_simulator_what_the_oracle_says() {
    let executor = Executor::new_with_backend(BackendType::MetalSim).unwrap();
    let count = std::env::var("ELINVAR_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    for seed in 1..=count {
        let program = common::random::program(seed);
        let launch = common::random::launch(seed);
        let given: Vec<_> = program
            .parameters
            .iter()
            .zip(common::random::parameters(&program, seed))
            .map(|(parameter, (words, bytes))| match parameter.access {
                Some(_) => (parameter.name.as_str(), Given::Buffer(parameter.dtype, cast_slice::<u64, u8>(&words)[..bytes].to_vec())),
                None => (parameter.name.as_str(), Given::Scalar(Constant { dtype: parameter.dtype, bits: words[0] })),
            })
            .collect();
        let found = run_on(&executor, &program, &launch, &given);
        let expected = common::random::run_by_oracle(&program, &launch, seed);
        for ((parameter, found), expected) in program.parameters.iter().zip(&found).zip(&expected) {
            if let Some(place) = common::random::same(parameter.dtype, found, expected) {
                panic!("seed {seed}: {}[{place}] differs\n{}", parameter.name, atlas::format(&program));
            }
        }
    }
}
