"""Checks of Metal kernels from Python."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import elinvar

PLANTED = Path(__file__).parents[2] / "crates/sim/tests/kernels/planted.metal"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the simulator runs on Linux")

UNGUARDED = """#include <metal_stdlib>
using namespace metal;
kernel void add(device const float* a [[buffer(0)]], device float* c [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    c[i] = a[i] + 1;
}
"""


def kernel(body, declarations="", parameters="device uint* x [[buffer(0)]]"):
    position = "uint i [[thread_position_in_grid]]"
    return f"#include <metal_stdlib>\nusing namespace metal;\n{declarations}\nkernel void k({parameters}, {position}) {{\n{body}\n}}\n"


class Planted:
    """A kernel of the file: its launch, and the lines and kinds of which at least one must be reported, and no other."""

    def __init__(self, launch):
        extent, *more = launch.split(", ")
        self.groups, self.threads = (int(size) for size in extent.split(" x "))
        self.n, self.unchecked, self.expected, self.signature = 0, "unchecked" in more, set(), ""
        for part in more:
            if part.startswith("n = "):
                self.n = int(part.removeprefix("n = "))

    def check(self):
        ones = np.ones(256, np.float32)
        contents = {"fresh": 256, "out": 256}
        names = [name for name in ("a", "o", "fresh", "out") if any(f"{mark}{name}{end}" in self.signature for mark in "* " for end in ",)")]
        # The kernels take floats, integers and bytes: give them bytes.
        buffers = {name: contents.get(name, ones.view(np.uint8)) for name in names}
        return elinvar.check(
            PLANTED,
            kernel=self.name,
            buffers=buffers,
            values={"n": self.n} if "uint& n" in self.signature else {},
            threadgroup_memory={"s": 128} if "threadgroup float* s" in self.signature else {},
            outputs=["out"] if "out" in names else [],
            grid=self.groups,
            threadgroup=self.threads,
            seeds=1,
            time_limit=0.3,
            run_anyway=True,
        )


def planted():
    found, deep = [], set()
    for number, line in enumerate(PLANTED.read_text().split("\n"), 1):
        if line.startswith("// launch: "):
            found.append(Planted(line.removeprefix("// launch: ")))
        elif line.startswith("kernel void "):
            found[-1].name = line.removeprefix("kernel void ").split("(")[0]
            found[-1].signature = line.split("{")[0]
        if "// expect: " in line:
            kind = line.split("// expect: ")[1].split(",")[0]
            expected = {(number, each) for each in kind.split(" | ")}
            (deep if kind == "stack-overflow" else found[-1].expected).update(expected)
    for each in found:
        if each.name.startswith("recurses"):
            each.expected = deep
    return found


def test_each_planted_fault_is_found_at_its_line_and_nothing_else():
    # Compiles them all at once. Python's checks do check, so the four that are compiled without are left out.
    names = elinvar.check(PLANTED, compile_only=True, run_anyway=True).kernels
    kernels = [each for each in planted() if not each.unchecked]
    assert len(kernels) == len(names) - 4 > 40
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(Planted.check, kernels))
    for each, result in zip(kernels, results):
        found = {(finding.line, finding.kind) for finding in result.findings if finding.origin == "run"}
        assert found <= each.expected and bool(found) == bool(each.expected), f"{each.name}: {each.expected}, found\n{result}"
        for finding in result.findings:
            if finding.origin == "run":
                assert f"{finding.line} | {finding.source_line}" in str(finding), finding


def test_an_unguarded_kernel_over_exactly_its_threads_is_clean():
    a = np.arange(1000, dtype=np.float32)
    result = elinvar.check(UNGUARDED, buffers={"a": a, "c": 1000}, threads=1000, threadgroup=256)
    assert result.ok and result.findings == () and str(result) == "add: 4000 threads, 4 schedules, 0 findings"
    np.testing.assert_array_equal(result.buffers["c"], a + 1)
    assert result.buffers["c"].dtype == np.float32
    result = elinvar.check(UNGUARDED, buffers={"a": a, "c": 1000}, grid=4, threadgroup=256, name="add.metal")
    kinds = [finding.kind for finding in result.findings]
    assert kinds == ["out-of-bounds-read"] and not result.ok
    finding = result.findings[0]
    assert (finding.file, finding.line, finding.buffer, finding.offset) == ("add.metal", 4, "a", 4000)
    assert "add.metal:4: out-of-bounds-read" in str(result) and "4 |     c[i] = a[i] + 1;" in str(result)
    assert "<pre" in result._repr_html_() and "c[i] = a[i] + 1;" in result._repr_html_()
    with pytest.raises(elinvar.KernelFindings, match="out-of-bounds-read"):
        result.raise_for_findings()


def test_types_shapes_values_constants_and_expected_contents():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="the package ml_dtypes is not installed: NumPy has no bfloat16")
    text = kernel(
        "y[i] = negate ? bfloat(-float(x[i]) * by) : x[i];",
        "constant bool negate [[function_constant(0)]];",
        "device const bfloat* x [[buffer(0)]], device bfloat* y [[buffer(1)]], constant float& by [[buffer(2)]]",
    )
    x = np.arange(12).astype(ml_dtypes.bfloat16).reshape(3, 4)
    want = (-2 * x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    arguments = {"buffers": {"x": x, "y": (3, 4)}, "constants": {"negate": True}, "threads": 12, "seeds": 1}
    result = elinvar.check(text, values={"by": 2}, expect={"y": want}, **arguments)
    assert result.ok and result.buffers["y"].dtype == x.dtype and result.buffers["y"].shape == (3, 4)
    np.testing.assert_array_equal(result.buffers["y"], want)
    result = elinvar.check(text, values={"by": np.float32(3)}, expect={"y": want}, **arguments)
    (finding,) = result.findings
    assert (finding.kind, finding.buffer, finding.line) == ("unexpected-output", "y", None) and "[11 elements]" in str(finding)


def test_what_apples_compiler_would_reject_is_not_run():
    text = kernel("float* y = nullptr; x[i] = y == nullptr;")
    result = elinvar.check(text, buffers={"x": 4}, threads=4)
    assert result.rejected and result.buffers == {} and [finding.origin for finding in result.findings] == ["rules"]
    assert result.findings[0].line == 5 and "float* y" in result.findings[0].source_line
    result = elinvar.check(text, buffers={"x": 4}, threads=4, run_anyway=True)
    assert not result.rejected and result.buffers["x"].tolist() == [1] * 4


def test_a_kernel_that_crashes_hangs_or_makes_a_system_call_ends_its_own_process_alone():
    call = kernel("x[i] = socket(1, 1, 0);", 'extern "C" int socket(int, int, int);')
    exits = elinvar.check(call, buffers={"x": 2}, threads=2, run_anyway=True)
    last = exits.findings[-1]
    assert (last.kind, last.origin) == ("process-ended", "process") and "made a system call (socket)" in str(last)
    smash = "xor %%esp, %%esp\\n push %%rax" if os.uname().machine == "x86_64" else "mov sp, xzr\\n str x0, [sp, #-16]!"
    crashes = elinvar.check(kernel(f'asm volatile("{smash}" ::: "memory");'), buffers={"x": 2}, threads=2, run_anyway=True)
    assert "crashed (SIGSEGV)" in str(crashes.findings[-1])
    endless = elinvar.check(kernel("uint n = x[i]; while (n != 7) n = n * 4 + 1; x[i] = n;"), buffers={"x": np.zeros(2, np.uint32)}, threads=2, time_limit=0.3, seeds=1)
    assert [finding.kind for finding in endless.findings] == ["time-limit"]


def endless_check(**arguments):
    text = kernel("uint n = x[i]; while (n != 7) n = n * 4 + 1; x[i] = n;")
    return elinvar.check(text, buffers={"x": np.zeros(2, np.uint32)}, threads=2, time_limit=60, **arguments)


def workers():
    """The helper processes that this process has."""
    found = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False).stdout
    return [line for line in found.splitlines() if "_worker.py" in line]


@pytest.fixture
def interruptible():
    """In the background of a shell, Python ignores interrupts from its start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_timeout_and_an_interrupt_end_the_check_and_its_processes(interruptible):
    with pytest.raises(TimeoutError, match="timeout=1"):
        endless_check(timeout=1)
    assert workers() == []
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        endless_check()
    assert time.monotonic() - start < 60 and workers() == []


@pytest.mark.parametrize(
    ("arguments", "error", "wanted"),
    [
        ({"buffers": {"a": np.ones(4), "c": 4}, "threads": 4}, ValueError, "'a' holds f64, the kernel takes float: convert it to f32"),
        ({"buffers": {"a": np.ones(4, np.complex64), "c": 4}, "threads": 4}, TypeError, "complex64"),
        ({"buffers": {"a": 4}, "threads": 4}, ValueError, "`c`, is missing"),
        ({"buffers": {"a": 4, "c": 4, "z": 4}, "threads": 4}, ValueError, "no parameter `z`"),
        ({"buffers": {"a": 4, "c": 4}}, ValueError, "either threads="),
        ({"buffers": {"a": 4, "c": 4}, "threads": 4, "grid": 1}, ValueError, "either threads="),
        ({"buffers": {"a": 4, "c": 4}, "threads": 0}, ValueError, "from 1 to"),
        ({"buffers": {"a": 4, "c": -4}, "threads": 4}, ValueError, "a size is not negative"),
        ({"buffers": {"a": 4, "c": 4}, "threads": 4, "threadgroup": 2048}, ValueError, "1 to 1024"),
        ({"buffers": {"a": 4, "c": 4}, "threads": 4, "values": {"n": object()}}, TypeError, "'n' is <object"),
        ({"buffers": {"a": 4, "c": 4}, "threads": 4, "include": ["nowhere"]}, ValueError, "no folder nowhere"),
        ({"kernel": "sub", "buffers": {"a": 4, "c": 4}, "threads": 4}, ValueError, "sub"),
    ],
)
def test_bad_arguments_are_exceptions(arguments, error, wanted):
    with pytest.raises(error, match=wanted):
        elinvar.check(UNGUARDED, **arguments)


def test_a_text_that_does_not_compile_and_a_file_that_is_not_there():
    with pytest.raises(ValueError, match="the source is empty"):
        elinvar.check("", threads=1)
    with pytest.raises(FileNotFoundError):
        elinvar.check("nowhere.metal", threads=1)
    with pytest.raises(elinvar.CompileError, match="kernel.metal:5:8: .*nothing"):
        elinvar.check(kernel("x[i] = nothing;"), buffers={"x": 1}, threads=1, run_anyway=True)
