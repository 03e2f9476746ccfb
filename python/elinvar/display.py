"""What notebooks show of devices and tensors."""

from __future__ import annotations

from html import escape
from typing import Any

from elinvar import _elinvar
from elinvar._elinvar import DeviceInfo, Tensor

__all__ = ["DeviceList", "devices", "table_html", "tensor_html"]

_SHOWN = 8
"""Elements that are shown along an axis."""


def table_html(header: list[str], rows: list[list[str]]) -> str:
    """A table of texts."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class DeviceList(list[DeviceInfo]):
    """Devices; a table in notebooks."""

    def _repr_html_(self) -> str:
        rows = [[each.backend, each.name or "", "available" if each.available else f"not available: {each.reason}"] for each in self]
        return table_html(["device", "name", "state"], rows)


def devices() -> DeviceList:
    """Every device of this build, in the order in which the automatic choice prefers them."""
    return DeviceList(_elinvar.devices())


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def tensor_html(tensor: Tensor) -> str:
    """A tensor: its type and shape, and the first elements of its first matrix."""
    shape = "×".join(map(str, tensor.shape)) or "one element"
    head = f"<p><b>Tensor</b> {escape(shape)} {escape(tensor.dtype.name)} on {escape(tensor.device)}{', requires a gradient' if tensor.requires_grad else ''}</p>"
    if tensor.size == 0:
        return head
    matrix = tensor.detach()
    while matrix.ndim > 2:
        matrix = matrix[0]
    if matrix.ndim < 2:
        matrix = matrix.reshape(1, -1)
    try:
        values: Any = matrix[:_SHOWN, :_SHOWN].tolist()
    except (RuntimeError, ValueError):
        # A result of a recording that has not ended has no elements yet.
        return head
    height, width = matrix.shape
    rows = [[_number(value) for value in row] + (["…"] if width > _SHOWN else []) for row in values]
    if height > _SHOWN:
        rows.append(["…"] * len(rows[0]))
    return head + table_html([], rows)
