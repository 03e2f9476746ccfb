"""Executors that stand for the names of devices."""

import threading

from elinvar._elinvar import Executor

_known: dict[str, Executor] = {}
_lock = threading.Lock()


def executor(backend: str = "auto") -> Executor:
    """The executor that stands for a device where only its name is given: the same at each call, also for 'auto' and the name of what that chose."""
    with _lock:
        if backend not in _known:
            made = Executor(backend)
            _known[backend] = _known.setdefault(made.backend, made)
        return _known[backend]
