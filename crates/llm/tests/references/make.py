#!/usr/bin/env python3
"""Makes the reference files of this folder: logits of tiny models by Hugging Face transformers, in f32 on a CPU.

    pip install torch transformers      (the files were made with torch 2.15 and transformers 5.23)
    python3 make.py                     (writes NAME.json and NAME.f32 for each model below)

NAME.json has the model's config.json as transformers saves it, and the shapes of its tensors. NAME.f32 has the logits after each of 40 tokens, as
little-endian f32, 40 rows of the vocabulary's length. Weights are in no file: each follows from the tensor's name (`values`), here and in the tests that read
these files, and so do the tokens (`TOKENS`).
"""

import json
import pathlib

import numpy as np
import torch
from transformers import AutoModelForCausalLM, CONFIG_MAPPING

VOCABULARY = 29
TOKENS = [(i * i * 7 + i * 3 + 5) % VOCABULARY for i in range(40)]

BASE = dict(vocab_size=VOCABULARY, hidden_size=36, intermediate_size=44, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
            max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LONG = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.05, 1.1, 1.3, 1.7, 2.0], long_factor=[1.1, 1.4, 2.0, 3.5, 6.0, 9.0])

MODELS = {
    "llama-llama3": ("llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=False, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32))),
    "llama-linear": ("llama", dict(head_dim=10, tie_word_embeddings=True, rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=4.0))),
    "llama-yarn": ("llama", dict(head_dim=12, tie_word_embeddings=False, rope_parameters=dict(
        rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=8.0, beta_slow=0.5, original_max_position_embeddings=32))),
    "mistral": ("mistral", dict(head_dim=10, sliding_window=13, tie_word_embeddings=False)),
    "qwen2": ("qwen2", dict(num_hidden_layers=3, use_sliding_window=True, sliding_window=9, max_window_layers=1, tie_word_embeddings=False)),
    "qwen3": ("qwen3", dict(head_dim=12, attention_bias=True, tie_word_embeddings=True)),
    "qwen3-yarn": ("qwen3", dict(head_dim=12, tie_word_embeddings=False, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000.0, factor=8.0, original_max_position_embeddings=16, mscale=0.8, mscale_all_dim=0.3, truncate=False))),
    "gemma2": ("gemma2", dict(num_hidden_layers=3, head_dim=14, sliding_window=7, query_pre_attn_scalar=14, attn_logit_softcapping=2.5,
                              final_logit_softcapping=4.0)),
    "gemma3": ("gemma3_text", dict(num_hidden_layers=4, head_dim=18, sliding_window=9, sliding_window_pattern=3, query_pre_attn_scalar=24)),
    "gemma3-linear": ("gemma3_text", dict(head_dim=18, sliding_window=5, query_pre_attn_scalar=18, final_logit_softcapping=4.0,
        layer_types=["full_attention", "sliding_attention"], rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0), sliding_attention=dict(rope_type="default", rope_theta=5000.0)))),
    "phi3": ("phi3", dict(sliding_window=11, tie_word_embeddings=False)),
    "phi3-short": ("phi3", dict(num_attention_heads=3, num_key_value_heads=1, original_max_position_embeddings=64, rope_parameters=LONG)),
    "phi3-long": ("phi3", dict(num_attention_heads=3, num_key_value_heads=1, original_max_position_embeddings=24, rope_parameters=LONG)),
    "phi3-partial": ("phi3", dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=3, original_max_position_embeddings=24,
                                  tie_word_embeddings=True, rope_parameters=dict(LONG, partial_rotary_factor=0.75))),
}


def values(name, dims, model_type):
    """A tensor's values from its name: a generator seeded by the name's FNV-1a hash; uniform, of the variance 1 / columns for matrices. Gemma adds 1 to the
    weights of norms."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    numbers = np.empty(int(np.prod(dims)), np.float32)
    for i in range(len(numbers)):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers[i] = np.float32(state >> 40) / np.float32(2**23) - np.float32(1)
    if "norm" in name:
        numbers = np.float32(0.5) * numbers + np.float32(0 if model_type.startswith("gemma") else 1)
    elif len(dims) == 1:
        numbers = np.float32(0.25) * numbers
    else:
        numbers = np.sqrt(np.float32(3) / np.float32(dims[1])) * numbers
    return torch.from_numpy(numbers.reshape(dims))


def main():
    folder = pathlib.Path(__file__).parent
    for name, (kind, keys) in MODELS.items():
        config = CONFIG_MAPPING[kind](**{**BASE, **keys})
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
        tensors = {tensor: list(weight.shape) for tensor, weight in model.named_parameters()}
        with torch.no_grad():
            for tensor, weight in model.named_parameters():
                weight.copy_(values(tensor, weight.shape, kind))
            logits = model(torch.tensor([TOKENS]), use_cache=False).logits[0].numpy()
        saved = json.loads(config.to_json_string())
        saved["architectures"] = [type(model).__name__]
        saved.pop("transformers_version")
        lines = [f'"config": {json.dumps(saved)}', '"tensors": {\n' + ",\n".join(f"{json.dumps(t)}: {d}" for t, d in tensors.items()) + "}"]
        (folder / f"{name}.json").write_text("{" + ",\n".join(lines) + "}\n")
        logits.astype("<f4").tofile(folder / f"{name}.f32")
        print(name, float(np.abs(logits).max()), float(logits.std()))


if __name__ == "__main__":
    main()
