"""Writes gradients.txt: gradients by PyTorch's autograd, in f32, of what tests/library/autograd.rs computes.

Each line has a name and the gradients of all inputs, one after the other. Inputs and the weights of the loss are made by a formula (`made`), so that only
results are kept. Run with PyTorch 2 in this folder: python gradients.py
"""

import math
import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def made(dims, seed):
    count = math.prod(dims)
    values = [((i * 7919 + seed * 104729) % 2003) / 1001.5 - 1.0 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).to(torch.float32).reshape(dims)


def rotated(x, positions, frequencies):
    angles = (positions[:, None] * frequencies[None, :])[:, None, :]
    half = frequencies.numel()
    u, v = x[..., :half], x[..., half:]
    return torch.cat([u * angles.cos() - v * angles.sin(), v * angles.cos() + u * angles.sin()], -1)


def attention(q, k, v, **options):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    cap = options.get("softcap")
    if cap:
        scores = cap * torch.tanh(scores / cap)
    t = torch.arange(q.shape[2])[:, None] + options.get("offset", 0)
    j = torch.arange(k.shape[2])[None, :]
    allowed = j <= t
    if "left" in options:
        allowed &= j >= t - options["left"]
    return torch.softmax(scores.masked_fill(~allowed, float("-inf")), -1) @ v


def adam(x, g, m, v):
    g = g + 0.1 * x
    m, v = 0.9 * m + 0.1 * g, 0.99 * (v + 2) + 0.01 * g * g
    return x - 0.5 * math.sqrt(1 - 0.99**3) / (1 - 0.9**3) * m / (v.sqrt() + 1e-3)


UNARY = {
    "exp": torch.exp, "log": lambda x: (x + 2).log(), "sqrt": lambda x: (x + 2).sqrt(), "rsqrt": lambda x: (x + 2).rsqrt(), "sin": torch.sin,
    "cos": torch.cos, "tan": torch.tan, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softplus": F.softplus, "silu": F.silu, "mish": F.mish,
    "softsign": F.softsign, "hard_swish": F.hardswish, "erf": torch.erf, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": torch.relu, "abs": torch.abs, "square": torch.square, "reciprocal": lambda x: (x + 2).reciprocal(),
    "selu": lambda x: F.selu(3 * x), "hard_sigmoid": lambda x: F.hardsigmoid(6 * x),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.25), "elu": lambda x: F.elu(x, 0.5), "clamp": lambda x: x.clamp(-0.5, 0.25),
}

