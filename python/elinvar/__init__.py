"""Transformer kernels with the same bits on every device."""

from elinvar import lora
from elinvar._elinvar import CompileError, DeviceError, DeviceInfo, InternalError, devices
from elinvar.models import Encoder, Generation, Model, Stream, Tokenizer

__all__ = [
    "CompileError",
    "DeviceError",
    "DeviceInfo",
    "Encoder",
    "Generation",
    "InternalError",
    "Model",
    "Stream",
    "Tokenizer",
    "devices",
    "lora",
]
