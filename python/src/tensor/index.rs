//! Elements by index.

use elinvar::{DType as Element, Result, Tensor as Inner};
use pyo3::{
    Bound, Py, PyAny, PyRef, PyResult, Python,
    exceptions::{PyIndexError, PyTypeError, PyValueError},
    intern, pymethods,
    types::{PyAnyMethods, PyBool, PyEllipsis, PyList, PySlice, PySliceMethods, PyTuple, PyTupleMethods},
};

use super::{Tensor, scalar};

/// What is taken of an axis.
enum Part {
    At(usize),
    Range {
        start: usize,
        count: usize,
        step: isize,
    },
    /// An axis of extent one is put in.
    New,
    /// Entries by a tensor of whole numbers.
    Gathered(Py<Tensor>),
}

fn position(index: &Bound<'_, PyAny>) -> Option<PyResult<isize>> {
    if index.is_instance_of::<PyBool>() || index.is_instance_of::<PyList>() {
        return None;
    }
    index.call_method0(intern!(index.py(), "__index__")).ok().map(|index| index.extract())
}

/// What an index says of axes of these extents.
fn parts(index: &Bound<'_, PyAny>, shape: &[usize]) -> PyResult<Vec<Part>> {
    let given: Vec<Bound<'_, PyAny>> = match index.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().collect(),
        Err(_) => vec![index.clone()],
    };
    let is_new = |index: &Bound<'_, PyAny>| index.is_none();
    let is_rest = |index: &Bound<'_, PyAny>| index.is_instance_of::<PyEllipsis>();
    let taken = given.iter().filter(|index| !is_new(index) && !is_rest(index)).count();
    if taken > shape.len() {
        return Err(PyIndexError::new_err(format!("{taken} indices of a tensor with {} axes", shape.len())));
    }
    if given.iter().filter(|index| is_rest(index)).count() > 1 {
        return Err(PyIndexError::new_err("an index has at most one '...'"));
    }
    let whole = |extent: usize| Part::Range { start: 0, count: extent, step: 1 };
    let (mut parts, mut axis) = (Vec::new(), 0);
    for index in &given {
        if is_new(index) {
            parts.push(Part::New);
        } else if is_rest(index) {
            let rest = shape.len() - taken;
            parts.extend(shape[axis..axis + rest].iter().map(|&extent| whole(extent)));
            axis += rest;
        } else {
            parts.push(part(index, axis, shape[axis])?);
            axis += 1;
        }
    }
    parts.extend(shape[axis..].iter().map(|&extent| whole(extent)));
    Ok(parts)
}

fn part(index: &Bound<'_, PyAny>, axis: usize, extent: usize) -> PyResult<Part> {
    if let Ok(slice) = index.cast::<PySlice>() {
        let found = slice.indices(isize::try_from(extent).unwrap_or(isize::MAX))?;
        let (start, count) = (found.start.max(0) as usize, found.slicelength);
        return Ok(Part::Range { start: if count == 0 { 0 } else { start }, count, step: if count > 1 { found.step } else { 1 } });
    }
    if let Ok(tensor) = index.cast::<Tensor>()
        && (tensor.get().ndim() > 0 || tensor.get().dtype() == Element::Bool)
    {
        return match tensor.get().dtype() {
            dtype if dtype.is_integer() => Ok(Part::Gathered(tensor.clone().unbind())),
            Element::Bool => Err(PyIndexError::new_err(
                "a tensor of truth values as an index would give a shape that depends on its elements: use where, or index a NumPy array",
            )),
            other => Err(PyIndexError::new_err(format!("a tensor of {other} is no index: whole numbers are"))),
        };
    }
    match position(index) {
        Some(found) => {
            let found = found.map_err(|_| PyIndexError::new_err(format!("index {index} is outside axis {axis} of {extent}")))?;
            let at = if found < 0 { found + extent as isize } else { found };
            let at = usize::try_from(at).ok().filter(|&at| at < extent);
            at.map(Part::At).ok_or_else(|| PyIndexError::new_err(format!("index {found} is outside axis {axis} of {extent}")))
        }
        None => {
            Err(PyTypeError::new_err(format!("{} is no index: whole numbers, slices, None, ... and tensors of whole numbers are", index.get_type())))
        }
    }
}

/// A view of the parts that are no tensors.
fn view(x: &Inner, parts: &[Part]) -> Result<Inner> {
    let (mut view, mut axis) = (x.clone(), 0);
    for part in parts {
        match part {
            Part::At(at) => view = view.slice(axis, *at, 1, 1)?.squeeze(axis)?,
            Part::Range { start, count, step } => {
                view = view.slice(axis, *start, *count, *step)?;
                axis += 1;
            }
            Part::New => {
                view = view.unsqueeze(axis)?;
                axis += 1;
            }
            Part::Gathered(_) => axis += 1,
        }
    }
    Ok(view)
}

