"""Metal kernels of users, on tensors of every device."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy as np

from elinvar._devices import executor as executor_of
from elinvar._elinvar import CompiledKernel, DType, Executor, LoadedLibrary, Tensor, dtype, with_gradient
from elinvar._gradients import no_grad
from elinvar.checking import Extent, Value, extent, numbers

__all__ = ["LibraryKernel", "MetalKernel", "MetalLibrary", "TemplateArgument", "Vjp", "load_metal_library", "metal_kernel"]

TemplateArgument = Union[DType, int, bool]
"""A type, a whole number or a truth value."""

Vjp = Callable[..., Union[Tensor, None, Sequence[Union[Tensor, None]]]]
"""A kernel's gradient."""

_METAL_TYPES = {
    "float32": "float",
    "float16": "half",
    "bfloat16": "bfloat",
    "int8": "char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulong",
    "bool": "bool",
}

# Positions that a body may name, and their types.
_POSITIONS = {
    "thread_position_in_grid": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_threadgroup": "uint3",
    "threadgroups_per_grid": "uint3",
    "thread_index_in_threadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "threads_per_simdgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
}


def _words(text: str) -> set[str]:
    without_comments = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return set(re.findall(r"[A-Za-z_]\w*", without_comments))


def _metal_type(of: DType) -> str:
    if of.name not in _METAL_TYPES:
        raise TypeError(f"{of.name}: Metal has no such type: use astype first")
    return _METAL_TYPES[of.name]


