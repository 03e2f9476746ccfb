"""Memory shared with PyTorch on an NVIDIA GPU: addresses, the order of streams, lifetimes, and calls that leave memory flat.

Needs PyTorch with CUDA. Prints what it saw; the exit code is 1 where something is not as it should be.
"""

import gc
import sys
import time

import numpy as np
import torch

import elinvar

gpu = elinvar.Executor("cuda")
failures = []


def check(name, holds, seen=""):
    print(f"{'ok    ' if holds else 'FAILED'} {name} {seen}", flush=True)
    if not holds:
        failures.append(name)


def attempt(test):
    try:
        test()
    except Exception as error:
        check(test.__name__, False, f"{type(error).__name__}: {error}")


def addresses():
    for dtype in [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]:
        t = torch.arange(24, device="cuda").reshape(4, 6).to(dtype)
        for view in [t, t.T, t[1:, ::2]]:
            x = gpu.tensor(view)
            back = torch.from_dlpack(x)
            same = back.data_ptr() == view.data_ptr() and back.stride() == view.stride() and torch.equal(back, view)
            check(f"{dtype} {tuple(view.stride())} is shared both ways", same)
    y = torch.from_dlpack(gpu.arange(8) * 3)
    check("a tensor of Elinvar's is PyTorch's", y.is_cuda and y.tolist() == [0, 3, 6, 9, 12, 15, 18, 21])
    check("the device of a capsule", gpu.ones((1,)).__dlpack_device__() == (2, 0))
    check("a copy for the host", np.from_dlpack(gpu.ones((2,)), device="cpu").tolist() == [1.0, 1.0])


def streams():
    # A long kernel of PyTorch's writes what Elinvar reads, and the other way, on the default stream and on another.
    wrong = 0
    for stream in [torch.cuda.default_stream(), torch.cuda.Stream()]:
        with torch.cuda.stream(stream):
            for turn in range(50):
                a = torch.zeros(1 << 22, device="cuda")
                torch.cuda._sleep(2_000_000)
                a += turn
                x = gpu.from_dlpack(a)
                y = x * 2 + 1
                z = torch.from_dlpack(y)
                total = z.sum().item()
                wrong += total != (2 * turn + 1) * (1 << 22)
    check("what is submitted first is seen", wrong == 0, f"{wrong} of 100 sums are wrong")
    x = gpu.zeros((1 << 22,))
    t = torch.from_dlpack(x)
    wrong = 0
    for turn in range(50):
        torch.cuda._sleep(2_000_000)
        t += 1
        x += 1
        wrong += x[0].item() != 2 * turn + 2
    check("changes of both follow each other", wrong == 0, f"{wrong} of 50 are wrong")


def lifetimes():
    base = torch.cuda.memory_allocated()
    t = torch.full((1 << 20,), 3.0, device="cuda")
    x = gpu.tensor(t)
    del t
    torch.full((1 << 20,), 7.0, device="cuda")
    check("a producer's memory stays", x[0].item() == 3 and x.sum().item() == 3 << 20)
    y = torch.from_dlpack(x * 2)
    del x
    gc.collect()
    gpu.synchronize()
    check("a consumer's memory stays", y.sum().item() == 6 << 20)
    check("a producer's memory goes back", torch.cuda.memory_allocated() - base < 1 << 20, torch.cuda.memory_allocated() - base)
    # Memory that goes back while a consumer's kernel reads it must not be given to another.
    wrong = 0
    for turn in range(100):
        y = torch.from_dlpack(gpu.full((1 << 20,), float(turn)))
        torch.cuda._sleep(1_000_000)
        z = y * 1
        del y
        gpu.full((1 << 20,), -1.0)
        wrong += z.sum().item() != turn * (1 << 20)
    check("memory is not given away while it is read", wrong == 0, f"{wrong} of 100 are wrong")


def flat():
    t = torch.ones(1024, device="cuda")

    def step():
        torch.from_dlpack(gpu.tensor(t) + 1)

    for _ in range(2000):
        step()
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    start = time.perf_counter()
    for _ in range(20000):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    lost = free - torch.cuda.mem_get_info()[0]
    check("20,000 calls leave memory flat", lost <= 4 << 20, f"{lost} bytes, {seconds / 20000 * 1e6:.1f} us a call")


def overhead():
    x, t = gpu.ones((8,)), torch.ones(8, device="cuda")
    for name, add in [("elinvar", lambda: x + x), ("torch", lambda: t + t)]:
        best = float("inf")
        for _ in range(7):
            start = time.perf_counter()
            for _ in range(2000):
                add()
            best = min(best, time.perf_counter() - start)
            torch.cuda.synchronize()
            gpu.synchronize()
        print(f"       8 numbers added on the GPU, {name}: {best / 2000 * 1e6:.2f} us a call")
    cpu = elinvar.Executor("cpu")
    u, v = cpu.ones((8,)), torch.ones(8)
    for name, add in [("elinvar", lambda: u + u), ("torch", lambda: v + v)]:
        best = float("inf")
        for _ in range(15):
            start = time.perf_counter()
            for _ in range(5000):
                add()
            best = min(best, time.perf_counter() - start)
        print(f"       8 numbers added on the CPU, {name}: {best / 5000 * 1e6:.2f} us a call")


print(torch.__version__, gpu, sys.version)
for test in [addresses, streams, lifetimes, flat, overhead]:
    attempt(test)
print(f"{len(failures)} failed: {failures}")
sys.exit(bool(failures))
