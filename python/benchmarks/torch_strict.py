"""The bits of a model's loss and gradients in PyTorch on the CPU and on CUDA: plain, and inside elinvar.torch.strict().

    python torch_strict.py              # a tiny Llama, and layers of the 1b shape
"""

import hashlib
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import elinvar.torch

TINY = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=200)
LAYERS = dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=8, vocab_size=1024)


def run(config: dict, tokens: int, dtype: torch.dtype, device: str, is_strict: bool) -> tuple[str, float, float]:
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=512, **config)).to(device, dtype)
    ids = torch.randint(0, config["vocab_size"], (2, tokens), generator=torch.Generator().manual_seed(1)).to(device)
    start = time.perf_counter()
    if is_strict:
        with elinvar.torch.strict():
            output = model(input_ids=ids, labels=ids)
            output.loss.backward()
    else:
        output = model(input_ids=ids, labels=ids)
        output.loss.backward()
    parts = [output.logits, output.loss, *(p.grad for p in model.parameters())]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if part.dim() else part.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:16], output.loss.item(), time.perf_counter() - start


def main() -> None:
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    for name, config, tokens in (("tiny Llama", TINY, 32), ("2 layers of the 1b shape", LAYERS, 24)):
        for dtype in (torch.float32, torch.bfloat16):
            for is_strict in (False, True):
                found = [run(config, tokens, dtype, device, is_strict) for device in devices]
                same = len({bits for bits, _, _ in found}) == 1 if len(found) > 1 else "one device only"
                what = "strict" if is_strict else "plain "
                print(f"{name}, {dtype}, {what}: same bits {same}", *(f"{d} {b} loss {v:.9g} {s:.2f} s" for d, (b, v, s) in zip(devices, found)), sep=" | ", flush=True)


main()