CASES = {name: ([(4, 6)], function) for name, function in UNARY.items()}
CASES |= {
    "add": ([(4, 6), (6,)], lambda a, b: a + b),
    "sub": ([(4, 6), (4, 1)], lambda a, b: a - b),
    "mul": ([(4, 6), (6,)], lambda a, b: a * b),
    "div": ([(4, 6), (6,)], lambda a, b: a / (b + 2)),
    "pow": ([(4, 6), (6,)], lambda a, b: (a + 2) ** b),
    "maximum": ([(4, 6), (4, 6)], torch.maximum),
    "fma": ([(4, 6), (6,), (4, 1)], lambda a, b, c: a * b + c),
    "sum": ([(4, 6)], lambda x: x.sum(1)),
    "mean": ([(4, 6)], lambda x: x.mean(0)),
    "max": ([(4, 6)], lambda x: x.amax(1)),
    "prod": ([(4, 6)], lambda x: x.prod(1)),
    "norm": ([(4, 6)], lambda x: x.norm(dim=1)),
    "logsumexp": ([(4, 6)], lambda x: x.logsumexp(1)),
    "cumsum": ([(4, 6)], lambda x: x.cumsum(1)),
    "matmul": ([(2, 3, 4), (4, 5)], torch.matmul),
    "batched_matmul": ([(2, 1, 3, 4), (3, 4, 5)], torch.matmul),
    "linear": ([(2, 3, 4), (5, 4), (5,)], F.linear),
    "lora_linear": ([(3, 6), (5, 6), (2, 6), (5, 2)], lambda x, w, a, b: F.linear(x, w) + 0.5 * F.linear(F.linear(x, a), b)),
    "gather": ([(5, 4)], lambda x: F.embedding(torch.tensor([1, 3, 1, 0]), x)),
    "take_along_axis": ([(3, 4)], lambda x: x.gather(1, torch.tensor([[0, 0], [3, 1], [2, 2]]))),
    "concat": ([(2, 3), (2, 4)], lambda a, b: torch.cat([a, b], 1)),
    "softmax": ([(4, 6)], lambda x: torch.softmax(3 * x, 1)),
    "log_softmax": ([(4, 6)], lambda x: torch.log_softmax(3 * x, 1)),
    "cross_entropy": ([(4, 6)], lambda x: F.cross_entropy(3 * x, torch.tensor([1, 5, -100, 0]), ignore_index=-100, reduction="none")),
    "rms_norm": ([(4, 6), (6,)], lambda x, w: F.rms_norm(x, (6,), w, 1e-5)),
    "layer_norm": ([(4, 6), (6,), (6,)], lambda x, w, b: F.layer_norm(x, (6,), w, b, 1e-5)),
    "group_norm": ([(2, 4, 3), (4,), (4,)], lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5)),
    "instance_norm": ([(2, 3, 5), (3,), (3,)], lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-5)),
    "normalize": ([(4, 6)], lambda x: F.normalize(x, dim=0)),
    "normalize_by_magnitudes": ([(4, 6)], lambda x: F.normalize(x, p=1, dim=1)),
    "one_hot": ([(2,)], lambda v: torch.where(F.one_hot(torch.tensor([2, 0, 1]), 3).bool(), v[1], v[0])),
    "nll_loss": ([(3, 4, 2)], lambda x: F.nll_loss(x, torch.tensor([[1, 3], [-1, 0], [2, 2]]), torch.tensor([0.5, 2, 1, 3]), ignore_index=-1)),
    "cross_entropy_loss": ([(3, 4, 2)], lambda x: F.cross_entropy(
        3 * x, torch.tensor([[1, 3], [9, 0], [2, 2]]), torch.tensor([0.5, 2, 1, 3]), ignore_index=9)),
    "cross_entropy_loss_of_places": ([(3, 4, 2)], lambda x: F.cross_entropy(3 * x, torch.tensor([[1, 3], [0, 0], [2, 2]]), reduction="none")),
    "einsum": ([(2, 3, 4), (4, 5, 2), (3, 5)], lambda a, b, c: torch.einsum("bij,jkb,ik->ikb", a, b, c)),
    "einsum_of_a_diagonal": ([(2, 3, 3), (3, 4)], lambda a, b: torch.einsum("...ii,ik", a, b)),
    "adam": ([(4, 6)] * 4, adam),
    "swiglu": ([(4, 6), (4, 6)], lambda a, b: F.silu(a) * b),
    "rope": ([(3, 2, 8)], lambda x: rotated(x, torch.tensor([0.0, 1.0, 5.0]), torch.tensor([1.0, 0.5, 0.25, 0.125]))),
    "attention": ([(1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8)], attention),
    "attention_of_a_cache": ([(1, 2, 3, 8), (1, 1, 40, 8), (1, 1, 40, 8)], lambda q, k, v: attention(q, k, v, offset=37, softcap=0.7)),
    "attention_in_a_window": ([(1, 1, 40, 8), (1, 1, 40, 8), (1, 1, 40, 8)], lambda q, k, v: attention(q, k, v, left=5)),
}

with open("gradients.txt", "w") as out:
    for name, (shapes, function) in CASES.items():
        inputs = [made(dims, seed + 1).requires_grad_() for seed, dims in enumerate(shapes)]
        y = function(*inputs)
        (y * made(tuple(y.shape), 9)).sum().backward()
        values = torch.cat([x.grad.flatten() for x in inputs])
        out.write(name + " " + " ".join(f"{v:.7e}" for v in values.tolist()) + "\n")
