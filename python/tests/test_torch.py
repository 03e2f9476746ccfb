"""PyTorch: operators, gradients, modules, compilation, strict mode. On CUDA too where there is a GPU."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: nothing of elinvar.torch is tested")

import elinvar.torch  # noqa: E402
from elinvar.torch import functional as F  # noqa: E402

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
ops = torch.ops.elinvar


def make(device, *shape, dtype=torch.float32, seed=0, grad=True):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(device, dtype).requires_grad_(grad)


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attended(q, k, v, mask=None, *, scale=None, causal=False, window=None, softcap=0.0):
    group, (queries, keys) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    scores = q @ k.repeat_interleave(group, 1).mT * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    at = torch.arange(queries, device=q.device)[:, None] + keys - queries
    key = torch.arange(keys, device=q.device)[None]
    hidden = torch.zeros(queries, keys, dtype=torch.bool, device=q.device)
    if causal:
        hidden |= key > at
    if window is not None:
        hidden |= key <= at - window
    if mask is not None:
        hidden = hidden | ~mask
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v.repeat_interleave(group, 1)


def cases(device):
    """Of each operator: arguments, and what PyTorch computes of them in f64."""
    nn = torch.nn.functional
    x, w, b, rows = make(device, 2, 3, 8), make(device, 8), make(device, 8, seed=1), make(device, 5, 8)
    n = make(device, 5)
    la, lb = make(device, 2, 8), make(device, 5, 2)
    q, k, v = make(device, 1, 4, 3, 8), make(device, 1, 2, 5, 8), make(device, 1, 2, 5, 8, seed=1)
    angles = make(device, 1, 3, 4, grad=False)
    cos, sin = angles.cos(), angles.sin()
    mask = torch.ones(1, 1, 3, 5, dtype=torch.bool, device=device)
    mask[..., 1] = False
    targets = torch.tensor([[1, 7, -100], [0, 2, 2]], device=device)
    indices = torch.tensor([[1, 4, 1], [0, 1, 3]], device=device)
    return {
        "rms_norm": ((x, w, 1e-5), lambda x, w, eps: nn.rms_norm(x, (8,), w, eps)),
        "layer_norm": ((x, w, b, 1e-5), lambda x, w, b, eps: nn.layer_norm(x, (8,), w, b, eps)),
        "softmax": ((x, 1), torch.softmax),
        "log_softmax": ((x, -1), torch.log_softmax),
        "rope": ((q, cos, sin, False), lambda x, cos, sin, _: rotated(x, cos, sin)),
        "swiglu": ((x, make(device, 2, 3, 8, seed=3)), lambda a, b: nn.silu(a) * b),
        "silu": ((x,), nn.silu),
        "gelu": ((x, True), lambda x, _: nn.gelu(x, approximate="tanh")),
        "linear": ((x, rows, n, False), lambda x, w, b, _: nn.linear(x, w, b)),
        "lora_linear": ((x, rows, la, lb, n, 0.5, False), lambda x, w, a, b, c, s, _: nn.linear(x, w, c) + s * (x @ a.T) @ b.T),
        "attention": (
            (q, k, v, mask, 0.3, True, 2, 4, 5.0, False, False),
            lambda q, k, v, m, *_: attended(q, k, v, m, scale=0.3, causal=True, window=4, softcap=5.0),
        ),
        "cross_entropy": (
            (x, targets, -100),
            lambda x, t, i: nn.cross_entropy(x.flatten(0, 1), t.flatten(), ignore_index=i, reduction="none").reshape(t.shape),
        ),
        "cross_entropy_loss": (
            (x, targets, -100, "mean"),
            lambda x, t, i, reduction: nn.cross_entropy(x.flatten(0, 1), t.flatten(), ignore_index=i, reduction=reduction),
        ),
        "embedding": ((rows, indices), lambda w, i: nn.embedding(i, w)),
        "sum": ((x, [1], True), lambda x, axes, keepdim: x.sum(axes, keepdim)),
    }


NAMES = list(cases("cpu"))


def result_of(found):
    """The result of an operator that may have others beside it, which its gradient reads."""
    return found[0] if isinstance(found, tuple) else found


def leaves(args):
    return [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]


def in_f64(args):
    def one(x):
        return x.detach().double().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return [one(x) for x in args]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients_are_those_of_pytorch_in_f64(name, device):
    args, reference = cases(device)[name]
    wide = in_f64(args)
    y, expected = result_of(getattr(ops, name)(*args)), reference(*wide)
    dy = make(device, *y.shape, seed=7, grad=False)
    torch.testing.assert_close(y, expected.float(), rtol=2e-5, atol=2e-5)
    found = torch.autograd.grad(y, leaves(args), dy)
    expected = torch.autograd.grad(expected, leaves(wide), dy.double())
    for gradient, right in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, right.float(), rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_calls_alike_take_the_tensors_of_each(device):
    """A call is recorded once for all addresses; other layouts, strides and attributes are other calls."""
    kept = []
    for seed in range(4):
        x = make(device, 6, 8, seed=seed, grad=False)
        views = [x, x.T, x[::2], x[:, 1:7], x.expand(2, 6, 8), x[:0]]
        for view in views:
            for dim in (-1, 0):
                y = F.softmax(view, dim)
                torch.testing.assert_close(y, torch.softmax(view, dim))
                assert y.is_contiguous()
                kept.append((y, y.clone()))
    # What later calls have written is elsewhere.
    assert all(torch.equal(y, copy) for y, copy in kept)


def test_calls_of_several_threads_keep_apart():
    from concurrent.futures import ThreadPoolExecutor

    def check(seed):
        x, w = make("cpu", 4, 64, seed=seed), make("cpu", 64, seed=seed)
        expected = torch.autograd.grad(torch.nn.functional.rms_norm(x, (64,), w, 1e-5).sum(), [x, w])
        for _ in range(30):
            for found, right in zip(torch.autograd.grad(F.rms_norm(x, w, 1e-5).sum(), [x, w]), expected):
                torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(4)))


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name):
    args, _ = cases(DEVICES[-1])[name]
    torch.library.opcheck(getattr(ops, name).default, args)


@pytest.mark.parametrize("device", DEVICES)
def test_a_reduced_cross_entropy_is_that_of_pytorch_and_of_the_losses(device):
    logits = make(device, 3000, 7)
    targets = torch.randint(0, 7, (3000,), generator=torch.Generator().manual_seed(1)).to(device)
    for ignored, reduction in [(-100, "mean"), (3, "mean"), (3, "sum")]:
        loss = F.cross_entropy(logits, targets, ignored, reduction)
        total = F.sum(F.cross_entropy(logits, targets, ignored, "none"))
        assert torch.equal(loss, total / (targets != ignored).sum() if reduction == "mean" else total)
        expected = torch.nn.functional.cross_entropy(logits, targets, ignore_index=ignored, reduction=reduction)
        torch.testing.assert_close(loss, expected)
        found, right = (torch.autograd.grad(3 * loss, logits)[0] for loss in (loss, expected))
        torch.testing.assert_close(found, right)
    for none in (logits[:0], targets[:0]), (logits, torch.full_like(targets, -100)):
        assert F.cross_entropy(*none).isnan() and F.cross_entropy(*none, reduction="sum") == 0


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cross_entropy_loss"])
def test_results_of_no_elements(name):
    args, _ = cases(DEVICES[-1])[name]
    if name in ("rope", "attention"):
        args = [x[:0] if isinstance(x, torch.Tensor) else x for x in args]
    elif name == "embedding":
        args = [args[0], args[1][:0]]
    elif name == "cross_entropy":
        args = [args[0][:0], args[1][:0], args[2]]
    elif name == "swiglu":
        args = [x[:0] for x in args]
    else:
        args = [args[0][:0], *args[1:]]
    y = result_of(getattr(ops, name)(*args))
    assert y.numel() == 0
    for x, gradient in zip(leaves(args), torch.autograd.grad(y.sum(), leaves(args))):
        assert gradient.shape == x.shape and not gradient.any()


def test_a_view_that_negates_is_read_as_it_is_seen():
    x = torch._neg_view(make(DEVICES[-1], 5, grad=False))
    torch.testing.assert_close(F.silu(x), torch.nn.functional.silu(x))


@pytest.mark.parametrize("name", NAMES)
def test_opcheck_of_gradients(name):
    args, _ = cases(DEVICES[-1])[name]
    taken = [argument for argument in getattr(ops, name).default._schema.arguments if "Tensor" in str(argument.type)]
    wanted = [x is not None and x.requires_grad for x in args[: len(taken)]]
    args = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
    found = getattr(ops, name)(*args)
    y, *beside = found if isinstance(found, tuple) else (found,)
    torch.library.opcheck(getattr(ops, f"{name}_gradient").default, (*args, y, *beside, torch.ones_like(y), wanted))


def test_every_operator_has_a_case():
    registered = {name.removeprefix("elinvar::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("elinvar::")}
    assert registered == {*NAMES, *(f"{name}_gradient" for name in NAMES)}


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name):
    """Differences of f32 results: coarse, for there are no f64 kernels. The comparison with f64 above is the sharper one."""
    args, _ = cases(DEVICES[-1])[name]
    assert torch.autograd.gradcheck(getattr(ops, name), args, eps=1e-2, atol=3e-3, rtol=3e-2, nondet_tol=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_is_a_loop(name):
    args, _ = cases("cpu")[name]
    args = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
    if name in ("linear", "lora_linear", "attention"):
        args[-1] = True  # Strict: the bits do not depend on the batch.
    first = torch.stack([args[0], args[0] * 2, args[0] - 1], 1)
    call = getattr(ops, name)
    found = torch.vmap(lambda x: call(x, *args[1:]), in_dims=1)(first)
    for index in range(3):
        one, whole = call(first.select(1, index), *args[1:]), result_of(found)[index]
        torch.testing.assert_close(whole, result_of(one), rtol=0, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_errors_name_the_function_that_was_called(device):
    x, rows = make(device, 4, 8), make(device, 3, 8)
    outside = torch.tensor([0, 7], device=device)
    for call, message in [
        (lambda: F.linear(x, make(device, 3, 5)), r"^linear: matmul: a has shape \[4, 8\], b has shape \[3, 5\]"),
        (lambda: F.rms_norm(x, make(device, 3)), r"^rms_norm: weight has shape \[3\]"),
        (lambda: F.sum(x, 5), "^sum: reduce_sum: x has shape"),
        # A GPU reports it after the call.
        (lambda: (F.embedding(outside, rows), elinvar.torch.synchronize()), "gather: .*index" if device == "cuda" else "embedding: gather: .*index"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
