"""Tensors: NumPy is the reference."""

import copy
import operator
import pathlib
import pickle
import re

import numpy as np
import pytest

import elinvar

FLOATS = [elinvar.float32, elinvar.float16]
INTEGERS = [elinvar.int8, elinvar.int16, elinvar.int32, elinvar.int64, elinvar.uint8, elinvar.uint16, elinvar.uint32, elinvar.uint64]
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def values(dtype, shape, seed):
    random = np.random.default_rng(seed)
    if dtype in FLOATS:
        return (random.standard_normal(shape) * 4).astype(dtype.numpy)
    low, high = (-9, 10) if dtype.name.startswith("int") else (0, 19)
    found = random.integers(low, high, shape).astype(dtype.numpy)
    return np.where(found == 0, found + 1, found)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_arithmetic_and_comparisons_are_numpys(cpu, dtype):
    a, b = values(dtype, (3, 1, 4), 1), values(dtype, (2, 4), 2)
    x, y = cpu.tensor(a), cpu.tensor(b)
    tolerance = {"rtol": 2e-3, "atol": 2e-3} if dtype == elinvar.float16 else {"rtol": 1e-6, "atol": 1e-5}
    for run in ARITHMETIC + COMPARISONS:
        found, expected = run(x, y), run(a, b)
        if run is operator.truediv and dtype in INTEGERS:
            assert found.dtype == elinvar.float32
        else:
            assert found.dtype.numpy == expected.dtype, run
        np.testing.assert_allclose(found.numpy(), expected, err_msg=run.__name__, **tolerance)
        with_number = run(a, np.array(3, a.dtype)), run(np.array(3, a.dtype), a)
        np.testing.assert_allclose(run(x, 3).numpy(), with_number[0], err_msg=run.__name__, **tolerance)
        np.testing.assert_allclose(run(3, x).numpy(), with_number[1], err_msg=run.__name__, **tolerance)


def test_divisions_of_and_by_what_is_infinite(cpu):
    a = np.array([7.0, -7.0, np.inf, -np.inf, 7.0, -7.0, 7.0, -7.0, np.nan], np.float32)
    b = np.array([np.inf, np.inf, 2.0, 2.0, -np.inf, -np.inf, 0.0, 0.0, 1.0], np.float32)
    x, y = cpu.tensor(a), cpu.tensor(b)
    # NumPy's quotients but for -7 // inf and 7 // -inf, which are -0.0 by the standard.
    np.testing.assert_array_equal((x // y).numpy(), np.array([0.0, -0.0, np.inf, -np.inf, -0.0, 0.0, np.inf, -np.inf, np.nan], np.float32))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal((x % y).numpy(), a % b)


def test_bits_and_truth(cpu):
    a, b = np.array([[True, False], [True, True]]), np.array([True, False])
    for run in [operator.and_, operator.or_, operator.xor]:
        assert (run(cpu.tensor(a), cpu.tensor(b)).numpy() == run(a, b)).all()
        assert (run(cpu.tensor([6, 9]), 3).numpy() == run(np.array([6, 9]), 3)).all()
    assert (~cpu.tensor(a)).tolist() == (~a).tolist() and (~cpu.tensor([6])).tolist() == [-7]
    with pytest.raises(TypeError, match="& of float32: whole numbers or truth values are expected"):
        cpu.tensor([1.0]) & cpu.tensor([2.0])
    with pytest.raises(TypeError, match=r"\+ of bool: numbers are expected"):
        cpu.tensor(a) + cpu.tensor(a)


def test_arrays_beside_tensors_are_errors_that_say_what_to_do(cpu):
    x, a = cpu.ones((2,)), np.ones(2, np.float32)
    for wrong in [lambda: x + a, lambda: a + x, lambda: a == x, lambda: x < a]:
        with pytest.raises(TypeError, match="an elinvar.Tensor and <class 'numpy.ndarray'>: make a tensor of it first, with executor.tensor"):
            wrong()
    for value in [a, [1.0, 2.0]]:
        with pytest.raises(TypeError, match="is no number: arrays and lists become tensors by executor.tensor"):
            x[:] = value
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "a"


def test_types_that_meet(cpu):
    def sum_type(a, b):
        return (cpu.ones((1,), a) + cpu.ones((1,), b)).dtype

    assert sum_type("int8", "uint8") == elinvar.int16 and sum_type("uint32", "int8") == elinvar.int64
    assert sum_type("float16", "bfloat16") == elinvar.float32 and sum_type("float16", "int64") == elinvar.float16
    assert (cpu.ones((1,), "int32") + 0.5).dtype == elinvar.float32 and (cpu.ones((1,), "float16") * 2).dtype == elinvar.float16
    with pytest.raises(TypeError, match="no integer holds both uint64 and int8"):
        sum_type("uint64", "int8")
    with pytest.raises(ValueError, match="300 is no value of u8"):
        cpu.ones((1,), "uint8") + 300


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (1, 2),
        (slice(None), 1),
        (slice(None, None, -1), slice(3, 0, -2)),
        (..., 1),
        (None, 1, ..., None),
        slice(5, 2),
        (slice(0, 0), 1),
        (2, slice(-3, None)),
        np.int64(1),
        (slice(None), None, slice(1, 3)),
    ],
    ids=str,
)
def test_indices_are_numpys(cpu, index):
    a = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    x = cpu.tensor(a)
    assert x[index].shape == a[index].shape and (x[index].numpy() == a[index]).all()
    b, y = a.copy(), cpu.tensor(a, copy=True)
    b[index], y[index] = -1, -1
    assert (y.numpy() == b).all()
    other = np.arange(b[index].size, dtype=np.float32).reshape(b[index].shape)
    b[index], y[index] = other, cpu.tensor(other)
    assert (y.numpy() == b).all()


