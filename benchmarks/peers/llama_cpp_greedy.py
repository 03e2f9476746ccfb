#!/usr/bin/env python3
"""Compares greedy tokens of llama.cpp and of Elinvar on a GGUF file, and explains each first difference by an oracle.

    pip install xllamacpp transformers accelerate torch gguf numpy safetensors
    python llama_cpp_greedy.py --model SmolLM2-135M-Instruct.Q4_1.gguf --elinvar target/release/elinvar --markdown table.md

llama.cpp continues each prompt greedily (temperature 0). Elinvar computes the logits of the same tokens (`elinvar logits`), in strict
precision, with the weights in blocks: up to the first token at which its argmax is another, both have seen the same text. The oracle is transformers in
f64 (norms and rotary angles in f32, as its models have them) over the weights as gguf-py decodes them. "Below the best" is by how much the oracle's logit of
a choice is less than the oracle's greatest.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy as np

PROMPTS = [
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):",
    "The three laws of motion are",
    "Water boils at",
    "To make bread you need",
    "In 1969, the first",
    "Dear Sir or Madam,",
    "The opposite of hot is",
    "import numpy as np\n\ndef mean(x):\n",
    "A prime number is a number that",
    "Die Hauptstadt von Deutschland ist",
    "El sol sale por",
    "List of planets: Mercury, Venus,",
    "2 + 2 = 4\n3 + 3 = 6\n4 + 4 =",
    "The quick brown fox jumps over the lazy dog. The dog",
    "Photosynthesis is the process by which",
    "SELECT name, age FROM users WHERE",
    "Shakespeare wrote many plays, among them",
    "Q: Why is the sky blue?\nA:",
]


def continue_greedily(model, prompts, count, cache, threads, send):
    """llama.cpp's tokens of each prompt, and those it continues it with. In a process of its own: its threads and PyTorch's do not go together."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = 2048
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.port = 0
    params.verbosity = -1
    params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{cache.upper()}")
    server = xllamacpp.Server(params)

    def ask(path, **body):
        request = urllib.request.Request(f"{server.listening_address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens"]

    for prompt in prompts:
        prefix = ask("/tokenize", content=prompt, add_special=True, parse_special=True)
        greedy = dict(temperature=0, top_k=1, samplers=["top_k"], cache_prompt=False, return_tokens=True)
        send.send((prefix, ask("/completion", prompt=prefix, n_predict=count, **greedy)))
    send.close()
    os._exit(0)


class Elinvar:
    def __init__(self, program, model, threads, activations):
        self.command = [program, "logits", "--model", model, "--device", "cpu", "--threads", str(threads), "--precision", "strict"]
        self.command += ["--activations", activations]

    def logits(self, tokens, last, decode_to=None):
        """Those after each of the `last` tokens."""
        from safetensors import safe_open

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "logits.safetensors")
            more = ["--decode-to", decode_to] if decode_to else []
            subprocess.run([*self.command, *more, "--tokens", ",".join(map(str, tokens)), "--output", path], check=True)
            with safe_open(path, "np") as file:
                rows = file.get_slice("logits")
                return rows[len(tokens) - last :].astype(np.float64)


class Oracle:
    def __init__(self, model):
        import torch
        from transformers import AutoModelForCausalLM

        path = pathlib.Path(model)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").double().eval()

    def logits(self, tokens, last):
        with self.torch.no_grad():
            return self.model(self.torch.tensor([tokens]), use_cache=False, logits_to_keep=last).logits[0].double().numpy()


