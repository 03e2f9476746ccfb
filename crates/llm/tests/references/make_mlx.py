#!/usr/bin/env python3
"""Makes the reference file of a model that MLX has quantised: logits of a tiny Qwen3 by mlx-lm, in f32 on a CPU.

    pip install mlx[cpu] mlx-lm      (the file was made with mlx 0.32.4 and mlx-lm 0.32.2)
    python3 make_mlx.py              (writes quantised/qwen3.json and quantised/qwen3.f32)

The files are as those of make.py. Of a quantised layer, words, scales and biases follow from the names of `X.weight` and `X.scales`: `layer`, here and in the
test that reads these files. Scales and biases are bf16.
"""

import json
import pathlib

import mlx.core as mx
import numpy as np
from mlx_lm.models import qwen3
from mlx_lm.utils import load_model

TOKENS = [(i * i * 7 + i * 3 + 5) % 29 for i in range(40)]
CONFIG = dict(
    architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=29, hidden_size=128, intermediate_size=192, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=128, rms_norm_eps=1e-6, rope_theta=10000.0, hidden_act="silu",
    tie_word_embeddings=True,
)
GROUPS = {"group_size": 64, "bits": 4, "mode": "affine"}
OTHERS = {
    "model.embed_tokens": {"group_size": 128, "bits": 6},
    "model.layers.0.self_attn.q_proj": {"group_size": 32, "bits": 3},
    "model.layers.0.self_attn.k_proj": False,
    "model.layers.0.mlp.gate_proj": {"group_size": 64, "bits": 2},
    "model.layers.1.self_attn.o_proj": {"group_size": 128, "bits": 5},
    "model.layers.1.mlp.down_proj": {"group_size": 32, "bits": 8},
}


def random(name, count):
    """The generator of make.py: numbers of 64 bits, seeded by the name's FNV-1a hash."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    numbers = []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers.append(state)
    return np.array(numbers, np.uint64)


def uniform(name, count):
    return (random(name, count) >> 40).astype(np.float32) / np.float32(2**23) - np.float32(1)


def layer(name, rows, columns, groups):
    """Words, scales and biases: weights have the variance 1 / columns."""
    size, bits = groups["group_size"], groups["bits"]
    words = (random(f"{name}.weight", rows * columns * bits // 32) >> 32).astype(np.uint32).reshape(rows, -1)
    u = uniform(f"{name}.scales", rows * columns // size)
    top = np.float32(2**bits - 1)
    scales = np.copysign(np.float32(0.5) + np.float32(0.5) * np.abs(u), u) * np.sqrt(np.float32(12) / np.float32(columns)) / top
    scales = mx.array(scales).astype(mx.bfloat16).astype(mx.float32)
    biases = (scales * mx.array(-top / 2)).astype(mx.bfloat16).astype(mx.float32)
    return {
        f"{name}.weight": mx.array(words),
        f"{name}.scales": scales.reshape(rows, -1),
        f"{name}.biases": biases.reshape(rows, -1),
    }


def main():
    import tempfile

    tensors, shapes = {}, {}
    model = qwen3.Model(qwen3.ModelArgs.from_dict(CONFIG))
    from mlx.utils import tree_flatten

    for name, value in tree_flatten(model.parameters()):
        path = name.removesuffix(".weight")
        groups = OTHERS.get(path, GROUPS)
        if value.ndim == 2 and groups:
            tensors |= layer(path, *value.shape, groups)
        else:
            numbers = uniform(name, value.size)
            numbers = np.float32(0.5) * numbers + np.float32(1) if value.ndim == 1 else np.sqrt(np.float32(3) / np.float32(value.shape[1])) * numbers
            tensors[name] = mx.array(numbers.reshape(value.shape))
    config = CONFIG | {"quantization": GROUPS | OTHERS}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "config.json").write_text(json.dumps(config))
        mx.save_safetensors(str(folder / "model.safetensors"), tensors)
        model, _ = load_model(folder)
        logits = np.array(model(mx.array([TOKENS]))[0])
    out = pathlib.Path(__file__).parent / "quantised"
    out.mkdir(exist_ok=True)
    lines = [f'"config": {json.dumps(config)}', '"tensors": {\n' + ",\n".join(f"{json.dumps(t)}: {list(v.shape)}" for t, v in sorted(tensors.items())) + "}"]
    (out / "qwen3.json").write_text("{" + ",\n".join(lines) + "}\n")
    logits.astype("<f4").tofile(out / "qwen3.f32")
    print(float(np.abs(logits).max()), float(logits.std()))


main()
