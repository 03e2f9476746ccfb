"""Fine-tuning by LoRA, DoRA, or of whole matrices.

>>> result = elinvar.lora.train(model, [{"prompt": "2 + 2 =", "completion": " 4"}], adapter_path="adapter", iters=100, progress=True)
>>> model.load_adapter(result.adapter_path)
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, Union

from elinvar import _elinvar
from elinvar.models import Model

_native: Any = _elinvar

Samples = Sequence[Union[str, Mapping[str, Any]]]
"""Texts, or dictionaries as the lines of ``train.jsonl`` have them: ``text``; ``prompt`` and ``completion``; ``messages``; for DPO ``prompt``, ``chosen``, ``rejected``."""


@dataclass(frozen=True)
class TrainingStep:
    """What a step of training found."""

    step: int
    """Its number, from 1."""
    steps: int
    """Steps in all."""
    loss: float
    """The mean loss of its tokens before it."""
    gradient_norm: float
    """The length of its gradient, before it was clipped."""
    learning_rate: float
    tokens: int
    """Tokens that it was computed of."""
    seconds: float
    rewards: tuple[float, float, float] | None
    """With DPO: the mean rewards of chosen and rejected texts, and how many pairs are in order."""


@dataclass(frozen=True)
class TrainingResult:
    """A training to its end."""

    adapter_path: str
    """The folder with the adapter, its checkpoint and its log."""
    parameters: int
    """Numbers that were trained."""
    steps: list[TrainingStep] = field(repr=False)
    validation_losses: list[tuple[int, float]]
    """The mean losses of the validation set, each with the step that it follows."""


class ProgressBar:
    """A bar on standard error; give it as ``on_step``, or pass ``progress=True``."""

    def __init__(self, out: TextIO | None = None, width: int = 30) -> None:
        self._out = sys.stderr if out is None else out
        self._width = width
        self._begun: tuple[float, int] | None = None

    def __call__(self, step: TrainingStep) -> None:
        now = time.monotonic()
        if self._begun is None:
            self._begun = (now - step.seconds, step.step - 1)
        start, first = self._begun
        left = (now - start) * (step.steps - step.step) / (step.step - first)
        filled = self._width * step.step // step.steps
        bar = "█" * filled + "░" * (self._width - filled)
        self._out.write(f"\r{bar} step {step.step} of {step.steps}, loss {step.loss:.4f}, {int(left) // 60}:{int(left) % 60:02} left ")
        if step.step == step.steps:
            self._out.write("\n")
        self._out.flush()


def _write(folder: Path, name: str, samples: Samples) -> Path:
    lines = [json.dumps({"text": sample} if isinstance(sample, str) else dict(sample)) for sample in samples]
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def train(
    model: Model,
    data: str | os.PathLike[str] | Samples,
    *,
    validation: Samples | None = None,
    adapter_path: str | os.PathLike[str] = "adapters",
    iters: int = 1000,
    batch_size: int = 4,
    grad_accumulation_steps: int = 1,
    num_layers: int = 16,
    fine_tune_type: str = "lora",
    rank: int = 8,
    alpha: float | None = None,
    rslora: bool = False,
    lora_dropout: float = 0.0,
    target_modules: Sequence[str] = (),
    learning_rate: float = 1e-4,
    schedule: str = "constant",
    warmup: int = 0,
    optimizer: str = "adamw",
    weight_decay: float | None = None,
    clip: float = 1.0,
    loss: str = "cross-entropy",
    beta: float = 0.1,
    mask_prompt: bool = False,
    pack: bool = False,
    grad_checkpoint: bool | str = False,
    resume_adapter_file: str | os.PathLike[str] | None = None,
    resume: bool = False,
    max_seq_length: int | None = None,
    steps_per_eval: int = 200,
    val_batches: int = 25,
    patience: int | None = None,
    save_every: int = 100,
    seed: int = 0,
    on_step: Callable[[TrainingStep], object] | None = None,
    progress: bool = False,
) -> TrainingResult:
    """Train an adapter of a model, which stays as it is.

    The options have the names, the meanings and the defaults of ``elinvar lora train``.

    Args:
        model: The model. An adapter that it has in use takes no part. On several devices each gets the whole model beside its part, and they share the
            batches of a step, so ``grad_accumulation_steps`` is a multiple of their number.
        data: A folder with ``train.jsonl``, and ``valid.jsonl`` if there is one; or samples.
        validation: Samples to evaluate on, where ``data`` are samples.
        adapter_path: The folder for adapter, checkpoint and log.
        grad_checkpoint: Compute again on the way back what takes memory to keep: ``True`` or ``"layers"`` for whole layers, ``"feed-forward"`` for the
            feed-forward networks and what is no linear layer.
        on_step: Called after each step. What it raises ends the training and is raised; what was saved last stays.
        progress: Show a bar on standard error.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: A sample that is none or too long, or an option outside its range.
        MemoryError: The training does not fit the device.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if isinstance(data, (str, os.PathLike)):
            if validation is not None:
                raise ValueError("validation is for samples: a folder has valid.jsonl")
            train_file = Path(data) / "train.jsonl"
            found = Path(data) / "valid.jsonl"
            valid_file = found if found.exists() else None
        else:
            train_file = _write(Path(scratch), "train.jsonl", data)
            valid_file = None if validation is None else _write(Path(scratch), "valid.jsonl", validation)
        options = {
            "train": train_file,
            "valid": valid_file,
            "adapter_path": adapter_path,
            "iters": iters,
            "batch_size": batch_size,
            "grad_accumulation_steps": grad_accumulation_steps,
            "num_layers": num_layers,
            "fine_tune_type": fine_tune_type,
            "rank": rank,
            "alpha": alpha,
            "rslora": rslora,
            "lora_dropout": lora_dropout,
            "target_modules": list(target_modules),
            "learning_rate": learning_rate,
            "schedule": schedule,
            "warmup": warmup,
            "optimizer": optimizer,
            "weight_decay": weight_decay,
            "clip": clip,
            "loss": loss,
            "beta": beta,
            "mask_prompt": mask_prompt,
            "pack": pack,
            "grad_checkpoint": str(grad_checkpoint).lower() if isinstance(grad_checkpoint, bool) else grad_checkpoint,
            "resume_adapter_file": resume_adapter_file,
            "resume": resume,
            "max_seq_length": max_seq_length,
            "steps_per_eval": steps_per_eval,
            "val_batches": val_batches,
            "patience": patience,
            "save_every": save_every,
            "seed": seed,
        }
        parameters = 0
        taken: list[TrainingStep] = []
        losses: list[tuple[int, float]] = []
        bar = ProgressBar() if progress else None

        def listen(event: str, numbers: tuple[Any, ...]) -> None:
            nonlocal parameters
            if event == "begun":
                parameters = numbers[0]
            elif event == "validated":
                losses.append((numbers[0], numbers[1]))
            elif event == "step":
                step = TrainingStep(numbers[0], iters, *numbers[1:])
                taken.append(step)
                if bar is not None:
                    bar(step)
                if on_step is not None:
                    on_step(step)

        _native._train(model._native, options, listen)
    return TrainingResult(os.fspath(adapter_path), parameters, taken, losses)
