"""Checks of Metal kernels: Apple's rules, and runs on the simulator, in a process of their own."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Union

import numpy as np
import numpy.typing as npt

from elinvar import _elinvar

__all__ = ["CheckResult", "Contents", "Extent", "Finding", "KernelFindings", "Number", "OtherAccess", "Value", "check"]

Extent = Union[int, Sequence[int]]
"""One, two or three sizes: along x, y and z."""

Number = Union[bool, int, float]

Value = Union[Number, Sequence[Number], npt.NDArray[Any], np.generic, bytes, bytearray, memoryview]
"""A constant: a number or numbers, which become the signature's type, or its bytes."""

Contents = Union[npt.ArrayLike, tuple[int, ...]]
"""A buffer: an array, or a size or a shape of elements that nothing has written."""

_NAMES = {
    "float32": "f32",
    "float16": "f16",
    "float64": "f64",
    "bfloat16": "bf16",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
}
_DTYPES = {short: name for name, short in _NAMES.items()}

_EXCEPTIONS: dict[str, type[Exception]] = {
    "OutOfMemory": MemoryError,
    "DeviceLost": _elinvar.DeviceError,
    "DeviceUnavailable": _elinvar.DeviceError,
    "CompileFailed": _elinvar.CompileError,
    "InvalidLaunch": ValueError,
    "InvalidArgument": ValueError,
    "InvalidData": ValueError,
    "Unsupported": NotImplementedError,
    "Io": OSError,
}

_MAX_EXTENT = 2**32 - 1


@dataclass(frozen=True)
class OtherAccess:
    """The earlier of two accesses that race."""

    file: str | None
    line: int | None
    kernel: str
    thread: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    source_line: str | None = None


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a kernel. Equal ones of many threads are one, with a count; thread and threadgroup are of the first."""

    kind: str
    """What it is: ``out-of-bounds-read``, ``data-race``, … of a run; the name of a rule of Apple's compiler; ``process-ended``."""
    message: str
    """What happened, in words."""
    origin: Literal["run", "rules", "process"]
    """What found it: a run, the rules of Apple's compiler, or the process that the kernel ended or had to be ended with."""
    file: str | None = None
    line: int | None = None
    source_line: str | None = None
    """The line's text."""
    kernel: str | None = None
    thread: tuple[int, int, int] | None = None
    threadgroup: tuple[int, int, int] | None = None
    buffer: str | None = None
    offset: int | None = None
    """Byte offset in the buffer."""
    other: OtherAccess | None = None
    count: int = 1
    seed: int | None = None
    """The first schedule that showed it."""
    text: str = field(default="", repr=False)
    """All of it but the source, in one line."""

    def __str__(self) -> str:
        lines = [self.text if self.seed is None else f"{self.text} (seed {self.seed})"]
        places: list[Finding | OtherAccess] = [self] if self.other is None else [self, self.other]
        width = max((len(str(place.line)) for place in places), default=0)
        shown = {(place.file, place.line): place.source_line for place in places if place.source_line is not None}
        lines.extend(f"    {line:>{width}} | {source}" for (_, line), source in shown.items())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        where = "" if self.line is None else f"{self.file}:{self.line}"
        source = "" if self.source_line is None else f"<pre style='margin:0'>{escape(self.source_line)}</pre>"
        return f"<p><b>{escape(self.kind)}</b> <code>{escape(where)}</code><br>{escape(self.message)}</p>{source}"


class KernelFindings(AssertionError):
    """A check found something: `findings` has what."""

    def __init__(self, result: CheckResult) -> None:
        super().__init__(str(result))
        self.findings = result.findings
        self.result = result


