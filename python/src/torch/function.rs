//! What Python calls for an operator: past PyTorch's dispatcher where nothing in that has a say.

use pyo3::{
    Bound, Py, PyAny, PyResult, Python, intern, pyclass, pymethods,
    sync::PyOnceLock,
    types::{PyAnyMethods, PyDict, PyDictMethods, PyTuple, PyTupleMethods},
};

use super::{TorchOperator, described::Call};

/// Operators of different attributes that one function keeps. Where there are more, all begin again.
const MOST: usize = 4096;

/// Parts of PyTorch.
struct Torch {
    tensor: Py<PyAny>,
    parameter: Py<PyAny>,
    is_grad_enabled: Py<PyAny>,
    is_autocast_enabled: Py<PyAny>,
    /// Functions that give what is false where nothing is at work: modes, transformations, tracing.
    at_work: [Py<PyAny>; 4],
    empty_like: Py<PyAny>,
    contiguous: Py<PyDict>,
}

impl Torch {
    fn of(py: Python<'_>) -> PyResult<&'static Self> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        TORCH.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            let own = torch.getattr("_C")?;
            let contiguous = PyDict::new(py);
            contiguous.set_item("memory_format", torch.getattr("contiguous_format")?)?;
            let functions = ["_len_torch_dispatch_stack", "_len_torch_function_stack", "_is_tracing"];
            let [dispatch, function, tracing] = functions.map(|name| own.getattr(name).map(Bound::unbind));
            let transforms = own.getattr("_functorch")?.getattr("peek_interpreter_stack")?.unbind();
            Ok(Torch {
                tensor: torch.getattr("Tensor")?.unbind(),
                parameter: torch.getattr("nn")?.getattr("Parameter")?.unbind(),
                is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
                is_autocast_enabled: own.getattr("_is_any_autocast_enabled")?.unbind(),
                at_work: [dispatch?, function?, transforms, tracing?],
                empty_like: torch.getattr("empty_like")?.unbind(),
                contiguous: contiguous.unbind(),
            })
        })
    }

    /// Whether a tensor is an ordinary one, whose memory has the elements themselves, not their negatives.
    fn is_plain(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let kind = tensor.get_type();
        let is_negated = || tensor.call_method0(intern!(tensor.py(), "is_neg")).is_ok_and(|is_negated| is_negated.is_truthy().unwrap_or(true));
        (kind.is(&self.tensor) || kind.is(&self.parameter)) && !is_negated()
    }

    /// Whether a mode, a transformation, tracing or autocast has a say in what is computed.
    fn is_observed(&self, py: Python<'_>, casts: bool) -> PyResult<bool> {
        let asked = self.at_work.iter().chain(casts.then_some(&self.is_autocast_enabled));
        for function in asked {
            if function.bind(py).call0()?.is_truthy()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a gradient is to be taken of what is computed from these.
    fn is_tracked<'py>(&self, py: Python<'py>, tensors: impl IntoIterator<Item = Bound<'py, PyAny>>) -> PyResult<bool> {
        if !self.is_grad_enabled.bind(py).call0()?.is_truthy()? {
            return Ok(false);
        }
        for tensor in tensors {
            if !tensor.is_none() && tensor.getattr(intern!(py, "requires_grad"))?.is_truthy()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Memory for elements like those of a tensor, row-major.
    fn empty_like<'py>(&self, tensor: &Bound<'py, PyAny>, is_contiguous: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = tensor.py();
        let empty_like = self.empty_like.bind(py);
        if is_contiguous { empty_like.call1((tensor,)) } else { empty_like.call((tensor,), Some(self.contiguous.bind(py))) }
    }
}

/// An operator of any attributes: of so many tensors, then the attributes' values.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct TorchFunction {
    tensors: usize,
    /// Results beside the first.
    beside: usize,
    /// Whether autocast changes the types of what it takes.
    casts: bool,
    /// Gives the operator of the attributes' values.
    make: Py<PyAny>,
    /// Gives tensors for the results of all arguments; None where the only one is as the first tensor.
    results: Option<Py<PyAny>>,
    /// Computes on PyTorch's tape.
    tracked: Py<PyAny>,
    /// PyTorch's operator, through its dispatcher.
    dispatched: Py<PyAny>,
    /// Operators by the attributes' values.
    made: Py<PyDict>,
}

#[pymethods]
impl TorchFunction {
    #[new]
    #[pyo3(signature = (tensors, beside, casts, make, results, tracked, dispatched))]
    #[allow(clippy::too_many_arguments, reason = "what a function is made of")]
    fn new(
        py: Python<'_>,
        tensors: usize,
        beside: usize,
        casts: bool,
        make: Py<PyAny>,
        results: Option<Py<PyAny>>,
        tracked: Py<PyAny>,
        dispatched: Py<PyAny>,
    ) -> Self {
        Self { tensors, beside, casts, make, results, tracked, dispatched, made: PyDict::new(py).unbind() }
    }

