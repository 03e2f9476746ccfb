"""Operators of ONNX in terms of Elinvar's, and the standard's node tests as cases."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Iterator

import numpy as np

import elinvar
from elinvar import array_api as xp
from elinvar import ops


class Inapplicable(Exception):
    """Elinvar does not have it: the reason."""


@dataclass
class Case:
    """A node with its operands and what it gives."""

    name: str
    operator: str
    opset: int
    attributes: dict[str, Any]
    inputs: list[np.ndarray | None]
    outputs: list[np.ndarray | None]
    rtol: float
    atol: float


class Node:
    """A case, as its adapter sees it."""

    def __init__(self, case: Case, executor: elinvar.Executor) -> None:
        self.case, self.executor = case, executor
        self.given = [None if array is None else _tensor(executor, array) for array in case.inputs]

    def __getitem__(self, index: int) -> Any:
        return self.given[index] if index < len(self.given) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.case.attributes.get(name, default)

    def numbers(self, index: int, name: str) -> Any:
        """An input of whole numbers, or what was an attribute in older versions."""
        if index < len(self.case.inputs) and self.case.inputs[index] is not None:
            return self.case.inputs[index].tolist()
        return self.attribute(name)


def _tensor(executor: elinvar.Executor, array: np.ndarray) -> elinvar.Tensor:
    name = array.dtype.name
    if name not in {dtype.name for dtype in (elinvar.bfloat16, elinvar.float16, *xp.__array_namespace_info__().dtypes().values())}:
        raise Inapplicable(f"no operator takes {name}")
    return executor.tensor(array)


def cases(operators: set[str] | None = None, modules: set[str] | None = None) -> Iterator[Case]:
    """ONNX's cases of one node: of these operators, made by these modules of the package `onnx`, or all."""
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case import node as generated

    for module in pkgutil.iter_modules(generated.__path__):
        if modules is None or module.name in modules:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(f"{generated.__name__}.{module.name}")

    def array(value: Any) -> np.ndarray | None:
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        if not isinstance(value, (np.ndarray, np.generic)):
            raise Inapplicable("operands that are no tensors")
        return np.asarray(value)

    def attribute(entry: Any) -> Any:
        value = onnx.helper.get_attribute_value(entry)
        return value.decode() if isinstance(value, bytes) else value

    for test in generated._NodeTestCases:
        graph = test.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type not in (ADAPTERS if operators is None else operators):
            continue
        node, (given, expected) = graph.node[0], test.data_sets[0]
        try:
            inputs = dict(zip([value.name for value in graph.input], map(array, given)))
            outputs = dict(zip([value.name for value in graph.output], map(array, expected)))
        except Inapplicable:
            continue
        yield Case(
            test.name,
            node.op_type,
            max(entry.version for entry in test.model.opset_import if entry.domain == node.domain),
            {entry.name: attribute(entry) for entry in node.attribute},
            [inputs.get(name) for name in node.input],
            [outputs.get(name) for name in node.output],
            test.rtol,
            test.atol,
        )


