//! Operators that see the same elements through another layout.

use std::fmt::Debug;

use elinvar_core::{DeviceProperties, Error, Layout, MAX_RANK, Result, Shape};

use super::{Pad, launch, operands};
use crate::{Argument, Definition, Operand, Operator, Plan, Scalar, TensorInfo, attributes::attributes, gradient::Gradient, signature::shape_of};

/// An operator that only looks at its input in another way. Run as an operator it copies; where strides are accepted, the view will do.
pub(crate) trait View: 'static + Debug + Send + Sync {
    /// The operator's name.
    const NAME: &'static str;

    /// The input's elements as the output shows them; offsets stay relative to the same memory.
    ///
    /// # Errors
    /// An input that cannot be seen so.
    fn view(&self, x: &Layout) -> Result<Layout>;

    /// The gradient of the input from that of the output.
    fn placed_back(&self, gradient: &mut Gradient, x: &TensorInfo, upstream: Operand) -> Result<Operand>;
}

impl<V: View> Operator for V {
    fn name(&self) -> &'static str {
        V::NAME
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(x.dtype, *self.view(&x.layout).map_err(|e| e.context(shape_of("x", &x)))?.shape())])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(launch(x.dtype, &self.view(&x.layout)?, Argument::Input(0), Argument::Output(0)).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (x, upstream) = (gradient.input(0)?.info, gradient.upstream(0)?);
            self.placed_back(gradient, &x, upstream)
        })
    }
}

attributes! {
    /// `x` with its axes in another order.
    #[derive(Clone, Debug)]
    pub struct Transpose {
        /// For each axis of the output the axis of the input, negative from the end; all reversed if absent.
        pub perm: Option<Vec<isize>>,
    }
}

impl View for Transpose {
    const NAME: &'static str = "transpose";

    fn view(&self, x: &Layout) -> Result<Layout> {
        let axes = match &self.perm {
            None => (0..x.shape().rank()).rev().collect(),
            Some(perm) => perm.iter().map(|&axis| x.shape().axis(axis)).collect::<Result<Vec<_>>>()?,
        };
        x.permute(&axes)
    }

    fn placed_back(&self, _gradient: &mut Gradient, x: &TensorInfo, upstream: Operand) -> Result<Operand> {
        let rank = x.shape().rank();
        let mut back = vec![0; rank];
        let axes = match &self.perm {
            None => (0..rank).rev().collect(),
            Some(perm) => perm.iter().map(|&axis| x.shape().axis(axis)).collect::<Result<Vec<_>>>()?,
        };
        axes.iter().enumerate().for_each(|(to, &from)| back[from] = to);
        Ok(upstream.view(upstream.info.layout.permute(&back)?))
    }
}

attributes! {
    /// A range of `x` along each of some axes, as in Python and ONNX: bounds are clamped, negative ones count from the end.
    #[derive(Clone, Debug)]
    pub struct Slice {
        /// First index along each axis sliced.
        pub starts: Vec<isize>,
        /// Index before which each ends.
        pub ends: Vec<isize>,
        /// The axes sliced, negative from the end; the first ones if absent.
        pub axes: Option<Vec<isize>>,
        /// Steps, negative to walk backwards; 1 if absent.
        pub steps: Option<Vec<isize>>,
    }
}

/// First index and number of indices of `start..end` by `step` on an axis of `extent`.
fn range(extent: usize, start: isize, end: isize, step: isize) -> (usize, usize) {
    let extent = extent as isize;
    let clamp = |bound: isize| {
        let bound = if bound < 0 { bound.saturating_add(extent) } else { bound };
        if step > 0 { bound.clamp(0, extent) } else { bound.clamp(-1, extent - 1) }
    };
    let (start, end) = (clamp(start), clamp(end));
    let distance = if step > 0 { end - start } else { start - end };
    let count = if distance > 0 { (distance as usize).div_ceil(step.unsigned_abs()) } else { 0 };
    (start.max(0) as usize, count)
}

impl View for Slice {
    const NAME: &'static str = "slice";

