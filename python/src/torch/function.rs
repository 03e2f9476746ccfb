//! What Python calls for an operator: past PyTorch's dispatcher where nothing in that has a say.

use pyo3::{
    Bound, Py, PyAny, PyResult, Python, intern, pyclass, pymethods,
    sync::PyOnceLock,
    types::{PyAnyMethods, PyDict, PyDictMethods, PyTuple, PyTupleMethods},
};

use super::{
    TorchOperator,
    described::{Call, Described},
};

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

    /// Whether a tensor is an ordinary one.
    fn is_plain(&self, tensor: &Bound<'_, PyAny>) -> bool {
        let kind = tensor.get_type();
        kind.is(&self.tensor) || kind.is(&self.parameter)
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
    fn empty_like<'py>(&self, tensor: &Bound<'py, PyAny>, described: &Described) -> PyResult<Bound<'py, PyAny>> {
        let py = tensor.py();
        let empty_like = self.empty_like.bind(py);
        if described.layout.is_contiguous() { empty_like.call1((tensor,)) } else { empty_like.call((tensor,), Some(self.contiguous.bind(py))) }
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
    /// Operators by the attributes' values.
    made: Py<PyDict>,
}

#[pymethods]
impl TorchFunction {
    #[new]
    #[pyo3(signature = (tensors, beside, casts, make, results, tracked))]
    fn new(py: Python<'_>, tensors: usize, beside: usize, casts: bool, make: Py<PyAny>, results: Option<Py<PyAny>>, tracked: Py<PyAny>) -> Self {
        Self { tensors, beside, casts, make, results, tracked, made: PyDict::new(py).unbind() }
    }

    /// The results; None where the call is PyTorch's dispatcher's.
    #[pyo3(signature = (*arguments))]
    fn direct<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let torch = Torch::of(py)?;
        let Some((call, inputs)) = self.plain(torch, arguments, self.tensors)? else { return Ok(None) };
        if torch.is_tracked(py, arguments.iter().take(self.tensors))? {
            return self.tracked.bind(py).call1(arguments).map(Some);
        }
        self.compute(torch, arguments, call, inputs).map(Some)
    }

    /// The results.
    #[pyo3(signature = (*arguments))]
    fn run<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let (call, inputs) = described(arguments, self.tensors)?;
        self.compute(Torch::of(py)?, arguments, call, inputs)
    }

    /// The gradients of the wanted tensors, of all arguments, the results, the first one's gradient and for each tensor whether it is wanted; None where the
    /// call is PyTorch's dispatcher's.
    #[pyo3(signature = (*arguments))]
    fn direct_gradient<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let torch = Torch::of(py)?;
        let (tensors, _) = self.split(arguments)?;
        if self.plain(torch, &tensors, tensors.len())?.is_none() || torch.is_tracked(py, tensors.iter())? {
            return Ok(None);
        }
        self.gradient(py, arguments).map(Some)
    }

    /// The same, always.
    #[pyo3(signature = (*arguments))]
    fn gradient<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let torch = Torch::of(py)?;
        let (tensors, wanted) = self.split(arguments)?;
        let (mut call, mut reads) = described(&tensors, tensors.len())?;
        reads.extend(std::iter::repeat_n(None, self.beside));
        let inputs = tensors.iter().zip(&reads).zip(&wanted).filter(|(_, wanted)| **wanted);
        let into = inputs.filter_map(|((tensor, described), _)| Some((tensor, described.as_ref()?)));
        let into = into.map(|(tensor, described)| torch.empty_like(&tensor, described)).collect::<PyResult<Vec<_>>>()?;
        let writes = call.given(&into)?;
        let operator = self.operator(arguments, arguments.len() - self.beside - 3)?;
        operator.get().differentiate(py, &call, (self.tensors, 1 + self.beside), reads, writes, wanted)?;
        Ok(into)
    }
}

/// The tensors among the first arguments.
fn described(arguments: &Bound<'_, PyTuple>, count: usize) -> PyResult<(Call, Vec<Option<Described>>)> {
    let mut call = Call::default();
    let tensors = arguments.iter_borrowed().take(count);
    let tensors = tensors.map(|tensor| if tensor.is_none() { Ok(None) } else { call.describe(&tensor).map(Some) }).collect::<PyResult<_>>()?;
    Ok((call, tensors))
}

impl TorchFunction {
    /// The tensors, if all are ordinary ones that nothing but the operator has a say in.
    fn plain(&self, torch: &Torch, arguments: &Bound<'_, PyTuple>, count: usize) -> PyResult<Option<(Call, Vec<Option<Described>>)>> {
        let is_plain = arguments.iter_borrowed().take(count).all(|tensor| tensor.is_none() || torch.is_plain(&tensor));
        if !is_plain || torch.is_observed(arguments.py(), self.casts)? {
            return Ok(None);
        }
        // What cannot be described is the dispatcher's to reject.
        Ok(described(arguments, count).ok())
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

    fn compute<'py>(
        &self,
        torch: &Torch,
        arguments: &Bound<'py, PyTuple>,
        mut call: Call,
        inputs: Vec<Option<Described>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        let operator = self.operator(arguments, arguments.len())?;
        let outputs = match (&self.results, inputs.first()) {
            (None, Some(Some(first))) => vec![torch.empty_like(&arguments.get_item(0)?, first)?],
            (None, _) => return Err(pyo3::exceptions::PyTypeError::new_err("the first argument is no tensor")),
            (Some(results), _) => results.bind(py).call1(arguments)?.extract()?,
        };
        let writes = call.given(&outputs)?;
        operator.get().compute(py, &call, inputs, writes)?;
        if self.beside > 0 {
            return Ok(PyTuple::new(py, outputs)?.into_any());
        }
        outputs.into_iter().next().ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("an operator without a result"))
    }
}