def run(case: Case, executor: elinvar.Executor) -> None:
    """Runs a case and compares what it gives. Raises Inapplicable, or AssertionError."""
    found = ADAPTERS[case.operator](Node(case, executor))
    found = found if isinstance(found, (tuple, list)) else (found,)
    for index, expected in enumerate(case.outputs):
        if expected is None:
            continue
        assert index < len(found), f"output {index} was not computed"
        values = found[index].numpy()
        assert values.dtype == expected.dtype and values.shape == expected.shape, f"{values.dtype}{values.shape}, {expected.dtype}{expected.shape} expected"
        # Two units in the last place, where expected values were computed in the narrow type itself.
        rtol = max(case.rtol, {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(expected.dtype.name, 0.0))
        wide = np.float64 if expected.dtype.kind not in "iub" else expected.dtype
        np.testing.assert_allclose(values.astype(wide), expected.astype(wide), rtol=rtol, atol=case.atol)


def _same(name: str) -> Callable[[Node], Any]:
    return lambda node: node.executor.apply(name, [tensor for tensor in node.given])


def _with(name: str, *attributes: str, **renamed: str) -> Callable[[Node], Any]:
    """The operator of that name with attributes of the same names, or of others, as far as they are given."""

    def run(node: Node) -> Any:
        taken = {key: node.attribute(key) for key in attributes} | {key: node.attribute(onnx) for key, onnx in renamed.items()}
        return node.executor.apply(name, node.given, **{key: value for key, value in taken.items() if value is not None})

    return run


def _chain(name: str) -> Callable[[Node], Any]:
    def run(node: Node) -> Any:
        made = node[0]
        for other in node.given[1:]:
            made = node.executor.apply(name, [made, other])
        return made

    return run


def _reduce(name: str) -> Callable[[Node], Any]:
    def run(node: Node) -> Any:
        axes = node.numbers(1, "axes") or None
        if axes is None and node.attribute("noop_with_empty_axes", 0):
            return node[0]
        return node.executor.apply(name, [node[0]], axes=axes, keepdims=bool(node.attribute("keepdims", 1)))

    return run


def _softmax(name: str) -> Callable[[Node], Any]:
    def run(node: Node) -> Any:
        x = node[0]
        if node.case.opset >= 13:
            return node.executor.apply(name, [x], axis=node.attribute("axis", -1))
        rows = int(np.prod(x.shape[: node.attribute("axis", 1) % x.ndim]))
        return node.executor.apply(name, [x.reshape(rows, -1)], axis=1).reshape(x.shape)

    return run


def _position(name: str) -> Callable[[Node], Any]:
    return lambda node: node.executor.apply(
        name,
        [node[0]],
        axis=node.attribute("axis", 0),
        keepdims=bool(node.attribute("keepdims", 1)),
        select_last_index=bool(node.attribute("select_last_index", 0)),
    )


def _cast(node: Node) -> Any:
    types = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 12: "uint32", 13: "uint64", 16: "bfloat16"}
    to = types.get(node.attribute("to"))
    if to is None:
        raise Inapplicable("a cast to a type that Elinvar does not have")
    return node[0].astype(to)


def _slice(node: Node) -> Any:
    named = {name: node.numbers(index, name) for index, name in enumerate(["starts", "ends", "axes", "steps"], 1)}
    # Ends beyond what fits stand for the end.
    named["ends"] = [max(min(end, 2**62), -(2**62)) for end in named["ends"]]
    return ops.slice(node[0], **{name: value for name, value in named.items() if value is not None})


def _split(node: Node) -> Any:
    sizes, axis = node.numbers(1, "split"), node.attribute("axis", 0)
    if sizes is not None:
        return ops.split(node[0], axis=axis, sizes=sizes)
    return ops.split(node[0], axis=axis, parts=node.attribute("num_outputs", len(node.case.outputs)))


def _range(node: Node) -> Any:
    start, limit, step = (array.item() for array in node.case.inputs)
    return node.executor.arange(start, limit, step, dtype=node[0].dtype)


def _gemm(node: Node) -> Any:
    a, b = (x.T if node.attribute(name, 0) else x for x, name in [(node[0], "transA"), (node[1], "transB")])
    product = (a @ b) * float(node.attribute("alpha", 1.0))
    return product if node[2] is None else product + node[2] * float(node.attribute("beta", 1.0))


def _clip(node: Node) -> Any:
    return xp.clip(node[0], node[1] if node[1] is not None else node.attribute("min"), node[2] if node[2] is not None else node.attribute("max"))


def _hard_sigmoid(node: Node) -> Any:
    return (node[0] * float(node.attribute("alpha", 0.2)) + float(node.attribute("beta", 0.5))).clip(0.0, 1.0)


def _gelu(node: Node) -> Any:
    return ops.gelu_tanh(node[0]) if node.attribute("approximate", "none") == "tanh" else node[0].gelu()


def _celu(node: Node) -> Any:
    alpha = float(node.attribute("alpha", 1.0))
    return ops.elu(node[0] / alpha, alpha=1.0) * alpha


def _selu(node: Node) -> Any:
    return ops.elu(node[0], alpha=float(node.attribute("alpha", 1.6732632))) * float(node.attribute("gamma", 1.050701))


def _thresholded(node: Node) -> Any:
    return xp.where(node[0] > float(node.attribute("alpha", 1.0)), node[0], 0.0)


def _shrink(node: Node) -> Any:
    x, bound, bias = node[0], float(node.attribute("lambd", 0.5)), float(node.attribute("bias", 0.0))
    return xp.where(x < -bound, x + bias, xp.where(x > bound, x - bias, 0.0))


def _swish(node: Node) -> Any:
    return node[0] * (node[0] * float(node.attribute("alpha", 1.0))).sigmoid()


