"""Generation on Elinvar's decoder, over the parameters of a model of PyTorch's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from elinvar._elinvar import TorchDecoder
from elinvar.torch._state import is_strict


def _config(model: nn.Module) -> str:
    config: Any = getattr(model, "config", None)
    if config is None:
        raise ValueError(f"{type(model).__name__} has no configuration: a causal language model of Hugging Face's is expected")
    return json.dumps({**config.to_dict(), "architectures": [type(model).__name__]}, default=str)


def is_known(model: nn.Module) -> bool:
    """Whether the decoder knows models of this configuration."""
    try:
        TorchDecoder.check(_config(model))
    except (ValueError, NotImplementedError):
        return False
    return True


class Decoder:
    """The most likely tokens after a prompt, with one recorded step for each token on the model's device. The parameters are shared, not copied: they must
    not change while it lives.

    ``model`` is a causal language model of Hugging Face's that :class:`elinvar.Model` would load; ``capacity`` the most tokens of prompt and text.
    """

    def __init__(self, model: nn.Module, capacity: int, strict: bool | None = None) -> None:
        tensors = {name: tensor.detach() for name, tensor in model.state_dict(keep_vars=True).items()}
        self._tensors = {name: tensor if tensor.is_contiguous() else tensor.contiguous() for name, tensor in tensors.items()}
        self._places = self._state(model)
        self.strict = is_strict() if strict is None else strict
        self.capacity = capacity
        self._native = TorchDecoder(_config(model), list(self._tensors.items()), capacity, self.strict)

    def generate(self, prompt: list[int], max_new_tokens: int, ends: list[int] | None = None) -> list[int]:
        """At most so many tokens after ``prompt``, up to the first of ``ends``, which is among them."""
        return self._native.generate(prompt, max_new_tokens, ends or [])

    def logits(self, prompt: list[int]) -> Tensor:
        """The logits after a prompt, on the CPU, ``[vocabulary]``."""
        return torch.tensor(self._native.logits(prompt))

    @staticmethod
    def _state(model: nn.Module) -> list[tuple[int, int]]:
        return [(tensor.data_ptr(), tensor._version) for tensor in model.state_dict(keep_vars=True).values()]

    def fits(self, model: nn.Module) -> bool:
        """Whether the model's parameters are still where and what they were."""
        return self._state(model) == self._places


_PLAIN = {"max_new_tokens", "do_sample", "eos_token_id", "pad_token_id", "attention_mask", "use_cache"}


def generate(model: nn.Module, original: Callable[..., Any], inputs: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
    """``model.generate``: on the decoder where it asks for the most likely tokens of one sequence, else as before."""
    ids = kwargs.get("input_ids", inputs)
    rest = {name: value for name, value in kwargs.items() if name != "input_ids"}
    settings: Any = getattr(model, "generation_config", None)
    is_greedy = rest.get("do_sample", getattr(settings, "do_sample", False)) in (False, None) and (getattr(settings, "num_beams", 1) or 1) == 1
    mask = rest.get("attention_mask")
    is_plain = not args and set(rest) <= _PLAIN and "max_new_tokens" in rest and rest.get("use_cache", True)
    if not (is_greedy and is_plain and ids is not None and ids.dim() == 2 and ids.shape[0] == 1 and (mask is None or bool(mask.all()))):
        return original(model, *(() if inputs is None else (inputs,)), *args, **kwargs)
    most = int(rest["max_new_tokens"])
    needed = ids.shape[1] + most
    decoder: Decoder | None = model.__dict__.get("_elinvar_decoder")
    if decoder is None or decoder.capacity < needed or decoder.strict != is_strict() or not decoder.fits(model):
        capacity = min(max(1 << (needed - 1).bit_length(), 256), int(model.config.max_position_embeddings))  # type: ignore[union-attr, arg-type]
        decoder = Decoder(model, max(capacity, needed))
        model.__dict__["_elinvar_decoder"] = decoder
    ends = rest.get("eos_token_id", getattr(settings, "eos_token_id", None))
    ends = [] if ends is None else [ends] if isinstance(ends, int) else [int(end) for end in ends]
    tokens = decoder.generate(ids[0].tolist(), most, ends)
    return torch.cat([ids, torch.tensor([tokens], dtype=ids.dtype, device=ids.device)], 1)
