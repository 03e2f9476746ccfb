//! Matrix products and what contains them.

use elinvar_core::{Backend, DType, DeviceKind, DeviceProperties, Layout, NullBackend, Shape};
use elinvar_kernels::{
    Argument, Operator, Plan, Precision, TensorInfo,
    cuda::{CudaFeatures, MatrixProduct},
    lora::LoraLinear,
    matmul::{MatMul, MatVec},
    projection::Projection,
    quantized::Format,
    quantized_linear::QuantizedLinear,
};

use super::{f32, info};

fn properties() -> DeviceProperties {
    NullBackend::new().properties().clone()
}

#[test]
fn one_row_is_kept_and_many_are_summed_in_blocks() {
    let of_cores = |compute_units| DeviceProperties { compute_units, threadgroup_memory: 32 << 10, ..properties() };
    let launch_of = |dtype: DType, cores: usize, [m, n, k]: [usize; 3]| {
        let (operator, inputs) = (MatMul { transpose_b: true, ..MatMul::default() }, [[m, k], [n, k]].map(|dims| info(dtype, &dims)));
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &of_cores(cores)).unwrap();
        let [launch] = &plan.launches[..] else { panic!("{} launches", plan.launches.len()) };
        assert_eq!(launch.work.operations, 2 * (m * n * k) as u64);
        (launch.grid.0[0], launch.kernel.key.constants.clone())
    };
    let launch_on = |cores, extents| launch_of(DType::BF16, cores, extents);
    let launch = |extents| launch_on(10, extents);
    let ahead = |visits: u32| vec![("ahead", visits), ("fixed", 1)];
    // A decoded token's widest and narrowest products on an M1, an M4 Max and an M3 Ultra.
    assert_eq!([7, 40, 80].map(|cores| launch_on(cores, [1, 14_336, 4096]).0), [14, 80, 160]);
    assert_eq!([7, 40, 80].map(|cores| launch_on(cores, [1, 1024, 4096])), [(14, ahead(8)), (80, ahead(8)), (128, ahead(4))]);
    // Twice ten threadgroups of eight simdgroups take columns in turn; fewer columns have a simdgroup each.
    assert_eq!([launch([1, 1000, 4096]), launch([1, 150, 4096])], [(20, ahead(8)), (19, ahead(4))]);
    assert_eq!(launch([1, 1000, 18_000]), (250, vec![("rows", 1), ("columns", 1), ("fixed", 1)]));
    // 32 by 32 elements a block of integers; of f32, 16 by 16 a tile, 64 by 64 a block.
    assert_eq!([launch([130, 70, 40]), launch([9, 32, 40])], [(15, vec![]), (1, vec![])]);
    let wide = |extents| launch_of(DType::F32, 10, extents);
    assert_eq!([wide([130, 70, 40]), wide([33, 32, 40])], [(6, vec![("visits", 4)]), (6, vec![("down", 4)])]);
    assert_eq!(wide([600, 31, 40]), (76, vec![("down", 4)]));
    assert_eq!(wide([1, 1000, 9000]), (250, vec![("rows", 1), ("columns", 1), ("fixed", 0)]));
}

fn plan(dtypes: [DType; 3], precision: Precision, library: bool) -> Plan {
    let device = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(90, library), ..properties() };
    let operator = MatMul { transpose_b: true, precision, output: Some(dtypes[2]), ..MatMul::default() };
    let inputs = [info(dtypes[0], &[2, 20, 64]), info(dtypes[1], &[32, 64]), None];
    operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap()
}

