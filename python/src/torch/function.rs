//! What Python calls for an operator: past PyTorch's dispatcher where nothing in that has a say.

use pyo3::{
    Bound, IntoPyObject, Py, PyAny, PyResult, Python,
    exceptions::{PyNotImplementedError, PyTypeError},
    intern, pyclass, pymethods,
    sync::PyOnceLock,
    types::{IntoPyDict, PyAnyMethods, PyDict, PyDictMethods, PyList, PySequenceMethods, PyTuple, PyTupleMethods},
};

use super::{TorchOperator, Wanted, described::Call};

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
    /// Memory on the CPU of a shape, strides and a type, past PyTorch's dispatcher, where this PyTorch has that: what it compiles calls it.
    empty_on_cpu: Option<Py<PyAny>>,
}

impl Torch {
    fn of(py: Python<'_>) -> PyResult<&'static Self> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        TORCH.get_or_try_init(py, || {
            let torch = py.import("torch")?;
            let own = torch.getattr("_C")?;
            let functions = ["_len_torch_dispatch_stack", "_len_torch_function_stack", "_is_tracing"];
            let [dispatch, function, tracing] = functions.map(|name| own.getattr(name).map(Bound::unbind));
            let transforms = own.getattr("_functorch")?.getattr("peek_interpreter_stack")?.unbind();
            Ok(Torch {
                tensor: torch.getattr("Tensor")?.unbind(),
                parameter: torch.getattr("nn")?.getattr("Parameter")?.unbind(),
                is_grad_enabled: torch.getattr("is_grad_enabled")?.unbind(),
                is_autocast_enabled: own.getattr("_is_any_autocast_enabled")?.unbind(),
                at_work: [dispatch?, function?, transforms, tracing?],
                empty_on_cpu: own.getattr("_dynamo").and_then(|own| own.getattr("guards")?.getattr("_empty_strided_cpu")).ok().map(Bound::unbind),
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
    fn is_tracked<'a, 'py: 'a>(&self, py: Python<'py>, tensors: impl IntoIterator<Item = &'a Bound<'py, PyAny>>) -> PyResult<bool> {
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

    /// Row-major memory, where a tensor is. Options take as long to read as memory to find.
    fn empty<'py>(&self, tensor: &Bound<'py, PyAny>, is_on_cpu: bool, wanted: &Wanted) -> PyResult<Bound<'py, PyAny>> {
        let py = tensor.py();
        let Wanted { shape, strides, dtype } = wanted;
        if let Some(empty) = self.empty_on_cpu.as_ref().filter(|_| is_on_cpu) {
            return empty.bind(py).call1((shape, strides, dtype));
        }
        let is_same = tensor.getattr(intern!(py, "dtype"))?.is(dtype);
        let options = if is_same { None } else { Some([(intern!(py, "dtype"), dtype)].into_py_dict(py)?) };
        tensor.call_method(intern!(py, "new_empty_strided"), (shape, strides), options.as_ref())
    }
}

/// A tensor that an operator takes.
struct Operand {
    name: String,
    /// Whether a gradient flows to it.
    is_trained: bool,
    /// Whether the gradients read its elements.
    is_saved: bool,
}

/// An operator of any attributes: of some tensors, then the attributes' values.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct TorchFunction {
    name: String,
    tensors: Vec<Operand>,
    /// Whether the gradients read the first result.
    saves_result: bool,
    /// Results beside the first, all of which the gradients read.
    beside: usize,
    /// Whether autocast changes the types of what it takes.
    casts: bool,
    /// Gives the operator of the attributes' values, and of whether there are results beside the first where there may be.
    make: Py<PyAny>,
    /// Whether the only result is of the first tensor's shape and type.
    is_like_first: bool,
    /// PyTorch's operators through its dispatcher: this, and its gradients.
    dispatched: Py<PyAny>,
    gradients: Py<PyAny>,
    /// Computes on PyTorch's tape.
    tracked: PyOnceLock<Py<PyAny>>,
    /// Operators by the attributes' values.
    made: Py<PyDict>,
}

#[pymethods]
impl TorchFunction {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "what a function is made of")]
    fn new(
        py: Python<'_>,
        name: String,
        tensors: Vec<(String, bool, bool)>,
        saves_result: bool,
        beside: usize,
        casts: bool,
        make: Py<PyAny>,
        is_like_first: bool,
        dispatched: Py<PyAny>,
        gradients: Py<PyAny>,
    ) -> Self {
        let tensors = tensors.into_iter().map(|(name, is_trained, is_saved)| Operand { name, is_trained, is_saved }).collect();
        let (tracked, made) = (PyOnceLock::new(), PyDict::new(py).unbind());
        Self { name, tensors, saves_result, beside, casts, make, is_like_first, dispatched, gradients, tracked, made }
    }

