use super::*;
use crate::cuda::gpu;

#[test]
fn many_rows_are_panels_where_they_fit() {
    let kernel = |[queries, width]: [usize; 2], kv: DType, memory: usize| {
        let [q, k] =
            [(32, queries, DType::F32), (8, 512, kv)].map(|(heads, tokens, dtype)| TensorInfo::new(dtype, &[1, heads, tokens, width]).unwrap());
        let inputs = [Some(q), Some(k), Some(k), None, None, None];
        let operator = Attention::default();
        let device = DeviceProperties { threadgroup_memory: memory << 10, ..gpu(80) };
        let plan = operator.plan(&inputs, &operator.outputs(&inputs).unwrap(), &device).unwrap();
        assert!(plan.launches.iter().all(|launch| launch.threadgroup_memory <= device.threadgroup_memory));
        plan.launches[0].kernel.key.to_string()
    };
    // Consumer cards have 99 KiB, those of data centres 163 or 227, Apple's GPUs 32.
    for (extents, kv, memory, is_panel) in [
        ([512, 128], DType::F16, 99, true),
        ([512, 128], DType::F32, 99, false),
        ([512, 128], DType::F32, 163, true),
        ([512, 256], DType::F16, 163, true),
        ([512, 128], DType::F16, 32, false),
        ([512, 16], DType::F16, 227, false),
        // Eight rows of a head are no panel; 32 panels keep enough of 132 units busy, 16 do not.
        ([2, 128], DType::F16, 227, false),
        ([32, 128], DType::F16, 227, true),
        ([16, 128], DType::F16, 227, false),
    ] {
        let name = kernel(extents, kv, memory);
        assert_eq!(name.contains("_rows32_"), is_panel, "{name}: {extents:?} {kv}, {memory} KiB");
    }
}

#[test]
fn operations_count_the_keys_that_the_last_queries_attend() {
    let count = |queries: u64, keys: u64, left: i64, right: i64| {
        let score = ScoreParams { queries, keys, left, right, ..bytemuck::Zeroable::zeroed() };
        let offset = keys as i64 - queries as i64;
        let plain: usize = (0..queries as usize).map(|t| ScoreParams { offset, ..score }.attended(0, t, None, None).len()).sum();
        assert_eq!(score.attended_at_the_end(), plain as u64, "{queries} queries, {keys} keys, {left}, {right}");
        plain
    };
    assert_eq!([count(4, 4, -1, 0), count(4, 4, -1, -1), count(1, 100, -1, 0), count(1, 100, 9, 0)], [10, 16, 100, 10]);
    for (queries, keys) in [(0, 5), (5, 5), (5, 9), (9, 5), (7, 64)] {
        for (left, right) in [(-1, -1), (-1, 0), (3, 0), (3, 2), (0, -1), (100, 100)] {
            count(queries, keys, left, right);
        }
    }
}