def test_views_share_memory_and_gathered_entries_do_not(cpu):
    x = cpu.tensor(np.zeros((2, 3), np.float32))
    column, gathered = x[:, 1], x[cpu.tensor([1, 0, 1])]
    x[:, 1] = 5
    assert column.tolist() == [5.0, 5.0] and gathered.tolist() == [[0.0] * 3] * 3
    assert x[:, cpu.tensor([[2, 1]])].tolist() == [[[0.0, 5.0]], [[0.0, 5.0]]]
    a = np.arange(24).reshape(2, 3, 4)
    y, rows, columns = cpu.tensor(a), np.array([[1], [0]]), np.array([2, -1, 0])
    assert (y[cpu.tensor(rows), cpu.tensor(columns)].numpy() == a[rows, columns]).all()
    assert (y[cpu.tensor(rows), 1, cpu.tensor(columns)].numpy() == a[rows, 1, columns]).all()
    with pytest.raises(IndexError, match="first axes alone"):
        y[cpu.tensor(rows), :, cpu.tensor(columns)]
    x += cpu.tensor([1.0, 2.0, 3.0])
    assert column.tolist() == [7.0, 7.0]


def test_indices_that_are_none(cpu):
    x = cpu.zeros((2, 3))
    for index, message in [
        (2, "index 2 is outside axis 0 of 2"),
        ((0, -4), "index -4 is outside axis 1 of 3"),
        ((0, 0, 0), "3 indices of a tensor with 2 axes"),
        ((..., ...), "at most one"),
        (x > 0, "truth values"),
    ]:
        with pytest.raises(IndexError, match=message):
            x[index]
    for index in [True, [0], "a", 1.5]:
        with pytest.raises(TypeError, match="is no index"):
            x[index]
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        x[::0]


def test_shapes(cpu):
    a = np.arange(24).reshape(2, 3, 4)
    x = cpu.tensor(a)
    assert (x.reshape(4, -1).numpy() == a.reshape(4, 6)).all() and x.reshape((24,)).shape == (24,)
    assert (x.permute_dims(2, 0, 1).numpy() == a.transpose(2, 0, 1)).all() and (x.mT.numpy() == a.swapaxes(1, 2)).all()
    assert x.expand_dims(1).squeeze(1).shape == (2, 3, 4) and x[:1].squeeze().shape == (3, 4)
    assert (elinvar.concat([x, x], axis=1).numpy() == np.concatenate([a, a], 1)).all() and elinvar.stack([x, x], axis=-1).shape == (2, 3, 4, 2)
    assert x.broadcast_to((5, 2, 3, 4)).numpy().strides[0] == 0
    assert (x.size, x.ndim, x.nbytes, len(x), x.itemsize) == (24, 3, 192, 2, 8)
    for wrong, message in [(lambda: x.reshape(5, -1), "number of elements"), (lambda: x.T, "two are expected"), (lambda: x.squeeze(0), "not 1")]:
        with pytest.raises(ValueError, match=message):
            wrong()


def test_reductions(cpu):
    a = np.random.default_rng(3).standard_normal((3, 4, 5)).astype(np.float32)
    x = cpu.tensor(a)
    for name in ["sum", "mean", "max", "min", "prod"]:
        for axis in [None, 0, -1, (0, 2), ()]:
            for keepdims in [False, True]:
                found, expected = getattr(x, name)(axis, keepdims=keepdims), getattr(a, name)(axis, keepdims=keepdims)
                np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, err_msg=f"{name} {axis}")
    assert x.argmax().item() == a.argmax() and (x.argmin(1).numpy() == a.argmin(1)).all()
    assert cpu.tensor(np.array([200, 100], np.uint8)).sum().item() == 300 and cpu.tensor([True, True]).sum().item() == 2


