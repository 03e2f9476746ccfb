"""Decoding of a random Llama of the 1b shape in PyTorch: patched, eager, with what transformers compiles, and with a loop of one compiled step; tokens per second.

    python torch_decode.py [--tokens 128] [--layers 16] [--device cuda]
"""

import argparse
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

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
    original = type(model).generate

    def patched(n):
        return model.generate(ids, max_new_tokens=n, do_sample=False)

    def eager(n):
        return original(model, ids, max_new_tokens=n, min_new_tokens=n, **plain)

    def compiled(n):
        # transformers compiles its step for a static cache by itself, with CUDA graphs.
        return original(model, ids, max_new_tokens=n, min_new_tokens=n, cache_implementation="static", **plain)

    cache = StaticCache(config=config, max_cache_len=options.prompt + options.tokens)
    cache.early_initialization(1, config.num_key_value_heads, config.head_dim, torch.bfloat16, torch.device(options.device))

    def step(token, positions):
        logits = model(token, past_key_values=cache, cache_position=positions, position_ids=positions[None], use_cache=True).logits
        return logits[:, -1:].argmax(-1)

    compiled_step = torch.compile(step, mode="reduce-overhead", fullgraph=True)

    @torch.no_grad()
    def looped(n):
        cache.reset()
        found = [ids, step(ids, torch.arange(options.prompt, device=options.device))]
        for position in range(options.prompt, options.prompt + n - 1):
            torch.compiler.cudagraph_mark_step_begin()
            found.append(compiled_step(found[-1], torch.full((1,), position, device=options.device)).clone())
        return torch.cat(found, -1)

    ways = {
        "elinvar.torch.patch": patched,
        "transformers, eager": eager,
        "transformers, torch.compile": compiled,
        "a compiled step in a loop": looped,
    }
    if options.without_compile:
        del ways["transformers, torch.compile"], ways["a compiled step in a loop"]
    texts = {}
    for name, call in ways.items():
        if call is patched:
            print("replaced", elinvar.torch.patch(model), flush=True)
        call(options.tokens)
        call(1)
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
