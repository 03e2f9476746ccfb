//! Attention: what it takes, and its launch plans, pure functions of shapes, data types and the device.

use elinvar_core::{DType, DeviceKind, DeviceProperties};
use elinvar_kernels::{
    Launch, Operator, Plan, Precision, TensorInfo,
    attention::{Attention, Scoring, decode::DecodeAttention, gradient::AttentionGradient, paged::decode::PagedDecodeAttention},
    attention_scores::AttentionScores,
    cuda::CudaFeatures,
    kv_append::KvAppend,
    weighted_sum::WeightedSum,
};

use super::{f32, info};

fn properties() -> DeviceProperties {
    DeviceProperties {
        kind: DeviceKind::Cpu,
        name: "test".into(),
        compute_units: 1,
        simd_width: 1,
        max_threads_per_threadgroup: 1024,
        threadgroup_memory: 32 << 10,
        max_buffer_bytes: usize::MAX,
        unified_memory: true,
        dtypes: DType::ALL,
        features: None,
    }
}

/// Inputs that fit: `q`, `k`, `v`, mask, positions, lengths.
fn inputs() -> [Option<TensorInfo>; 6] {
    let mask = info(DType::Bool, &[4, 1, 9]);
    [f32(&[2, 4, 3, 8]), info(DType::BF16, &[2, 2, 9, 8]), info(DType::BF16, &[2, 2, 9, 5]), mask, info(DType::I32, &[2, 3]), info(DType::I32, &[2])]
}

#[test]
fn outputs_have_the_queries_type_and_the_values_width() {
    let shape = |tokens_first| *Attention { tokens_first, ..Attention::default() }.infer(&inputs()).unwrap()[0].shape();
    assert_eq!((&shape(false)[..], &shape(true)[..]), (&[2, 4, 3, 5][..], &[2, 3, 4, 5][..]));
    let [q, k, _, rest @ ..] = inputs();
    let scores = AttentionScores::default().infer(&[&[q, k], &rest[..]].concat()).unwrap();
    assert_eq!((scores[0].dtype, &scores[0].shape()[..]), (DType::F32, &[2, 4, 3, 9][..]));
    let sums = WeightedSum.infer(&[scores.first().copied(), inputs()[2]]).unwrap();
    assert_eq!(&sums[0].shape()[..], [2, 4, 3, 5]);
}

#[test]
fn what_does_not_fit_is_rejected_in_one_line() {
    let wrong = [
        (0, f32(&[2, 4, 3, 7]), "Hq a multiple of Hkv"),
        (0, f32(&[2, 3, 3, 8]), "Hq a multiple of Hkv"),
        (0, f32(&[4, 3, 8]), "q has shape [4, 3, 8]: expected [batch, heads, tokens, elements]"),
        (0, info(DType::F16, &[2, 4, 3, 8]), "q is f16, k is bf16: expected one type, or an f32 q"),
        (0, info(DType::I32, &[2, 4, 3, 8]), "q is i32"),
        (1, None, "'k' is missing"),
        (2, info(DType::BF16, &[2, 2, 8, 5]), "v has shape [2, 2, 8, 5]"),
        (2, f32(&[2, 2, 9, 5]), "v is f32, k is bf16: expected one type"),
        (3, info(DType::I32, &[3, 9]), "mask is i32"),
        (3, info(DType::Bool, &[3, 8]), "mask has shape [3, 8]: expected a shape that broadcasts to [2, 4, 3, 9]"),
        (4, info(DType::I32, &[4]), "positions has shape [4], q has shape [2, 4, 3, 8]: expected [3] or [2, 3]"),
        (4, info(DType::I64, &[3]), "positions is i64"),
        (5, info(DType::I32, &[3]), "lengths has shape [3], q has shape [2, 4, 3, 8]: expected [2]"),
    ];
    for (index, input, expected) in wrong {
        let mut inputs = inputs();
        inputs[index] = input;
        let error = Attention::default().infer(&inputs).unwrap_err();
        assert!(error.is_invalid_argument() && error.to_string().contains(expected) && !error.to_string().contains('\n'), "{error}");
    }
    let offset = Attention { scoring: Scoring { offset: 1, ..Scoring::default() }, ..Attention::default() };
    assert!(offset.infer(&inputs()).unwrap_err().to_string().contains("expected one of them"));
    let softcap = Attention { scoring: Scoring { softcap: f32::NAN, ..Scoring::default() }, ..Attention::default() };
    assert!(softcap.infer(&inputs()).unwrap_err().to_string().contains("softcap is NaN"));
    let mut transposed = inputs();
    transposed[1] = transposed[1].map(|k| TensorInfo { layout: k.layout.slice(3, 7, 8, -1).unwrap(), ..k });
    assert!(Attention::default().infer(&transposed).unwrap_err().to_string().contains("the last axis of k has stride -1"));
}