impl Tensor {
    fn indexed(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        let parts = parts(index, self.made.shape())?;
        if parts.iter().filter(|part| matches!(part, Part::Gathered(_))).count() > 1 {
            return self.points(py, &parts);
        }
        let seen = self.view(self.context.call(py, [self], |[x]| view(x, &parts))?);
        let mut gathered = parts.iter().filter(|part| !matches!(part, Part::At(_))).enumerate().filter_map(|(axis, part)| match part {
            Part::Gathered(indices) => Some((axis, indices)),
            Part::At(_) | Part::Range { .. } | Part::New => None,
        });
        let Some((axis, indices)) = gathered.next() else { return Ok(seen) };
        let made = self.context.call(py, [&seen, indices.get()], |[x, indices]| {
            let indices = if matches!(indices.dtype(), Element::I32 | Element::I64) { indices.clone() } else { indices.cast(Element::I64)? };
            x.gather(&indices, axis as isize)
        })?;
        Ok(Self::new(&self.context, made))
    }
}

impl Tensor {
    /// What several tensors name, one for each of the first axes, with whole numbers among them.
    fn points(&self, py: Python<'_>, parts: &[Part]) -> PyResult<Self> {
        let whole = |part: &Part| matches!(part, Part::Range { step: 1, .. });
        let named = parts.iter().position(|part| !matches!(part, Part::Gathered(_) | Part::At(_))).unwrap_or(parts.len());
        if let Some((axis, _)) = parts.iter().enumerate().skip(named).find(|(axis, part)| !whole(part) || !self.is_all(*axis, part)) {
            let message =
                format!("several tensors index the first axes alone, and axis {axis} has an index of its own: take the axes one after the other");
            return Err(PyIndexError::new_err(message));
        }
        let indices = parts[..named].iter().map(|part| match part {
            Part::Gathered(indices) => self.context.take(indices.get()).map(Some),
            Part::At(_) | Part::Range { .. } | Part::New => Ok(None),
        });
        let indices = indices.collect::<PyResult<Vec<_>>>()?;
        let made = self.context.call(py, [self], |[x]| {
            let mut shape = elinvar::Shape::new(&[])?;
            for indices in indices.iter().flatten() {
                shape = shape.broadcast(indices.shape())?;
            }
            let at = |(part, indices): (&Part, &Option<Inner>)| match (part, indices) {
                (_, Some(indices)) => indices.cast(Element::I64)?.broadcast_to(&shape),
                (Part::At(at), None) => x.executor().full(Element::I64, &shape, *at as i64),
                (Part::Range { .. } | Part::New | Part::Gathered(_), None) => Err(elinvar::Error::internal("an index without a place")),
            };
            let columns = parts[..named].iter().zip(&indices).map(at).collect::<Result<Vec<_>>>()?;
            x.gather_nd(&Inner::stack(&columns.iter().collect::<Vec<_>>(), -1)?, 0)
        })?;
        Ok(Self::new(&self.context, made))
    }

    fn is_all(&self, axis: usize, part: &Part) -> bool {
        matches!(part, Part::Range { start: 0, count, .. } if Some(count) == self.made.shape().get(axis))
    }
}

#[pymethods]
impl Tensor {
    /// A view of what the index names, as in NumPy: whole numbers, slices with any step, None, '...'. With a tensor of whole numbers, a copy of what that
    /// names along its axis; with several, of the entries that they name together.
    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.indexed(py, index)
    }

    /// Overwrites what the index names with a number, or a tensor that broadcasts to it.
    fn __setitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let parts = parts(index, self.made.shape())?;
        if parts.iter().any(|part| matches!(part, Part::Gathered(_))) {
            return Err(PyIndexError::new_err(
                "entries named by a tensor are set by elinvar.ops.scatter_nd or scatter_elements, which give a new tensor",
            ));
        }
        if self.context.take(self)?.is_tracked() {
            return Err(PyValueError::new_err("no gradient flows through a change in place: use where or concat, or elinvar.no_grad()"));
        }
        let dtype = self.dtype();
        let value: PyRef<'_, Self> = match value.cast::<Tensor>() {
            Ok(tensor) => tensor.borrow(),
            Err(_) => {
                let number = scalar(value)?;
                let executor = self.context.current();
                let number = executor.full(dtype, &[], number).map_err(crate::errors::raise)?;
                Py::new(py, Self::new(&self.context, number))?.bind(py).borrow()
            }
        };
        if value.dtype() != dtype {
            let (own, found) = (crate::dtype::name(dtype), crate::dtype::name(value.dtype()));
            return Err(PyTypeError::new_err(format!("a tensor of {own} cannot take elements of {found}: convert them with astype")));
        }
        self.context.call(py, [self, &value], |[x, value]| {
            let x = x.detach();
            let target = view(&x, &parts)?;
            let value = value.detach().broadcast_to(target.shape())?;
            if target.layout().is_contiguous() {
                let value = value.contiguous()?;
                return target.copy_from(&if shares(&value, &target) { value.copy()? } else { value });
            }
            // Views with gaps cannot be written: their entries are scattered into the whole.
            let whole = x.executor().arange(Element::I64, 0, x.shape().elements() as i64, 1)?.reshape(x.shape())?;
            let places = view(&whole, &parts)?.copy()?.flatten()?;
            let flat = x.contiguous()?.flatten()?;
            let changed = flat.scatter(&places, &value.copy()?.flatten()?, 0, elinvar::kernels::scatter::Reduction::None)?;
            x.copy_from(&changed.reshape(x.shape())?)
        })
    }
}

/// Whether two tensors may lie in the same memory.
fn shares(a: &Inner, b: &Inner) -> bool {
    match (a.binding(), b.binding()) {
        (Ok(a), Ok(b)) => a.buffer().same(b.buffer()),
        _ => true,
    }
}
