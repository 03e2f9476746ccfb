"""Memory shared with NumPy and others: what is copied, what may be written, and what keeps it."""

import asyncio
import gc
import mmap
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import elinvar


def address(array):
    return array.__array_interface__["data"][0]


class Producer:
    """An array that speaks one version of DLPack."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **named):
        if self.versioned:
            return self.array.__dlpack__(**named)
        if named:
            raise TypeError(f"unexpected {named}")
        return self.array.__dlpack__()


@pytest.mark.parametrize("name", ["float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"])
def test_arrays_are_shared_in_both_directions(cpu, name):
    a = np.array([[0, 1, 1], [1, 0, 1]]).astype(name)
    for view in [a, a.T, a[:, ::-1], a[1:, 1:], a[::2]]:
        for x in [cpu.tensor(view), cpu.from_dlpack(view), cpu.tensor(Producer(view, True)), cpu.tensor(Producer(view, False))]:
            assert x.dtype.name == name and x.shape == view.shape
            assert address(x.numpy()) == address(np.asarray(x)) == address(np.from_dlpack(x)) == address(view)
            # The stride of an axis of one entry means nothing.
            strides = [(a, b) for a, b, extent in zip(x.numpy().strides, view.strides, view.shape) if extent > 1]
            assert all(a == b for a, b in strides) and (x.numpy() == view).all()


def test_bfloat16_is_shared(cpu):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.array([1.0, 2.5], ml_dtypes.bfloat16)
    x = cpu.tensor(a)
    assert x.dtype == elinvar.bfloat16 and address(x.numpy()) == address(a) and x.numpy().dtype == a.dtype
    assert cpu.tensor(np.array([1.5], np.float32), "bfloat16").item() == 1.5


def test_changes_are_seen_on_both_sides(cpu):
    a = np.zeros(4, np.float32)
    x = cpu.tensor(a)
    y = x + 1
    a[0] = 5
    assert y.tolist() == [1.0] * 4 and x.tolist() == [5.0, 0.0, 0.0, 0.0]
    x += 1
    assert a.tolist() == [6.0, 1.0, 1.0, 1.0]
    y.numpy()[1] = 9
    np.from_dlpack(y)[2] = 8
    assert y.tolist() == [1.0, 9.0, 8.0, 1.0]


def test_memory_that_may_only_be_read_is_not_written(cpu):
    a = np.zeros(4, np.float32)
    a.flags.writeable = False
    for x in [cpu.tensor(a), cpu.from_dlpack(a)]:
        assert address(x.numpy()) == address(a) and not x.numpy().flags.writeable
        assert not np.from_dlpack(x).flags.writeable
        for write in [lambda: x.__iadd__(1), lambda: x.__setitem__(0, 1.0), lambda: x[1:].__imul__(2)]:
            with pytest.raises(ValueError, match="read-only"):
                write()
        with pytest.raises(BufferError, match="may only be read"):
            x.__dlpack__()
        assert x.copy().numpy().flags.writeable
    assert not a.any()


def test_what_copies(cpu):
    a = np.arange(4, dtype=np.float32)
    assert address(cpu.tensor(a, copy=True).numpy()) != address(a) and address(cpu.tensor(a, copy=False).numpy()) == address(a)
    x = cpu.tensor(a)
    assert address(x.numpy(copy=True)) != address(a) and address(np.array(x)) != address(a)
    assert np.asarray(x, dtype=np.float64).dtype == np.float64 and cpu.tensor(x).numpy(copy=False).base is not None
    assert address(np.from_dlpack(x, copy=True)) != address(a) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else True
    assert cpu.tensor(np.arange(3.0)).dtype == elinvar.float32 and cpu.tensor(np.arange(3.0), "float64").dtype == elinvar.float64
    assert cpu.tensor(a.astype(">f4")).tolist() == a.tolist() and cpu.tensor(np.zeros((2, 0), np.int8)).numpy().shape == (2, 0)
    unaligned = np.frombuffer(b"\0" + a.tobytes(), np.float32, offset=1)
    assert cpu.tensor(unaligned).tolist() == a.tolist()
    record = np.zeros(3, np.dtype([("a", "i1"), ("b", "<f4")]))
    record["b"] = [1, 2, 3]
    assert cpu.tensor(record["b"]).tolist() == [1.0, 2.0, 3.0]
    assert cpu.tensor(np.float32(1.5)).item() == 1.5 and cpu.tensor(np.array(2, np.int8)).item() == 2
    for wrong in [lambda: cpu.tensor(a, "int32", copy=False), lambda: cpu.tensor(unaligned, copy=False), lambda: np.array(x, np.int8, copy=False)]:
        with pytest.raises(ValueError, match="copy=False|needs a copy"):
            wrong()


def test_what_is_no_array(cpu):
    for wrong in ["text", object(), [[1], [2, 3]], np.zeros(2, np.complex64), {"a": 1}]:
        with pytest.raises((TypeError, ValueError)):
            cpu.tensor(wrong)
    with pytest.raises(ValueError, match="dtype 'float8'"):
        cpu.tensor([1.0], "float8")
    with pytest.raises(TypeError, match="no __dlpack__"):
        cpu.from_dlpack([1.0])
    taken = np.zeros(2).__dlpack__()

    class Twice:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **named):
            return taken

    cpu.from_dlpack(Twice())
    with pytest.raises(TypeError, match="taken before"):
        cpu.from_dlpack(Twice())

    class Elsewhere(Twice):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(ValueError, match=r"device \(2, 0\) cannot be taken by cpu"):
        cpu.from_dlpack(Elsewhere())
    x = cpu.ones((2,))
    with pytest.raises(BufferError, match="no stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="was asked for"):
        x.__dlpack__(dl_device=(2, 0))


def test_consumers_outlive_producers_and_executors():
    executor = elinvar.Executor("cpu", threads=1)
    a = np.arange(1000, dtype=np.float32)
    expected, gone = a + 1, weakref.ref(a)
    x = executor.tensor(a)
    y = x + 1
    seen, lent = y.numpy(), np.from_dlpack(y)
    view = x[10:20].numpy()
    del executor, y, a, x
    gc.collect()
    assert (seen == expected).all() and (lent == expected).all() and view[0] == 10 and gone() is not None
    del view
    gc.collect()
    assert gone() is None
    del lent
    assert (seen == expected).all()


def test_memory_comes_back_in_any_order(cpu):
    for order in range(6):
        a = np.zeros(64, np.float32)
        gone = weakref.ref(a)
        held = [cpu.from_dlpack(a), a]
        held += [held[0].numpy(), np.from_dlpack(held[0]), held[0].__dlpack__(max_version=(1, 0)), held[0].__dlpack__()]
        del a
        held = held[order:] + held[:order]
        while held:
            assert gone() is not None or not held
            held.pop()
        gc.collect()
        cpu.synchronize()
        assert gone() is None


def test_many_calls_leave_memory_flat(cpu):
    """15,000 here; benchmarks/overhead.py makes 100,000 of each."""
    a = np.ones(1024, np.float32)
    x = cpu.tensor(a, requires_grad=True)

    def step():
        y = cpu.tensor(a)
        (y + y).numpy()
        np.from_dlpack(y[::2])
        (x * y).sum().backward()
        x.grad = None

    for _ in range(500):
        step()
    before = resident()
    for _ in range(2500):
        step()
    assert resident() - before < 4 << 20


def resident():
    gc.collect()
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        pytest.skip("this system has no /proc")


def test_threads_share_an_executor(cpu):
    a = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    expected = (cpu.tensor(a) @ cpu.tensor(a)).tobytes()

    def work(_):
        for _ in range(30):
            x = cpu.tensor(a)
            assert (x @ x).tobytes() == expected
            w = cpu.tensor([2.0], requires_grad=True)
            (w * w).sum().backward()
            assert w.grad.tolist() == [4.0]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="this Python has no lock that could be held")
def test_other_threads_run_while_work_does():
    # Of one thread, which leaves the other cores to those that watch.
    x = elinvar.Executor("cpu", threads=1).ones((768, 768))
    seen = []
    done = threading.Event()

    def watch():
        while not done.is_set():
            seen.append(1)
            done.wait(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    y = x
    for _ in range(4):
        y = y @ x
    y.wait()
    done.set()
    thread.join()
    assert len(seen) > 3


class Rang(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that send signals")
@pytest.mark.parametrize("wait", ["numpy", "tolist", "wait", "__dlpack__", "synchronize"])
def test_a_signal_ends_a_wait_and_the_work_goes_on(wait):
    executor = elinvar.Executor("cpu", threads=1)
    x = executor.full((512, 512), 1 / 512)

    def ring(*_):
        raise Rang

    before = signal.signal(signal.SIGALRM, ring)
    try:
        y = x
        for _ in range(30):
            y = y @ x
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(Rang):
            getattr(executor if wait == "synchronize" else y, wait)()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_allclose(y.numpy(), np.full((512, 512), 1 / 512), rtol=1e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_gets_an_error_and_can_open_its_own(cpu):
    script = """
import os, sys, warnings
warnings.simplefilter("ignore")
import elinvar
executor = elinvar.Executor("cpu", threads=2)
x = executor.ones((4,)) + 1
x.wait()
child = os.fork()
if child == 0:
    for use in [lambda: x + 1, lambda: x.numpy(), lambda: executor.zeros((2,)), lambda: x.tobytes(), lambda: executor.synchronize()]:
        try:
            use()
            os._exit(1)
        except RuntimeError as error:
            assert "before this process was forked" in str(error)
    repr(x)
    assert (elinvar.Executor("cpu", threads=2).ones((2,)) + 1).tolist() == [2.0, 2.0]
    del x, executor
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_long_work_leaves_the_event_loop_free(cpu):
    async def main():
        x = cpu.ones((256, 256))
        y, _ = await asyncio.gather(asyncio.to_thread(lambda: (x @ x).numpy()), asyncio.sleep(0))
        return y

    assert asyncio.run(main())[0, 0] == 256
