//! What stands between tensors: arithmetic, comparisons, logic.

#![allow(unsafe_op_in_unsafe_fn, reason = "what pyo3 makes of binary operators")]

use elinvar::{DType as Element, Result, Scalar, Tensor as Inner};
use pyo3::{
    Bound, Py, PyAny, PyRef, PyResult, Python,
    basic::CompareOp,
    exceptions::{PyTypeError, PyValueError},
    intern, pymethods,
    types::{PyAnyMethods, PyBool, PyFloat, PyInt},
};

use super::{Tensor, scalar};
use crate::{dtype::name, promote};

/// An operator of two tensors of one type.
type Pair = fn(&Inner, &Inner) -> Result<Inner>;

/// Which types an operator takes.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Numbers,
    /// Whole numbers become float32 first.
    Real,
    /// Whole numbers and truth values.
    Bits,
    All,
}

/// The second operand.
enum Other<'py> {
    Tensor(PyRef<'py, Tensor>),
    Number(Scalar, bool),
}

fn other<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Other<'py>>> {
    if let Ok(tensor) = object.cast::<Tensor>() {
        return Ok(Some(Other::Tensor(tensor.borrow())));
    }
    let is_number = object.is_instance_of::<PyFloat>() || object.is_instance_of::<PyInt>();
    // NumPy's numbers.
    let is_generic = || object.getattr(intern!(object.py(), "ndim")).is_ok_and(|rank| rank.eq(0).unwrap_or(false));
    if is_number || is_generic() {
        let is_bool = object.is_instance_of::<PyBool>();
        return scalar(object).map(|number| Some(Other::Number(number, is_bool)));
    }
    // NumPy's arrays and PyTorch's tensors: without this Python would report what they tried.
    if object.hasattr(intern!(object.py(), "__dlpack__"))? {
        return Err(PyTypeError::new_err(format!("an elinvar.Tensor and {}: make a tensor of it first, with executor.tensor", object.get_type())));
    }
    Ok(None)
}

fn cast(tensor: &Inner, to: Element) -> Result<Inner> {
    tensor.cast(to)
}

/// The type to compute in.
fn checked(dtype: Element, takes: Takes, what: &str) -> PyResult<Element> {
    let fits = match takes {
        Takes::Numbers | Takes::Real => dtype != Element::Bool,
        Takes::Bits => dtype.is_integer() || dtype == Element::Bool,
        Takes::All => true,
    };
    if !fits {
        let expected = if takes == Takes::Bits { "whole numbers or truth values are" } else { "numbers are" };
        return Err(PyTypeError::new_err(format!("{what} of {}: {expected} expected", name(dtype))));
    }
    Ok(if takes == Takes::Real && dtype.is_integer() { Element::F32 } else { dtype })
}

/// Arithmetic with a number in place of a tensor of it.
fn with_number(what: &str, x: &Inner, number: f64) -> Option<Result<Inner>> {
    Some(match what {
        "+" => x + number,
        "-" => x - number,
        "*" => x * number,
        "/" => x / number,
        _ => return None,
    })
}

impl Tensor {
    /// Applies an operator; None where the other operand is nothing that it takes.
    fn pair(&self, py: Python<'_>, with: &Bound<'_, PyAny>, what: &str, (takes, run): (Takes, Pair), is_reversed: bool) -> PyResult<Option<Self>> {
        let Some(with) = other(with)? else { return Ok(None) };
        let made = match with {
            Other::Tensor(with) => {
                let dtype = checked(promote::types(self.dtype(), with.dtype())?, takes, what)?;
                self.context.call(py, [self, &with], |[a, b]| {
                    if a.dtype() == dtype && b.dtype() == dtype { run(a, b) } else { run(&cast(a, dtype)?, &cast(b, dtype)?) }
                })?
            }
            Other::Number(number, is_bool) => {
                let dtype = checked(promote::with_scalar(self.dtype(), number, is_bool), takes, what)?;
                self.context.call(py, [self], |[x]| {
                    let x = cast(x, dtype)?;
                    if dtype.is_float()
                        && !is_reversed
                        && let Some(made) = with_number(what, &x, number.to_f64())
                    {
                        return made;
                    }
                    let number = x.executor().full(dtype, &[], number)?;
                    if is_reversed { run(&number, &x) } else { run(&x, &number) }
                })?
            }
        };
        Ok(Some(Self::new(&self.context, made)))
    }