    /// Sets what computes on PyTorch's tape, which its dispatcher would do in several times the time.
    fn track(&self, py: Python<'_>, tracked: Py<PyAny>) {
        let _ = self.tracked.set(py, tracked);
    }

    /// The results, on PyTorch's tape where a gradient is to be taken of them, else without those beside the first; by PyTorch's dispatcher where something else has a say.
    #[pyo3(signature = (*arguments))]
    fn now<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let torch = Torch::of(py)?;
        let tensors: Vec<_> = arguments.iter().take(self.tensors.len()).collect();
        if !self.is_plain(torch, py, &tensors)? {
            return self.dispatched.bind(py).call1(arguments);
        }
        match self.tracked.get(py) {
            Some(tracked) if torch.is_tracked(py, &tensors)? => tracked.bind(py).call1(arguments),
            _ => self.found(torch, arguments, &tensors, false),
        }
    }

    /// The results.
    #[pyo3(signature = (*arguments))]
    fn run<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let tensors: Vec<_> = arguments.iter().take(self.tensors.len()).collect();
        self.compute(Torch::of(py)?, arguments, call_on(&tensors)?, true)
    }

    /// The gradients of the wanted tensors, of all arguments, the results, the first one's gradient and for each tensor whether it is wanted.
    #[pyo3(signature = (*arguments))]
    fn gradient<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let count = self.tensors.len();
        let (results, wanted) = (arguments.len().saturating_sub(self.beside + 3), arguments.len().saturating_sub(1));
        let tensors: Vec<_> = arguments.iter().take(count).chain(arguments.iter().take(wanted).skip(results)).collect();
        let call = call_on(&tensors)?;
        let (attributes, wanted) = (arguments.get_slice(count, results), arguments.get_item(wanted)?.extract::<Vec<bool>>()?);
        self.differentiate(Torch::of(py)?, (&tensors, &attributes, &wanted), call)
    }

    /// The results, and what the tape is to keep for [`TorchFunction::backward`].
    #[pyo3(signature = (ctx, *arguments))]
    fn forward<'py>(&self, py: Python<'py>, ctx: &Bound<'py, PyAny>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        let tensors: Vec<_> = arguments.iter().take(self.tensors.len()).collect();
        let found = self.found(Torch::of(py)?, arguments, &tensors, true)?;
        self.save(py, ctx, arguments, &found)?;
        Ok(found)
    }

    /// Has the tape keep what the gradient reads, and of other tensors what they are.
    fn save(&self, py: Python<'_>, ctx: &Bound<'_, PyAny>, inputs: &Bound<'_, PyTuple>, output: &Bound<'_, PyAny>) -> PyResult<()> {
        let results = if self.beside > 0 { output.cast::<PyTuple>()?.clone() } else { PyTuple::new(py, [output])? };
        if self.beside > 0 {
            ctx.call_method1(intern!(py, "mark_non_differentiable"), results.get_slice(1, results.len()))?;
            ctx.call_method1(intern!(py, "set_materialize_grads"), (false,))?;
        }
        let none = py.None().into_bound(py);
        let (mut saved, mut kinds) = (Vec::with_capacity(self.tensors.len() + 2), Vec::with_capacity(self.tensors.len()));
        for (index, (tensor, operand)) in inputs.iter().zip(&self.tensors).enumerate() {
            let is_known = operand.is_saved || tensor.is_none() || self.is_like_result(index);
            kinds.push(match is_known {
                true => none.clone(),
                false => (tensor.getattr(intern!(py, "shape"))?, tensor.getattr(intern!(py, "dtype"))?).into_pyobject(py)?.into_any(),
            });
            saved.push(if operand.is_saved { tensor } else { none.clone() });
        }
        saved.extend(results.iter().skip(1));
        saved.push(if self.saves_result { results.get_item(0)? } else { none });
        ctx.call_method1(intern!(py, "save_for_backward"), PyTuple::new(py, saved)?)?;
        ctx.setattr(intern!(py, "rest"), (inputs.get_slice(self.tensors.len(), inputs.len()), PyTuple::new(py, kinds)?))
    }

    /// The gradients of all arguments, of the results' gradients.
    #[pyo3(signature = (ctx, *upstream))]
    fn backward<'py>(&self, py: Python<'py>, ctx: &Bound<'py, PyAny>, upstream: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        let (count, none) = (self.tensors.len(), py.None().into_bound(py));
        let (attributes, kinds): (Bound<'py, PyTuple>, Bound<'py, PyTuple>) = ctx.getattr(intern!(py, "rest"))?.extract()?;
        let mut gradients = vec![none; count + attributes.len()];
        let dy = upstream.get_item(0)?;
        if dy.is_none() {
            return PyTuple::new(py, gradients);
        }
        let saved = ctx.getattr(intern!(py, "saved_tensors"))?.cast_into::<PyTuple>()?;
        let y = saved.get_item(saved.len() - 1)?;
        let wanted = ctx.getattr(intern!(py, "needs_input_grad"))?.cast_into::<PyTuple>()?;
        let wanted = wanted.iter().take(count).map(|wanted| wanted.is_truthy()).collect::<PyResult<Vec<_>>>()?;
        if let Some((_, operand)) = wanted.iter().zip(&self.tensors).find(|(wanted, operand)| **wanted && !operand.is_trained) {
            let message = format!("elinvar::{} has no gradient of {}: detach it", self.name, operand.name);
            return Err(PyNotImplementedError::new_err(message));
        }
        let mut tensors = Vec::with_capacity(count + 2 + self.beside);
        for (index, (tensor, kind)) in saved.iter().zip(kinds.iter()).enumerate() {
            // What is not read is described by a tensor of the same type and shape.
            tensors.push(match kind.is_none() {
                true if self.is_like_result(index) => dy.clone(),
                true => tensor,
                false => like(&kind, &y, &dy)?,
            });
        }
        tensors.push(if y.is_none() { dy.clone() } else { y });
        tensors.extend(saved.get_slice(count, saved.len() - 1).iter());
        tensors.push(dy);
        let torch = Torch::of(py)?;
        let is_plain = self.is_plain(torch, py, tensors.iter())? && !torch.is_tracked(py, tensors.iter())?;
        let call = if is_plain { call_on(&tensors).ok() } else { None };
        let found = match call {
            Some(call) => self.differentiate(torch, (&tensors, &attributes, &wanted), call)?,
            None => {
                let results = tensors.split_off(count);
                let given: Vec<_> = tensors.into_iter().chain(attributes.iter()).chain(results).collect();
                let given = given.into_iter().chain([PyList::new(py, wanted.iter())?.into_any()]);
                self.gradients.bind(py).call1(PyTuple::new(py, given.collect::<Vec<_>>())?)?.extract()?
            }
        };
        let mut found = found.into_iter();
        for (gradient, _) in gradients.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted) {
            *gradient = found.next().ok_or_else(|| PyTypeError::new_err("a gradient is missing"))?;
        }
        PyTuple::new(py, gradients)
    }
}

