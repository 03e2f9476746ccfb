"""Executors that stand for the names of devices."""

from functools import lru_cache

from elinvar._elinvar import Executor


@lru_cache(maxsize=None)
def executor(backend: str = "auto") -> Executor:
    """The executor that stands for a device where only its name is given: the same at each call."""
    return Executor(backend)
