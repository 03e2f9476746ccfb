"""Measurements, as tables and roofline plots."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from elinvar._elinvar import Executor, Tensor
from elinvar.display import table_html

__all__ = ["Benchmark", "Measurement", "Roofline", "benchmark"]


@dataclass(frozen=True)
class Measurement:
    """What one case took."""

    name: str
    seconds: float
    """The median of its runs, waiting included."""
    runs: int
    bytes: int | None = None
    """Bytes that it has to read and write."""
    flops: int | None = None
    """Floating-point operations."""

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second."""
        return None if self.bytes is None else self.bytes / self.seconds

    @property
    def throughput(self) -> float | None:
        """Floating-point operations a second."""
        return None if self.flops is None else self.flops / self.seconds

    @property
    def intensity(self) -> float | None:
        """Floating-point operations for each byte."""
        return None if not self.bytes or self.flops is None else self.flops / self.bytes


@dataclass(frozen=True)
class Benchmark:
    """Measurements of several cases: a table."""

    measurements: tuple[Measurement, ...]
    device: str

    def _rows(self) -> list[list[str]]:
        def giga(value: float | None) -> str:
            return "" if value is None else f"{value / 1e9:.4g}"

        return [[each.name, f"{each.seconds * 1e6:.4g}", giga(each.bandwidth), giga(each.throughput)] for each in self.measurements]

    _HEADER = ("case", "µs", "GB/s", "GFLOP/s")

    def __str__(self) -> str:
        rows = [list(self._HEADER), *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(self._HEADER))]
        lines = ["  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(row, widths))) for row in rows]
        return "\n".join([*lines, f"medians, on {self.device}"])

    def _repr_html_(self) -> str:
        return table_html(list(self._HEADER), self._rows()) + f"<p>medians, on {escape(self.device)}</p>"

    def roofline(self, bandwidth: float, peak: float) -> Roofline:
        """A plot of the cases whose bytes and operations are known below what the device can do: bytes, and operations, a second."""
        if not (bandwidth > 0 and peak > 0):
            raise ValueError(f"bandwidth={bandwidth}, peak={peak}: what a device can do is more than nothing")
        return Roofline(tuple(each for each in self.measurements if each.intensity and each.throughput), bandwidth, peak)


@dataclass(frozen=True)
class Roofline:
    """Throughput over intensity, both logarithmic, below what bandwidth and arithmetic allow. Notebooks show it as a picture."""

    measurements: tuple[Measurement, ...]
    bandwidth: float
    """Bytes a second."""
    peak: float
    """Floating-point operations a second."""

    def bound(self, intensity: float) -> float:
        """The operations a second that the device can do at so many operations for each byte."""
        return min(self.peak, self.bandwidth * intensity)

    def svg(self, width: int = 560, height: int = 340) -> str:
        """The plot as an SVG picture."""
        ridge = self.peak / self.bandwidth
        xs = [ridge, *(each.intensity or ridge for each in self.measurements)]
        low_x, high_x = math.floor(math.log10(min(xs)) - 0.5), math.ceil(math.log10(max(xs)) + 0.5)
        ys = [self.bound(10.0**low_x), *(each.throughput or self.peak for each in self.measurements)]
        low_y, high_y = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(self.peak, *ys)) + 0.1)
        left, right, top, bottom = 64, 16, 16, 44

        def x(intensity: float) -> float:
            return left + (math.log10(intensity) - low_x) / (high_x - low_x) * (width - left - right)

        def y(throughput: float) -> float:
            return height - bottom - (math.log10(throughput) - low_y) / (high_y - low_y) * (height - top - bottom)

        def text(at_x: float, at_y: float, content: str, anchor: str = "middle") -> str:
            return f'<text x="{at_x:.1f}" y="{at_y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'

        parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">']
        for power in range(low_x, high_x + 1):
            at = x(10.0**power)
            parts += [f'<path d="M{at:.1f} {top}V{height - bottom}" stroke="#ddd"/>', text(at, height - bottom + 15, f"{10.0**power:g}")]
        for power in range(low_y, high_y + 1):
            at = y(10.0**power)
            parts += [f'<path d="M{left} {at:.1f}H{width - right}" stroke="#ddd"/>', text(left - 6, at + 4, f"{10.0**power / 1e9:g}", "end")]
        roof = [(10.0**low_x, self.bound(10.0**low_x)), (ridge, self.peak), (10.0**high_x, self.peak)]
        parts.append('<path fill="none" stroke="#444" stroke-width="2" d="M' + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in roof) + '"/>')
        for each in self.measurements:
            if each.intensity and each.throughput:
                at_x, at_y = x(each.intensity), y(each.throughput)
                share = each.throughput / self.bound(each.intensity)
                parts += [f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="4" fill="#06c"/>', text(at_x + 7, at_y + 4, f"{each.name} ({share:.0%})", "start")]
        parts += [text((left + width - right) / 2, height - 8, "FLOP for each byte"), text(left, top - 4, "GFLOP/s"), "</svg>"]
        return "".join(parts)

    def _repr_html_(self) -> str:
        return self.svg()


def _wait(result: Tensor | Iterable[Any] | None) -> None:
    if isinstance(result, Tensor):
        result.wait()
    elif isinstance(result, (tuple, list)):
        for each in result:
            _wait(each)


def benchmark(
    cases: Mapping[str, Callable[[], Any]],
    executor: Executor,
    *,
    bytes: Mapping[str, int] | None = None,
    flops: Mapping[str, int] | None = None,
    runs: int = 20,
    warmup: int = 3,
) -> Benchmark:
    """Times functions: the median of `runs` runs of each, after `warmup` others. A run ends when the tensors that the function gives are computed.

    >>> x = executor.randn((4096, 4096), seed=0)
    >>> elinvar.benchmark({"softmax": lambda: x.softmax(-1)}, executor, bytes={"softmax": 2 * x.nbytes})

    Args:
        cases: functions by name.
        executor: the device that they use.
        bytes: bytes that a case reads and writes, by name.
        flops: floating-point operations of a case, by name.
        runs: runs of each.
        warmup: runs that are not counted.
    """
    if runs < 1:
        raise ValueError(f"runs={runs}: at least one is expected")
    measured: list[Measurement] = []
    for name, case in cases.items():
        seconds: list[float] = []
        for run in range(warmup + runs):
            executor.synchronize()
            start = time.perf_counter()
            _wait(case())
            executor.synchronize()
            if run >= warmup:
                seconds.append(time.perf_counter() - start)
        measured.append(Measurement(name, statistics.median(seconds), runs, (bytes or {}).get(name), (flops or {}).get(name)))
    return Benchmark(tuple(measured), executor.name)
