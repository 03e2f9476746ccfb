"""Gradients, against differences and by hand."""

import gc

import numpy as np
import pytest

import elinvar


def test_backward_adds_to_grad(cpu):
    x = cpu.tensor([[1.0, 2.0], [3.0, 4.0]])
    weight = cpu.tensor([[0.5, -0.5]], requires_grad=True)
    bias = cpu.zeros((1,)).requires_grad_()
    loss = ((x @ weight.T + bias) ** 2).sum()
    loss.backward()
    assert (weight.grad.tolist(), bias.grad.tolist()) == ([[-4.0, -6.0]], [-2.0])
    loss.backward()
    assert weight.grad.tolist() == [[-8.0, -12.0]]
    with elinvar.no_grad():
        weight -= weight.grad * 0.125
    weight.grad = None
    assert weight.tolist() == [[1.5, 1.0]] and weight.grad is None and weight.requires_grad


def test_grad_of_a_function_is_its_difference(cpu):
    random = np.random.default_rng(5)
    a, b = random.standard_normal((2, 3)).astype(np.float32), random.standard_normal((3,)).astype(np.float32)

    def loss(x, w):
        return (elinvar.ops.layer_norm(x, w).exp() * x[:, ::-1]).sum()

    x, w = cpu.tensor(a), cpu.tensor(b)
    found = elinvar.grad(loss, argnums=(0, 1))(x, w)
    for which, (values, gradient) in enumerate(zip((a, b), found)):
        for at in np.ndindex(values.shape):
            step = np.zeros_like(values)
            step[at] = 1e-2
            shifted = [[cpu.tensor(v + sign * step) if i == which else cpu.tensor(v) for i, v in enumerate((a, b))] for sign in (1, -1)]
            difference = (loss(*shifted[0]).item() - loss(*shifted[1]).item()) / 2e-2
            assert gradient[at].item() == pytest.approx(difference, rel=3e-2, abs=3e-2)
    assert x.grad is None and not x.requires_grad
    value, gradient = elinvar.value_and_grad(lambda x: (x * x).sum())(x)
    np.testing.assert_allclose(gradient.numpy(), 2 * a, rtol=1e-6)
    assert value.item() == pytest.approx((a * a).sum(), rel=1e-6)


def test_functions_that_have_no_gradient(cpu):
    x = cpu.tensor([1.0, 2.0])
    for function, argnums, error, message in [
        (lambda x: x, 0, ValueError, r"shape \[2\], which has 2 elements: one is expected, a loss; or give its gradient"),
        (lambda x: None, 0, TypeError, "the function gives NoneType: a tensor of one element is expected"),
        (lambda x: x.sum(), 1, ValueError, "argnums has 1, and 1 arguments are given"),
    ]:
        with pytest.raises(error, match=message):
            elinvar.grad(function, argnums)(x)


def test_what_has_no_gradient(cpu):
    x = cpu.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    for wrong, message in [
        (lambda: y.backward(), "one element|several|2 elements|\\[2\\]"),
        (lambda: cpu.ones((1,)).backward(), "nothing that it was computed from requires a gradient"),
        (lambda: cpu.tensor([1]).requires_grad_(), "only floating-point numbers have one"),
        (lambda: y.requires_grad_(), "result of a computation"),
        (lambda: x.__iadd__(1.0), "no gradient flows through a change in place"),
        (lambda: x.__setitem__(0, 1.0), "no gradient flows through a change in place"),
        (lambda: setattr(x, "grad", cpu.ones((3,))), "type and shape must match"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()
    y.backward(cpu.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 20.0]
    with elinvar.no_grad():
        assert not (x * 2).requires_grad
    assert not x.detach().requires_grad and (x * 2).requires_grad
    assert not x.numpy().flags.writeable
    kept = x * x
    with elinvar.no_grad():
        x += 1
    with pytest.raises(ValueError, match="changed in place"):
        kept.sum().backward()


def test_leaves_that_are_gone_are_forgotten(cpu):
    before = cpu.tensor([1.0], requires_grad=True)
    for _ in range(1000):
        loss = (cpu.tensor([2.0], requires_grad=True) * before).sum()
    gc.collect()
    loss.backward()
    assert before.grad.tolist() == [2.0]
