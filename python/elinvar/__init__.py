"""Transformer kernels with the same bits on every device."""

from elinvar._elinvar import CompileError, DeviceError, DeviceInfo, InternalError, devices

__all__ = ["CompileError", "DeviceError", "DeviceInfo", "InternalError", "devices"]
