//! The gradient of a definition: that of each of its steps, from the last to the first.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use elinvar_core::{Error, Layout, Result};

use super::Gradient;
use crate::{
    binary::BinaryOp,
    operator::{Definition, Operand, Operator, Source, Step, TensorInfo},
};

impl Definition {
    /// The gradient of a fused operator that stands for this: the steps are computed again.
    ///
    /// # Errors
    /// An input that is updated in place, a step without a gradient, or a view that is more than a reshape or a permutation.
    pub(crate) fn gradient(&self, operator: &(impl Operator + ?Sized), upstream: &[Option<TensorInfo>], wanted: &[bool]) -> Result<Definition> {
        let updates = |operator: &dyn Operator, count: usize| (0..count).any(|index| operator.updates(index));
        if !self.updated.is_empty() || self.steps.iter().any(|step| updates(&*step.operator, step.inputs.len())) {
            return Err(super::none(operator));
        }
        let mut gradient = Gradient::new(operator, &self.inputs, upstream)?;
        let is_wanted = |index: &usize| wanted.get(*index).copied().unwrap_or_default();
        let flows = self.flows(|index| is_wanted(&index));
        gradient.steps.steps = self.steps.clone();
        let mut sums = Sums::default();
        for (index, output) in self.outputs.iter().enumerate() {
            if upstream.get(index).copied().flatten().is_some() {
                let upstream = gradient.upstream(index)?;
                sums.add(&mut gradient, &self.layout(output.source)?, *output, upstream)?;
            }
        }
        for (index, step) in self.steps.iter().enumerate().rev().filter(|(index, _)| flows.contains(index)) {
            let infos: Vec<_> = step.inputs.iter().map(|operand| operand.map(|operand| operand.info)).collect();
            let outputs = step.operator.infer(&infos)?;
            let mut gradients = Vec::new();
            for (output, info) in outputs.iter().enumerate() {
                gradients.push(sums.take(&mut gradient, Source::Step(index, output), info.shape())?);
            }
            if gradients.iter().all(Option::is_none) {
                continue;
            }
            let takes = |operand: &Option<Operand>| operand.is_some_and(|operand| self.matters(&operand, &flows, is_wanted));
            let wanted: Vec<_> = step.inputs.iter().map(takes).collect();
            let types: Vec<_> = gradients.iter().map(|operand| operand.map(|operand| operand.info)).collect();
            let inner = step.operator.gradient(&infos, &types, &wanted)?;
            let results = outputs.iter().enumerate().map(|(output, info)| Some(Operand { source: Source::Step(index, output), info: *info }));
            let given: Vec<_> = step.inputs.iter().copied().chain(results).chain(gradients).collect();
            let found = gradient.steps.inline(&inner, &given)?;
            let operands = step.inputs.iter().zip(&wanted).filter_map(|(operand, wanted)| operand.filter(|_| *wanted));
            for (operand, found) in operands.zip(found) {
                sums.add(&mut gradient, &self.layout(operand.source)?, operand, found)?;
            }
        }
        gradient.of(wanted, |gradient, index| {
            let info = gradient.input(index)?.info;
            match sums.take(gradient, Source::Input(index), info.shape())? {
                Some(sum) => Ok(sum),
                None => gradient.zeros(info.dtype, info.shape()),
            }
        })
    }

    /// Where the elements of a source lie.
    fn layout(&self, source: Source) -> Result<Layout> {
        let info = match source {
            Source::Input(index) => self.inputs.get(index).copied().flatten(),
            Source::Step(step, output) => {
                let step = &self.steps[step];
                let infos: Vec<_> = step.inputs.iter().map(|operand| operand.map(|operand| operand.info)).collect();
                step.operator.infer(&infos)?.get(output).copied()
            }
        };
        info.map(|info| info.layout).ok_or_else(|| Error::internal("a definition takes what is absent"))
    }

    /// The steps through which gradients flow to these inputs.
    fn flows(&self, wanted: impl Fn(usize) -> bool) -> HashSet<usize> {
        let mut flows = HashSet::new();
        for (index, step) in self.steps.iter().enumerate() {
            if step.inputs.iter().flatten().any(|operand| self.matters(operand, &flows, |index| wanted(*index))) {
                flows.insert(index);
            }
        }
        flows
    }

    fn matters(&self, operand: &Operand, flows: &HashSet<usize>, wanted: impl Fn(&usize) -> bool) -> bool {
        let reaches = match operand.source {
            Source::Input(index) => wanted(&index),
            Source::Step(step, _) => flows.contains(&step),
        };
        reaches && operand.info.dtype.is_float()
    }

