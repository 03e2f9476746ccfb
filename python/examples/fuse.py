"""A chain of operators as one program, which can be read: python examples/fuse.py [cpu | cuda | metal]"""

import sys

import elinvar


@elinvar.fuse
def swish_gate(x, gate, bias):
    return elinvar.ops.silu(x + bias) * gate


executor = elinvar.Executor(sys.argv[1] if len(sys.argv) > 1 else "cpu")
x, gate, bias = executor.randn((512, 1024), seed=1), executor.randn((512, 1024), seed=2), executor.randn((1024,), seed=3)
trace = swish_gate.trace(x, gate, bias)
print(trace.text)
assert len(trace.programs) == trace.commands == 1

plain = elinvar.ops.silu(x + bias) * gate
assert swish_gate(x, gate, bias).tobytes() == plain.tobytes(), "the bits are the same"

print(
    elinvar.benchmark(
        {"one by one": lambda: elinvar.ops.silu(x + bias) * gate, "fused": lambda: swish_gate(x, gate, bias)},
        executor,
        bytes={"fused": 3 * x.nbytes},
        runs=5,
    )
)
