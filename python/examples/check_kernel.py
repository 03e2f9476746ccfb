"""A Metal kernel with a race, and the report of it: python examples/check_kernel.py"""

import numpy as np

import elinvar

SOURCE = """#include <metal_stdlib>
using namespace metal;

kernel void shift(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[256];
    tile[t] = x[t];
    // Here a barrier is missing: threadgroup_barrier(mem_flags::mem_threadgroup);
    y[t] = tile[(t + 1) % 256];
}
"""

x = np.arange(256, dtype=np.float32)
result = elinvar.check(SOURCE, buffers={"x": x, "y": 256}, grid=1, threadgroup=256)
print(result)
assert "data-race" in {finding.kind for finding in result.findings}

fixed = SOURCE.replace("// Here a barrier is missing: ", "")
result = elinvar.check(fixed, buffers={"x": x, "y": 256}, grid=1, threadgroup=256, expect={"y": np.roll(x, -1)})
print(result)
assert result.ok
