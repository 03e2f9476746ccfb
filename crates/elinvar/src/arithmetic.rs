//! Tensors between `+ - * / %` and after `-`, with tensors and with numbers.
//!
//! ```
//! use elinvar::Executor;
//!
//! let executor = Executor::new_auto()?;
//! let a = executor.tensor(&[3], &[1f32, 2.0, 3.0])?;
//! let b = executor.tensor(&[3], &[10f32, 20.0, 30.0])?;
//! assert_eq!((((&a + &b)? * 2.0)? - &a)?.to_vec::<f32>()?, [21.0, 42.0, 63.0]);
//! assert_eq!((1.0 / (-&a)?)?.to_vec::<f32>()?, [-1.0, -0.5, -1.0 / 3.0]);
//! # Ok::<(), elinvar::Error>(())
//! ```

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

use elinvar_core::Result;
use elinvar_kernels::{
    Scalar,
    binary::{Binary, BinaryOp},
    unary::WithScalar,
};

use crate::tensor::Tensor;

macro_rules! operators {
    ($($trait:ident $method:ident $of_tensors:ident $op:ident;)*) => {$(
        operators!(@tensors $trait $method $of_tensors: &Tensor, &Tensor; &Tensor, Tensor; Tensor, &Tensor; Tensor, Tensor);
        operators!(@numbers $trait $method $of_tensors $op: f64 i64);
    )*};
    (@tensors $trait:ident $method:ident $of_tensors:ident: $($left:ty, $right:ty);*) => {$(
        impl $trait<$right> for $left {
            type Output = Result<Tensor>;

            fn $method(self, other: $right) -> Result<Tensor> {
                Tensor::$of_tensors(&self, &other)
            }
        }
    )*};
    (@numbers $trait:ident $method:ident $of_tensors:ident $op:ident: $($number:ty)*) => {$(
        operators!(@number $trait $method $of_tensors $op $number: &Tensor, Tensor);
    )*};
    (@number $trait:ident $method:ident $of_tensors:ident $op:ident $number:ty: $($tensor:ty),*) => {$(
        impl $trait<$number> for $tensor {
            type Output = Result<Tensor>;

            fn $method(self, number: $number) -> Result<Tensor> {
                self.with_number(BinaryOp::$op, number.into())
            }
        }

        impl $trait<$tensor> for $number {
            type Output = Result<Tensor>;

            fn $method(self, tensor: $tensor) -> Result<Tensor> {
                Tensor::$of_tensors(&tensor.number(self.into())?, &tensor)
            }
        }
    )*};
}
operators! {
    Add add add Add;
    Sub sub sub Sub;
    Mul mul mul Mul;
    Div div div Div;
    Rem rem fmod Rem;
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;

    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}

impl Tensor {
    /// The number as a tensor that broadcasts with this one.
    pub(crate) fn number(&self, number: Scalar) -> Result<Tensor> {
        self.executor().full(self.dtype(), &[], number)
    }

    fn with_number(&self, op: BinaryOp, number: Scalar) -> Result<Tensor> {
        if self.dtype().is_float() {
            return self.apply(WithScalar { op, scalar: number.to_f64() as f32 }, &[]);
        }
        self.apply(Binary { op }, &[Some(&self.number(number)?)])
    }
}
