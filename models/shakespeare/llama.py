"""A Llama with dropout whose parameters carry the names and shapes of transformers' LlamaForCausalLM."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = c.heads, c.kv_heads, c.head_dim
        self.dropout = c.attention_dropout
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        split = lambda y, heads: y.view(batch, length, heads, self.head_dim).transpose(1, 2)
        q = rotate(split(self.q_proj(x), self.heads), cos, sin)
        k = rotate(split(self.k_proj(x), self.kv_heads), cos, sin)
        v = split(self.v_proj(x), self.kv_heads)
        group = self.heads // self.kv_heads
        k, v = (y.unsqueeze(2).expand(-1, -1, group, -1, -1).flatten(1, 2) for y in (k, v))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.intermediate, bias=False)
        self.down_proj = nn.Linear(c.intermediate, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Norm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.eps = c.norm_eps
        self.weight = nn.Parameter(torch.ones(c.hidden))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self_attn, self.mlp = Attention(c), Mlp(c)
        self.input_layernorm, self.post_attention_layernorm = Norm(c), Norm(c)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x, cos, sin):
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = Norm(c)


class Llama(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.model = Trunk(c)
        self.dropout = nn.Dropout(c.dropout)
        frequency = c.rope_theta ** -(torch.arange(0, c.head_dim, 2) / c.head_dim)
        angle = torch.outer(torch.arange(c.context), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.initialise(c)

    def initialise(self, c):
        """Normal(0.02), the two projections into the residual stream scaled by 1/sqrt(2 layers) as in GPT-2."""
        for name, p in self.named_parameters():
            if p.dim() == 2:
                into_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (2 * c.layers) ** 0.5 if into_residual else 0.02)

    def forward(self, tokens):
        """Logits [batch, length, vocab] of the tokens [batch, length]; the output head is the embedding."""
        cos, sin = self.cos[: tokens.shape[1]], self.sin[: tokens.shape[1]]
        x = self.dropout(self.model.embed_tokens(tokens))
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


def rotate(x, cos, sin):
    """RoPE, half-split form."""
    a, b = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-b, a), dim=-1) * sin).to(x.dtype)
