"""How tensors are loaded."""

import warnings

from elinvar._devices import executor
from elinvar._elinvar import DeviceError, Tensor


def load(data: bytes, dtype: str, shape: tuple[int, ...], backend: str, requires_grad: bool) -> Tensor:
    """A tensor of the bytes of another, on the device of the same name; on the CPU where that is not there."""
    try:
        target = executor(backend)
    except DeviceError as error:
        warnings.warn(f"a tensor of {backend} is loaded to the cpu: {error}", RuntimeWarning, stacklevel=2)
        target = executor("cpu")
    return target._from_bytes(data, dtype, shape, requires_grad)
