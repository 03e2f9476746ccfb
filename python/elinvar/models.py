"""Language models and encoders.

>>> model = elinvar.Model.load("path/to/model")
>>> print(model.generate("Once upon a time", max_tokens=40))
>>> for piece in model.stream("Once upon a time"):
...     print(piece, end="", flush=True)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from elinvar import _elinvar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from elinvar._elinvar import Executor

_native: Any = _elinvar

Path = Union[str, "os.PathLike[str]"]
Message = Mapping[str, str]
"""A turn of a conversation: ``{"role": "user", "content": "Hello"}``."""
Prompt = Union[str, Sequence[int], Sequence[Message]]
"""A text, token ids, or the messages of a conversation."""


def _variable(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Tokenizer:
    """A model's tokenizer: ``tokenizer.json``, or what the metadata of a GGUF file describe."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Open the tokenizer of a model's folder or GGUF file.

        Raises:
            OSError: There is no such file.
            ValueError: It is damaged.
            NotImplementedError: A GGUF file has a kind of tokenizer that is not supported.
        """
        return cls(_native.NativeTokenizer(path))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Give the token ids of a text, with the special tokens that the model expects around it.

        ``add_special_tokens=False`` is for what ``apply_chat_template`` gives, which spells them out.
        """
        tokens: list[int] = self._native.encode(text, add_special_tokens)
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Give the text of token ids, without special tokens. Bytes that are no UTF-8 become U+FFFD."""
        text: str = self._native.decode(list(tokens))
        return text

    def apply_chat_template(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """Render a conversation as the model's chat template does.

        Args:
            messages: Each has ``role`` and ``content``.
            add_generation_prompt: End with the beginning of the assistant's turn.
            **variables: What the template gets besides, such as ``enable_thinking=False``.

        Raises:
            NotImplementedError: The model has no chat template.
            ValueError: The template rejects the messages.
        """
        turns = [_turn(message) for message in messages]
        named = [(name, _variable(value)) for name, value in variables.items()]
        text: str = self._native.apply_chat_template(turns, add_generation_prompt, named)
        return text

    def token(self, id: int) -> str | None:
        """Give the token of an id."""
        token: str | None = self._native.token(id)
        return token

    def id(self, token: str) -> int | None:
        """Give the id of a token."""
        id: int | None = self._native.id(token)
        return id

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        size: int = self._native.vocab_size
        return size

    @property
    def bos(self) -> str | None:
        """The token that a text begins with."""
        token: str | None = self._native.bos
        return token

    @property
    def eos(self) -> str | None:
        """The token that ends a text."""
        token: str | None = self._native.eos
        return token

    @property
    def chat_template(self) -> str | None:
        """The source of the chat template, if the model has one."""
        source: str | None = self._native.chat_template
        return source


def _turn(message: Message) -> tuple[str, str]:
    try:
        role, content = message["role"], message["content"]
    except (KeyError, TypeError):
        raise ValueError(f"{message!r} is no message: each has 'role' and 'content'") from None
    unknown = sorted(set(message) - {"role", "content"})
    if unknown:
        raise ValueError(f"a message has '{unknown[0]}', which is not supported: each has 'role' and 'content'")
    if not isinstance(role, str) or not isinstance(content, str):
        raise TypeError(f"{message!r} is no message: 'role' and 'content' are texts")
    return role, content


@dataclass(frozen=True)
class Generation:
    """A generated text. ``str()`` of it is the text."""

    text: str
    """The text, without the stop string and special tokens."""
    tokens: list[int] = field(repr=False)
    """Its tokens, the end token left out."""
    finish: str
    """Why it ended: ``end`` (the model's end token), ``stop`` (a stop string), ``length`` (``max_tokens``), ``context`` (the context is full) or ``cancelled``."""
    prompt_tokens: int
    """Tokens of the prompt."""
    reused_tokens: int
    """Those of them that were in the cache already."""
    prefill_seconds: float
    """Until the prompt was in the cache."""
    first_token_seconds: float
    """Until the first token was chosen."""
    decode_seconds: float
    """From the first token to the end."""

    def __str__(self) -> str:
        return self.text


class Stream(Iterator[str], AsyncIterator[str]):
    """The pieces of a text while it is generated; see :meth:`Model.stream`.

    Dropping or closing it ends the generation with the step under way. It is a context manager, too. ``async for`` waits for a piece on a thread of its own,
    so that the event loop goes on; a task that is cancelled meanwhile closes it.
    """

    def __init__(self, native: Any) -> None:
        self._native = native

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> str:
        try:
            piece: str | None = await asyncio.to_thread(self._native.next)
        except asyncio.CancelledError:
            self.close()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        piece: str | None = self._native.next()
        if piece is None:
            raise StopIteration
        return piece

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the generation."""
        self._native.close()

    @property
    def result(self) -> Generation | None:
        """What was generated; ``None`` before the end, or if it was closed."""
        summary = self._native.result()
        if summary is None:
            return None
        text, tokens, finish, (prompt, reused), (prefill, first, decode) = summary
        return Generation(text, tokens, finish, prompt, reused, prefill, first, decode)


class Model:
    """A language model on a device. Threads may use one at the same time: each generation that is in progress has a cache of its own."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._tokenizer = Tokenizer(native.tokenizer)

    @classmethod
    def load(
        cls,
        path: Path,
        *,
        device: str | Executor = "auto",
        precision: str | None = None,
        threads: int | None = None,
        adapter: Path | None = None,
        context: int | None = None,
        cache_dtype: str = "f32",
        chunk: int | None = None,
        decode_to: str | None = None,
    ) -> Model:
        """Load a model.

        Args:
            path: A GGUF file, or a folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
            device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``metal``, ``metal-sim``; or an executor, which has a precision and threads of its own.
            precision: ``strict`` (the same bits on every device), ``invariant`` (of a row, on one device; the default) or ``fast``.
            threads: Threads of the CPU device; one per core by default.
            adapter: The folder of a LoRA adapter, which is loaded under the name ``default`` and in use.
            context: Tokens of prompt and answer together, at most; by default the model's context, but no more than 4096.
            cache_dtype: How keys and values are stored: ``f32``, ``f16``, ``bf16`` or ``q8_0``.
            chunk: Tokens of a prefill step; by default 256 on a CPU, 1024 on a GPU and 4096 on several NVIDIA GPUs.
            decode_to: Decode quantised weights to ``f32``, ``f16`` or ``bf16`` instead of computing with their blocks.

        Raises:
            OSError: A file is missing.
            ValueError: A file is damaged, or an argument is outside its range.
            NotImplementedError: The model is of an architecture that is not supported.
            MemoryError: It does not fit the device.
            DeviceError: There is no such device.
        """
        model = cls(_native.NativeModel(path, device, precision, threads, context, cache_dtype, chunk, decode_to))
        if adapter is not None:
            model.load_adapter(adapter)
        return model

    def __repr__(self) -> str:
        architecture, (vocab_size, hidden_size, layers, _) = self._native.config
        return f"<elinvar model {architecture}: {layers} layers of {hidden_size}, {vocab_size} tokens, on {self.device}>"

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return self._tokenizer

    @property
    def device(self) -> str:
        """The name of the device it is on."""
        name: str = self._native.device
        return name

    @property
    def precision(self) -> str:
        """``strict``, ``invariant`` or ``fast``."""
        precision: str = self._native.precision
        return precision

    @property
    def context(self) -> int:
        """Tokens of prompt and answer together, at most."""
        context: int = self._native.context
        return context

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding: the length of a row of logits."""
        size: int = self._native.config[1][0]
        return size

    def _tokens(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            return self._tokenizer.encode(prompt)
        items: list[Any] = list(prompt)
        if items and isinstance(items[0], Mapping):
            return self._tokenizer.encode(self._tokenizer.apply_chat_template(items), add_special_tokens=False)
        return [int(token) for token in items]

    def stream(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 200,
        stop: str | Sequence[str] = (),
        greedy: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int = 0,
    ) -> Stream:
        """Continue a prompt, piece by piece.

        Other threads run while a token is computed, and an interrupt ends the generation at once.

        Args:
            prompt: A text, token ids, or the messages of a conversation, which the chat template renders.
            max_tokens: Tokens to generate, at most.
            stop: Texts that end the answer; they are not part of it.
            greedy: Always take the most likely token.
            temperature: Divides the logits; 0 is greedy.
            top_k: Keep so many of the most likely tokens; 0 keeps all.
            top_p: Keep the most likely tokens up to this cumulative probability.
            min_p: Drop tokens less likely than this fraction of the most likely.
            repetition_penalty: Penalise the logits of tokens that occurred by this factor.
            seed: Chooses the random numbers.

        What is not given is as the model's ``generation_config.json`` recommends.

        Raises:
            ValueError: An empty prompt, one that leaves no room in the context, or settings outside their range.
            NotImplementedError: Messages for a model without a chat template.
        """
        stops = [stop] if isinstance(stop, str) else list(stop)
        if greedy and (temperature, top_k, top_p, min_p) != (None,) * 4:
            raise ValueError("greedy takes the most likely token: leave out temperature, top_k, top_p and min_p")
        tokens = self._tokens(prompt)
        native = self._native.stream(tokens, max_tokens, stops, greedy, temperature, top_k, top_p, min_p, repetition_penalty, seed)
        return Stream(native)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 200,
        stop: str | Sequence[str] = (),
        greedy: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int = 0,
    ) -> Generation:
        """Continue a prompt to the end; arguments and errors as :meth:`stream`'s."""
        stream = self.stream(
            prompt,
            max_tokens=max_tokens,
            stop=stop,
            greedy=greedy,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        )
        for _ in stream:
            pass
        result = stream.result
        if result is None:
            raise RuntimeError("the generation was ended by another thread")
        return result

    def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int = 512,
        stop: str | Sequence[str] = (),
        greedy: bool = False,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int = 0,
        **variables: Any,
    ) -> Generation:
        """Answer a conversation: :meth:`generate` of what the model's chat template makes of the messages.

        What a turn shares with the one before stays in the cache and is not computed again.

        Args:
            messages: Each has ``role`` and ``content``.
            **variables: What the template gets besides, such as ``enable_thinking=False``.
        """
        prompt = self._tokenizer.apply_chat_template(messages, **variables)
        return self.generate(
            self._tokenizer.encode(prompt, add_special_tokens=False),
            max_tokens=max_tokens,
            stop=stop,
            greedy=greedy,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            seed=seed,
        )

    def logits(self, tokens: str | Sequence[int]) -> NDArray[np.float32]:
        """Give the logits after each token of a text: float32, ``[tokens, vocab_size]``.

        Raises:
            ValueError: No tokens, one outside the vocabulary, or more than the model's context has.
        """
        ids = self._tokens(tokens)
        values = np.frombuffer(self._native.logits(ids), dtype=np.float32)
        return values.reshape(len(ids), self.vocab_size)

    def load_adapter(self, path: Path, name: str = "default") -> None:
        """Load a LoRA adapter, as PEFT and :func:`elinvar.lora.train` write it, and go on with it.

        Raises:
            OSError: A file is missing.
            ValueError: It is of another model, or the name is taken.
        """
        self._native.load_adapter(name, path)
        self._native.set_adapter(name)

    def unload_adapter(self, name: str = "default") -> None:
        """Drop an adapter. If it was in use, the model goes on without one."""
        self._native.unload_adapter(name)

    @property
    def adapter(self) -> str | None:
        """The name of the adapter in use; set it to another one that is loaded, or to ``None``."""
        name: str | None = self._native.adapter
        return name

    @adapter.setter
    def adapter(self, name: str | None) -> None:
        self._native.set_adapter(name)

    @property
    def adapters(self) -> list[str]:
        """The names of the adapters that are loaded."""
        names: list[str] = self._native.adapters
        return names

    def save_merged(self, adapter: Path, output: Path) -> None:
        """Write the model with an adapter in its weights to a new folder.

        Raises:
            ValueError: An adapter of another model, or a folder that exists.
            NotImplementedError: The model is a GGUF file.
        """
        self._native.save_merged(adapter, output)