/// A tensor of this shape and type: the result if it is one, else memory.
fn like<'py>(kind: &Bound<'py, PyAny>, y: &Bound<'py, PyAny>, dy: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = dy.py();
    let (shape, dtype): (Bound<'py, PyAny>, Bound<'py, PyAny>) = kind.extract()?;
    if !y.is_none() && y.getattr(intern!(py, "shape"))?.eq(&shape)? && y.getattr(intern!(py, "dtype"))?.is(&dtype) {
        return Ok(y.clone());
    }
    let options = PyDict::new(py);
    options.set_item(intern!(py, "dtype"), dtype)?;
    dy.call_method(intern!(py, "new_empty"), (shape,), Some(&options))
}

/// A call on these.
fn call_on<'a, 'py: 'a>(tensors: impl IntoIterator<Item = &'a Bound<'py, PyAny>>) -> PyResult<Call> {
    let mut call = Call::default();
    call.add_all(tensors.into_iter().map(Some))?;
    Ok(call)
}

impl TorchFunction {
    /// Whether this tensor is not saved, and as the result is.
    fn is_like_result(&self, index: usize) -> bool {
        index == 0 && self.is_like_first && self.tensors.first().is_some_and(|first| !first.is_saved)
    }

    /// The results of ordinary tensors. What cannot be described is the dispatcher's to reject, or to take where there are no elements.
    fn found<'py>(
        &self,
        torch: &Torch,
        arguments: &Bound<'py, PyTuple>,
        tensors: &[Bound<'py, PyAny>],
        is_tracked: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        match call_on(tensors) {
            Ok(call) => self.compute(torch, arguments, call, is_tracked),
            Err(_) => self.dispatched.bind(arguments.py()).call1(arguments),
        }
    }

