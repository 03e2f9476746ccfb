#!/usr/bin/env python3
"""Makes the reference files of this folder: losses of training with Hugging Face PEFT and PyTorch, in f32 on a CPU.

    pip install torch transformers peft     (the files were made with torch 2.15, transformers 5.23 and peft 0.21)
    python3 make.py                         (writes losses.json, preferences.json and the folder peft)
    python3 make.py FOLDER DATA OUTPUT      (trains the model in FOLDER on DATA, token ids in JSON; writes the adapter before and after to OUTPUT)

losses.json has for each training the model (the name of a reference in the folder above, or shakespeare, the embedded model), PEFT's configuration, the learning
rate, whether Muon takes AdamW's place, and the loss of each step. The samples are those of `SAMPLES`; a step takes two, one after the other, and the last begins again
with the first. Adapters begin with the values that follow from the names of their tensors (`values` of the script above), those of B times 0.1, so that nothing begins at zero; magnitudes of DoRA
and matrices that are saved whole begin as PEFT has them. Dropout leaves out the elements that `Dropout` says, for the seed 1.

preferences.json has the same for direct preference optimisation of `PAIRS`, two a step: the loss, the mean rewards of the chosen and the rejected texts, and the
part of the pairs that is in order, all before the step. Reference log-probabilities are those of the model with its adapter disabled.

The folder peft has an adapter as PEFT saves it, and logits of the model with it: `logits.f32`, little-endian, a row for each of the tokens of the script above.
"""

import copy
import inspect
import json
import pathlib
import shutil
import sys

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.optim import _muon
from transformers import AutoModelForCausalLM, CONFIG_MAPPING

FOLDER = pathlib.Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import make as models  # noqa: E402

# Token ids, below 29, and how many of them are the prompt.
SAMPLES = [([(7 * i * i + 3 * i + 5 + 11 * n) % 29 for i in range(9 + 6 * n)], 2 * n) for n in range(5)]
# A prompt, and what is preferred and rejected after it.
PAIRS = [tuple([(a * i * i + b * i + 3 + 7 * n) % 29 for i in range(length)] for a, b, length in ((5, 2, 3 + n), (7, 1, 6 + 2 * n), (3, 4, 11 - 2 * n)))
         for n in range(4)]
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

TRAININGS = {
    "shakespeare": dict(model="shakespeare", steps=50, rate=1e-3, config=dict(r=8, lora_alpha=16, target_modules=ALL)),
    "patterns": dict(model="qwen2", steps=12, rate=5e-3, config=dict(
        r=4, lora_alpha=6, use_rslora=True, target_modules=r".*\.(self_attn\.[qv]_proj|mlp\.\w+_proj)", rank_pattern={"layers.1.mlp.up_proj": 2},
        alpha_pattern={r"mlp\.\w+": 3})),
    "layers": dict(model="gemma2", steps=12, rate=5e-3, config=dict(r=3, lora_alpha=3, target_modules=ALL, layers_to_transform=[1])),
    "dora": dict(model="qwen2", steps=12, rate=5e-3, config=dict(r=2, lora_alpha=4, use_dora=True, target_modules=ALL)),
    "fused": dict(model="phi3", steps=12, rate=5e-3, config=dict(
        r=2, lora_alpha=4, target_modules=["qkv_proj", "gate_up_proj"], modules_to_save=["lm_head"])),
    "norms": dict(model="gemma2", steps=8, rate=1e-2, config=dict(
        r=2, lora_alpha=4, target_modules=["q_proj"], modules_to_save=["input_layernorm", "post_feedforward_layernorm", "model.norm"])),
    "dropout": dict(model="qwen2", steps=6, rate=5e-3, config=dict(r=2, lora_alpha=4, lora_dropout=0.3, target_modules=ALL)),
    "dropout-dora": dict(model="qwen2", steps=6, rate=5e-3, config=dict(r=2, lora_alpha=4, lora_dropout=0.3, use_dora=True, target_modules=ALL)),
    "muon": dict(model="qwen2", steps=8, rate=1e-2, muon=True, config=dict(r=4, lora_alpha=8, target_modules=ALL)),
}


PREFERENCES = {
    "lora": dict(model="qwen2", steps=12, rate=5e-3, beta=0.1, config=dict(r=2, lora_alpha=4, target_modules=ALL)),
    "dora": dict(model="gemma2", steps=6, rate=5e-3, beta=0.5, config=dict(r=2, lora_alpha=4, use_dora=True, target_modules=ALL, layers_to_transform=[1])),
}


def splitmix(seed, count):
    mask = 2**64 - 1
    z = (seed + (count + 1) * 0x9E3779B97F4A7C15) & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)


def murmur(x):
    x = np.asarray(x, np.uint32)
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


class Dropout(torch.nn.Module):
    """Of the linear layer with this number, in the checkpoint's order."""

    step = 0

    def __init__(self, rate, number):
        super().__init__()
        self.rate, self.number = rate, number

    def forward(self, x):
        if self.step == 0:
            return x
        key = murmur([(splitmix(splitmix(1, self.step), 0) >> 32) + self.number + 1 & 0xFFFFFFFF])
        texts, length, width = x.shape
        # The last token is a target alone, and texts are filled up to multiples of 32 tokens.
        stride = (length - 1 + 31) // 32 * 32
        indices = [stride * np.arange(texts)[:, None] + np.arange(length), np.arange(width)]
        rows, columns = (index.astype(np.uint32) * np.uint32(0x9E3779B9) for index in indices)
        kept = torch.from_numpy(murmur(murmur(rows + key)[..., None] + columns) >= np.uint32(self.rate * 2.0**32))
        return torch.where(kept, x / (1 - self.rate), 0.0)


