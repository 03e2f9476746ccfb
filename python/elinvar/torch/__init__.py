"""Elinvar's operators for PyTorch."""

from elinvar._elinvar import torch_synchronize as synchronize
from elinvar.torch import functional, nn
from elinvar.torch._decode import Decoder
from elinvar.torch._patch import Patched, patch, unpatch
from elinvar.torch._state import is_strict
from elinvar.torch._strict import strict

__all__ = ["Decoder", "Patched", "functional", "is_strict", "nn", "patch", "strict", "synchronize", "unpatch"]
