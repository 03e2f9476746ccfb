//! Texts of a batch one after the other, of which nothing is filled up but for attention.

use std::sync::Arc;

use elinvar::{
    DeviceProperties, Error, Operator, Result, Tensor,
    kernels::{Definition, Plan, TensorInfo, gather::Gather},
};

/// Where the rows of packed texts lie among those of texts filled up to one length. A row that belongs to no text, of which there is at least one, stands for
/// every place that no row has, and the other way round: both count for nothing, so their gradients are zero.
#[derive(Clone)]
pub(crate) struct Packing {
    /// i32 `[rows]`: of each row in its text.
    pub(crate) positions: Tensor,
    /// i32 `[rows]`: its place.
    pub(crate) places: Tensor,
    /// i32 `[texts · length]`: the row of each place.
    pub(crate) rows: Tensor,
}

impl Packing {
    /// `[rows, …]` as `[texts · length, …]`.
    pub(crate) fn apart(&self, x: &Tensor) -> Result<Tensor> {
        rearranged(x, [&self.rows, &self.places])
    }

    /// `[texts · length, …]` as `[rows, …]`.
    pub(crate) fn together(&self, x: &Tensor) -> Result<Tensor> {
        rearranged(x, [&self.places, &self.rows])
    }
}

fn rearranged(x: &Tensor, [from, back]: [&Tensor; 2]) -> Result<Tensor> {
    let outputs = x.executor().apply(Arc::new(Rearrange), &[Some(x), Some(from), Some(back)])?;
    outputs.into_iter().next().ok_or_else(|| Error::internal("rows that were rearranged are missing"))
}

/// The rows of `x` at these indices, where the second indices lead back: the gradient reads by them, and adds nothing up.
#[derive(Clone, Copy, Debug)]
struct Rearrange;

const GATHER: Gather = Gather { axis: 0 };

fn gathered(inputs: &[Option<TensorInfo>]) -> Result<&[Option<TensorInfo>]> {
    inputs.get(..2).ok_or_else(|| Error::internal("rows are rearranged without indices"))
}

impl Operator for Rearrange {
    fn name(&self) -> &'static str {
        "rearrange"
    }

    fn outputs(&self, inputs: &[Option<TensorInfo>]) -> Result<Vec<TensorInfo>> {
        GATHER.outputs(gathered(inputs)?)
    }

    fn plan(&self, inputs: &[Option<TensorInfo>], outputs: &[TensorInfo], device: &DeviceProperties) -> Result<Plan> {
        GATHER.plan(gathered(inputs)?, outputs, device)
    }

    fn gradient(&self, inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>], _wanted: &[bool]) -> Result<Definition> {
        let outputs = self.infer(inputs)?.into_iter().map(Some);
        let given: Vec<_> = inputs.iter().copied().chain(outputs).chain(upstream.iter().copied()).collect();
        let mut definition = Definition::new(&given);
        let (gradient, back) = (definition.input(4), definition.input(2));
        definition.outputs = definition.apply(GATHER, &[gradient, back])?;
        Ok(definition)
    }
}
