"""Functions for the library's operators: their text follows from the operators' descriptions."""

from __future__ import annotations

import keyword
import re
from typing import Any

_KINDS = {"int": "int", "count": "int", "float": "float", "bool": "bool", "word": "str", "ints": "Sequence[int]", "counts": "Sequence[int]"}


def _words(doc: str) -> str:
    """In one line, and without the links of Rust's documentation."""
    return re.sub(r"\[(`[^`]*`)\](\([^)]*\))?", r"\1", " ".join(doc.split()))


# Stands in a signature for an operand that follows one that may be absent, and must be given all the same.
MISSING = "..."


def _default(attribute: dict[str, Any]) -> str | None:
    """The text of a default; None where there is none."""
    text, kind = attribute["default"], attribute["kind"]
    if text is None:
        return None
    if text == "" or attribute["name"] == "precision":
        return "None"
    if kind == "bool":
        return "True" if text == "true" else "False"
    if kind == "float":
        return repr(float(text))
    if kind in ("ints", "counts"):
        inner = text.strip("[]").replace(" ", "")
        return f"({inner},)" if inner else "()"
    return repr(text) if kind == "word" else text


def _type(attribute: dict[str, Any]) -> str:
    kind = _KINDS[attribute["kind"]]
    if "words" in attribute:
        words = ", ".join(f'"{word}"' for word in attribute["words"])
        kind = f"Literal[{words}]"
        if "float32" in attribute["words"]:
            kind += " | DType"
    return f"{kind} | None" if _default(attribute) == "None" else kind


def documentation(description: dict[str, Any]) -> str:
    """What an operator computes, its operands with types and shapes, its attributes and errors."""

    def shown(port: dict[str, Any]) -> str:
        words = [", ".join(port["dtypes"])]
        words += [word for word, holds in [("optional", port["optional"]), ("updated in place", port["updated"])] if holds]
        return f"    {port['name']}{'...' if port['variadic'] else ''} ({'; '.join(words)}): {_words(port['doc'])}"

    parts = [description["summary"]]
    if description["inputs"]:
        parts.append("\n".join(["Inputs:", *map(shown, description["inputs"])]))
    results = [port for port in description["outputs"] if not port["updated"]]
    if results:
        parts.append("\n".join(["Returns:", *map(shown, results)]))
    lines: list[str] = []
    for attribute in description["attributes"]:
        doc = _words(attribute["doc"])
        if attribute["name"] == "precision":
            doc += " None is the executor's."
        words = f": {', '.join(attribute['words'])}" if "words" in attribute else ""
        lines.append(f"    {attribute['name']} ({attribute['kind']}{words}): {doc}")
    if lines:
        parts.append("\n".join(["Attributes:", *lines]))
    parts.append("Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.")
    return "\n\n".join(parts)


def _result(description: dict[str, Any]) -> str:
    results = [port for port in description["outputs"] if not port["updated"]]
    if not results:
        return "None"
    if len(results) == 1 and not results[0]["variadic"] and not results[0]["optional"]:
        return "Tensor"
    # One result, or several: as many as are asked for.
    return "tuple[Tensor, ...]" if all(not port["optional"] and not port["variadic"] for port in results) else "Any"


def source(description: dict[str, Any], stub: bool = False) -> str:
    """The text of an operator's function, or of its type stub."""
    name = description["name"]
    ports = [port for port in description["inputs"] if not port["variadic"]]
    variadic = next((port["name"] for port in description["inputs"] if port["variadic"]), None)
    attributes = {attribute["name"]: attribute for attribute in description["attributes"]}
    # A bound that is a tensor, or a number: an operand and an attribute of one name.
    either = [port["name"] for port in ports if port["name"] in attributes]
    parameters: list[str] = []
    seen_default = False
    for port in ports:
        kinds = "Tensor" + (" | float" if port["name"] in either else "") + (" | None" if port["optional"] else "")
        seen_default = seen_default or port["optional"]
        default = " = None" if port["optional"] else f" = {MISSING}" if seen_default else ""
        parameters.append(f"{port['name']}: {kinds}{default}")
    named = [attribute for attribute in attributes.values() if attribute["name"] not in either]
    if variadic:
        parameters.append(f"*{variadic}: Tensor")
    elif named or not ports:
        parameters.append("*")
    for attribute in named:
        value = _default(attribute)
        parameters.append(f"{attribute['name']}: {_type(attribute)}" + ("" if value is None else f" = {value}"))
    if not description["inputs"]:
        parameters.append("executor: Executor")
    assert not keyword.iskeyword(name)
    head = f"def {name}({', '.join(parameters)}) -> {_result(description)}:"
    if stub:
        text = documentation(description).replace("\\", "\\\\").replace("\n", "\n    ")
        return f'{head}\n    """{text}\n    """\n'.replace("    \n", "\n")
    operands = "".join(f"{port['name']}, " for port in ports) + (f"*{variadic}, " if variadic else "")
    values = "".join(f"{'None' if key in either else key}, " for key in attributes)
    executor = "executor" if not description["inputs"] else "None"
    return f"{head}\n    return _call(_{name}, ({operands}), ({values}), {executor})\n"
