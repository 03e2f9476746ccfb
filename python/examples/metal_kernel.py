"""A Metal kernel of one's own, with its gradient, in a computation: python examples/metal_kernel.py [cpu | cuda | metal]"""

import sys

import elinvar

# x to the power of N: `T` and `N` are given by each call.
power = elinvar.metal_kernel(
    """
    uint i = thread_position_in_grid.x;
    T result = T(1);
    for (int n = 0; n < N; n++) result *= x[i];
    y[i] = result;
    """,
    name="whole_power",
    inputs=["x"],
    outputs=["y"],
)


def call(x, n):
    (y,) = power(x, output_shapes=[x.shape], output_dtypes=[x.dtype], threads=x.size, template={"T": x.dtype, "N": n})
    return y


@power.vjp
def power_gradient(inputs, upstream, outputs):
    """Of the cube."""
    return (upstream[0] * 3.0 * call(inputs[0], 2),)


executor = elinvar.Executor(sys.argv[1] if len(sys.argv) > 1 else "cpu")
x = executor.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = call(x, 3).sum()
loss.backward()
print("the sum of cubes:", loss.item(), "and its gradient:", x.grad.tolist())
assert loss.item() == 36.0 and x.grad.tolist() == [3.0, 12.0, 27.0]
