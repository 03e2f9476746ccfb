"""Whether products and attention are strict."""

from __future__ import annotations

_depth = 0


def is_strict() -> bool:
    """Whether this is inside :func:`elinvar.torch.strict`."""
    return _depth > 0


def enter() -> None:
    global _depth
    _depth += 1


def leave() -> None:
    global _depth
    _depth -= 1