def compare(prompt, prefix, theirs, elinvar, oracle, pieces, decoded):
    tokens, last = prefix + theirs[:-1], len(theirs)
    ours, best = elinvar.logits(tokens, last), oracle.logits(tokens, last)
    chosen, right = ours.argmax(1), best.argmax(1)
    below = lambda row, token: float(best[row].max() - best[row, token])
    result = {
        "prompt": prompt if len(prompt) < 60 else prompt[:40] + " …",
        "prompt_tokens": len(prefix),
        "tokens": last,
        "greatest_logit": float(np.abs(best).max()),
        "error": float(np.abs(ours - best).max()),
        "ours_not_oracle": [[int(i), below(i, chosen[i])] for i in np.flatnonzero(chosen != right)],
        "theirs_not_oracle": [[int(i), below(i, theirs[i])] for i in np.flatnonzero(np.array(theirs) != right)],
        "first": None,
    }
    if decoded:
        result["error_decoded"] = float(np.abs(elinvar.logits(tokens, last, "f32") - best).max())
    differs = np.flatnonzero(chosen != np.array(theirs))
    if len(differs):
        at = int(differs[0])
        result["first"] = {
            "after": at,
            "theirs": pieces[theirs[at]],
            "ours": pieces[int(chosen[at])],
            "theirs_below": below(at, theirs[at]),
            "ours_below": below(at, chosen[at]),
        }
    return result


def markdown(results):
    cell = lambda text: "`" + text.replace("\n", "⏎").replace("|", "¦").replace("`", "'") + "`"
    lines = ["| prompt | tokens | equal | llama.cpp | Elinvar | llama.cpp below the best | Elinvar below the best | greatest error |", "| --- | ---: | ---: | --- | --- | ---: | ---: | ---: |"]
    for r in results:
        first = r["first"]
        error = f"{r['error']:.1e}"
        if first is None:
            lines.append(f"| {cell(r['prompt'])} | {r['prompt_tokens']} + {r['tokens']} | all | | | | | {error} |")
        else:
            values = [cell(first["theirs"]), cell(first["ours"]), f"{first['theirs_below']:.3f}", f"{first['ours_below']:.3f}", error]
            lines.append(f"| {cell(r['prompt'])} | {r['prompt_tokens']} + {r['tokens']} | {first['after']} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--elinvar", required=True)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--activations", default="narrow", help="what Elinvar multiplies weights in blocks by: narrow or wide")
    parser.add_argument("--cache", default="f16", help="type of llama.cpp's KV cache")
    parser.add_argument("--long", metavar="FILE", help="one more prompt: the first 4000 characters of this text")
    parser.add_argument("--decoded", action="store_true", help="also compute with weights decoded to f32")
    parser.add_argument("--only", type=int, metavar="N", help="the first N prompts")
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    args = parser.parse_args()
    prompts = PROMPTS[: args.only]
    if args.long:
        prompts.append(pathlib.Path(args.long).read_text()[:4000])
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=continue_greedily, args=(args.model, prompts, args.tokens, args.cache, args.threads, send))
    child.start()
    send.close()
    continued = [receive.recv() for _ in prompts]
    child.join()
    pieces = [piece.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n") for piece in gguf.GGUFReader(args.model).fields["tokenizer.ggml.tokens"].contents()]
    elinvar, oracle = Elinvar(args.elinvar, args.model, args.threads, args.activations), Oracle(args.model)
    results = []
    for prompt, (prefix, theirs) in zip(prompts, continued):
        results.append(compare(prompt, prefix, theirs, elinvar, oracle, pieces, args.decoded))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    table = markdown(results)
    print(table)
    total = sum(r["tokens"] for r in results)
    wrong = {who: [x for r in results for x in r[f"{who}_not_oracle"]] for who in ("ours", "theirs")}
    print(f"\n{total} tokens; equal to the end: {sum(r['first'] is None for r in results)} of {len(results)} prompts")
    for who, name in (("theirs", "llama.cpp"), ("ours", "Elinvar")):
        gaps = [gap for _, gap in wrong[who]]
        print(f"{name}: {len(gaps)} choices are not the oracle's, at most {max(gaps, default=0):.4f} below its best")
    print(f"greatest error of Elinvar's logits: {max(r['error'] for r in results):.2e}, of up to {max(r['greatest_logit'] for r in results):.1f}")
    if args.decoded:
        print(f"with weights decoded to f32: {max(r['error_decoded'] for r in results):.2e}")
    if args.markdown:
        pathlib.Path(args.markdown).write_text(table + "\n")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