#[test]
fn the_library_gets_fast_products_of_operands_it_takes() {
    let by_library = |dtypes, precision, library| plan(dtypes, precision, library).launches.iter().any(|l| l.kernel.native.is_some());
    let (f32, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
    assert!(by_library([bf16, bf16, f32], Precision::Fast, true));
    assert!(!by_library([bf16, bf16, f32], Precision::Fast, false));
    assert!(!by_library([bf16, bf16, f32], Precision::Strict, true));
    assert!(by_library([bf16, f32, f32], Precision::Fast, true));
    assert!(!by_library([f16, f16, bf16], Precision::Fast, true));
    assert!(!by_library([f16, bf16, f32], Precision::Fast, true));
}

/// An adapter's gradients; decoding, whose few rows are read along, has kernels of its own.
#[test]
fn the_library_gets_fast_products_of_a_small_rank() {
    let device = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(90, true), ..properties() };
    let by_library = |[m, n, k]: [usize; 3], transpose_b, precision| {
        let operator = MatMul { transpose_b, precision, ..MatMul::default() };
        let inputs = [info(DType::BF16, &[m, k]), info(DType::BF16, &if transpose_b { [n, k] } else { [k, n] }), None];
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
        plan.launches.iter().any(|launch| launch.kernel.native.is_some())
    };
    assert!(by_library([512, 8, 64], true, Precision::Fast) && by_library([8, 512, 64], false, Precision::Fast));
    assert!(!by_library([512, 8, 64], true, Precision::Strict));
    assert!(by_library([5, 512, 64], true, Precision::Fast) && !by_library([5, 512, 64], true, Precision::Strict));
    assert!(!by_library([4, 512, 64], true, Precision::Fast) && !by_library([1, 512, 64], false, Precision::Fast));
    assert!(!by_library([512, 1, 64], true, Precision::Fast));
}

#[test]
fn a_wider_operand_is_rounded_first() {
    let plan = plan([DType::F32, DType::BF16, DType::F32], Precision::Fast, true);
    assert_eq!(plan.scratch, [2 * 20 * 64 * 2]);
    let keys: Vec<_> = plan.launches.iter().map(|launch| launch.kernel.key.to_string()).collect();
    assert_eq!(keys, ["cast_f32_bf16", "matrix_product_bf16_f32"]);
    let params: MatrixProduct = bytemuck::pod_read_unaligned(&plan.launches[1].params);
    assert_eq!((params.m, params.n, params.k, params.a, params.b), (40, 32, 64, [0, 64, 1], [0, 64, 1]));
    let other = self::plan([DType::F16, DType::F32, DType::F32], Precision::Fast, true);
    assert_eq!(other.launches.iter().map(|launch| launch.kernel.key.to_string()).collect::<Vec<_>>(), ["cast_f32_f16", "matrix_product_f16_f32"]);
    assert_eq!((other.launches[1].arguments[1], other.scratch), (Argument::Scratch(0), vec![32 * 64 * 2]));
}

type Call = (Box<dyn Operator>, Vec<Option<TensorInfo>>);

/// The CPU, Metal's devices, and NVIDIA's GPUs of a kind that has no kernels for it.
#[test]
fn invariant_products_are_strict_where_no_kernel_is_their_own() {
    let cuda = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(80, true), ..properties() };
    let cpu = DeviceProperties { kind: DeviceKind::Cpu, simd_width: 1, ..properties() };
    for (device, m) in [&properties(), &cuda, &cpu].into_iter().flat_map(|device| [1, 2, 20, 600].map(|m| (device, m))) {
        let inputs = [[m, 64], [40, 64], [8, 64], [40, 8]].map(|dims| info(DType::BF16, &dims));
        let x = info(DType::F32, &[m, 64]);
        let layers = [x, None, inputs[1], None, None, None, None, None, None];
        let of = |precision| -> [Call; 3] {
            [
                (Box::new(MatMul { transpose_b: true, precision, ..MatMul::default() }), vec![x, inputs[1], None]),
                (Box::new(LoraLinear { scale: 1.0, precision }), inputs.into_iter().chain([None]).collect()),
                (Box::new(Projection { epsilon: Some(1e-5), gated: false, precision, output: None }), layers.into()),
            ]
        };
        let keys = |(operator, inputs): &Call| {
            let plan = operator.plan(inputs, &operator.infer(inputs).unwrap(), device).unwrap();
            plan.launches.iter().map(|launch| launch.kernel.key.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(Precision::Invariant).each_ref().map(keys), of(Precision::Strict).each_ref().map(keys), "{m} rows on {}", device.name);
    }
}

