//! Matrix products and matrix-vector products.

use std::ops::Range;

use candle_core::{DType as CandleType, Device, Tensor as CandleTensor};
use elinvar::{DType, Precision, Tensor, kernels::matmul::MatMul};
use half::{bf16, f16};

use crate::harness::{ARENA, Bench, Result, Side, fill, verify};

const SIZE: usize = 1024;

const TYPES: [(DType, CandleType); 3] = [(DType::F32, CandleType::F32), (DType::BF16, CandleType::BF16), (DType::F16, CandleType::F16)];

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
pub fn matmul(bench: &Bench) -> Result<()> {
    let (executor, threads) = (&bench.executor, bench.threads);
    let operations = 2.0 * (SIZE as f64).powi(3);
    for (dtype, candle) in TYPES {
        let title = format!("matmul {dtype} [{SIZE}, {SIZE}] x [{SIZE}, {SIZE}]");
        if !bench.wants(&title) {
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
            bench.peak(),
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
        bench.compare(&title, "GFLOP/s", sides)?;
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
pub fn matvec(bench: &Bench) -> Result<()> {
    let shapes = [[4096, 4096], [2048, 2048], [8192, 2048], [2048, 8192], [128_256, 2048], [512, 2048]];
    for types in TYPES {
        let shapes = if types.0 == DType::BF16 { &shapes[..] } else { &shapes[..1] };
        for shape in shapes {
            let title = format!("matvec {} {shape:?}", types.0);
            if bench.wants(&title) {
                vectors(bench, &title, types, *shape)?;
            }
        }
    }
    Ok(())
}

fn vectors(bench: &Bench, title: &str, (dtype, candle): (DType, CandleType), [n, k]: [usize; 2]) -> Result<()> {
    let (executor, memory) = (&bench.executor, bench.arena()?);
    let bytes = n * k * dtype.size();
    // A fresh eighth of the memory in each round, for each side.
    let count = (ARENA / 8 / bytes).max(1);
    let places = ARENA / (count * bytes);
    let range = |place: usize, i: usize| -> Range<usize> { (place * count + i) * bytes..(place * count + i + 1) * bytes };
    let mut vector = vec![0; k * dtype.size()];
    fill(&mut vector);
    let x = executor.tensor_from_bytes(dtype, &[1, k], &vector)?;
    let product = |place: usize, i: usize| x.linear(&executor.adopt(dtype, &[n, k], memory.slice(range(place, i))?)?, None);
    let together = |place: usize| executor.record(|| (0..count).map(|i| product(place, i)).collect::<elinvar::Result<Vec<Tensor>>>());
    let recordings = (0..places).map(together).collect::<elinvar::Result<Vec<_>>>()?;
    let single = |index: usize| Ok(executor.record(|| product(index / count, index % count))?.0);
    let singles = (0..places * count).map(single).collect::<elinvar::Result<Vec<_>>>()?;
    let y = CandleTensor::from_raw_buffer(&vector, candle, &[1, k], &Device::Cpu)?;
    let weights = |i: usize| CandleTensor::from_raw_buffer(&memory.bytes()[range(0, i)], candle, &[n, k], &Device::Cpu)?.t();
    let theirs = (0..count).map(weights).collect::<candle_core::Result<Vec<_>>>()?;
    executor.replay(&recordings[0].0)?.wait()?;
    verify(title, &floats(dtype, &recordings[0].1[0].to_bytes()?), &candle_floats(&y.matmul(&theirs[0])?)?, 2e-2)?;
    let amount = (count * bytes) as f64;
    let (mut ours, mut alone) = (0, places / 2);
    let sides = vec![
        Side::new("elinvar", amount, || {
            ours = (ours + 1) % places;
            Ok(executor.replay(&recordings[ours].0)?.wait()?)
        }),
        Side::new("elinvar, one by one", amount, || {
            alone = (alone + 1) % places;
            singles[alone * count..][..count].iter().try_for_each(|recording| Ok(executor.replay(recording)?.wait()?))
        }),
        bench.read(count * bytes)?,
        Side::new("candle", amount, || theirs.iter().try_for_each(|w| Ok(drop(y.matmul(w)?)))),
    ];
    bench.compare(title, "GB/s", sides)
}