#[test]
fn appended_rows_must_fit_the_cache() {
    let cache = info(DType::BF16, &[2, 8, 5]);
    let reject = |inputs: [Option<TensorInfo>; 3], expected: &str| {
        let error = KvAppend.infer(&inputs).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    reject([cache, f32(&[3, 2, 4]), info(DType::I32, &[3])], "cache has shape [2, 8, 5], rows has shape [3, 2, 4]");
    reject([cache, f32(&[1, 3, 2, 5]), info(DType::I32, &[3])], "both with or both without B");
    reject([cache, f32(&[3, 2, 5]), info(DType::I32, &[2])], "positions has shape [2], rows has shape [3, 2, 5]: expected [3] or [B, 3]");
    reject([cache, f32(&[3, 2, 5]), info(DType::I64, &[3])], "positions is i64");
    reject([cache, info(DType::F16, &[3, 2, 5]), info(DType::I32, &[3])], "rows is f16, cache is bf16: expected one type, or f32 rows");
    assert!(KvAppend.infer(&[cache, f32(&[3, 2, 5]), info(DType::I32, &[3])]).unwrap().is_empty());
}

#[test]
fn plans_are_pure_and_kernels_differ_by_their_mask() {
    let key = |mask: Option<TensorInfo>| {
        let mut inputs = inputs();
        inputs[3] = mask;
        let operator = Attention::default();
        let plan = |inputs: &[Option<TensorInfo>]| operator.plan(inputs, &operator.infer(inputs).unwrap(), &properties()).unwrap();
        let (first, second) = (plan(&inputs), plan(&inputs));
        assert_eq!((&first.launches[0].params, &first.launches[0].kernel.key), (&second.launches[0].params, &second.launches[0].kernel.key));
        first.launches[0].kernel.key.to_string()
    };
    assert_eq!(
        [key(None), key(info(DType::Bool, &[1])), key(f32(&[9]))],
        ["attention_f32_bf16", "attention_f32_bf16_bool", "attention_f32_bf16_f32"]
    );
}

#[test]
fn a_gpu_splits_long_contexts_of_few_queries() {
    let gpu = DeviceProperties { simd_width: 32, ..properties() };
    let plan = |queries: usize, keys: usize| {
        let inputs = [f32(&[1, 8, queries, 64]), f32(&[1, 2, keys, 64]), f32(&[1, 2, keys, 64]), None, None, None];
        Attention::default().plan(&inputs, &Attention::default().infer(&inputs).unwrap(), &gpu).unwrap()
    };
    let grids = |plan: &Plan| plan.launches.iter().map(|l| (l.kernel.key.to_string(), l.grid.0[0])).collect::<Vec<_>>();
    let constants = "f32_f32_bool_rows4_lanes8_columns2_chunks1";
    assert_eq!(grids(&plan(1, 1000)), [(format!("attention_split_{constants}_cluster0"), 2 * 4), ("attention_combine_f32".to_owned(), 16)]);
    assert_eq!(grids(&plan(1, 256)), [(format!("attention_{constants}"), 2)]);
    assert_eq!(plan(1, 1000).scratch, [4 * 8 * 4 * 64, 4 * 8 * 4 * 2]);
    assert_eq!(plan(100, 1000).launches.len(), 1);
    assert!(plan(0, 1000).launches.is_empty());
    assert!(plan(100, 1000).launches.iter().all(|l| l.threadgroup_memory <= gpu.threadgroup_memory));
}

#[test]
fn fast_precision_takes_tensor_cores_where_they_serve() {
    let hopper = DeviceProperties {
        kind: DeviceKind::Cuda,
        compute_units: 132,
        simd_width: 32,
        threadgroup_memory: 227 << 10,
        features: CudaFeatures::of(90, true),
        ..properties()
    };
    let fast = Attention { precision: Precision::Fast, ..Attention::default() };
    let plan = |operator: Attention, device: &DeviceProperties, q: DType, kv: DType, queries: usize, width: usize, mask: bool| {
        let of = |dtype, heads: usize, tokens: usize| info(dtype, &[1, heads, tokens, width]);
        let mask = info(DType::Bool, &[1]).filter(|_| mask);
        let inputs = [of(q, 8, queries), of(kv, 2, 500), of(kv, 2, 500), mask, None, None];
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), device).unwrap();
        let first = &plan.launches[0];
        (first.kernel.key.to_string(), first.grid.0[0], first.threadgroup.0[0], first.threadgroup_memory, first.kernel.native.is_some())
    };
    let [f32, f16, bf16] = [DType::F32, DType::F16, DType::BF16];
    let expected = ("attention_prefill_f32_bf16_f32_width128".to_owned(), 16, 384, 1024 + 7 * (32 << 10), true);
    assert_eq!(plan(fast, &hopper, f32, bf16, 200, 128, false), expected);
    let expected = ("attention_prefill_f16_f16_f16_width64".to_owned(), 132, 384, 1024 + 7 * (16 << 10), true);
    assert_eq!(plan(fast, &hopper, f16, f16, 20_000, 64, false), expected);
    let softcap = Attention { scoring: Scoring { softcap: 1.0, ..Scoring::default() }, ..fast };
    let inverted = Attention { scoring: Scoring { scale: Some(-1.0), ..Scoring::default() }, ..fast };
    let [ampere, blackwell, unknown] =
        [CudaFeatures::of(80, true), CudaFeatures::of(100, true), None].map(|features| DeviceProperties { features, ..hopper.clone() });
    let simulated = DeviceProperties { kind: DeviceKind::MetalSim, features: None, ..hopper.clone() };
    let other = [
        plan(Attention::default(), &hopper, bf16, bf16, 200, 128, false),
        plan(fast, &hopper, f32, f32, 200, 128, false),
        plan(fast, &hopper, bf16, bf16, 63, 128, false),
        plan(fast, &hopper, bf16, bf16, 200, 80, false),
        plan(fast, &hopper, bf16, bf16, 200, 128, true),
        plan(softcap, &hopper, bf16, bf16, 200, 128, false),
        plan(inverted, &hopper, bf16, bf16, 200, 128, false),
        plan(fast, &ampere, bf16, bf16, 200, 128, false),
        plan(fast, &blackwell, bf16, bf16, 200, 128, false),
        plan(fast, &unknown, bf16, bf16, 200, 128, false),
        plan(fast, &simulated, bf16, bf16, 200, 128, false),
    ];
    // Packed rows are decoded where there are many queries.
    let packed = |device: &DeviceProperties, queries: usize| {
        let cache = info(DType::U8, &[1, 2, 500, 144]);
        let inputs = [info(f32, &[1, 8, queries, 128]), cache, cache, None, None, None];
        let plan = fast.plan(&inputs, &fast.infer(&inputs).unwrap(), device).unwrap();
        plan.launches.iter().map(|launch| launch.kernel.key.operator.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(packed(&hopper, 200), ["dequantize_Q8_0", "dequantize_Q8_0", "attention_prefill"]);
    assert_eq!(packed(&simulated, 200), ["dequantize_Q8_0", "dequantize_Q8_0", "attention_tiled"]);
    assert_eq!(packed(&ampere, 1), ["attention_split", "attention_combine"]);
    assert_eq!([packed(&hopper, 1), packed(&ampere, 200)], [["attention_split"], ["attention"]]);
    // Those whose keys are split have kernels of their own.
    assert!(other.iter().all(|(key, .., cuda)| !key.contains("prefill") && *cuda == key.starts_with("attention_split_fast")), "{other:?}");
    assert_eq!(other.iter().filter(|(.., cuda)| *cuda).count(), 1, "{other:?}");
}

#[test]
fn gradients_of_fast_precision_take_tensor_cores_where_they_serve() {
    let device = |capability: u32| DeviceProperties {
        kind: DeviceKind::Cuda,
        compute_units: 132,
        simd_width: 32,
        threadgroup_memory: 227 << 10,
        features: CudaFeatures::of(capability, true),
        ..properties()
    };
    let gradient = AttentionGradient { precision: Precision::Fast, ..AttentionGradient::default() };
    let plan = |capability: u32, dtype: DType, queries: usize, width: usize| {
        let [q, k] = [info(dtype, &[1, 32, queries, width]), info(dtype, &[1, 8, 500, width])];
        let inputs = [q, k, k, None, None, None, q, q];
        let plan = gradient.plan(&inputs, &gradient.infer(&inputs).unwrap(), &device(capability)).unwrap();
        plan.launches.iter().map(|launch| (launch.kernel.key.to_string(), launch.grid.0[0])).collect::<Vec<_>>()
    };
    let named = |kernels: &[(&str, u32)]| kernels.iter().map(|&(name, groups)| (name.to_owned(), groups)).collect::<Vec<_>>();
    let hopper = [("attention_gradient_queries_bf16_width128", 132), ("attention_gradient_keys_bf16_width128", 4 * 8)];
    assert_eq!(plan(90, DType::BF16, 1000, 128), named(&hopper));
    let ampere = named(&[("attention_backward_queries_bf16_width128", 16 * 32), ("attention_backward_keys_bf16_width128", 8 * 8)]);
    assert_eq!([plan(80, DType::BF16, 1000, 128), plan(100, DType::BF16, 1000, 128)], [ampere.clone(), ampere]);
    // Too few queries for a tile of 128, and types and widths that no instruction or kernel has.
    assert!(plan(90, DType::BF16, 63, 128)[0].0.starts_with("attention_backward"));
    assert!([plan(90, DType::F32, 1000, 128), plan(90, DType::BF16, 1000, 80)].iter().all(|plan| plan[0].0.contains("columns")));
}

#[test]
fn fast_precision_takes_simdgroup_matrices_on_metal() {
    let apple = DeviceProperties { kind: DeviceKind::Metal, simd_width: 32, ..properties() };
    let fast = Attention { precision: Precision::Fast, ..Attention::default() };
    let plan =
        |operator: Attention, device: &DeviceProperties, [q, kv]: [DType; 2], [queries, keys]: [usize; 2], [width, value_width]: [usize; 2]| {
            let of = |dtype, heads: usize, tokens: usize, width| info(dtype, &[1, heads, tokens, width]);
            let inputs = [of(q, 32, queries, width), of(kv, 8, keys, width), of(kv, 8, keys, value_width), info(DType::Bool, &[1]), None, None];
            let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), device).unwrap();
            let first = &plan.launches[0];
            (first.kernel.key.to_string(), first.grid.0[0], first.threadgroup.0[0], first.threadgroup_memory)
        };
    let [f32, f16, bf16] = [DType::F32, DType::F16, DType::BF16];
    let (long, wide) = ([500, 2000], [128; 2]);
    // Strips, and 32 rows of keys or values: of 128 elements, and of 96 in f32.
    let key = |types: &str, widths: &str| format!("attention_tiled_{types}_bool_{widths}");
    let expected = (key("f32_bf16", "width128_value_width128"), 8 * 63, 128, 32 * 144 + 32 * (256 + 16));
    assert_eq!(plan(fast, &apple, [f32, bf16], long, wide), expected);
    let expected = (key("f32_f32", "width72_value_width96"), 8 * 2, 128, 32 * 144 + 32 * (384 + 16));
    assert_eq!(plan(fast, &apple, [f32; 2], [9, 256], [67, 96]), expected);
    let simulated = DeviceProperties { kind: DeviceKind::MetalSim, ..apple.clone() };
    assert_eq!(plan(fast, &simulated, [f16; 2], long, wide).0, key("f16_f16", "width128_value_width128"));
    let small = DeviceProperties { threadgroup_memory: 20_000, ..apple.clone() };
    let cuda = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(80, true), ..apple.clone() };
    let other = [
        plan(Attention::default(), &apple, [bf16; 2], long, wide),
        plan(fast, &cuda, [bf16; 2], long, wide),
        plan(fast, &small, [f32; 2], long, wide),
        plan(fast, &apple, [bf16; 2], long, [128, 136]),
        // Half of a tile, and keys that are split.
        plan(fast, &apple, [bf16; 2], [3, 256], wide),
        plan(fast, &apple, [bf16; 2], [16, 257], wide),
    ];
    assert!(other.iter().all(|(key, ..)| !key.contains("tiled")), "{other:?}");
}