class MetalKernel:
    """A kernel that is made of a body: see `metal_kernel`."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        source: str,
        header: str,
        vjp: Vjp | None,
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._source = source
        self._header = header
        self._vjp = vjp
        self._words = _words(source)
        self._compiled: dict[tuple[Executor, str], CompiledKernel] = {}

    def vjp(self, function: Vjp) -> Vjp:
        """Makes `function` the kernel's gradient, as a decorator: see `metal_kernel`."""
        self._vjp = function
        return function

    def text(self, inputs: Sequence[DType], outputs: Sequence[DType], template: Mapping[str, TemplateArgument] | None = None) -> str:
        """The kernel's whole text for such types."""
        lines = ["#include <metal_stdlib>", "using namespace metal;", self._header] if self._header else ["#include <metal_stdlib>", "using namespace metal;"]
        for name, argument in (template or {}).items():
            if isinstance(argument, bool):
                lines.append(f"constant constexpr bool {name} = {str(argument).lower()};")
            elif isinstance(argument, int):
                lines.append(f"constant constexpr int {name} = {argument};")
            else:
                lines.append(f"using {name} = {_metal_type(dtype(argument))};")
        parameters = [f"device const {_metal_type(of)}* {name}" for name, of in zip(self.inputs, inputs)]
        for name in self.inputs:
            # Of arrays whose elements lie in order.
            if f"{name}_shape" in self._words:
                parameters.append(f"constant int* {name}_shape")
            if f"{name}_ndim" in self._words:
                parameters.append(f"constant int& {name}_ndim")
        parameters += [f"device {_metal_type(of)}* {name}" for name, of in zip(self.outputs, outputs)]
        buffers = [f"    {parameter} [[buffer({index})]]" for index, parameter in enumerate(parameters)]
        positions = [f"    {kind} {name} [[{name}]]" for name, kind in _POSITIONS.items() if name in self._words]
        lines.append(f"kernel void {self.name}(\n" + ",\n".join(buffers + positions) + "\n) {")
        # Messages name the lines of the body.
        lines += [f'#line 1 "{self.name}"', self._source, "}", ""]
        return "\n".join(lines)

    def __call__(
        self,
        *inputs: Any,
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        threads: Extent | None = None,
        grid: Extent | None = None,
        threadgroup: Extent | None = None,
        template: Mapping[str, TemplateArgument] | None = None,
        init_value: float | int | bool | None = None,
        executor: Executor | None = None,
    ) -> tuple[Tensor, ...]:
        """Runs the kernel: its outputs.

        Args:
            inputs: tensors of one executor, or arrays and numbers, which become tensors of it. A kernel reads their elements in row-major order.
            output_shapes: the shape of each output.
            output_dtypes: the type of each output.
            threads: launch exactly so many threads (`grid` in MLX). Either this or `grid`.
            grid: launch so many threadgroups.
            threadgroup: threads of a threadgroup; the device chooses them unless they are given.
            template: types, numbers and truth values by the names that the body has for them.
            init_value: what outputs hold before the kernel runs; nothing that is known by default.
            executor: where it runs, if no input is a tensor.

        Raises:
            CompileError: the text does not compile; lines are those of the body.
            ValueError: an argument does not fit, or an input requires a gradient and the kernel has none.
            TypeError: a type that Metal does not have.
        """
        if len(inputs) != len(self.inputs):
            raise ValueError(f"kernel {self.name} takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), {len(inputs)} are given")
        if not len(output_shapes) == len(output_dtypes) == len(self.outputs):
            found = f"{len(output_shapes)} shapes and {len(output_dtypes)} types"
            raise ValueError(f"kernel {self.name} has {len(self.outputs)} outputs ({', '.join(self.outputs)}): {found} are given for them")
        if (threads is None) == (grid is None):
            raise ValueError("give either threads=, how many threads run, or grid=, how many threadgroups")
        given = executor or next((each.executor for each in inputs if isinstance(each, Tensor)), None)
        if given is None:
            raise TypeError(f"kernel {self.name}: no input is an elinvar.Tensor: give one, or executor=")
        tensors = tuple(each if isinstance(each, Tensor) else given.tensor(np.asarray(each)) for each in inputs)
        tracked = any(each.requires_grad for each in tensors)
        if tracked and self._vjp is None:
            raise ValueError(f"kernel {self.name} has no gradient, and an input requires one: give vjp=, or detach the input")
        with no_grad():
            outputs = self._run(given, [each.detach() for each in tensors], output_shapes, output_dtypes, threads, grid, threadgroup, template, init_value)
        return outputs if not tracked else self._with_gradient(tensors, outputs)

    def _run(
        self,
        executor: Executor,
        inputs: Sequence[Tensor],
        shapes: Sequence[Sequence[int]],
        dtypes: Sequence[Any],
        threads: Extent | None,
        grid: Extent | None,
        threadgroup: Extent | None,
        template: Mapping[str, TemplateArgument] | None,
        init_value: float | int | bool | None,
    ) -> tuple[Tensor, ...]:
        # The CPU runs no Metal text: the simulator does.
        device = executor_of("metal-sim") if executor.backend == "cpu" else executor
        types = [dtype(of) for of in dtypes]
        text = self.text([each.dtype for each in inputs], types, template)
        compiled = self._compiled.get((device, text))
        if compiled is None:
            compiled = self._compiled[device, text] = CompiledKernel(device, f"{self.name}.metal", text, self.name)
        arguments: list[tuple[str, Any]] = [(name, each.to(device).contiguous()) for name, each in zip(self.inputs, inputs)]
        for name, each in zip(self.inputs, inputs):
            if f"{name}_shape" in self._words:
                arguments.append((f"{name}_shape", np.array(each.shape or (1,), np.int32).tobytes()))
            if f"{name}_ndim" in self._words:
                arguments.append((f"{name}_ndim", np.int32(each.ndim).tobytes()))

        def output(shape: Sequence[int], of: DType) -> Tensor:
            return device.empty(tuple(shape), dtype=of) if init_value is None else device.full(tuple(shape), init_value, dtype=of)

        made = [output(shape, of) for shape, of in zip(shapes, types)]
        arguments += zip(self.outputs, made)
        size = None if threadgroup is None else extent("threadgroup", threadgroup)
        if threads is not None:
            compiled.launch(device, arguments, extent("threads", threads), None, size)
        else:
            compiled.launch(device, arguments, None, extent("grid", grid or 0), size)
        return tuple(each.to(executor) for each in made)

    def _with_gradient(self, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        kept_inputs, kept_outputs, vjp = tuple(each.detach() for each in inputs), tuple(each.detach() for each in outputs), self._vjp
        assert vjp is not None

        def gradient(upstream: list[Tensor | None]) -> list[Tensor | None]:
            with no_grad():
                whole = [each if each is not None else output * 0 for each, output in zip(upstream, kept_outputs)]
                found = vjp(kept_inputs, tuple(whole), kept_outputs)
            return list(found) if isinstance(found, Sequence) else [found]

        return tuple(with_gradient(self.name, list(inputs), list(outputs), gradient))

    def __repr__(self) -> str:
        return f"<elinvar.MetalKernel {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}>"


def metal_kernel(
    source: str,
    *,
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    header: str = "",
    vjp: Vjp | None = None,
) -> MetalKernel:
    """A Metal kernel of the body of a function, for tensors of every device.

    The signature is made of the names: a buffer for each input and output, of the elements' type, and the positions that the body names
    (`thread_position_in_grid`, a `uint3`, …). `x_shape` and `x_ndim` are the shape of the input `x`. MLX's `mx.fast.metal_kernel` is much the same.

    >>> double = elinvar.metal_kernel(
    ...     "uint i = thread_position_in_grid.x; y[i] = T(2) * x[i];", name="double_all", inputs=["x"], outputs=["y"]
    ... )
    >>> x = elinvar.Executor("cpu").ones((1000,))
    >>> (y,) = double(x, output_shapes=[x.shape], output_dtypes=[x.dtype], threads=1000, template={"T": elinvar.float32})

    Apple's GPUs run the text, NVIDIA's get it as CUDA C++. For the CPU the simulator runs it, in this process, and what it finds is an error: `elinvar.check`
    is for kernels that are not trusted.

    Args:
        source: the body.
        name: the kernel's name.
        inputs: the names of the inputs.
        outputs: the names of the outputs.
        header: a text before the kernel: functions, types.
        vjp: the kernel's gradient: a function of the inputs, the gradients of the outputs, and the outputs, each a tuple, that gives a tensor for each
            input (None for one that requires none). A kernel without it takes no input that requires a gradient.

    Raises:
        ValueError: a name that is none, or is given twice.
    """
    names = [name, *inputs, *outputs]
    for each in names:
        if not re.fullmatch(r"[A-Za-z_]\w*", each):
            raise ValueError(f"'{each}' is no name: letters, digits and _ are expected")
    if len(set(names)) < len(names):
        raise ValueError(f"kernel {name}: a name is given twice among {', '.join(names)}")
    if not outputs:
        raise ValueError(f"kernel {name} has no outputs: name one")
    return MetalKernel(name, inputs, outputs, source, header, vjp)


class LibraryKernel:
    """A kernel of a compiled library: see `load_metal_library`."""

    def __init__(self, executor: Executor, name: str, compiled: CompiledKernel) -> None:
        self.executor = executor
        self.name = name
        self._compiled = compiled
        self._parameters = {parameter: what for parameter, _, what in compiled.parameters()}

    def __call__(
        self,
        arguments: Mapping[str, Tensor | Value],
        *,
        threads: Extent | None = None,
        grid: Extent | None = None,
        threadgroup: Extent | None = None,
    ) -> None:
        """Launches the kernel, which writes into the tensors that it is given.

        Args:
            arguments: by the names of the signature, a tensor for a buffer; a number, numbers, an array or bytes for a constant; and for threadgroup memory
                its size in bytes.
            threads: launch exactly so many threads. Either this or `grid`.
            grid: launch so many threadgroups.
            threadgroup: threads of a threadgroup; the device chooses them unless they are given.

        Raises:
            ValueError: an argument does not fit the signature, or is missing.
            TypeError: an argument of another kind than the signature's.
        """
        if (threads is None) == (grid is None):
            raise ValueError("give either threads=, how many threads run, or grid=, how many threadgroups")
        given = [(name, self._argument(name, value)) for name, value in arguments.items()]
        sizes = None if threads is None else extent("threads", threads)
        groups = None if grid is None else extent("grid", grid)
        self._compiled.launch(self.executor, given, sizes, groups, None if threadgroup is None else extent("threadgroup", threadgroup))

    def _argument(self, name: str, value: Tensor | Value) -> Any:
        if isinstance(value, (Tensor, bytes)) or self._parameters.get(name) == "threadgroup":
            return value
        if isinstance(value, (np.ndarray, np.generic)):
            return np.asarray(value).tobytes()
        return self._compiled.encode(name, numbers(name, value))

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}: {what} {element}" for name, element, what in self._compiled.parameters())
        return f"<elinvar.LibraryKernel {self.name}({parameters})>"