@dataclass(frozen=True)
class CheckResult:
    """What a check found, and what the buffers held after the last run."""

    findings: tuple[Finding, ...]
    buffers: dict[str, npt.NDArray[Any]]
    """The buffers after the last run, by name; none if the kernel was not run to its end."""
    kernel: str | None
    """The kernel that was run; none if Apple's compiler would reject it, or none was to be run."""
    kernels: tuple[str, ...]
    """The kernels that compile, where none was to be run."""
    threads: int
    """GPU threads run, over all schedules."""
    seeds: int
    """Schedules."""
    rejected: bool
    """Whether Apple's compiler would reject the text, so that it was not run."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def raise_for_findings(self) -> None:
        """Raises `KernelFindings` if something was found."""
        if self.findings:
            raise KernelFindings(self)

    def _summary(self) -> str:
        found = f"{len(self.findings)} {'finding' if len(self.findings) == 1 else 'findings'}"
        if self.rejected:
            return f"Apple's compiler would reject it: {found}, not run; run_anyway=True runs it all the same"
        if self.kernel is None:
            return f"{len(self.kernels)} kernels compile, {found}"
        return f"{self.kernel}: {self.threads} threads, {self.seeds} {'schedule' if self.seeds == 1 else 'schedules'}, {found}"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), self._summary()])

    def __repr__(self) -> str:
        return f"<elinvar check of {self._summary()}>"

    def _repr_html_(self) -> str:
        return "".join(finding._repr_html_() for finding in self.findings) + f"<p>{escape(self._summary())}</p>"


class _Request:
    """What is sent to the helper process: JSON, in which lengths stand for bytes, and the bytes."""

    def __init__(self) -> None:
        self.blobs: list[memoryview | bytes] = []
        self.json: dict[str, Any] = {}

    def blob(self, data: memoryview | bytes) -> int:
        self.blobs.append(data)
        return data.nbytes if isinstance(data, memoryview) else len(data)

    def array(self, name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
        short = _NAMES.get(str(array.dtype))
        if short is None:
            raise TypeError(f"'{name}' is an array of {array.dtype}, which kernels do not have: use one of {', '.join(_NAMES)}, or its bytes (uint8)")
        return {"dtype": short, "bytes": self.blob(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)}

    def encoded(self) -> list[memoryview | bytes]:
        header = json.dumps(self.json).encode()
        return [struct.pack("<Q", len(header)), header, *self.blobs]


def extent(what: str, given: Extent) -> list[int]:
    """Sizes along x, y and z; messages call them `what`."""
    sizes = [int(size) for size in given] if isinstance(given, Sequence) else [int(given)]
    if not 1 <= len(sizes) <= 3 or not all(1 <= size <= _MAX_EXTENT for size in sizes):
        raise ValueError(f"{what}={given!r}: one to three sizes are expected, each from 1 to {_MAX_EXTENT}")
    return sizes + [1] * (3 - len(sizes))


def numbers(name: str, value: Number | Sequence[Number]) -> list[str]:
    """A number, or numbers, as text; messages call them `name`."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values or not all(isinstance(each, (bool, int, float)) for each in values):
        raise TypeError(f"'{name}' is {value!r}: a number, numbers, an array or bytes are expected")
    return [str(each).lower() if isinstance(each, bool) else repr(each) for each in values]


def _size(contents: Contents) -> tuple[int, ...] | None:
    """The shape of a buffer that nothing has written; None for an array."""
    sizes = contents if isinstance(contents, tuple) else (contents,)
    integers = [int(each) for each in sizes if isinstance(each, Integral)]
    return tuple(integers) if len(integers) == len(sizes) else None


def _read(source: str | os.PathLike[str], name: str) -> tuple[str, str, str, bytes | None]:
    """Name, text and folder of a source, and its bytes if it is a compiled library: a text has several lines or a brace, a path neither."""
    if source == "":
        raise ValueError("the source is empty: give the text of a kernel, or the path of a file")
    if isinstance(source, str) and ("\n" in source or "{" in source):
        return name, source, ".", None
    path = Path(source)
    contents = path.read_bytes()
    if _elinvar.is_compiled_metal(contents):
        return str(path), "", str(path.parent), contents
    return str(path), contents.decode(), str(path.parent), None


class _Sources:
    """The lines of the files that findings are in."""

    def __init__(self, name: str, text: str) -> None:
        self.known: dict[str, list[str]] = {name: text.split("\n")}

    def line(self, file: str | None, line: int | None) -> str | None:
        if file is None or line is None:
            return None
        if file not in self.known:
            try:
                self.known[file] = Path(file).read_text(encoding="utf-8", errors="replace").split("\n")
            except OSError:
                self.known[file] = []
        lines = self.known[file]
        return lines[line - 1].rstrip() if 0 < line <= len(lines) else None


def _triple(values: Sequence[int] | None) -> tuple[int, int, int] | None:
    return None if values is None else (values[0], values[1], values[2])


def _of_run(found: dict[str, Any], sources: _Sources) -> Finding:
    other = found["other"]
    place = {key: found[key] for key in ("kind", "message", "file", "line", "kernel", "buffer", "offset", "count", "seed", "text")}
    return Finding(
        origin="run",
        source_line=sources.line(found["file"], found["line"]),
        thread=_triple(found["thread"]),
        threadgroup=_triple(found["threadgroup"]),
        other=None
        if other is None
        else OtherAccess(
            other["file"], other["line"], other["kernel"], tuple(other["thread"]), tuple(other["threadgroup"]), sources.line(other["file"], other["line"])
        ),
        **place,
    )


def _of_rule(lint: dict[str, Any], sources: _Sources) -> Finding:
    return Finding(
        kind=lint["rule"],
        message=lint["message"],
        origin="rules",
        file=lint["file"],
        line=lint["line"],
        source_line=sources.line(lint["file"], lint["line"]),
        text=lint["text"],
    )


