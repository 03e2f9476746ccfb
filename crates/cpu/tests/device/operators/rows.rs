//! Operators on rows.

use elinvar_core::DType;
use elinvar_kernels::{
    Operator,
    cumsum::CumSum,
    layer_norm::LayerNorm,
    reduce::{ArgReduce, Reduce, Reduction},
    rms_norm::{AddRmsNorm, RmsNorm},
    top_k::TopK,
};

use super::info;

#[test]
fn reductions_infer_shapes_and_reject_types() {
    let info = |dtype, dims: &[usize]| [info(dtype, dims)];
    let reduce = |reduction, axes: &[isize], keepdims| Reduce { reduction, axes: axes.to_vec(), keepdims };
    let x = info(DType::BF16, &[2, 3, 4]);
    let shape = |op: Reduce| op.infer(&x).unwrap()[0].shape().to_vec();
    assert_eq!(shape(reduce(Reduction::Sum, &[0, -1], false)), [3]);
    assert_eq!(shape(reduce(Reduction::Sum, &[], true)), [1, 1, 1]);
    assert!(reduce(Reduction::Sum, &[3], true).infer(&x).is_err());
    for (reduction, dtype) in [(Reduction::Mean, DType::I32), (Reduction::Sum, DType::Bool), (Reduction::LogSumExp, DType::U8)] {
        let message = reduce(reduction, &[], true).infer(&info(dtype, &[2])).unwrap_err().to_string();
        assert!(message.contains(reduction.name()) && message.contains(dtype.name()), "{message}");
    }
    assert_eq!(reduce(Reduction::Max, &[], true).infer(&info(DType::Bool, &[2])).unwrap()[0].dtype, DType::Bool);
}

#[test]
fn empty_axes_and_other_index_types_are_rejected() {
    let info = |dtype, dims: &[usize]| [info(dtype, dims)];
    let op = ArgReduce { largest: true, axis: Some(1), keepdims: false, select_last_index: false, dtype: DType::U32 };
    let output = op.infer(&info(DType::F16, &[2, 3, 4])).unwrap()[0];
    assert_eq!((output.dtype, &**output.shape()), (DType::U32, &[2, 4][..]));
    assert!(op.infer(&info(DType::F16, &[0, 3])).is_ok());
    assert!(op.infer(&info(DType::F16, &[2, 0])).unwrap_err().to_string().contains("x has shape [2, 0]: expected elements along the axis"));
    assert!(op.infer(&info(DType::Bool, &[2, 3])).is_err());
    assert!(ArgReduce { dtype: DType::F32, ..op }.infer(&info(DType::F16, &[2, 3])).unwrap_err().to_string().contains("u32"));
}

#[test]
fn outputs_of_a_layer_norm_follow_its_attributes() {
    let op = LayerNorm { axis: 1, epsilon: 1e-5, statistics: true };
    let (x, weight) = (info(DType::BF16, &[2, 3, 4]), info(DType::F16, &[3, 4]));
    let outputs = op.infer(&[x, weight, weight]).unwrap();
    assert_eq!((outputs.len(), &**outputs[1].shape(), outputs[2].dtype), (3, &[2, 1, 1][..], DType::F32));
    assert_eq!(LayerNorm { statistics: false, ..op }.infer(&[x, None, None]).unwrap().len(), 1);
    assert!(op.infer(&[x, weight, info(DType::F32, &[3, 4])]).unwrap_err().to_string().contains("one type"));
    assert!(op.infer(&[x, weight, info(DType::F16, &[4])]).unwrap_err().to_string().contains("bias"));
    assert!(op.infer(&[info(DType::I8, &[3, 4]), None, None]).unwrap_err().to_string().contains("i8"));
    assert!(LayerNorm { axis: -4, ..op }.infer(&[x, None, None]).is_err());
}

#[test]
fn weights_of_an_rms_norm_must_fit() {
    let (x, op) = (info(DType::F32, &[2, 3, 4]), RmsNorm { axis: 1, ..RmsNorm::default() });
    assert!(op.infer(&[x, info(DType::BF16, &[3, 4])]).is_ok());
    assert!(op.infer(&[x, None]).is_ok());
    for weight in [info(DType::F32, &[4]), info(DType::I32, &[3, 4])] {
        assert!(op.infer(&[x, weight]).unwrap_err().to_string().contains("weight"));
    }
    let short = op.infer(&[x, info(DType::F32, &[4])]).unwrap_err().to_string();
    assert_eq!(short, "rms_norm: weight has shape [4], x has shape [2, 3, 4]: expected [3, 4]");
    let far = RmsNorm { axis: 3, epsilon: 0.0, output: None }.infer(&[x, None]).unwrap_err().to_string();
    assert_eq!(far, "rms_norm: x has shape [2, 3, 4], the axis is 3: expected an axis from -3 to 2");
    assert!(op.infer(&[info(DType::I32, &[3, 4]), None]).unwrap_err().to_string().contains("i32"));
    let add = AddRmsNorm { axis: -1, epsilon: 0.0 };
    assert!(
        add.infer(&[x, info(DType::F32, &[2, 12]), None])
            .unwrap_err()
            .to_string()
            .contains("a has shape [2, 3, 4], b has shape [2, 12]: expected one shape")
    );
}

#[test]
fn cumsum_rejects_bools_scalars_and_far_axes() {
    let info = |dtype, dims: &[usize]| [info(dtype, dims)];
    let op = CumSum { axis: 1, exclusive: false, reverse: false };
    assert!(op.infer(&info(DType::I64, &[2, 3])).is_ok());
    assert!(op.infer(&info(DType::F32, &[3])).is_err());
    assert!(op.infer(&info(DType::F32, &[])).is_err());
    assert!(op.infer(&info(DType::Bool, &[2, 3])).unwrap_err().to_string().contains("bool"));
}

#[test]
fn top_k_of_more_than_there_are_is_rejected() {
    let x = [info(DType::F32, &[2, 5, 3])];
    let op = TopK { k: 5, axis: 1, largest: true, sorted: true };
    let outputs = op.infer(&x).unwrap();
    assert_eq!((&**outputs[0].shape(), outputs[1].dtype), (&[2, 5, 3][..], DType::I64));
    assert!(TopK { k: 6, ..op }.infer(&x).unwrap_err().to_string().contains("k is 6"));
    assert!(TopK { axis: 3, ..op }.infer(&x).is_err());
    assert!(op.infer(&[info(DType::Bool, &[2, 5, 3])]).is_err());
}
