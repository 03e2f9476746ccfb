"""How an operator of Elinvar's becomes one of PyTorch's: kernels for the CPU and CUDA, a fake one, gradients, vmap and autocast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from elinvar._elinvar import TorchFunction, TorchOperator, torch_operator

LIBRARY = torch.library.Library("elinvar", "DEF")

Output = tuple[Sequence[Any], torch.dtype]

is_compiling = torch.compiler.is_dynamo_compiling


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=4096)
def native(name: str, may_reject: bool = False, **attributes: object) -> TorchOperator:
    """The library's operator with these attributes; those that are None are absent."""
    given = [(key, _text(value)) for key, value in attributes.items() if value is not None]
    return torch_operator(name, given, may_reject)


def like(x: Tensor, *_: Any) -> Output:
    """The shape and type of the first tensor."""
    return x.shape, x.dtype


class Operator:
    """An operator with one result, as data, and perhaps results beside it, f32, that its gradient reads.

    ``tensors`` are its tensor arguments, with ``?`` where they may be None, and ``attributes`` the others, each as in a schema of PyTorch's.
    ``make`` gives the library's operator of the attributes' values, and of whether there are results beside it if there may be; ``output`` shape and dtype of the result of all arguments.
    ``trained`` are the tensors that gradients flow to, ``saves`` those that their computation reads, with ``y`` for the result.
    ``beside`` has, for each result beside it, the tensor whose shape it has.
    ``rows`` are the tensors to which vmap may add a leading axis, if it adds one to no other; ``casts`` says that autocast changes their types.
    """

    def __init__(
        self,
        name: str,
        tensors: str,
        attributes: str,
        make: Callable[..., TorchOperator],
        output: Callable[..., Output],
        *,
        trained: str,
        saves: str,
        rows: str = "",
        casts: bool = False,
        beside: str = "",
    ) -> None:
        self.name, self.make, self.output = name, make, output
        names = tensors.split()
        self.tensors = [name.rstrip("?") for name in names]
        self.count = len(names)
        self.beside = [self.tensors.index(name) for name in beside.split()]
        self.rows = [name in rows.split() for name in self.tensors]
        declared = [f"Tensor{'?' if name.endswith('?') else ''} {name.rstrip('?')}" for name in names]
        attributes_ = [attribute.strip() for attribute in attributes.split(",") if attribute.strip()]
        # None has a default: PyTorch leaves out what equals it.
        self.attributes = [attribute.split()[-1] for attribute in attributes_]
        results = f"({', '.join(['Tensor'] * (1 + len(self.beside)))})" if beside else "Tensor"
        LIBRARY.define(f"{name}({', '.join(declared + attributes_)}) -> {results}", tags=(torch.Tag.pt2_compliant_tag,))
        known = [f"Tensor y{index}" for index in range(1, 1 + len(self.beside))]
        gradient = ", ".join([*declared, *attributes_, "Tensor y", *known, "Tensor dy", "bool[] wanted"])
        LIBRARY.define(f"{name}_gradient({gradient}) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
        # A tensor, or a tuple of them where there are results beside it.
        self.call: Callable[..., Tensor] = getattr(torch.ops.elinvar, name).default
        self.gradient: Callable[..., list[Tensor]] = getattr(torch.ops.elinvar, f"{name}_gradient").default
        operands = [(name, name in trained.split(), name in saves.split()) for name in self.tensors]
        is_like_first = output is like and not beside
        self.native = TorchFunction(name, operands, "y" in saves.split(), len(self.beside), casts, make, is_like_first, self.call, self.gradient)
        forward, backward = staticmethod(self.native.forward), staticmethod(self.native.backward)
        on_tape: Any = type(name, (torch.autograd.Function,), {"forward": forward, "backward": backward})
        # Without what `Function.apply` looks for first: a Python setup of the context, and tensors of transformations.
        base: Any = super(torch.autograd.Function, on_tape)
        self.native.track(base.apply)
        # The operator where no compiler traces the call: past PyTorch's dispatcher where nothing in that has a say.
        self.now: Callable[..., Tensor] = self.native.now
        self._register(casts)

    def _register(self, casts: bool) -> None:
        name, gradient = f"elinvar::{self.name}", f"elinvar::{self.name}_gradient"
        for key in ("CPU", "CUDA"):
            LIBRARY.impl(self.name, self.native.run, key)
            LIBRARY.impl(f"{self.name}_gradient", self.native.gradient, key)
            if casts:
                LIBRARY.impl(self.name, self._autocast(key), f"Autocast{key}")
        torch.library.register_fake(name, self.fake, lib=LIBRARY)
        torch.library.register_fake(gradient, self.fake_gradient, lib=LIBRARY)
        torch.library.register_autograd(name, self.native.backward, setup_context=self.native.save, lib=LIBRARY)
        torch.library.register_autograd(gradient, self._no_second, lib=LIBRARY)
        torch.library.register_vmap(name, self._vmap, lib=LIBRARY)
        torch.library.register_vmap(gradient, self._vmap_gradient, lib=LIBRARY)

    # Results.

    def fake(self, *args: Any) -> Any:
        """Results without elements."""
        shape, dtype = self.output(*args)
        y = args[0].new_empty(shape, dtype=dtype)
        return (y, *(args[0].new_empty(args[of].shape, dtype=torch.float32) for of in self.beside)) if self.beside else y

    def fake_gradient(self, *args: Any) -> list[Tensor]:
        """Gradients without elements."""
        return [x.new_empty(x.shape) for x, is_wanted in zip(args, args[-1]) if is_wanted]

    def _no_second(self, ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(f"elinvar::{self.name} has no second gradient: its first is not differentiable")

    # Batches.

    def _vmap(self, info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
        batched = [dim is not None for dim in in_dims[: self.count]]
        given = [x is not None for x in args[: self.count]]
        needed = [row for row, is_given in zip(self.rows, given) if is_given]
        if needed and needed == [b for b, is_given in zip(batched, given) if is_given]:
            moved = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(args, in_dims)]
            for index, name in enumerate(self.attributes, self.count):
                if name == "dim" and moved[index] >= 0:
                    moved[index] += 1
            return self.call(*moved), (0,) * (1 + len(self.beside)) if self.beside else 0
        found = [self.call(*one) for one in _each(info, in_dims, args)]
        if self.beside:
            return tuple(torch.stack(list(parts)) for parts in zip(*found)), (0,) * (1 + len(self.beside))
        return torch.stack(found), 0

    def _vmap_gradient(self, info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[list[Tensor], list[int]]:
        results = [self.gradient(*one) for one in _each(info, in_dims, args)]
        stacked = [torch.stack(list(parts)) for parts in zip(*results)]
        return stacked, [0] * len(stacked)

    # Autocast.

    def _autocast(self, key: str) -> Callable[..., Tensor]:
        device = key.lower()
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{key}"))

        def cast(*args: Any) -> Tensor:
            dtype = torch.get_autocast_dtype(device)
            inputs = [x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for x in args]
            with torch._C._ExcludeDispatchKeyGuard(keys):
                y: Tensor = self.call(*inputs)
            return y

        return cast


def _each(info: Any, in_dims: Sequence[Any], args: tuple[Any, ...]) -> list[list[Any]]:
    def one(x: Any, dim: Any, index: int) -> Any:
        return x.select(dim, index) if isinstance(x, Tensor) and dim is not None else x

    return [[one(x, dim, index) for x, dim in zip(args, in_dims)] for index in range(info.batch_size)]
