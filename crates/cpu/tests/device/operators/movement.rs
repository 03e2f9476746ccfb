//! What moves elements.

use elinvar_core::DType;
use elinvar_kernels::{
    Operator, TensorInfo,
    copy::{Concat, Pad, Split},
    gather::{Gather, GatherElements, GatherNd},
    scatter::{Reduction, ScatterElements, ScatterNd},
};

use super::{f32, info};

#[test]
fn concat_rejects_what_does_not_fit() {
    let shape = |axis, inputs: &[Option<TensorInfo>]| Concat { axis }.infer(inputs).map(|y| y[0].shape().to_vec());
    assert_eq!(shape(-1, &[f32(&[2, 3]), f32(&[2, 0]), f32(&[2, 4])]).unwrap(), [2, 7]);
    assert!(shape(0, &[]).is_err() && shape(2, &[f32(&[2, 3])]).is_err());
    assert!(
        shape(0, &[f32(&[2, 3]), f32(&[2, 4])])
            .unwrap_err()
            .to_string()
            .contains("x1 has shape [2, 4], x0 has shape [2, 3]: expected one shape but along axis 0")
    );
    assert!(shape(0, &[f32(&[2]), Some(TensorInfo::new(DType::I8, &[2]).unwrap())]).is_err());
}

#[test]
fn splits_are_even_from_the_front_or_add_up() {
    let split = |sizes: Option<Vec<usize>>, parts| {
        let found = Split { axis: 0, sizes, parts }.infer(&[f32(&[7])]);
        found.map(|y| y.iter().map(|t| t.elements()).collect::<Vec<_>>())
    };
    assert_eq!(split(None, Some(4)).unwrap(), [2, 2, 2, 1]);
    assert_eq!(split(Some(vec![0, 5, 2]), None).unwrap(), [0, 5, 2]);
    assert!(split(Some(vec![5, 3]), None).is_err() && split(None, None).is_err());
    assert!(split(None, Some(0)).is_err() && split(None, Some(8)).is_err());
}

#[test]
fn borders_must_fit() {
    let x = info(DType::U8, &[2, 3]);
    let pad = |before: &[isize], after: &[isize], value: f64| {
        Pad { before: before.into(), after: after.into(), value: value.into() }.infer(&[x]).map(|y| y[0].shape().to_vec())
    };
    assert_eq!(pad(&[1, -1], &[0, 4], 7.0).unwrap(), [3, 6]);
    assert!(pad(&[1], &[1, 1], 0.0).is_err() && pad(&[-2, 0], &[-1, 0], 0.0).is_err() && pad(&[0, 0], &[0, 0], -1.0).is_err());
}

#[test]
fn gathered_shapes_are_inferred_and_types_checked() {
    let infer = |axis, dtype, indices: &[usize]| Gather { axis }.infer(&[info(DType::F16, &[2, 3, 4]), info(dtype, indices)]);
    assert_eq!(&**infer(-2, DType::I64, &[5, 6]).unwrap()[0].shape(), [2, 5, 6, 4]);
    assert_eq!(&**infer(0, DType::U32, &[]).unwrap()[0].shape(), [3, 4]);
    assert!(infer(3, DType::I32, &[1]).is_err());
    assert!(infer(0, DType::F32, &[1]).unwrap_err().to_string().contains("i32, i64 or u32"));
}

#[test]
fn index_shapes_must_fit() {
    let infer = |axis, x: &[usize], by: &[usize]| GatherElements { axis }.infer(&[info(DType::F32, x), info(DType::I64, by)]);
    assert_eq!(&**infer(1, &[3, 2], &[2, 9]).unwrap()[0].shape(), [2, 9]);
    assert!(infer(0, &[3, 2], &[2, 9]).is_err() && infer(0, &[3, 2], &[2]).is_err() && infer(2, &[3, 2], &[3, 2]).is_err());
    assert!(infer(0, &[0, 2], &[5, 2]).is_ok());
}

#[test]
fn tuples_must_fit() {
    let infer = |batch_dims, x: &[usize], by: &[usize]| {
        GatherNd { batch_dims }.infer(&[info(DType::I32, x), info(DType::I64, by)]).map(|y| y[0].shape().to_vec())
    };
    assert_eq!(infer(0, &[2, 3, 4], &[5, 2]).unwrap(), [5, 4]);
    assert_eq!(infer(1, &[2, 3, 4], &[2, 7, 1]).unwrap(), [2, 7, 4]);
    assert_eq!(infer(0, &[2, 3], &[2]).unwrap(), [0usize; 0]);
    assert!(infer(0, &[2, 3], &[5, 3]).is_err() && infer(1, &[2, 3], &[3, 1]).is_err());
    assert!(infer(0, &[2, 3], &[]).is_err() && infer(2, &[2, 3], &[2, 1]).is_err());
}

#[test]
fn updates_must_fit_the_indices() {
    let nd = |indices: &[usize], updates: &[usize]| {
        ScatterNd { reduction: Reduction::Add }.infer(&[info(DType::F32, &[4, 5, 6]), info(DType::I64, indices), info(DType::F32, updates)])
    };
    assert!(nd(&[2, 1], &[2, 5, 6]).is_ok() && nd(&[3], &[]).is_ok());
    assert_eq!(
        nd(&[2, 2], &[2, 5, 6]).unwrap_err().to_string(),
        "scatter_nd: updates has shape [2, 5, 6], indices has shape [2, 2], x has shape [4, 5, 6]: expected updates of [2, 6]"
    );
    let elements = |dtype, reduction, by: &[usize], updates: &[usize]| {
        ScatterElements { axis: 1, reduction }.infer(&[info(dtype, &[4, 5]), info(DType::U32, by), info(dtype, updates)])
    };
    assert!(elements(DType::Bool, Reduction::None, &[4, 9], &[4, 9]).is_ok());
    assert!(elements(DType::Bool, Reduction::Max, &[4, 9], &[4, 9]).is_err());
    assert!(elements(DType::F32, Reduction::Max, &[4, 9], &[4, 8]).is_err() && elements(DType::F32, Reduction::Max, &[5, 9], &[5, 9]).is_err());
}