    /// The same for a function that takes only what it can.
    pub(crate) fn paired(&self, py: Python<'_>, with: &Bound<'_, PyAny>, what: &str, run: Pair) -> PyResult<Self> {
        let found = self.pair(py, with, what, (Takes::All, run), false)?;
        found.ok_or_else(|| PyTypeError::new_err(format!("{what} with {}: a tensor or a number is expected", with.get_type())))
    }

    /// Applies an operator in place.
    fn change(&self, py: Python<'_>, with: &Bound<'_, PyAny>, what: &str, operator: (Takes, Pair)) -> PyResult<()> {
        if self.tensor().is_tracked() && self.context.take(self)?.is_tracked() {
            let why = "no gradient flows through a change in place: use the operator that gives a new tensor, or elinvar.no_grad()";
            return Err(PyValueError::new_err(format!("{what}=: {why}")));
        }
        let made = self.pair(py, with, what, operator, false)?;
        let made = made.ok_or_else(|| PyTypeError::new_err(format!("{what}= {}: a tensor or a number is expected", with.get_type())))?;
        if made.dtype() != self.dtype() {
            let (result, own) = (name(made.dtype()), name(self.dtype()));
            return Err(PyTypeError::new_err(format!("{what}= gives {result}, which a tensor of {own} in place cannot take: convert it first")));
        }
        if made.made.shape() != self.made.shape() {
            let (result, own) = (made.made.shape(), self.made.shape());
            return Err(PyValueError::new_err(format!("{what}= gives shape {result}, which a tensor of shape {own} in place cannot take")));
        }
        self.context.call(py, [self, &made], |[x, made]| x.detach().copy_from(made))
    }
}

/// x − y · floor(x / y): of the sign of y.
pub(crate) fn remainder(x: &Inner, y: &Inner) -> Result<Inner> {
    let mut rest = x.fmod(y)?;
    if !is_signed(x.dtype()) {
        return Ok(rest);
    }
    if x.dtype().is_float() {
        // Of a number nothing fits into what is infinite; an infinite one leaves no number.
        rest = is_infinite(y)?.select(&x.add(&x.sub(x)?)?, &rest)?;
    }
    adjust(&rest, y)?.select(&rest.add(y)?, &rest)
}

/// Where division towards zero differs from division downwards.
fn adjust(rest: &Inner, y: &Inner) -> Result<Inner> {
    let zero = rest.executor().full(rest.dtype(), &[], 0)?;
    rest.ne(&zero)?.logical_and(&rest.lt(&zero)?.ne(&y.lt(&zero)?)?)
}

fn is_infinite(x: &Inner) -> Result<Inner> {
    x.abs()?.eq(&x.executor().full(x.dtype(), &[], f64::INFINITY)?)
}

fn is_signed(dtype: Element) -> bool {
    dtype.is_float() || promote::is_signed(dtype)
}

pub(crate) fn floor_divide(x: &Inner, y: &Inner) -> Result<Inner> {
    if x.dtype().is_float() {
        let (whole, quotient) = (x.sub(&remainder(x, y)?)?.div(y)?.round()?, x.div(y)?);
        // What is infinite on either side leaves no remainder to take away.
        let is_plain = is_infinite(y)?.logical_or(&is_infinite(&quotient)?)?.logical_not()?;
        return is_plain.select(&whole, &quotient.floor()?);
    }
    let quotient = x.div(y)?;
    if !is_signed(x.dtype()) {
        return Ok(quotient);
    }
    let one = x.executor().full(x.dtype(), &[], 1)?;
    adjust(&x.fmod(y)?, y)?.select(&quotient.sub(&one)?, &quotient)
}

fn and(a: &Inner, b: &Inner) -> Result<Inner> {
    if a.dtype() == Element::Bool { a.logical_and(b) } else { a.bitwise_and(b) }
}

fn or(a: &Inner, b: &Inner) -> Result<Inner> {
    if a.dtype() == Element::Bool { a.logical_or(b) } else { a.bitwise_or(b) }
}

fn xor(a: &Inner, b: &Inner) -> Result<Inner> {
    if a.dtype() == Element::Bool { a.logical_xor(b) } else { a.bitwise_xor(b) }
}

