"""Whether products and attention are strict: for all threads, since the backward pass has threads of its own."""

from __future__ import annotations

import threading

_depth = 0
_lock = threading.Lock()


def is_strict() -> bool:
    """Whether a thread is inside :func:`elinvar.torch.strict`."""
    return _depth > 0


def enter() -> None:
    global _depth
    with _lock:
        _depth += 1


def leave() -> None:
    global _depth
    with _lock:
        _depth -= 1
