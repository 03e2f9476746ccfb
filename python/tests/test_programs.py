"""Programs, fused functions and Metal kernels on tensors."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import elinvar

SAXPY = (Path(__file__).parents[2] / "examples/saxpy.atlas").read_text()

simulated = pytest.mark.simulated


@pytest.fixture(scope="module")
def cpu():
    return elinvar.Executor("cpu")


@pytest.mark.parametrize("backend", ["cpu", pytest.param("metal-sim", marks=simulated)])
def test_a_program_runs_over_tensors_and_arrays(backend):
    executor = elinvar.executor(backend)
    program = elinvar.Program.from_text(SAXPY)
    assert program.name == "saxpy" and [each.name for each in program.parameters] == ["x", "y", "a", "n"]
    assert [each.is_buffer for each in program.parameters] == [True, True, False, False] and not program.parameters[0].writes
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    program.run(executor, {"x": x, "y": y, "a": 2.5, "n": 1000}, threads=1000)
    np.testing.assert_array_equal(y, 2.5 * x + 1)
    tensor = executor.tensor(np.ones(1000, np.float32), copy=True)
    program.run(executor, {"x": executor.tensor(x), "y": tensor, "a": np.float32(2.5), "n": 1000}, grid=4)
    np.testing.assert_array_equal(tensor.numpy(), y)


def test_a_program_has_a_text_a_binary_form_and_the_texts_of_devices():
    program = elinvar.Program.from_text(SAXPY)
    for again in (elinvar.Program.from_bytes(program.bytes), elinvar.Program.from_text(program.text), pickle.loads(pickle.dumps(program))):
        assert again.text == program.text
    assert "[[kernel]] void program_saxpy(" in program.msl and "fma" in program.msl
    assert "__global__" in program.cuda and program.text in program._repr_html_().replace("&lt;", "<").replace("&gt;", ">")


def test_programs_that_are_wrong_and_arguments_that_do_not_fit(cpu):
    with pytest.raises(ValueError, match="line 3|3:"):
        elinvar.Program.from_text("atlas 1\nprogram p\nkernel nonsense\nend")
    whole = elinvar.Program.from_text(SAXPY).bytes
    for damaged in (b"nonsense", whole[:-1], whole[:20] + b"x" + whole[21:]):
        with pytest.raises(ValueError):
            elinvar.Program.from_bytes(damaged)
    with pytest.raises(NotImplementedError, match="this build reads version 2"):
        elinvar.Program.from_bytes(b"ATLS\xff" + whole[5:])
    program = elinvar.Program.from_text(SAXPY)
    x = np.ones(4, np.float32)
    frozen = x.copy()
    frozen.flags.writeable = False
    whole = {"x": x, "y": x.copy(), "a": 1.0, "n": 4}
    for change, error, wanted in [
        ({"x": x.astype(np.float64)}, ValueError, "'x' is a buffer of f32, the tensor has f64"),
        ({"z": x}, ValueError, "there is no parameter 'z': it takes x, y, a, n"),
        ({"z": 1}, ValueError, "there is no parameter 'z': it takes x, y, a, n"),
        ({"a": x}, ValueError, "'a' is a scalar of f32"),
        ({"n": 1.5}, ValueError, "'n'"),
        ({"n": "4"}, TypeError, "'n' is 4: a tensor, an array or a number is expected"),
        ({"y": frozen}, TypeError, "'y' is written, and the array that is given is read-only"),
    ]:
        with pytest.raises(error, match=wanted):
            program.run(cpu, {**whole, **change}, threads=4)
    with pytest.raises(ValueError, match="'n' \\(u32\\) is not given"):
        program.run(cpu, {"x": x, "y": x.copy(), "a": 1.0}, threads=4)
    with pytest.raises(ValueError, match="either threads="):
        program.run(cpu, whole)
    with pytest.raises(NotImplementedError, match="f64"):
        elinvar.Program.from_text("atlas 1\nprogram p\nbuffer x: update f64\nkernel\nv = load x[0]\nstore x[0] v\nend").msl


@elinvar.fuse
def gate(x, y, by):
    """Documented."""
    return elinvar.ops.silu(x) * y + by


def test_a_fused_function_is_one_program_with_the_bits_of_its_operators(cpu):
    x, y = cpu.randn((33, 65), seed=1), cpu.randn((65,), seed=2)
    want = elinvar.ops.silu(x) * y + 0.5
    assert gate(x, y, 0.5).tobytes() == want.tobytes() and gate.__doc__ == "Documented."
    trace = gate.trace(x, y, 0.5)
    (program,) = trace.programs
    assert trace.commands == 1 and "silu" in program.text and "[[kernel]] void" in trace.msl and "__global__" in trace.cuda
    # What shares NumPy's memory is done with it when the call returns.
    array = np.ones((33, 65), np.float32)
    result = gate(array, y, 0.5)
    array[:] = 0
    assert result.tobytes() == gate(cpu.ones((33, 65)), y, 0.5).tobytes()


def test_reductions_of_a_fused_function_are_launches_between_its_programs(cpu):
    @elinvar.fuse(executor=cpu)
    def normalised(x):
        centred = x - x.mean(axis=-1, keepdims=True)
        return (centred * 2.0).exp() / (1.0 + centred.square())

    x = np.random.default_rng(0).standard_normal((5, 7), np.float32)
    centred = x - x.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(normalised(x).numpy(), np.exp(centred * 2) / (1 + centred**2), rtol=1e-5)
    trace = normalised.trace(x)
    assert len(trace.programs) >= 1 and trace.commands > len(trace.programs)
    with pytest.raises(TypeError, match="no argument is an elinvar.Tensor"):
        gate(x, x, 1)


def test_gradients_flow_through_a_fused_function(cpu):
    x, y = cpu.randn((8,), seed=1), cpu.randn((8,), seed=2)
    of = elinvar.grad(lambda x: gate(x, y, 0.5).sum())
    plain = elinvar.grad(lambda x: (elinvar.ops.silu(x) * y + 0.5).sum())
    assert of(x).tobytes() == plain(x).tobytes()


SCALE = "uint i = thread_position_in_grid.x;\nif (i < uint(x_shape[0] * x_shape[1])) y[i] = T(by[0]) * x[i] + T(N);"


@pytest.fixture(scope="module")
def scale():
    return elinvar.metal_kernel(SCALE, name="scale", inputs=["x", "by"], outputs=["y"])


def called(scale, x, by=3.0, **more):
    arguments = {"threads": 12, "output_shapes": [(3, 4)], "output_dtypes": [elinvar.float32], "template": {"T": elinvar.float32, "N": 2}}
    (y,) = scale(x, np.array([by], np.float32), **{**arguments, **more})
    return y


@simulated
@pytest.mark.parametrize("backend", ["cpu", "metal-sim"])
def test_a_metal_kernel_runs_on_tensors(scale, backend):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    executor = elinvar.executor(backend)
    y = called(scale, executor.tensor(x))
    assert y.executor == executor and y.shape == (3, 4)
    np.testing.assert_array_equal(y.numpy(), 3 * x + 2)
    # A view is read in its own order, and a grid has whole threadgroups.
    y = called(scale, executor.tensor(np.ascontiguousarray(x.T)).T, threads=None, grid=1, threadgroup=32)
    np.testing.assert_array_equal(y.numpy(), 3 * x + 2)
    y = called(scale, executor.tensor(x), threads=4, init_value=7)
    np.testing.assert_array_equal(y.numpy().reshape(-1)[:6], [2, 5, 8, 11, 7, 7])


@simulated
def test_a_metal_kernel_has_the_gradient_that_it_is_given(scale, cpu):
    x = cpu.tensor(np.arange(12, dtype=np.float32).reshape(3, 4), requires_grad=True)
    with pytest.raises(ValueError, match="kernel scale has no gradient, and an input requires one: give vjp="):
        called(scale, x)
    with_gradient = elinvar.metal_kernel(
        SCALE, name="scale", inputs=["x", "by"], outputs=["y"], vjp=lambda inputs, upstream, outputs: (upstream[0] * inputs[1], None)
    )
    (called(with_gradient, x) * 2.0).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full((3, 4), 6, np.float32))
    wrong = elinvar.metal_kernel(SCALE, name="scale", inputs=["x", "by"], outputs=["y"], vjp=lambda *_: (None, None))
    with pytest.raises(ValueError, match="the gradient of scale gives none of input 0, which requires one"):
        called(wrong, x).sum().backward()

    def raises(*_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        called(elinvar.metal_kernel(SCALE, name="scale", inputs=["x", "by"], outputs=["y"], vjp=raises), x).sum().backward()


@simulated
def test_metal_kernels_that_are_wrong(scale, cpu):
    x = cpu.ones((3, 4))
    for more, error, wanted in [
        ({"threads": None}, ValueError, "either threads="),
        ({"output_shapes": []}, ValueError, "0 shapes and 1 types"),
        ({"output_dtypes": [elinvar.float64]}, TypeError, "Metal has no such type"),
    ]:
        with pytest.raises(error, match=wanted):
            called(scale, x, **more)
    with pytest.raises(ValueError, match="takes 2 inputs"):
        scale(x, output_shapes=[(1,)], output_dtypes=[elinvar.float32], threads=1)
    with pytest.raises(ValueError, match="given twice"):
        elinvar.metal_kernel("", name="k", inputs=["x"], outputs=["x"])
    broken = elinvar.metal_kernel("uint i = 0;\ny[i] = nothing;", name="broken", inputs=["x"], outputs=["y"])
    with pytest.raises(elinvar.CompileError, match="broken:2:.*nothing"):
        broken(x, output_shapes=[(1,)], output_dtypes=[elinvar.float32], threads=1)


@pytest.mark.skipif(not any(each.backend == "cuda" and each.available for each in elinvar.devices()), reason="no NVIDIA GPU here")
def test_metal_kernels_and_programs_on_an_nvidia_gpu(scale):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(called(scale, elinvar.executor("cuda").tensor(x)).numpy(), 3 * x + 2)
    test_a_program_runs_over_tensors_and_arrays("cuda")
    x, y = (elinvar.executor("cuda").randn((33, 65), seed=seed) for seed in (1, 2))
    assert gate(x, y, 0.5).tobytes() == gate(x.to("cpu"), y.to("cpu"), 0.5).tobytes()


def test_notebooks_show_devices_tensors_measurements_and_rooflines(cpu):
    assert "<td>cpu</td>" in elinvar.devices()._repr_html_()
    x = cpu.tensor(np.arange(200, dtype=np.float32).reshape(2, 10, 10))
    shown = x._repr_html_()
    assert "2×10×10 float32 on cpu" in shown and "<td>77</td>" in shown and "…" in shown
    assert "one element" in cpu.tensor(1.5)._repr_html_() and "<table" not in cpu.zeros((0, 3))._repr_html_()
    result = elinvar.benchmark({"exp": lambda: x.exp(), "neg": lambda: -x}, cpu, bytes={"exp": 1600}, flops={"exp": 200}, runs=2, warmup=0)
    assert [each.name for each in result.measurements] == ["exp", "neg"] and result.measurements[1].bandwidth is None
    assert "GB/s" in str(result) and "<td>exp</td>" in result._repr_html_()
    plot = result.roofline(bandwidth=10e9, peak=100e9)
    assert plot.bound(1) == 10e9 and plot.bound(1000) == 100e9
    assert plot._repr_html_().startswith("<svg") and "exp (" in plot.svg() and "neg" not in plot.svg()
    with pytest.raises(ValueError, match="more than nothing"):
        result.roofline(bandwidth=0, peak=1)
