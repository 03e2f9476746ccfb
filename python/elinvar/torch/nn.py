"""Modules over Elinvar's operators, with the parameters and the state dictionaries of PyTorch's and Hugging Face's."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from elinvar.torch import functional as F

__all__ = ["Attention", "CrossEntropy", "Embedding", "LayerNorm", "Linear", "LoRALinear", "RMSNorm", "SwiGLU"]


class Linear(nn.Linear):
    """:class:`torch.nn.Linear`, strict inside :func:`elinvar.torch.strict`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Embedding(nn.Embedding):
    """:class:`torch.nn.Embedding` whose gradient has the same bits every time. Without ``max_norm``, ``scale_grad_by_freq`` and ``sparse``."""

    def forward(self, indices: Tensor) -> Tensor:
        if self.max_norm is not None or self.scale_grad_by_freq or self.sparse:
            raise NotImplementedError("elinvar.torch.nn.Embedding has no max_norm, scale_grad_by_freq or sparse: use torch.nn.Embedding")
        weight = self.weight
        if self.padding_idx is not None and weight.requires_grad:
            # No gradient flows to the row of the padding.
            weight = torch.where(torch.arange(weight.shape[0], device=weight.device)[:, None] == self.padding_idx, weight.detach(), weight)
        return F.embedding(indices, weight)


class RMSNorm(nn.Module):
    """RMS normalisation of the last axis, of ``size`` elements. ``offset`` is added to the weight, as Gemma's has 1."""

    def __init__(self, size: int, eps: float = 1e-6, offset: float = 0.0, device: torch.device | str | None = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1.0 - offset, device=device, dtype=dtype))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.offset == 0 else self.weight.float() + self.offset
        return F.rms_norm(x, weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}" + (f", offset={self.offset}" if self.offset else "")


class LayerNorm(nn.LayerNorm):
    """:class:`torch.nn.LayerNorm` over the last axis."""

    def forward(self, x: Tensor) -> Tensor:
        if len(self.normalized_shape) != 1:
            raise NotImplementedError(f"elinvar.torch.nn.LayerNorm over {tuple(self.normalized_shape)}: the last axis alone is normalised")
        return F.layer_norm(x, self.weight, self.bias, self.eps)


class LoRALinear(nn.Module):
    """A linear layer with a low-rank adapter of rank ``r``, scaled by ``alpha / r``. Its parameters are ``base_layer.weight``, ``lora_A.weight`` ``[r, k]``
    and ``lora_B.weight`` ``[n, r]``, the names of PEFT's. ``base_layer`` is not trained; B begins as zero, so that the layer begins as ``base_layer``."""

    def __init__(self, base_layer: nn.Linear, r: int, alpha: float) -> None:
        super().__init__()
        if r < 1:
            raise ValueError(f"LoRALinear: the rank r is {r}: at least 1 is expected")
        weight = base_layer.weight
        self.base_layer = base_layer.requires_grad_(False)
        self.lora_A = nn.Linear(base_layer.in_features, r, bias=False, device=weight.device, dtype=weight.dtype)
        self.lora_B = nn.Linear(r, base_layer.out_features, bias=False, device=weight.device, dtype=weight.dtype)
        nn.init.zeros_(self.lora_B.weight)
        self.scale = alpha / r

    def forward(self, x: Tensor) -> Tensor:
        base = self.base_layer
        return F.lora_linear(x, base.weight, self.lora_A.weight, self.lora_B.weight, base.bias, self.scale)


class SwiGLU(nn.Module):
    """The gated feed-forward network of Llama's: ``down_proj(silu(gate_proj(x)) · up_proj(x))``."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool = False, device: torch.device | str | None = None, dtype: torch.dtype | None = None):
        super().__init__()
        self.gate_proj = Linear(hidden_size, intermediate_size, bias, device, dtype)
        self.up_proj = Linear(hidden_size, intermediate_size, bias, device, dtype)
        self.down_proj = Linear(intermediate_size, hidden_size, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        down: Tensor = self.down_proj(F.swiglu(self.gate_proj(x), self.up_proj(x)))
        return down


class Attention(nn.Module):
    """Grouped-query self-attention with its projections ``q_proj``, ``k_proj``, ``v_proj`` and ``o_proj``, as Llama's."""

    def __init__(
        self,
        hidden_size: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = False,
        causal: bool = True,
        window: int | None = None,
        softcap: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kv_heads, self.head_dim = kv_heads or heads, head_dim or hidden_size // heads
        self.causal, self.window, self.softcap = causal, window, softcap
        self.q_proj = Linear(hidden_size, heads * self.head_dim, bias, device, dtype)
        self.k_proj = Linear(hidden_size, kv_heads * self.head_dim, bias, device, dtype)
        self.v_proj = Linear(hidden_size, kv_heads * self.head_dim, bias, device, dtype)
        self.o_proj = Linear(heads * self.head_dim, hidden_size, False, device, dtype)

    def forward(self, x: Tensor, cos: Tensor | None = None, sin: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Of ``x [batch, tokens, hidden_size]``; queries and keys are rotated by ``cos`` and ``sin`` ``[batch, tokens, head_dim / 2]`` if these are given."""
        q, k, v = (p(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        if cos is not None and sin is not None:
            q, k = F.rope(q, cos, sin), F.rope(k, cos, sin)
        y = F.attention(q, k, v, mask, causal=self.causal, window=self.window, softcap=self.softcap, tokens_first=True)
        out: Tensor = self.o_proj(y.flatten(2))
        return out


class CrossEntropy(nn.Module):
    """:func:`elinvar.torch.functional.cross_entropy`: of logits ``[..., classes]`` and classes ``[...]``."""

    def __init__(self, ignore_index: int = -100, reduction: Literal["none", "mean", "sum"] = "mean") -> None:
        super().__init__()
        self.ignore_index = ignore_index
        self.reduction: Literal["none", "mean", "sum"] = reduction

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, self.ignore_index, self.reduction)
