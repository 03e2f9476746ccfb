"""The functions of the Python array API standard, as far as Elinvar's tensors have them.

Operators are the tensors' own; what the standard has beyond them is composed of them here. Functions that make arrays take `device=`, the name of a
device or an executor; without it they use `elinvar.executor()`. docs/python.md lists what is left out.
"""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass
from typing import Any, Callable, cast

from elinvar import _elinvar, ops
from elinvar._devices import executor as _named
from elinvar._elinvar import (
    DType,
    Executor,
    Tensor,
    _promoted,
    bfloat16,
    bool,
    concat,
    devices,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    stack,
    uint8,
    uint16,
    uint32,
    uint64,
)

__array_api_version__ = "2024.12"

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi

_SIGNED, _UNSIGNED = (int8, int16, int32, int64), (uint8, uint16, uint32, uint64)
_FLOATS = (float32, float16, bfloat16, float64)
_Number = (builtins.bool, int, float)


def _executor(device: Executor | str | None) -> Executor:
    return device if isinstance(device, Executor) else _named(device or "auto")


# Arrays made of nothing, and of other arrays.


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Executor | str | None = None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor of an array, a number or nested lists."""
    if isinstance(obj, Tensor) and device in (None, obj.device):
        return obj.executor.tensor(obj, dtype=dtype, copy=copy)
    return _executor(device).tensor(obj, dtype=dtype, copy=copy)


def from_dlpack(x: Any, /, *, device: Executor | str | None = None, copy: builtins.bool | None = None) -> Tensor:
    """A tensor in the memory of an object that has `__dlpack__`."""
    return _executor(device or ("cpu" if x.__dlpack_device__()[0] == 1 else None)).from_dlpack(x, copy=copy)


def arange(start: float, /, stop: Any = None, step: float = 1, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """`start`, `start + step`, … before `stop`."""
    if stop is None:
        start, stop = 0, start
    made = _executor(device)
    if dtype is None:
        dtype = float32 if builtins.any(isinstance(number, float) for number in (start, stop, step)) else int64
    count = builtins.max(0, math.ceil((stop - start) / step))
    if dtype in _FLOATS:
        # From whole numbers, so that rounding does not add up.
        return (made.arange(count).astype(float32) * float(step) + float(start)).astype(dtype)
    return (made.arange(count) * int(step) + int(start)).astype(dtype)


def empty(shape: Any, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Elements that are not set."""
    return _executor(device).empty(shape, dtype or float32)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Ones on a diagonal, zeros elsewhere."""
    return _executor(device).eye(n_rows, n_cols, k, dtype or float32)


def full(shape: Any, fill_value: Any, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Elements of one value."""
    return _executor(device).full(shape, fill_value, dtype)


def linspace(start: float, stop: Any, /, num: int, *, dtype: DType | None = None, device: Executor | str | None = None, endpoint: builtins.bool = True) -> Tensor:
    """`num` numbers at equal distances."""
    made, dtype = _executor(device), dtype or float32
    count = num - 1 if endpoint else num
    if count < 1:
        return made.full((num,), float(start)).astype(dtype)
    step = (stop - start) / count
    at = made.arange(num).astype(float32)
    values = at * float(step) + float(start)
    if endpoint:
        values = where(at == float(count), asarray(float(stop), device=made), values)
    return values.astype(dtype)


