"""Deterministic mode: every operator of PyTorch's inside has the same bits on the CPU and on CUDA, or is an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from elinvar.torch import _state
from elinvar.torch._exact import EXACT
from elinvar.torch._operators import ATTENTION, RMS_NORM
from elinvar.torch._replaced import REPLACED


class _Functions(TorchFunctionMode):
    """What PyTorch makes different operators of on different devices."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        found = FUNCTIONS[func](*args, **kwargs) if func in FUNCTIONS else NotImplemented
        return func(*args, **kwargs) if found is NotImplemented else found


def _rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Any:
    if len(shape) != 1:
        return NotImplemented
    return RMS_NORM.call(x, weight, torch.finfo(x.dtype).eps if eps is None else eps)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p > 0 or q.dim() != 4 or (attn_mask is not None and attn_mask.requires_grad):
        return NotImplemented
    near = [x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v)]
    return ATTENTION.call(*near, attn_mask, scale, is_causal, 0, None, 0.0, False, True)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.rms_norm: _rms_norm,
    torch.nn.functional.scaled_dot_product_attention: _attention,
}


class strict(TorchDispatchMode):
    """Inside it, a model's forward and backward passes have the same bits on the CPU and on CUDA.

    Operators whose results IEEE 754 fixes, such as additions, conversions and views, are PyTorch's own. Products, reductions, normalisations, softmax,
    losses and functions such as ``exp`` are Elinvar's, in strict precision; so any model that is made of these is supported as it is. An operator that
    is neither is an error that names it. With ``unsupported="list"`` it runs as it is and is counted in ``unsupported`` of the value that ``with`` gives.

    ::

        with elinvar.torch.strict():
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()

    The backward pass belongs inside, too. Random numbers differ between devices: make them outside. A compiled function is not looked into.
    """

    def __init__(self, unsupported: Literal["error", "list"] = "error") -> None:
        mode: Any = super()
        mode.__init__()
        if unsupported not in ("error", "list"):
            raise ValueError(f"strict: unsupported is {unsupported!r}: 'error' or 'list' is expected")
        self._is_error = unsupported == "error"
        self.unsupported: Counter[str] = Counter()
        self._inner: list[ExitStack] = []

    def __enter__(self) -> strict:
        inner = ExitStack()
        inner.enter_context(_Functions())
        # Attention that is not replaced, in its plain operators.
        inner.enter_context(sdpa_kernel(SDPBackend.MATH))
        self._inner.append(inner)
        _state.enter()
        mode: Any = super()
        mode.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        mode: Any = super()
        mode.__exit__(*raised)
        _state.leave()
        self._inner.pop().__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        replaced: Callable[..., Any] | None = REPLACED.get(func)
        if replaced is not None and _computes(args, kwargs):
            return replaced(*args, **kwargs)
        if not _is_exact(func, args, kwargs):
            if self._is_error:
                raise NotImplementedError(
                    f"strict: {func} has no form with the same bits on every device: use another operator, keep it outside of "
                    f"elinvar.torch.strict(), or strict(unsupported='list') to run it as it is and have it listed"
                )
            self.unsupported[str(func)] += 1
        return func(*args, **kwargs)


def _computes(args: Any, kwargs: Any) -> bool:
    """Whether floating-point numbers go in: integers are exact anyway."""
    return any(isinstance(x, Tensor) and x.is_floating_point() for x in tree_leaves((args, kwargs)))


def _is_exact(func: Any, args: Any, kwargs: Any) -> bool:
    if func.namespace == "elinvar":
        names = [argument.name for argument in func._schema.arguments]
        return "strict" not in names or bool(args[names.index("strict")])
    if func.namespace in ("prim", "profiler") or func._schema.name in EXACT:
        return True
    random = torch.Tag.nondeterministic_seeded in func.tags
    return not random and not _computes(args, kwargs)
