"""What a call costs beside the work: the sum of 8 numbers, and 100,000 calls of each kind, which must leave memory flat.

Prints microseconds a call, the least of several rounds; PyTorch's beside them where it is installed.
"""

import gc
import resource
import timeit

import numpy as np

import elinvar

CALLS = 100_000


def cost(name, call, rounds=15, calls=4000):
    print(f"{name:48} {min(timeit.repeat(call, number=calls, repeat=rounds)) / calls * 1e6:8.2f} us")


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


cpu = elinvar.Executor("cpu")
x = cpu.ones((8,))
array = np.ones(8, np.float32)
cost("x + x", lambda: x + x)
cost("x + 1.0", lambda: x + 1.0)
cost("elinvar.ops.add(x, x)", lambda: elinvar.ops.add(x, x))
cost("executor.tensor(array)", lambda: cpu.tensor(array))
cost("x.numpy()", lambda: x.numpy())
cost("numpy.from_dlpack(x)", lambda: np.from_dlpack(x))
try:
    import torch

    t = torch.ones(8)
    cost("torch: t + t", lambda: t + t)
except ImportError:
    print("PyTorch is not installed")

y = cpu.tensor(array)
leaf = cpu.tensor(array, requires_grad=True, copy=True)


def backward():
    (leaf * leaf).sum().backward()
    leaf.grad = None


for name, call in {
    "x + x": lambda: x + x,
    "tensor(array) + 1": lambda: cpu.tensor(array) + 1,
    "x.numpy()": lambda: x.numpy(),
    "from_dlpack both ways": lambda: np.from_dlpack(cpu.from_dlpack(array)),
    "elinvar.ops.softmax": lambda: elinvar.ops.softmax(x),
    "backward": backward,
}.items():
    for _ in range(2000):
        call()
    before = resident()
    for _ in range(CALLS):
        call()
    print(f"{CALLS} calls of {name:30} {resident() - before:+d} bytes resident")
