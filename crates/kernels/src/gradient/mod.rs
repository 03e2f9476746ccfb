//! Gradients, as data: what an operator's inputs get when its outputs have gradients.
//!
//! [`Operator::gradient`] gives a [`Definition`] over the operator's inputs, its outputs and the gradients of its outputs, in this order; its outputs are the
//! gradients of the wanted inputs. So whatever executes definitions, differentiates them or finds them in a graph has gradients too.
//!
//! * Derivatives of scalar functions come from their table ([`scalar`]); a fused operator's follow from what it stands for ([`composed`]).
//! * Numbers narrower than f32 are widened first where there is more than one operation, and rounded once.
//! * A broadcast operand gets the sum over what it was repeated for, in the order of [`reduce`](crate::reduce).
//! * Order: every step is a strict operator, or has the precision of the operator that it is the gradient of, but fast
//!   for invariant ([`Precision::of_gradients`](crate::Precision::of_gradients)). Nothing depends on which thread comes first.

mod composed;
pub(crate) mod scalar;

use elinvar_core::{DType, Error, Layout, Result, Shape};

use crate::{
    Scalar,
    binary::{Binary, BinaryOp},
    cast::Cast,
    compare::{Compare, CompareOp},
    copy::Copy,
    fill::Fill,
    operator::{Definition, Operand, Operator, TensorInfo},
    reduce::{Reduce, Reduction},
    ternary::Where,
    unary::{Unary, UnaryOp, WithScalar},
};

/// The error of an operator without a gradient.
pub(crate) fn none(operator: &(impl Operator + ?Sized)) -> Error {
    Error::unsupported(format!("{} has no gradient", operator.name()))
}

/// The gradient of an operator while it is written down.
pub(crate) struct Gradient {
    steps: Definition,
    inputs: Vec<Option<TensorInfo>>,
    outputs: Vec<TensorInfo>,
    /// What was converted, from what.
    converted: Vec<(Operand, Operand)>,
}

impl Gradient {
    /// Of an operator with these inputs, whose outputs have gradients of these types, or none.
    ///
    /// # Errors
    /// What the operator rejects; gradients that are not of the outputs' shapes and types.
    pub(crate) fn new(operator: &(impl Operator + ?Sized), inputs: &[Option<TensorInfo>], upstream: &[Option<TensorInfo>]) -> Result<Self> {
        let outputs = operator.infer(inputs)?;
        let fits = |(output, upstream): (&TensorInfo, &Option<TensorInfo>)| {
            upstream.is_none_or(|upstream| (upstream.dtype, upstream.shape()) == (output.dtype, output.shape()))
        };
        if upstream.len() != outputs.len() || !outputs.iter().zip(upstream).all(fits) {
            return Err(Error::invalid_argument(format!("{}: a gradient is given that is not of its output's type and shape", operator.name())));
        }
        let all: Vec<_> = inputs.iter().copied().chain(outputs.iter().copied().map(Some)).chain(upstream.iter().copied()).collect();
        Ok(Self { steps: Definition::new(&all), inputs: inputs.to_vec(), outputs, converted: Vec::new() })
    }

    /// The operator's input.
    pub(crate) fn input(&self, index: usize) -> Result<Operand> {
        self.optional(index).ok_or_else(|| Error::internal("the gradient of an absent input is taken"))
    }

    /// The operator's input, if it is there.
    pub(crate) fn optional(&self, index: usize) -> Option<Operand> {
        self.inputs.get(index).copied().flatten().and_then(|_| self.steps.input(index))
    }

    /// What the operator gave.
    pub(crate) fn output(&self, index: usize) -> Result<Operand> {
        self.steps.input(self.inputs.len() + index).ok_or_else(|| Error::internal("the gradient of an absent output is taken"))
    }

    /// The gradient of an output; zeros if it has none.
    pub(crate) fn upstream(&mut self, index: usize) -> Result<Operand> {
        match self.steps.input(self.inputs.len() + self.outputs.len() + index) {
            Some(upstream) => Ok(upstream),
            None => {
                let TensorInfo { dtype, layout } = self.outputs[index];
                self.zeros(dtype, layout.shape())
            }
        }
    }

    /// Ends it: `rule` gives the gradient of each wanted input, by its index, in the input's shape or one that it broadcasts to, of any floating-point type.
    ///
    /// # Errors
    /// Those of `rule`; an input that has no gradient because its numbers are not real, or that is absent.
    pub(crate) fn of(mut self, wanted: &[bool], mut rule: impl FnMut(&mut Self, usize) -> Result<Operand>) -> Result<Definition> {
        for index in (0..wanted.len()).filter(|&index| wanted[index]) {
            let info = self.input(index)?.info;
            if !info.dtype.is_float() {
                return Err(Error::unsupported(format!("input {index} is {}: only floating-point numbers have a gradient", info.dtype)));
            }
            let gradient = rule(&mut self, index)?;
            let gradient = self.sum_to(gradient, info.shape(), info.dtype)?;
            self.steps.outputs.push(gradient);
        }
        Ok(self.steps.pruned())
    }

