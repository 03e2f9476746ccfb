"""Trains the embedded model: a small Llama on Tiny Shakespeare. See README.md for the recipe and its results.

    python train.py input.txt --out .

Needs torch, numpy, tokenizers and safetensors, and an NVIDIA GPU (it also runs on a CPU, slowly). The run is seeded
and uses deterministic kernels: the same versions on the same GPU give the same weights.
"""

import argparse
import copy
import json
import math
import os
import time
from dataclasses import asdict, dataclass, fields, replace

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from data import BOUNDARY, Segmenter, Windows, encode, read_text, train_tokenizer
from llama import Llama


@dataclass
class Config:
    # architecture
    vocab: int = 1024
    hidden: int = 256
    intermediate: int = 704
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    context: int = 512
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    # regularisation
    dropout: float = 0.2
    attention_dropout: float = 0.1
    bpe_dropout: float = 0.1
    weight_decay: float = 0.5
    average: float = 0.995
    # optimisation
    steps: int = 2000
    batch: int = 32
    learning_rate: float = 2e-3
    warmup: int = 100
    seed: int = 1
    # teachers: an ensemble whose mean prediction is mixed into the targets
    teachers: int = 0
    teacher_share: float = 0.7
    teacher_hidden: int = 384
    teacher_layers: int = 6
    teacher_dropout: float = 0.3
    teacher_steps: int = 1500
    # data and evaluation
    streams: int = 32
    variants: int = 16
    evaluate_every: int = 100


def main():
    parser = argparse.ArgumentParser(description="Trains the embedded model.")
    parser.add_argument("text", help="input.txt of Tiny Shakespeare")
    parser.add_argument("--out", default=".", help="folder for the model's files")
    for field in fields(Config):
        parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
    arguments = vars(parser.parse_args())
    text, out = arguments.pop("text"), arguments.pop("out")
    train(Config(**arguments), text, out)