class MetalLibrary:
    """The kernels of a compiled library: see `load_metal_library`."""

    def __init__(self, executor: Executor, path: str | os.PathLike[str]) -> None:
        self.executor = executor
        self.path = os.fspath(path)
        self._loaded = LoadedLibrary(executor, self.path)

    @property
    def kernels(self) -> list[str]:
        """The kernels' names, in the order of the file."""
        return self._loaded.kernels()

    def kernel(self, name: str, constants: Mapping[str, bool | int | float] | None = None) -> LibraryKernel:
        """Compiles a kernel.

        Args:
            name: its name.
            constants: function constants by name or index; those that are not given are zero.

        Raises:
            ValueError: no such kernel or constant, or a value of another type.
            CompileError: it cannot be compiled for the device.
        """
        given = [(constant, numbers(constant, value)[0]) for constant, value in (constants or {}).items()]
        return LibraryKernel(self.executor, name, self._loaded.kernel(name, given))

    def __repr__(self) -> str:
        return f"<elinvar.MetalLibrary {self.path}: {len(self.kernels)} kernels>"


def load_metal_library(path: str | os.PathLike[str], *, executor: Executor | None = None) -> MetalLibrary:
    """Reads a library that Apple's compiler has made: a `.metallib`, or an application, a shared library or a wheel's binary that has some.

    >>> library = elinvar.load_metal_library("mlx.metallib", executor=elinvar.Executor("metal-sim"))
    >>> softmax = library.kernel("block_softmax_float32")
    >>> softmax({"in": x, "out": y, "axis_size": 100}, grid=2, threadgroup=32)

    Its kernels run on Apple's GPUs, on NVIDIA's and on the simulator, which checks every access: what it finds is an error. `elinvar.check` takes such a file
    too.

    Args:
        path: the file.
        executor: where the kernels run; by default the simulator.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no sound Metal library.
        NotImplementedError: a device that does not run Metal kernels.
    """
    return MetalLibrary(executor or executor_of("metal-sim"), path)
