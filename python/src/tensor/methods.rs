//! Methods: shapes, reductions, functions.

use elinvar::{DType as Element, Result, Tensor as Inner};
use pyo3::{
    Bound, Py, PyAny, PyRef, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pyfunction, pymethods,
    types::{PyAnyMethods, PyTuple, PyTupleMethods},
};

use super::Tensor;
use crate::{dtype, errors::raise, promote};

/// Axes as an argument says them: None, a whole number, or several.
fn axes(axis: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<isize>>> {
    let Some(axis) = axis.filter(|axis| !axis.is_none()) else { return Ok(None) };
    match axis.extract::<isize>() {
        Ok(axis) => Ok(Some(vec![axis])),
        Err(_) => axis.extract().map(Some).map_err(|_| PyTypeError::new_err(format!("axis {axis}: a whole number or a tuple of them is expected"))),
    }
}

/// The extents of `reshape(2, 3)` and of `reshape((2, 3))`.
fn extents(given: &Bound<'_, PyTuple>) -> PyResult<Vec<isize>> {
    let wrong = |_| PyTypeError::new_err(format!("{given}: whole numbers are expected"));
    if given.len() == 1
        && let Ok(inner) = given.get_item(0)?.extract::<Vec<isize>>()
    {
        return Ok(inner);
    }
    given.extract::<Vec<isize>>().map_err(wrong)
}

fn reduced(run: impl Fn(&Inner, &[isize], bool) -> Result<Inner>, x: &Inner, axes: Option<&[isize]>, keepdims: bool) -> Result<Inner> {
    match axes {
        // None stand for all in the library, and for none in the standard.
        Some([]) => Ok(x.clone()),
        Some(axes) => run(x, axes, keepdims),
        None => run(x, &[], keepdims),
    }
}

impl Tensor {
    fn made_by(&self, py: Python<'_>, run: impl FnOnce(&Inner) -> Result<Inner> + Send) -> PyResult<Self> {
        Ok(Self::new(&self.context, self.context.call(py, [self], |[x]| run(x))?))
    }

    fn seen_by(&self, py: Python<'_>, run: impl FnOnce(&Inner) -> Result<Inner> + Send) -> PyResult<Self> {
        Ok(self.view(self.context.call(py, [self], |[x]| run(x))?))
    }

    /// A reduction, in this type or in `dtype`.
    fn reduce(
        &self,
        py: Python<'_>,
        axis: Option<&Bound<'_, PyAny>>,
        keepdims: bool,
        dtype: Option<Element>,
        run: fn(&Inner, &[isize], bool) -> Result<Inner>,
    ) -> PyResult<Self> {
        let axes = axes(axis)?;
        let dtype = dtype.unwrap_or(self.dtype());
        self.made_by(py, |x| reduced(run, &x.cast(dtype)?, axes.as_deref(), keepdims))
    }

    /// The type of sums: the standard's default integer for narrower ones.
    fn sum_type(&self, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<Element> {
        if let Some(dtype) = dtype.filter(|dtype| !dtype.is_none()) {
            return dtype::parse(dtype);
        }
        Ok(match self.dtype() {
            dtype if promote::is_signed(dtype) || dtype == Element::Bool => Element::I64,
            dtype if dtype.is_integer() => Element::U64,
            dtype => dtype,
        })
    }
}

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {
        #[pymethods]
        impl Tensor {$(
            $(#[doc = $doc])*
            fn $name(&self, py: Python<'_>) -> PyResult<Self> {
                self.made_by(py, |x| if x.dtype().is_integer() { x.cast(Element::F32)?.$name() } else { x.$name() })
            }
        )*}
    };
}

functions! {
    /// The exponential of each element; whole numbers become float32.
    exp;
    /// The natural logarithm.
    log;
    /// The logarithm to base 2.
    log2;
    /// The logarithm to base 10.
    log10;
    /// log(1 + x), also where x is small.
    log1p;
    /// The square root.
    sqrt;
    /// 1 / √x
    rsqrt;
    /// 1 / x
    reciprocal;
    /// The sine of x radians.
    sin;
    /// The cosine of x radians.
    cos;
    /// The tangent of x radians.
    tan;
    /// The hyperbolic tangent.
    tanh;
    /// 1 / (1 + e⁻ˣ)
    sigmoid;
    /// x · sigmoid(x)
    silu;
    /// x · Φ(x), by the error function.
    gelu;
    /// The error function.
    erf;
}

macro_rules! whole {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {
        #[pymethods]
        impl Tensor {$(
            $(#[doc = $doc])*
            fn $name(&self, py: Python<'_>) -> PyResult<Self> {
                self.made_by(py, |x| if x.dtype().is_integer() { x.copy() } else { x.$name() })
            }
        )*}
    };
}

whole! {
    /// Rounded down to a whole number.
    floor;
    /// Rounded up to a whole number.
    ceil;
    /// Rounded to a whole number, towards zero.
    trunc;
    /// Rounded to the nearest whole number, ties to even.
    round;
}

#[pymethods]
impl Tensor {
    /// max(x, 0)
    fn relu(&self, py: Python<'_>) -> PyResult<Self> {
        self.made_by(py, Inner::relu)
    }

    /// x · x
    fn square(&self, py: Python<'_>) -> PyResult<Self> {
        self.made_by(py, |x| x.mul(x))
    }

    /// −1, 0 or 1 by the sign of each element.
    fn sign(&self, py: Python<'_>) -> PyResult<Self> {
        self.made_by(py, Inner::sign)
    }

    /// The axes in reverse order. Raises `ValueError` unless there are two.
    #[getter]
    #[pyo3(name = "T")]
    fn transposed(&self, py: Python<'_>) -> PyResult<Self> {
        if self.ndim() != 2 {
            return Err(PyValueError::new_err(format!("T of a tensor with {} axes: two are expected; use permute_dims or mT", self.ndim())));
        }
        self.seen_by(py, |x| x.transpose(0, 1))
    }

    /// The last two axes exchanged.
    #[getter]
    #[pyo3(name = "mT")]
    fn matrix_transposed(&self, py: Python<'_>) -> PyResult<Self> {
        self.seen_by(py, |x| x.transpose(-2, -1))
    }

    /// The same elements in another shape, of which one extent may be −1: a view where they are row-major. `copy=False` raises `ValueError` where they are not.
    #[pyo3(signature = (*shape, copy = None))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>, copy: Option<bool>) -> PyResult<Self> {
        let mut wanted = extents(shape)?;
        let elements = self.made.shape().elements();
        if let Some(at) = wanted.iter().position(|&extent| extent == -1) {
            let rest: isize = wanted.iter().enumerate().filter(|(axis, _)| *axis != at).map(|(_, extent)| extent).product();
            if rest <= 0 || elements as isize % rest != 0 {
                return Err(PyValueError::new_err(format!("reshape of {} to {wanted:?}: the number of elements does not fit", self.made.shape())));
            }
            wanted[at] = elements as isize / rest;
        }
        let dims: Vec<usize> = wanted.iter().map(|&extent| usize::try_from(extent)).collect::<std::result::Result<_, _>>().map_err(|_| {
            PyValueError::new_err(format!("reshape of {} to {wanted:?}: extents from 0 on, and at most one -1, are expected", self.made.shape()))
        })?;
        let shape = elinvar::Shape::new(&dims).map_err(raise)?;
        let is_view = self.made.layout().reshape(shape).map_err(raise)?.is_some();
        if copy == Some(false) && !is_view {
            return Err(PyValueError::new_err("reshape needs a copy of elements that are not row-major, and copy=False"));
        }
        if copy == Some(true) {
            return self.made_by(py, |x| x.copy()?.reshape(&dims));
        }
        if is_view { self.seen_by(py, |x| x.reshape(&dims)) } else { self.made_by(py, |x| x.copy()?.reshape(&dims)) }
    }

    /// A view with the axes in another order.
    #[pyo3(signature = (*axes))]
    fn permute_dims(&self, py: Python<'_>, axes: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let rank = self.ndim() as isize;
        let axes = extents(axes)?.into_iter().map(|axis| usize::try_from(if axis < 0 { axis + rank } else { axis }));
        let axes = axes
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|_| PyValueError::new_err(format!("axes of a tensor with {rank} axes: an axis is outside")))?;
        self.seen_by(py, |x| x.permute(&axes))
    }

    /// A view with an axis of extent one at `axis`.
    #[pyo3(signature = (axis = 0))]
    fn expand_dims(&self, py: Python<'_>, axis: isize) -> PyResult<Self> {
        self.seen_by(py, |x| x.unsqueeze(axis))
    }

    /// A view without axes of extent one: those given, or all.
    #[pyo3(signature = (axis = None))]
    fn squeeze(&self, py: Python<'_>, axis: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let shape = self.made.shape();
        let rank = shape.rank() as isize;
        let mut gone = match axes(axis)? {
            Some(axes) => axes.iter().map(|axis| if *axis < 0 { axis + rank } else { *axis }).collect(),
            None => (0..rank).filter(|axis| shape[*axis as usize] == 1).collect::<Vec<_>>(),
        };
        gone.sort_unstable_by(|a, b| b.cmp(a));
        if gone.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(PyValueError::new_err("squeeze: an axis is given twice"));
        }
        self.seen_by(py, |x| gone.iter().try_fold(x.clone(), |x, &axis| x.squeeze(axis)))
    }

    /// A view that repeats axes of extent one.
    fn broadcast_to(&self, py: Python<'_>, shape: &Bound<'_, PyAny>) -> PyResult<Self> {
        let dims = crate::executor::extents(shape)?;
        self.seen_by(py, |x| x.broadcast_to(&dims))
    }

    /// The elements in one axis.
    fn flatten(&self, py: Python<'_>) -> PyResult<Self> {
        self.seen_by(py, Inner::flatten)
    }

    /// The elements converted to another type; the same memory where they have it and `copy=False`.
    #[pyo3(signature = (dtype, /, *, copy = true))]
    fn astype(&self, py: Python<'_>, dtype: &Bound<'_, PyAny>, copy: bool) -> PyResult<Self> {
        let dtype = dtype::parse(dtype)?;
        if dtype != self.dtype() {
            return self.made_by(py, |x| x.cast(dtype));
        }
        if copy { self.made_by(py, Inner::copy) } else { Ok(self.view(self.tensor().clone())) }
    }

    /// The elements in memory of their own, row-major.
    fn copy(&self, py: Python<'_>) -> PyResult<Self> {
        self.made_by(py, Inner::copy)
    }

    /// Itself if it is row-major, else a row-major copy.
    fn contiguous(&self, py: Python<'_>) -> PyResult<Self> {
        if self.made.layout().is_contiguous() { Ok(self.view(self.tensor().clone())) } else { self.copy(py) }
    }

    /// The sum along axes; narrow whole numbers are added up in 64 bits.
    #[pyo3(signature = (axis = None, *, dtype = None, keepdims = false))]
    fn sum(&self, py: Python<'_>, axis: Option<&Bound<'_, PyAny>>, dtype: Option<&Bound<'_, PyAny>>, keepdims: bool) -> PyResult<Self> {
        self.reduce(py, axis, keepdims, Some(self.sum_type(dtype)?), Inner::sum)
    }

    /// The product along axes; narrow whole numbers are multiplied in 64 bits.
    #[pyo3(signature = (axis = None, *, dtype = None, keepdims = false))]
    fn prod(&self, py: Python<'_>, axis: Option<&Bound<'_, PyAny>>, dtype: Option<&Bound<'_, PyAny>>, keepdims: bool) -> PyResult<Self> {
        self.reduce(py, axis, keepdims, Some(self.sum_type(dtype)?), Inner::prod)
    }

    /// The mean along axes; whole numbers become float32.
    #[pyo3(signature = (axis = None, *, keepdims = false))]
    fn mean(&self, py: Python<'_>, axis: Option<&Bound<'_, PyAny>>, keepdims: bool) -> PyResult<Self> {
        let dtype = if self.dtype().is_float() { self.dtype() } else { Element::F32 };
        self.reduce(py, axis, keepdims, Some(dtype), Inner::mean)
    }

    /// The largest element along axes; NaN where there is one.
    #[pyo3(signature = (axis = None, *, keepdims = false))]
    fn max(&self, py: Python<'_>, axis: Option<&Bound<'_, PyAny>>, keepdims: bool) -> PyResult<Self> {
        self.reduce(py, axis, keepdims, None, Inner::max)
    }

    /// The smallest element along axes; NaN where there is one.
    #[pyo3(signature = (axis = None, *, keepdims = false))]
    fn min(&self, py: Python<'_>, axis: Option<&Bound<'_, PyAny>>, keepdims: bool) -> PyResult<Self> {
        self.reduce(py, axis, keepdims, None, Inner::min)
    }

    /// The index of the largest element along an axis, or in all elements, as int64.
    #[pyo3(signature = (axis = None, *, keepdims = false))]
    fn argmax(&self, py: Python<'_>, axis: Option<isize>, keepdims: bool) -> PyResult<Self> {
        self.first(py, axis, keepdims, Inner::argmax)
    }

    /// The index of the smallest element along an axis, or in all elements, as int64.
    #[pyo3(signature = (axis = None, *, keepdims = false))]
    fn argmin(&self, py: Python<'_>, axis: Option<isize>, keepdims: bool) -> PyResult<Self> {
        self.first(py, axis, keepdims, Inner::argmin)
    }

    /// Running sums along an axis.
    #[pyo3(signature = (axis = 0))]
    fn cumsum(&self, py: Python<'_>, axis: isize) -> PyResult<Self> {
        self.made_by(py, |x| x.cumsum(axis))
    }

    /// The softmax along an axis.
    #[pyo3(signature = (axis = -1))]
    fn softmax(&self, py: Python<'_>, axis: isize) -> PyResult<Self> {
        self.made_by(py, |x| x.softmax(axis))
    }

    /// Elements below `min` become `min`, those above `max` become `max`.
    #[pyo3(signature = (min = None, max = None))]
    fn clip(&self, py: Python<'_>, min: Option<&Bound<'_, PyAny>>, max: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let mut made = self.view(self.tensor().clone());
        for (bound, what, run) in [(min, "maximum", Inner::maximum as fn(&Inner, &Inner) -> Result<Inner>), (max, "minimum", Inner::minimum)] {
            if let Some(bound) = bound.filter(|bound| !bound.is_none()) {
                made = made.paired(py, bound, what, run)?;
            }
        }
        Ok(made)
    }

    /// The product of matrices `[…, m, k] @ […, k, n]`, in the executor's precision.
    fn matmul(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.paired(py, other, "matmul", Inner::matmul)
    }

    /// The larger of each pair of elements.
    fn maximum(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.paired(py, other, "maximum", Inner::maximum)
    }

    /// The smaller of each pair of elements.
    fn minimum(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.paired(py, other, "minimum", Inner::minimum)
    }

    /// Entries along an axis, by whole numbers `indices`.
    #[pyo3(signature = (indices, axis = -1))]
    fn take(&self, py: Python<'_>, indices: PyRef<'_, Self>, axis: isize) -> PyResult<Self> {
        Ok(Self::new(&self.context, self.context.call(py, [self, &indices], |[x, indices]| x.gather(&indices.cast(Element::I64)?, axis))?))
    }

    /// An element of each row along an axis, by whole numbers `indices`.
    #[pyo3(signature = (indices, axis = -1))]
    fn take_along_axis(&self, py: Python<'_>, indices: PyRef<'_, Self>, axis: isize) -> PyResult<Self> {
        let made = self.context.call(py, [self, &indices], |[x, indices]| x.take_along_axis(&indices.cast(Element::I64)?, axis))?;
        Ok(Self::new(&self.context, made))
    }

    /// Where this tensor of truth values is true the element of `a`, else that of `b`.
    fn where_(&self, py: Python<'_>, a: PyRef<'_, Self>, b: PyRef<'_, Self>) -> PyResult<Self> {
        let dtype = promote::types(a.dtype(), b.dtype())?;
        let made = self.context.call(py, [self, &a, &b], |[x, a, b]| x.select(&a.cast(dtype)?, &b.cast(dtype)?))?;
        Ok(Self::new(&self.context, made))
    }
}

