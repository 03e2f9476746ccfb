//! What `bench ops` measures: the same operators everywhere, at sizes that fit the device.

use elinvar::{DType, DeviceProperties, Executor, Precision, Result, Tensor, kernels::quantized::Format};
use serde_json::{Value, json};

use crate::measure::is_gpu;

/// One measured operator: its inputs are random, rotated so that they come from memory and not from a cache.
pub(super) struct Row {
    pub(super) operator: &'static str,
    pub(super) attributes: Vec<(&'static str, String)>,
    pub(super) inputs: Vec<(DType, Vec<usize>)>,
    /// Arithmetic operations, where arithmetic may be the limit.
    pub(super) operations: f64,
}

/// The name of a row of operators on two tensors that are fused: see [`chain`].
pub(super) const CHAIN: &str = "clamp(silu(a)*b+a,-1,1)";

/// The work of [`CHAIN`].
pub(super) fn chain(recorded: &Executor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    a.on(recorded)?.silu()?.mul(b)?.add(a)?.clamp(-1.0, 1.0)
}

impl Row {
    fn new(operator: &'static str, dtype: DType, shapes: &[&[usize]]) -> Self {
        let inputs = shapes.iter().map(|s| (dtype, s.to_vec())).collect();
        Self { operator, attributes: Vec::new(), inputs, operations: 0.0 }
    }

    fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    fn precisely(self, precision: Precision) -> Self {
        self.with("precision", precision)
    }

    /// `[m, k]` times a weight `[n, k]`.
    fn product(dtype: DType, [m, n, k]: [usize; 3], precision: Precision) -> Self {
        let row = Row::new("matmul", dtype, &[&[m, k], &[n, k]]).with("transpose_b", true);
        Row { operations: 2.0 * (m * n * k) as f64, ..row }.precisely(precision)
    }

    /// A linear layer of width `d` for `m` rows with an adapter of rank 8.
    fn lora(dtype: DType, m: usize, d: usize) -> Self {
        let row = Row::new("lora_linear", dtype, &[&[m, d], &[d, d], &[8, d], &[d, 8]]);
        let operations = 2.0 * (m * d * (d + 16)) as f64;
        Row { operations, ..row }.precisely(if m == 1 { Precision::Strict } else { Precision::Fast })
    }

    /// `m` rows of `k` elements times a weight of `n` such rows in blocks, packed, of which all bytes are random.
    fn quantized(format: Format, [m, n, k]: [usize; 3]) -> Self {
        let row = Row::new("quantized_linear", DType::F32, &[&[m, k]]).with("format", format);
        let weight = (DType::U8, vec![n, format.packed_row_bytes(k).unwrap_or(0)]);
        Row { inputs: [row.inputs, vec![weight]].concat(), operations: 2.0 * (m * n * k) as f64, ..row }
    }

    /// 32 query heads and 8 of keys and values, 128 wide: one new token over a cache, or all tokens of a causal prompt.
    fn attention(queries: usize, keys: usize, precision: Precision) -> Self {
        let (cache, causal) = ([1, 8, keys, 128], queries > 1);
        let row = Row::new("attention", DType::BF16, &[&[1, 32, queries, 128], &cache, &cache]).with("causal", causal);
        let pairs = (queries * keys) as f64 * if causal { 0.5 } else { 1.0 };
        Row { operations: 4.0 * 32.0 * 128.0 * pairs, ..row }.precisely(precision)
    }

    /// As the table shows it.
    pub(super) fn name(&self) -> String {
        let inputs: Vec<_> = self.inputs.iter().map(|(dtype, shape)| format!("{dtype}{shape:?}")).collect();
        let attributes: Vec<_> = self.attributes.iter().map(|(k, v)| format!(" {k}={v}")).collect();
        format!("{} {}{}", self.operator, inputs.join(" "), attributes.concat())
    }

    /// What another program needs to do the same work.
    pub(super) fn work(&self) -> Value {
        let inputs: Vec<_> = self.inputs.iter().map(|(dtype, shape)| json!([dtype.name(), shape])).collect();
        let attributes: serde_json::Map<_, _> = self.attributes.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
        json!({ "operator": self.operator, "inputs": inputs, "attributes": attributes })
    }

    pub(super) fn input_bytes(&self) -> usize {
        self.inputs.iter().map(|(dtype, shape)| shape.iter().product::<usize>() * dtype.size()).sum()
    }