/// What they take depends on types and weights alone, so that rows have the bits that they have among others.
#[test]
fn invariant_layers_are_chains_for_any_rows_on_hopper() {
    let device = DeviceProperties { kind: DeviceKind::Cuda, compute_units: 132, threadgroup_memory: 227 << 10, ..properties() };
    let device = DeviceProperties { features: CudaFeatures::of(90, true), ..device };
    let keys = |operator: &dyn Operator, inputs: &[Option<TensorInfo>]| {
        let plan = operator.plan(inputs, &operator.infer(inputs).unwrap(), &device).unwrap();
        plan.launches.iter().map(|launch| launch.kernel.key.operator.to_string()).collect::<Vec<_>>().join(" ")
    };
    let linear = MatMul { transpose_b: true, precision: Precision::Invariant, ..MatMul::default() };
    let product = |x: Option<TensorInfo>, k| keys(&linear, &[x, info(DType::BF16, &[40, k]), None]);
    assert_eq!([1, 64, 600].map(|m| product(f32(&[m, 128]), 128)), ["cast chain_few_rows", "cast chain_few_rows", "cast chain_many_rows"]);
    // Some columns of wider rows.
    let strided = |m| Some(TensorInfo { dtype: DType::F32, layout: Layout::strided(Shape::new(&[m, 128]).unwrap(), &[200, 1], 0).unwrap() });
    assert_eq!([2, 600].map(|m| product(strided(m), 128)), ["cast chain_few_rows", "cast chain_many_rows"]);
    assert!([1, 600].map(|m| product(f32(&[m, 72]), 72)).iter().all(|keys| !keys.contains("chain")));
    let layers = |m: usize, k: usize| {
        let weight = info(DType::BF16, &[48, k]);
        let inputs = [f32(&[m, k]), None, weight, weight, None, None, None, None, None];
        keys(&Projection { epsilon: Some(1e-5), gated: true, precision: Precision::Invariant, output: None }, &inputs)
    };
    // Thread blocks that hold all rows normalise them too.
    assert_eq!([[1, 128], [8, 128], [4, 4096]].map(|[m, k]| layers(m, k)), ["chain_few_rows"; 3]);
    assert_eq!([[9, 128], [5, 4096], [1, 8192]].map(|[m, k]| layers(m, k)), ["rms_norm chain_few_rows"; 3]);
    assert_eq!(layers(600, 128), "rms_norm chain_many_rows");
}

/// Fewer rows are faster by integers, rows of no whole pairs of panels are not taken, and weights for more rows are decoded once.
#[test]
fn fast_layers_of_some_rows_decode_their_weights_where_they_multiply_on_hopper() {
    let device = DeviceProperties { kind: DeviceKind::Cuda, compute_units: 132, threadgroup_memory: 227 << 10, ..properties() };
    let device = DeviceProperties { features: CudaFeatures::of(90, true), ..device };
    let keys = |m: usize, k: usize, precision: Precision, x: DType| {
        let operator = QuantizedLinear { precision, gated: true, output: Some(DType::BF16), ..QuantizedLinear::new(Format::Q4_0) };
        let weight = info(DType::U8, &[48, Format::Q4_0.packed_row_bytes(k).unwrap()]);
        let inputs = [info(x, &[m, k]), weight, weight, None, None, None, None, None, None];
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
        plan.launches.iter().map(|launch| launch.kernel.key.operator.to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!([9, 64].map(|m| keys(m, 256, Precision::Fast, DType::BF16)), ["chain_few_rows_Q4_0"; 2]);
    assert_eq!(keys(9, 256, Precision::Fast, DType::F32), "cast chain_few_rows_Q4_0");
    let others = [
        (8, 256, Precision::Fast),
        (9, 192, Precision::Fast),
        (65, 256, Precision::Fast),
        (9, 256, Precision::Strict),
        (9, 256, Precision::Invariant),
    ];
    for (m, k, precision) in others {
        let keys = keys(m, k, precision, DType::BF16);
        assert!(!keys.contains("chain") && keys.contains("quantized_linear"), "{m} {k} {precision:?}: {keys}");
    }
}

#[test]
fn one_row_of_a_small_rank_is_one_launch_on_a_gpu() {
    let launches = |m: usize, r: usize| {
        let inputs = [[m, 64], [40, 64], [r, 64], [40, r]].map(|dims| info(DType::F32, &dims));
        let operator = LoraLinear { scale: 1.0, precision: Precision::Strict };
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &properties()).unwrap();
        plan.launches.iter().map(|launch| launch.grid.0[0]).collect::<Vec<_>>()
    };
    assert_eq!([launches(1, 8), launches(1, 16)], [[5], [5]]);
    assert_eq!([launches(2, 8).len(), launches(1, 17).len()], [2, 2]);
}

#[test]
fn many_rows_of_fast_precision_are_the_library_s_on_cuda() {
    let device = DeviceProperties { kind: DeviceKind::Cuda, features: CudaFeatures::of(90, true), ..properties() };
    let keys = |x: DType, weight: DType, r: usize, precision: Precision| {
        let inputs = [info(x, &[2, 10, 64]), info(weight, &[40, 64]), info(DType::F32, &[r, 64]), info(DType::F16, &[40, r])];
        let operator = LoraLinear { scale: 2.0, precision };
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &device).unwrap();
        plan.launches.iter().map(|launch| launch.kernel.key.to_string()).collect::<Vec<_>>()
    };
    let (f32, bf16) = (DType::F32, DType::BF16);
    assert_eq!(keys(f32, f32, 8, Precision::Fast), ["lora_adapter_f32_f32_f16_f32_rows1", "matrix_product_added_f32_f32"]);
    assert_eq!(keys(f32, bf16, 8, Precision::Fast)[1..], ["cast_f32_bf16", "matrix_product_added_bf16_f32"]);
    assert_eq!(keys(bf16, f32, 8, Precision::Fast)[1..], ["cast_f32_bf16", "matrix_product_added_bf16_bf16"]);
    // Strict, the adapter of 16 bits has a launch of its own, and so has the sum.
    for (count, others) in [(4, keys(f32, f32, 8, Precision::Strict)), (2, keys(f32, f32, 300, Precision::Fast))] {
        assert!(others.len() == count && others.iter().all(|key| !key.contains("product")), "{others:?}");
    }
}

