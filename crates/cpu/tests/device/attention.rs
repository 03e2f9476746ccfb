//! Attention over a cache: the documented order of operations, and results that do not depend on how tokens are batched.

use std::num::NonZeroUsize;

use elinvar_core::{DType, Device, Layout, ListBuilder, Result, Shape};
use elinvar_cpu::CpuBackend;
use elinvar_kernels::{
    Operator, TensorInfo,
    attention::{Attention, Scoring},
    conformance::HostTensor,
    encode,
    kv_append::KvAppend,
    math, order,
    quantized::Format,
};

fn device(threads: usize) -> Device {
    Device::new(CpuBackend::new(NonZeroUsize::new(threads)).unwrap())
}

fn run(device: &Device, operator: &dyn Operator, inputs: &[Option<&HostTensor>], updated: Option<usize>) -> Result<HostTensor> {
    let infos = inputs.iter().map(|i| i.map(HostTensor::info).transpose()).collect::<Result<Vec<_>>>()?;
    let types = operator.infer(&infos)?;
    let bind = |bytes: &[u8]| -> Result<_> {
        let buffer = device.allocate(bytes.len())?;
        device.write(&buffer, 0, bytes)?;
        buffer.bind(0, bytes.len())
    };
    let bound = inputs.iter().map(|i| i.map(|t| bind(t.bytes())).transpose()).collect::<Result<Vec<_>>>()?;
    let outputs = types.iter().map(|t| bind(&vec![0; t.elements() * t.dtype.size()])).collect::<Result<Vec<_>>>()?;
    let mut list = ListBuilder::new();
    encode(&operator.plan(&infos, &types, device.properties())?, &bound, &outputs, device, &mut list, |bytes| device.allocate(bytes))?;
    device.submit(&list.finish())?.wait()?;
    let (binding, info) = updated.map_or_else(|| (&outputs[0], types[0]), |i| (bound[i].as_ref().unwrap(), infos[i].unwrap()));
    let mut bytes = vec![0; binding.bytes()];
    device.read(binding.buffer(), 0, &mut bytes)?;
    HostTensor::from_bytes(info.dtype, info.shape(), &bytes)
}

fn floats(tensor: &HostTensor) -> Vec<f32> {
    tensor.to_f64().into_iter().map(|v| v as f32).collect()
}

fn positions(first: usize, count: usize) -> HostTensor {
    HostTensor::new(&[count], &(first..first + count).map(|p| p as i32).collect::<Vec<_>>())
}

/// Elements `range` of the first axis.
fn rows(tensor: &HostTensor, range: std::ops::Range<usize>) -> HostTensor {
    let step = tensor.bytes().len() / tensor.dims()[0];
    let dims = [&[range.len()], &tensor.dims()[1..]].concat();
    HostTensor::from_bytes(tensor.dtype(), &dims, &tensor.bytes()[range.start * step..range.end * step]).unwrap()
}

fn strict_dot(a: &[f32], b: &[f32]) -> f32 {
    let mut partials = [0f32; 256];
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        partials[i % 256] = a.mul_add(*b, partials[i % 256]);
    }
    order::combine_group(&partials, order::add)
}

