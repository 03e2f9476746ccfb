//! The one rule for functions of the table: their derivatives are expressions over the same table.

use elinvar_core::{DType, Error, Result};

use super::Gradient;
use crate::{
    binary::BinaryOp,
    functions::Expression,
    operator::{Definition, Operand, Operator, TensorInfo},
    unary::UnaryOp,
};

/// What an expression has: a tensor, or the same number everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Term {
    /// A tensor.
    Tensor(Operand),
    /// A number.
    Number(f64),
}

/// The gradient of an operator that computes a function of its inputs, and after them of a number if one is given, whose derivatives are these.
///
/// # Errors
/// It has no derivative; what [`Gradient::of`] rejects.
pub(crate) fn gradient(
    operator: &impl Operator,
    derivatives: Option<Vec<Expression>>,
    number: Option<f32>,
    inputs: &[Option<TensorInfo>],
    upstream: &[Option<TensorInfo>],
    wanted: &[bool],
) -> Result<Definition> {
    let derivatives = derivatives.ok_or_else(|| super::none(operator))?;
    Gradient::new(operator, inputs, upstream)?.of(wanted, |gradient, index| {
        let derivative = derivatives.get(index).ok_or_else(|| Error::internal("a function has fewer derivatives than arguments"))?;
        let (upstream, value) = (gradient.upstream(0)?, gradient.output(0)?);
        let sums = gradient.input(index)?.info.shape() != value.info.shape();
        let dtype = if !sums && is_one_operation(derivative) { value.info.dtype } else { DType::F32 };
        let mut arguments = Vec::new();
        for operand in 0..inputs.len() {
            let operand = gradient.input(operand)?;
            // What the expression does not mention is not converted: steps without a use are left out.
            arguments.push(Term::Tensor(gradient.cast(operand, dtype)?));
        }
        arguments.extend(number.map(|number| Term::Number(number.into())));
        let (upstream, value) = (gradient.cast(upstream, dtype)?, gradient.cast(value, dtype)?);
        match gradient.times(upstream, derivative, &arguments, Term::Tensor(value))? {
            Term::Tensor(result) => Ok(result),
            Term::Number(number) => {
                let result = gradient.number(dtype, number)?;
                gradient.broadcast(result, value.info.shape())
            }
        }
    })
}

/// Whether a product with it is at most one operation.
fn is_one_operation(expression: &Expression) -> bool {
    match expression {
        Expression::Argument(_) | Expression::Value | Expression::Constant(_) => true,
        Expression::Unary(..) | Expression::Binary(..) | Expression::Select(..) => false,
    }
}

impl Gradient {
    /// A number times an expression: what is chosen or divided is so after the product, so that a zero stays one beside what is not finite.
    fn times(&mut self, x: Operand, expression: &Expression, arguments: &[Term], value: Term) -> Result<Term> {
        let part = match expression {
            Expression::Unary(UnaryOp::Neg, a) => {
                let product = self.times(x, a, arguments, value)?;
                return self.function1(UnaryOp::Neg, product);
            }
            Expression::Binary(op @ (BinaryOp::Mul | BinaryOp::Div), operands) => {
                let [a, b] = &**operands;
                let product = self.times(x, a, arguments, value)?;
                let b = self.term(b, arguments, value)?;
                return self.function2(*op, product, b);
            }
            Expression::Select(op, operands) => {
                let [a, b, then, otherwise] = &**operands;
                let (a, b) = (self.term(a, arguments, value)?, self.term(b, arguments, value)?);
                let [then, otherwise] = [self.times(x, then, arguments, value)?, self.times(x, otherwise, arguments, value)?];
                return self.select(*op, [a, b, then, otherwise]);
            }
            Expression::Argument(_) | Expression::Value | Expression::Constant(_) | Expression::Unary(..) | Expression::Binary(..) => {
                self.term(expression, arguments, value)?
            }
        };
        self.function2(BinaryOp::Mul, Term::Tensor(x), part)
    }

    /// An expression of these arguments.
    pub(crate) fn term(&mut self, expression: &Expression, arguments: &[Term], value: Term) -> Result<Term> {
        let mut of = |expression: &Expression| self.term(expression, arguments, value);
        match expression {
            Expression::Argument(index) => {
                arguments.get(*index).copied().ok_or_else(|| Error::internal("a derivative has an argument that its function has not"))
            }
            Expression::Value => Ok(value),
            Expression::Constant(constant) => Ok(Term::Number(*constant)),
            Expression::Unary(op, a) => {
                let a = of(a)?;
                self.function1(*op, a)
            }
            Expression::Binary(op, operands) => {
                let [a, b] = [of(&operands[0])?, of(&operands[1])?];
                self.function2(*op, a, b)
            }
            Expression::Select(op, operands) => {
                let [a, b, then, otherwise] = &**operands;
                let terms = [of(a)?, of(b)?, of(then)?, of(otherwise)?];
                self.select(*op, terms)
            }
        }
    }

    fn function1(&mut self, op: UnaryOp, a: Term) -> Result<Term> {
        Ok(match a {
            Term::Tensor(a) => Term::Tensor(self.unary(op, a)?),
            Term::Number(a) => Term::Number(op.reference([a])),
        })
    }

    fn function2(&mut self, op: BinaryOp, a: Term, b: Term) -> Result<Term> {
        Ok(match (a, b) {
            (Term::Number(a), Term::Number(b)) => Term::Number(op.reference([a, b])),
            // The gradient of what does not matter is zero, also beside what is not finite.
            (Term::Number(0.0), Term::Tensor(_)) | (Term::Tensor(_), Term::Number(0.0)) if op == BinaryOp::Mul => Term::Number(0.0),
            (Term::Number(1.0), Term::Tensor(x)) | (Term::Tensor(x), Term::Number(1.0)) if op == BinaryOp::Mul => Term::Tensor(x),
            (Term::Number(-1.0), Term::Tensor(x)) | (Term::Tensor(x), Term::Number(-1.0)) if op == BinaryOp::Mul => {
                Term::Tensor(self.unary(UnaryOp::Neg, x)?)
            }
            (Term::Tensor(a), Term::Tensor(b)) => Term::Tensor(self.binary(op, a, b)?),
            (Term::Tensor(a), Term::Number(b)) => Term::Tensor(self.with_scalar(op, a, b)?),
            (Term::Number(a), Term::Tensor(b)) => {
                let a = self.number(b.info.dtype, a)?;
                Term::Tensor(self.binary(op, a, b)?)
            }
        })
    }

    fn select(&mut self, op: crate::compare::CompareOp, [a, b, then, otherwise]: [Term; 4]) -> Result<Term> {
        if let (Term::Number(a), Term::Number(b)) = (a, b) {
            return Ok(if op.holds(a, b) { then } else { otherwise });
        }
        let dtype = [a, b].iter().find_map(|term| match term {
            Term::Tensor(x) => Some(x.info.dtype),
            Term::Number(_) => None,
        });
        let dtype = dtype.unwrap_or(DType::F32);
        let mut tensor = |term: Term| match term {
            Term::Tensor(x) => Ok(x),
            Term::Number(number) => self.number(dtype, number),
        };
        let [a, b, then, otherwise] = [tensor(a)?, tensor(b)?, tensor(then)?, tensor(otherwise)?];
        let condition = self.compare(op, a, b)?;
        Ok(Term::Tensor(self.choose(condition, then, otherwise)?))
    }
}