    /// An operator of one output.
    pub(crate) fn apply(&mut self, operator: impl Operator, inputs: &[Operand]) -> Result<Operand> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.steps.apply_one(operator, &inputs)
    }

    /// An operator of several outputs, some of whose inputs may be absent.
    pub(crate) fn apply_all(&mut self, operator: impl Operator, inputs: &[Option<Operand>]) -> Result<Vec<Operand>> {
        self.steps.apply(operator, inputs)
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: Operand) -> Result<Operand> {
        self.apply(Unary { op }, &[x])
    }

    pub(crate) fn binary(&mut self, op: BinaryOp, a: Operand, b: Operand) -> Result<Operand> {
        self.apply(Binary { op }, &[a, b])
    }

    pub(crate) fn mul(&mut self, a: Operand, b: Operand) -> Result<Operand> {
        self.binary(BinaryOp::Mul, a, b)
    }

    pub(crate) fn with_scalar(&mut self, op: BinaryOp, x: Operand, scalar: f64) -> Result<Operand> {
        self.apply(WithScalar { op, scalar: scalar as f32 }, &[x])
    }

    pub(crate) fn compare(&mut self, op: CompareOp, a: Operand, b: Operand) -> Result<Operand> {
        self.apply(Compare { op }, &[a, b])
    }

    pub(crate) fn choose(&mut self, condition: Operand, a: Operand, b: Operand) -> Result<Operand> {
        self.apply(Where, &[condition, a, b])
    }

    /// A number, of no axes.
    pub(crate) fn number(&mut self, dtype: DType, value: f64) -> Result<Operand> {
        self.apply(Fill { shape: Vec::new(), dtype, value: Scalar::Float(value) }, &[])
    }

    /// Zeros that lie in one.
    pub(crate) fn zeros(&mut self, dtype: DType, shape: &Shape) -> Result<Operand> {
        let zero = self.number(dtype, 0.0)?;
        self.broadcast(zero, shape)
    }

    pub(crate) fn cast(&mut self, x: Operand, to: DType) -> Result<Operand> {
        if x.info.dtype == to {
            return Ok(x);
        }
        if let Some((_, known)) = self.converted.iter().find(|(from, known)| *from == x && known.info.dtype == to) {
            return Ok(*known);
        }
        let converted = self.apply(Cast { to }, &[x])?;
        self.converted.push((x, converted));
        Ok(converted)
    }

    /// In the type that narrower numbers compute in.
    pub(crate) fn widened(&mut self, x: Operand) -> Result<Operand> {
        self.cast(x, DType::F32)
    }

    pub(crate) fn broadcast(&self, x: Operand, shape: &Shape) -> Result<Operand> {
        Ok(x.view(x.info.layout.broadcast_to(*shape)?))
    }

    pub(crate) fn reshape(&mut self, x: Operand, dims: &[usize]) -> Result<Operand> {
        let shape = Shape::new(dims)?;
        match x.info.layout.reshape(shape)? {
            Some(layout) => Ok(x.view(layout)),
            None => {
                let x = self.apply(Copy, &[x])?;
                Ok(x.view(Layout::contiguous(shape)))
            }
        }
    }

    /// A reduction that keeps the axes.
    pub(crate) fn reduce(&mut self, reduction: Reduction, x: Operand, axes: &[usize]) -> Result<Operand> {
        if axes.is_empty() {
            return Ok(x);
        }
        let axes = axes.iter().map(|&axis| axis as isize).collect();
        self.apply(Reduce { reduction, axes, keepdims: true }, &[x])
    }

    /// The sum over what a shape was repeated for to give that of `x`, of a type.
    pub(crate) fn sum_to(&mut self, mut x: Operand, shape: &Shape, dtype: DType) -> Result<Operand> {
        let from = *x.info.shape();
        let lead = from.rank().saturating_sub(shape.rank());
        let repeated: Vec<_> = (0..from.rank()).filter(|&axis| from[axis] != if axis < lead { 1 } else { shape[axis - lead] }).collect();
        if !repeated.is_empty() {
            if x.info.dtype != dtype {
                x = self.widened(x)?;
            }
            x = self.reduce(Reduction::Sum, x, &repeated)?;
        }
        if x.info.shape() != shape {
            x = self.reshape(x, shape)?;
        }
        self.cast(x, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::{DType, Operator, Result, TensorInfo};
    use crate::{Precision, attention::Attention, matmul::MatMul};

    #[test]
    fn gradients_are_strict_or_fast() -> Result<()> {
        let matrix = Some(TensorInfo::new(DType::F32, &[4, 4])?);
        let heads = Some(TensorInfo::new(DType::F32, &[1, 2, 3, 8])?);
        for (precision, expected) in
            [(Precision::Strict, Precision::Strict), (Precision::Invariant, Precision::Fast), (Precision::Fast, Precision::Fast)]
        {
            let product = MatMul { precision, ..MatMul::default() }.gradient(&[matrix, matrix, None], &[matrix], &[true, true, false])?;
            let attention = Attention { precision, ..Attention::default() };
            let attention = attention.gradient(&[heads, heads, heads, None, None, None], &[heads], &[true, true, true, false, false, false])?;
            for (definition, name, count) in [(product, "matmul", 2), (attention, "attention_gradient", 1)] {
                let found: Vec<_> =
                    definition.steps.iter().filter(|step| step.operator.name() == name).map(|step| step.operator.precision()).collect();
                assert_eq!(found, vec![expected; count], "{name}, {precision}");
            }
        }
        Ok(())
    }
}
