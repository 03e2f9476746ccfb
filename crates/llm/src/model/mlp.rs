//! The gated feed-forward network.

use elinvar::{Result, Tensor};

use super::{
    module::Module,
    parts::{Linear, Linears},
    source::Source,
};
use crate::config::{Activation, Config};

/// `down(activation(gate(x)) · up(x))`.
#[derive(Clone)]
pub(super) struct Mlp {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
}

impl Mlp {
    pub(super) fn load(config: &Config, index: usize, source: &mut dyn Source) -> Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let path = format!("model.layers.{index}.mlp");
        let fused = config.fused_projections.then_some(("gate_up_proj", 2 * inner));
        let mut inputs = Linears::new(source, path.clone(), fused, hidden, config.mlp_bias)?;
        Ok(Self {
            gate: inputs.next("gate_proj", inner, 1)?,
            up: inputs.next("up_proj", inner, 1)?,
            down: Linear::load_own(source, &format!("{path}.down_proj"), [hidden, inner], config.mlp_bias, 1)?,
            activation: config.activation,
        })
    }

    /// Its linear layers.
    pub(super) fn modules(&mut self, path: &str, fused: bool) -> Vec<Module<'_>> {
        let inputs = [("gate_proj", &mut self.gate), ("up_proj", &mut self.up)];
        let mut modules = Module::all(&format!("{path}.mlp"), fused.then_some("gate_up_proj"), inputs);
        modules.extend(Module::all(&format!("{path}.mlp"), None, [("down_proj", &mut self.down)]));
        modules
    }

    /// Each rank's own part of what it makes of `x`, added to its part of `residual` if there is one.
    pub(super) fn forward(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let (gate, up) = (self.gate.apply(x)?, self.up.apply(x)?);
        let gated = match self.activation {
            Activation::Silu => gate.swiglu(&up)?,
            Activation::GeluTanh => gate.gelu_tanh()?.mul(&up)?,
        };
        self.down.add_to(residual, &gated.all_gather()?)
    }
}
