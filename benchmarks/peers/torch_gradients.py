#!/usr/bin/env python3
"""Times PyTorch at the forward and backward passes of `crates/elinvar/examples/gradient_speed.rs`, and compares: needs `torch` and a CUDA device.

    python torch_gradients.py --against './gradient_speed cuda' --rounds 3

A round runs the other program, then PyTorch at the same work: eager, and through torch.compile where it fuses something; the better one counts.
Attention's backward pass is that of scaled_dot_product_attention, its graph kept; the other passes are timed with their forward passes.
Work is captured in a CUDA graph where PyTorch can. The table has medians over rounds.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import time

import torch

functional = torch.nn.functional


def median_us(work, seconds=0.5):
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    start, taken = time.monotonic(), []
    while len(taken) < 10 or time.monotonic() - start < seconds:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(taken)


def attention(tokens):
    q, k, v, dy = (torch.randn(1, heads, tokens, 128, device="cuda", dtype=torch.bfloat16) for heads in (32, 8, 8, 32))
    leaves = [t.requires_grad_() for t in (q, k, v)]
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return {"eager": lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)}


def rows(name, dtype):
    x, dy = (torch.randn(16384, 8192, device="cuda", dtype=dtype) for _ in range(2))
    w, b = (torch.randn(8192, device="cuda", dtype=dtype) for _ in range(2))
    functions = {
        "softmax": ((x,), lambda x: torch.softmax(x, -1)),
        "rms_norm": ((x, w), lambda x, w: functional.rms_norm(x, (8192,), w, 1e-5)),
        "layer_norm": ((x, w, b), lambda x, w, b: functional.layer_norm(x, (8192,), w, b, 1e-5)),
    }
    leaves, function = functions[name]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    compiled = torch.compile(function)
    return {form: lambda f=f: torch.autograd.grad(f(*leaves), leaves, dy) for form, f in (("eager", function), ("compiled", compiled))}


def linear_cross_entropy(frozen):
    x = (torch.randn(4096, 2048, device="cuda") * 0.02).bfloat16().requires_grad_()
    w = (torch.randn(128256, 2048, device="cuda") * 0.02).bfloat16().requires_grad_(not frozen)
    targets = torch.arange(4096, device="cuda") * 7919 % 128256
    leaves = [x] if frozen else [x, w]
    function = lambda x, w: functional.cross_entropy(functional.linear(x, w).float(), targets)
    compiled = torch.compile(function)
    return {form: lambda f=f: torch.autograd.grad(f(x, w), leaves) for form, f in (("eager", function), ("compiled", compiled))}


CASES = {f"attention backward {n}": lambda n=n: attention(n) for n in (4096, 16384)}
for short, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
    for name in ("softmax", "rms_norm", "layer_norm"):
        CASES[f"{name} {short} forward and backward"] = lambda name=name, dtype=dtype: rows(name, dtype)
CASES["linear and cross-entropy, frozen weight"] = lambda: linear_cross_entropy(True)
CASES["linear and cross-entropy"] = lambda: linear_cross_entropy(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ours, theirs, above = {}, {}, {}
    for _ in range(args.rounds):
        process = subprocess.run(shlex.split(args.against), capture_output=True, text=True)
        for line in process.stdout.splitlines():
            row = json.loads(line)
            ours.setdefault(row["name"], []).append(row["us"])
            above[row["name"]] = row["bytes_above_inputs"]
        if process.returncode:
            print(f"{args.against}: {process.stderr.strip()}")
        for name, case in CASES.items():
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            forms = case()
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            for form, work in forms.items():
                theirs.setdefault(name, {}).setdefault(form, []).append(median_us(work))
            theirs[name]["bytes"] = [torch.cuda.max_memory_allocated() - before]
            del forms
    print("| | Elinvar, µs | PyTorch, µs | PyTorch ÷ Elinvar | above inputs, GiB: Elinvar, PyTorch |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in CASES:
        forms = {form: statistics.median(taken) for form, taken in theirs[name].items() if form != "bytes"}
        best = min(forms, key=forms.get)
        mine = statistics.median(ours[name]) if name in ours else float("nan")
        memory = f"{above.get(name, 0) / 2**30:.2f}, {theirs[name]['bytes'][0] / 2**30:.2f}"
        others = ", ".join(f"{form} {taken:.0f}" for form, taken in forms.items() if form != best)
        print(f"| {name} | {mine:.0f} | {forms[best]:.0f} ({best}{'; ' + others if others else ''}) | {forms[best] / mine:.2f} | {memory} |")


if __name__ == "__main__":
    main()