#[test]
fn a_token_is_appended_and_attends_in_two_launches_or_one() {
    let inputs = |tokens: usize, width: usize| {
        let (cache, row) = (info(DType::F16, &[2, 600, width]), f32(&[tokens, 2, width]));
        vec![cache, row, info(DType::I32, &[tokens]), f32(&[width / 2]), cache, row, f32(&[tokens, 8, width])]
    };
    let operator = DecodeAttention::default();
    let gpu = DeviceProperties { simd_width: 32, ..properties() };
    let launches = |device: &DeviceProperties, width: usize| {
        let plan = operator.plan(&inputs(1, width), &operator.infer(&inputs(1, width)).unwrap(), device).unwrap();
        plan.launches.iter().map(|l| l.kernel.key.operator.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(launches(&gpu, 64), ["attention_decode", "attention_combine"]);
    // One block of keys leaves nothing to be combined.
    let mut few = inputs(1, 64);
    (few[0], few[4]) = (info(DType::F16, &[2, 256, 64]), info(DType::F16, &[2, 256, 64]));
    let plan_of_few = operator.plan(&few, &operator.infer(&few).unwrap(), &gpu).unwrap();
    assert_eq!(plan_of_few.launches.iter().map(|l| &*l.kernel.key.operator).collect::<Vec<_>>(), ["attention_decode"]);
    assert!(plan_of_few.scratch.is_empty());
    assert_eq!(launches(&gpu, 300), ["rope_pairs", "kv_append", "kv_append", "rope_pairs", "attention_split", "attention_combine"]);
    assert_eq!(launches(&properties(), 64), ["rope_pairs", "kv_append", "kv_append", "rope_pairs", "attention"]);
    let fast = DecodeAttention { precision: Precision::Fast, ..operator };
    let plan = |device: &DeviceProperties| fast.plan(&inputs(1, 64), &fast.infer(&inputs(1, 64)).unwrap(), device).unwrap();
    let ampere = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(80, true), compute_units: 10, ..gpu.clone() };
    let on_tensor_cores = plan(&ampere).launches.iter().map(|l| (l.kernel.key.to_string(), l.grid.0)).collect::<Vec<_>>();
    // There is room for 10 parts of each key head; of 7, too, no warp takes more than a step.
    let expected = [("attention_decode_fast_f32_f16_width64", [7, 1, 2]), ("attention_combine_fast_f32_f16_width64", [2, 8, 1])];
    assert_eq!(on_tensor_cores, expected.map(|(key, grid)| (key.to_owned(), grid)));
    // A cluster takes few keys.
    let hopper = DeviceProperties { features: CudaFeatures::of(90, true), ..ampere.clone() };
    let in_cluster = plan(&hopper);
    assert_eq!(
        in_cluster.launches.iter().map(|l| (l.kernel.key.to_string(), l.grid.0)).collect::<Vec<_>>(),
        [("attention_decode_fast_f32_f16_width64_cluster8".to_owned(), [8, 1, 2])]
    );
    assert!(in_cluster.scratch.is_empty());
    let of_four = fast.plan(&few, &fast.infer(&few).unwrap(), &hopper).unwrap();
    assert_eq!(
        (&*of_four.launches[0].kernel.key.to_string(), of_four.launches[0].grid.0),
        ("attention_decode_fast_f32_f16_width64_cluster4", [4, 1, 2])
    );
    assert_eq!(plan(&gpu).launches[0].kernel.key.operator, "attention_decode");
    // So does one in strict precision, of a threadgroup for each block of keys, as long as they are at most eight and all run at once.
    let strict = |keys: usize, device: &DeviceProperties| {
        let mut inputs = inputs(1, 64);
        (inputs[0], inputs[4]) = (info(DType::F16, &[2, keys, 64]), info(DType::F16, &[2, keys, 64]));
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), device).unwrap();
        let launch = |l: &Launch| (l.kernel.key.operator.to_string(), l.grid.0[0], l.kernel.metal.as_ref().unwrap().form().unwrap().cluster);
        plan.launches.iter().map(launch).collect::<Vec<_>>()
    };
    let large = DeviceProperties { compute_units: 132, ..hopper.clone() };
    assert_eq!(strict(600, &hopper), [("attention_decode".to_owned(), 2 * 3, 3)]);
    assert_eq!(strict(2048, &large), [("attention_decode".to_owned(), 8 * 8, 8)]);
    let two = |threadgroups: u32| [("attention_decode".to_owned(), threadgroups, 1), ("attention_combine".to_owned(), 8 * 2, 1)];
    assert_eq!([strict(2048, &hopper), strict(2049, &large)], [two(2 * 8), two(8 * 9)]);
    assert_eq!([strict(600, &gpu), strict(600, &ampere)], [two(2 * 3), two(2 * 3)]);
    let message = operator.infer(&inputs(2, 64)).unwrap_err().to_string();
    assert!(message.contains("one token of one sequence") && !message.contains('\n'), "{message}");
}

