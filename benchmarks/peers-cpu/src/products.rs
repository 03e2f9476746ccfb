//! Matrix products and matrix-vector products.

use std::{fs, ops::Range, sync::Arc};

use candle_core::{DType as CandleType, Device, Tensor as CandleTensor};
use elinvar::{DType, Executor, HostMemory, Precision, Tensor, kernels::matmul::MatMul};
use half::{bf16, f16};
use memmap2::MmapMut;

use crate::{
    ceilings,
    harness::{Result, Side, compare, verify},
};

const SIZE: usize = 1024;

/// Bytes of weights that matrix-vector products walk through.
const WEIGHTS: usize = 1 << 30;

const TYPES: [(DType, CandleType); 3] = [(DType::F32, CandleType::F32), (DType::BF16, CandleType::BF16), (DType::F16, CandleType::F16)];

/// Bytes that are small numbers in each of the three types, and never NaN, infinite or denormal.
fn fill(bytes: &mut [u8]) {
    let mut state = 1u32;
    for half in bytes.chunks_exact_mut(2) {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        half.copy_from_slice(&(0x3c00 | (state >> 16) as u16 & 0x83ff).to_ne_bytes());
    }
}

fn floats(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let words = bytes.chunks_exact(dtype.size());
    match dtype {
        DType::F16 => words.map(|w| f16::from_ne_bytes([w[0], w[1]]).to_f32()).collect(),
        DType::BF16 => words.map(|w| bf16::from_ne_bytes([w[0], w[1]]).to_f32()).collect(),
        _ => words.map(|w| f32::from_ne_bytes([w[0], w[1], w[2], w[3]])).collect(),
    }
}

fn candle_floats(tensor: &CandleTensor) -> Result<Vec<f32>> {
    Ok(tensor.to_dtype(CandleType::F32)?.flatten_all()?.to_vec1()?)
}

/// `A B` of two square matrices.
pub fn matmul(executor: &Executor, threads: usize, rounds: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let operations = 2.0 * (SIZE as f64).powi(3);
    for (dtype, candle) in TYPES {
        let title = format!("matmul {dtype} [{SIZE}, {SIZE}] x [{SIZE}, {SIZE}]");
        if !wanted(&title) {
            continue;
        }
        let mut bytes = vec![0; 2 * SIZE * SIZE * dtype.size()];
        fill(&mut bytes);
        let (left, right) = bytes.split_at(SIZE * SIZE * dtype.size());
        let [a, b] = [left, right].map(|bytes| executor.tensor_from_bytes(dtype, &[SIZE, SIZE], bytes));
        let (a, b) = (a?, b?);
        let multiply = |precision| {
            let operator = MatMul { precision, ..MatMul::default() };
            executor.record(|| executor.apply(&operator, &[Some(&a), Some(&b), None]))
        };
        let ((fast, result), (strict, _)) = (multiply(Precision::Fast)?, multiply(Precision::Strict)?);
        let x = CandleTensor::from_raw_buffer(left, candle, &[SIZE, SIZE], &Device::Cpu)?;
        let y = CandleTensor::from_raw_buffer(right, candle, &[SIZE, SIZE], &Device::Cpu)?;
        executor.replay(&fast)?.wait()?;
        verify(&title, &floats(dtype, &result[0].to_bytes()?), &candle_floats(&x.matmul(&y)?)?, 1e-2)?;
        let mut sides = vec![
            Side::new("elinvar fast", operations, || Ok(executor.replay(&fast)?.wait()?)),
            Side::new("elinvar strict", operations, || Ok(executor.replay(&strict)?.wait()?)),
            Side::new("candle", operations, || Ok(drop(x.matmul(&y)?))),
            Side::new("peak f32", ceilings::OPERATIONS * threads as f64, || Ok(ceilings::multiply_add())),
        ];
        let (left32, right32) = (floats(DType::F32, left), floats(DType::F32, right));
        let (left16, right16): (&[f16], &[f16]) = if dtype == DType::F16 { (cast(left), cast(right)) } else { (&[], &[]) };
        let (mut sums32, mut sums16) = (vec![0f32; SIZE * SIZE], vec![f16::ZERO; SIZE * SIZE]);
        match dtype {
            DType::F32 => sides.push(Side::new("gemm", operations, move || Ok(square(&mut sums32, &left32, &right32, [0.0, 1.0], threads)))),
            DType::F16 => {
                let factors = [f16::ZERO, f16::ONE];
                sides.push(Side::new("gemm", operations, move || Ok(square(&mut sums16, left16, right16, factors, threads))));
            }
            _ => {}
        }
        compare(&title, "GFLOP/s", rounds, sides)?;
    }
    Ok(())
}

