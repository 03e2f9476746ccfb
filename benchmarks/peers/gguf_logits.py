#!/usr/bin/env python3
"""Compares the logits of a GGUF file with an oracle: transformers in f64 over the decoded weights, as in llama_cpp_greedy.py.

    pip install transformers accelerate torch gguf numpy safetensors
    python gguf_logits.py --model SmolLM2-135M-Instruct.Q4_1.gguf --elinvar target/release/elinvar
"""

import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = [
    "The capital of France is Paris. It is a city of about two million people, and the centre of a region of twelve million.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "Die Hauptstadt von Deutschland ist Berlin. Once upon a time there was a small village by the sea.",
    "2 + 2 = 4\n3 + 3 = 6\n4 + 4 = 8\n",
    "A prime number is a number that has no divisors but one and itself: 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47.",
    "El sol sale por el este y se pone por el oeste. SELECT name, age FROM users WHERE age > 18 ORDER BY name;",
    "Q: Why is the sky blue?\nA: Because air scatters blue light more than red light, so that blue comes to us from everywhere.",
    "import numpy as np\n\ndef mean(x):\n    return np.sum(x) / len(x)\n\nprint(mean([1, 2, 3]))\n",
]
WAYS = {"narrow": [], "wide": ["--activations", "wide"], "decoded to f32": ["--decode-to", "f32"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--elinvar", required=True)
    parser.add_argument("--long", metavar="FILE", help="one more text: the first 4000 characters of this file")
    args = parser.parse_args()
    path = pathlib.Path(args.model)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").double().eval()
    worst, others, count, greatest = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0), 0, 0.0
    for text in TEXTS + ([pathlib.Path(args.long).read_text()[:4000]] if args.long else []):
        tokens = tokenizer(text).input_ids
        with torch.no_grad():
            expected = model(torch.tensor([tokens]), use_cache=False).logits[0].double().numpy()
        count, greatest = count + len(tokens), max(greatest, np.abs(expected).max())
        for way, options in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                command = [args.elinvar, "logits", "--model", args.model, "--device", "cpu", "--precision", "strict", *options]
                subprocess.run([*command, "--tokens", ",".join(map(str, tokens)), "--output", f"{folder}/logits"], check=True)
                found = load_file(f"{folder}/logits")["logits"].astype(np.float64)
            worst[way] = max(worst[way], np.abs(found - expected).max())
            others[way] += int((found.argmax(1) != expected.argmax(1)).sum())
            print(f"{len(tokens)} tokens, {way}: {np.abs(found - expected).max():.1e}", flush=True)
    print(f"{count} tokens, logits up to {greatest:.1f}")
    for way in WAYS:
        print(f"{way}: at most {worst[way]:.1e} off, {others[way]} choices are not the oracle's")


if __name__ == "__main__":
    main()