def _group_norm(node: Node) -> Any:
    x, scale, bias = node[0], node[1], node[2]
    groups = node.attribute("num_groups", x.shape[1])
    if node.case.opset < 21 and "num_groups" in node.case.attributes and scale.shape[0] == groups != x.shape[1]:
        scale, bias = (xp.repeat(tensor, x.shape[1] // groups) for tensor in (scale, bias))
    flat = ops.layer_norm(x.reshape(x.shape[0] * groups, -1), epsilon=float(node.attribute("epsilon", 1e-5))).reshape(x.shape)
    shape = (x.shape[1],) + (1,) * (x.ndim - 2)
    return flat * scale.reshape(shape) + bias.reshape(shape)


def _lp_norm(node: Node) -> Any:
    x, axis = node[0], node.attribute("axis", -1)
    norm = abs(x).sum(axis, keepdims=True) if node.attribute("p", 2) == 1 else (x * x).sum(axis, keepdims=True).sqrt()
    # Of zeros zeros.
    return x / xp.where(norm == 0, 1.0, norm)


def _one_hot(node: Node) -> Any:
    depth, axis, indices = int(node.case.inputs[1].item()), node.attribute("axis", -1), node[0].astype("int64")
    at = xp.expand_dims(xp.where(indices < 0, indices + depth, indices), axis=axis)
    shape = [1] * at.ndim
    shape[axis] = depth
    return xp.where(at == node.executor.arange(depth).reshape(shape), node[2][1], node[2][0])


def _loss(of_logits: bool) -> Callable[[Node], Any]:
    def run(node: Node) -> Any:
        x, targets, weights = node[0], node[1].astype("int64"), node[2]
        logs = ops.log_softmax(x, axis=1) if of_logits else x
        ignored = node.attribute("ignore_index")
        counts = xp.ones_like(targets, dtype=elinvar.bool) if ignored is None else targets != ignored
        known = xp.where(counts, targets, 0)
        picked = xp.take_along_axis(logs, known.expand_dims(1), axis=1).squeeze(1)
        factor = xp.take(weights, known.flatten(), axis=0).reshape(known.shape) if weights is not None else xp.ones_like(picked)
        factor = xp.where(counts, factor, 0.0)
        losses = -picked * factor
        reduction = node.attribute("reduction", "mean")
        total = losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.sum() / factor.sum()
        return total, logs

    return run


def _optimizer(step: Callable[..., tuple[Any, ...]], kinds: int) -> Callable[[Node], Any]:
    def run(node: Node) -> Any:
        count = (len(node.given) - 2) // kinds
        rate, time = float(node.case.inputs[0]), int(node.case.inputs[1])
        made = [step(node, rate, time, *(node[2 + kind * count + at] for kind in range(kinds))) for at in range(count)]
        return [tensor for kind in zip(*made) for tensor in kind]

    return run


def _adam(node: Node, rate: float, time: int, x: Any, gradient: Any, mean: Any, square: Any) -> tuple[Any, ...]:
    alpha, beta = float(node.attribute("alpha", 0.9)), float(node.attribute("beta", 0.999))
    gradient = gradient + x * float(node.attribute("norm_coefficient", 0.0))
    mean, square = mean * alpha + gradient * (1 - alpha), square * beta + gradient * gradient * (1 - beta)
    if time > 0:
        rate *= (1 - beta**time) ** 0.5 / (1 - alpha**time)
    made = x - mean * rate / (square.sqrt() + float(node.attribute("epsilon", 1e-6)))
    return made * (1.0 - float(node.attribute("norm_coefficient_post", 0.0))), mean, square


def _adagrad(node: Node, rate: float, time: int, x: Any, gradient: Any, square: Any) -> tuple[Any, ...]:
    rate /= 1 + time * float(node.attribute("decay_factor", 0.0))
    gradient = gradient + x * float(node.attribute("norm_coefficient", 0.0))
    square = square + gradient * gradient
    return x - gradient * rate / (square.sqrt() + float(node.attribute("epsilon", 1e-6))), square


def _momentum(node: Node, rate: float, time: int, x: Any, gradient: Any, mean: Any) -> tuple[Any, ...]:
    alpha = float(node.attribute("alpha", 0.9))
    gradient = gradient + x * float(node.attribute("norm_coefficient", 0.0))
    mean = mean * alpha + gradient * (float(node.attribute("beta", 1.0)) if time > 0 else 1.0)
    step = gradient + mean * alpha if node.attribute("mode") == "nesterov" else mean
    return x - step * rate, mean


def _layer_norm(node: Node) -> Any:
    epsilon = float(node.attribute("epsilon", 1e-5))
    return ops.layer_norm(*node.given, axis=node.attribute("axis", -1), epsilon=epsilon, statistics=len(node.case.outputs) > 1)


def _attention(node: Node) -> Any:
    def heads_first(x: Any, heads: int | None) -> Any:
        return x if x.ndim == 4 else x.reshape(x.shape[0], x.shape[1], heads, -1).permute_dims(0, 2, 1, 3)

    q, k, v = (heads_first(node[i], node.attribute(name)) for i, name in enumerate(["q_num_heads", "kv_num_heads", "kv_num_heads"]))
    past = node[4].shape[2] if node[4] is not None else 0
    k, v = (x if node[i] is None else elinvar.concat([node[i], x], axis=2) for x, i in [(k, 4), (v, 5)])
    (batch, queries), keys, mask = (q.shape[0], q.shape[2]), k.shape[2], node[3]
    if mask is not None and 1 < mask.shape[-1] < keys:
        rest = (*mask.shape[:-1], keys - mask.shape[-1])
        fill = False if mask.dtype == elinvar.bool else -np.inf
        mask = elinvar.concat([mask, node.executor.full(rest, fill, mask.dtype)], axis=-1)
    lengths = node[6].astype("int32") if node[6] is not None else None
    positions = None
    if lengths is not None and node[4] is None:
        positions = lengths.expand_dims(1) - queries + node.executor.arange(queries, dtype="int32")
    named = {"causal": bool(node.attribute("is_causal", 0)), "offset": past, "softcap": float(node.attribute("softcap", 0.0)), "scale": node.attribute("scale")}
    for name, onnx in [("left_window", "left_window_size"), ("right_window", "right_window_size")]:
        if node.attribute(onnx, -1) >= 0:
            named[name] = node.attribute(onnx)
    y = ops.attention(q, k, v, mask, positions, lengths, **named)
    if node[0].ndim == 3:
        y = y.permute_dims(0, 2, 1, 3).reshape(batch, queries, -1)
    if len(node.case.outputs) < 4:
        return y, k, v
    mode = node.attribute("qk_matmul_output_mode", 0)
    if mode in (0, 1):
        # Raw and softcapped scores see no mask.
        scores = ops.attention_scores(q, k, scale=named["scale"], softcap=named["softcap"])
    else:
        scores = ops.attention_scores(q, k, mask, positions, lengths, softmax=mode == 3, **named)
    return y, k, v, scores


def _tensor_scatter(node: Node) -> Any:
    cache, update = node[0], node[1]
    if node.attribute("axis", -2) % cache.ndim != cache.ndim - 2 or cache.ndim < 3:
        raise Inapplicable("TensorScatter along another axis than the second to last")
    target = cache.copy().reshape(cache.shape[0], -1, *cache.shape[-2:])
    rows = update.reshape(update.shape[0], -1, *update.shape[-2:]).permute_dims(0, 2, 1, 3)
    starts = node.numbers(2, "") or [0] * rows.shape[0]
    positions = np.array(starts, np.int32)[:, None] + np.arange(rows.shape[1], dtype=np.int32)
    if node.attribute("mode") == "circular":
        positions %= cache.shape[-2]
    ops.kv_append(target, rows.contiguous(), node.executor.tensor(positions))
    return target.reshape(cache.shape)


def _einsum(node: Node) -> Any:
    """By broadcasting: every letter is an axis, and those that the result lacks are summed."""
    equation = node.attribute("equation").replace(" ", "")
    terms, _, result = equation.partition("->")
    operands = [term for term in terms.split(",")]
    if any("." in term for term in operands):
        width = max(x.ndim - len(term.replace("...", "")) for term, x in zip(operands, node.given))
        letters = "ABCDEFGH"[:width]
        operands = [term.replace("...", letters[width - (x.ndim - len(term.replace("...", ""))) :]) for term, x in zip(operands, node.given)]
        result = result.replace("...", letters)
    if "->" not in equation:
        every = "".join(operands)
        result = "".join(sorted({letter for letter in every if every.count(letter) == 1}))
    letters = sorted(set("".join(operands)))
    product = None
    for term, x in zip(operands, node.given):
        while len(set(term)) < len(term):
            raise Inapplicable("Einsum with one letter twice in an operand")
        view = x.permute_dims(sorted(range(x.ndim), key=lambda axis: letters.index(term[axis])))
        view = view.reshape([x.shape[term.index(letter)] if letter in term else 1 for letter in letters])
        product = view if product is None else product * view
    gone = tuple(at for at, letter in enumerate(letters) if letter not in result)
    summed = product.sum(gone, dtype=product.dtype) if gone else product
    kept = [letter for letter in letters if letter in result]
    return summed.permute_dims([kept.index(letter) for letter in result]) if kept else summed


ADAPTERS: dict[str, Callable[[Node], Any]] = {
    **{
        onnx: _same(name)
        for onnx, name in {
            "Abs": "abs", "Neg": "neg", "Sign": "sign", "Relu": "relu", "Sqrt": "sqrt", "Reciprocal": "reciprocal", "Floor": "floor", "Ceil": "ceil",
            "Round": "round", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Tanh": "tanh", "Erf": "erf", "Sigmoid": "sigmoid",
            "Softplus": "softplus", "HardSwish": "hard_swish", "Mish": "mish", "Softsign": "softsign", "Add": "add", "Sub": "sub", "Mul": "mul",
            "Div": "div", "Pow": "pow", "MatMul": "matmul", "Where": "where", "Equal": "eq", "Less": "lt", "LessOrEqual": "le", "Greater": "gt",
            "GreaterOrEqual": "ge", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor", "Not": "logical_not", "BitwiseAnd": "bitwise_and",
            "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor", "BitwiseNot": "bitwise_not",
        }.items()
    },
    **{
        f"Reduce{onnx}": _reduce(f"reduce_{name}")
        for onnx, name in {
            "Sum": "sum", "Mean": "mean", "Max": "max", "Min": "min", "Prod": "prod", "LogSumExp": "log_sum_exp", "L2": "l2", "SumSquare": "sum_square",
        }.items()
    },
    "Adagrad": _optimizer(_adagrad, 3),
    "Adam": _optimizer(_adam, 4),
    "ArgMax": _position("argmax"),
    "ArgMin": _position("argmin"),
    "Attention": _attention,
    "Cast": _cast,
    "Celu": _celu,
    "Clip": _clip,
    "Concat": _with("concat", "axis"),
    "CumSum": lambda node: ops.cumsum(
        node[0], axis=int(node.case.inputs[1]), exclusive=bool(node.attribute("exclusive", 0)), reverse=bool(node.attribute("reverse", 0))
    ),
    "Einsum": _einsum,
    "Elu": _with("elu", "alpha"),
    "Expand": lambda node: ops.expand(node[0], shape=node.numbers(1, "shape")),
    "Gather": _with("gather", "axis"),
    "GatherElements": _with("gather_elements", "axis"),
    "GatherND": _with("gather_nd", "batch_dims"),
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "HardSigmoid": _hard_sigmoid,
    "Identity": lambda node: node[0],
    "InstanceNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": _with("leaky_relu", "alpha"),
    "LogSoftmax": _softmax("log_softmax"),
    "LpNormalization": _lp_norm,
    "Max": _chain("max"),
    "Min": _chain("min"),
    "Momentum": _optimizer(_momentum, 3),
    "NegativeLogLikelihoodLoss": _loss(False),
    "OneHot": _one_hot,
    "RMSNormalization": _with("rms_norm", "axis", "epsilon"),
    "Range": _range,
    "Reshape": lambda node: ops.reshape(node[0], shape=node.numbers(1, "shape"), allow_zero=bool(node.attribute("allowzero", 0))),
    "RotaryEmbedding": lambda node: ops.rotary_embedding(
        *node.given,
        interleaved=bool(node.attribute("interleaved", 0)),
        num_heads=node.attribute("num_heads"),
        rotary_embedding_dim=node.attribute("rotary_embedding_dim"),
    ),
    "ScatterElements": _with("scatter_elements", "axis", "reduction"),
    "ScatterND": _with("scatter_nd", "reduction"),
    "Selu": _selu,
    "Shrink": _shrink,
    "Slice": _slice,
    "Softmax": _softmax("softmax"),
    "SoftmaxCrossEntropyLoss": _loss(True),
    "Split": _split,
    "SwiGLU": _with("swiglu", "alpha"),
    "Swish": _swish,
    "TensorScatter": _tensor_scatter,
    "ThresholdedRelu": _thresholded,
    "TopK": lambda node: ops.top_k(
        node[0],
        k=int(node.numbers(1, "k")[0]),
        axis=node.attribute("axis", -1),
        largest=bool(node.attribute("largest", 1)),
        sorted=bool(node.attribute("sorted", 1)),
    ),
    "Transpose": _with("transpose", "perm"),
    "Trilu": lambda node: ops.trilu(node[0], k=int(node.numbers(1, "k") or 0), upper=bool(node.attribute("upper", 1))),
}