def ones(shape: Any, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Ones."""
    return _executor(device).ones(shape, dtype or float32)


def zeros(shape: Any, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Zeros."""
    return _executor(device).zeros(shape, dtype or float32)


def _like(x: Tensor, device: Executor | str | None) -> Executor:
    return x.executor if device in (None, x.device) else _executor(device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Elements that are not set, in the shape of another array."""
    return _like(x, device).empty(x.shape, dtype or x.dtype)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Elements of one value, in the shape of another array."""
    return _like(x, device).full(x.shape, fill_value, dtype or x.dtype)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Ones, in the shape of another array."""
    return _like(x, device).ones(x.shape, dtype or x.dtype)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Executor | str | None = None) -> Tensor:
    """Zeros, in the shape of another array."""
    return _like(x, device).zeros(x.shape, dtype or x.dtype)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinate matrices of coordinate vectors."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing {indexing!r}: 'xy' or 'ij' is expected")
    swapped = indexing == "xy" and len(arrays) > 1
    order = [1, 0, *range(2, len(arrays))] if swapped else list(range(len(arrays)))
    shape = [arrays[i].size for i in order]
    views = [x.reshape([x.size if axis == order.index(i) else 1 for axis in range(len(arrays))]) for i, x in enumerate(arrays)]
    return [view.broadcast_to(shape) for view in views]


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangle of matrices."""
    return ops.trilu(x, upper=False, k=k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangle of matrices."""
    return ops.trilu(x, upper=True, k=k)


# Data types.


def astype(x: Tensor, dtype: DType, /, *, copy: builtins.bool = True, device: Executor | str | None = None) -> Tensor:
    """The elements converted to another type."""
    made = x.astype(dtype, copy=copy)
    return made if device in (None, x.device) else made.to(_executor(device))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these broadcast to."""
    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        for at, extent in enumerate(reversed(shape), 1):
            if result[-at] == 1:
                result[-at] = extent
            elif extent not in (1, result[-at]):
                raise ValueError(f"shapes {shapes} do not broadcast")
    return tuple(result)


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Views of the shape that all broadcast to."""
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return [x.broadcast_to(shape) for x in arrays]


def broadcast_to(x: Tensor, /, shape: Any) -> Tensor:
    """A view that repeats axes of extent one."""
    return x.broadcast_to(shape)


def can_cast(from_: Any, to: DType, /) -> builtins.bool:
    """Whether every value of a type is one of the other, by the standard's rules of promotion."""
    from_ = from_.dtype if isinstance(from_, Tensor) else from_
    try:
        return _promoted(from_, to) == to
    except TypeError:
        return False


@dataclass(frozen=True)
class _FInfo:
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class _IInfo:
    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> _FInfo:
    """Limits of a floating-point type."""
    dtype = type.dtype if isinstance(type, Tensor) else _elinvar.dtype(type)
    digits, exponent = {float32: (23, 127), float16: (10, 15), bfloat16: (7, 127), float64: (52, 1023)}[dtype]
    most = (2 - 2.0**-digits) * 2.0**exponent
    return _FInfo(dtype.itemsize * 8, 2.0**-digits, most, -most, 2.0 ** (1 - exponent), dtype)


def iinfo(type: Any, /) -> _IInfo:
    """Limits of a whole type."""
    dtype = type.dtype if isinstance(type, Tensor) else _elinvar.dtype(type)
    bits = dtype.itemsize * 8
    if dtype in _SIGNED:
        return _IInfo(bits, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dtype)
    if dtype in _UNSIGNED:
        return _IInfo(bits, 2**bits - 1, 0, dtype)
    raise ValueError(f"{dtype} is no type of whole numbers")


def isdtype(dtype: DType | None, kind: DType | str | tuple[DType | str, ...]) -> builtins.bool:
    """Whether a type is of a kind: 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating', 'complex floating', 'numeric'."""
    if isinstance(kind, tuple):
        return builtins.any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, DType):
        return dtype == kind
    kinds = {
        "bool": (bool,),
        "signed integer": _SIGNED,
        "unsigned integer": _UNSIGNED,
        "integral": _SIGNED + _UNSIGNED,
        "real floating": _FLOATS,
        "complex floating": (),
        "numeric": _SIGNED + _UNSIGNED + _FLOATS,
    }
    if kind not in kinds:
        raise ValueError(f"kind {kind!r}: {', '.join(kinds)} are known")
    return dtype in kinds[kind]


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type that all of these become together."""
    types = [x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes if not isinstance(x, _Number)]
    if not types:
        raise ValueError("result_type of numbers alone: at least one array or type is expected")
    dtype = types[0]
    for other in types[1:]:
        dtype = _promoted(dtype, other)
    for number in arrays_and_dtypes:
        if isinstance(number, float) and dtype not in _FLOATS:
            dtype = float32
        elif isinstance(number, int) and not isinstance(number, builtins.bool) and dtype == bool:
            dtype = int64
    return dtype


# Elementwise functions.


def _pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Both as tensors: a number becomes one of the other's type."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        raise TypeError(f"{type(a).__name__} and {type(b).__name__}: at least one array is expected")
    if not isinstance(a, Tensor):
        a = b.executor.full((), a, result_type(b, a))
    if not isinstance(b, Tensor):
        b = a.executor.full((), b, result_type(a, b))
    return a, b


def _promote(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a, b = _pair(a, b)
    dtype = _promoted(a.dtype, b.dtype)
    return a.astype(dtype, copy=False), b.astype(dtype, copy=False)


def _operator(name: str, doc: str) -> Callable[[Any, Any], Tensor]:
    def function(x1: Any, x2: Any, /) -> Tensor:
        x1, x2 = _pair(x1, x2)
        made = getattr(x1, name)(x2)
        if made is NotImplemented:
            raise TypeError(f"{function.__name__} of {type(x1).__name__} and {type(x2).__name__}")
        return cast(Tensor, made)

    function.__doc__ = doc
    return function


def _method(name: str, doc: str) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor, /) -> Tensor:
        return cast(Tensor, getattr(x, name)())

    function.__doc__ = doc
    return function


add = _operator("__add__", "a + b")
subtract = _operator("__sub__", "a − b")
multiply = _operator("__mul__", "a · b")
divide = _operator("__truediv__", "a / b; whole numbers become float32")
floor_divide = _operator("__floordiv__", "a / b, rounded down")
remainder = _operator("__mod__", "What division rounded down leaves.")
pow = _operator("__pow__", "a to the power b")
equal = _operator("__eq__", "a = b")
not_equal = _operator("__ne__", "a ≠ b")
less = _operator("__lt__", "a < b")
less_equal = _operator("__le__", "a ≤ b")
greater = _operator("__gt__", "a > b")
greater_equal = _operator("__ge__", "a ≥ b")
bitwise_and = _operator("__and__", "Bits that both have.")
bitwise_or = _operator("__or__", "Bits that either has.")
bitwise_xor = _operator("__xor__", "Bits that differ.")
bitwise_left_shift = _operator("__lshift__", "Bits shifted to the left.")
bitwise_right_shift = _operator("__rshift__", "Bits shifted to the right.")
logical_and = _operator("__and__", "a and b, of truth values")
logical_or = _operator("__or__", "a or b, of truth values")
logical_xor = _operator("__xor__", "a or b but not both, of truth values")
maximum = _operator("maximum", "The larger of each pair.")
minimum = _operator("minimum", "The smaller of each pair.")
abs = _method("__abs__", "|x|")
negative = _method("__neg__", "−x")
positive = _method("__pos__", "x")
bitwise_invert = _method("__invert__", "Every bit inverted.")
logical_not = _method("__invert__", "Not x, of truth values.")
ceil = _method("ceil", "Rounded up.")
cos = _method("cos", "The cosine of x radians.")
exp = _method("exp", "eˣ")
floor = _method("floor", "Rounded down.")
log = _method("log", "The natural logarithm.")
log10 = _method("log10", "The logarithm to base 10.")
log1p = _method("log1p", "log(1 + x)")
log2 = _method("log2", "The logarithm to base 2.")
reciprocal = _method("reciprocal", "1 / x")
round = _method("round", "Rounded to the nearest whole number, ties to even.")
sign = _method("sign", "−1, 0 or 1")
sin = _method("sin", "The sine of x radians.")
sqrt = _method("sqrt", "√x")
square = _method("square", "x · x")
tan = _method("tan", "The tangent of x radians.")
tanh = _method("tanh", "The hyperbolic tangent.")
trunc = _method("trunc", "Rounded towards zero.")


def isnan(x: Tensor, /) -> Tensor:
    """Whether each element is no number."""
    return x != x


def isinf(x: Tensor, /) -> Tensor:
    """Whether each element is infinite."""
    return abs(x) == inf if x.dtype in _FLOATS else zeros_like(x, dtype=bool)


def isfinite(x: Tensor, /) -> Tensor:
    """Whether each element is a finite number."""
    return abs(x) < inf if x.dtype in _FLOATS else ones_like(x, dtype=bool)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Elements below `min` become `min`, those above `max` become `max`."""
    for bound in (min, max):
        if isinstance(bound, Tensor) and bound.dtype != x.dtype:
            raise TypeError(f"clip of {x.dtype} by {bound.dtype}: bounds of the same type are expected")
    return x.clip(min, max) if (min, max) != (None, None) else x.copy()


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """The element of `x1` where `condition` holds, else that of `x2`."""
    return condition.where_(*_pair(x1, x2))


# Shapes.


def expand_dims(x: Tensor, /, *, axis: Any = 0) -> Tensor:
    """A view with an axis of extent one."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise IndexError(f"axis {axis} of a tensor with {x.ndim} axes")
    return x.expand_dims(axis)


def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """A view with axes in reverse."""
    axes = range(x.ndim) if axis is None else [one % x.ndim for one in ((axis,) if isinstance(axis, int) else axis)]
    return x[tuple(slice(None, None, -1) if at in axes else slice(None) for at in range(x.ndim))]


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The last two axes exchanged."""
    return x.mT


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """A view with axes at other places."""
    sources = [one % x.ndim for one in ((source,) if isinstance(source, int) else source)]
    places = [one % x.ndim for one in ((destination,) if isinstance(destination, int) else destination)]
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return x.permute_dims(order)


def permute_dims(x: Tensor, /, axes: Any) -> Tensor:
    """A view with the axes in another order."""
    return x.permute_dims(axes)


def repeat(x: Tensor, repeats: int, /, *, axis: int | None = None) -> Tensor:
    """Each element several times. `repeats` is one number."""
    if not isinstance(repeats, int):
        raise TypeError("repeat by an array gives a shape that depends on its elements: a number is expected")
    if axis is None:
        x, axis = x.flatten(), 0
    axis %= x.ndim
    shape = (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :])
    return x.expand_dims(axis + 1).broadcast_to(shape).reshape((*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]))


