"""Elinvar's operators for PyTorch."""

from elinvar.torch import functional
from elinvar.torch._state import is_strict
from elinvar.torch._strict import strict

__all__ = ["functional", "is_strict", "strict"]