#[test]
fn tokens_of_texts_are_appended_and_attend_in_two_launches_or_one() {
    let gpu = DeviceProperties { simd_width: 32, ..properties() };
    let launches = |texts: usize, pages: usize, device: &DeviceProperties| {
        let (cache, row, one) = (info(DType::F16, &[2, 4096, 64]), f32(&[texts, 2, 64]), info(DType::I32, &[texts]));
        let inputs = vec![cache, row, one, f32(&[32]), cache, row, f32(&[texts, 8, 64]), one, info(DType::I32, &[texts, pages])];
        let operator = PagedDecodeAttention::default();
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), device).unwrap();
        plan.launches.iter().map(|l| l.kernel.key.operator.to_string()).collect::<Vec<_>>()
    };
    // Keys of one block, and of several for few texts; many texts take their blocks one after the other.
    assert_eq!([launches(3, 8, &gpu), launches(100, 8, &gpu)], [["attention_paged_decode"]; 2]);
    assert_eq!(launches(3, 9, &gpu), ["attention_paged_decode", "attention_combine"]);
    let apart = |attention: &'static [&'static str]| [&["rope_pairs", "kv_append", "kv_append", "rope_pairs"], attention].concat();
    assert_eq!(launches(100, 9, &gpu), apart(&["attention_paged"]));
    let cuda = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(90, true), ..gpu.clone() };
    assert_eq!(launches(3, 9, &cuda), apart(&["attention_paged_split", "attention_combine"]));
}

