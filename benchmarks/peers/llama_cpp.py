#!/usr/bin/env python3
"""Measures llama.cpp on the CPU: prompt processing (pp) and text generation (tg), in tokens per second.

    python llama_cpp.py --bench BUILD/bin/llama-bench --model model.gguf --threads 2
    python llama_cpp.py --bench BUILD/bin/llama-bench --make llama-1b.gguf --shape llama-1b --type BF16
    python llama_cpp.py ... --against 'elinvar bench decode --shape llama-1b --json'

`--make` first writes a GGUF with random weights of a known shape, good for speed alone; it needs the `numpy` and `gguf`
packages. Timing needs neither. It has no vocabulary, or with `--vocabulary` that of another GGUF, which a server needs.

One round is one fresh llama-bench process that times each test once, after its own untimed warm-up; the table gives medians over rounds.
`--against` runs another program after each round, so that drift of the machine hits both sides alike. That program prints to
stdout one JSON list of objects with `test` (the same names: pp128, tg32, ...) and `tokens_per_second`.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from typing import NamedTuple


class Shape(NamedTuple):
    """The sizes of a Llama model; `tied` means that the output projection is the embedding."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool


SHAPES = {
    "llama-1b": Shape(16, 2048, 8192, 32, 8, 128_256, True),
    "llama-8b": Shape(32, 4096, 14_336, 32, 8, 128_256, False),
    "tiny": Shape(2, 256, 512, 8, 4, 1024, True),
}
TYPES = ("BF16", "F16", "F32", "Q8_0", "Q4_0")
ROWS_AT_ONCE = 4096  # bounds the f32 copy that a matrix needs before it is quantised


