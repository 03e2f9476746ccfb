//! ONNX operators in terms of the library's, by name.

use std::collections::HashMap;

use elinvar::{DType, Error, Executor, Result, Tensor, kernels::registry::find};
use serde_json::Value;

use crate::{attention, case::Case, training};

/// What an adapter works with.
pub(crate) struct Context<'a> {
    pub(crate) executor: &'a Executor,
    case: &'a Case,
    tensors: &'a HashMap<String, Tensor>,
}

impl Context<'_> {
    /// An optional input.
    pub(crate) fn optional(&self, index: usize) -> Option<&Tensor> {
        self.tensors.get(&format!("in:{}", self.case.inputs.get(index)?))
    }

    /// A required input.
    pub(crate) fn input(&self, index: usize) -> Result<&Tensor> {
        self.optional(index).ok_or_else(|| Error::invalid_data(format!("input {index} is missing")))
    }

    /// Every input.
    fn inputs(&self) -> Vec<Option<&Tensor>> {
        (0..self.case.inputs.len()).map(|i| self.optional(i)).collect()
    }

    /// An attribute as the library writes it.
    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        Some(match self.case.attributes.get(name)? {
            Value::String(text) => text.clone(),
            Value::Array(items) => items.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            value => value.to_string(),
        })
    }

    /// A whole number.
    pub(crate) fn int(&self, name: &str, default: i64) -> i64 {
        self.case.attributes.get(name).and_then(Value::as_i64).unwrap_or(default)
    }

    /// A real number.
    pub(crate) fn float(&self, name: &str, default: f64) -> f64 {
        self.case.attributes.get(name).and_then(Value::as_f64).unwrap_or(default)
    }

    /// Whole numbers of an input, or of an attribute of older versions.
    pub(crate) fn ints(&self, index: usize, attribute: &str) -> Result<Option<Vec<i64>>> {
        if let Some(tensor) = self.optional(index) {
            return tensor.cast(DType::I64)?.to_vec::<i64>().map(Some);
        }
        Ok(self.case.attributes.get(attribute).and_then(Value::as_array).map(|a| a.iter().filter_map(Value::as_i64).collect()))
    }

    /// Runs an operator of the library.
    pub(crate) fn call(&self, name: &str, attributes: &[(&str, String)], inputs: &[Option<&Tensor>]) -> Result<Vec<Option<Tensor>>> {
        let description = find(name).map_err(|_| Error::unsupported(format!("the library has no operator '{name}'")))?;
        let operator = description.operator(attributes.iter().map(|(k, v)| (*k, v.clone())))?;
        let declared = description.inputs.len();
        let mut inputs = inputs.to_vec();
        if !description.inputs.iter().any(|p| p.variadic) {
            inputs.resize(declared.max(inputs.len()), None);
        }
        Ok(self.executor.apply(operator.into(), &inputs)?.into_iter().map(Some).collect())
    }

    /// Runs an operator with one output.
    pub(crate) fn one(&self, name: &str, attributes: &[(&str, String)], inputs: &[Option<&Tensor>]) -> Result<Tensor> {
        let outputs = self.call(name, attributes, inputs)?;
        outputs.into_iter().next().flatten().ok_or_else(|| Error::invalid_data(format!("'{name}' gave nothing")))
    }

    /// Attributes of these names that the case gives, under the same names.
    fn given<'n>(&self, names: &[&'n str]) -> Vec<(&'n str, String)> {
        names.iter().filter_map(|name| Some((*name, self.attribute(name)?))).collect()
    }
}

fn list(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
}

/// ONNX names that are the library's but for their case.
const SAME: &[(&str, &str)] = &[
    ("Abs", "abs"),
    ("Neg", "neg"),
    ("Sign", "sign"),
    ("Relu", "relu"),
    ("Sqrt", "sqrt"),
    ("Reciprocal", "reciprocal"),
    ("Floor", "floor"),
    ("Ceil", "ceil"),
    ("Round", "round"),
    ("Exp", "exp"),
    ("Log", "log"),
    ("Sin", "sin"),
    ("Cos", "cos"),
    ("Tanh", "tanh"),
    ("Erf", "erf"),
    ("Sigmoid", "sigmoid"),
    ("Softplus", "softplus"),
    ("HardSwish", "hard_swish"),
    ("Mish", "mish"),
    ("Softsign", "softsign"),
    ("Add", "add"),
    ("Sub", "sub"),
    ("Mul", "mul"),
    ("Div", "div"),
    ("Pow", "pow"),
    ("MatMul", "matmul"),
    ("Where", "where"),
    ("Equal", "eq"),
    ("Less", "lt"),
    ("LessOrEqual", "le"),
    ("Greater", "gt"),
    ("GreaterOrEqual", "ge"),
    ("And", "logical_and"),
    ("Or", "logical_or"),
    ("Xor", "logical_xor"),
    ("Not", "logical_not"),
    ("BitwiseAnd", "bitwise_and"),
    ("BitwiseOr", "bitwise_or"),
    ("BitwiseXor", "bitwise_xor"),
    ("BitwiseNot", "bitwise_not"),
    ("Tan", "tan"),
];

