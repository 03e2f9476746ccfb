"""The pytest plugin, on the example of a repository with kernels: each test as it passes or fails there."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples/kernel-tests"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the simulator runs on Linux")


def test_the_faulty_kernel_fails_its_test_with_its_source_line():
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--metal-seeds", "2", "-q", str(EXAMPLE)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1 and "1 failed, 2 passed" in run.stdout, run.stdout + run.stderr
    assert "FAILED" in run.stdout and "test_kernels.py::test_transpose" in run.stdout
    assert "transpose.metal:15: data-race" in run.stdout
    assert "15 |     y[(group.x * 16 + t.y) * n + group.y * 16 + t.x] = tile[t.x][t.y];" in run.stdout