impl Tensor {
    fn first(&self, py: Python<'_>, axis: Option<isize>, keepdims: bool, run: fn(&Inner, isize, bool) -> Result<Inner>) -> PyResult<Self> {
        let rank = self.ndim();
        self.made_by(py, |x| match axis {
            Some(axis) => run(x, axis, keepdims),
            None => {
                let found = run(&x.flatten()?, 0, false)?;
                if keepdims { found.reshape(&vec![1; rank]) } else { Ok(found) }
            }
        })
    }
}

fn joined<'py>(
    py: Python<'py>,
    tensors: &[PyRef<'py, Tensor>],
    what: &str,
    join: fn(&[&Inner], isize) -> Result<Inner>,
    axis: isize,
) -> PyResult<Tensor> {
    let Some(first) = tensors.first() else { return Err(PyValueError::new_err(format!("{what} of no tensors: give at least one"))) };
    let dtype = tensors.iter().try_fold(first.dtype(), |dtype, tensor| promote::types(dtype, tensor.dtype()))?;
    let taken = tensors.iter().map(|tensor| first.context.take(tensor)).collect::<PyResult<Vec<_>>>()?;
    let shared = tensors.iter().find(|tensor| tensor.is_shared()).map(|tensor| tensor.tensor());
    let context = &first.context;
    let made = py.detach(|| {
        context.ordered(shared, || {
            let cast = taken.iter().map(|tensor| tensor.cast(dtype)).collect::<Result<Vec<_>>>()?;
            join(&cast.iter().collect::<Vec<_>>(), axis)
        })
    });
    Ok(Tensor::new(&first.context, made.map_err(raise)?))
}

/// Tensors one after the other along an axis; `axis=None` flattens them first.
#[pyfunction]
#[pyo3(signature = (tensors, axis = Some(0)))]
pub(crate) fn concat<'py>(py: Python<'py>, tensors: Vec<PyRef<'py, Tensor>>, axis: Option<isize>) -> PyResult<Tensor> {
    match axis {
        Some(axis) => joined(py, &tensors, "concat", Inner::concat, axis),
        None => {
            let flat =
                tensors.iter().map(|tensor| Py::new(py, tensor.flatten(py)?).map(|flat| flat.bind(py).borrow())).collect::<PyResult<Vec<_>>>()?;
            joined(py, &flat, "concat", Inner::concat, 0)
        }
    }
}

/// Tensors of one shape side by side along a new axis.
#[pyfunction]
#[pyo3(signature = (tensors, axis = 0))]
pub(crate) fn stack<'py>(py: Python<'py>, tensors: Vec<PyRef<'py, Tensor>>, axis: isize) -> PyResult<Tensor> {
    joined(py, &tensors, "stack", Inner::stack, axis)
}