pub(crate) fn run(case: &Case, executor: &Executor, tensors: &HashMap<String, Tensor>) -> Result<Vec<Option<Tensor>>> {
    let c = Context { executor, case, tensors };
    if let Some((_, name)) = SAME.iter().find(|(onnx, _)| *onnx == case.op) {
        return c.call(name, &[], &c.inputs());
    }
    let x = || c.input(0);
    Ok(match case.op.as_str() {
        "Attention" => return attention::run(&c),
        "Identity" => vec![Some(x()?.clone())],
        "Swish" => swish(&c)?,
        "Elu" => c.call("elu", &c.given(&["alpha"]), &c.inputs())?,
        "LeakyRelu" => c.call("leaky_relu", &c.given(&["alpha"]), &c.inputs())?,
        "Gelu" if c.attribute("approximate").is_some_and(|form| form == "tanh") => c.call("gelu_tanh", &[], &c.inputs())?,
        "Gelu" => c.call("gelu", &[], &c.inputs())?,
        "SwiGLU" => c.call("swiglu", &c.given(&["alpha"]), &c.inputs())?,
        "Max" | "Min" => extremum(&c, &case.op.to_lowercase())?,
        "Clip" => c.call("clamp", &[], &c.inputs())?,
        "Cast" => cast(&c)?,
        "Concat" => c.call("concat", &c.given(&["axis"]), &c.inputs())?,
        "Transpose" => c.call("transpose", &c.given(&["perm"]), &c.inputs())?,
        "Expand" => c.call("expand", &[("shape", list(&c.ints(1, "shape")?.unwrap_or_default()))], &[Some(x()?)])?,
        "Reshape" => {
            let zero = ("allow_zero", (c.int("allowzero", 0) != 0).to_string());
            c.call("reshape", &[("shape", list(&c.ints(1, "shape")?.unwrap_or_default())), zero], &[Some(x()?)])?
        }
        "Slice" => slice(&c)?,
        "Split" => split(&c)?,
        "Gather" => c.call("gather", &c.given(&["axis"]), &c.inputs())?,
        "GatherElements" => c.call("gather_elements", &c.given(&["axis"]), &c.inputs())?,
        "GatherND" => c.call("gather_nd", &c.given(&["batch_dims"]), &c.inputs())?,
        "ScatterElements" => c.call("scatter_elements", &c.given(&["axis", "reduction"]), &c.inputs())?,
        "ScatterND" => c.call("scatter_nd", &c.given(&["reduction"]), &c.inputs())?,
        "Trilu" => trilu(&c)?,
        "Range" => range(&c)?,
        "Softmax" | "LogSoftmax" => softmax(&c)?,
        "LayerNormalization" => {
            let statistics = ("statistics", (case.outputs.len() > 1).to_string());
            c.call("layer_norm", &[c.given(&["axis", "epsilon"]), vec![statistics]].concat(), &c.inputs())?
        }
        "RMSNormalization" => c.call("rms_norm", &c.given(&["axis", "epsilon"]), &c.inputs())?,
        "RotaryEmbedding" => {
            let interleaved = ("interleaved", (c.int("interleaved", 0) != 0).to_string());
            c.call("rotary_embedding", &[c.given(&["num_heads", "rotary_embedding_dim"]), vec![interleaved]].concat(), &c.inputs())?
        }
        "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceLogSumExp" | "ReduceL2" | "ReduceSumSquare" => reduce(&c)?,
        "ArgMax" | "ArgMin" => {
            let attributes = [
                ("axis", c.int("axis", 0).to_string()),
                ("keepdims", (c.int("keepdims", 1) != 0).to_string()),
                ("select_last_index", (c.int("select_last_index", 0) != 0).to_string()),
            ];
            c.call(&case.op.to_lowercase(), &attributes, &c.inputs())?
        }
        "CumSum" => {
            let flag = |name: &'static str| (name, (c.int(name, 0) != 0).to_string());
            let axis = c.ints(1, "axis")?.unwrap_or_default();
            c.call("cumsum", &[("axis", list(&axis)), flag("exclusive"), flag("reverse")], &[Some(x()?)])?
        }
        "TopK" => {
            let flag = |name: &'static str| (name, (c.int(name, 1) != 0).to_string());
            let k = c.ints(1, "k")?.unwrap_or_default();
            c.call("top_k", &[("k", list(&k)), ("axis", c.int("axis", -1).to_string()), flag("largest"), flag("sorted")], &[Some(x()?)])?
        }
        "Selu" | "HardSigmoid" | "Celu" | "ThresholdedRelu" | "Shrink" => vec![Some(training::activation(&c, &case.op)?)],
        "GroupNormalization" | "InstanceNormalization" => vec![Some(training::norm(&c)?)],
        "LpNormalization" => vec![Some(training::normalize(&c)?)],
        "OneHot" => vec![Some(training::one_hot(&c)?)],
        "NegativeLogLikelihoodLoss" => training::loss(&c, false, case.outputs.len())?,
        "SoftmaxCrossEntropyLoss" => training::loss(&c, true, case.outputs.len())?,
        "Adam" | "Momentum" => training::optimizer(&c, case.inputs.len())?,
        "Einsum" => {
            let operands = c.inputs().into_iter().flatten().collect::<Vec<_>>();
            vec![Some(Tensor::einsum(&c.attribute("equation").unwrap_or_default(), &operands)?)]
        }
        "Gemm" => gemm(&c)?,
        "TensorScatter" => tensor_scatter(&c)?,
        op => return Err(Error::unsupported(format!("{op} is no operator of the library"))),
    })
}