    /// Whether memory may be the limit, so that inputs must not come from a cache.
    pub(super) fn is_cold(&self) -> bool {
        self.operations == 0.0 || self.inputs.iter().any(|(_, shape)| shape[0] == 1)
    }
}

pub(super) fn rows(properties: &DeviceProperties) -> Vec<Row> {
    if is_gpu(properties) { gpu_rows() } else { cpu_rows() }
}

fn row_operators(dtype: DType, shape: [usize; 2]) -> [Row; 3] {
    let (x, weight) = (&shape[..], &shape[1..]);
    [Row::new("softmax", dtype, &[x]), Row::new("rms_norm", dtype, &[x, weight]), Row::new("layer_norm", dtype, &[x, weight, weight])]
}

fn cpu_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        rows.push(Row::new("add", dtype, &[&[1 << 24], &[1 << 24]]));
        rows.push(Row::new("silu", dtype, &[&[1 << 24]]));
        rows.push(Row::new(CHAIN, dtype, &[&[1 << 24], &[1 << 24]]));
        for shape in [[1024, 1024], [4096, 4096]] {
            rows.extend(row_operators(dtype, shape));
        }
        rows.push(Row::new("reduce_sum", dtype, &[&[4096, 4096]]).with("axes", -1));
        rows.push(Row::product(dtype, [1, 4096, 4096], Precision::Strict));
        rows.push(Row::product(dtype, [1024, 1024, 1024], Precision::Strict));
        rows.push(Row::product(dtype, [1024, 1024, 1024], Precision::Fast));
    }
    rows.extend([Format::Q8_0, Format::Q4_0, Format::Q4K].map(|format| Row::quantized(format, [1, 4096, 4096])));
    rows
}

fn gpu_rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for n in [10_000, 1 << 20, 1 << 28] {
        rows.push(Row::new("add", DType::F32, &[&[n], &[n]]));
        rows.push(Row::new("mul", DType::F32, &[&[n], &[n]]));
        rows.push(Row::new("relu", DType::F32, &[&[n]]));
    }
    for dtype in [DType::F32, DType::BF16] {
        rows.push(Row::new(CHAIN, dtype, &[&[1 << 28], &[1 << 28]]));
        for shape in [[1024, 1024], [4096, 4096], [16_384, 8192]] {
            rows.extend(row_operators(dtype, shape));
        }
        for (m, d) in [(1, 512), (1, 1024), (1, 2048), (128, 512), (128, 1024), (128, 2048)] {
            rows.push(Row::lora(dtype, m, d));
        }
    }
    for [n, k] in [[4096, 4096], [14_336, 4096], [4096, 14_336], [128_256, 4096]] {
        rows.push(Row::product(DType::BF16, [1, n, k], Precision::Strict));
    }
    rows.extend([Format::Q8_0, Format::Q4_0, Format::Q4K].map(|format| Row::quantized(format, [1, 14_336, 4096])));
    for precision in [Precision::Strict, Precision::Fast] {
        rows.extend([1024, 8192, 65_536].map(|keys| Row::attention(1, keys, precision)));
    }
    rows.push(Row::attention(4096, 4096, Precision::Strict));
    rows.extend([1024, 4096, 16_384].map(|tokens| Row::attention(tokens, tokens, Precision::Fast)));
    rows.push(Row::product(DType::F32, [2048; 3], Precision::Strict));
    rows.push(Row::product(DType::BF16, [4096; 3], Precision::Fast));
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use elinvar::{
        DeviceKind,
        kernels::{TensorInfo, conformance, cuda::CudaFeatures, registry::find},
    };

    use super::*;

    /// What is fast may be wrong: each kernel that is timed on a GPU must have a case.
    #[test]
    fn the_conformance_suite_has_every_kernel_that_is_timed() {
        let device = DeviceProperties {
            kind: DeviceKind::Cuda,
            name: "H200".into(),
            compute_units: 132,
            simd_width: 32,
            max_threads_per_threadgroup: 1024,
            threadgroup_memory: 227 << 10,
            max_buffer_bytes: 1 << 36,
            unified_memory: false,
            dtypes: DType::ALL,
            features: CudaFeatures::of(90, true),
        };
        let tried: HashSet<_> =
            conformance::cases().iter().flat_map(|case| case.plan(&device).unwrap().launches).map(|launch| launch.kernel.key.clone()).collect();
        let mut untried = Vec::new();
        for row in gpu_rows().into_iter().filter(|row| row.operator != CHAIN) {
            let operator = find(row.operator).unwrap().operator(row.attributes.iter().map(|(k, v)| (*k, v.as_str()))).unwrap();
            let inputs: Vec<_> = row.inputs.iter().map(|(dtype, shape)| TensorInfo::new(*dtype, shape).ok()).collect();
            let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
            let missing = plan.launches.iter().map(|launch| &launch.kernel.key).filter(|key| !tried.contains(key));
            untried.extend(missing.map(|key| format!("{}: {key}", row.name())));
        }
        assert!(untried.is_empty(), "{}", untried.join("\n"));
    }
}
