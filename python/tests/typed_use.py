"""The package as typed code uses it: read by mypy and pyright in strict mode, and not run."""

import numpy as np

import elinvar
from elinvar import array_api, lora


def tensors(executor: elinvar.Executor) -> float:
    x = executor.tensor(np.ones((2, 3), np.float32))
    weight = executor.tensor([[0.5, -0.5]], dtype="float32", requires_grad=True)
    loss = ((x[:, :2] @ weight.T) ** 2).sum()
    loss.backward()
    with elinvar.no_grad():
        if weight.grad is not None:
            weight -= 0.1 * weight.grad
    weight.grad = None
    with executor.record() as recording:
        y = elinvar.ops.softmax(x * 2 + 1, axis=-1)
    recording.replay()
    y[0, 1:] = array_api.mean(array_api.sin(x)).astype(elinvar.float32)
    return float(np.asarray(y).max()) + y.numpy().size + float(loss)


@elinvar.fuse
def gate(x: elinvar.Tensor, y: elinvar.Tensor) -> elinvar.Tensor:
    return elinvar.ops.silu(x) * y + 1.0


def programs(x: elinvar.Tensor) -> str:
    scale = elinvar.metal_kernel("y[0] = x[0];", name="scale", inputs=["x"], outputs=["y"])

    @scale.vjp
    def gradient(
        inputs: tuple[elinvar.Tensor, ...], upstream: tuple[elinvar.Tensor, ...], outputs: tuple[elinvar.Tensor, ...]
    ) -> tuple[elinvar.Tensor, None]:
        return upstream[0] * inputs[0], None

    (y,) = scale(x, output_shapes=[x.shape], output_dtypes=[x.dtype], threads=x.size, template={"T": x.dtype, "N": 4})
    elinvar.Program.from_text("").run(x.executor, {"x": x, "y": np.ones(4), "a": 2.0, "b": np.float32(1)}, threads=4)
    return gate(x, y).device + gate.trace(x, y).msl + gradient.__name__


def checks() -> list[int | None]:
    result = elinvar.check(
        "k.metal", buffers={"x": np.ones(4, np.float32), "y": 4, "z": (3, 4)}, values={"n": 4, "a": [1.0, 2], "b": np.float32(1), "c": b""}, threads=4
    )
    return [finding.line for finding in result.findings]


async def models() -> str:
    model = elinvar.Model.load("model.gguf")
    lora.train(model, [{"prompt": "2 + 2 =", "completion": " 4"}], on_step=lambda step: print(step.loss))
    text = "".join([piece async for piece in model.stream("Once", temperature=0.8, stop=["."])])
    return text + str(model.generate("Once", greedy=True)) + model.chat([{"role": "user", "content": text}]).text