/// One query over the keys `attended`, one step at a time, as the operator's documentation says it.
fn by_the_book(q: &[f32], k: &[f32], v: &[f32], attended: std::ops::Range<usize>, scale: f32) -> Vec<f32> {
    let (width, keys) = (q.len(), k.len() / q.len());
    let (mut max, mut sum, mut values) = (f32::NEG_INFINITY, 0f32, vec![0f32; width]);
    for first in (0..keys).step_by(256) {
        let key = |j: usize| attended.contains(&(first + j)).then(|| &k[(first + j) * width..][..width]);
        let scores: [f32; 256] = std::array::from_fn(|j| key(j).map_or(f32::NEG_INFINITY, |key| scale * strict_dot(q, key)));
        let block_max = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
        if block_max == f32::NEG_INFINITY {
            continue;
        }
        let weights = scores.map(|s| math::exp_nonpositive(s - block_max));
        let mut block = vec![0f32; width];
        for group in 0..8 {
            for (e, total) in block.iter_mut().enumerate() {
                let used = (32 * group..32 * group + 32).filter(|&j| weights[j] != 0.0);
                *total += used.fold(0f32, |sum, j| weights[j].mul_add(v[(first + j) * width + e], sum));
            }
        }
        let block_sum = order::combine_group(&weights, order::add);
        if max == f32::NEG_INFINITY {
            (max, sum, values) = (block_max, block_sum, block);
            continue;
        }
        let merged = max.max(block_max);
        let (a, b) = (math::exp_nonpositive(max - merged), math::exp_nonpositive(block_max - merged));
        (max, sum) = (merged, sum.mul_add(a, block_sum * b));
        values.iter_mut().zip(block).for_each(|(value, new)| *value = value.mul_add(a, new * b));
    }
    values.into_iter().map(|value| value * (1.0 / sum)).collect()
}

#[test]
fn attention_follows_its_documented_order() {
    for (width, keys) in [(8, 40), (64, 256), (80, 300), (128, 700), (257, 33)] {
        let random = |heads: usize, tokens: usize, seed| HostTensor::random(DType::F32, &[1, heads, tokens, width], -2.0, 2.0, seed);
        let (q, k, v) = (random(3, 5, 1), random(1, keys, 2), random(1, keys, 3));
        let at = positions(keys - 5, 5);
        let scoring = Scoring { causal: true, left_window: Some(keys as u64 / 2), ..Scoring::default() };
        let inputs = [Some(&q), Some(&k), Some(&v), None, Some(&at), None];
        let found = floats(&run(&device(7), &Attention { scoring, ..Attention::default() }, &inputs, None).unwrap());
        for (row, (q, y)) in floats(&q).chunks(width).zip(found.chunks(width)).enumerate() {
            let position = keys - 5 + row % 5;
            let expected = by_the_book(q, &floats(&k), &floats(&v), position - keys / 2..position + 1, 1.0 / (width as f32).sqrt());
            assert!(y.iter().zip(&expected).all(|(y, e)| y.to_bits() == e.to_bits()), "D = {width}, {keys} keys, row {row}");
        }
    }
}

/// Keys, values and queries `[tokens, heads, D]` go through a cache in chunks; the outputs `[tokens, heads, D]` of all of them.
fn in_chunks(device: &Device, [q, k, v]: [&HostTensor; 3], cache: DType, chunk: usize, scoring: Scoring) -> Vec<u8> {
    let [tokens, heads, width] = q.dims()[..] else { panic!("three axes expected") };
    let dims = |extent: usize| [k.dims()[1], tokens + 20, extent];
    let empty = match cache {
        DType::U8 => {
            let dims = dims(Format::Q8_0.packed_row_bytes(width).unwrap());
            HostTensor::new(&dims, &vec![255u8; dims.iter().product()])
        }
        _ => HostTensor::random(cache, &dims(width), f64::NAN, f64::NAN, 0),
    };
    let (mut keys, mut values, mut out) = (empty.clone(), empty, Vec::new());
    for first in (0..tokens).step_by(chunk) {
        let last = tokens.min(first + chunk);
        let at = positions(first, last - first);
        keys = run(device, &KvAppend, &[Some(&keys), Some(&rows(k, first..last)), Some(&at)], Some(0)).unwrap();
        values = run(device, &KvAppend, &[Some(&values), Some(&rows(v, first..last)), Some(&at)], Some(0)).unwrap();
        let batched = |cache: &HostTensor| HostTensor::from_bytes(cache.dtype(), &[&[1], cache.dims()].concat(), cache.bytes()).unwrap();
        let queries = HostTensor::from_bytes(q.dtype(), &[1, last - first, heads, width], rows(q, first..last).bytes()).unwrap();
        let queries = queries.viewed(|layout| layout.permute(&[0, 2, 1, 3])).unwrap();
        let inputs = [Some(&queries), Some(&batched(&keys)), Some(&batched(&values)), None, Some(&at), None];
        out.extend_from_slice(run(device, &Attention { scoring, tokens_first: true, ..Attention::default() }, &inputs, None).unwrap().bytes());
    }
    out
}

