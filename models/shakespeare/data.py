"""The text, its byte-level BPE tokenizer, and training batches drawn with BPE dropout.

The text is Tiny Shakespeare (public domain), as collected by Andrej Karpathy:
https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt
"""

import hashlib
import json
import random
import re

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
BOUNDARY = "<|endoftext|>"
VALIDATION_SHARE = 0.1


def read_text(path):
    """Returns (train, validation): the first 90% and the last 10% of the bytes."""
    with open(path, "rb") as file:
        data = file.read()
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{path}: sha256 is {found}, expected {SHA256}; fetch the file named in data.py")
    cut = int(len(data) * (1 - VALIDATION_SHARE))
    return data[:cut].decode("ascii"), data[cut:].decode("ascii")


def train_tokenizer(text, vocab_size):
    """A byte-level BPE with `<|endoftext|>` as token 0, put before every encoded text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOUNDARY],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOUNDARY} $A", special_tokens=[(BOUNDARY, tokenizer.token_to_id(BOUNDARY))]
    )
    return tokenizer


def encode(tokenizer, text):
    return np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)


class Segmenter:
    """Samples segmentations of the text: BPE in which each merge is skipped with probability `dropout`
    (Provilkov et al. 2020, arXiv:1910.13267), which multiplies the ways a short text can be read.

    `variants` segmentations of each distinct word are drawn once; a stream then picks one per occurrence.
    """

    def __init__(self, tokenizer, text, dropout, variants, seed):
        self.vocab = tokenizer.get_vocab()
        self.ranks = merge_ranks(tokenizer)
        self.coin = random.Random(seed)
        words = tokenizer.pre_tokenizer.pre_tokenize_str(text)
        distinct = {}
        self.words = np.array([distinct.setdefault(word, len(distinct)) for word, _ in words])
        after_blank_line = {0} | {match.end() for match in re.finditer("\n\n", text)}
        self.openings = np.array([i for i, (_, span) in enumerate(words) if span[0] in after_blank_line])

        self.variants = variants if dropout else 1
        drawn = [self.segment(word, dropout) for word in distinct for _ in range(self.variants)]
        self.length = np.array([len(ids) for ids in drawn])
        self.offset = np.cumsum(self.length) - self.length
        self.ids = np.array([i for ids in drawn for i in ids], dtype=np.int64)

    def segment(self, word, dropout):
        symbols = list(word)
        while len(symbols) > 1:
            pairs = zip(symbols, symbols[1:])
            merges = [
                (self.ranks[pair], i)
                for i, pair in enumerate(pairs)
                if pair in self.ranks and self.coin.random() >= dropout
            ]
            if not merges:
                break
            _, i = min(merges)
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        return [self.vocab[symbol] for symbol in symbols]

    def stream(self, rng):
        """One reading of the whole text: (token ids, indices of the tokens that open a speech)."""
        segment = self.words * self.variants + rng.integers(self.variants, size=len(self.words))
        length = self.length[segment]
        start = np.cumsum(length) - length
        index = np.repeat(self.offset[segment] - start, length) + np.arange(length.sum())
        return self.ids[index], start[self.openings]


def merge_ranks(tokenizer):
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {tuple(merge): rank for rank, merge in enumerate(merges)}


class Windows:
    """Draws training windows: half open a speech after the boundary token, half begin anywhere."""

    def __init__(self, segmenter, streams, context, boundary, seed):
        self.context, self.boundary = context, boundary
        self.rng = np.random.default_rng(seed)
        ids, openings, anywhere, base = [], [], [], 0
        for _ in range(streams):
            stream, opening = segmenter.stream(self.rng)
            last = len(stream) - context
            openings.append(base + opening[opening <= last])
            anywhere.append(np.arange(base + 1, base + last))
            ids.append(stream)
            base += len(stream)
        self.ids, self.openings, self.anywhere = map(np.concatenate, (ids, openings, anywhere))

    def draw(self, batch):
        """Returns inputs and targets, both i64 [batch, context]."""
        opens = self.rng.random(batch) < 0.5
        start = np.where(opens, self.rng.choice(self.openings, batch), self.rng.choice(self.anywhere, batch))
        targets = self.ids[start[:, None] + np.arange(self.context)]
        inputs = np.concatenate([self.ids[start - 1][:, None], targets[:, :-1]], axis=1)
        inputs[opens, 0] = self.boundary
        return inputs, targets