    fn view(&self, x: &Layout) -> Result<Layout> {
        let count = self.starts.len();
        let given = [Some(self.ends.len()), self.axes.as_ref().map(Vec::len), self.steps.as_ref().map(Vec::len)];
        if given.iter().flatten().any(|&n| n != count) {
            return Err(Error::invalid_argument(format!("{count} starts are given: expected as many ends, axes and steps")));
        }
        let (mut view, mut seen) = (*x, [false; MAX_RANK]);
        for i in 0..count {
            let axis = x.shape().axis(self.axes.as_ref().map_or(i as isize, |axes| axes[i]))?;
            let step = self.steps.as_ref().map_or(1, |steps| steps[i]);
            if step == 0 || std::mem::replace(&mut seen[axis], true) {
                let why = if step == 0 { "with a step of 0" } else { "twice" };
                return Err(Error::invalid_argument(format!("axis {axis} is sliced {why}")));
            }
            let (start, count) = range(x.shape()[axis], self.starts[i], self.ends[i], step);
            // The step of a single element has no meaning and may be too large to be a stride.
            view = view.slice(axis, start, count, if count > 1 { step } else { 1 })?;
        }
        Ok(view)
    }

    /// Zeros are put between what was taken and around it.
    fn placed_back(&self, gradient: &mut Gradient, x: &TensorInfo, mut upstream: Operand) -> Result<Operand> {
        for i in 0..self.starts.len() {
            let axis = x.shape().axis(self.axes.as_ref().map_or(i as isize, |axes| axes[i]))?;
            let step = self.steps.as_ref().map_or(1, |steps| steps[i]);
            let (start, count) = range(x.shape()[axis], self.starts[i], self.ends[i], step);
            let (mut start, mut step) = (start as isize, if count > 1 { step } else { 1 });
            if step < 0 {
                upstream = upstream.view(upstream.info.layout.slice(axis, count - 1, count, -1)?);
                start += (count as isize - 1) * step;
                step = -step;
            }
            let mut dims = upstream.info.shape().to_vec();
            let inner: usize = dims[axis + 1..].iter().product();
            if step > 1 {
                let [outer, gap] = [dims[..axis].iter().product(), (step as usize - 1) * inner];
                let lines = gradient.reshape(upstream, &[outer, count, inner])?;
                let spread = Pad { before: vec![0; 3], after: vec![0, 0, gap as isize], value: Scalar::Int(0) };
                upstream = gradient.apply(spread, &[lines])?;
                dims[axis] = count * step as usize;
                upstream = gradient.reshape(upstream, &dims)?;
            }
            let (mut before, mut after) = (vec![0; dims.len()], vec![0; dims.len()]);
            (before[axis], after[axis]) = (start, x.shape()[axis] as isize - start - dims[axis] as isize);
            upstream = gradient.apply(Pad { before, after, value: Scalar::Int(0) }, &[upstream])?;
        }
        Ok(upstream)
    }
}

attributes! {
    /// `x` broadcast with a shape, by NumPy's rule.
    #[derive(Clone, Debug)]
    pub struct Expand {
        /// The shape to broadcast with: an extent of 1 keeps that of `x`.
        pub shape: Vec<usize>,
    }
}

impl View for Expand {
    const NAME: &'static str = "expand";

    fn view(&self, x: &Layout) -> Result<Layout> {
        x.broadcast_to(x.shape().broadcast(&Shape::new(&self.shape)?)?)
    }

    fn placed_back(&self, gradient: &mut Gradient, x: &TensorInfo, upstream: Operand) -> Result<Operand> {
        gradient.sum_to(upstream, x.shape(), x.dtype)
    }
}

attributes! {
    /// The elements of `x`, in row-major order, under another shape.
    #[derive(Clone, Debug)]
    pub struct Reshape {
        /// The extents; one may be -1: what is left; 0 keeps the input's extent at that place.
        pub shape: Vec<isize>,
        /// 0 is an extent of zero.
        pub allow_zero: bool = false,
    }
}

