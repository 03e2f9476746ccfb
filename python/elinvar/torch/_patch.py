"""Elinvar's operators in the models of Hugging Face's."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import Tensor, nn

from elinvar.torch import functional as F
from elinvar.torch._decode import generate, is_known

_ATTENTION = "elinvar"


class Patched(Counter[str]):
    """What was replaced in a model, and how often."""

    def __str__(self) -> str:
        return ", ".join(f"{count} × {name}" for name, count in sorted(self.items())) or "nothing"


def _rms_norm(module: nn.Module) -> Callable[..., Tensor] | None:
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    weight = getattr(module, "weight", None)
    if eps is None or weight is None or weight.dim() != 1:
        return None
    offset = 1.0 if type(module).__name__.startswith("Gemma") else 0.0

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        weight = self.weight if offset == 0 else self.weight.float() + offset
        return F.rms_norm(hidden_states, weight, eps)

    return forward


def _activation(module: nn.Module) -> str | None:
    act = getattr(module, "act_fn", None)
    name = type(act).__name__
    if isinstance(act, nn.SiLU) or name in ("SiLUActivation", "SiLU"):
        return "silu"
    return "gelu_tanh" if name in ("GELUTanh", "PytorchGELUTanh") else None


def _mlp(module: nn.Module) -> Callable[..., Tensor] | None:
    activation = _activation(module)
    if activation is None or not all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj")):
        return None

    def forward(self: Any, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        y = F.swiglu(gate, up) if activation == "silu" else F.gelu(gate, "tanh") * up
        down: Tensor = self.down_proj(y)
        return down

    return forward


def _linear(module: nn.Module) -> Callable[..., Tensor] | None:
    return (lambda self, x: F.linear(x, self.weight, self.bias)) if type(module) is nn.Linear else None


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """Queries and keys ``[batch, heads, tokens, d]`` rotated by tables ``[batch, tokens, d]`` whose halves are the same, as Hugging Face's are."""
    half = cos.shape[-1] // 2
    cos, sin = (table[..., :half].expand(q.shape[0], -1, -1) for table in (cos, sin))
    return F.rope(q, cos, sin), F.rope(k, cos, sin)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers' ``AttentionInterface`` calls it. The result is ``[batch, tokens, heads, d]``."""
    if dropout:
        raise NotImplementedError("elinvar's attention has no dropout: set attention_dropout to 0, or model.eval()")
    tokens = query.shape[2]
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal) and attention_mask is None and tokens > 1
    if causal and key.shape[2] > tokens:
        # The first tokens of an empty static cache.
        key, value = key[:, :, :tokens], value[:, :, :tokens]
    y = F.attention(query, key, value, attention_mask, scale=scaling, causal=causal, softcap=softcap or 0.0, tokens_first=True)
    return y, None


def _rotations(model: nn.Module) -> list[Any]:
    """The files of transformers' that the model's attentions are defined in."""
    files = {type(module).__module__ for module in model.modules() if type(module).__name__.endswith("Attention")}
    return [sys.modules[name] for name in sorted(files) if hasattr(sys.modules[name], "apply_rotary_pos_emb")]


_ROTATED: Counter[str] = Counter()


def patch(model: nn.Module, *, linear: bool = False, generation: bool = True) -> Patched:
    """Puts Elinvar's operators in the place of those of a model of Hugging Face's, of the families of Llama, Mistral, Qwen and Gemma, and says what it
    replaced: RMS norms, gated feed-forward networks, the rotation of queries and keys, and attention; its parameters stay where they are, and so do the
    names of its state dictionary.

    ``linear``: linear layers, too, which only strict mode has use for, and :class:`elinvar.torch.strict` does so by itself.
    ``generation``: where the decoder knows the model's configuration, ``model.generate`` of the most likely tokens of one sequence runs on Elinvar's decoder, over the model's own parameters; other calls go
    on as before. :func:`unpatch` undoes all of it.
    """
    if getattr(model, "_elinvar_patched", None) is not None:
        raise ValueError("the model is patched already: unpatch it first")
    done: Patched = Patched()
    forwards: list[nn.Module] = []
    for module in model.modules():
        name = type(module).__name__
        make = _rms_norm if name.endswith("RMSNorm") else _mlp if name.endswith("MLP") else _linear if linear and isinstance(module, nn.Linear) else None
        forward = make(module) if make is not None else None
        if forward is not None:
            setattr(module, "forward", MethodType(forward, module))
            forwards.append(module)
            done[name] += 1
    undo: dict[str, Any] = {"forwards": forwards, "files": [], "attention": None, "generate": False}
    wrapped: Any = model
    config = getattr(model, "config", None)
    if config is not None and hasattr(model, "set_attn_implementation"):
        _register_attention()
        undo["attention"] = config._attn_implementation
        wrapped.set_attn_implementation(_ATTENTION)
        done["attention"] += sum(type(module).__name__.endswith("Attention") for module in model.modules())
    if not _is_partly_rotated(config):
        for file in _rotations(model):
            if not _ROTATED[file.__name__]:
                file._elinvar_rotation, file.apply_rotary_pos_emb = file.apply_rotary_pos_emb, rotate
            _ROTATED[file.__name__] += 1
            undo["files"].append(file)
            done[f"{file.__name__}.apply_rotary_pos_emb"] += 1
    if generation and config is not None and hasattr(model, "generate") and is_known(model):
        wrapped.generate = functools.partial(generate, model, type(wrapped).generate)
        undo["generate"] = True
        done["generate"] += 1
    if not done:
        raise ValueError(f"{type(model).__name__} has nothing that elinvar.torch.patch knows: models of Llama's, Mistral's, Qwen's and Gemma's families do")
    model._elinvar_patched = undo  # type: ignore[assignment]
    return done


def _is_partly_rotated(config: Any) -> bool:
    rope = getattr(config, "rope_parameters", None) or {}
    return isinstance(rope, dict) and rope.get("partial_rotary_factor", 1.0) not in (None, 1.0)


def _register_attention() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(_ATTENTION, attend)
    AttentionMaskInterface.register(_ATTENTION, sdpa_mask)


def unpatch(model: nn.Module) -> None:
    """The model as it was before :func:`patch`."""
    undo: Any = getattr(model, "_elinvar_patched", None)
    if undo is None:
        raise ValueError("the model is not patched")
    for module in undo["forwards"]:
        del module.forward
    for file in undo["files"]:
        _ROTATED[file.__name__] -= 1
        if not _ROTATED[file.__name__]:
            file.apply_rotary_pos_emb = file._elinvar_rotation
            del file._elinvar_rotation
    if undo["attention"] is not None:
        model.set_attn_implementation(undo["attention"])  # type: ignore[operator]
    if undo["generate"]:
        del model.generate
    model._elinvar_patched = None  # type: ignore[assignment]
    model.__dict__.pop("_elinvar_decoder", None)