fn swish(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let (x, alpha) = (c.input(0)?, c.float("alpha", 1.0));
    if alpha == 1.0 {
        return c.call("silu", &[], &[Some(x)]);
    }
    let alpha = c.executor.tensor(&[], &[alpha as f32])?.cast(x.dtype())?;
    Ok(vec![Some(x.mul(&alpha)?.sigmoid()?.mul(x)?)])
}

fn extremum(c: &Context<'_>, name: &str) -> Result<Vec<Option<Tensor>>> {
    let mut result = c.input(0)?.clone();
    for tensor in c.inputs().into_iter().skip(1) {
        result = c.one(name, &[], &[Some(&result), tensor])?;
    }
    Ok(vec![Some(result)])
}

/// The numbers of ONNX's `TensorProto.DataType`.
fn cast(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    const TYPES: &[(i64, DType)] = &[
        (1, DType::F32),
        (2, DType::U8),
        (3, DType::I8),
        (4, DType::U16),
        (5, DType::I16),
        (6, DType::I32),
        (7, DType::I64),
        (9, DType::Bool),
        (10, DType::F16),
        (12, DType::U32),
        (13, DType::U64),
        (16, DType::BF16),
    ];
    let to = c.int("to", 0);
    let (_, dtype) = TYPES
        .iter()
        .find(|(number, _)| *number == to)
        .ok_or_else(|| Error::unsupported(format!("cast to ONNX type {to}: no data type of the library")))?;
    Ok(vec![Some(c.input(0)?.cast(*dtype)?)])
}

