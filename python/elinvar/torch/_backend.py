"""The backend ``elinvar`` of torch.compile: regions of elementwise operators and reductions become programs of Elinvar's, the rest stays PyTorch's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from elinvar._elinvar import TorchRegion
from elinvar.torch._register import native

aten = torch.ops.aten

_UNARY = {
    getattr(aten, name).default: name
    for name in "neg abs exp exp2 log log2 log10 log1p sqrt rsqrt sin cos tan tanh sigmoid erf reciprocal relu silu floor ceil round trunc".split()
}
_BINARY = {
    aten.add.Tensor: "add",
    aten.sub.Tensor: "sub",
    aten.mul.Tensor: "mul",
    aten.div.Tensor: "div",
    aten.add.Scalar: "add",
    aten.sub.Scalar: "sub",
    aten.mul.Scalar: "mul",
    aten.div.Scalar: "div",
    aten.maximum.default: "max",
    aten.minimum.default: "min",
}
_COMPARE = {getattr(getattr(aten, name), overload): name for name in "eq ne lt le gt ge".split() for overload in ("Tensor", "Scalar")}
_REDUCE = {
    aten.sum.dim_IntList: "reduce_sum",
    aten.sum.default: "reduce_sum",
    aten.mean.dim: "reduce_mean",
    aten.mean.default: "reduce_mean",
    aten.amax.default: "reduce_max",
    aten.amin.default: "reduce_min",
}
_SOFTMAX = {aten._softmax.default: "softmax", aten._log_softmax.default: "log_softmax"}
_CASTS = {aten._to_copy.default, torch.ops.prims.convert_element_type.default}
_OTHERS = {aten.gelu.default, aten.pow.Tensor_Scalar, aten.where.self, aten.clamp.default}
_FLOATS = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


def _value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, fx.Node) else node


def _is_taken(value: Any) -> bool:
    """Whether a tensor's shape is known, and its type one that programs have."""
    return (
        isinstance(value, Tensor)
        and (value.dtype in _FLOATS or value.dtype == torch.bool)
        and all(isinstance(extent, int) for extent in value.shape)
        and value.dim() <= 8
        and value.device.type in ("cpu", "cuda")
    )


class _Support(OperatorSupportBase):
    """The nodes that a region may have."""

    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        target, value = node.target, _value(node)
        if node.op != "call_function" or not _is_taken(value) or not value.is_contiguous() or value.numel() == 0:
            return False
        tensors = [_value(x) for x in node.all_input_nodes]
        # A number that is computed is none that a program knows.
        if not tensors or not all(_is_taken(x) and x.device == value.device for x in tensors):
            return False
        if target in _CASTS:
            return value.dtype in _FLOATS and tensors[0].dtype in _FLOATS and node.kwargs.get("memory_format") is None
        if target in _COMPARE:
            return all(x.dtype in _FLOATS for x in tensors)
        if target is aten.where.self:
            return value.dtype in _FLOATS and all(isinstance(x, fx.Node) for x in node.args)
        if target is aten.clamp.default and not all(isinstance(x, (int, float, type(None))) for x in node.args[1:]):
            return False
        known = target in _UNARY or target in _BINARY or target in _REDUCE or target in _SOFTMAX or target in _OTHERS
        return known and value.dtype in _FLOATS and all(x.dtype in _FLOATS for x in tensors)


