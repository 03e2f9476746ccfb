//! Several tensors along one axis: joining and cutting.

use elinvar_core::{DType, DeviceProperties, Error, Layout, Result, Shape};

use super::{launch, launch_into_part};
use crate::{
    Argument, Definition, Operator, Plan, TensorInfo,
    attributes::attributes,
    gradient::Gradient,
    signature::{self, mismatch, operands, shape_of},
};

attributes! {
    /// Tensors one after the other along an axis. Inputs: any number, of one type, with shapes that are equal but along the axis.
    #[derive(Clone, Copy, Debug)]
    pub struct Concat {
        /// The axis; negative counts from the end.
        pub axis: isize = 0,
    }
}

operands! {
    pub(super) mod joined {
        x: read(DType::ALL) variadic, "shapes that are equal but along the axis, all of one type";
        -> y: write(like x), "row-major";
    }
}

impl Operator for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let joined::Inputs { x } = joined::Inputs::new(inputs)?;
        let first = x.shape();
        let axis = signature::axis("x0", &x, self.axis)?;
        let mut dims = first.to_vec();
        for (index, other) in inputs.iter().flatten().enumerate().skip(1) {
            let shape = other.shape();
            let fits = shape.rank() == first.rank() && (0..first.rank()).all(|i| i == axis || shape[i] == first[i]);
            if !fits {
                let found = [shape_of(&format!("x{index}"), other), shape_of("x0", &x)];
                return Err(mismatch(&found, format_args!("one shape but along axis {axis}")));
            }
            dims[axis] = dims[axis].saturating_add(shape[axis]);
        }
        Ok(vec![TensorInfo::new(x.dtype, &dims)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let whole = outputs[0].layout;
        let axis = whole.shape().axis(self.axis)?;
        let (mut plan, mut start) = (Plan::default(), 0);
        for (index, x) in inputs.iter().flatten().enumerate() {
            let count = x.shape()[axis];
            if x.elements() > 0 {
                let part = whole.slice(axis, start, count, 1)?;
                plan.launches.push(launch_into_part(x.dtype, &x.layout, &part, Argument::Input(index), Argument::Output(0)));
            }
            start += count;
        }
        Ok(plan)
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, index| {
            let upstream = gradient.upstream(0)?;
            let axis = upstream.info.shape().axis(self.axis)?;
            let extent = |index: usize| Ok(gradient.input(index)?.info.shape()[axis]);
            let start = (0..index).map(extent).sum::<Result<usize>>()?;
            Ok(upstream.view(upstream.info.layout.slice(axis, start, extent(index)?, 1)?))
        })
    }
}

attributes! {
    /// `x` cut into parts along an axis.
    #[derive(Clone, Debug)]
    pub struct Split {
        /// The axis; negative counts from the end.
        pub axis: isize = 0,
        /// Extent of each part along it.
        pub sizes: Option<Vec<usize>>,
        /// Number of parts where `sizes` is absent: of equal extent, rounded up; the last one gets what is left.
        pub parts: Option<usize>,
    }
}

impl Split {
    /// Start and extent of each part.
    fn cuts(&self, shape: &Shape, axis: usize) -> Result<Vec<(usize, usize)>> {
        let extent = shape[axis];
        let reject = |why: String| Error::invalid_argument(format!("along axis {axis} {why}"));
        let sizes = match (&self.sizes, self.parts) {
            (Some(sizes), None) => sizes.clone(),
            (None, Some(parts)) if parts > 0 && parts <= extent.max(1) => {
                let each = extent.div_ceil(parts);
                (0..parts).map(|i| each.min(extent.saturating_sub(i * each))).collect()
            }
            (None, Some(parts)) => return Err(reject(format!("{parts} parts are asked of {extent} elements"))),
            _ => return Err(Error::invalid_argument("expected either sizes or parts")),
        };
        if sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(extent) {
            return Err(reject(format!("sizes {sizes:?} do not add up to {extent}")));
        }
        Ok(sizes.iter().scan(0, |start, &n| Some((std::mem::replace(start, *start + n), n))).collect())
    }

    fn views(&self, x: &Layout) -> Result<Vec<Layout>> {
        let axis = x.shape().axis(self.axis)?;
        self.cuts(x.shape(), axis)?.into_iter().map(|(start, count)| x.slice(axis, start, count, 1)).collect()
    }
}

operands! {
    pub(super) mod cut {
        x: read(DType::ALL), "any shape";
        -> y: write(like x) variadic, "the parts";
    }
}

impl Operator for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let cut::Inputs { x } = cut::Inputs::new(inputs)?;
        Ok(self.views(&x.layout).map_err(|e| e.context(shape_of("x", &x)))?.iter().map(|view| TensorInfo::of(x.dtype, *view.shape())).collect())
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let cut::Inputs { x } = cut::Inputs::new(inputs)?;
        let parts = self.views(&x.layout)?;
        let launches = parts.iter().enumerate().map(|(i, view)| launch(x.dtype, view, Argument::Input(0), Argument::Output(i)));
        Ok(Plan { launches: launches.collect(), scratch: Vec::new() })
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let mut parts = Vec::new();
            for index in 0..upstream.len() {
                parts.push(gradient.upstream(index)?);
            }
            gradient.apply(Concat { axis: self.axis }, &parts)
        })
    }
}
