//! A tensor with a border.

use elinvar_core::{DeviceProperties, Error, Layout, Result};

use super::{launch_into_part, operands};
use crate::{
    Argument, Definition, Operator, Plan, TensorInfo,
    attributes::attributes,
    elementwise::scalar::Scalar,
    fill,
    gradient::Gradient,
    signature::{shape_of, type_of},
};

attributes! {
    /// `x` with elements of one value added before and after it along each axis; a negative number takes elements away.
    #[derive(Clone, Debug)]
    pub struct Pad {
        /// Elements added before, for each axis.
        pub before: Vec<isize>,
        /// Elements added after, for each axis.
        pub after: Vec<isize>,
        /// Their value.
        pub value: Scalar = 0,
    }
}

impl Pad {
    /// The output's extents.
    fn extents(&self, x: &TensorInfo) -> Result<Vec<usize>> {
        let rank = x.shape().rank();
        let reject = |why: String| Error::invalid_argument(format!("{}: {why}", shape_of("x", x)));
        if self.before.len() != rank || self.after.len() != rank {
            return Err(reject(format!("{} and {} numbers are given for {rank} axes", self.before.len(), self.after.len())));
        }
        let extent = |axis: usize| {
            let sum = x.shape()[axis] as i128 + self.before[axis] as i128 + self.after[axis] as i128;
            usize::try_from(sum).map_err(|_| reject(format!("axis {axis} would have an extent of {sum}")))
        };
        (0..rank).map(extent).collect()
    }

    /// What stays of `x`, and where it lies in the output.
    fn parts(&self, x: &Layout, y: &Layout) -> Result<(Layout, Layout)> {
        let (mut from, mut to) = (*x, *y);
        for axis in 0..x.shape().rank() {
            let (cut_before, cut_after) = (self.before[axis].min(0).unsigned_abs(), self.after[axis].min(0).unsigned_abs());
            let count = x.shape()[axis].saturating_sub(cut_before).saturating_sub(cut_after);
            from = from.slice(axis, cut_before, count, 1)?;
            to = to.slice(axis, self.before[axis].max(0) as usize, count, 1)?;
        }
        Ok((from, to))
    }
}

impl Operator for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        let operands::Inputs { x } = operands::Inputs::new(inputs)?;
        self.value.bits(x.dtype).map_err(|e| e.context(type_of("x", x.dtype)))?;
        Ok(vec![TensorInfo::new(x.dtype, &self.extents(&x)?)?])
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], _device: &DeviceProperties) -> Result<Plan> {
        let (operands::Inputs { x }, y) = (operands::Inputs::new(inputs)?, outputs[0]);
        let mut plan = Plan::from(fill::launch(self.value, &y, Argument::Output(0))?);
        let (from, to) = self.parts(&x.layout, &y.layout)?;
        if from.shape().elements() > 0 {
            plan.launches.push(launch_into_part(x.dtype, &from, &to, Argument::Input(0), Argument::Output(0)));
        }
        Ok(plan)
    }

    fn accepts_strides(&self, _index: usize) -> bool {
        true
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        Gradient::new(self, inputs, upstream)?.of(wanted, |gradient, _| {
            let upstream = gradient.upstream(0)?;
            let opposite = |widths: &[isize]| widths.iter().map(|width| -width).collect();
            gradient.apply(Pad { before: opposite(&self.before), after: opposite(&self.after), value: Scalar::Int(0) }, &[upstream])
        })
    }
}
