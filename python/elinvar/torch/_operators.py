"""The operators: ``torch.ops.elinvar``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elinvar._elinvar import TorchOperator
from elinvar.torch._register import Operator, like, native


def _precision(strict: bool) -> str:
    return "strict" if strict else "fast"


def _rows_by(x: Tensor, weight: Tensor, *_: Any) -> tuple[Any, torch.dtype]:
    return (*x.shape[:-1], weight.shape[0]), x.dtype


def _make_attention(
    scale: float | None, causal: bool, offset: int, window: int | None, softcap: float, tokens_first: bool, strict: bool
) -> TorchOperator:
    left = None if window is None else window - 1
    right = 0 if window is not None and not causal else None
    return native(
        "attention",
        scale=scale,
        causal=causal,
        offset=offset,
        left_window=left,
        right_window=right,
        softcap=softcap,
        tokens_first=tokens_first,
        precision=_precision(strict),
    )


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *rest: Any) -> tuple[Any, torch.dtype]:
    batch, heads, tokens, _ = q.shape
    tokens_first = rest[5]
    return (batch, tokens, heads, v.shape[3]) if tokens_first else (batch, heads, tokens, v.shape[3]), q.dtype


RMS_NORM = Operator(
    "rms_norm",
    "x weight?",
    "float eps",
    lambda eps: native("rms_norm", epsilon=eps),
    like,
    trained="x weight",
    saves="x weight",
    rows="x",
)
LAYER_NORM = Operator(
    "layer_norm",
    "x weight? bias?",
    "float eps",
    lambda eps: native("layer_norm", epsilon=eps),
    like,
    trained="x weight bias",
    saves="x weight bias",
    rows="x",
)
SOFTMAX = Operator("softmax", "x", "int dim", lambda dim: native("softmax", axis=dim), like, trained="x", saves="y", rows="x")
LOG_SOFTMAX = Operator("log_softmax", "x", "int dim", lambda dim: native("log_softmax", axis=dim), like, trained="x", saves="y", rows="x")
ROPE = Operator(
    "rope",
    "x cos sin",
    "bool interleaved",
    lambda interleaved: native("rotary_embedding", interleaved=interleaved),
    like,
    trained="x",
    saves="cos sin",
)
SWIGLU = Operator("swiglu", "gate up", "", lambda: native("swiglu"), like, trained="gate up", saves="gate up", rows="gate up")
SILU = Operator("silu", "x", "", lambda: native("silu"), like, trained="x", saves="x y", rows="x")
GELU = Operator(
    "gelu", "x", "bool tanh", lambda tanh: native("gelu_tanh" if tanh else "gelu"), like, trained="x", saves="x y", rows="x"
)
LINEAR = Operator(
    "linear",
    "x weight bias?",
    "bool strict",
    lambda strict: native("matmul", transpose_b=True, precision=_precision(strict)),
    _rows_by,
    trained="x weight bias",
    saves="x weight",
    rows="x",
    casts=True,
)
LORA_LINEAR = Operator(
    "lora_linear",
    "x weight a b bias?",
    "float scale, bool strict",
    lambda scale, strict: native("lora_linear", scale=scale, precision=_precision(strict)),
    _rows_by,
    trained="x weight a b bias",
    saves="x weight a b bias",
    rows="x",
    casts=True,
)
ATTENTION = Operator(
    "attention",
    "q k v mask?",
    "float? scale, bool causal, int offset, int? window, float softcap, bool tokens_first, bool strict",
    _make_attention,
    _attended,
    trained="q k v",
    saves="q k v mask y",
    casts=True,
)
CROSS_ENTROPY = Operator(
    "cross_entropy",
    "logits targets",
    "int ignore_index",
    lambda ignore, statistics: native("cross_entropy", may_reject=True, ignore_index=ignore, statistics=statistics),
    lambda logits, targets, *_: (targets.shape, torch.float32),
    trained="logits",
    saves="logits targets",
    rows="logits targets",
    beside="targets targets",
)
CROSS_ENTROPY_LOSS = Operator(
    "cross_entropy_loss",
    "logits targets",
    "int ignore_index, str reduction",
    lambda ignore, reduction, statistics: native(
        "cross_entropy", may_reject=True, ignore_index=ignore, reduction=reduction, statistics=statistics
    ),
    lambda *_: ((), torch.float32),
    trained="logits",
    saves="logits targets",
    beside="targets targets",
)
EMBEDDING = Operator(
    "embedding",
    "weight indices",
    "",
    lambda: native("gather", may_reject=True, axis=0),
    lambda weight, indices: ((*indices.shape, *weight.shape[1:]), weight.dtype),
    trained="weight",
    saves="indices",
    rows="indices",
)
SUM = Operator(
    "sum",
    "x",
    "int[] axes, bool keepdim",
    lambda axes, keepdim: native("reduce_sum", axes=",".join(map(str, axes)) if axes else None, keepdims=keepdim),
    lambda x, axes, keepdim: (_reduced(x, axes, keepdim), x.dtype),
    trained="x",
    saves="",
)


def _reduced(x: Tensor, axes: list[int], keepdim: bool) -> list[Any]:
    gone = {axis % x.dim() for axis in axes} if axes else set(range(x.dim()))
    return [1 if axis in gone else extent for axis, extent in enumerate(x.shape) if keepdim or axis not in gone]


OPERATORS = [
    RMS_NORM,
    LAYER_NORM,
    SOFTMAX,
    LOG_SOFTMAX,
    ROPE,
    SWIGLU,
    SILU,
    GELU,
    LINEAR,
    LORA_LINEAR,
    ATTENTION,
    CROSS_ENTROPY,
    CROSS_ENTROPY_LOSS,
    EMBEDDING,
    SUM,
]
