"""Writes reference/: logits and greedy text of the model in this folder, by transformers in f32 on the CPU.

    python reference.py input.txt

Needs torch, transformers and safetensors.
"""

import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from data import read_text

FOLDER = os.path.dirname(os.path.abspath(__file__))
LOGIT_TOKENS = 96
GREEDY_TOKENS = 200
PROMPTS = {"greedy.txt": "", "greedy_prompt.txt": "ROMEO:"}


@torch.no_grad()
def main():
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    out = os.path.join(FOLDER, "reference")
    os.makedirs(out, exist_ok=True)

    _, validation = read_text(sys.argv[1])
    speech = validation[validation.index("\n\n") + 2 :]
    tokens = torch.tensor(tokenizer(speech).input_ids[:LOGIT_TOKENS])
    logits = model(tokens[None]).logits[0]
    save_file({"tokens": tokens, "logits": logits.contiguous()}, os.path.join(out, "reference.safetensors"))

    runs = {name: greedy(model, tokenizer, prompt) for name, prompt in PROMPTS.items()}
    for name, run in runs.items():
        with open(os.path.join(out, name), "w") as file:
            file.write(run["text"])
    with open(os.path.join(out, "greedy.json"), "w") as file:
        file.write(json.dumps(list(runs.values())) + "\n")


def greedy(model, tokenizer, prompt):
    """Greedy continuation with a KV cache, checked against one pass over the whole sequence without."""
    prompt_tokens = tokenizer(prompt).input_ids
    tokens, cache = list(prompt_tokens), None
    for _ in range(GREEDY_TOKENS):
        step = model(torch.tensor([tokens if cache is None else tokens[-1:]]), past_key_values=cache, use_cache=True)
        cache = step.past_key_values
        tokens.append(step.logits[0, -1].argmax().item())
    new = tokens[len(prompt_tokens) :]
    top = model(torch.tensor([tokens[:-1]])).logits[0, len(prompt_tokens) - 1 :].topk(2)
    if top.indices[:, 0].tolist() != new:
        raise SystemExit(f"greedy text of {prompt!r} differs with and without the cache")
    return {
        "prompt": prompt,
        "prompt_tokens": prompt_tokens,
        "tokens": new,
        "text": tokenizer.decode(new),
        "smallest_margin": (top.values[:, 0] - top.values[:, 1]).min().item(),
    }


if __name__ == "__main__":
    main()
