//! Derivatives, as expressions over the functions of the table.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Binary, Compare, Unary};

/// What a derivative is computed by: a tree of the table's own functions.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// An argument of the function, counted from 0.
    Argument(usize),
    /// The function's value.
    Value,
    /// A number.
    Constant(f64),
    /// A function of one expression.
    Unary(Unary, Box<Expression>),
    /// A function of two.
    Binary(Binary, Box<[Expression; 2]>),
    /// The third where the comparison of the first two holds, else the fourth.
    Select(Compare, Box<[Expression; 4]>),
}

impl Expression {
    /// Its value, given the function's arguments and its value.
    pub fn evaluate(&self, arguments: &[f64], value: f64) -> f64 {
        let of = |expression: &Expression| expression.evaluate(arguments, value);
        match self {
            Expression::Argument(index) => arguments.get(*index).copied().unwrap_or(f64::NAN),
            Expression::Value => value,
            Expression::Constant(constant) => *constant,
            Expression::Unary(op, a) => op.reference([of(a)]),
            Expression::Binary(op, operands) => op.reference([of(&operands[0]), of(&operands[1])]),
            Expression::Select(op, operands) => {
                let [a, b, then, otherwise] = &**operands;
                if op.holds(of(a), of(b)) { of(then) } else { of(otherwise) }
            }
        }
    }
}

impl From<f64> for Expression {
    fn from(constant: f64) -> Self {
        Expression::Constant(constant)
    }
}

impl From<&Expression> for Expression {
    fn from(expression: &Expression) -> Self {
        expression.clone()
    }
}

impl Unary {
    /// The function of an expression.
    pub fn of(self, a: impl Into<Expression>) -> Expression {
        Expression::Unary(self, Box::new(a.into()))
    }
}

impl Binary {
    /// The function of two expressions.
    pub fn of(self, a: impl Into<Expression>, b: impl Into<Expression>) -> Expression {
        Expression::Binary(self, Box::new([a.into(), b.into()]))
    }
}

impl Compare {
    /// `then` where `a` and `b` compare so, else `otherwise`.
    pub fn select(
        self,
        a: impl Into<Expression>,
        b: impl Into<Expression>,
        then: impl Into<Expression>,
        otherwise: impl Into<Expression>,
    ) -> Expression {
        Expression::Select(self, Box::new([a.into(), b.into(), then.into(), otherwise.into()]))
    }
}

macro_rules! operators {
    ($expression:ty: $($trait:ident $method:ident)*) => {
        impl Neg for $expression {
            type Output = Expression;

            fn neg(self) -> Expression {
                Unary::Neg.of(self)
            }
        }

        $(
            impl<E: Into<Expression>> $trait<E> for $expression {
                type Output = Expression;

                fn $method(self, other: E) -> Expression {
                    Binary::$trait.of(self, other)
                }
            }

            impl $trait<$expression> for f64 {
                type Output = Expression;

                fn $method(self, other: $expression) -> Expression {
                    Binary::$trait.of(self, other)
                }
            }
        )*
    };
}
operators!(Expression: Add add Sub sub Mul mul Div div);
operators!(&Expression: Add add Sub sub Mul mul Div div);
