#!/usr/bin/env python3
"""Times PyTorch on a CUDA device at the work that `elinvar bench ops --json` reports; needs `torch`, and `matplotlib` for `--plot`.

    python torch_cuda.py --against 'elinvar bench ops --device cuda --json' --rounds 3 --json ops.json --markdown ops.md --plot ops.png

A round runs the other program once and then PyTorch at the same work: the same shapes and types, random data, as many sets of inputs in turn (of more than
a gibibyte where memory is the limit, or one with `bench ops --warm`), as many calls in one CUDA graph as the other program replays at once, so that launches cost neither side anything, and
replays for as long as the other program's: a GPU that has been busy for a while runs slower. PyTorch runs each case as written (eager) and, where that is
more than one kernel or not the vendor's, through torch.compile; the better one counts. Every case is compared with float32 or float64 before it is timed.
The table gives medians over rounds.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import time
from itertools import cycle, islice

CHAIN = "clamp(silu(a)*b+a,-1,1)"
COMPILED = {"softmax", "rms_norm", "layer_norm", "lora_linear", CHAIN}


def functions(torch):
    """What PyTorch does for each operator: a function of the inputs and the attributes."""
    functional = torch.nn.functional

    def attention(q, k, v, causal, precision):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal == "true", enable_gqa=True)

    return {
        "add": lambda a, b: a + b,
        "mul": lambda a, b: a * b,
        "relu": lambda x: torch.relu(x),
        "softmax": lambda x: torch.softmax(x, -1),
        "rms_norm": lambda x, w: functional.rms_norm(x, x.shape[-1:], w, 1e-5),
        "layer_norm": lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        "matmul": lambda x, w, transpose_b, precision: functional.linear(x, w),
        "lora_linear": lambda x, w, a, b, precision: functional.linear(x, w) + functional.linear(functional.linear(x, a), b),
        "attention": attention,
        CHAIN: lambda a, b: torch.clamp(functional.silu(a) * b + a, -1, 1),
    }


class Case:
    """One operator at one size, on inputs that rotate."""

    def __init__(self, torch, row):
        work = row["work"]
        self.torch, self.name, self.calls = torch, row["name"], row["calls"]
        dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
        shapes = [(dtypes[dtype], tuple(shape)) for dtype, shape in work["inputs"]]
        self.sets = [[torch.rand(shape, device="cuda").mul_(2).sub_(1).to(dtype) for dtype, shape in shapes] for _ in range(row["sets"])]
        function, attributes = functions(torch)[work["operator"]], work["attributes"]
        self.eager = lambda *inputs: function(*inputs, **attributes)
        self.causal = attributes.get("causal") == "true"
        self.samples = {}

    def verify(self):
        """The largest error relative to the largest value, against the same function in double precision (single, where double does not fit)."""
        inputs = self.sets[0]
        if self.causal:  # the first queries see the first keys alone, and all scores at once would not fit in memory
            inputs = [x[:, :, :1024] for x in inputs]
        wide = self.torch.float64 if sum(x.numel() for x in inputs) < 1 << 27 else self.torch.float32
        got, want = self.eager(*inputs), self.eager(*[x.to(wide) for x in inputs])
        scale = want.abs().max().item()
        error = ((got.to(wide) - want).abs().max().item()) / scale
        bound = 0.03 if got.dtype != self.torch.float32 else 1e-4
        if not error <= bound:  # catches NaN too
            sys.exit(f"{self.name}: PyTorch is off by {error:.1e} of the largest value")

    def graph(self, function):
        """All calls in one CUDA graph."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for inputs in self.sets[:2]:
                function(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for inputs in islice(cycle(self.sets), self.calls):
                function(*inputs)
        return graph

    def time(self, form, function, seconds):
        torch = self.torch
        graph = self.graph(function)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        graph.replay()
        torch.cuda.synchronize()
        start, taken = time.monotonic(), []
        while len(taken) < 5 or time.monotonic() - start < seconds:
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end) / 1e3 / self.calls)
        self.samples.setdefault(form, []).append(statistics.median(taken))
        del graph

    def run(self, seconds, compiled):
        with self.torch.inference_mode():
            self.time("eager", self.eager, seconds)
            if compiled:
                self.time("compiled", compiled, seconds)