impl Reshape {
    /// The output's shape.
    ///
    /// # Errors
    /// Another number of elements, or extents that say nothing.
    pub fn target(&self, x: &Shape) -> Result<Shape> {
        let reject = |why: &str| Error::invalid_argument(format!("cannot reshape {x} to {:?}: {why}", self.shape));
        let (mut dims, mut open) = (Vec::with_capacity(self.shape.len()), None);
        for (axis, &extent) in self.shape.iter().enumerate() {
            dims.push(match extent {
                0 if !self.allow_zero => *x.get(axis).ok_or_else(|| reject("0 keeps an extent that the input does not have"))?,
                -1 if open.is_none() => {
                    open = Some(axis);
                    1
                }
                -1 => return Err(reject("only one extent may be -1")),
                _ => usize::try_from(extent).map_err(|_| reject("extents are at least -1"))?,
            });
        }
        let known = Shape::new(&dims)?.elements();
        if let Some(axis) = open {
            if known == 0 || !x.elements().is_multiple_of(known) {
                return Err(reject(&format!("{} elements are no multiple of {known}", x.elements())));
            }
            dims[axis] = x.elements() / known;
        } else if known != x.elements() {
            return Err(reject(&format!("{} elements are not {known}", x.elements())));
        }
        Shape::new(&dims)
    }
}

impl Operator for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(vec![TensorInfo::of(x.dtype, self.target(x.shape()).map_err(|e| e.context(shape_of("x", &x)))?)])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], _outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        Ok(launch(x.dtype, &x.layout, Argument::Input(0), Argument::Output(0)).into())
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let (x, upstream) = (gradient.input(0)?.info, gradient.upstream(0)?);
            gradient.reshape(upstream, x.shape())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_pythons() {
        for extent in 0..5usize {
            let list: Vec<usize> = (0..extent).collect();
            for (start, end, step) in (-7..8).flat_map(|s| (-7..8).flat_map(move |e| [-3, -2, -1, 1, 2, 3].map(|t| (s, e, t)))) {
                let (first, count) = range(extent, start, end, step);
                let found: Vec<usize> = (0..count as isize).map(|i| (first as isize + i * step) as usize).collect();
                // By definition: every index reached from the start, walking, before the end.
                let from_end = |b: isize| if b < 0 { b + extent as isize } else { b };
                let expected: Vec<usize> = if step > 0 {
                    list.iter().copied().filter(|&i| i as isize >= from_end(start) && (i as isize) < from_end(end)).collect()
                } else {
                    list.iter().rev().copied().filter(|&i| i as isize <= from_end(start) && (i as isize) > from_end(end)).collect()
                };
                let expected: Vec<usize> = expected.into_iter().step_by(step.unsigned_abs()).collect();
                assert_eq!(found, expected, "{start}:{end}:{step} of {extent}");
            }
        }
        assert_eq!(range(4, isize::MAX, isize::MIN, isize::MIN), (3, 1));
    }

    #[test]
    fn slices_that_say_nothing_are_rejected() {
        let x = Layout::contiguous(Shape::new(&[4, 3]).unwrap());
        let slice = |starts: &[isize], axes: &[isize], steps: &[isize]| {
            let slice = Slice { starts: starts.into(), ends: vec![2; starts.len()], axes: Some(axes.into()), steps: Some(steps.into()) };
            slice.view(&x).map(|l| l.shape().to_vec())
        };
        assert_eq!(slice(&[0], &[-1], &[1]).unwrap(), [4, 2]);
        assert!(slice(&[0], &[2], &[1]).is_err() && slice(&[0], &[0], &[0]).is_err());
        assert!(slice(&[0, 0], &[0, -2], &[1, 1]).unwrap_err().to_string().contains("twice"));
        assert!(slice(&[0, 0], &[0], &[1, 1]).is_err());
    }

    #[test]
    fn reshape_infers_keeps_and_rejects() {
        let x = Shape::new(&[2, 3, 4]).unwrap();
        let reshape = |shape: &[isize], allow_zero| Reshape { shape: shape.into(), allow_zero }.target(&x).map(|s| s.to_vec());
        assert_eq!(reshape(&[2, 0, 1, -1], false).unwrap(), [2, 3, 1, 4]);
        assert_eq!(reshape(&[-1], true).unwrap(), [24]);
        for wrong in [&[5, -1][..], &[-1, -1], &[2, 3], &[-2, 12], &[1, 1, 1, 0]] {
            assert!(reshape(wrong, false).is_err(), "{wrong:?}");
        }
        assert!(reshape(&[0, -1], true).is_err());
    }
}
