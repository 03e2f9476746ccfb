//! The library's operators by name, and what describes them.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex},
};

use elinvar::{
    KeptOperator, Precision,
    kernels::{AttributeInfo, AttributeKind, Description, Port, registry::operators},
};
use pyo3::{
    Bound, IntoPyObject, Py, PyAny, PyRef, PyResult, Python,
    exceptions::{PyTypeError, PyValueError},
    pyclass, pyfunction, pymethods,
    types::{
        PyAnyMethods, PyBool, PyBoolMethods, PyDict, PyDictMethods, PyFloat, PyFloatMethods, PyInt, PyList, PyListMethods, PyString, PyStringMethods,
        PyTuple, PyTupleMethods,
    },
};

use crate::{context::Context, dtype, errors::raise, executor::Executor, tensor::Tensor, work::lock};

/// The text by which an operator reads an attribute's value.
fn text(info: &AttributeInfo, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(truth.is_true().to_string());
    }
    // Types of elements have NumPy's names here.
    if let AttributeKind::Word(words) = info.kind
        && words.contains(&elinvar::DType::F32.name())
    {
        return dtype::parse(value).map(|dtype| dtype.name().to_owned());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_cow()?.into_owned());
    }
    if let AttributeKind::Ints | AttributeKind::Counts = info.kind {
        let numbers: Vec<i128> = match value.extract::<i128>() {
            Ok(number) => vec![number],
            Err(_) => {
                let wrong = |_| PyTypeError::new_err(format!("attribute '{}' is {value}: {} are expected", info.name, info.kind.values()));
                value.try_iter().and_then(|numbers| numbers.map(|number| number?.extract()).collect()).map_err(wrong)?
            }
        };
        return Ok(format!("[{}]", numbers.iter().map(i128::to_string).collect::<Vec<_>>().join(",")));
    }
    Ok(value.str()?.to_cow()?.into_owned())
}

/// An operator with attributes of Python's.
fn operator<'py>(
    description: &'static Description,
    attributes: impl Iterator<Item = PyResult<(String, Bound<'py, PyAny>)>>,
    precision: Precision,
) -> PyResult<KeptOperator> {
    let mut given = Vec::new();
    for attribute in attributes {
        let (name, value) = attribute?;
        // None stands for the default. What is unknown is rejected below, where the error says what is known.
        if value.is_none() {
            continue;
        }
        let text = match description.attributes.iter().find(|info| info.name == name) {
            Some(info) => text(info, &value)?,
            None => String::new(),
        };
        given.push((name, text));
    }
    let takes_precision = description.attributes.iter().any(|info| info.name == "precision");
    if takes_precision && !given.iter().any(|(name, _)| name == "precision") {
        given.push(("precision".to_owned(), precision.to_string()));
    }
    description.operator(given).map(|operator| KeptOperator::new(operator.into())).map_err(raise)
}

/// The tensors that a call gives, in the operator's order.
fn inputs<'py>(description: &Description, given: &Bound<'py, PyAny>) -> PyResult<Vec<Option<PyRef<'py, Tensor>>>> {
    let one = |object: &Bound<'py, PyAny>, name: &str| -> PyResult<Option<PyRef<'py, Tensor>>> {
        if object.is_none() {
            return Ok(None);
        }
        let wrong = || PyTypeError::new_err(format!("{}: {name} is {}: an elinvar.Tensor is expected", description.name, object.get_type()));
        object.cast::<Tensor>().map(|tensor| Some(tensor.borrow())).map_err(|_| wrong())
    };
    let name = |index: usize| description.inputs.get(index).or(description.inputs.last()).map_or("an input", |port| port.name);
    let mut inputs = Vec::new();
    if let Ok(by_name) = given.cast::<PyDict>() {
        let mut used = 0;
        for port in description.inputs {
            if port.variadic {
                return Err(PyTypeError::new_err(format!("{}: give its inputs as a list", description.name)));
            }
            let found = by_name.get_item(port.name)?;
            used += usize::from(found.is_some());
            inputs.push(found.map_or(Ok(None), |object| one(&object, port.name))?);
        }
        if used < by_name.len() {
            let known: Vec<_> = description.inputs.iter().map(|port| port.name).collect();
            return Err(PyTypeError::new_err(format!("{}: its inputs are {}; others are given", description.name, known.join(", "))));
        }
    } else if given.is_instance_of::<Tensor>() {
        inputs.push(one(given, name(0))?);
    } else {
        for (index, object) in given.try_iter()?.enumerate() {
            inputs.push(one(&object?, name(index))?);
        }
    }
    if !description.inputs.iter().any(|port| port.variadic) {
        let missing = description.inputs.len().saturating_sub(inputs.len());
        inputs.extend((0..missing).map(|_| None));
    }
    Ok(inputs)
}

