//! What the oracles of elementwise operators share.

use elinvar_core::{DeviceProperties, Layout, Result, Shape};

use crate::{Operator, Plan, TensorInfo};

/// An operator whose inputs are seen through other layouts of the same memory: how views reach it.
#[derive(Debug)]
pub(crate) struct Viewed<O>(pub(crate) O, pub(crate) Vec<Option<Layout>>);

impl<O: Operator> Viewed<O> {
    fn views(&self, inputs: &[Option<TensorInfo>]) -> Vec<Option<TensorInfo>> {
        let view =
            |(input, layout): (&Option<TensorInfo>, &Option<Layout>)| input.map(|info| TensorInfo { layout: layout.unwrap_or(info.layout), ..info });
        inputs.iter().zip(&self.1).map(view).collect()
    }
}

impl<O: Operator> Operator for Viewed<O> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        self.0.outputs(&self.views(inputs))
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        assert!(self.1.iter().enumerate().all(|(i, l)| l.is_none() || self.0.accepts_strides(i)));
        self.0.plan(&self.views(inputs), outputs, device)
    }
}

/// The row-major layout of `dims`.
pub(crate) fn layout(dims: &[usize]) -> Layout {
    Layout::contiguous(shape(dims))
}

/// The shape.
pub(crate) fn shape(dims: &[usize]) -> Shape {
    Shape::new(dims).unwrap_or_else(|e| unreachable!("{e}"))
}

/// The elements of a view in row-major order, one index at a time.
pub(crate) fn view(values: &[f64], layout: &Layout) -> Vec<f64> {
    let dims = layout.shape();
    (0..dims.elements())
        .map(|mut flat| {
            let mut at = layout.offset() as isize;
            for (extent, stride) in dims.iter().zip(layout.strides()).rev() {
                at += (flat % extent) as isize * stride;
                flat /= extent;
            }
            values[at as usize]
        })
        .collect()
}

/// The elements of a row-major tensor of `dims` broadcast to `shape`.
pub(crate) fn broadcast(values: &[f64], dims: &[usize], shape: Shape) -> Vec<f64> {
    view(values, &layout(dims).broadcast_to(shape).unwrap_or_else(|e| unreachable!("{e}")))
}