def test_one_element(cpu):
    x = cpu.tensor(2.5)
    assert (x.item(), float(x), int(x), bool(x), x.shape) == (2.5, 2.5, 2, True, ())
    assert [10, 20][cpu.tensor(1)] == 20 and complex(x) == 2.5 and cpu.tensor(1.5, "bfloat16").item() == 1.5
    with pytest.raises(ValueError, match="has 2 elements: one is expected"):
        bool(cpu.tensor([1, 2]))
    with pytest.raises(TypeError):
        [1][x]


def test_text(cpu):
    x = cpu.tensor([[1.0, 2.5], [-3.0, 4.0]])
    assert repr(x) == "Tensor([[ 1.0,  2.5],\n        [-3.0,  4.0]], dtype=float32, device='cpu')"
    assert repr(cpu.tensor([1.0], requires_grad=True)).endswith("requires_grad=True)")
    assert repr(elinvar.bfloat16) == "elinvar.bfloat16" and "strict" in repr(elinvar.Executor("cpu", precision="strict"))


def test_pickles_and_copies(cpu):
    x = cpu.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for y in [pickle.loads(pickle.dumps(x)), copy.deepcopy(x)]:
        assert y.tolist() == x.tolist() and y.requires_grad and y.dtype == x.dtype and y.device == "cpu"
    assert pickle.loads(pickle.dumps(cpu.tensor([1, 2], "bfloat16"))).dtype == elinvar.bfloat16
    assert pickle.loads(pickle.dumps(elinvar.int8)) == elinvar.int8
    y = copy.copy(x.detach())
    y += 1
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_made_of_nothing(cpu):
    assert cpu.zeros(3, "int8").tolist() == [0, 0, 0] and cpu.full((2,), 7).dtype == elinvar.int64 and cpu.full((1,), True).dtype == elinvar.bool
    assert cpu.arange(3).tolist() == [0, 1, 2] and cpu.arange(1, 2, 0.25).tolist() == [1.0, 1.25, 1.5, 1.75]
    assert (cpu.eye(3, 4, k=-1).numpy() == np.eye(3, 4, k=-1)).all() and cpu.empty((2, 0)).shape == (2, 0)
    assert cpu.randn((1000,), seed=1).mean().item() == pytest.approx(0, abs=0.1)
    assert cpu.rand((4,), seed=2).tolist() == cpu.rand((4,), seed=2).tolist()


def test_executors_do_not_mix(cpu):
    other = elinvar.Executor("cpu", threads=1)
    x, y = cpu.ones((2,)), other.ones((2,))
    with pytest.raises(TypeError, match="tensors of different executors"):
        x + y
    assert (x + y.to(cpu)).tolist() == [2.0, 2.0] and x.executor == cpu and x.to("cpu").executor != cpu
    strict = cpu.with_precision("strict")
    assert (strict.precision, (strict.ones((2, 2)) @ x.to(strict)).tolist()) == ("strict", [2.0, 2.0])


def test_what_executors_are_not():
    with pytest.raises(elinvar.DeviceError, match="'tpu' is not available"):
        elinvar.Executor("tpu")
    for arguments, message in [({"precision": "exact"}, "'strict', 'invariant' or 'fast'"), ({"backend": "cpu", "threads": 0}, "at least one"), ({"threads": 2}, "cpu")]:
        with pytest.raises(ValueError, match=message):
            elinvar.Executor(**arguments)


def test_operators_by_name(cpu):
    x, weight = cpu.tensor([[3.0, 4.0]]), cpu.tensor([1.0, 2.0])
    by_function = elinvar.ops.rms_norm(x, weight, epsilon=0.0)
    assert by_function.tolist() == cpu.apply("rms_norm", {"x": x, "weight": weight}, epsilon=0).tolist()
    found, at = elinvar.ops.top_k(cpu.tensor([5, 1, 3]), k=2)
    assert (found.tolist(), at.tolist()) == ([5, 3], [0, 2])
    cache = cpu.zeros((1, 3, 2))
    assert elinvar.ops.kv_append(cache, cpu.tensor([[[5.0, 6.0]]]), cpu.tensor([1], "int32")) is None and cache.tolist()[0][1] == [5.0, 6.0]
    assert elinvar.ops.concat(x, x, axis=0).shape == (2, 2) and elinvar.ops.fill(shape=(2,), value=3.0, executor=cpu).tolist() == [3.0, 3.0]
    assert elinvar.ops.clamp(x, min=3.5).tolist() == elinvar.ops.clamp(x, cpu.tensor(3.5)).tolist() == [[3.5, 4.0]]
    assert elinvar.ops.cast(x, to=elinvar.int8).dtype == elinvar.int8
    assert "weight (float32, float16, bfloat16; optional)" in elinvar.ops.rms_norm.__doc__
    for wrong, kind, message in [
        (lambda: elinvar.ops.rms_norm(x, cpu.ones((3,))), ValueError, r"weight has shape \[3\], x has shape \[1, 2\]: expected \[2\]"),
        (lambda: elinvar.ops.rms_norm(x, eps=1.0), TypeError, r"rms_norm\(\) got an unexpected keyword argument 'eps'"),
        (lambda: cpu.apply("rms_norm", [x], eps=1.0), ValueError, "unknown attribute 'eps': expected axis, epsilon or output"),
        (lambda: cpu.apply("rms_nrm", [x]), ValueError, "unknown operator 'rms_nrm'"),
        (lambda: elinvar.ops.softmax(np.ones(2)), TypeError, "softmax: x"),
        (lambda: elinvar.ops.softmax(cpu.tensor([1, 2])), ValueError, "softmax: x is i64: expected f32, f16 or bf16"),
    ]:
        with pytest.raises(kind, match=message):
            wrong()