def train(c, text, out):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.use_deterministic_algorithms(True)
    train_text, validation_text = read_text(text)
    tokenizer = train_tokenizer(train_text, c.vocab)
    boundary = tokenizer.token_to_id(BOUNDARY)
    segmenter = Segmenter(tokenizer, train_text, c.bpe_dropout, c.variants, c.seed)
    seen, held_out = (torch.from_numpy(encode(tokenizer, part)) for part in (train_text, validation_text))
    begun = time.time()

    def run(config, name, teachers=()):
        windows = Windows(segmenter, c.streams, c.context, boundary, config.seed)
        return fit(config, windows, held_out, len(validation_text), device, name, teachers)

    teachers = [run(teacher_config(c, i), f"teacher {i}")[0] for i in range(c.teachers)]
    model, history = run(c, "model", teachers)
    report = {
        "config": asdict(c),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(time.time() - begun, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "train": losses([model], seen, train_text, c.context),
        "validation": losses([model], held_out, validation_text, c.context),
        "history": history,
    }
    if teachers:
        report["teachers_validation"] = losses(teachers, held_out, validation_text, c.context)
    write_folder(out, c, tokenizer, boundary, model.state_dict())
    with open(os.path.join(out, "report.json"), "w") as file:
        json.dump(report, file, indent=1)
    print({k: v for k, v in report.items() if k not in ("config", "history")}, flush=True)


def teacher_config(c, i):
    hidden = c.teacher_hidden
    return replace(
        c, hidden=hidden, intermediate=c.intermediate * hidden // c.hidden // 64 * 64, heads=hidden // c.head_dim,
        kv_heads=hidden // c.head_dim, layers=c.teacher_layers, dropout=c.teacher_dropout, steps=c.teacher_steps,
        seed=c.seed + 1 + i,
    )


def fit(c, windows, held_out, held_out_bytes, device, name, teachers):
    """Trains one model; returns the averaged weights of the evaluation with the lowest validation loss."""
    torch.manual_seed(c.seed)
    trainer = Trainer(Llama(c).to(device), c, device, teachers)
    best, best_loss, history = None, math.inf, []
    for step in range(c.steps):
        loss = trainer.step(step, *map(torch.from_numpy, windows.draw(c.batch)))
        if (step + 1) % c.evaluate_every == 0 or step + 1 == c.steps:
            per_token = evaluate([trainer.average], held_out, c.context)
            per_byte = per_token * len(held_out) / held_out_bytes
            history.append((step + 1, loss.item(), per_token, per_byte))
            print(name, "step %d  train %.4f  validation %.4f nats/token  %.4f nats/byte" % history[-1], flush=True)
            if per_token < best_loss:
                best, best_loss = copy.deepcopy(trainer.average.state_dict()), per_token
    trainer.average.load_state_dict(best)
    return trainer.average, history


class Trainer:
    """AdamW with warm-up and cosine decay, gradients clipped to norm 1, and a moving average of the weights.

    On a GPU the arithmetic is bf16 under autocast with f32 weights. The first steps run eagerly, then one step is
    captured as a CUDA graph and replayed.
    """

    EAGER_STEPS = 3

    def __init__(self, model, c, device, teachers):
        self.model, self.c, self.device, self.teachers = model.train(), c, device, teachers
        self.average = copy.deepcopy(model).eval().requires_grad_(False)
        self.rate = torch.tensor(0.0, device=device)
        decayed = [p for p in model.parameters() if p.dim() == 2]
        plain = [p for p in model.parameters() if p.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": c.weight_decay}, {"params": plain, "weight_decay": 0.0}],
            lr=self.rate, betas=(0.9, 0.98), fused=True, capturable=device == "cuda",
        )
        self.inputs = torch.zeros(c.batch, c.context, dtype=torch.int64, device=device)
        self.targets = torch.zeros_like(self.inputs)
        self.graph = self.loss = None

    def step(self, index, inputs, targets):
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        self.rate.fill_(self.learning_rate(index))
        if self.device == "cpu":
            self.update()
        elif index < self.EAGER_STEPS:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.update()
            torch.cuda.current_stream().wait_stream(side)
        else:
            if self.graph is None:
                self.optimizer.zero_grad(set_to_none=True)
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):
                    self.update()
            self.graph.replay()
        keep = min(self.c.average, (1 + index) / (10 + index))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - keep)
        return self.loss

    def update(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            logits = self.model(self.inputs).float().flatten(0, 1)
            taught = mean_probability(self.teachers, self.inputs) if self.teachers else None
        self.loss = F.cross_entropy(logits, self.targets.flatten())
        if taught is not None:
            share = self.c.teacher_share
            self.loss = (1 - share) * self.loss + share * F.cross_entropy(logits, taught.flatten(0, 1))
        self.loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def learning_rate(self, index):
        if index < self.c.warmup:
            return self.c.learning_rate * (index + 1) / self.c.warmup
        progress = (index - self.c.warmup) / max(1, self.c.steps - self.c.warmup)
        return self.c.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


@torch.no_grad()
def mean_probability(models, tokens):
    return sum(model(tokens).float().softmax(dim=-1) for model in models) / len(models)


@torch.no_grad()
def evaluate(models, tokens, context):
    """Mean loss in nats per token of the models' mean prediction, f32. Windows overlap by half and only the second
    half of each counts, so a prediction sees at least context/2 tokens (the text's first half window excepted)."""
    device = next(models[0].parameters()).device
    half = context // 2
    starts = list(range(0, max(1, len(tokens) - 1 - half), half))
    total = 0.0
    for group in (starts[i : i + 32] for i in range(0, len(starts), 32)):
        rows = torch.full((len(group), context + 1), -100)
        for row, start in zip(rows, group):
            piece = tokens[start : start + context + 1]
            row[: len(piece)] = piece
        inputs, targets = rows[:, :-1].clamp(min=0), rows[:, 1:].clone()
        for row, start in zip(targets, group):
            if start:
                row[:half] = -100
        log_probability = mean_probability(models, inputs.to(device)).log().flatten(0, 1)
        total += F.nll_loss(log_probability, targets.to(device).flatten(), reduction="sum").item()
    return total / (len(tokens) - 1)


def losses(models, tokens, text, context):
    """Of the weights as they are stored: rounded to bf16, computed with in f32."""
    stored = [copy.deepcopy(model).bfloat16().float() for model in models]
    per_token = evaluate(stored, tokens, context)
    return {"nats_per_token": per_token, "nats_per_byte": per_token * len(tokens) / len(text)}


def write_folder(out, c, tokenizer, boundary, state):
    """Writes the files that transformers' from_pretrained opens."""
    os.makedirs(out, exist_ok=True)
    path = lambda name: os.path.join(out, name)
    write = lambda name, value: open(path(name), "w").write(json.dumps(value, indent=2) + "\n")
    tokenizer.save(path("tokenizer.json"))
    save_file({k: v.bfloat16().cpu().contiguous() for k, v in state.items()}, path("model.safetensors"), {"format": "pt"})
    write("config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": c.vocab,
        "hidden_size": c.hidden,
        "intermediate_size": c.intermediate,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.context,
        "hidden_act": "silu",
        "rms_norm_eps": c.norm_eps,
        "rope_theta": c.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "initializer_range": 0.02,
        "bos_token_id": boundary,
        "eos_token_id": boundary,
        "torch_dtype": "bfloat16",
    })
    write("generation_config.json", {
        "bos_token_id": boundary, "eos_token_id": boundary, "do_sample": True, "temperature": 0.8,
    })
    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOUNDARY,
        "eos_token": BOUNDARY,
        "model_max_length": c.context,
        "clean_up_tokenization_spaces": False,
    })


if __name__ == "__main__":
    main()