class Encoder:
    """A model that gives vectors for texts: BERT's family, such as MiniLM, E5 and BGE."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @classmethod
    def load(cls, path: Path, *, device: str | Executor = "auto", precision: str | None = None, threads: int | None = None) -> Encoder:
        """Load an encoder from a folder, with sentence-transformers' files where they are there, or from a GGUF file.

        Arguments and errors as :meth:`Model.load`'s. In strict or invariant precision each text has the bits that it has alone.
        """
        return cls(_native.NativeEncoder(path, device, precision, threads))

    def __repr__(self) -> str:
        return f"<elinvar encoder of {self.dimensions} dimensions, pooling {self._native.options[0]}, on {self.device}>"

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return Tokenizer(self._native.tokenizer)

    @property
    def device(self) -> str:
        """The name of the device it is on."""
        name: str = self._native.device
        return name

    @property
    def dimensions(self) -> int:
        """Elements of a vector."""
        count: int = self._native.dimensions
        return count

    @property
    def max_tokens(self) -> int:
        """Tokens of a text at most, those around it included."""
        most: int = self._native.max_tokens
        return most

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_tokens: int | None = None,
        prefix: str | None = None,
    ) -> NDArray[np.float32]:
        """Give the vectors of texts: float32, ``[texts, dimensions]``; of a single text ``[dimensions]``.

        Args:
            texts: A text, or several, which are computed together, packed.
            pooling: ``mean``, ``cls`` (the first token) or ``last``.
            normalize: Divide each vector by its length.
            max_tokens: Cut longer texts to so many tokens; :meth:`count_tokens` shows which texts are longer.
            prefix: Put this before each text: E5 was trained with ``query: `` and ``passage: ``.

        What is not given is as the model's files say.

        Raises:
            ValueError: An empty text, or an argument outside its range.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        values, _, _ = self._native.embed(several, pooling, normalize, max_tokens, prefix)
        vectors = np.frombuffer(values, dtype=np.float32).reshape(len(several), self.dimensions)
        return vectors[0] if isinstance(texts, str) else vectors

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Give the number of tokens of each text, before it is cut."""
        tokenizer = self.tokenizer
        return [len(tokenizer.encode(text)) for text in texts]