/// The operator of that name.
fn described(name: &str) -> PyResult<&'static Description> {
    static KNOWN: LazyLock<HashMap<&str, &Description>> = LazyLock::new(|| operators().into_iter().map(|known| (known.name, known)).collect());
    KNOWN.get(name).copied().ok_or_else(|| {
        let mut near: Vec<_> = KNOWN.keys().copied().filter(|known| known.contains(name) || name.contains(known)).collect();
        near.sort_unstable();
        let hint = if near.is_empty() { "dir(elinvar.ops) lists them".to_owned() } else { format!("did you mean {}?", near.join(", ")) };
        PyValueError::new_err(format!("unknown operator '{name}': {hint}"))
    })
}

/// An operator's function in `elinvar.ops`, with the operators that it made of attributes.
#[pyclass(frozen, module = "elinvar._elinvar")]
pub(crate) struct Function {
    description: &'static Description,
    made: Mutex<Vec<Made>>,
}

/// An operator and what it was made of.
struct Made {
    precision: Precision,
    attributes: Vec<Py<PyAny>>,
    operator: KeptOperator,
}

/// Whether a value stays what it is.
fn is_constant(value: &Bound<'_, PyAny>) -> bool {
    let is_number = |value: &Bound<'_, PyAny>| value.is_exact_instance_of::<PyInt>() || value.is_exact_instance_of::<PyFloat>();
    let is_word = || value.is_exact_instance_of::<PyString>() || value.is_instance_of::<PyBool>() || value.is_instance_of::<dtype::DType>();
    let is_tuple = || value.cast_exact::<PyTuple>().is_ok_and(|numbers| numbers.iter_borrowed().all(|number| is_number(&number)));
    value.is_none() || is_number(value) || is_word() || is_tuple()
}

/// Whether an operator of either is the same.
fn is_same(known: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> bool {
    if known.is(value) {
        return true;
    }
    match (known.cast_exact::<PyFloat>(), value.cast_exact::<PyFloat>()) {
        (Ok(known), Ok(value)) => known.value().to_bits() == value.value().to_bits(),
        _ => false,
    }
}

impl Function {
    /// Operators that are kept. Where there are more, all begin again.
    const MOST: usize = 16;

    /// The operator of these attributes, in the order of the description.
    fn operator(&self, py: Python<'_>, precision: Precision, attributes: &Bound<'_, PyTuple>) -> PyResult<KeptOperator> {
        let is_it = |made: &&Made| {
            let mut pairs = made.attributes.iter().zip(attributes.iter_borrowed());
            made.precision == precision && pairs.all(|(known, value)| is_same(known.bind(py), &value))
        };
        if let Some(made) = lock(&self.made).iter().find(is_it) {
            return Ok(made.operator.clone());
        }
        let given = self.description.attributes.iter().zip(attributes.iter()).map(|(info, value)| Ok((info.name.to_owned(), value)));
        let operator = operator(self.description, given, precision)?;
        if attributes.iter_borrowed().all(|value| is_constant(&value)) {
            let attributes = attributes.iter().map(Bound::unbind).collect();
            let mut made = lock(&self.made);
            if made.len() == Self::MOST {
                made.clear();
            }
            made.push(Made { precision, attributes, operator: operator.clone() });
        }
        Ok(operator)
    }
}

#[pymethods]
impl Function {
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        Ok(Self { description: described(name)?, made: Mutex::default() })
    }
}

/// What `elinvar.ops` calls, with a value for each attribute: the executor is the first tensor's, unless there is none. A number among the operands is the
/// attribute of the same name.
#[pyfunction]
pub(crate) fn _call<'py>(
    py: Python<'py>,
    function: &Bound<'py, Function>,
    operands: &Bound<'py, PyTuple>,
    attributes: &Bound<'py, PyTuple>,
    executor: Option<&Bound<'py, Executor>>,
) -> PyResult<Py<PyAny>> {
    let function = function.get();
    let (description, name) = (function.description, function.description.name);
    let mut given = Vec::with_capacity(operands.len());
    let mut numbers = None;
    for (index, object) in operands.iter_borrowed().enumerate() {
        if let Ok(tensor) = object.cast::<Tensor>() {
            given.push(Some(tensor.get()));
            continue;
        }
        given.push(None);
        if object.is_none() {
            continue;
        }
        let port = description.inputs.get(index).or(description.inputs.last()).map_or("an input", |port| port.name);
        if let Some(place) = description.attributes.iter().position(|info| info.name == port) {
            numbers.get_or_insert_with(|| attributes.to_list()).set_item(place, object)?;
        } else if object.is(py.Ellipsis()) {
            return Err(PyTypeError::new_err(format!("{name}: '{port}' is missing")));
        } else {
            return Err(PyTypeError::new_err(format!("{name}: {port} is {}: an elinvar.Tensor is expected", object.get_type())));
        }
    }
    let first = given.iter().flatten().next().map(|tensor| &tensor.context);
    let context = executor.map(|executor| &executor.get().0).or(first);
    let context = context.ok_or_else(|| PyTypeError::new_err(format!("{name}: no tensor is given")))?;
    let with_numbers = numbers.map(|numbers| numbers.to_tuple());
    let operator = function.operator(py, context.executor.precision(), with_numbers.as_ref().unwrap_or(attributes))?;
    results(py, context, context.apply(py, &operator, &given)?)
}

