"""Atlas programs: data that runs on every device with the same bits."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np
import numpy.typing as npt

from elinvar._elinvar import AtlasProgram, Executor, Recording, Tensor
from elinvar.checking import Extent, extent

__all__ = ["Fused", "Parameter", "Program", "Trace", "fuse"]

_BLOCK = (256, 1, 1)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Parameter:
    """What a program takes: a buffer, which it reads or writes, or a scalar, with which it does neither."""

    name: str
    dtype: str
    """``f32``, ``bf16``, ``u32``, …"""
    reads: bool
    writes: bool

    @property
    def is_buffer(self) -> bool:
        """Whether it is a buffer."""
        return self.reads or self.writes


class Program:
    """An Atlas program. It is verified before it runs, and runs on the CPU, on GPUs and on the simulator with the same bits.

    >>> program = elinvar.Program.from_text(open("examples/saxpy.atlas").read())
    >>> x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    >>> program.run(elinvar.Executor("cpu"), {"x": x, "y": y, "a": 2.0, "n": 1000}, threads=1000)
    >>> y[:3]
    array([2., 2., 2.], dtype=float32)
    """

    __slots__ = ("_program",)

    def __init__(self, program: AtlasProgram) -> None:
        self._program = program

    @classmethod
    def from_text(cls, text: str) -> Program:
        """A program in Atlas's language. Raises `ValueError`, with line and column, for what is wrong with it."""
        return cls(AtlasProgram.from_text(text))

    @classmethod
    def from_bytes(cls, data: builtins.bytes) -> Program:
        """A program in its binary form. Raises `ValueError` for damaged bytes, `NotImplementedError` for those of a newer version."""
        return cls(AtlasProgram.from_bytes(data))

    @property
    def name(self) -> str:
        """The program's name."""
        return self._program.name

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Buffers and scalars, in order."""
        return tuple(Parameter(*parameter) for parameter in self._program.parameters)

    @property
    def text(self) -> str:
        """The program in Atlas's language."""
        return self._program.text

    @property
    def bytes(self) -> builtins.bytes:
        """The binary form."""
        return self._program.bytes

    @property
    def msl(self) -> str:
        """The program in the Metal Shading Language. Raises `ValueError` for one that is wrong, `NotImplementedError` for one that uses f64."""
        return self._program.msl

    @property
    def cuda(self) -> str:
        """The program in CUDA C++, as it is given to NVRTC; raises as `msl` does."""
        return self._program.cuda

    def run(
        self,
        executor: Executor,
        arguments: Mapping[str, Tensor | npt.NDArray[Any] | np.generic | float | int | bool],
        *,
        threads: Extent | None = None,
        grid: Extent | None = None,
        block: Extent | None = None,
        shared_memory: int = 0,
        steps: int | None = None,
        unchecked: bool = False,
    ) -> None:
        """Runs the program over buffers and scalars, given by name. What it writes is in the tensors and arrays that are given.

        Args:
            executor: where it runs.
            arguments: for a buffer, a tensor of the executor or a NumPy array of the buffer's type; for a scalar, a number.
            threads: launch so many threads, rounded up to whole blocks. Either this or `grid`.
            grid: launch so many blocks.
            block: threads of a block; by default what the program demands, or 256.
            shared_memory: bytes of the shared array that has no length.
            steps: loop steps that a thread may take, 2**28 by default.
            unchecked: allow ``bounds unchecked``, for programs that are trusted.

        Raises:
            ValueError: the program is wrong, or an argument does not fit: missing, unknown, of another type.
            TypeError: an argument that is neither a tensor nor an array nor a number; an array that cannot be written.
        """
        if (threads is None) == (grid is None):
            raise ValueError("give either threads=, how many threads run, or grid=, how many blocks")
        block_size = extent("block", block if block is not None else self._program.block or _BLOCK)
        if grid is not None:
            blocks = extent("grid", grid)
        else:
            blocks = [-(-size // threads_of_block) for size, threads_of_block in zip(extent("threads", threads or 0), block_size)]
        written = {parameter.name for parameter in self.parameters if parameter.writes}
        given: list[tuple[str, Any]] = []
        copied: list[tuple[npt.NDArray[Any], Tensor]] = []
        for name, argument in arguments.items():
            if isinstance(argument, np.ndarray):
                if name in written and not argument.flags.writeable:
                    raise TypeError(f"program {self.name}: '{name}' is written, and the array that is given is read-only")
                tensor = executor.tensor(argument, dtype=argument.dtype, copy=True)
                if name in written:
                    copied.append((argument, tensor))
                given.append((name, tensor))
            else:
                given.append((name, argument.item() if isinstance(argument, np.generic) else argument))
        self._program.launch(executor, given, (blocks, block_size, shared_memory), (steps, unchecked))
        for array, tensor in copied:
            np.copyto(array, tensor.numpy())

    def __reduce__(self) -> tuple[Callable[[builtins.bytes], Program], tuple[builtins.bytes]]:
        return Program.from_bytes, (self.bytes,)

    def __repr__(self) -> str:
        return f"<elinvar.Program {self.name}({', '.join(f'{each.name}: {each.dtype}' for each in self.parameters)})>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True)
class Trace:
    """What a function became: programs of its operators on elements, and kernels of the library for the others."""

    programs: tuple[Program, ...]
    commands: int
    """Launches of a call, those of the programs among them."""

    @property
    def text(self) -> str:
        """The programs in Atlas's language."""
        return "\n".join(program.text for program in self.programs)

    @property
    def msl(self) -> str:
        """The programs in the Metal Shading Language."""
        return "\n".join(program.msl for program in self.programs)

    @property
    def cuda(self) -> str:
        """The programs in CUDA C++."""
        return "\n".join(program.cuda for program in self.programs)

    def _repr_html_(self) -> str:
        return f"<p>{self.commands} launches, {len(self.programs)} programs</p>" + "".join(program._repr_html_() for program in self.programs)


class Fused(Generic[P, R]):
    """A function whose operators run when all of them are known: see `fuse`."""

    def __init__(self, function: Callable[P, R], executor: Executor | None) -> None:
        functools.update_wrapper(self, function)
        self._function: Callable[..., R] = function
        self._executor = executor

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        arguments, named, executor = self._tensors(arguments, named)
        result, recording = self._record(executor, arguments, named)
        if recording is not None:
            # What shares memory with another library is done when this returns.
            recording.replay(wait=any(each._is_shared for each in [*arguments, *named.values()] if isinstance(each, Tensor)))
        return result

    def trace(self, *arguments: P.args, **named: P.kwargs) -> Trace:
        """What the function becomes for such arguments: the programs can be read."""
        arguments, named, executor = self._tensors(arguments, named)
        _, recording = self._record(executor, arguments, named)
        if recording is None:
            return Trace((), 0)
        return Trace(tuple(Program(program) for program in recording._programs()), len(recording))

    def _tensors(self, arguments: Any, named: Any) -> tuple[Any, Any, Executor]:
        """The arguments, arrays among them as tensors, and the executor."""
        tensors = [each for each in [*arguments, *named.values()] if isinstance(each, Tensor)]
        executor = self._executor or (tensors[0].executor if tensors else None)
        if executor is None:
            raise TypeError(f"{self._function.__name__}: no argument is an elinvar.Tensor: give one, or name the executor: @elinvar.fuse(executor=...)")
        made = executor

        def tensor(each: Any) -> Any:
            return made.tensor(each) if isinstance(each, np.ndarray) else each

        return tuple(map(tensor, arguments)), {name: tensor(each) for name, each in named.items()}, executor

    def _record(self, executor: Executor, arguments: Any, named: Any) -> tuple[R, Recording | None]:
        with executor.record() as recording:
            result = self._function(*arguments, **named)
        return result, recording if len(recording) else None


@overload
def fuse(function: Callable[P, R], /) -> Fused[P, R]: ...
@overload
def fuse(*, executor: Executor) -> Callable[[Callable[P, R]], Fused[P, R]]: ...
def fuse(function: Callable[P, R] | None = None, /, *, executor: Executor | None = None) -> Fused[P, R] | Callable[[Callable[P, R]], Fused[P, R]]:
    """A function of tensors whose operators run when all of them are known.

    Operators on elements that follow each other (arithmetic, functions, comparisons, casts, `where`, `clip`) become one Atlas program, which writes nothing to
    memory in between; fused operators of the library take the place of those they stand for. The bits are those of the operators one by one. `Fused.trace`
    gives the programs, to be read.

    >>> @elinvar.fuse
    ... def gate(x, y):
    ...     return elinvar.ops.silu(x) * y + 1.0
    >>> x = elinvar.Executor("cpu").ones((4,))
    >>> gate(x, x).shape
    (4,)
    >>> print(gate.trace(x, x).msl)

    The function must not read the elements of what it computes. NumPy arrays among the arguments become tensors.
    """
    if function is not None:
        return Fused(function, executor)
    return lambda function: Fused(function, executor)
