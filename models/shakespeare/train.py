"""Trains the embedded model: a small Llama on Tiny Shakespeare, taught by an ensemble of its own kind.

    python train.py input.txt --out .

Needs torch, numpy, tokenizers and safetensors, and an NVIDIA GPU (a CPU works, slowly). Every random choice is seeded
and PyTorch's deterministic kernels are used. README.md has the recipe's reasons and results, data.py the text's source.
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
    vocab: int = 2048
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
    dropout: float = 0.1
    attention_dropout: float = 0.1
    bpe_dropout: float = 0.1
    weight_decay: float = 1.5
    average: float = 0.995
    # optimisation
    steps: int = 2500
    batch: int = 32
    learning_rate: float = 2e-3
    warmup: int = 100
    seed: int = 1
    # teachers: models of the same shape whose mean prediction is mixed into the targets
    teachers: int = 5
    teacher_share: float = 0.7
    teacher_dropout: float = 0.3
    teacher_steps: int = 1200
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


class Task:
    """What every model of one run shares: the tokenizer, the training text's segmentations, the two texts' tokens."""

    def __init__(self, c, text):
        self.train_text, self.validation_text = read_text(text)
        self.tokenizer = train_tokenizer(self.train_text, c.vocab)
        self.boundary = self.tokenizer.token_to_id(BOUNDARY)
        self.segmenter = Segmenter(self.tokenizer, self.train_text, c.bpe_dropout, c.variants, c.seed)
        self.train = torch.from_numpy(encode(self.tokenizer, self.train_text))
        self.validation = torch.from_numpy(encode(self.tokenizer, self.validation_text))
        self.device = "cuda" if torch.cuda.is_available() else "cpu"


def train(c, text, out):
    torch.use_deterministic_algorithms(True)
    task = Task(c, text)
    begun = time.time()
    teachers = [fit(teacher_config(c, i), task, f"teacher {i + 1}")[0] for i in range(c.teachers)]
    model, history = fit(c, task, "model", teachers)
    write_folder(out, c, task, model.state_dict())
    write_report(out, c, task, model, teachers, history, time.time() - begun)


def teacher_config(c, i):
    return replace(c, dropout=c.teacher_dropout, steps=c.teacher_steps, seed=c.seed + 1 + i)


def fit(c, task, name, teachers=()):
    """Trains one model; returns the averaged weights at the evaluation with the lowest validation loss, and the
    history of (step, training loss, validation loss in nats per token and per byte)."""
    torch.manual_seed(c.seed)
    windows = Windows(task.segmenter, c.streams, c.context, task.boundary, c.seed)
    trainer = Trainer(Llama(c).to(task.device), c, task.device, teachers)
    best, best_loss, history = None, math.inf, []
    for step in range(c.steps):
        loss = trainer.step(step, *map(torch.from_numpy, windows.draw(c.batch)))
        if (step + 1) % c.evaluate_every == 0 or step + 1 == c.steps:
            per_token = evaluate([trainer.average], task.validation, c.context)
            per_byte = per_token * len(task.validation) / len(task.validation_text)
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
        self.side = torch.cuda.Stream() if device == "cuda" else None

    def step(self, index, inputs, targets):
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        self.rate.fill_(self.learning_rate(index))
        if self.device == "cpu":
            self.update()
        elif index < self.EAGER_STEPS:
            self.side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.side):
                self.update()
            torch.cuda.current_stream().wait_stream(self.side)
        else:
            if self.graph is None:
                self.optimizer.zero_grad(set_to_none=True)
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, stream=self.side):
                    self.update()
            self.graph.replay()
        self.fold_into_average(1 - min(self.c.average, (1 + index) / (10 + index)))
        return self.loss

    @torch.no_grad()
    def fold_into_average(self, share):
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), share)

    def update(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            logits = self.model(self.inputs).float().flatten(0, 1)
            taught = mean_probability(self.teachers, self.inputs) if self.teachers else None
        loss = F.cross_entropy(logits, self.targets.flatten())
        if taught is not None:
            share = self.c.teacher_share
            loss = (1 - share) * loss + share * F.cross_entropy(logits, taught.flatten(0, 1))
        loss.backward()
        self.loss = loss.detach()
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
    if not models:
        return None
    stored = [copy.deepcopy(model).bfloat16().float() for model in models]
    per_token = evaluate(stored, tokens, context)
    return {"nats_per_token": per_token, "nats_per_byte": per_token * len(tokens) / len(text)}


def write_report(out, c, task, model, teachers, history, seconds):
    report = {
        "config": asdict(c),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds),
        "device": torch.cuda.get_device_name() if task.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "train": losses([model], task.train, task.train_text, c.context),
        "validation": losses([model], task.validation, task.validation_text, c.context),
        "teachers_validation": losses(teachers, task.validation, task.validation_text, c.context),
        "history": history,
    }
    write_json(out, "report.json", report)
    print({k: v for k, v in report.items() if k not in ("config", "history")}, flush=True)


def write_json(out, name, value):
    with open(os.path.join(out, name), "w") as file:
        file.write(json.dumps(value, indent=2) + "\n")


def write_folder(out, c, task, state):
    """Writes the files that transformers' from_pretrained opens."""
    os.makedirs(out, exist_ok=True)
    boundary = task.boundary
    task.tokenizer.save(os.path.join(out, "tokenizer.json"))
    tensors = {name: tensor.bfloat16().cpu() for name, tensor in state.items()}
    save_file(tensors, os.path.join(out, "model.safetensors"), {"format": "pt"})
    write_json(out, "config.json", {
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
    write_json(out, "generation_config.json", {
        "bos_token_id": boundary,
        "eos_token_id": boundary,
        "do_sample": True,
        "temperature": 0.8,
        "top_p": 0.95,
    })
    write_json(out, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOUNDARY,
        "eos_token": BOUNDARY,
        "model_max_length": c.context,
        "clean_up_tokenization_spaces": False,
    })


if __name__ == "__main__":
    main()
