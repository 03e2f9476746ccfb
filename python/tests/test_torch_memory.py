"""Memory that Elinvar's tensors and PyTorch's share, threads, and processes that were forked."""

import gc
import mmap
import os
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing of elinvar.torch is tested")

import elinvar.torch  # noqa: E402
from elinvar.torch import functional as F  # noqa: E402

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int64", "int8", "uint8", "bool"])
def test_tensors_are_shared_in_both_directions(device, name):
    executor = elinvar.executor(device)
    t = torch.arange(12, device=device).reshape(3, 4).to(getattr(torch, name))
    for view in [t, t.T, t[1:], t[:, ::2], t[:, None]]:
        for x in [executor.from_dlpack(view), executor.tensor(view)]:
            back = torch.from_dlpack(x)
            assert (x.dtype.name, x.shape) == (name, tuple(view.shape))
            assert back.data_ptr() == view.data_ptr() and back.stride() == view.stride() and torch.equal(back, view)


@pytest.mark.parametrize("device", DEVICES)
def test_changes_are_seen_and_memory_lives_as_long_as_its_last_user(device):
    executor = elinvar.executor(device)
    t = torch.zeros(4, device=device)
    x = executor.from_dlpack(t)
    x += 1
    t *= 3
    assert (x.tolist(), t.tolist()) == ([3.0] * 4, [3.0] * 4)
    seen, gone = torch.from_dlpack(x), weakref.ref(t)
    del t, x
    gc.collect()
    assert seen.tolist() == [3.0] * 4
    made = executor.ones((1000,)) + 1
    lent = torch.from_dlpack(made)
    del made, seen
    executor.synchronize()
    gc.collect()
    assert lent.sum().item() == 2000 and gone() is None


def test_what_cannot_be_shared_is_an_error(cpu):
    for wrong, error, message in [
        (torch.ones(2, requires_grad=True), BufferError, "detach"),
        (torch.eye(3).to_sparse(), BufferError, "layout"),
        (torch.ones(2, device="meta"), (ValueError, BufferError), "meta"),
        (torch.ones(2, dtype=torch.complex64), (ValueError, TypeError), "no such type"),
    ]:
        with pytest.raises(error, match=message):
            cpu.from_dlpack(wrong)


def test_many_calls_leave_memory_flat():
    """10,000 here: of the forward and the backward pass, with memory at the same addresses and at others."""
    w, kept = torch.ones(64, requires_grad=True), []

    def step(index):
        x = torch.ones(8, 64, requires_grad=True)
        F.rms_norm(x, w).sum().backward()
        w.grad = None
        kept.append(x)
        if index % 50 == 0:
            kept.clear()

    def resident():
        gc.collect()
        try:
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * mmap.PAGESIZE
        except OSError:
            pytest.skip("this system has no /proc")

    for index in range(500):
        step(index)
    before = resident()
    for index in range(5000):
        step(index)
    assert resident() - before < 8 << 20


def test_threads_call_operators_at_the_same_time():
    x = torch.randn(64, 64)
    expected = F.softmax(x)

    def work(_):
        for _ in range(50):
            assert torch.equal(F.softmax(x), expected)
            y = x.clone().requires_grad_()
            F.silu(y).sum().backward()
            assert y.grad is not None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


class Softmaxes(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return F.softmax(torch.arange(3.0) * index)


@pytest.mark.skipif(not hasattr(os, "fork") or DEVICES[-1] == "cuda", reason="processes are not forked here, or CUDA is in use")
def test_workers_of_a_data_loader_are_forked_and_call_operators():
    expected = torch.stack([torch.softmax(torch.arange(3.0) * index, -1) for index in range(4)])
    F.softmax(torch.ones(3))
    found = next(iter(torch.utils.data.DataLoader(Softmaxes(), batch_size=4, num_workers=1)))
    torch.testing.assert_close(found, expected)
