#!/usr/bin/env python3
"""Makes the reference files of this folder: vectors of tiny encoders by Hugging Face transformers, in f32 on a CPU.

    pip install torch transformers      (the files were made with torch 2.15 and transformers 5.23)
    python3 make.py                     (writes NAME.json and NAME.f32 for each model below)

NAME.json has the model's config.json as transformers saves it, and the shapes of its tensors. NAME.f32 has little-endian f32: for each text the mean of its
tokens' vectors, the first, and the last. Weights are in no file: each follows from the tensor's name, with `norm` for `LayerNorm` (`values` of ../make.py), and
so do the texts (`texts`).
"""

import importlib.util
import json
import pathlib

import numpy as np
import torch
from transformers import BertConfig, BertModel

FOLDER = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("references", FOLDER.parent / "make.py")
REFERENCES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(REFERENCES)

VOCABULARY = 29
# [PAD], [UNK], [CLS] and [SEP], then words.
CLS, SEP, FIRST_WORD = 2, 3, 4
# Words of each text. The last text is cut.
LENGTHS = [1, 7, 38, 7, 20, 90]

BASE = dict(vocab_size=VOCABULARY, hidden_size=36, intermediate_size=44, num_hidden_layers=2, num_attention_heads=6, max_position_embeddings=64)
MODELS = {
    "bert": dict(),
    "bert-tanh": dict(hidden_act="gelu_new", num_hidden_layers=1, num_attention_heads=3, type_vocab_size=1, layer_norm_eps=1e-5),
    "bert-relu": dict(hidden_act="relu", num_hidden_layers=1),
}


def texts(most):
    words = [[FIRST_WORD + (i * i * 7 + i * 3 + n) % (VOCABULARY - FIRST_WORD) for i in range(n)] for n in LENGTHS]
    return [[CLS, *text[: most - 2], SEP] for text in words]


def main():
    for name, keys in MODELS.items():
        config = BertConfig(**{**BASE, **keys})
        model = BertModel(config, add_pooling_layer=False).eval()
        model.config._attn_implementation = "eager"
        with torch.no_grad():
            for tensor, weight in model.named_parameters():
                weight.copy_(REFERENCES.values(tensor.replace("LayerNorm", "norm"), weight.shape, "bert"))
            vectors = []
            for text in texts(config.max_position_embeddings):
                tokens = model(torch.tensor([text])).last_hidden_state[0]
                vectors += [tokens.mean(0), tokens[0], tokens[-1]]
        saved = json.loads(config.to_json_string())
        saved["architectures"] = ["BertModel"]
        saved.pop("transformers_version")
        shapes = {tensor: list(weight.shape) for tensor, weight in model.named_parameters()}
        lines = [f'"config": {json.dumps(saved)}', '"tensors": {\n' + ",\n".join(f"{json.dumps(t)}: {d}" for t, d in shapes.items()) + "}"]
        (FOLDER / f"{name}.json").write_text("{" + ",\n".join(lines) + "}\n")
        torch.stack(vectors).numpy().astype("<f4").tofile(FOLDER / f"{name}.f32")
        print(name, float(np.abs(torch.stack(vectors).numpy()).max()))


if __name__ == "__main__":
    main()
