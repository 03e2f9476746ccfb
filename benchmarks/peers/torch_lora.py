"""A step of LoRA training in PyTorch beside `elinvar bench train`: a Llama's shape with random weights in bf16, adapters in f32 on q_proj and v_proj.

    python3 torch_lora.py --shape llama-8b --checkpoint

Prints milliseconds of a step (the median of ten after three), tokens a second, and the most memory that was allocated. The loss is a mean cross-entropy in f32,
the optimiser PyTorch's fused AdamW, gradients are clipped, and the step ends when its loss is on the host, as in the other.
"""

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

# Layers, hidden and inner width, heads, heads of keys, width of a head, whether the output projection is the embedding.
SHAPES = {"llama-1b": (16, 2048, 8192, 32, 8, 64, True), "llama-8b": (32, 4096, 14336, 32, 8, 128, False)}
VOCABULARY = 128256


def weight(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * columns**-0.5, requires_grad=False)


def rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-high, low), dim=-1) * sines


class Adapted(nn.Module):
    def __init__(self, rows: int, columns: int, rank: int) -> None:
        super().__init__()
        self.weight = weight(rows, columns)
        self.a = nn.Parameter(torch.empty(rank, columns, device="cuda").uniform_(-(columns**-0.5), columns**-0.5))
        self.b = nn.Parameter(torch.zeros(rows, rank, device="cuda"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = functional.linear(functional.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype))
        return functional.linear(x, self.weight) + 2.0 * low


class Layer(nn.Module):
    def __init__(self, shape: tuple, rank: int) -> None:
        super().__init__()
        _, hidden, inner, self.heads, self.kv_heads, self.width, _ = shape
        keys = self.kv_heads * self.width
        self.q, self.v = Adapted(self.heads * self.width, hidden, rank), Adapted(keys, hidden, rank)
        self.k, self.o = weight(keys, hidden), weight(hidden, self.heads * self.width)
        self.gate, self.up, self.down = weight(inner, hidden), weight(inner, hidden), weight(hidden, inner)
        self.norms = nn.ParameterList([nn.Parameter(torch.ones(hidden, device="cuda", dtype=torch.bfloat16), requires_grad=False) for _ in range(2)])

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        texts, tokens, hidden = x.shape
        h = functional.rms_norm(x, (hidden,), self.norms[0], 1e-5)
        split = lambda y, heads: y.view(texts, tokens, heads, self.width).transpose(1, 2)
        q, k = rotated(split(self.q(h), self.heads), cosines, sines), rotated(split(functional.linear(h, self.k), self.kv_heads), cosines, sines)
        attended = functional.scaled_dot_product_attention(q, k, split(self.v(h), self.kv_heads), is_causal=True, enable_gqa=True)
        x = x + functional.linear(attended.transpose(1, 2).reshape(texts, tokens, -1), self.o)
        h = functional.rms_norm(x, (hidden,), self.norms[1], 1e-5)
        return x + functional.linear(functional.silu(functional.linear(h, self.gate)) * functional.linear(h, self.up), self.down)


class Model(nn.Module):
    def __init__(self, shape: tuple, rank: int, length: int, again: bool) -> None:
        super().__init__()
        layers, hidden, _, _, _, width, tied = shape
        self.embedding, self.again = weight(VOCABULARY, hidden), again
        self.head = self.embedding if tied else weight(VOCABULARY, hidden)
        self.layers = nn.ModuleList([Layer(shape, rank) for _ in range(layers)])
        self.norm = nn.Parameter(torch.ones(hidden, device="cuda", dtype=torch.bfloat16), requires_grad=False)
        angles = torch.outer(torch.arange(length, device="cuda"), 500000.0 ** (-torch.arange(0, width, 2, device="cuda") / width)).repeat(1, 2)
        self.register_buffer("cosines", angles.cos().bfloat16())
        self.register_buffer("sines", angles.sin().bfloat16())

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = functional.embedding(tokens, self.embedding)
        if self.again:
            x.requires_grad_()
        for layer in self.layers:
            x = checkpoint(layer, x, self.cosines, self.sines, use_reentrant=False) if self.again else layer(x, self.cosines, self.sines)
        logits = functional.linear(functional.rms_norm(x, (x.shape[-1],), self.norm, 1e-5), self.head)
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="llama-1b")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--checkpoint", action="store_true", help="compute layers again on the way back")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Model(SHAPES[options.shape], options.rank, options.length, options.checkpoint)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    run = model if options.eager else torch.compile(model)
    tokens = torch.randint(0, 1000, (options.batch_size, options.length + 1), device="cuda")

    def step() -> float:
        loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for _ in range(3):
        step()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - start)
    seconds, count = statistics.median(times), options.batch_size * options.length
    peak = torch.cuda.max_memory_allocated() / 2**30
    way = "eager" if options.eager else "compiled"
    print(f"PyTorch {torch.__version__}, {way}, {options.shape}: {1e3 * seconds:.2f} ms a step, {count / seconds:.0f} tokens/s, {peak:.2f} GiB at most, loss {loss:.4f}")


if __name__ == "__main__":
    main()