def write_model(path: str, name: str, type_name: str, vocabulary: str | None) -> None:
    """Writes a GGUF of shape `name`: normal weights of deviation 0.02 stored as `type_name`, norms of one, the vocabulary that the file `vocabulary` has."""
    import gguf
    import numpy as np

    shape = SHAPES[name]
    tokenizer = []
    if vocabulary:
        tokenizer = [field for field in gguf.GGUFReader(vocabulary).fields.values() if field.name.startswith("tokenizer.")]
        tokens = next(field for field in tokenizer if field.name == "tokenizer.ggml.tokens")
        shape = shape._replace(vocab=len(tokens.data))
    head_dim = shape.hidden // shape.heads
    kv_dim = shape.kv_heads * head_dim
    stored = getattr(gguf.GGMLQuantizationType, type_name)
    file_type = {"F32": "ALL_F32"}.get(type_name, f"MOSTLY_{type_name}")
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    writer.add_name(f"random {name}")
    writer.add_file_type(getattr(gguf.LlamaFileType, file_type))
    writer.add_context_length(4096)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(500_000.0)
    writer.add_vocab_size(shape.vocab)
    if not tokenizer:
        writer.add_tokenizer_model("no_vocab")
    for field in tokenizer:
        writer.add_key_value(field.name, field.contents(), field.types[0], field.types[-1])

    def matrix(tensor: str, rows: int, columns: int) -> None:
        parts = []
        for start in range(0, rows, ROWS_AT_ONCE):
            size = (min(ROWS_AT_ONCE, rows - start), columns)
            weights = random.standard_normal(size, dtype=np.float32) * np.float32(0.02)
            parts.append(gguf.quants.quantize(weights, stored))
        writer.add_tensor(tensor, np.concatenate(parts), raw_dtype=stored)

    def norm(tensor: str) -> None:
        writer.add_tensor(tensor, np.ones(shape.hidden, np.float32))

    matrix("token_embd.weight", shape.vocab, shape.hidden)
    norm("output_norm.weight")
    if not shape.tied:
        matrix("output.weight", shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        norm(block + "ffn_norm.weight")
        matrix(block + "attn_q.weight", shape.hidden, shape.hidden)
        matrix(block + "attn_k.weight", kv_dim, shape.hidden)
        matrix(block + "attn_v.weight", kv_dim, shape.hidden)
        matrix(block + "attn_output.weight", shape.hidden, shape.hidden)
        matrix(block + "ffn_gate.weight", shape.intermediate, shape.hidden)
        matrix(block + "ffn_up.weight", shape.intermediate, shape.hidden)
        matrix(block + "ffn_down.weight", shape.hidden, shape.intermediate)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def output_of(command: list[str]) -> str:
    """Standard output of `command`; a failure ends the program with the command and its last line of errors."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        sys.exit(f"cannot run {command[0]}: {error.strerror}")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(f"{shlex.join(command)} failed with status {done.returncode}: {last}")
    return done.stdout


def llama_round(options: argparse.Namespace) -> tuple[dict[str, float], dict]:
    """One llama-bench process: tokens per second by test, and what llama-bench says of itself."""
    command = [options.bench, "-m", options.model, "-t", str(options.threads), "-r", "1", "-o", "json"]
    command += ["-p", options.prompt, "-n", options.generate, "-d", str(options.depth), *shlex.split(options.extra)]
    rows = json.loads(output_of(command))
    speeds = {}
    for row in rows:
        test = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        speeds[test] = row["avg_ts"]
    return speeds, rows[0]


def other_round(command: str) -> dict[str, float]:
    """One run of the program under comparison."""
    text = output_of(shlex.split(command))
    try:
        return {row["test"]: float(row["tokens_per_second"]) for row in json.loads(text)}
    except (ValueError, KeyError, TypeError):
        sys.exit(f"`{command}` must print a JSON list of objects with `test` and `tokens_per_second`")


def collect(into: dict[str, list[float]], speeds: dict[str, float]) -> None:
    for test, speed in speeds.items():
        into.setdefault(test, []).append(speed)


def summary(samples: list[float]) -> dict:
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "samples": samples}


def table(report: dict) -> str:
    lines = ["| test | side | median tok/s | min | max | rounds |", "| --- | --- | --- | --- | --- | --- |"]
    for side in ("llama.cpp", "other"):
        for test, row in report.get(side, {}).items():
            cells = f"{row['median']:.2f} | {row['min']:.2f} | {row['max']:.2f} | {len(row['samples'])}"
            lines.append(f"| {test} | {side} | {cells} |")
    for test, row in report.get("other", {}).items():
        if test in report["llama.cpp"]:
            ratio = row["median"] / report["llama.cpp"][test]["median"]
            lines.append(f"| {test} | other / llama.cpp | {ratio:.3f} | | | |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", help="path of llama-bench; without it nothing is timed")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="GGUF file to time")
    source.add_argument("--make", metavar="PATH", help="GGUF file with random weights to write first")
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b", help="shape for --make")
    parser.add_argument("--type", choices=TYPES, default="BF16", help="weight type for --make")
    parser.add_argument("--vocabulary", metavar="GGUF", help="file whose tokenizer --make copies [default: none]")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", default="128,512", help="prompt lengths, comma separated; 0 for none")
    parser.add_argument("--generate", default="32,64", help="generated lengths, comma separated; 0 for none")
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache before a test starts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--extra", default="", help="further llama-bench options, as one string")
    parser.add_argument("--against", metavar="COMMAND", help="program to run after each round")
    parser.add_argument("--json", metavar="PATH", help="also write every sample to this file")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.make:
        write_model(options.make, options.shape, options.type, options.vocabulary)
        options.model = options.make
    if not options.bench:
        return
    if options.rounds < 1:
        sys.exit("--rounds must be at least 1")
    ours: dict[str, list[float]] = {}
    other: dict[str, list[float]] = {}
    about: dict = {}
    for _ in range(options.rounds):
        speeds, about = llama_round(options)
        collect(ours, speeds)
        if options.against:
            collect(other, other_round(options.against))
    report = {
        "model": os.path.basename(options.model),
        "model_bytes": about["model_size"],
        "parameters": about["model_n_params"],
        "cpu": about["cpu_info"],
        "threads": about["n_threads"],
        "depth": options.depth,
        "extra": options.extra,
        "llama.cpp": {test: summary(samples) for test, samples in ours.items()},
    }
    if options.against:
        report["other"] = {test: summary(samples) for test, samples in other.items()}
    print(f"{report['model']}: {report['model_bytes'] / 1e9:.2f} GB, {report['cpu']}, {report['threads']} threads")
    print(table(report))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
