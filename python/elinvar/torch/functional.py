"""The operators as functions, with PyTorch's argument names and defaults."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from elinvar.torch._operators import (
    ATTENTION,
    CROSS_ENTROPY,
    CROSS_ENTROPY_LOSS,
    EMBEDDING,
    GELU,
    LAYER_NORM,
    LINEAR,
    LOG_SOFTMAX,
    LORA_LINEAR,
    RMS_NORM,
    ROPE,
    SILU,
    SOFTMAX,
    SUM,
    SWIGLU,
)
from elinvar.torch._register import is_compiling
from elinvar.torch._state import is_strict

__all__ = [
    "attention",
    "cross_entropy",
    "embedding",
    "gelu",
    "layer_norm",
    "linear",
    "linear_cross_entropy",
    "log_softmax",
    "lora_linear",
    "rms_norm",
    "rope",
    "silu",
    "softmax",
    "sum",
    "swiglu",
]


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """``x / sqrt(mean(x²) + eps) · weight`` over the last axis: ``x [..., n]``, ``weight [n]``, of types of their own. Rounded once, to the type of x."""
    return (RMS_NORM.call if is_compiling() else RMS_NORM.now)(x, weight, eps)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """``(x - mean) / sqrt(var + eps) · weight + bias`` over the last axis: ``x [..., n]``, ``weight`` and ``bias`` ``[n]``, of one type."""
    return (LAYER_NORM.call if is_compiling() else LAYER_NORM.now)(x, weight, bias, eps)


def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """The softmax along ``dim``."""
    return (SOFTMAX.call if is_compiling() else SOFTMAX.now)(x, dim)


def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """The logarithm of the softmax along ``dim``."""
    return (LOG_SOFTMAX.call if is_compiling() else LOG_SOFTMAX.now)(x, dim)


def rope(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Rotary position embedding of ``x [batch, heads, tokens, d]`` by ``cos`` and ``sin`` ``[batch, tokens, d / 2]``; pairs of neighbours where
    ``interleaved``, else elements half a head apart. No gradient flows to the tables."""
    return (ROPE.call if is_compiling() else ROPE.now)(x, cos, sin, interleaved)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) · up``."""
    return (SWIGLU.call if is_compiling() else SWIGLU.now)(gate, up)


def silu(x: Tensor) -> Tensor:
    """``x · sigmoid(x)``."""
    return (SILU.call if is_compiling() else SILU.now)(x)


def gelu(x: Tensor, approximate: Literal["none", "tanh"] = "none") -> Tensor:
    """The Gaussian error linear unit, or its approximation by ``tanh``."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate is {approximate!r}: 'none' or 'tanh' is expected")
    return (GELU.call if is_compiling() else GELU.now)(x, approximate == "tanh")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x weightᵀ + bias``: ``x [..., k]``, ``weight [n, k]``, ``bias [n]``. Strict inside :func:`elinvar.torch.strict`, else fast."""
    return (LINEAR.call if is_compiling() else LINEAR.now)(x, weight, bias, is_strict())


def lora_linear(x: Tensor, weight: Tensor, a: Tensor, b: Tensor, bias: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """A linear layer with a low-rank adapter, ``x weightᵀ + bias + scale · (x aᵀ) bᵀ``: ``a [r, k]``, ``b [n, r]``."""
    return (LORA_LINEAR.call if is_compiling() else LORA_LINEAR.now)(x, weight, a, b, bias, scale, is_strict())


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    window: int | None = None,
    softcap: float = 0.0,
    tokens_first: bool = False,
) -> Tensor:
    """Softmax of scaled scores by values, without the matrix of scores in memory: ``q [batch, heads, queries, d]``, ``k`` and ``v``
    ``[batch, kv_heads, keys, d]`` with ``heads`` a multiple of ``kv_heads``.

    The last query stands at the last key. ``causal``: a query attends no key after its own; ``window``: only the last so many keys, its own included.
    ``mask`` is broadcast to ``[batch, heads, queries, keys]``: bool (true attends) or a number that is added to the score. ``softcap`` c makes a score s
    ``c · tanh(s / c)``. The result is ``[batch, heads, queries, d]``, or ``[batch, queries, heads, d]`` with ``tokens_first``; a query that attends no key
    gives zeros. No gradient flows to the mask.
    """
    if not q.dim() == k.dim() == v.dim() == 4:
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise ValueError(f"attention: q, k and v have shapes {shapes}: each is [batch, heads, tokens, d]")
    near = [x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v)]
    offset = k.shape[2] - q.shape[2] if causal or window is not None else 0
    return (ATTENTION.call if is_compiling() else ATTENTION.now)(*near, mask, scale, causal, offset, window, softcap, tokens_first, is_strict())


def embedding(indices: Tensor, weight: Tensor) -> Tensor:
    """Rows of ``weight [n, ...]`` by index. The gradient of a row is the sum over its places in their order, so it has the same bits every time."""
    return (EMBEDDING.call if is_compiling() else EMBEDDING.now)(weight, indices)


def sum(x: Tensor, dim: int | list[int] | None = None, keepdim: bool = False) -> Tensor:
    """The sum along axes, or of all elements, in the library's order: the same bits on every device."""
    axes = () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return (SUM.call if is_compiling() else SUM.now)(x, axes, keepdim)


def _check(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"cross_entropy: reduction is {reduction!r}: 'none', 'mean' or 'sum' is expected")


def cross_entropy(
    logits: Tensor, targets: Tensor, ignore_index: int = -100, reduction: Literal["none", "mean", "sum"] = "mean"
) -> Tensor:
    """Minus the logarithm of the softmax of ``logits [..., classes]`` at the classes ``targets [...]``, in f32, without the logarithms in memory.

    Unlike PyTorch's, the classes are on the last axis, whatever the rank, and the loss is f32.
    """
    if reduction == "none":
        return (CROSS_ENTROPY.call if is_compiling() else CROSS_ENTROPY.now)(logits, targets, ignore_index)[0]
    _check(reduction)
    return (CROSS_ENTROPY_LOSS.call if is_compiling() else CROSS_ENTROPY_LOSS.now)(logits, targets, ignore_index, reduction)[0]


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    ignore_index: int = -100,
    reduction: Literal["none", "mean", "sum"] = "mean",
    chunk: int = 4096,
) -> Tensor:
    """:func:`cross_entropy` of the logits ``x weightᵀ``: ``x [..., k]``, ``weight [classes, k]``. Of no more than ``chunk`` rows are the logits in memory;
    the backward pass computes them again."""
    rows, flat = x.reshape(-1, x.shape[-1]), targets.reshape(-1)
    if rows.shape[0] <= chunk:
        return cross_entropy(linear(x, weight), targets, ignore_index, reduction)
    _check(reduction)
    from torch.utils.checkpoint import checkpoint

    def losses(rows: Tensor, flat: Tensor) -> Tensor:
        return cross_entropy(linear(rows, weight), flat, ignore_index, "none")

    parts = [checkpoint(losses, a, b, use_reentrant=False) for a, b in zip(rows.split(chunk), flat.split(chunk))]
    found = torch.cat(parts)
    if reduction == "none":
        return found.reshape(targets.shape)
    total = sum(found)
    return total if reduction == "sum" else total / (flat != ignore_index).sum()
