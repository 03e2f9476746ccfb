"""Elinvar's operators for PyTorch."""
from elinvar.torch import functional
