"""Kernels of compiled Metal libraries: checked, and launched on tensors."""

import struct
from pathlib import Path

import elinvar
import numpy as np
import pytest

simulated = pytest.mark.simulated
BITCODE = Path(__file__).parents[2] / "crates/metallib/tests/library/scale.bc"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A library with one kernel: y = x * factor, doubled if a function constant says so."""

    def tag(name, contents):
        return name + struct.pack("<H", len(contents)) + contents

    code = BITCODE.read_bytes()
    entry = tag(b"NAME", b"scale\0") + tag(b"TYPE", b"\2") + tag(b"OFFT", bytes(24)) + tag(b"VERS", struct.pack("<4H", 2, 6, 3, 1))
    entry += tag(b"MDSZ", struct.pack("<Q", len(code))) + b"ENDT"
    entry = struct.pack("<I", len(entry) + 4) + entry
    public = tag(b"CNST", struct.pack("<H", 1) + b"doubled\0" + struct.pack("<BHB", 53, 3, 1)) + b"ENDT"
    public = struct.pack("<I", len(public) + 4) + public
    at = 88 + 4 + len(entry)
    sections = [at, len(public), at + len(public), 0, at + len(public), len(code)]
    header = b"MTLB" + bytes(12) + struct.pack("<9Q", at + len(public) + len(code), 88, len(entry), *sections)
    path = tmp_path_factory.mktemp("libraries") / "scale.metallib"
    path.write_bytes(header + struct.pack("<I", 1) + entry + public + code)
    return path


ARGUMENTS = {"factor": 2.0, "shared": 16}


@simulated
def test_a_kernel_of_a_library_runs_on_tensors(library):
    executor = elinvar.executor("metal-sim")
    loaded = elinvar.load_metal_library(library, executor=executor)
    assert loaded.kernels == ["scale"]
    scale = loaded.kernel("scale", {"doubled": True})
    assert repr(scale) == "<elinvar.LibraryKernel scale(x: buffer float, y: buffer float, factor: constant float, shared: threadgroup float)>"
    x = np.arange(64, dtype=np.float32)
    y = executor.zeros((64,))
    scale({"x": executor.tensor(x), "y": y, **ARGUMENTS}, grid=1, threadgroup=64)
    np.testing.assert_array_equal(y.numpy(), 4 * x)
    loaded.kernel("scale")({"x": executor.tensor(x), "y": y, "factor": np.float32(3), "shared": 16}, threads=64)
    np.testing.assert_array_equal(y.numpy(), 3 * x)


@simulated
def test_a_kernel_of_a_library_is_checked(library):
    x = np.arange(64, dtype=np.float32)
    launch = {"values": {"factor": 2.0}, "threadgroup_memory": {"shared": 16}, "constants": {"doubled": True}, "grid": 1, "threadgroup": 64}
    result = elinvar.check(library, buffers={"x": x, "y": 64}, expect={"y": 4 * x}, **launch)
    assert result.ok and result.kernel == "scale", result
    result = elinvar.check(library, buffers={"x": x, "y": 63}, **launch)
    assert [finding.kind for finding in result.findings] == ["out-of-bounds-write"]
    assert result.findings[0].file == f"{library}/scale.ll"


@simulated
def test_what_is_wrong_with_a_library_or_its_arguments(library, tmp_path):
    executor = elinvar.executor("metal-sim")
    loaded = elinvar.load_metal_library(library)
    with pytest.raises(ValueError, match="no function `scala`"):
        loaded.kernel("scala")
    with pytest.raises(ValueError, match="no function constant 'tripled'"):
        loaded.kernel("scale", {"tripled": True})
    scale = loaded.kernel("scale")
    x = executor.zeros((64,))
    with pytest.raises(ValueError, match="'y' .* is not given"):
        scale({"x": x, **ARGUMENTS}, threads=64)
    with pytest.raises(TypeError, match="'factor' is None"):
        scale({"x": x, "y": x, "factor": None, "shared": 16}, threads=64)
    with pytest.raises(NotImplementedError, match="the device 'cpu' does not run Metal kernels"):
        elinvar.load_metal_library(library, executor=elinvar.executor("cpu"))
    cut = tmp_path / "cut.metallib"
    cut.write_bytes(library.read_bytes()[:200])
    with pytest.raises(ValueError, match="cut short"):
        elinvar.load_metal_library(cut)
    with pytest.raises(OSError, match="cannot read"):
        elinvar.load_metal_library(tmp_path / "none.metallib")