fn slice(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let mut attributes = Vec::new();
    for (index, name) in [(1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")] {
        if let Some(values) = c.ints(index, name)? {
            attributes.push((name, list(&values)));
        }
    }
    c.call("slice", &attributes, &[Some(c.input(0)?)])
}

fn split(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let mut attributes = vec![("axis", c.int("axis", 0).to_string())];
    match c.ints(1, "split")? {
        Some(sizes) => attributes.push(("sizes", list(&sizes))),
        None => attributes.push(("parts", c.int("num_outputs", c.case.outputs.len() as i64).to_string())),
    }
    c.call("split", &attributes, &[Some(c.input(0)?)])
}

fn trilu(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let k = c.ints(1, "k")?.and_then(|k| k.first().copied()).unwrap_or(0);
    let upper = c.int("upper", 1) != 0;
    c.call("trilu", &[("k", k.to_string()), ("upper", upper.to_string())], &[Some(c.input(0)?)])
}

fn range(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let value = |index: usize| -> Result<String> {
        let tensor = c.input(index)?;
        Ok(match tensor.dtype() {
            DType::I32 | DType::I64 | DType::I16 => list(&tensor.cast(DType::I64)?.to_vec::<i64>()?),
            _ => tensor.cast(DType::F32)?.to_vec::<f32>()?.first().copied().unwrap_or_default().to_string(),
        })
    };
    let dtype = c.input(0)?.dtype().name().to_owned();
    c.call("arange", &[("start", value(0)?), ("limit", value(1)?), ("step", value(2)?), ("dtype", dtype)], &[])
}

/// Before version 13 the axes from `axis` on were flattened.
fn softmax(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let x = c.input(0)?;
    let name = if c.case.op == "Softmax" { "softmax" } else { "log_softmax" };
    if c.case.opset >= 13 {
        return c.call(name, &[("axis", c.int("axis", -1).to_string())], &[Some(x)]);
    }
    let axis = x.shape().axis(c.int("axis", 1) as isize)?;
    let rows = x.shape()[..axis].iter().product::<usize>();
    let flat = x.reshape(&[rows, x.shape().elements() / rows.max(1)])?;
    Ok(vec![Some(c.one(name, &[("axis", "1".into())], &[Some(&flat)])?.reshape(x.shape())?)])
}

fn reduce(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let name = match c.case.op.as_str() {
        "ReduceLogSumExp" => "reduce_log_sum_exp".to_owned(),
        "ReduceSumSquare" => "reduce_sum_square".to_owned(),
        op => format!("reduce_{}", op["Reduce".len()..].to_lowercase()),
    };
    let x = c.input(0)?;
    let axes = c.ints(1, "axes")?.filter(|axes| !axes.is_empty());
    if axes.is_none() && c.int("noop_with_empty_axes", 0) != 0 {
        return Ok(vec![Some(x.clone())]);
    }
    let mut attributes = vec![("keepdims", (c.int("keepdims", 1) != 0).to_string())];
    attributes.extend(axes.map(|axes| ("axes", list(&axes))));
    c.call(&name, &attributes, &[Some(x)])
}

/// `alpha · A' B' + beta · C`.
fn gemm(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let flag = |name: &str| (c.int(name, 0) != 0).to_string();
    let attributes = [("transpose_a", flag("transA")), ("transpose_b", flag("transB")), ("alpha", c.float("alpha", 1.0).to_string())];
    let product = c.one("matmul", &attributes, &[Some(c.input(0)?), Some(c.input(1)?)])?;
    let Some(bias) = c.optional(2) else { return Ok(vec![Some(product)]) };
    let beta = c.executor.tensor(&[], &[c.float("beta", 1.0) as f32])?.cast(bias.dtype())?;
    Ok(vec![Some(product.add(&bias.mul(&beta)?)?)])
}

/// Rows of `update` written into a copy of the cache from each sequence's index on, around the end for a circular cache.
fn tensor_scatter(c: &Context<'_>) -> Result<Vec<Option<Tensor>>> {
    let (cache, update) = (c.input(0)?, c.input(1)?);
    let axis = cache.shape().axis(c.int("axis", -2) as isize)?;
    let four = |t: &Tensor| -> Result<Tensor> {
        if axis + 2 != t.shape().rank() || t.shape().rank() < 3 {
            return Err(Error::unsupported("TensorScatter along another axis than the second to last"));
        }
        let (batch, rows, width) = (t.shape()[0], t.shape()[axis], t.shape()[axis + 1]);
        t.reshape(&[batch, t.shape().elements() / (batch * rows * width).max(1), rows, width])
    };
    let (target, rows) = (four(&c.one("mul", &[], &[Some(cache), Some(&one_like(c, cache)?)])?)?, four(update)?.transpose(1, 2)?);
    let (batch, tokens, capacity) = (rows.shape()[0], rows.shape()[1], cache.shape()[axis]);
    let starts = c.ints(2, "")?.unwrap_or_else(|| vec![0; batch]);
    let circular = c.attribute("mode").as_deref() == Some("circular");
    let at = |start: i64, token: usize| start as usize + token;
    let positions: Vec<i32> =
        starts.iter().flat_map(|&s| (0..tokens).map(move |t| at(s, t)).map(|p| if circular { p % capacity } else { p } as i32)).collect();
    let positions = c.executor.tensor(&[batch, tokens], &positions)?;
    c.call("kv_append", &[], &[Some(&target), Some(&rows), Some(&positions)])?;
    Ok(vec![Some(target.reshape(cache.shape())?)])
}

fn one_like(c: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
    c.executor.tensor(&[], &[1.0f32])?.cast(tensor.dtype())
}
