"""Threads that share everything: on a free-threaded Python they run at once."""

import copy
import pickle
import subprocess
import sys
import sysconfig
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import elinvar

SHAKESPEARE = Path(__file__).parents[2] / "models" / "shakespeare"
SAXPY = (Path(__file__).parents[2] / "examples/saxpy.atlas").read_text()
THREADS, ROUNDS = 6, 8

is_free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.mark.skipif(not is_free_threaded, reason="this Python has a global lock")
@pytest.mark.parametrize("module", ["elinvar", "elinvar.array_api", "elinvar.lora", "elinvar.torch"])
def test_importing_leaves_the_global_lock_off(module):
    if module == "elinvar.torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    script = f"import sys, {module}; sys.exit(sys._is_gil_enabled())"
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


@elinvar.fuse
def gate(x, y, by):
    return elinvar.ops.silu(x) * y + by


def works(executor):
    """Pieces of work by name, which give bytes and share an executor, tensors, an array, a program, a fused function and a kernel."""
    array = np.random.default_rng(1).standard_normal((24, 24)).astype(np.float32)
    x, lent, row = executor.tensor(array, copy=True), executor.tensor(array), executor.randn((24,), seed=2)
    program = elinvar.Program.from_text(SAXPY)

    def gradients():
        w = executor.tensor(array, requires_grad=True, copy=True)
        (elinvar.ops.softmax(w @ x) * row).sum().backward()
        with elinvar.no_grad():
            w -= 0.1 * w.grad
        return w.tobytes()

    def saxpy():
        y = np.ones(576, np.float32)
        program.run(executor, {"x": lent.flatten(), "y": y, "a": 2.5, "n": 576}, threads=576)
        return y.tobytes()

    def in_place():
        y = x.copy()
        y += row
        y[3:] *= 2.0
        return np.from_dlpack(y).tobytes() + y.numpy().tobytes()

    def passed_on():
        return pickle.loads(pickle.dumps(x)).tobytes() + copy.deepcopy(lent).tobytes() + x.T.to("cpu").tobytes()

    found = {
        "operators": lambda: ((x @ lent).exp().mean(axis=0) + row).tobytes(),
        "types and shapes": lambda: b"".join((x[: n + 1].astype("float16") * 2).tobytes() for n in range(24)),
        "gradients": gradients,
        "functions of gradients": lambda: elinvar.grad(lambda w: (w * w * row).sum())(x).tobytes(),
        "programs": saxpy,
        "fused": lambda: gate(x, row, 0.5).tobytes() + gate(lent[:7], row, 1.5).tobytes(),
        "in place": in_place,
        "passed on": passed_on,
    }
    if any(device.backend == "metal-sim" and device.available for device in elinvar.devices()):
        source = "uint i = thread_position_in_grid.x;\ny[i] = T(2) * x[i];"
        twice = elinvar.metal_kernel(source, name="twice", inputs=["x"], outputs=["y"])
        shape = {"threads": 576, "output_shapes": [(576,)], "output_dtypes": [elinvar.float32], "template": {"T": elinvar.float32}}
        found["kernels"] = lambda: twice(lent, **shape)[0].tobytes()
    return found


def alone_and_at_once(works, rounds=ROUNDS):
    alone = {name: work() for name, work in works.items()}
    start = threading.Barrier(THREADS)

    def repeat(index):
        names = list(works)[index % len(works) :] + list(works)[: index % len(works)]
        start.wait()
        return [name for _ in range(rounds) for name in names if works[name]() != alone[name]]

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(repeat, range(THREADS))) == [[]] * THREADS


def test_threads_at_once_get_the_bits_they_get_alone():
    # An executor of its own: what it has planned and compiled is of these threads.
    alone_and_at_once(works(elinvar.Executor("cpu", threads=2, precision="strict")))


def test_what_is_new_is_made_by_several_threads_at_once():
    """Nobody has computed, planned or compiled anything before them."""
    expected = {name: work() for name, work in works(elinvar.Executor("cpu", threads=2, precision="strict")).items()}
    shared, start = works(elinvar.Executor("cpu", threads=2, precision="strict")), threading.Barrier(THREADS)

    def first(_):
        start.wait()
        return {name: work() for name, work in shared.items()}

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(found == expected for found in pool.map(first, range(THREADS)))


def test_threads_record_one_executor_at_the_same_time():
    executor, start = elinvar.Executor("cpu", threads=2), threading.Barrier(2)
    x = executor.ones((8,))

    def record(factor):
        with executor.record() as recording:
            start.wait()
            y = (x * factor).exp()
            with pytest.raises(RuntimeError, match="this thread records the executor already"), executor.record():
                pass
            start.wait()
        recording.replay()
        return y.tobytes()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(record, [0.5, 2.0])) == [(x * factor).exp().tobytes() for factor in (0.5, 2.0)]

    with executor.record(), ThreadPoolExecutor(1) as pool:
        with pytest.raises(RuntimeError, match="another thread started this recording"):
            pool.submit(executor.record().__exit__, None, None, None).result()


def test_a_recording_has_what_its_thread_asks_and_nothing_else():
    executor = elinvar.Executor("cpu", threads=2, precision="strict")
    x, recorded, stop = executor.ones((8,)), threading.Event(), threading.Event()

    def beside():
        recorded.wait()
        found = [(x + 1).tobytes()]
        while not stop.is_set():
            found.append((x + 1).tobytes())
        return set(found)

    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(beside) for _ in range(2)]
        with executor.record() as recording:
            recorded.set()
            y = x
            for _ in range(50):
                y = y * 1.5
        for _ in range(20):
            recording.replay()
        stop.set()
        assert [other.result() for other in others] == [{np.full(8, 2, np.float32).tobytes()}] * 2
    assert y.tobytes() == np.cumprod(np.full((50, 8), 1.5, np.float32), axis=0)[-1].tobytes()


def test_models_and_tokenizers_of_several_threads():
    model = elinvar.Model.load(SHAKESPEARE, device="cpu", precision="strict")
    tokens = model.tokenizer.encode("To be, or not to be")

    def say(prompt):
        return lambda: model.generate(prompt, max_tokens=12, seed=1, temperature=0.8).text.encode()

    found = {prompt: say(prompt) for prompt in ("ROMEO:", "KING", "What")}
    found["stream"] = lambda: "".join(model.stream("KING", max_tokens=12, greedy=True)).encode()
    found["logits"] = lambda: model.logits(tokens).tobytes()
    found["tokens"] = lambda: model.tokenizer.decode(model.tokenizer.encode("Now is the winter")).encode()
    alone_and_at_once(found, rounds=2)