#[test]
fn a_prompt_in_chunks_gives_the_same_bits() {
    let devices = [device(1), device(3)];
    for (cache, width, window, softcap) in
        [(DType::BF16, 40, None, 0.0), (DType::F32, 40, Some(70), 0.0), (DType::F16, 40, None, 5.0), (DType::U8, 64, Some(200), 0.0)]
    {
        let scoring = Scoring { causal: true, left_window: window, softcap, ..Scoring::default() };
        let random = |heads: usize, seed| HostTensor::random(DType::F32, &[290, heads, width], -3.0, 3.0, seed);
        let (q, k, v) = (random(6, 1), random(2, 2), random(2, 3));
        let whole = in_chunks(&devices[0], [&q, &k, &v], cache, 290, scoring);
        for (chunk, device) in [(1, 0), (3, 1), (64, 1), (290, 1)] {
            let chunked = in_chunks(&devices[device], [&q, &k, &v], cache, chunk, scoring);
            assert!(chunked == whole, "{cache} cache, chunks of {chunk}");
        }
    }
}

#[test]
fn packed_rows_give_the_bits_of_the_floats_that_they_hold() {
    let device = device(2);
    let [keys, values] = [1, 2].map(|seed| {
        let rows = HostTensor::random(DType::F32, &[300, 2, 64], -3.0, 3.0, seed);
        let cache = HostTensor::new(&[2, 300, 80], &[0u8; 2 * 300 * 80]);
        let packed = run(&device, &KvAppend, &[Some(&cache), Some(&rows), Some(&positions(0, 300))], Some(0)).unwrap();
        let mut decoded = vec![0f32; 2 * 300 * 64];
        for (row, values) in packed.bytes().chunks(80).zip(decoded.chunks_mut(64)) {
            Format::Q8_0.decode_packed(row, values).unwrap();
        }
        [HostTensor::from_bytes(DType::U8, &[1, 2, 300, 80], packed.bytes()).unwrap(), HostTensor::new(&[1, 2, 300, 64], &decoded)]
    });
    for queries in [1, 70] {
        let q = HostTensor::random(DType::F32, &[1, 6, queries, 64], -2.0, 2.0, 3);
        let at = positions(290 - queries, queries);
        let scoring = Scoring { causal: true, ..Scoring::default() };
        let attended = |kind: usize| {
            let inputs = [Some(&q), Some(&keys[kind]), Some(&values[kind]), None, Some(&at), None];
            run(&device, &Attention { scoring, ..Attention::default() }, &inputs, None).unwrap()
        };
        assert!(attended(0) == attended(1), "{queries} queries");
    }
}

#[test]
fn a_sequence_in_a_batch_gives_the_same_bits_as_alone() {
    let device = device(2);
    let random = |heads: usize, tokens: usize, seed| HostTensor::random(DType::F32, &[64, heads, tokens, 16], -3.0, 3.0, seed);
    let (q, k, v) = (random(2, 1, 1), random(1, 300, 2), random(1, 300, 3));
    let lengths: Vec<i32> = (0..64).map(|b| 5 * b).collect();
    let operator = Attention::default();
    let lengths = HostTensor::new(&[64], &lengths);
    let all = run(&device, &operator, &[Some(&q), Some(&k), Some(&v), None, None, Some(&lengths)], None).unwrap();
    for b in [0, 1, 30, 63] {
        let one = |t: &HostTensor| rows(t, b..b + 1);
        let (q, k, v, lengths) = (one(&q), one(&k), one(&v), one(&lengths));
        let alone = run(&device, &operator, &[Some(&q), Some(&k), Some(&v), None, None, Some(&lengths)], None).unwrap();
        assert!(alone == one(&all), "sequence {b}");
    }
}