fn cast<T: Copy>(bytes: &[u8]) -> &[T] {
    // SAFETY: any bits are an f16; `align_to` splits off what is not aligned.
    let (head, values, tail) = unsafe { bytes.align_to() };
    assert!(head.is_empty() && tail.is_empty());
    values
}

fn square<T: 'static>(sums: &mut [T], a: &[T], b: &[T], [alpha, beta]: [T; 2], threads: usize) {
    let stride = SIZE as isize;
    assert!(sums.len() == SIZE * SIZE && a.len() == sums.len() && b.len() == sums.len());
    // SAFETY: row-major squares whose sizes were just checked.
    unsafe {
        gemm::gemm(
            SIZE,
            SIZE,
            SIZE,
            sums.as_mut_ptr(),
            1,
            stride,
            false,
            a.as_ptr(),
            1,
            stride,
            b.as_ptr(),
            1,
            stride,
            alpha,
            beta,
            false,
            false,
            false,
            gemm::Parallelism::Rayon(threads),
        );
    }
}

/// `y = W x` over many matrices in turn.
pub fn matvec(executor: &Executor, rounds: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let shapes = [[4096, 4096], [2048, 2048], [8192, 2048], [2048, 8192], [128_256, 2048], [512, 2048]];
    let lines = TYPES.into_iter().flat_map(|types| shapes.map(|shape| (types, shape)));
    let lines = lines.map(|(types, [n, k])| (format!("matvec {} [{n}, {k}]", types.0), types, [n, k])).filter(|(title, ..)| wanted(title));
    let lines: Vec<_> = lines.filter(|(_, (dtype, _), shape)| *shape == shapes[0] || *dtype == DType::BF16).collect();
    if lines.is_empty() {
        return Ok(());
    }
    let mut map = MmapMut::map_anon(WEIGHTS)?;
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::HugePage)?;
    fill(&mut map);
    let memory = HostMemory::new(Arc::new(map.make_read_only()?));
    for (title, types, shape) in lines {
        vectors(executor, rounds, &title, types, shape, &memory)?;
    }
    Ok(())
}

fn vectors(
    executor: &Executor,
    rounds: usize,
    title: &str,
    (dtype, candle): (DType, CandleType),
    [n, k]: [usize; 2],
    memory: &HostMemory,
) -> Result<()> {
    let bytes = n * k * dtype.size();
    // A fresh eighth of the memory in each round, for each side.
    let count = (WEIGHTS / 8 / bytes).max(1);
    let places = WEIGHTS / (count * bytes);
    let range = |place: usize, i: usize| -> Range<usize> { (place * count + i) * bytes..(place * count + i + 1) * bytes };
    let mut vector = vec![0; k * dtype.size()];
    fill(&mut vector);
    let x = executor.tensor_from_bytes(dtype, &[1, k], &vector)?;
    let record = |place: usize| {
        executor.record(|| {
            (0..count)
                .map(|i| x.linear(&executor.adopt(dtype, &[n, k], memory.slice(range(place, i))?)?, None))
                .collect::<elinvar::Result<Vec<Tensor>>>()
        })
    };
    let recordings = (0..places).map(record).collect::<elinvar::Result<Vec<_>>>()?;
    let y = CandleTensor::from_raw_buffer(&vector, candle, &[1, k], &Device::Cpu)?;
    let weights = |i: usize| CandleTensor::from_raw_buffer(&memory.bytes()[range(0, i)], candle, &[n, k], &Device::Cpu)?.t();
    let theirs = (0..count).map(weights).collect::<candle_core::Result<Vec<_>>>()?;
    executor.replay(&recordings[0].0)?.wait()?;
    verify(title, &floats(dtype, &recordings[0].1[0].to_bytes()?), &candle_floats(&y.matmul(&theirs[0])?)?, 2e-2)?;
    let amount = (count * bytes) as f64;
    let (mut ours, mut reads) = (0, 0);
    let sides = vec![
        Side::new("elinvar", amount, || {
            ours = (ours + 1) % places;
            Ok(executor.replay(&recordings[ours].0)?.wait()?)
        }),
        Side::new("read", amount, || {
            reads = (reads + places - 1) % places;
            Ok(ceilings::read(&memory.bytes()[range(reads, 0).start..range(reads, count - 1).end]))
        }),
        Side::new("candle", amount, || theirs.iter().try_for_each(|w| Ok(drop(y.matmul(w)?)))),
    ];
    compare(title, "GB/s", rounds, sides)
}

/// The processor's name, for the head of a report.
pub fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned()));
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}
