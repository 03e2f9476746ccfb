#!/usr/bin/env python3
"""Times PyTorch's operators on the CPU; the peer of this project's CPU kernels. Needs only `torch`.

    python torch_cpu.py --threads 2 --json torch_cpu.json
    python torch_cpu.py --threads 2 --compile --only 'softmax|norm'

Every case is verified against float64 before anything is timed. One round visits every case in turn, so that drift of the
machine spreads over all of them; a sample is the mean of enough calls in a row to fill `--sample-ms`, and the table gives
medians over rounds. *Cold* rotates inputs and outputs through more than a gibibyte, so that weights and activations come from
memory; *warm* repeats one set of buffers. Bytes count every input and output once.

PyTorch gets what favours it: outputs go to `out=` where the public function takes it, and freed memory is kept by
the allocator instead of going back to the system (a fresh large allocation costs a page fault every 4 KiB).
`--huge-pages` lets torch ask for 2 MiB pages.
"""

import argparse
import ctypes
import json
import os
import platform
import re
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import Callable

ROTATED_BYTES = 5 << 28  # 1.25 GiB: several times the last-level cache of any CPU at hand
KEPT_BYTES = 1 << 29  # results alive at once when a function makes its own output
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's <malloc.h>


def keep_freed_memory() -> None:
    """Asks glibc to serve large blocks from its heap and never to shrink it; elsewhere the allocator stays as it is."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


@dataclass
class Case:
    """One operator at one size. `call` takes the inputs and an output (None where the function makes its own)."""

    name: str
    dtype: "torch.dtype"
    inputs: list[tuple[int, ...]]
    output: tuple[int, ...] | None
    call: Callable
    oracle: Callable
    flops: int = 0
    roundings: int = 1  # roundings to the output's dtype on the way to an element
    result: tuple[int, ...] = ()
    samples: dict[str, list[float]] = field(default_factory=dict)
    error: float = 0.0

    def bytes(self) -> int:
        shapes = [*self.inputs, self.output or self.result]
        return sum(elements(shape) for shape in shapes) * self.dtype.itemsize


def elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def make_cases(torch, compiled: bool) -> list[Case]:
    """The operators, in the order in which a round visits them."""
    functional = torch.nn.functional
    cases = []

    def add(*fields, **named):
        cases.append(Case(*fields, **named))

    for dtype in (torch.float32, torch.bfloat16):
        n = 1024
        square, flops = (n, n), 2 * n**3
        add(f"matmul A B {n}^3", dtype, [square, square], square,
            lambda a, b, out: torch.mm(a, b, out=out), lambda a, b: a @ b, flops)
        add(f"matmul A B^T {n}^3", dtype, [square, square], square,
            lambda a, b, out: torch.mm(a, b.T, out=out), lambda a, b: a @ b.T, flops)
        n = 4096
        add(f"matvec {n}^2", dtype, [(n, n), (n,)], (n,),
            lambda w, x, out: torch.mv(w, x, out=out), lambda w, x: w @ x, 2 * n * n)
        add(f"linear, one row, {n}^2", dtype, [(n, n), (1, n)], None,
            lambda w, x, _: functional.linear(x, w), lambda w, x: x @ w.T, 2 * n * n, result=(1, n))
        for n in (1024, 4096):
            for name, call, weights, roundings in row_operators(torch, (n,)):
                forms = [("", call), (", compiled", torch.compile(call, dynamic=False))] if compiled else [("", call)]
                for label, form in forms:
                    add(f"{name} [{n}, {n}]{label}", dtype, [(n, n), *[(n,)] * weights], None,
                        lambda *t, form=form: form(*t[:-1]), call, roundings=roundings, result=(n, n))
        n = 1 << 24
        add("add 2^24", dtype, [(n,), (n,)], (n,), lambda a, b, out: torch.add(a, b, out=out), lambda a, b: a + b)
        gate = lambda a, b: functional.silu(a) * b
        forms = [("", gate), (", compiled", torch.compile(gate, dynamic=False))] if compiled else [("", gate)]
        for label, form in forms:
            add(f"silu(a)*b 2^24{label}", dtype, [(n,), (n,)], None,
                lambda a, b, _, form=form: form(a, b), gate, roundings=2, result=(n,))
    return cases


def row_operators(torch, extent: tuple[int]):
    """Row-wise operators over the last dimension: name, function, weight vectors taken, roundings on the way."""
    functional = torch.nn.functional
    return [
        ("softmax", lambda x: torch.softmax(x, -1), 0, 1),
        ("layer_norm", lambda x, w, b: functional.layer_norm(x, extent, w, b, 1e-5), 2, 2),
        ("rms_norm", lambda x, w: functional.rms_norm(x, extent, w, 1e-5), 1, 2),
    ]


class Pool:
    """Normal random numbers of one dtype, shared by all cases: a case's buffers are windows at rotating offsets."""

    def __init__(self, torch, dtype):
        count = ROTATED_BYTES // dtype.itemsize
        self.values = torch.empty(count, dtype=dtype)
        seed = torch.Generator().manual_seed(0)
        for part in self.values.split(1 << 24):
            part.copy_(torch.randn(part.numel(), generator=seed))
        self.scratch = torch.zeros(count, dtype=dtype)

    def sets(self, case: Case) -> list[tuple]:
        """As many sets of buffers for `case` as the pool holds side by side."""
        per_set = sum(elements(shape) for shape in case.inputs)
        out_size = elements(case.output) if case.output else 0
        made = []
        for index in range(self.values.numel() // per_set):
            offset, tensors = index * per_set, []
            for shape in case.inputs:
                tensors.append(self.values[offset:offset + elements(shape)].view(shape))
                offset += elements(shape)
            out = self.scratch[index * out_size:(index + 1) * out_size].view(case.output) if out_size else None
            made.append((tensors, out))
        return made


def verify(torch, case: Case, buffers: tuple) -> None:
    """Compares one call with float64; the bound is the dtype's unit roundoff for each rounding, plus f32 accumulation."""
    tensors, out = buffers
    got = case.call(*tensors, out)
    want = case.oracle(*(tensor.double() for tensor in tensors))
    got = (out if out is not None else got).double()
    unit = torch.finfo(case.dtype).eps / 2
    scale = want.abs().max()
    bound = 1.01 * case.roundings * unit * want.abs() + 4e-6 * scale
    case.error = float(((got - want).abs() / bound).max())
    if not case.error <= 1:  # catches NaN too
        sys.exit(f"{case.name} {case.dtype} differs from float64 by {case.error:.2f} times the bound")


def run_calls(case: Case, sets: list[tuple], kept: list, start: int, calls: int) -> float:
    """Seconds per call over `calls` calls in a row. `kept` holds the last results, so that these rotate too."""
    begin = time.perf_counter()
    for step in range(start, start + calls):
        tensors, out = sets[step % len(sets)]
        slot = step % len(kept)
        kept[slot] = None
        kept[slot] = case.call(*tensors, out)
    return (time.perf_counter() - begin) / calls


class Timer:
    """Runs one case in one mode and remembers where in the rotation it stopped."""

    def __init__(self, case: Case, sets: list[tuple], mode: str, sample_seconds: float):
        self.case, self.sets, self.mode = case, sets, mode
        self.position = 0
        result_bytes = elements(case.output or case.result) * case.dtype.itemsize
        self.slots = min(len(sets), max(1, KEPT_BYTES // result_bytes))
        # Touches once every page that results will reuse; the second pass is the estimate.
        run_calls(case, sets, [None] * self.slots, 0, self.slots)
        self.calls = max(1, round(sample_seconds / run_calls(case, sets, [None] * self.slots, 0, 3)))

    def sample(self) -> None:
        kept = [None] * self.slots
        # One untimed call wakes the thread pool; the timed ones go on with the next buffers.
        run_calls(self.case, self.sets, kept, self.position, 1)
        seconds = run_calls(self.case, self.sets, kept, self.position + 1, self.calls)
        self.position += 1 + self.calls
        self.case.samples.setdefault(self.mode, []).append(seconds)


def report_rows(cases: list[Case], modes: list[str]) -> list[dict]:
    rows = []
    for case in cases:
        for mode in modes:
            samples = sorted(case.samples[mode])
            median = statistics.median(samples)
            row = {
                "case": case.name, "dtype": str(case.dtype).removeprefix("torch."), "mode": mode,
                "median_us": median * 1e6, "min_us": samples[0] * 1e6, "max_us": samples[-1] * 1e6,
                "gb_per_s": case.bytes() / median / 1e9, "error_over_bound": case.error,
                "samples_us": [seconds * 1e6 for seconds in case.samples[mode]],
            }
            if case.flops:
                row["gflop_per_s"] = case.flops / median / 1e9
            rows.append(row)
    return rows


def table(rows: list[dict]) -> str:
    lines = ["| case | dtype | mode | median µs | min µs | GB/s | GFLOP/s |", "| --- | --- | --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        flops = f"{row['gflop_per_s']:.0f}" if "gflop_per_s" in row else ""
        lines.append(f"| {row['case']} | {row['dtype']} | {row['mode']} | {row['median_us']:.1f} | {row['min_us']:.1f} "
                     f"| {row['gb_per_s']:.1f} | {flops} |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sample-ms", type=float, default=40, help="time that one sample fills")
    parser.add_argument("--mode", choices=("cold", "warm", "both"), default="both")
    parser.add_argument("--only", default="", help="regular expression: the cases to run")
    parser.add_argument("--compile", action="store_true", help="also time torch.compile's softmax, norms and silu(a)*b")
    parser.add_argument("--huge-pages", action="store_true", help="let torch ask for 2 MiB pages")
    parser.add_argument("--json", metavar="PATH", help="also write every sample to this file")
    options = parser.parse_args()
    if options.threads < 1 or options.rounds < 1 or options.sample_ms <= 0:
        parser.error("--threads, --rounds and --sample-ms must be positive")
    return options


def main() -> None:
    options = arguments()
    # Both libraries read their settings when torch loads.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    if options.huge_pages:
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    keep_freed_memory()
    import torch

    torch.set_num_threads(options.threads)
    wanted = [case for case in make_cases(torch, options.compile) if re.search(options.only, case.name)]
    if not wanted:
        sys.exit(f"no case matches {options.only!r}")
    modes = ["cold", "warm"] if options.mode == "both" else [options.mode]
    pools = {dtype: Pool(torch, dtype) for dtype in {case.dtype for case in wanted}}
    timers = []
    with torch.inference_mode():
        for case in wanted:
            sets = pools[case.dtype].sets(case)
            for buffers in (sets[0], sets[-1]):
                verify(torch, case, buffers)
            for mode in modes:
                timers.append(Timer(case, sets if mode == "cold" else sets[:1], mode, options.sample_ms / 1e3))
        for _ in range(options.rounds):
            for timer in timers:
                timer.sample()
    rows = report_rows(wanted, modes)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, "
          f"{options.rounds} rounds")
    print(table(rows))
    if options.json:
        about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": options.rounds,
                 "huge_pages": options.huge_pages, "cpu_capability": torch.backends.cpu.get_cpu_capability()}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**about, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
