"""Three Metal kernels and their tests, on any Linux machine: ``pytest examples/kernel-tests``.

`metal_kernel` is a fixture of Elinvar's pytest plugin. It runs a kernel under several schedules; what is wrong with it fails the test.
"""

import numpy as np

RANDOM = np.random.default_rng(0)


def test_saxpy(metal_kernel):
    x, y = RANDOM.standard_normal((2, 1000), np.float32)
    result = metal_kernel("saxpy.metal", buffers={"x": x, "y": y}, values={"a": 2.0}, threads=1000, threadgroup=256)
    np.testing.assert_allclose(result.buffers["y"], 2 * x + y, rtol=1e-6)


def test_row_sum(metal_kernel):
    x = RANDOM.standard_normal((8, 100), np.float32)
    result = metal_kernel("row_sum.metal", buffers={"x": x, "sums": 8}, values={"columns": 100}, grid=8, threadgroup=64)
    np.testing.assert_allclose(result.buffers["sums"], x.sum(axis=1), atol=1e-5)


def test_transpose(metal_kernel):
    x = RANDOM.standard_normal((64, 64), np.float32)
    result = metal_kernel("transpose.metal", buffers={"x": x, "y": (64, 64)}, values={"n": 64}, grid=(4, 4), threadgroup=(16, 16))
    np.testing.assert_array_equal(result.buffers["y"], x.T)
