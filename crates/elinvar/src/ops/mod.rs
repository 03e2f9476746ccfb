//! Operators as methods of [`Tensor`], by families. Each row of [`operators!`] is an operator: its method, the method that writes into a tensor that exists,
//! in place where that makes sense, and an example for each. Other attributes than a method has are given with [`Tensor::apply`].

mod attention;
mod einsum;
mod functions;
mod indexing;
mod layout;
pub(crate) mod losses;
mod norms;
pub(crate) mod optimizers;
mod pairs;
mod products;
mod reductions;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use elinvar_core::{Error, Result};
use elinvar_kernels::{Operator, copy::Copy};

use crate::{executor::only, tensor::Tensor};

/// Methods of operators with one result. A row has
///
/// * what the method does, its name, that of its form `_into`, that of its form in place if it has one, and its arguments;
/// * the operator and its inputs after this tensor;
/// * its errors;
/// * an example: what is given, the arguments and the result as text, and type and shape of the result where they are not those of `x`.
macro_rules! operators {
    ($(
        $(#[$doc:meta])*
        $name:ident $into:ident $($in_place:ident)? (&$self:ident $(, $argument:ident: $type:ty)*) => $operator:expr $(, $other:expr)*;
        errors $errors:literal;
        example $given:expr; ($($first:literal $(, $next:literal)*)?) => $shown:literal $(of $out:literal)?;
    )*) => {
        impl $crate::Tensor {$(
            $(#[$doc])*
            ///
            #[doc = operators!(@example $given;
                "assert_eq!(x.", stringify!($name), "(", $($first $(, ", ", $next)*,)? ")?.to_string(), \"", $shown, "\");")]
            ///
            /// # Errors
            #[doc = $errors]
            pub fn $name(&$self $(, $argument: $type)*) -> elinvar_core::Result<$crate::Tensor> {
                $self.apply($operator, &[$($other),*])
            }

            #[doc = concat!("[`Tensor::", stringify!($name), "`](crate::Tensor::", stringify!($name), ") into a tensor that exists.")]
            ///
            #[doc = operators!(@example $given;
                "let out = executor.zeros(", operators!(@type $($out)?), ")?;\n",
                "x.", stringify!($into), "(", $($first, ", ", $($next, ", ",)*)? "&out)?;\nassert_eq!(out.to_string(), \"", $shown, "\");")]
            ///
            /// # Errors
            #[doc = concat!($errors, " And those of [`Executor::apply_into`](crate::Executor::apply_into).")]
            pub fn $into(&$self $(, $argument: $type)*, out: &$crate::Tensor) -> elinvar_core::Result<()> {
                $self.apply_into($operator, &[$($other),*], out)
            }

            operators! {
                @in_place $($in_place)? $name (&$self $(, $argument: $type)*) => $operator $(, $other)*;
                $errors; $given; ($($first $(, $next)*)?) => $shown
            }
        )*}
    };
    (@in_place $name:ident ($($arguments:tt)*) => $($rest:tt)*) => {};
    (
        @in_place $in_place:ident $name:ident (&$self:ident $(, $argument:ident: $type:ty)*) => $operator:expr $(, $other:expr)*;
        $errors:literal; $given:expr; ($($first:literal $(, $next:literal)*)?) => $shown:literal
    ) => {
        #[doc = concat!("[`Tensor::", stringify!($name), "`](crate::Tensor::", stringify!($name), ") in place: this tensor takes the result.")]
        ///
        #[doc = operators!(@example $given;
            "x.", stringify!($in_place), "(", $($first $(, ", ", $next)*,)? ")?;\nassert_eq!(x.to_string(), \"", $shown, "\");")]
        ///
        /// # Errors
        #[doc = concat!($errors, " A result of another type or shape; a view with gaps, or read-only memory.")]
        pub fn $in_place(&$self $(, $argument: $type)*) -> elinvar_core::Result<()> {
            $self.apply_in_place($operator, &[$($other),*])
        }
    };
    (@example $given:expr; $($line:expr),*) => {
        concat!(
            "```\n# use elinvar::{DType, Executor};\n# let executor = Executor::new_auto()?;\n", $given, "\n", $($line),*,
            "\n# Ok::<(), elinvar::Error>(())\n```"
        )
    };
    (@type) => { "x.dtype(), x.shape()" };
    (@type $out:literal) => { $out };
}
use operators;

impl Tensor {
    /// An operator of one result with this tensor as its first input: for attributes that no method has.
    ///
    /// ```
    /// use elinvar::{Executor, kernels::cumsum::CumSum};
    ///
    /// let executor = Executor::new_auto()?;
    /// let x = executor.tensor(&[3], &[1i32, 2, 3])?;
    /// assert_eq!(x.apply(CumSum { axis: 0, exclusive: true, reverse: true }, &[])?.to_vec::<i32>()?, [5, 3, 0]);
    /// # Ok::<(), elinvar::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Executor::apply`](crate::Executor::apply); an operator of several results.
    pub fn apply(&self, operator: impl Operator, others: &[Option<&Tensor>]) -> Result<Tensor> {
        only(self.apply_all(Arc::new(operator), others)?)
    }

    fn apply_all(&self, operator: Arc<dyn Operator>, others: &[Option<&Tensor>]) -> Result<Vec<Tensor>> {
        self.executor().apply(operator, &self.before(others))
    }

    fn apply_into(&self, operator: impl Operator, others: &[Option<&Tensor>], out: &Tensor) -> Result<()> {
        self.executor().apply_into(Arc::new(operator), &self.before(others), &[out])
    }

    /// A kernel may not write what it reads: the result is copied back.
    fn apply_in_place(&self, operator: impl Operator, others: &[Option<&Tensor>]) -> Result<()> {
        self.apply(operator, others)?.apply_into(Copy, &[], self)
    }

    /// An operator that updates this tensor, without a result.
    fn update(&self, operator: impl Operator, others: &[Option<&Tensor>]) -> Result<()> {
        self.apply_all(Arc::new(operator), others).map(drop)
    }

    fn before<'a>(&'a self, others: &[Option<&'a Tensor>]) -> Vec<Option<&'a Tensor>> {
        std::iter::once(Some(self)).chain(others.iter().copied()).collect()
    }
}

/// Takes the operands of a composition: all are recorded where one of them is, as those of one operator are.
fn recorded<'a>(operands: impl IntoIterator<Item = &'a Tensor>) -> impl Fn(&Tensor) -> Result<Tensor> {
    let executor = operands.into_iter().find_map(|tensor| Some(tensor.executor().with_recorder(Some(tensor.recorder()?.clone()))));
    move |tensor| match &executor {
        Some(executor) if tensor.recorder().is_none() => tensor.on(executor),
        Some(_) | None => Ok(tensor.clone()),
    }
}

/// The outputs of an operator that has two.
fn pair(outputs: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
    match <[Tensor; 2]>::try_from(outputs) {
        Ok([first, second]) => Ok((first, second)),
        Err(_) => Err(Error::invalid_launch("the operator does not have exactly two outputs")),
    }
}
