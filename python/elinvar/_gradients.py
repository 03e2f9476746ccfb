"""Gradients of functions, and blocks that leave none."""

import functools
from types import TracebackType
from typing import Any, Callable

from elinvar._elinvar import Tensor, _enter_no_grad, _leave_no_grad


class no_grad:
    """A block, or a function, whose operators are not on the tape of gradients: `with elinvar.no_grad(): weight -= rate * weight.grad`."""

    def __enter__(self) -> None:
        _enter_no_grad()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        _leave_no_grad()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def without(*arguments: Any, **named: Any) -> Any:
            with no_grad():
                return function(*arguments, **named)

        return without


def value_and_grad(function: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives what `function` gives, a tensor of one element, and its gradient by the arguments `argnums`."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def both(*arguments: Any, **named: Any) -> Any:
        given = list(arguments)
        for number in numbers:
            if not -len(given) <= number < len(given):
                raise ValueError(f"argnums has {number}, and {len(given)} arguments are given")
            if not isinstance(given[number], Tensor):
                raise TypeError(f"argument {number} is {type(given[number]).__name__}: gradients are by tensors")
            given[number] = given[number].detach().requires_grad_()
        result: Any = function(*given, **named)
        if not isinstance(result, Tensor):
            raise TypeError(f"the function gives {type(result).__name__}: a tensor of one element is expected")
        gradients = result._gradients([given[number] for number in numbers])
        return result.detach(), gradients[0] if isinstance(argnums, int) else tuple(gradients)

    return both


def grad(function: Callable[..., Tensor], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives the gradient of `function`, which gives a tensor of one element, by the arguments `argnums`."""
    both = value_and_grad(function, argnums)

    @functools.wraps(function)
    def gradient(*arguments: Any, **named: Any) -> Any:
        return both(*arguments, **named)[1]

    return gradient
