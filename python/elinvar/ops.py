"""Every operator of the library as a function, made of its description."""

import inspect
import sys
from typing import Any, Callable

from elinvar._elinvar import Executor, Tensor, _descriptions

_KINDS = {"int": int, "count": int, "float": float, "bool": bool, "word": str, "ints": tuple[int, ...], "counts": tuple[int, ...]}


def _default(attribute: dict[str, Any]) -> Any:
    """The value that the description's text says; None stands for an absent one."""
    text, kind = attribute["default"], attribute["kind"]
    if text is None:
        return inspect.Parameter.empty
    if text == "" or attribute["name"] == "precision":
        return None
    if kind == "bool":
        return text == "true"
    if kind in ("int", "count"):
        return int(text)
    if kind == "float":
        return float(text)
    if kind in ("ints", "counts"):
        inner = text.strip("[]")
        return tuple(int(part) for part in inner.split(",")) if inner else ()
    return text


def _documentation(description: dict[str, Any]) -> str:
    def shown(port: dict[str, Any]) -> str:
        words = [", ".join(port["dtypes"])]
        words += [word for word, holds in [("optional", port["optional"]), ("updated in place", port["updated"])] if holds]
        return f"    {port['name']}{'...' if port['variadic'] else ''} ({'; '.join(words)}): {port['doc']}"

    lines = [description["summary"], ""]
    if description["inputs"]:
        lines += ["Inputs:", *map(shown, description["inputs"]), ""]
    results = [port for port in description["outputs"] if not port["updated"]]
    if results:
        lines += ["Returns:", *map(shown, results), ""]
    if description["attributes"]:
        lines.append("Attributes:")
    for attribute in description["attributes"]:
        doc = " ".join(attribute["doc"].split())
        if attribute["name"] == "precision":
            doc += " None is the executor's."
        words = f": {', '.join(attribute['words'])}" if "words" in attribute else ""
        lines.append(f"    {attribute['name']} ({attribute['kind']}{words}): {doc}")
    lines += ["", "Raises ValueError for shapes, types or attributes that do not fit, and TypeError for objects that are no tensors."]
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def _function(description: dict[str, Any]) -> Callable[..., Any]:
    name, ports, attributes = description["name"], description["inputs"], description["attributes"]
    given_alone = [port["name"] for port in ports if not port["variadic"]]
    variadic = next((port["name"] for port in ports if port["variadic"]), None)
    positional, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            port["name"],
            positional,
            annotation=Tensor | None if port["optional"] else Tensor,
            default=None if port["optional"] else inspect.Parameter.empty,
        )
        for port in ports
        if not port["variadic"]
    ]
    seen_default = False
    for index, parameter in enumerate(parameters):
        # An operand that must be given after one that may be absent.
        if seen_default and parameter.default is inspect.Parameter.empty:
            parameters[index] = parameter.replace(kind=positional, default=None)
        seen_default = seen_default or parameter.default is not inspect.Parameter.empty
    if variadic:
        parameters.append(inspect.Parameter(variadic, inspect.Parameter.VAR_POSITIONAL, annotation=Tensor))
    # A bound is a tensor, or a number: an operand and an attribute of one name.
    either = {attribute["name"] for attribute in attributes}.intersection(given_alone)
    parameters += [
        inspect.Parameter(attribute["name"], named, annotation=_KINDS[attribute["kind"]], default=_default(attribute))
        for attribute in attributes
        if attribute["name"] not in either
    ]
    if not ports:
        parameters.append(inspect.Parameter("executor", named, annotation=Executor))
    signature = inspect.Signature(parameters)

    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **keywords).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        numbers = {operand: bound.pop(operand) for operand in either if not isinstance(bound.get(operand), (Tensor, type(None)))}
        operands = [bound.pop(operand, None) for operand in given_alone]
        operands += bound.pop(variadic, ()) if variadic else ()
        executor = bound.pop("executor", None) if not ports else None
        if executor is None:
            first = next((operand for operand in operands if isinstance(operand, Tensor)), None)
            if first is None:
                raise TypeError(f"{name}: {'executor' if not ports else ports[0]['name']} is missing, or no elinvar.{'Executor' if not ports else 'Tensor'}")
            executor = first.executor
        return executor.apply(name, operands, **bound, **numbers)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _documentation(description)
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__module__ = __name__
    return call


_module = sys.modules[__name__]
__all__ = []
for _description in _descriptions():
    setattr(_module, _description["name"], _function(_description))
    __all__.append(_description["name"])
