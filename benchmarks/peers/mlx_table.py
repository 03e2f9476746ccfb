#!/usr/bin/env python3
"""Times MLX at the work of `elinvar bench table`: the same operators, f32, verified against float64. Needs `mlx` and `numpy`.

    python mlx_table.py
    python mlx_table.py --against 'elinvar bench table --device metal --json' --rounds 3 --json table.json

MLX evaluates lazily, so a call alone costs nothing until its result is asked for. Here it is asked for: *alone* is one operator and
one `mx.eval`, *of 100* the share of one `mx.eval` of a hundred that depend on nothing.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time

REPEATS = 100
EPSILON = 1e-5


def rows(np):
    """Name, inputs, the call on MLX's arrays, and the same in float64."""
    random = np.random.default_rng(0)

    def uniform(*shape):
        return random.uniform(-1, 1, shape).astype(np.float32)

    n = 10_000
    pair = [uniform(n), uniform(n)]
    yield "add [10000]", pair, lambda mx, a, b: a + b, lambda a, b: a + b
    yield "mul [10000]", pair, lambda mx, a, b: a * b, lambda a, b: a * b
    yield "relu [10000]", pair[:1], lambda mx, a: mx.maximum(a, 0), lambda a: np.maximum(a, 0)
    yield "matmul 256³", [uniform(256, 256), uniform(256, 256)], lambda mx, a, b: a @ b, lambda a, b: a @ b
    for d in (512, 1024, 2048):
        inputs = [uniform(1, d), uniform(d, d), uniform(8, d), uniform(d, 8)]
        yield (f"LoRA linear, one row, {d}, rank 8", inputs, lambda mx, x, w, a, b: x @ w.T + (x @ a.T) @ b.T,
               lambda x, w, a, b: x @ w.T + (x @ a.T) @ b.T)
    x, weight, bias = uniform(64, 1024), uniform(1024), uniform(1024)
    yield "softmax [64, 1024]", [x], lambda mx, x: mx.softmax(x, axis=-1), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    yield ("layer_norm [64, 1024]", [x, weight, bias], lambda mx, x, w, b: mx.fast.layer_norm(x, w, b, EPSILON),
           lambda x, w, b: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPSILON) * w + b)
    yield ("rms_norm [64, 1024]", [x, weight], lambda mx, x, w: mx.fast.rms_norm(x, w, EPSILON),
           lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w)


def measure(mx, np, name, inputs, call, exact, seconds):
    """Verifies, then gives microseconds alone and of a hundred: medians."""
    arrays = [mx.array(each) for each in inputs]
    mx.eval(arrays)
    found = np.array(call(mx, *arrays), dtype=np.float64)
    expected = exact(*(each.astype(np.float64) for each in inputs))
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    if not error < 5e-3:  # catches NaN too; MLX may round the factors of products
        sys.exit(f"{name}: MLX's result differs from float64 by {error:.1e}")

    def median(count):
        samples, start = [], time.perf_counter()
        mx.eval([call(mx, *arrays) for _ in range(count)])
        while len(samples) < 5 or time.perf_counter() - start < seconds / 2:
            before = time.perf_counter()
            mx.eval([call(mx, *arrays) for _ in range(count)])
            samples.append((time.perf_counter() - before) / count)
        return 1e6 * statistics.median(samples)

    return median(1), median(REPEATS)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="spent on each row")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--against", metavar="COMMAND", help="run after each round; prints the JSON of `elinvar bench table --json`")
    parser.add_argument("--json", metavar="PATH", help="also write every round to this file")
    options = parser.parse_args()
    try:
        import mlx.core as mx
        import numpy as np
    except ImportError as missing:
        sys.exit(f"{missing}: pip install mlx numpy")
    cases, rounds = list(rows(np)), []
    for _ in range(options.rounds):
        peer = {case[0]: measure(mx, np, *case, options.seconds) for case in cases}
        ours = {}
        if options.against:
            table = json.loads(subprocess.run(shlex.split(options.against), check=True, capture_output=True, text=True).stdout)
            # Of a CPU there are no columns of a device.
            of = "cpu_" if "alone_us" not in table["rows"][0] else ""
            ours = {row["name"]: (row[f"{of}alone_us"], row[f"{of}of_100_us"]) for row in table["rows"]}
        rounds.append({"mlx": peer, "ours": ours})

    def median(side, name, which):
        return statistics.median(each[side][name][which] for each in rounds)

    print(f"MLX on {mx.default_device()}, medians of {options.rounds} rounds, µs")
    print("| work | MLX alone | MLX of 100 | ours alone | ours of 100 |\n| --- | ---: | ---: | ---: | ---: |")
    for name, *_ in cases:
        ours = [f"{median('ours', name, which):.2f}" if options.against else "" for which in (0, 1)]
        print(f"| {name} | {median('mlx', name, 0):.2f} | {median('mlx', name, 1):.2f} | {ours[0]} | {ours[1]} |")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rounds, file, indent=1)


if __name__ == "__main__":
    main()