def drop(model, rate):
    """Takes the place of PEFT's dropout. PEFT's DoRA skips a dropout that is not in training mode, so the layers are in it; nothing else of the model is."""
    layers = [module for module in model.modules() if hasattr(module, "lora_dropout") and isinstance(module.lora_dropout, torch.nn.ModuleDict)]
    for number, layer in enumerate(layers):
        layer.lora_dropout["default"] = Dropout(rate, number)
        layer.train()


def base(name):
    if name == "shakespeare":
        return AutoModelForCausalLM.from_pretrained(FOLDER / "../../../../../models/shakespeare", dtype=torch.float32, attn_implementation="eager")
    kind, keys = models.MODELS[name]
    config = CONFIG_MAPPING[kind](**{**models.BASE, **keys})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for tensor, weight in model.named_parameters():
            weight.copy_(models.values(tensor, weight.shape, kind))
    return model


def begin(model):
    """Values that follow from names."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_A" in name or "lora_B" in name:
                short = name.removeprefix("base_model.model.").replace(".default", "")
                parameter.copy_(models.values(short, parameter.shape, "") * (0.1 if "lora_B" in name else 1.0))


def batch(samples):
    longest = max(len(tokens) for tokens, _ in samples)
    inputs, labels = torch.zeros(len(samples), longest, dtype=torch.long), torch.full((len(samples), longest), -100)
    for row, (tokens, prompt) in enumerate(samples):
        inputs[row, : len(tokens)] = torch.tensor(tokens)
        labels[row, prompt : len(tokens)] = torch.tensor(tokens)[prompt:]
    return inputs, labels


def loss_of(model, samples):
    inputs, labels = batch(samples)
    logits = model(input_ids=inputs, use_cache=False).logits.float()
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)


def train(model, samples, width, steps, rate, dropout=0.0, muon=False):
    model.eval()
    if dropout:
        drop(model, dropout)
    trained = [p for p in model.parameters() if p.requires_grad]
    if muon:
        # It orthogonalises in bf16 otherwise.
        exec(inspect.getsource(_muon._zeropower_via_newtonschulz).replace("bfloat16", "float32"), _muon.__dict__)
        optimizer = torch.optim.Muon(trained, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    else:
        optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.01)
    losses = []
    for step in range(steps):
        Dropout.step = step + 1
        loss = loss_of(model, [samples[(width * step + i) % len(samples)] for i in range(width)])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def log_probabilities(model, samples):
    inputs, labels = batch(samples)
    logits = model(input_ids=inputs, use_cache=False).logits.float().log_softmax(-1)[:, :-1]
    labels = labels[:, 1:]
    found = logits.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(labels >= 0, found, 0.0).sum(-1)


def prefer(model, steps, rate, beta):
    """Direct preference optimisation as its authors write it."""
    model.eval()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01)
    found = []
    for step in range(steps):
        pairs = [PAIRS[(2 * step + i) % len(PAIRS)] for i in range(2)]
        samples = [(prompt + answer, len(prompt)) for prompt, *answers in pairs for answer in answers]
        with torch.no_grad(), model.disable_adapter():
            reference = log_probabilities(model, samples)
        rewards = beta * (log_probabilities(model, samples) - reference).reshape(-1, 2)
        loss = -torch.nn.functional.logsigmoid(rewards[:, 0] - rewards[:, 1]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        accuracy = (rewards[:, 0] > rewards[:, 1]).float().mean()
        found.append([loss.item(), *rewards.mean(0).tolist(), accuracy.item()])
    return found


def preferences():
    found = {}
    for name, training in PREFERENCES.items():
        model = get_peft_model(base(training["model"]), LoraConfig(task_type="CAUSAL_LM", **training["config"]))
        begin(model)
        steps = prefer(model, training["steps"], training["rate"], training["beta"])
        print(name, steps[0], steps[-1])
        found[name] = {**{key: training[key] for key in ("model", "config", "rate", "beta")}, "steps": steps}
    lines = [f"  {json.dumps(name)}: {json.dumps(training)}" for name, training in found.items()]
    (FOLDER / "preferences.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    torch.manual_seed(0)
    preferences()
    found = {}
    for name, training in TRAININGS.items():
        model = get_peft_model(base(training["model"]), LoraConfig(task_type="CAUSAL_LM", **training["config"]))
        begin(model)
        losses = train(model, SAMPLES, 2, training["steps"], training["rate"], training["config"].get("lora_dropout", 0.0), training.get("muon", False))
        print(name, losses[0], losses[-1])
        known = {key: training[key] for key in ("model", "config", "rate", "muon") if key in training}
        found[name] = dict(json.loads(json.dumps(known)), losses=losses)
        if name == "fused":
            folder = FOLDER / "peft"
            shutil.rmtree(folder, ignore_errors=True)
            model.save_pretrained(folder)
            (folder / "README.md").unlink(missing_ok=True)
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([models.TOKENS]), use_cache=False).logits[0].numpy()
            logits.astype("<f4").tofile(folder / "logits.f32")
    lines = [f"  {json.dumps(name)}: {json.dumps(training)}" for name, training in found.items()]
    (FOLDER / "losses.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def train_folder(folder, data, output):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=ALL))
    begin(model)
    model.save_pretrained(f"{output}/before")
    samples = [(sample["tokens"], sample.get("prompt", 0)) for sample in json.loads(pathlib.Path(data).read_text())]
    losses = train(model, samples, len(samples), 50, 1e-3)
    model.save_pretrained(f"{output}/after")
    pathlib.Path(f"{output}/losses.json").write_text(json.dumps(losses))
    print(losses[0], losses[-1])


if __name__ == "__main__":
    train_folder(*sys.argv[1:]) if len(sys.argv) == 4 else main()
