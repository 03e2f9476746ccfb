"""Transformer kernels with the same bits on every device."""

from elinvar._elinvar import CompileError, DeviceError, DeviceInfo, InternalError, devices
from elinvar.checking import CheckResult, Finding, KernelFindings, check

__all__ = [
    "CheckResult",
    "CompileError",
    "DeviceError",
    "DeviceInfo",
    "Finding",
    "InternalError",
    "KernelFindings",
    "check",
    "devices",
]