    /// Whether all tensors are ordinary ones, and nothing but the operator has a say.
    fn is_plain<'a, 'py: 'a>(&self, torch: &Torch, py: Python<'py>, tensors: impl IntoIterator<Item = &'a Bound<'py, PyAny>>) -> PyResult<bool> {
        let is_plain = tensors.into_iter().all(|tensor| tensor.is_none() || torch.is_plain(tensor));
        Ok(is_plain && !torch.is_observed(py, self.casts)?)
    }

    /// The operator of the attributes' values; one that may have results beside the first has them if it is tracked.
    fn operator<'py>(&self, attributes: Bound<'py, PyTuple>, is_tracked: bool) -> PyResult<Bound<'py, TorchOperator>> {
        let py = attributes.py();
        let made = self.made.bind(py);
        let attributes =
            if self.beside > 0 { attributes.as_sequence().concat((is_tracked,).into_pyobject(py)?.as_sequence())?.to_tuple()? } else { attributes };
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

    fn compute<'py>(&self, torch: &Torch, arguments: &Bound<'py, PyTuple>, mut call: Call, is_tracked: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = arguments.py();
        let operator = self.operator(arguments.get_slice(self.tensors.len(), arguments.len()), is_tracked)?;
        let (first, is_on_cpu) = (arguments.get_item(0)?, call.is_on_cpu());
        let results = operator.get().memory(py, &self.name, &call)?;
        let outputs = results.iter().map(|wanted| torch.empty(&first, is_on_cpu, wanted)).collect::<PyResult<Vec<_>>>()?;
        call.add_all(outputs.iter().map(Some))?;
        operator.get().compute(py, &self.name, call, outputs.len())?;
        match &outputs[..] {
            [output] if self.beside == 0 => Ok(output.clone()),
            outputs => Ok(PyTuple::new(py, outputs)?.into_any()),
        }
    }

    fn differentiate<'py>(
        &self,
        torch: &Torch,
        (tensors, attributes, wanted): (&[Bound<'py, PyAny>], &Bound<'py, PyTuple>, &[bool]),
        mut call: Call,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let (py, is_on_cpu) = (attributes.py(), call.is_on_cpu());
        let operator = self.operator(attributes.clone(), true)?;
        let memory = operator.get().gradient_memory(py, &call, wanted)?;
        let like = tensors.iter().zip(wanted).filter(|(_, wanted)| **wanted);
        let into = like.zip(&*memory).map(|((tensor, _), memory)| torch.empty(tensor, is_on_cpu, memory)).collect::<PyResult<Vec<_>>>()?;
        for _ in 0..self.beside {
            call.add_absent();
        }
        call.add_all(into.iter().map(Some))?;
        operator.get().differentiate(py, &self.name, call, (self.tensors.len(), 1 + self.beside), into.len(), wanted)?;
        Ok(into)
    }
}