def peers(torch, rows, seconds, compiling):
    """Seconds of each row in each form, in this round."""
    result = {}
    for row in rows:
        torch._dynamo.reset()
        case = Case(torch, row)
        with torch.inference_mode():
            case.verify()
        compiled = compiling and row["work"]["operator"] in COMPILED
        case.run(seconds, torch.compile(case.eager, dynamic=False) if compiled else None)
        result[row["name"]] = {form: taken[0] for form, taken in case.samples.items()}
        del case
        torch.cuda.empty_cache()
    return result


def ours(command):
    """The other program's report."""
    done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{command!r} ended with {done.returncode}")
    return json.loads(done.stdout)


def merge(reports, rounds):
    """One row for each operator: medians over rounds, the better of PyTorch's forms."""
    merged = []
    for index, row in enumerate(reports[0]["rows"]):
        mine = statistics.median(report["rows"][index]["seconds"] for report in reports)
        forms = {form: statistics.median(r[row["name"]][form] for r in rounds) for form in rounds[0][row["name"]]}
        best = min(forms, key=forms.get)
        merged.append({
            "name": row["name"], "seconds": mine, "peer_seconds": forms[best], "peer": best, "forms": forms, "ratio": forms[best] / mine,
            "bytes": row["bytes"], "operations": row["operations"],
            "fraction_of_limit": statistics.median(report["rows"][index]["fraction_of_limit"] for report in reports),
        })
    return merged


def markdown(rows):
    lines = ["| operator | Elinvar µs | PyTorch µs | form | ratio | of the limit |", "| --- | ---: | ---: | --- | ---: | ---: |"]
    for row in rows:
        lines.append(f"| `{row['name']}` | {row['seconds'] * 1e6:.2f} | {row['peer_seconds'] * 1e6:.2f} | {row['peer']} | {row['ratio']:.2f} "
                     f"| {row['fraction_of_limit'] * 100:.0f} % |")
    return "\n".join(lines) + "\n"


def plot(rows, title, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 0.24 * len(rows) + 1.4))
    ratios = [row["ratio"] for row in rows]
    axes.barh(range(len(rows)), ratios, color=["#2a7f62" if ratio >= 1 else "#c0653a" for ratio in ratios])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=7)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["¼", "½", "1", "2", "4", "8"])
    axes.set_xlabel("times as fast as the better of PyTorch eager and torch.compile")
    axes.set_title(title, fontsize=9)
    for index, ratio in enumerate(ratios):
        axes.text(max(ratio, 1) * 1.03, index, f"{ratio:.2f}", va="center", fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=140)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMAND", help="prints the report whose work is done here too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="replays for each figure of a round: as long as the other program's --seconds")
    parser.add_argument("--no-compile", action="store_true", help="time eager PyTorch alone")
    parser.add_argument("--json", metavar="PATH")
    parser.add_argument("--markdown", metavar="PATH")
    parser.add_argument("--plot", metavar="PATH")
    return parser.parse_args()


def main():
    options = arguments()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    reports, rounds = [], []
    for _ in range(options.rounds):
        reports.append(ours(options.against))
        rounds.append(peers(torch, reports[0]["rows"], options.seconds, not options.no_compile))
    rows = merge(reports, rounds)
    about = f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, medians of {options.rounds} rounds"
    print(about)
    print(json.dumps(reports[0]["ceilings"]))
    print(markdown(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"about": about, "ceilings": [report["ceilings"] for report in reports], "rows": rows}, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(markdown(rows))
    if options.plot:
        plot(rows, about, options.plot)


if __name__ == "__main__":
    main()
