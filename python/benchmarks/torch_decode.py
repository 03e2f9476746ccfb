"""Decoding of a random Llama of the 1b shape in PyTorch: transformers with torch.compile, eager, and patched; tokens per second, in turns.

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

    def timed(call):
        if options.device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        text = call(options.tokens)
        if options.device == "cuda":
            torch.cuda.synchronize()
        whole = time.perf_counter() - start
        start = time.perf_counter()
        call(1)
        if options.device == "cuda":
            torch.cuda.synchronize()
        assert text.shape[1] == options.prompt + options.tokens
        return (options.tokens - 1) / (whole - (time.perf_counter() - start)), text

    plain = dict(do_sample=False, pad_token_id=0)
    ways = {"transformers, eager": lambda n: type(model).generate(model, ids, max_new_tokens=n, min_new_tokens=n, **plain)}
    if not options.without_compile:
        forward = model.forward
        compiled = torch.compile(forward, mode="reduce-overhead", fullgraph=True)

        def with_compile(n):
            model.forward = compiled
            try:
                # The cache has room for all tokens, so that each call has the same graph.
                return type(model).generate(model, ids, max_new_tokens=n, min_new_tokens=n, cache_implementation="static", **plain)
            finally:
                del model.forward

        ways["transformers, torch.compile"] = with_compile
    decoder = elinvar.torch.Decoder(model, 512)

    def patched(n):
        elinvar.torch.patch(model)
        model.__dict__["_elinvar_decoder"] = decoder
        try:
            return model.generate(ids, max_new_tokens=n, do_sample=False)
        finally:
            elinvar.torch.unpatch(model)

    ways["elinvar.torch.patch"] = patched
    rates, texts = {name: [] for name in ways}, {}
    for name, call in ways.items():
        for _ in range(2):
            call(options.tokens)
    for _ in range(options.rounds):
        for name, call in ways.items():
            rate, texts[name] = timed(call)
            rates[name].append(rate)
    for name, found in rates.items():
        same = (texts[name] == texts["transformers, eager"]).float().mean().item()
        print(f"{name:30} {statistics.median(found):9.1f} tok/s ({min(found):.1f} to {max(found):.1f}), tokens as eager's {same:.2f}", flush=True)


main()