#[test]
fn tiles_have_fewer_rows_where_units_would_be_idle() {
    let inputs = [info(DType::BF16, &[1, 32, 1, 64]), info(DType::BF16, &[1, 8, 1024, 64]), info(DType::BF16, &[1, 8, 1024, 64]), None, None, None];
    let key = |compute_units: usize| {
        let device = DeviceProperties { simd_width: 32, compute_units, ..properties() };
        let operator = Attention::default();
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
        (plan.launches[0].kernel.key.to_string(), plan.launches[0].grid.0[0])
    };
    assert_eq!(key(16), ("attention_split_bf16_bf16_bool_rows4_lanes8_columns2_chunks1_cluster0".to_owned(), 32));
    assert_eq!(key(132), ("attention_split_bf16_bf16_bool_rows1_lanes8_columns2_chunks1_cluster0".to_owned(), 128));
}

/// One query or many, alone or among others: whatever shares out the work, no other kernels attend.
#[test]
fn invariant_attention_is_in_blocks_for_any_queries_on_hopper() {
    let device = DeviceProperties {
        kind: DeviceKind::Cuda,
        simd_width: 32,
        max_threads_per_threadgroup: 1024,
        compute_units: 132,
        threadgroup_memory: 227 << 10,
        ..properties()
    };
    let device = DeviceProperties { features: CudaFeatures::of(90, true), ..device };
    let keys = |batch: usize, queries: usize, cache: DType, softcap: f32| {
        let cached = info(cache, &[batch, 8, 1024, 128]);
        let inputs = [info(DType::F32, &[batch, 32, queries, 128]), cached, cached, None, None, None];
        let operator = Attention { precision: Precision::Invariant, scoring: Scoring { softcap, ..Scoring::default() }, ..Attention::default() };
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
        plan.launches.iter().map(|launch| launch.kernel.key.operator.to_string()).collect::<Vec<_>>().join(" ")
    };
    let split = "attention_blocks attention_blocks_combine";
    assert_eq!([(1, 1), (16, 1), (64, 1), (1, 64)].map(|(batch, queries)| keys(batch, queries, DType::BF16, 0.0)), [split; 4]);
    assert_eq!([(1, 512), (1, 4096)].map(|(batch, queries)| keys(batch, queries, DType::F16, 0.0)), ["attention_blocks"; 2]);
    let strict = [keys(1, 1, DType::F32, 0.0), keys(1, 4096, DType::BF16, 30.0)];
    assert!(strict.iter().all(|keys| !keys.contains("blocks")), "{strict:?}");
    // A token of one sequence goes into the caches in the same launch, unless there are many keys.
    let token = |keys: usize, output: Option<DType>| {
        let (cache, rows) = (info(DType::BF16, &[8, keys, 128]), |heads| f32(&[1, heads, 128]));
        let inputs = [cache, rows(8), info(DType::I32, &[1]), f32(&[64]), cache, rows(8), rows(32)];
        let operator = DecodeAttention { precision: Precision::Invariant, output, ..DecodeAttention::default() };
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
        let launches: Vec<_> = plan.launches.iter().map(|launch| launch.kernel.key.operator.to_string()).collect();
        (operator.gains(&inputs, &device), launches.join(" "), plan.launches[0].grid.0)
    };
    for (keys, output, cluster) in [(1, None, 4), (4096, None, 8), (1024, Some(DType::BF16), 8)] {
        assert_eq!(token(keys, output), (true, "attention_decode_blocks".to_owned(), [cluster, 8, 1]));
    }
    let (gains, launches, _) = token(4097, None);
    assert!(!gains && launches.ends_with(split), "{launches}");
}