def _answer(request: _Request, timeout: float | None) -> tuple[dict[str, Any], memoryview]:
    """What the helper process answers: JSON, and the buffers' bytes."""
    __tracebackhide__ = True  # of pytest
    if not hasattr(_elinvar, "serve_check"):
        raise NotImplementedError("kernels are checked on Linux, where the simulator runs: use a container or WSL")
    if not sys.executable:
        raise RuntimeError("kernels are checked in a process of their own, which needs a Python interpreter: sys.executable names none")
    worker = [sys.executable, "-I", "-S", str(Path(__file__).with_name("_worker.py")), str(_elinvar.__file__), str(os.getpid())]
    # A session of its own: Ctrl-C in a terminal is this process's, which ends the other. That one ends by itself when the thread that started it does.
    process = subprocess.Popen(worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        output, errors = process.communicate(b"".join(request.encoded()), timeout=timeout)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"the check took longer than timeout={timeout} s: its process was ended") from None
    finally:
        # Also where the wait was interrupted.
        if process.poll() is None:
            process.kill()
            process.communicate()
    if len(output) < 8:
        raise _elinvar.InternalError(f"the process of the check ended without an answer (exit code {process.returncode}): {errors.decode(errors='replace').strip()}")
    if errors:
        print(errors.decode(errors="replace").rstrip(), file=sys.stderr)
    (length,) = struct.unpack("<Q", output[:8])
    answer: dict[str, Any] = json.loads(output[8 : 8 + length])
    return answer, memoryview(output)[8 + length :]