    /// The results, on PyTorch's tape where a gradient is to be taken of them; by PyTorch's dispatcher where something else has a say.
    #[pyo3(signature = (*arguments))]
    fn now<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let torch = Torch::of(py)?;
        // What cannot be described is the dispatcher's to reject.
        let described = if self.is_plain(torch, arguments, self.tensors)? { described(arguments, self.tensors).ok() } else { None };
        match described {
            None => self.dispatched.bind(py).call1(arguments),
            Some(_) if torch.is_tracked(py, arguments.iter().take(self.tensors))? => self.tracked.bind(py).call1(arguments),
            Some((call, is_contiguous)) => self.compute(torch, arguments, call, &is_contiguous),
        }
    }

    /// The results.
    #[pyo3(signature = (*arguments))]
    fn run<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let (call, is_contiguous) = described(arguments, self.tensors)?;
        self.compute(Torch::of(py)?, arguments, call, &is_contiguous)
    }

    /// The gradients of the wanted tensors, of all arguments, the results, the first one's gradient and for each tensor whether it is wanted; None where the
    /// call is PyTorch's dispatcher's.
    #[pyo3(signature = (*arguments))]
    fn gradient_now<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let torch = Torch::of(py)?;
        let (tensors, wanted) = self.split(arguments)?;
        if !self.is_plain(torch, &tensors, tensors.len())? || torch.is_tracked(py, tensors.iter())? {
            return Ok(None);
        }
        let Ok((call, is_contiguous)) = described(&tensors, tensors.len()) else { return Ok(None) };
        self.differentiate(torch, (arguments, &tensors, &wanted), call, &is_contiguous).map(Some)
    }

    /// The same, always.
    #[pyo3(signature = (*arguments))]
    fn gradient<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (tensors, wanted) = self.split(arguments)?;
        let (call, is_contiguous) = described(&tensors, tensors.len())?;
        self.differentiate(Torch::of(py)?, (arguments, &tensors, &wanted), call, &is_contiguous)
    }
}

/// A call on the first arguments, and whether each is row-major.
fn described(arguments: &Bound<'_, PyTuple>, count: usize) -> PyResult<(Call, Vec<bool>)> {
    let (mut call, mut is_contiguous) = (Call::default(), Vec::with_capacity(count));
    for tensor in arguments.iter_borrowed().take(count) {
        is_contiguous.push(if tensor.is_none() { call.add_absent() } else { call.add(&tensor)? });
    }
    Ok((call, is_contiguous))
}

impl TorchFunction {
    /// Whether all tensors are ordinary ones, and nothing but the operator has a say.
    fn is_plain(&self, torch: &Torch, arguments: &Bound<'_, PyTuple>, count: usize) -> PyResult<bool> {
        let is_plain = arguments.iter_borrowed().take(count).all(|tensor| tensor.is_none() || torch.is_plain(&tensor));
        Ok(is_plain && !torch.is_observed(arguments.py(), self.casts)?)
    }

    /// Of the arguments of a gradient the tensors, and which are wanted.
    fn split<'py>(&self, arguments: &Bound<'py, PyTuple>) -> PyResult<(Bound<'py, PyTuple>, Vec<bool>)> {
        let (results, wanted) = (arguments.len().saturating_sub(self.beside + 3), arguments.len().saturating_sub(1));
        let tensors = arguments.iter().take(self.tensors).chain(arguments.iter().take(wanted).skip(results));
        Ok((PyTuple::new(arguments.py(), tensors.collect::<Vec<_>>())?, arguments.get_item(wanted)?.extract()?))
    }

    /// The operator of the attributes' values, which are the arguments up to `end`.
    fn operator<'py>(&self, arguments: &Bound<'py, PyTuple>, end: usize) -> PyResult<Bound<'py, TorchOperator>> {
        let (py, attributes) = (arguments.py(), arguments.get_slice(self.tensors, end));
        let made = self.made.bind(py);
        // A list is no key.
        let known = made.get_item(&attributes);
        if let Ok(Some(known)) = known {
            return Ok(known.cast_into()?);
        }
        let operator = self.make.bind(py).call1(&attributes)?;
        if known.is_ok() {
            if made.len() >= MOST {
                made.clear();
            }
            made.set_item(attributes, &operator)?;
        }
        Ok(operator.cast_into()?)
    }

    fn compute<'py>(&self, torch: &Torch, arguments: &Bound<'py, PyTuple>, mut call: Call, is_contiguous: &[bool]) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        let operator = self.operator(arguments, arguments.len())?;
        let Some(results) = &self.results else {
            let output = torch.empty_like(&arguments.get_item(0)?, is_contiguous.first().copied().unwrap_or(false))?;
            call.add(&output)?;
            operator.get().compute(py, call, 1)?;
            return Ok(output);
        };
        let outputs: Vec<Bound<'py, PyAny>> = results.bind(py).call1(arguments)?.extract()?;
        call.add_all(outputs.iter().map(Some))?;
        operator.get().compute(py, call, outputs.len())?;
        if self.beside > 0 { Ok(PyTuple::new(py, outputs)?.into_any()) } else { PyTuple::new(py, outputs)?.get_item(0) }
    }

    fn differentiate<'py>(
        &self,
        torch: &Torch,
        (arguments, tensors, wanted): (&Bound<'py, PyTuple>, &Bound<'py, PyTuple>, &[bool]),
        mut call: Call,
        is_contiguous: &[bool],
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        for _ in 0..self.beside {
            call.add_absent();
        }
        let operator = self.operator(arguments, arguments.len() - self.beside - 3)?;
        let mut into = Vec::with_capacity(wanted.len());
        for ((tensor, is_contiguous), _) in tensors.iter().zip(is_contiguous).zip(wanted).filter(|(_, wanted)| **wanted) {
            let made = torch.empty_like(&tensor, *is_contiguous)?;
            call.add(&made)?;
            into.push(made);
        }
        operator.get().differentiate(arguments.py(), call, (self.tensors, 1 + self.beside), into.len(), wanted)?;
        Ok(into)
    }
}