    /// Adds the steps of another definition over these operands, and gives its outputs.
    fn inline(&mut self, other: &Definition, given: &[Option<Operand>]) -> Result<Vec<Operand>> {
        let before = self.steps.len();
        let placed = |operand: &Operand| {
            Ok(match operand.source {
                Source::Step(step, output) => Operand { source: Source::Step(before + step, output), ..*operand },
                Source::Input(index) => {
                    let source = given.get(index).copied().flatten().ok_or_else(|| Error::internal("a gradient takes what is absent"))?.source;
                    Operand { source, ..*operand }
                }
            })
        };
        for step in &other.steps {
            let inputs = step.inputs.iter().map(|operand| operand.as_ref().map(placed).transpose()).collect::<Result<Vec<_>>>()?;
            self.steps.push(Step { operator: step.operator.clone(), inputs });
        }
        other.outputs.iter().map(placed).collect()
    }

    /// The same without the steps that nothing needs.
    pub(crate) fn pruned(mut self) -> Self {
        let mut needed = vec![false; self.steps.len()];
        let need = |needed: &mut [bool], operand: &Operand| {
            if let Source::Step(step, _) = operand.source {
                needed[step] = true;
            }
        };
        self.outputs.iter().chain(self.updated.iter().map(|(_, operand)| operand)).for_each(|operand| need(&mut needed, operand));
        for (index, step) in self.steps.iter().enumerate().rev() {
            if needed[index] {
                step.inputs.iter().flatten().for_each(|operand| need(&mut needed, operand));
            }
        }
        let places: Vec<_> = needed.iter().scan(0, |next, &needed| Some(std::mem::replace(next, *next + usize::from(needed)))).collect();
        let place = |operand: &mut Operand| {
            if let Source::Step(step, _) = &mut operand.source {
                *step = places[*step];
            }
        };
        let mut kept = needed.iter();
        self.steps.retain(|_| kept.next().copied().unwrap_or_default());
        self.steps.iter_mut().flat_map(|step| step.inputs.iter_mut().flatten()).for_each(place);
        self.outputs.iter_mut().chain(self.updated.iter_mut().map(|(_, operand)| operand)).for_each(place);
        self
    }

    /// The inputs that steps or outputs take, by index.
    pub fn used_inputs(&self) -> impl Iterator<Item = usize> {
        let operands = self.steps.iter().flat_map(|step| step.inputs.iter().flatten()).chain(&self.outputs);
        operands.filter_map(|operand| match operand.source {
            Source::Input(index) => Some(index),
            Source::Step(..) => None,
        })
    }
}

/// What each value has got so far, in one axis.
#[derive(Default)]
struct Sums {
    of: HashMap<Source, Operand>,
}

impl Sums {
    /// The gradient of a value, whose own layout is `whole`, as an operand shows it.
    fn add(&mut self, gradient: &mut Gradient, whole: &Layout, operand: Operand, found: Operand) -> Result<()> {
        let found = placed_back(gradient, whole, &operand.info.layout, found)?;
        let sum = match self.of.get(&operand.source) {
            None => found,
            Some(before) => gradient.binary(BinaryOp::Add, *before, found)?,
        };
        self.of.insert(operand.source, sum);
        Ok(())
    }

    /// The gradient of a value of a shape, if it has one.
    fn take(&mut self, gradient: &mut Gradient, source: Source, shape: &[usize]) -> Result<Option<Operand>> {
        self.of.remove(&source).map(|sum| gradient.reshape(sum, shape)).transpose()
    }
}

/// The gradient of a value, in one axis, from that of a view that shows all of it, in another order or shape.
fn placed_back(gradient: &mut Gradient, whole: &Layout, view: &Layout, mut found: Operand) -> Result<Operand> {
    if view != whole {
        let mut axes: Vec<_> = (0..view.shape().rank()).collect();
        axes.sort_by_key(|&axis| Reverse((view.strides()[axis], view.shape()[axis])));
        if !whole.is_contiguous() || !view.permute(&axes)?.is_contiguous() || view.shape().elements() != whole.shape().elements() {
            return Err(Error::unsupported("a view inside a fused operator has no gradient"));
        }
        found = found.view(found.info.layout.permute(&axes)?);
    }
    gradient.reshape(found, &[view.shape().elements()])
}