#[test]
fn a_row_that_fits_is_normalised_in_the_launch() {
    let launches = |rows: usize, k: usize| {
        let inputs = [info(DType::F32, &[rows, k]), None, info(DType::BF16, &[4096, k]), None, None, None, None, None, None];
        let operator = Projection { epsilon: Some(1e-5), ..Projection::default() };
        let plan = operator.plan(&inputs, &operator.infer(&inputs).unwrap(), &properties()).unwrap();
        plan.launches.iter().map(|l| l.kernel.key.operator.clone()).collect::<Vec<_>>()
    };
    assert_eq!(launches(1, 4096), ["projection"]);
    assert_eq!(launches(2, 4096), ["rms_norm", "projection"]);
    assert_eq!(launches(1, 14_336), ["rms_norm", "projection"]);
}

fn dims(operator: &impl Operator, inputs: &[Option<TensorInfo>]) -> Vec<usize> {
    operator.infer(inputs).unwrap()[0].shape().to_vec()
}

#[test]
fn shapes_follow_numpy() {
    let (op, f) = (MatMul::default(), DType::F32);
    assert_eq!(dims(&op, &[info(f, &[2, 1, 3, 4]), info(f, &[5, 4, 6]), None]), [2, 5, 3, 6]);
    assert_eq!(dims(&op, &[info(f, &[4]), info(f, &[5, 4, 6]), None]), [5, 6]);
    assert_eq!(dims(&op, &[info(f, &[5, 3, 4]), info(f, &[4]), None]), [5, 3]);
    assert_eq!(dims(&op, &[info(f, &[4]), info(f, &[4]), None]), [0usize; 0]);
    let transposed = MatMul { transpose_a: true, transpose_b: true, output: Some(DType::BF16), ..op };
    assert_eq!(dims(&transposed, &[info(f, &[4, 3]), info(f, &[6, 4]), info(f, &[6])]), [3, 6]);
    assert_eq!(transposed.infer(&[info(f, &[4, 3]), info(f, &[6, 4]), None]).unwrap()[0].dtype, DType::BF16);
    assert_eq!(dims(&MatVec, &[info(DType::BF16, &[2, 5, 4]), info(f, &[3, 1, 4]), None]), [3, 2, 5]);
}

