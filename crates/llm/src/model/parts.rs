//! What layers are made of: linear layers and norms.

use elinvar::{DType, Result, Tensor};

use super::{
    low_rank::{LowRank, added},
    matrix::{Matrix, own_rows},
    source::Source,
    stacked::RowAdapters,
};
use crate::config::Config;

/// A projection: `x Wᵀ + bias`, and what an adapter adds.
#[derive(Clone)]
pub(crate) struct Linear {
    pub(super) weight: Matrix,
    bias: Option<Tensor>,
    /// How many parts its rows are cut into, of which each rank of a group has one.
    shares: usize,
    pub(super) adapter: Option<LowRank>,
    /// Adapters of which each row has its own.
    pub(super) rows: Option<RowAdapters>,
}

impl Linear {
    pub(super) fn new(weight: Matrix) -> Self {
        Self { weight, bias: None, shares: 1, adapter: None, rows: None }
    }

    pub(crate) fn load(source: &mut dyn Source, name: &str, rows: usize, columns: usize, bias: bool) -> Result<Self> {
        let weight = source.matrix(&format!("{name}.weight"), [rows, columns])?;
        let bias = if bias { Some(source.tensor(&format!("{name}.bias"), &[rows])?) } else { None };
        Ok(Self { bias, ..Self::new(weight) })
    }

    /// The same, of whose outputs each rank of a group computes its own; `sharers` ranks that follow each other compute the same.
    pub(super) fn load_own(source: &mut dyn Source, name: &str, [rows, columns]: [usize; 2], bias: bool, sharers: usize) -> Result<Self> {
        let weight = source.own_rows(&format!("{name}.weight"), [rows, columns], sharers)?;
        let shares = source.executor().ranks() / sharers;
        let bias = if bias { Some(own_rows(&source.tensor(&format!("{name}.bias"), &[rows])?, shares)?) } else { None };
        Ok(Self { bias, shares, ..Self::new(weight) })
    }

    /// Each rank's own rows of these rows of it, as a layer.
    fn own_rows(&self, start: usize, count: usize, sharers: usize) -> Result<Self> {
        let weight = self.weight.slice(start, count)?;
        let shares = weight.executor().ranks() / sharers;
        let bias = self.bias.as_ref().map(|bias| own_rows(&bias.slice(0, start, count, 1)?, shares)).transpose()?;
        Ok(Self { bias, shares, ..Self::new(weight.own_rows(shares)?) })
    }

    /// Of each rank's own rows, of so many parts.
    pub(super) fn shared(weight: Matrix, shares: usize) -> Self {
        Self { shares, ..Self::new(weight) }
    }

    /// Whether ranks have other rows than each other.
    pub(super) fn is_shared(&self) -> bool {
        self.shares > 1
    }

    /// `[rows, columns]` of all ranks together.
    pub(super) fn extents(&self) -> [usize; 2] {
        let [rows, columns] = self.weight.extents();
        [rows * self.shares, columns]
    }

    /// The rows of a tensor that belong to each rank's own.
    pub(super) fn own(&self, tensor: &Tensor) -> Result<Tensor> {
        own_rows(tensor, self.shares)
    }

    pub(crate) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        self.add_to(None, x)
    }

    /// What it makes of `x`, added to `residual` if there is one.
    pub(crate) fn add_to(&self, residual: Option<&Tensor>, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_ref();
        match (&self.adapter, &self.rows) {
            (Some(adapter), _) => adapter.linear(&self.weight, x, bias, residual),
            (None, Some(adapters)) => adapters.linear(&self.weight, x, bias, residual),
            (None, None) => added(residual, self.weight.linear(x, bias)?),
        }
    }
}

/// Linear layers of one input, one after the other: each stored by itself, or all as the rows of one. Each rank of a group has its own rows of each.
pub(super) struct Linears<'a> {
    source: &'a mut dyn Source,
    path: String,
    columns: usize,
    bias: bool,
    /// The one, and where the next layer's rows begin.
    fused: Option<(Linear, usize)>,
}

impl<'a> Linears<'a> {
    /// Of `path`; `fused` is the name and the rows of the one that holds them all.
    pub(super) fn new(source: &'a mut dyn Source, path: String, fused: Option<(&str, usize)>, columns: usize, bias: bool) -> Result<Self> {
        let load = |(name, rows): (&str, usize)| Linear::load(source, &format!("{path}.{name}"), rows, columns, bias).map(|whole| (whole, 0));
        let fused = fused.map(load).transpose()?;
        Ok(Self { source, path, columns, bias, fused })
    }

    /// The next, which has so many rows; see [`Linear::load_own`].
    pub(super) fn next(&mut self, name: &str, rows: usize, sharers: usize) -> Result<Linear> {
        let Some((whole, start)) = &mut self.fused else {
            return Linear::load_own(self.source, &format!("{}.{name}", self.path), [rows, self.columns], self.bias, sharers);
        };
        *start += rows;
        whole.own_rows(*start - rows, rows, sharers)
    }
}

/// RMS normalisation of rows.
#[derive(Clone)]
pub(super) struct Norm {
    /// As a checkpoint has it.
    stored: Tensor,
    /// What rows are multiplied by.
    weight: Tensor,
    /// Whether a checkpoint has the weight less one.
    less_one: bool,
    epsilon: f32,
}

impl Norm {
    pub(super) fn load(config: &Config, source: &mut dyn Source, name: &str, width: usize) -> Result<Self> {
        Self::new(source.tensor(&format!("{name}.weight"), &[width])?, config.norms_less_one, config.norm_epsilon)
    }

    fn new(stored: Tensor, less_one: bool, epsilon: f32) -> Result<Self> {
        let weight = if less_one { (stored.cast(DType::F32)? + 1.0)? } else { stored.clone() };
        Ok(Self { stored, weight, less_one, epsilon })
    }

    /// Its weight as a checkpoint has it, `[width]`.
    pub(super) fn stored(&self) -> &Tensor {
        &self.stored
    }

    /// Takes another weight, as a checkpoint has it.
    pub(super) fn replace(&mut self, stored: Tensor) -> Result<()> {
        *self = Self::new(stored, self.less_one, self.epsilon)?;
        Ok(())
    }

    /// As [`Norm::load`], if the model has it.
    pub(super) fn load_if(has: bool, config: &Config, source: &mut dyn Source, name: &str, width: usize) -> Result<Option<Self>> {
        if has { Self::load(config, source, name, width).map(Some) } else { Ok(None) }
    }

    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(Some(&self.weight), self.epsilon)
    }
}