def test_operators_that_are_kept_are_of_their_attributes(cpu):
    x, axes = cpu.tensor([[1.0, 2.0], [3.0, 4.0]]), [0]
    for _ in range(2):
        assert elinvar.ops.reduce_sum(x, axes=(0,), keepdims=False).tolist() == [4.0, 6.0]
        assert elinvar.ops.reduce_sum(x, axes=(1,), keepdims=False).tolist() == [3.0, 7.0]
        assert elinvar.ops.clamp(x, max=2.0).tolist() == [[1.0, 2.0], [2.0, 2.0]] and elinvar.ops.clamp(x, max=3.0).tolist()[1] == [3.0, 3.0]
        # 1 is no truth value, and a list may change.
        assert elinvar.ops.softmax(x, axis=1).shape == (2, 2)
        with pytest.raises(ValueError, match="axis"):
            elinvar.ops.softmax(x, axis=True)
        assert [elinvar.ops.reduce_sum(x, axes=axes, keepdims=False).tolist(), axes.__setitem__(0, 1)] == [[4.0, 6.0], None]
        assert elinvar.ops.reduce_sum(x, axes=axes, keepdims=False).tolist() == [3.0, 7.0]
        axes[0] = 0
    zeros = [elinvar.ops.fill(shape=(1,), value=zero, executor=cpu).tobytes() for zero in (0.0, -0.0, 0.0)]
    assert zeros[0] == zeros[2] == bytes(4) != zeros[1]


def test_short_work_on_shared_memory_is_done_when_it_returns(cpu):
    array = np.arange(4, dtype=np.float32)
    x = cpu.tensor(array)
    assert x[1:].exp().shape == (3,) and np.asarray(x).base is not None
    x += 1.0
    assert array.tolist() == [1.0, 2.0, 3.0, 4.0]
    # It is not short what it gives.
    assert float(elinvar.ops.expand(x[:1], shape=(1 << 20,)).sum()) == 1 << 20
    with pytest.raises(ValueError, match="index"):
        elinvar.ops.gather(x, cpu.tensor(np.array([7])))


def test_every_operator_has_a_function(cpu):
    import inspect

    descriptions = elinvar._elinvar._descriptions()
    assert len(descriptions) > 100 and all(description["name"] in elinvar.ops.__all__ for description in descriptions)
    for description in descriptions:
        function = getattr(elinvar.ops, description["name"])
        parameters = inspect.signature(function).parameters
        assert all(port["name"] in parameters for port in [*description["inputs"], *description["attributes"]]), description["name"]
        assert description["summary"] in function.__doc__


def test_the_page_of_the_documentation_runs():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})


def test_recordings(cpu):
    x = cpu.tensor(np.array([1.0, 2.0], np.float32), copy=True)
    with cpu.record() as recording:
        y = (x * 3 + 1).exp().log()
        with pytest.raises(ValueError, match="a recorder that has not ended"):
            y.numpy()
    x += 1
    recording.replay()
    np.testing.assert_allclose(y.numpy(), [7.0, 10.0], rtol=1e-6)
    assert len(recording) == 1
    failed = cpu.record()
    with pytest.raises(KeyError), failed:
        raise KeyError
    assert (x + 1).tolist() == [3.0, 4.0]
    with pytest.raises(RuntimeError, match="nothing is recorded yet"):
        failed.replay()


def test_the_simulator_has_the_bits_of_the_cpu(cpu, simulator):
    a = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    def run(executor):
        x = executor.tensor(a)
        return elinvar.ops.softmax((x * 1.5 + x[::-1]) @ x.T).tobytes()

    assert run(simulator) == run(cpu.with_precision("strict"))
    x = simulator.tensor(a)
    assert (x.numpy() == a).all() and x.device == "metal-sim"
    with pytest.raises(ValueError, match="needs a copy"):
        x.numpy(copy=False)
    with pytest.raises(BufferError, match="not shared by DLPack"):
        np.from_dlpack(x)