/// Runs an operator by its name.
pub(crate) fn apply(
    py: Python<'_>,
    context: &Arc<Context>,
    name: &str,
    given: &Bound<'_, PyAny>,
    attributes: Option<&Bound<'_, PyDict>>,
) -> PyResult<Py<PyAny>> {
    let description = described(name)?;
    let attributes = attributes.into_iter().flat_map(|attributes| attributes.iter());
    let attributes = attributes.map(|(name, value)| Ok((name.cast::<PyString>()?.to_cow()?.into_owned(), value)));
    let operator = operator(description, attributes, context.executor.precision())?;
    let inputs = inputs(description, given)?;
    let refs: Vec<_> = inputs.iter().map(|input| input.as_deref()).collect();
    results(py, context, context.apply(py, &operator, &refs)?)
}

/// One result as it is, several as a tuple, and None for none.
pub(crate) fn results(py: Python<'_>, context: &Arc<Context>, mut made: Vec<elinvar::Tensor>) -> PyResult<Py<PyAny>> {
    if made.len() > 1 {
        let tensors = made.into_iter().map(|made| Py::new(py, Tensor::new(context, made))).collect::<PyResult<Vec<_>>>()?;
        return Ok(PyTuple::new(py, tensors)?.into_any().unbind());
    }
    match made.pop() {
        Some(made) => Ok(Py::new(py, Tensor::new(context, made))?.into_any()),
        None => Ok(py.None()),
    }
}

fn port<'py>(py: Python<'py>, port: &Port) -> PyResult<Bound<'py, PyDict>> {
    let entry = PyDict::new(py);
    entry.set_item("name", port.name)?;
    entry.set_item("dtypes", port.dtypes.iter().map(|dtype| dtype::name(*dtype)).collect::<Vec<_>>())?;
    entry.set_item("optional", port.optional)?;
    entry.set_item("variadic", port.variadic)?;
    entry.set_item("updated", matches!(port.access, elinvar::Access::ReadWrite))?;
    entry.set_item("doc", port.doc)?;
    Ok(entry)
}

/// Every operator of the library as data: name, summary, inputs, outputs, attributes. `elinvar.ops` is made of it.
#[pyfunction]
pub(crate) fn _descriptions(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = PyList::empty(py);
    for description in operators() {
        let entry = PyDict::new(py);
        entry.set_item("name", description.name)?;
        entry.set_item("summary", description.summary)?;
        entry.set_item("inputs", description.inputs.iter().map(|input| port(py, input)).collect::<PyResult<Vec<_>>>()?)?;
        entry.set_item("outputs", description.outputs.iter().map(|output| port(py, output)).collect::<PyResult<Vec<_>>>()?)?;
        let mut attributes = Vec::new();
        for info in description.attributes {
            let attribute = PyDict::new(py);
            attribute.set_item("name", info.name)?;
            attribute.set_item("kind", info.kind.to_string())?;
            if let AttributeKind::Word(words) = info.kind {
                let named: Vec<_> = words.iter().map(|word| dtype::named(word).map_or(*word, dtype::name)).collect();
                attribute.set_item("words", named)?;
            }
            // Types of elements have NumPy's names here.
            let is_type = matches!(info.kind, AttributeKind::Word(words) if words.contains(&elinvar::DType::F32.name()));
            attribute.set_item("default", info.default.map(|default| dtype::named(default).filter(|_| is_type).map_or(default, dtype::name)))?;
            attribute.set_item("doc", info.doc)?;
            attributes.push(attribute.into_pyobject(py)?);
        }
        entry.set_item("attributes", attributes)?;
        all.append(entry)?;
    }
    Ok(all)
}
