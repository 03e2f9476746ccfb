"""The pytest plugin: tests of Metal kernels. What a check finds fails the test, with the kernel's source line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from elinvar.checking import CheckResult, check

__all__ = ["MetalKernelFixture", "metal_kernel"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("elinvar", "tests of Metal kernels")
    group.addoption("--metal-seeds", type=int, default=4, metavar="COUNT", help="schedules under which `metal_kernel` runs a kernel [default: 4]")


class MetalKernelFixture:
    """Checks kernels as `elinvar.check` does, and fails the test with what is found."""

    def __init__(self, folder: Path, seeds: int) -> None:
        self._folder = folder
        self._seeds = seeds

    def __call__(self, source: str | os.PathLike[str], kernel: str | None = None, **arguments: Any) -> CheckResult:
        """Checks a kernel. The arguments are those of `elinvar.check`; a path is relative to the test's folder.

        Raises:
            KernelFindings: something was found; the message has the kernel's source lines.
        """
        __tracebackhide__ = True
        if not (isinstance(source, str) and ("\n" in source or "{" in source)):
            # An absolute path stays as it is.
            source = os.path.relpath(self._folder / source)
        arguments.setdefault("seeds", self._seeds)
        result = check(source, kernel=kernel, **arguments)
        result.raise_for_findings()
        return result


@pytest.fixture
def metal_kernel(request: pytest.FixtureRequest) -> MetalKernelFixture:
    """Runs a Metal kernel on the simulator: ``metal_kernel("scale.metal", buffers={…}, threads=…).buffers``; findings fail the test."""
    seeds: Any = request.config.getoption("--metal-seeds")
    return MetalKernelFixture(request.path.parent, seeds)