#[test]
fn operands_of_a_product_that_do_not_fit_are_rejected() {
    let (op, f) = (MatMul::default(), DType::F32);
    let rejection = |a, b, bias| op.infer(&[a, b, bias]).unwrap_err().to_string();
    assert!(rejection(info(f, &[2, 3]), info(f, &[4, 5]), None).contains("a has shape [2, 3], b has shape [4, 5]"));
    assert!(rejection(info(f, &[]), info(f, &[4, 5]), None).contains("axis"));
    assert!(rejection(info(f, &[2, 3, 4]), info(f, &[3, 4, 5]), None).contains("broadcast"));
    assert!(rejection(info(f, &[3, 4]), info(f, &[4, 5]), info(f, &[4])).contains("[5]"));
    assert!(rejection(info(DType::I32, &[3, 4]), info(f, &[4, 5]), None).contains("i32"));
    assert!(rejection(None, info(f, &[4, 5]), None).contains("'a' is missing"));
    assert!(MatMul { output: Some(DType::U8), ..op }.infer(&[info(f, &[3, 4]), info(f, &[4, 5]), None]).is_err());
    assert!(MatVec.infer(&[info(f, &[4]), info(f, &[4]), None]).is_err());
    assert!(MatVec.infer(&[info(f, &[3, 4]), info(f, &[5]), None]).is_err());
}

#[test]
fn an_adapter_must_fit() {
    let operator = LoraLinear { scale: 1.0, precision: Precision::Strict };
    let fitting = [f32(&[2, 3, 8]), f32(&[5, 8]), f32(&[4, 8]), f32(&[5, 4]), f32(&[5])];
    assert_eq!(**operator.infer(&fitting).unwrap()[0].shape(), [2, 3, 5]);
    let wrong: [(usize, &[usize], &str); 6] =
        [(0, &[], "x"), (1, &[8], "[n, 8]"), (1, &[5, 7], "[5, 8]"), (2, &[4, 5], "[4, 8]"), (3, &[4, 5], "[5, 4]"), (4, &[8], "[5]")];
    for (index, dims, expected) in wrong {
        let mut inputs = fitting;
        inputs[index] = f32(dims);
        let message = operator.infer(&inputs).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let mut inputs = fitting;
    inputs[3] = info(DType::I8, &[5, 4]);
    assert!(operator.infer(&inputs).unwrap_err().to_string().contains("b is i8"));
}

#[test]
fn a_projection_rejects_misfits_in_a_line() {
    let (x, w) = (info(DType::F32, &[2, 8]), info(DType::BF16, &[6, 8]));
    let rejected = |operator: Projection, change: &dyn Fn(&mut [Option<TensorInfo>; 9]), word: &str| {
        let mut inputs = [x, None, w, None, None, None, None, None, None];
        assert!(Projection::default().infer(&inputs).is_ok());
        change(&mut inputs);
        let message = operator.infer(&inputs).unwrap_err().to_string();
        assert!(message.contains(word) && !message.contains('\n'), "{message}");
    };
    let (plain, gated) = (Projection::default(), Projection { gated: true, ..Projection::default() });
    rejected(plain, &|i| i[0] = info(DType::I32, &[2, 8]), "x is i32");
    rejected(plain, &|i| i[2] = None, "'w0' is missing");
    rejected(plain, &|i| i[2] = info(DType::F32, &[6, 7]), "expected [n, 8]");
    rejected(plain, &|i| i[4] = w, "w2 is given without w1");
    rejected(plain, &|i| i[3] = info(DType::F16, &[6, 8]), "w1 is f16, w0 is bf16: expected one type");
    rejected(plain, &|i| i[5] = info(DType::F32, &[5]), "b0 has shape [5], w0 has shape [6, 8]: expected [6]");
    rejected(plain, &|i| i[1] = info(DType::F32, &[8]), "without epsilon");
    rejected(Projection { epsilon: Some(0.0), ..Projection::default() }, &|i| i[1] = info(DType::F32, &[7]), "norm has shape [7]");
    rejected(gated, &|_| (), "1 weights are given: expected w0 and w1");
    rejected(gated, &|i| i[3] = info(DType::BF16, &[5, 8]), "w0 has shape [6, 8], w1 has shape [5, 8]: expected one shape");
    rejected(plain, &|i| (i[3], i[8]) = (w, info(DType::F32, &[2, 6])), "residual is given beside 2 weights: expected one");
    rejected(
        plain,
        &|i| i[8] = info(DType::F32, &[2, 8]),
        "residual has shape [2, 8], x has shape [2, 8], w0 has shape [6, 8]: expected a residual of [2, 6]",
    );
}
