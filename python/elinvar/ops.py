"""Every operator of the library as a function, made of its description: `elinvar.ops.rms_norm(x, weight, epsilon=1e-6)`."""

from __future__ import annotations

from typing import Any

from elinvar import _elinvar, _operators

__all__: list[str] = []


def _make() -> None:
    names: dict[str, Any] = {"_call": _elinvar._call, "__name__": __name__}
    for description in _elinvar._descriptions():
        name = description["name"]
        names[f"_{name}"] = _elinvar.Function(name)
        # Annotations stay text.
        exec("from __future__ import annotations\n" + _operators.source(description), names)
        function = names[name]
        function.__doc__ = _operators.documentation(description)
        globals()[name] = function
        __all__.append(name)


_make()