def check(
    source: str | os.PathLike[str],
    *,
    kernel: str | None = None,
    buffers: Mapping[str, Contents] | None = None,
    values: Mapping[str, Value] | None = None,
    threads: Extent | None = None,
    grid: Extent | None = None,
    threadgroup: Extent = 32,
    threadgroup_memory: Mapping[str, int] | None = None,
    constants: Mapping[str, bool | int | float] | None = None,
    outputs: Iterable[str] | None = None,
    expect: Mapping[str, npt.ArrayLike] | None = None,
    tolerance: float | None = None,
    seeds: int = 4,
    seed: int = 0,
    include: Iterable[str | os.PathLike[str]] = (),
    defines: Mapping[str, str | int] | None = None,
    metal_version: int | None = None,
    fast_math: bool = False,
    flush_subnormals: bool = False,
    run_anyway: bool = False,
    compile_only: bool = False,
    name: str = "kernel.metal",
    time_limit: float = 20.0,
    timeout: float | None = None,
) -> CheckResult:
    """Checks a Metal kernel: by the rules of Apple's compiler, and by running it on the simulator under several schedules.

    The kernel runs in a process of its own, which is ended if it hangs, crashes or makes a system call; that is a finding, and this process goes on.
    `elinvar check` is the same as a command.

    >>> text = "kernel void twice(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i + 1] *= 2; }"
    >>> result = elinvar.check(text, buffers={"x": np.ones(64, np.float32)}, threads=64)
    >>> [finding.kind for finding in result.findings]
    ['out-of-bounds-read']

    Args:
        source: a Metal text, which has several lines or a brace, or the path of a file: a text, or a library that Apple's compiler has made. Files that a
            text includes are looked for in the current folder.
        kernel: the kernel's host name; by default the only one of the text.
        buffers: by the names of the kernel's signature, an array of the elements' type (or of bytes, uint8), or a size: so many elements, or a shape of
            them, that nothing has written.
        values: constants of the kernel by name: a number or numbers of the signature's type, an array, or bytes.
        threads: launch exactly so many threads; the last threadgroup along an axis may be smaller. Either this or `grid`.
        grid: launch so many threadgroups.
        threadgroup: threads of a threadgroup.
        threadgroup_memory: bytes of threadgroup arguments by name.
        constants: function constants by name or index.
        outputs: buffers that must be written in full; by default those that the kernel writes and never reads.
        expect: what buffers must hold after each run: an array of the buffer's elements each.
        tolerance: difference that is accepted from an expected element, relative to it if it is larger than 1; by default the bits must be the same.
        seeds: how many schedules are tried.
        seed: the first of them.
        include: folders where included files are looked for.
        defines: macros for the preprocessor and their bodies.
        metal_version: 310 is Metal 3.1, the default.
        fast_math: contract products and sums.
        flush_subnormals: make subnormal numbers zero, as Apple's GPUs do.
        run_anyway: run also a text that Apple's compiler would reject.
        compile_only: judge and compile every kernel, and run none.
        name: what messages call a text that is no file.
        time_limit: seconds of processor time that a threadgroup may take.
        timeout: seconds after which the whole check is ended, whatever it does.

    Returns:
        What was found, and the buffers after the last run.

    Raises:
        CompileError: the text does not compile.
        ValueError: an argument does not fit the kernel.
        TypeError: an array of a type that kernels do not have.
        DeviceError: no clang, which the simulator needs.
        TimeoutError: after `timeout`.
    """
    __tracebackhide__ = True  # of pytest
    if compile_only:
        if kernel is not None or buffers or values or expect or threads is not None or grid is not None:
            raise ValueError("compile_only=True runs no kernel: leave out kernel, buffers, values, expect, threads and grid")
        launch: dict[str, Any] = {"grid": [1, 1, 1]}
    elif (threads is None) == (grid is None):
        raise ValueError("give either threads=, how many threads run, or grid=, how many threadgroups")
    else:
        launch = {"grid": extent("grid", grid)} if threads is None and grid is not None else {"threads": extent("threads", threads or 0)}
    folders = [os.fspath(folder) for folder in include]
    for folder in folders:
        if not os.path.isdir(folder):
            raise ValueError(f"include: there is no folder {folder}")
    shown, text, parent, library = _read(source, name)
    request = _Request()
    size = None if library is None else request.blob(library)
    shapes: dict[str, tuple[int, ...]] = {}
    sent: list[dict[str, Any]] = []
    for buffer, contents in (buffers or {}).items():
        size_of = _size(contents)
        if size_of is not None:
            if min(size_of, default=1) < 0:
                raise ValueError(f"'{buffer}': {contents!r} elements: a size is not negative")
            shapes[buffer] = size_of
            sent.append({"name": buffer, "contents": {"unwritten": math.prod(size_of)}})
        else:
            array = np.asarray(contents)
            shapes[buffer] = array.shape
            sent.append({"name": buffer, "contents": {"given": request.array(buffer, array)}})
    arguments: list[dict[str, Any]] = []
    for argument, value in (values or {}).items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            arguments.append({"name": argument, "value": {"bytes": request.blob(bytes(value))}})
        elif isinstance(value, (np.ndarray, np.generic)):
            arguments.append({"name": argument, "value": {"bytes": request.blob(np.asarray(value).tobytes())}})
        else:
            arguments.append({"name": argument, "value": {"numbers": numbers(argument, value)}})
    wanted = [{"name": buffer, **request.array(buffer, np.asarray(array))} for buffer, array in (expect or {}).items()]
    request.json = {
        "name": shown,
        "text": text,
        "library": size,
        "folder": parent,
        "include": folders,
        "defines": [f"{macro}={body}" for macro, body in (defines or {}).items()],
        "metal_version": metal_version,
        "fast_math": fast_math,
        "flush_subnormals": flush_subnormals,
        "run_anyway": run_anyway,
        "compile_only": compile_only,
        "kernel": kernel,
        "threads": launch,
        "threadgroup": extent("threadgroup", threadgroup),
        "buffers": sent,
        "values": arguments,
        "threadgroup_memory": [{"name": memory, "bytes": size} for memory, size in (threadgroup_memory or {}).items()],
        "constants": [{"name": constant, "value": numbers(constant, value)[0]} for constant, value in (constants or {}).items()],
        "outputs": None if outputs is None else list(outputs),
        "expected": wanted,
        "tolerance": tolerance,
        "seed": seed,
        "seeds": seeds,
        "time_limit": time_limit,
        "keep_buffers": True,
    }
    answer, data = _answer(request, timeout)
    report, error = answer["report"], answer["error"]
    if error is not None and not answer["ended"]:
        raise _EXCEPTIONS.get(error["kind"], _elinvar.InternalError)(error["message"])
    sources = _Sources(shown, text)
    findings = [_of_rule(lint, sources) for lint in report["lints"]] + [_of_run(found, sources) for found in report["findings"]]
    if error is not None:
        findings.append(Finding("process-ended", error["message"], "process", file=shown, kernel=report.get("kernel"), text=error["message"]))
    kept: dict[str, npt.NDArray[Any]] = {}
    at = 0
    for (buffer, shape), dtype, length in zip(shapes.items(), report.get("dtypes", []), answer["buffers"]):
        flat = np.frombuffer(data[at : at + length], _numpy(dtype)).copy()
        kept[buffer] = flat.reshape(shape) if flat.size == np.prod(shape, dtype=np.int64) else flat
        at += length
    return CheckResult(
        findings=tuple(findings),
        buffers=kept,
        kernel=report.get("kernel"),
        kernels=tuple(report.get("kernels", [])),
        threads=report["threads"],
        seeds=report["seeds"],
        rejected=report.get("rejected", False),
    )


def _numpy(short: str) -> np.dtype[Any]:
    if short != "bf16":
        return np.dtype(_DTYPES[short])
    try:
        import ml_dtypes
    except ImportError:
        # As bits.
        return np.dtype(np.uint16)
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16
