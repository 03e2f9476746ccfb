"""Decoding of a random Llama of the 1b shape in PyTorch: patched, eager, and with torch.compile; tokens per second.

    python torch_decode.py [--tokens 128] [--layers 16] [--device cuda]
"""

import argparse
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import elinvar.torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    sizes = dict(hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8, head_dim=64, vocab_size=128256)
    config = LlamaConfig(num_hidden_layers=options.layers, max_position_embeddings=2048, tie_word_embeddings=True, **sizes)
    with torch.device(options.device):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    ids = torch.randint(0, 1000, (1, options.prompt), device=options.device)

    def seconds(call, tokens):
        if options.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        text = call(tokens)
        if options.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start, text

    plain = dict(do_sample=False, pad_token_id=0)
    original, forward = type(model).generate, model.forward

    def patched(n):
        return model.generate(ids, max_new_tokens=n, do_sample=False)

    def eager(n):
        return original(model, ids, max_new_tokens=n, min_new_tokens=n, **plain)

    def compiled(n):
        # transformers compiles its step for a static cache by itself; this is the same with CUDA graphs asked for.
        model.forward = torch.compile(forward, mode="reduce-overhead", fullgraph=True) if model.forward == forward else model.forward
        return original(model, ids, max_new_tokens=n, min_new_tokens=n, cache_implementation="static", **plain)

    ways = {"elinvar.torch.patch": patched, "transformers, eager": eager, "transformers, torch.compile": compiled}
    if options.without_compile:
        del ways["transformers, torch.compile"]
    texts = {}
    for name, call in ways.items():
        if call is patched:
            print("replaced", elinvar.torch.patch(model), flush=True)
        call(options.tokens)
        rates = []
        for _ in range(options.rounds):
            whole, texts[name] = seconds(call, options.tokens)
            first, _ = seconds(call, 1)
            rates.append((options.tokens - 1) / (whole - first))
        if call is patched:
            elinvar.torch.unpatch(model)
        same = (texts[name] == texts["elinvar.torch.patch"]).float().mean().item()
        shown = f"{statistics.median(rates):9.1f} tok/s ({min(rates):.1f} to {max(rates):.1f})"
        print(f"{name:30} {shown}, tokens as elinvar's: {same:.2f}", flush=True)


main()
