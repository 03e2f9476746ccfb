//! What a fused operator stands for: plain operators over its inputs, as data.

use std::sync::Arc;

use elinvar_core::{DType, DeviceProperties, Error, Result};

use crate::{
    cast::Cast,
    copy::Copy,
    launch::{Argument, Plan},
    operator::{Definition, Operand, Operator, Source, Step, TensorInfo},
};

impl Definition {
    /// Over these inputs, without a step.
    pub fn new(inputs: &[Option<TensorInfo>]) -> Self {
        Self { inputs: inputs.to_vec(), steps: Vec::new(), outputs: Vec::new(), updated: Vec::new() }
    }

    /// The f32 result of an operator whose result has the type of input `like`, converted to the type `output`; none where that is the input's.
    ///
    /// # Errors
    /// What the operator rejects.
    pub(crate) fn converted(operator: impl Operator, inputs: &[Option<TensorInfo>], like: usize, output: Option<DType>) -> Result<Option<Self>> {
        let own = inputs[like].map(|info| info.dtype);
        let Some(to) = output.filter(|output| Some(*output) != own) else { return Ok(None) };
        let mut definition = Self::new(inputs);
        let mut operands: Vec<_> = (0..inputs.len()).map(|index| definition.input(index)).collect();
        if own != Some(DType::F32) {
            operands[like] = Some(definition.apply_one(Cast { to: DType::F32 }, &[operands[like]])?);
        }
        let result = definition.apply_one(operator, &operands)?;
        definition.outputs = if to == DType::F32 { vec![result] } else { definition.apply(Cast { to }, &[Some(result)])? };
        Ok(Some(definition))
    }

    /// An input; none if it is absent.
    pub fn input(&self, index: usize) -> Option<Operand> {
        let info = self.inputs.get(index).copied().flatten()?;
        Some(Operand { source: Source::Input(index), info })
    }

    /// Adds a step and gives its outputs. What the operator does not take with strides is copied by a step before.
    ///
    /// # Errors
    /// What the operator rejects.
    pub fn apply(&mut self, operator: impl Operator, inputs: &[Option<Operand>]) -> Result<Vec<Operand>> {
        let mut taken = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            taken.push(match input {
                Some(operand) if !operator.accepts_strides(index) && !operand.info.layout.is_contiguous() => {
                    Some(self.apply_one(Copy, &[Some(*operand)])?)
                }
                operand => *operand,
            });
        }
        let infos: Vec<_> = taken.iter().map(|operand| operand.map(|operand| operand.info)).collect();
        let outputs = operator.infer(&infos)?;
        let step = self.steps.len();
        self.steps.push(Step { operator: Arc::new(operator), inputs: taken });
        Ok(outputs.into_iter().enumerate().map(|(output, info)| Operand { source: Source::Step(step, output), info }).collect())
    }

    /// The same for an operator of one output.
    ///
    /// # Errors
    /// As [`Definition::apply`].
    pub fn apply_one(&mut self, operator: impl Operator, inputs: &[Option<Operand>]) -> Result<Operand> {
        let outputs = self.apply(operator, inputs)?;
        outputs.first().copied().ok_or_else(|| Error::internal("a step without an output is used"))
    }

    /// The launches of the steps, one after the other.
    ///
    /// # Errors
    /// What the device does not offer to one of them.
    pub fn plan(&self, device: &DeviceProperties) -> Result<Plan> {
        let mut plan = Plan::default();
        // What each step's outputs are bound to.
        let mut results: Vec<Vec<Argument>> = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            let bound = |operand: &Operand| -> Result<(TensorInfo, Argument)> {
                if operand.info.layout.span().start != 0 {
                    return Err(Error::internal("an operand of a definition begins inside its source"));
                }
                Ok(match operand.source {
                    Source::Input(input) => (operand.info, Argument::Input(input)),
                    Source::Step(step, output) => (operand.info, results[step][output]),
                })
            };
            let inputs = step.inputs.iter().map(|operand| operand.as_ref().map(bound).transpose()).collect::<Result<Vec<_>>>()?;
            let infos: Vec<_> = step.inputs.iter().map(|operand| operand.map(|operand| operand.info)).collect();
            let targets = step.operator.infer(&infos)?.into_iter().enumerate().map(|(output, info)| {
                let own = self.outputs.iter().position(|operand| operand.source == Source::Step(index, output));
                own.map_or_else(
                    || {
                        plan.scratch.push(info.bytes());
                        Argument::Scratch(plan.scratch.len() - 1)
                    },
                    Argument::Output,
                )
            });
            let targets: Vec<_> = targets.collect();
            plan.add(&*step.operator, &inputs, &targets, device)?;
            results.push(targets);
        }
        for (input, operand) in &self.updated {
            if let Source::Step(step, output) = operand.source {
                plan.add(&Copy, &[Some((operand.info, results[step][output]))], &[Argument::Input(*input)], device)?;
            }
        }
        Ok(plan)
    }
}
