//! Adapters of rows: a linear layer whose rows have one each, of those whose matrices are stacked.

use std::sync::Arc;

use elinvar::{DType, Error, Executor, Result, Tensor, kernels::lora_rows::LoraRows};

use super::{
    Model,
    low_rank::{LowRank, added},
    matrix::Matrix,
    module::Module,
    parts::Linear,
};

/// The matrices of some adapters of one linear layer, as [`LoraRows`] takes them.
#[derive(Clone)]
struct Stack {
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    ranks: Tensor,
}

impl Stack {
    /// Of the layer with each adapter, in the order of their numbers; nothing where none changes it.
    fn new(executor: &Executor, [rows, columns]: [usize; 2], adapters: &[Option<&LowRank>]) -> Result<Option<Self>> {
        let rank = |adapter: &Option<&LowRank>| adapter.map_or(0, |adapter| adapter.rank());
        let most = adapters.iter().map(rank).max().unwrap_or(0);
        if most == 0 {
            return Ok(None);
        }
        let (mut a, mut b, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        for adapter in adapters {
            let room = |width: usize| executor.zeros(DType::F32, &[most - rank(adapter), width]);
            let filled = |matrix: Option<Tensor>, width: usize| match matrix {
                Some(matrix) => Tensor::concat(&[&matrix.cast(DType::F32)?.contiguous()?, &room(width)?], 0),
                None => room(width),
            };
            let (matrices, scale) = adapter.map(|adapter| adapter.matrices()).unzip();
            let (first, second) = matrices.map(|[a, b]| (a, b)).unzip();
            a.push(filled(first, columns)?);
            b.push(filled(second.map(|b: Tensor| b.transpose(0, 1)).transpose()?, rows)?);
            scales.push(scale.unwrap_or(0.0));
        }
        let ranks: Vec<i32> = adapters.iter().map(|adapter| rank(adapter) as i32).collect();
        let stacked = |matrices: &[Tensor]| Tensor::stack(&matrices.iter().collect::<Vec<_>>(), 0);
        let count = [adapters.len()];
        Ok(Some(Self { a: stacked(&a)?, b: stacked(&b)?, scales: executor.tensor(&count, &scales)?, ranks: executor.tensor(&count, &ranks)? }))
    }
}

/// The adapters' matrices of all linear layers of a model, in the order of its modules.
pub(crate) struct Stacks(Vec<Option<Stack>>);

/// A linear layer's adapters, and which one each row has.
#[derive(Clone)]
pub(super) struct RowAdapters {
    stack: Stack,
    adapters: Tensor,
}

impl RowAdapters {
    /// The layer with its rows' adapters, added to `residual` if there is one: the order of sums is that of a layer with one adapter.
    pub(super) fn linear(&self, weight: &Matrix, x: &Tensor, bias: Option<&Tensor>, residual: Option<&Tensor>) -> Result<Tensor> {
        let base = weight.linear(x, bias)?;
        match weight {
            Matrix::Plain(_) => added(residual, self.apply(&base, x)?),
            Matrix::Packed { .. } => self.apply(&added(residual, base)?, x),
        }
    }

    fn apply(&self, base: &Tensor, x: &Tensor) -> Result<Tensor> {
        let Stack { a, b, scales, ranks } = &self.stack;
        let outputs = x.executor().apply(Arc::new(LoraRows), &[x, &self.adapters, base, a, b, scales, ranks].map(Some))?;
        outputs.into_iter().next().ok_or_else(|| Error::internal("adapters of rows gave nothing"))
    }
}

impl Model {
    /// The stacked matrices of adapters of this model, given as models that have one each; a number may be of none.
    ///
    /// # Errors
    /// Out of memory, or a failed device.
    pub(crate) fn stacks(&self, adapted: &[Option<Arc<Self>>]) -> Result<Stacks> {
        let mut base = self.clone();
        let mut models: Vec<Option<Self>> = adapted.iter().map(|model| model.as_deref().cloned()).collect();
        let mut adapters: Vec<Option<_>> = models.iter_mut().map(|model| model.as_mut().map(|model| model.linears().into_iter())).collect();
        let mut stacks = Vec::new();
        for linear in base.linears() {
            let low_rank: Vec<Option<&LowRank>> = adapters
                .iter_mut()
                .map(|linears| linears.as_mut().and_then(|linears| linears.next()).and_then(|linear| linear.adapter.as_ref()))
                .collect();
            stacks.push(Stack::new(&self.executor, linear.weight.extents(), &low_rank)?);
        }
        Ok(Stacks(stacks))
    }

    /// The model with an adapter for each row: those of the tokens, `[tokens]`, and of the rows of logits.
    pub(super) fn with_rows(&self, Stacks(stacks): &Stacks, [adapters, of_logits]: [&Tensor; 2]) -> Self {
        let mut model = self.clone();
        let last = stacks.len() - 1;
        for (index, (linear, stack)) in model.linears().into_iter().zip(stacks).enumerate() {
            let adapters = if index == last { of_logits } else { adapters };
            linear.rows = stack.clone().map(|stack| RowAdapters { stack, adapters: adapters.clone() });
        }
        model
    }

    /// Its linear layers, the output projection last.
    fn linears(&mut self) -> Vec<&mut Linear> {
        self.modules().into_iter().flat_map(|Module { parts, .. }| parts).collect()
    }
}