def reshape(x: Tensor, /, shape: Any, *, copy: builtins.bool | None = None) -> Tensor:
    """The same elements in another shape."""
    return x.reshape(tuple(shape), copy=copy)


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """Elements moved along axes, around the end."""
    if axis is None:
        return roll(x.flatten(), shift, axis=0).reshape(x.shape)
    axes = (axis,) if isinstance(axis, int) else axis
    shifts = (shift,) * len(axes) if isinstance(shift, int) else shift
    for one, by in zip(axes, shifts):
        extent = x.shape[one]
        if extent and by % extent:
            index = [slice(None)] * x.ndim
            cut = extent - by % extent
            index[one % x.ndim] = slice(cut, None)
            tail = x[tuple(index)]
            index[one % x.ndim] = slice(None, cut)
            x = concat([tail, x[tuple(index)]], axis=one)
    return x.copy()


def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """A view without axes of extent one."""
    return x.squeeze(axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The array several times along each axis."""
    rank = builtins.max(x.ndim, len(repetitions))
    repetitions = (1,) * (rank - len(repetitions)) + tuple(repetitions)
    shape = (1,) * (rank - x.ndim) + x.shape
    wide = x.reshape([part for extent in shape for part in (1, extent)])
    wide = wide.broadcast_to([part for pair in zip(repetitions, shape) for part in pair])
    return wide.reshape([times * extent for times, extent in zip(repetitions, shape)])


def unstack(x: Tensor, /, *, axis: Any = 0) -> tuple[Tensor, ...]:
    """The entries of an axis."""
    first = moveaxis(x, axis, 0)
    return tuple(first[at] for at in range(first.shape[0]))


# Reductions, searching, sorting.


def _reduction(name: str, doc: str) -> Callable[..., Tensor]:
    def function(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
        return cast(Tensor, getattr(x, name)(axis, keepdims=keepdims))

    function.__doc__ = doc
    return function


max = _reduction("max", "The largest element along axes.")
min = _reduction("min", "The smallest element along axes.")
mean = _reduction("mean", "The mean along axes.")
argmax = _reduction("argmax", "The index of the largest element along an axis.")
argmin = _reduction("argmin", "The index of the smallest element along an axis.")


def sum(x: Tensor, /, *, axis: Any = None, dtype: DType | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The sum along axes."""
    return x.sum(axis, dtype=dtype, keepdims=keepdims)


def prod(x: Tensor, /, *, axis: Any = None, dtype: DType | None = None, keepdims: builtins.bool = False) -> Tensor:
    """The product along axes."""
    return x.prod(axis, dtype=dtype, keepdims=keepdims)


def var(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """The variance along axes."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    count = math.prod(x.shape[one] for one in axes)
    distance = x - x.mean(axes, keepdims=True)
    squares = (distance * distance).sum(axes, keepdims=keepdims)
    rest = count - correction
    return squares / float(rest) if rest > 0 else squares * nan


def std(x: Tensor, /, *, axis: Any = None, correction: float = 0.0, keepdims: builtins.bool = False) -> Tensor:
    """The standard deviation along axes."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def all(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether all elements along axes are true, or not zero."""
    truths = x if x.dtype == bool else x != 0
    return truths.min(axis, keepdims=keepdims)


def any(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """Whether any element along axes is true, or not zero."""
    truths = x if x.dtype == bool else x != 0
    return truths.max(axis, keepdims=keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: builtins.bool = False) -> Tensor:
    """How many elements along axes are not zero."""
    truths = x if x.dtype == bool else x != 0
    return truths.sum(axis, dtype=int64, keepdims=keepdims)


def cumulative_sum(x: Tensor, /, *, axis: Any = None, dtype: DType | None = None, include_initial: builtins.bool = False) -> Tensor:
    """Running sums along an axis."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"cumulative_sum of a tensor with {x.ndim} axes: axis is missing")
        axis = 0
    if dtype is None:
        dtype = int64 if x.dtype in _SIGNED + (bool,) else uint64 if x.dtype in _UNSIGNED else x.dtype
    made = x.astype(dtype, copy=False).cumsum(axis)
    if not include_initial:
        return made
    shape = list(x.shape)
    shape[axis] = 1
    return concat([x.executor.zeros(shape, dtype), made], axis=axis)


def diff(x: Tensor, /, *, axis: Any = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """Differences of neighbours along an axis."""
    x = concat([part for part in (prepend, x, append) if part is not None], axis=axis)
    for _ in range(n):
        index: list[slice] = [slice(None)] * x.ndim
        index[axis % x.ndim] = slice(1, None)
        ahead = x[tuple(index)]
        index[axis % x.ndim] = slice(None, -1)
        x = ahead - x[tuple(index)]
    return x


def take(x: Tensor, indices: Tensor, /, *, axis: Any = None) -> Tensor:
    """Entries along an axis by whole numbers."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take of a tensor with {x.ndim} axes: axis is missing")
        axis = 0
    return x.take(indices, axis)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: Any = -1) -> Tensor:
    """An element of each row along an axis, by whole numbers."""
    axis %= x.ndim
    shape = list(broadcast_shapes(*((*array.shape[:axis], 1, *array.shape[axis + 1 :]) for array in (x, indices))))
    shape[axis] = x.shape[axis]
    wide = x.broadcast_to(shape)
    shape[axis] = indices.shape[axis]
    return wide.take_along_axis(indices.broadcast_to(shape), axis)


def argsort(x: Tensor, /, *, axis: Any = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """The order that sorts an axis: equal elements keep theirs."""
    return _sorted(x, axis, descending)[1]


def sort(x: Tensor, /, *, axis: Any = -1, descending: builtins.bool = False, stable: builtins.bool = True) -> Tensor:
    """The elements of an axis in order."""
    return _sorted(x, axis, descending)[0]


def _sorted(x: Tensor, axis: int, descending: builtins.bool) -> tuple[Tensor, Tensor]:
    if x.size == 0 or x.ndim == 0:
        return x.copy(), x.executor.zeros(x.shape, int64)
    by = x.astype(uint8) if x.dtype == bool else x
    values, order = ops.top_k(by, k=x.shape[axis], axis=axis, largest=descending, sorted=True)
    return values.astype(x.dtype, copy=False), order


# Matrices.


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Products of matrices."""
    return x1.matmul(x2)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: Any = -1) -> Tensor:
    """Sums of products along an axis."""
    x1, x2 = _promote(x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot of shapes {x1.shape} and {x2.shape}: axis {axis} must have the same extent in both")
    return (x1 * x2).sum(axis, dtype=x1.dtype)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sums of products over axes of both."""
    if isinstance(axes, int):
        first, second = list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    else:
        first, second = ([one % x.ndim for one in given] for x, given in zip((x1, x2), axes))
    left = [axis for axis in range(x1.ndim) if axis not in first]
    right = [axis for axis in range(x2.ndim) if axis not in second]
    count = math.prod(x1.shape[axis] for axis in first)
    a = x1.permute_dims([*left, *first]).reshape((-1, count) if x1.size else (math.prod(x1.shape[axis] for axis in left), count))
    b = x2.permute_dims([*second, *right]).reshape((count, -1) if x2.size else (count, math.prod(x2.shape[axis] for axis in right)))
    return (a @ b).reshape([x1.shape[axis] for axis in left] + [x2.shape[axis] for axis in right])


# What is here.


class _Info:
    """What `__array_namespace_info__` gives."""

    def capabilities(self) -> dict[str, Any]:
        """What depends on data is left out."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 8}

    def default_device(self) -> str:
        """The name of the device that functions use without `device=`."""
        return _named("auto").backend

    def default_dtypes(self, *, device: Executor | str | None = None) -> dict[str, DType | None]:
        """The types of arrays that nothing else says."""
        return {"real floating": float32, "complex floating": None, "integral": int64, "indexing": int64}

    def devices(self) -> list[str]:
        """The devices that can be used here."""
        return [device.backend for device in devices() if device.available]

    def dtypes(self, *, device: Executor | str | None = None, kind: Any = None) -> dict[str, DType]:
        """The types of elements, of a kind if that is given."""
        every = {dtype.name: dtype for dtype in (bool, *_SIGNED, *_UNSIGNED, float32)}
        return {name: dtype for name, dtype in every.items() if kind is None or isdtype(dtype, kind)}


def __array_namespace_info__() -> _Info:
    """What this namespace can do."""
    return _Info()


__all__ = [
    "DType",
    "Executor",
    "Tensor",
    "abs",
    "add",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "astype",
    "bfloat16",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "can_cast",
    "ceil",
    "clip",
    "concat",
    "cos",
    "count_nonzero",
    "cumulative_sum",
    "devices",
    "diff",
    "divide",
    "e",
    "empty",
    "empty_like",
    "equal",
    "exp",
    "expand_dims",
    "eye",
    "finfo",
    "flip",
    "float16",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "from_dlpack",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "iinfo",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "isdtype",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "matrix_transpose",
    "max",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "nan",
    "negative",
    "newaxis",
    "not_equal",
    "ones",
    "ones_like",
    "permute_dims",
    "pi",
    "positive",
    "pow",
    "prod",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "round",
    "sign",
    "sin",
    "sort",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "tril",
    "triu",
    "trunc",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unstack",
    "var",
    "vecdot",
    "where",
    "zeros",
    "zeros_like",
]

# What stands for a method has the name of its function.
for _name in __all__:
    if hasattr(globals()[_name], "__code__"):
        globals()[_name].__name__ = globals()[_name].__qualname__ = _name