macro_rules! operators {
    ($($symbol:literal $takes:ident $run:path: $forward:ident $reversed:ident $in_place:ident;)*) => {
        #[pymethods]
        impl Tensor {$(
            fn $forward(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                result(py, self.pair(py, other, $symbol, (Takes::$takes, $run), false)?)
            }

            fn $reversed(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
                result(py, self.pair(py, other, $symbol, (Takes::$takes, $run), true)?)
            }

            fn $in_place(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                self.change(py, other, $symbol, (Takes::$takes, $run))
            }
        )*}
    };
}

operators! {
    "+" Numbers Inner::add: __add__ __radd__ __iadd__;
    "-" Numbers Inner::sub: __sub__ __rsub__ __isub__;
    "*" Numbers Inner::mul: __mul__ __rmul__ __imul__;
    "/" Real Inner::div: __truediv__ __rtruediv__ __itruediv__;
    "//" Numbers floor_divide: __floordiv__ __rfloordiv__ __ifloordiv__;
    "%" Numbers remainder: __mod__ __rmod__ __imod__;
    "&" Bits and: __and__ __rand__ __iand__;
    "|" Bits or: __or__ __ror__ __ior__;
    "^" Bits xor: __xor__ __rxor__ __ixor__;
    "<<" Bits Inner::left_shift: __lshift__ __rlshift__ __ilshift__;
    ">>" Bits Inner::right_shift: __rshift__ __rrshift__ __irshift__;
}

fn result(py: Python<'_>, made: Option<Tensor>) -> PyResult<Py<PyAny>> {
    match made {
        Some(made) => Ok(Py::new(py, made)?.into_any()),
        None => Ok(py.NotImplemented()),
    }
}

#[pymethods]
impl Tensor {
    /// NumPy's arrays leave operators with a tensor to it.
    #[classattr]
    #[pyo3(name = "__array_ufunc__")]
    fn array_ufunc(py: Python<'_>) -> Py<PyAny> {
        py.None()
    }

    /// Each class that compares by elements hashes by identity.
    fn __hash__(slf: PyRef<'_, Self>) -> usize {
        slf.as_ptr().addr() >> 4
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let (what, run): (_, Pair) = match op {
            CompareOp::Eq => ("==", Inner::eq),
            CompareOp::Ne => ("!=", Inner::ne),
            CompareOp::Lt => ("<", Inner::lt),
            CompareOp::Le => ("<=", Inner::le),
            CompareOp::Gt => (">", Inner::gt),
            CompareOp::Ge => (">=", Inner::ge),
        };
        result(py, self.pair(py, other, what, (Takes::All, run), false)?)
    }

    fn __pow__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, modulus: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if !modulus.is_none() {
            return Ok(py.NotImplemented());
        }
        result(py, self.pair(py, other, "**", (Takes::Numbers, Inner::pow), false)?)
    }

    fn __rpow__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, _modulus: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        result(py, self.pair(py, other, "**", (Takes::Numbers, Inner::pow), true)?)
    }

    fn __ipow__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, _modulus: &Bound<'_, PyAny>) -> PyResult<()> {
        self.change(py, other, "**", (Takes::Numbers, Inner::pow))
    }

    fn __matmul__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        if other.cast::<Tensor>().is_err() {
            return Ok(py.NotImplemented());
        }
        result(py, self.pair(py, other, "@", (Takes::Numbers, Inner::matmul), false)?)
    }

    fn __neg__(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(&self.context, self.context.call(py, [self], |[x]| x.neg())?))
    }

    fn __pos__(&self) -> Self {
        self.view(self.tensor().clone())
    }

    fn __abs__(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(
            &self.context,
            self.context.call(py, [self], |[x]| if promote::is_signed(x.dtype()) || x.dtype().is_float() { x.abs() } else { x.copy() })?,
        ))
    }

    fn __invert__(&self, py: Python<'_>) -> PyResult<Self> {
        checked(self.dtype(), Takes::Bits, "~")?;
        let made = self.context.call(py, [self], |[x]| if x.dtype() == Element::Bool { x.logical_not() } else { x.bitwise_not() })?;
        Ok(Self::new(&self.context, made))
    }
}