#[test]
fn a_position_outside_the_cache_is_an_error_and_writes_nothing() {
    let cache = HostTensor::random(DType::F32, &[1, 4, 2], 0.0, 1.0, 1);
    let new = HostTensor::random(DType::F32, &[2, 1, 2], 2.0, 3.0, 2);
    for bad in [4, -1, i32::MAX] {
        let at = HostTensor::new(&[2], &[1, bad]);
        let error = run(&device(1), &KvAppend, &[Some(&cache), Some(&new), Some(&at)], Some(0)).unwrap_err();
        assert!(error.is_invalid_argument(), "{error}");
        assert!(error.to_string().contains(&format!("position {bad} of a cache for 4")), "{error}");
    }
    let device = device(1);
    let (buffer, rows, at) = (device.allocate(32).unwrap(), device.allocate(16).unwrap(), device.allocate(8).unwrap());
    device.write(&buffer, 0, cache.bytes()).unwrap();
    device.write(&rows, 0, new.bytes()).unwrap();
    device.write(&at, 0, HostTensor::new(&[2], &[1i32, 4]).bytes()).unwrap();
    let infos = [cache.info().unwrap(), new.info().unwrap(), TensorInfo::new(DType::I32, &[2]).unwrap()].map(Some);
    let bindings = [buffer.bind(0, 32), rows.bind(0, 16), at.bind(0, 8)].map(|b| Some(b.unwrap()));
    let mut list = ListBuilder::new();
    let plan = KvAppend.plan(&infos, &[], device.properties()).unwrap();
    encode(&plan, &bindings, &[], &device, &mut list, |bytes| device.allocate(bytes)).unwrap();
    assert!(device.submit(&list.finish()).unwrap().wait().is_err());
    let mut after = vec![0; 32];
    // A device may report the failure once more.
    device.read(&buffer, 0, &mut after).or_else(|_| device.read(&buffer, 0, &mut after)).unwrap();
    assert_eq!(after, cache.bytes());
}

#[test]
fn a_strided_cache_is_updated_in_place() {
    // Stored [capacity, heads, D].
    let cache = HostTensor::random(DType::BF16, &[6, 2, 3], -1.0, 1.0, 1);
    let view = cache.clone().viewed(|layout| layout.permute(&[1, 0, 2])).unwrap();
    let new = HostTensor::random(DType::F32, &[2, 2, 3], 2.0, 3.0, 2);
    let at = HostTensor::new(&[2], &[4, 0]);
    let device = device(1);
    let buffer = device.allocate(72).unwrap();
    device.write(&buffer, 0, cache.bytes()).unwrap();
    let bind = |t: &HostTensor| {
        let buffer = device.allocate(t.bytes().len()).unwrap();
        device.write(&buffer, 0, t.bytes()).unwrap();
        Some(buffer.bind(0, t.bytes().len()).unwrap())
    };
    let infos = [&view, &new, &at].map(|t| Some(t.info().unwrap()));
    assert_eq!(infos[0].unwrap().layout, Layout::contiguous(Shape::new(&[6, 2, 3]).unwrap()).permute(&[1, 0, 2]).unwrap());
    let plan = KvAppend.plan(&infos, &[], device.properties()).unwrap();
    let mut list = ListBuilder::new();
    let bindings = [Some(buffer.bind(0, 72).unwrap()), bind(&new), bind(&at)];
    encode(&plan, &bindings, &[], &device, &mut list, |bytes| device.allocate(bytes)).unwrap();
    device.submit(&list.finish()).unwrap().wait().unwrap();
    let mut bytes = vec![0; 72];
    device.read(&buffer, 0, &mut bytes).unwrap();
    let (found, mut expected) = (HostTensor::from_bytes(DType::BF16, &[6, 2, 3], &bytes).unwrap(), cache.to_f64());
    let rounded = HostTensor::from_f64(DType::BF16, &[12], &new.to_f64()).to_f64();
    expected[24..30].copy_from_slice(&rounded[..6]);
    expected[..6].copy_from_slice(&rounded[6..]);
    assert_eq!(found.to_f64(), expected);
}
