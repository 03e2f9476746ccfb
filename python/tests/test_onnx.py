"""The ONNX standard's node tests through the Python API.

By default the cases of some operators, on the CPU and on the simulator. ELINVAR_ONNX=all runs every case, ELINVAR_ONNX_DEVICE=cuda on another device:
`ELINVAR_ONNX=all pytest -s tests/test_onnx.py` prints what is inapplicable, and why.
"""

import collections
import os

import pytest

import elinvar

pytest.importorskip("onnx", reason="the package onnx is not installed")

import onnx_adapter  # noqa: E402

# Modules of onnx that make their cases at once, for one or more operators each.
SAMPLE = {"add", "softmax", "rmsnormalization", "layernormalization", "scatternd", "slice", "topk", "gemm", "clip", "trilu", "cumsum", "einsum"}

# Cases of every version of onnx that are known to be inapplicable, by what their reasons begin with.
REASONS = ("no operator takes ", "a cast to a type that ", "TensorScatter along ", "Einsum with one letter twice")


def outcome(executor, cases):
    passed, failed, inapplicable = [], [], collections.defaultdict(list)
    for case in cases:
        try:
            onnx_adapter.run(case, executor)
            passed.append(case.name)
        except onnx_adapter.Inapplicable as reason:
            inapplicable[str(reason)].append(case.name)
        except Exception as error:
            failed.append(f"{case.name}: {type(error).__name__}: {error}")
    for reason, names in inapplicable.items():
        print(f"not applicable ({len(names)}): {reason}\n    {' '.join(names)}")
    print(f"{executor}: {len(passed)} passed, {len(failed)} failed, {sum(map(len, inapplicable.values()))} not applicable")
    assert not failed, "\n".join(failed)
    assert all(reason.startswith(REASONS) for reason in inapplicable)
    return passed


def test_every_case_passes_or_says_why_it_cannot(cpu):
    if os.environ.get("ELINVAR_ONNX") == "all":
        device = os.environ.get("ELINVAR_ONNX_DEVICE", "cpu")
        assert len(outcome(cpu if device == "cpu" else elinvar.Executor(device), onnx_adapter.cases())) > 600
    else:
        assert len(outcome(cpu, onnx_adapter.cases(modules=SAMPLE))) > 60


def test_a_sample_passes_on_the_simulator(simulator):
    assert len(outcome(simulator, onnx_adapter.cases({"Softmax", "RMSNormalization", "Trilu"}, modules=SAMPLE))) > 15
