"""Forward and backward passes of Elinvar's operators beside torch.compile's (inductor) and eager PyTorch's, in turns; medians.

    python torch_speed.py [--device cuda] [--dtype float32] [--only softmax,rms_norm] [--small | --tiny]

Of --tiny the host's part of a call is nearly all; inductor is left out.
"""

import argparse
import statistics
import time

import torch

from elinvar.torch import functional as E

nn = torch.nn.functional


def cases(device, dtype, small, tiny):
    rows, columns = (4, 64) if tiny else (512, 1024) if small else (16384, 8192) if device == "cuda" else (4096, 2048)

    def make(*shape, dtype=dtype, grad=True):
        return torch.randn(*shape, device=device, dtype=dtype).requires_grad_(grad)

    x, w, b = make(rows, columns), make(columns), make(columns)
    yield "rms_norm", (x, w), lambda x, w: nn.rms_norm(x, w.shape, w, 1e-5), lambda x, w: E.rms_norm(x, w, 1e-5)
    yield "layer_norm", (x, w, b), lambda x, w, b: nn.layer_norm(x, w.shape, w, b), E.layer_norm
    yield "softmax", (x,), lambda x: torch.softmax(x, -1), E.softmax
    yield "silu", (x,), nn.silu, E.silu
    yield "swiglu", (x, make(rows, columns)), lambda a, b: nn.silu(a) * b, E.swiglu
    classes, places = (64, 4) if tiny else (4096, 64) if small else (128256, 4096) if device == "cuda" else (32000, 512)
    logits, targets = make(places, classes), torch.randint(0, classes, (places,), device=device)
    yield "cross_entropy", (logits, targets), lambda x, t: nn.cross_entropy(x.float(), t), E.cross_entropy
    n = 64 if tiny else 512 if small else 4096 if device == "cuda" else 1024
    m = 4 if tiny else 64 if small else 2048 if device == "cuda" else 256
    weight = make(n, n, grad=False)
    low = (make(16, n), make(n, 16))
    yield (
        "lora_linear",
        (make(m, n), weight, *low),
        lambda x, w, a, b: nn.linear(x, w) + 2 * nn.linear(nn.linear(x, a), b),
        lambda x, w, a, b: E.lora_linear(x, w, a, b, scale=2.0),
    )


def timed(call, device, least=0.02):
    def once(count):
        if device == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end) * 1e3 / count
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) * 1e6 / count

    return once(max(1, int(least * 1e6 / max(once(2), 1))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], help="by default bfloat16 on a GPU, else float32")
    parser.add_argument("--only")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype or ("bfloat16" if options.device == "cuda" else "float32"))
    print("µs, medians: forward elinvar, inductor, eager, the second / the first; forward and backward the same", torch.__version__, dtype, options, flush=True)
    for name, args, plain, ours in cases(options.device, dtype, options.small, options.tiny):
        if options.only and name not in options.only.split(","):
            continue
        calls = {"elinvar": ours} | ({} if options.tiny else {"inductor": torch.compile(plain)}) | {"eager": plain}
        leaves = [x for x in args if x.requires_grad]
        dy = torch.randn_like(plain(*args))
        line = [f"{name:14}"]
        for is_backward in (False, True):

            def step(call):
                if not is_backward:
                    with torch.no_grad():
                        return call(*args)
                return torch.autograd.grad(call(*args), leaves, dy.to(torch.float32) if name == "cross_entropy" else dy)

            for call in calls.values():
                step(call), step(call)
            times = {which: [] for which in calls}
            for _ in range(options.rounds):
                for which, call in calls.items():
                    times[which].append(timed(lambda: step(call), options.device))
            median = {which: statistics.median(values) for which, values in times.items()}
            line += [f"{median[which]:10.1f}" for which in calls] + [f"{median[list(calls)[1]] / median['elinvar']:6.2f}"]
        print(*line, flush=True)


main()