class _Steps:
    """A region's steps. Floating-point values are f32 inside, whatever they are outside."""

    def __init__(self, inputs: Sequence[fx.Node]) -> None:
        self.steps: list[tuple[Any, list[int | None]]] = []
        self.inputs = len(inputs)
        self.values: dict[fx.Node, int] = {}
        self.constants: dict[float, int] = {}
        for index, node in enumerate(inputs):
            dtype = _value(node).dtype
            self.values[node] = self.add("cast", index, to="f32") if dtype in (torch.float16, torch.bfloat16) else index

    def add(self, name: str, *inputs: int | None, **attributes: object) -> int:
        self.steps.append((native(name, **attributes), list(inputs)))
        return self.inputs + len(self.steps) - 1

    def of(self, x: Any) -> int:
        if isinstance(x, fx.Node):
            return self.values[x]
        number = float(x)
        if number not in self.constants:
            self.constants[number] = self.add("fill", shape="[]", dtype="f32", value=number)
        return self.constants[number]

    def node(self, node: fx.Node) -> int:
        target: Any = node.target
        args, kwargs = node.args, node.kwargs
        if target in _UNARY:
            return self.add(_UNARY[target], self.of(args[0]))
        if target in _BINARY:
            other, alpha = self.of(args[1]), kwargs.get("alpha", 1)
            if alpha != 1:
                other = self.add("mul", other, self.of(alpha))
            return self.add(_BINARY[target], self.of(args[0]), other)
        if target in _COMPARE:
            return self.add(_COMPARE[target], self.of(args[0]), self.of(args[1]))
        if target in _REDUCE:
            return self._reduce(node, _REDUCE[target])
        if target in _SOFTMAX:
            return self.add(_SOFTMAX[target], self.of(args[0]), axis=args[1])
        if target in _CASTS:
            return self.of(args[0])
        if target is aten.gelu.default:
            return self.add("gelu_tanh" if kwargs.get("approximate") == "tanh" else "gelu", self.of(args[0]))
        if target is aten.where.self:
            return self.add("where", *(self.of(x) for x in args))
        if target is aten.clamp.default:
            bounds: list[Any] = [*args[1:], None, None][:2]
            return self.add("clamp", self.of(args[0]), min=bounds[0], max=bounds[1])
        names = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
        exponent: Any = args[1]
        if float(exponent) in names:
            return self.add(names[float(exponent)], self.of(args[0]))
        return self.add("pow", self.of(args[0]), self.of(exponent))

    def _reduce(self, node: fx.Node, name: str) -> int:
        args: Any = node.args
        x = _value(args[0])
        dims = args[1] if len(args) > 1 else None
        keepdim = args[2] if len(args) > 2 else node.kwargs.get("keepdim", False)
        dims = sorted({dim % max(x.dim(), 1) for dim in ([dims] if isinstance(dims, int) else dims or range(x.dim()))})
        return self.add(name, self.of(args[0]), axes=",".join(map(str, dims)) or None, keepdims=bool(keepdim))


class Region(torch.nn.Module):
    """A part of a graph as one program."""

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__()
        nodes = list(graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        steps = _Steps(inputs)
        for node in nodes:
            if node.op == "call_function":
                steps.values[node] = steps.node(node)
        (returned,) = (node.args[0] for node in nodes if node.op == "output")
        self.is_single = isinstance(returned, fx.Node)
        self.kinds: list[tuple[Any, torch.dtype]] = []
        results: list[int] = []
        for node in [returned] if isinstance(returned, fx.Node) else returned:
            value = _value(node)
            self.kinds.append((tuple(value.shape), value.dtype))
            result = steps.values[node]
            if value.dtype in (torch.float16, torch.bfloat16):
                result = steps.add("cast", result, to=_FLOATS[value.dtype])
            elif result < len(inputs) or result in results:
                result = steps.add("copy", result)
            results.append(result)
        self.count = len(steps.steps)
        self.native = TorchRegion(len(inputs), steps.steps, results)

    def forward(self, *inputs: Tensor) -> Any:
        first = inputs[0]
        outputs = [torch.empty(shape, dtype=dtype, device=first.device) for shape, dtype in self.kinds]
        self.native.apply(list(inputs), outputs)
        return outputs[0] if self.is_single else tuple(outputs)


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The graph with its regions in place."""
    partitioner = CapabilityBasedPartitioner(module, _Support(), allows_single_node_partition=True)
    partitions = []
    for partition in partitioner.propose_partitions():
        nodes = list(partition.nodes)
        if len(nodes) > 1 or nodes[0].target in _SOFTMAX:
            partitions.append(partition)
    fused = partitioner.fuse_partitions(partitions, prefix="elinvar_region_")
    for name, part in list(fused.named_children()):
        if name.startswith("elinvar_region_") and isinstance(part, fx.GraphModule):
            setattr(fused, name, Region(part.graph))
    fused.recompile()
    LAST.append(fused)
    boxed: Callable[..., Any] = make_boxed_func(fused.forward)
    return boxed


#: The graphs that were compiled last, for a look at what became of them.
LAST: deque[fx.GraphModule] = deque(maxlen=16)

_DECOMPOSED = [
    aten.silu_backward,
    aten.gelu_backward,
    aten.tanh_backward,
    aten.sigmoid_backward,
    aten.threshold_backward,
    aten.addcmul,
    aten.addcdiv,
    aten.rsub,
    aten.native_layer_norm,
    aten.native_layer_norm_backward,
    aten._softmax_backward_data,
    aten._log_softmax_backward_data,
    aten.mse_loss,
    aten.mse_loss_backward,
    aten._fused_rms_norm,
    aten._fused_rms_norm_backward,
    aten.var_mean,
]


def backend(module: fx.GraphModule, inputs: list[Any], **_: Any) -> Callable[..., Any]:
    """What ``torch.compile(backend="elinvar")`` calls."""
    decompositions: Any = get_decompositions(_DECOMPOSED)
    compiler = aot_autograd(
        fw_compiler=compile_graph,
        bw_compiler=compile_graph,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions,
    )
    compiled: Callable[..., Any] = compiler(module, inputs)
    return compiled
