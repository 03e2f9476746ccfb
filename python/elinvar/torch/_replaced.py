"""What strict mode computes with Elinvar's operators in place of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from elinvar.torch._register import native

aten = torch.ops.aten
REPLACED: dict[Any, Callable[..., Any]] = {}


def _instead_of(*overloads: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        REPLACED.update(dict.fromkeys(overloads, function))
        return function

    return register


def apply(name: str, inputs: Sequence[Tensor | None], shape: Sequence[int], dtype: torch.dtype, **attributes: object) -> Tensor:
    """An operator of the library's with one result."""
    first = next(x for x in inputs if x is not None)
    y = torch.empty(shape, dtype=dtype, device=first.device)
    native(name, **attributes).apply(list(inputs), [y])
    return y


def _axes(x: Tensor, dim: int | Sequence[int] | None, keepdim: bool) -> tuple[str | None, list[int]]:
    dims = [dim] if isinstance(dim, int) else list(dim or [])
    gone = {axis % max(x.dim(), 1) for axis in dims} or set(range(x.dim()))
    shape = [1 if axis in gone else extent for axis, extent in enumerate(x.shape) if keepdim or axis not in gone]
    return ",".join(map(str, sorted(gone))) or None, shape


def _reduce(name: str, x: Tensor, dim: Any, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    if x.dim() == 0:
        return x.clone()
    axes, shape = _axes(x, dim, keepdim)
    return apply(name, [x], shape, x.dtype, axes=axes, keepdims=keepdim)


@_instead_of(aten.sum.dim_IntList)
def _sum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return _reduce("reduce_sum", x, dim, keepdim, dtype)


@_instead_of(aten.sum.default)
def _sum_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _reduce("reduce_sum", x, None, False, dtype)


@_instead_of(aten.mean.dim)
def _mean(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    return _reduce("reduce_mean", x, dim, keepdim, dtype)


@_instead_of(aten.mean.default)
def _mean_all(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _reduce("reduce_mean", x, None, False, dtype)


# Functions of one number.


def _unary(name: str) -> Callable[[Tensor], Tensor]:
    return lambda x: apply(name, [x], x.shape, x.dtype)


for _name in ("exp", "exp2", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "rsqrt", "silu", "mish"):
    REPLACED[getattr(aten, _name).default] = _unary(_name)


@_instead_of(aten.gelu.default)
def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return apply("gelu" if approximate == "none" else "gelu_tanh", [x], x.shape, x.dtype)


@_instead_of(aten.pow.Tensor_Scalar)
def _pow(x: Tensor, exponent: float) -> Tensor:
    if exponent == 2:
        return x * x
    return apply("pow", [x, torch.full((), exponent, dtype=x.dtype, device=x.device)], x.shape, x.dtype)


def _gradient(name: str, inputs: list[Tensor | None], y: Tensor, dy: Tensor, wanted: list[bool], **attributes: object) -> list[Tensor]:
    into = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x, is_wanted in zip(inputs, wanted) if is_wanted and x is not None]
    native(name, **attributes).gradient(inputs, [y], [dy], wanted, into)
    return into


@_instead_of(aten.silu_backward.default)
def _silu_backward(dy: Tensor, x: Tensor) -> Tensor:
    return _gradient("silu", [x], _unary("silu")(x), dy, [True])[0]


@_instead_of(aten.gelu_backward.default)
def _gelu_backward(dy: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    return _gradient("gelu" if approximate == "none" else "gelu_tanh", [x], _gelu(x, approximate=approximate), dy, [True])[0]


@_instead_of(aten.tanh_backward.default)
def _tanh_backward(dy: Tensor, y: Tensor) -> Tensor:
    return dy * (1 - y * y)


@_instead_of(aten.sigmoid_backward.default)
def _sigmoid_backward(dy: Tensor, y: Tensor) -> Tensor:
    return dy * ((1 - y) * y)


# Arithmetic that a GPU may contract, or where it multiplies by an inverse; a number beside f16 or bf16 is not rounded to these.


def _number(x: Tensor, value: Any) -> Tensor:
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=torch.float32, device=x.device)


def _binary(operator: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def compute(x: Any, other: Any, *, alpha: float = 1) -> Tensor:
        like = x if isinstance(x, Tensor) else other
        dtype = torch.result_type(x, other)
        if not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        x, other = _number(like, x), _number(like, other)
        on = like.device if x.device == other.device or like.device.type != "cpu" else (x if other.device.type == "cpu" else other).device
        x, other = x.to(on, torch.float32), other.to(on, torch.float32)
        if alpha != 1:
            other = other * torch.full((), alpha, dtype=torch.float32, device=on)
        return operator(x, other).to(dtype)

    return compute


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *args, **kwargs: x.copy_(function(x, *args, **kwargs))


for _name, _operator in (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div)):
    for _overload in ("Tensor", "Scalar"):
        REPLACED[getattr(getattr(aten, _name), _overload)] = _binary(_operator)
        REPLACED[getattr(getattr(aten, f"{_name}_"), _overload)] = _in_place(_binary(_operator))


@_instead_of(aten.rsub.Scalar)
def _rsub(x: Tensor, other: float, alpha: float = 1) -> Tensor:
    return _binary(torch.sub)(other, x, alpha=alpha)


@_instead_of(aten.addcmul.default)
def _addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + a * b * value


@_instead_of(aten.addcdiv.default)
def _addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + a / b * value


@_instead_of(aten.lerp.Scalar)
def _lerp(x: Tensor, end: Tensor, weight: float) -> Tensor:
    return x + (end - x) * weight


REPLACED[aten.addcmul_.default] = _in_place(_addcmul)
REPLACED[aten.addcdiv_.default] = _in_place(_addcdiv)
REPLACED[aten.lerp_.Scalar] = _in_place(_lerp)


# Products.


@_instead_of(aten.mm.default, aten.bmm.default)
def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return apply("matmul", [a, b], (*a.shape[:-1], b.shape[-1]), a.dtype, precision="strict")


@_instead_of(aten.addmm.default, aten.baddbmm.default)
def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = _matmul(a, b)
    product = product if alpha == 1 else product * alpha
    y: Tensor = product + (bias if beta == 1 else bias * beta)
    return y


@_instead_of(aten.mv.default, aten.dot.default)
def _mv(a: Tensor, b: Tensor) -> Tensor:
    return apply("matmul", [a, b], a.shape[:-1], a.dtype, precision="strict")


# Rows.


@_instead_of(aten._softmax.default, aten._safe_softmax.default)
def _softmax(x: Tensor, dim: int, half_to_float: Any = False, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x.float() if half_to_float is True else x if dtype is None else x.to(dtype)
    return apply("softmax", [x], x.shape, x.dtype, axis=dim)


@_instead_of(aten._log_softmax.default)
def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    x = x.float() if half_to_float else x
    return apply("log_softmax", [x], x.shape, x.dtype, axis=dim)


@_instead_of(aten._softmax_backward_data.default)
def _softmax_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return apply("softmax_gradient", [y, dy], y.shape, y.dtype, axis=dim).to(dtype)


@_instead_of(aten._log_softmax_backward_data.default)
def _log_softmax_backward(dy: Tensor, y: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return apply("log_softmax_gradient", [y, dy], y.shape, y.dtype, axis=dim).to(dtype)


@_instead_of(aten.native_layer_norm.default)
def _layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    kept = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
    mean, inverse = (torch.empty(kept, dtype=torch.float32, device=x.device) for _ in range(2))
    operator = native("layer_norm", axis=-len(shape), epsilon=eps, statistics=True)
    operator.apply([x, weight, bias], [y, mean, inverse])
    return y, mean, inverse


@_instead_of(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    dy: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, inverse: Tensor, weight: Tensor | None, bias: Tensor | None, mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    axes, rows = list(range(x.dim() - len(shape), x.dim())), list(range(x.dim() - len(shape)))
    dy, normal = dy.float(), (x.float() - mean) * inverse
    weighted = dy if weight is None else dy * weight.float()
    along = _reduce("reduce_mean", weighted, axes, True, None)
    across = _reduce("reduce_mean", weighted * normal, axes, True, None)
    dx = (inverse * (weighted - along - normal * across)).to(x.dtype) if mask[0] else None

    def over_rows(values: Tensor, like: Tensor) -> Tensor:
        return (_reduce("reduce_sum", values, rows, False, None) if rows else values).to(like.dtype)

    dweight = over_rows(dy * normal, weight) if mask[1] and weight is not None else None
    return dx, dweight, over_rows(dy, bias) if mask[2] and bias is not None else None


@_instead_of(aten.embedding_dense_backward.default)
def _embedding_backward(dy: Tensor, indices: Tensor, count: int, padding: int, scale: bool) -> Tensor:
    if scale:
        raise NotImplementedError("strict: embedding with scale_grad_by_freq")
    if padding >= 0:
        dy = dy.masked_fill((indices == padding).unsqueeze(-1), 0)
    weight = torch.empty((count, dy.shape[-1]), dtype=dy.dtype, device=dy.device)
    return _gradient("gather", [weight, indices], dy, dy, [True, False], axis=0)[0]


@_instead_of(aten.nll_loss_forward.default)
def _nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int) -> tuple[Tensor, Tensor]:
    if weight is not None or x.dim() != 2:
        raise NotImplementedError("strict: nll_loss with weights of classes, or of one row")
    counts = target != ignore
    losses = -x.gather(1, torch.where(counts, target, 0)[:, None])[:, 0].masked_fill(~counts, 0)
    total = counts.sum().to(x.dtype)
    if reduction == 0:
        return losses, total
    loss = _sum_all(losses)
    return (loss / total if reduction == 1 else loss), total


@_instead_of(aten.nll_loss_backward.default)
def _nll_loss_backward(
    dy: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int, total: Tensor
) -> Tensor:
    counts = target != ignore
    each = dy / total if reduction == 1 else dy
    each = torch.where(counts, -each, torch.zeros((), dtype=x.dtype, device=x.device))
    classes = torch.arange(x.shape[1], device=x.device)
    return torch.where(classes[None] == target[:, None], each[:, None], torch.zeros((), dtype=x.dtype, device=x.device))
