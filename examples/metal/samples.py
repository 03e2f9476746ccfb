"""Writes samples.safetensors: what the kernels of this folder are given, and what they must compute, in numbers that f32 holds exactly."""

import json
import struct
from pathlib import Path


def mix(n):
    """A whole number in [0, 256) that looks like chance."""
    n = (n * 2654435761 + 12345) & 0xFFFFFFFF
    return (n ^ n >> 15) % 256


def blur(image, width, height):
    # Multiples of nine, so that the mean is exact.
    at = lambda x, y: image[min(max(y, 0), height - 1) * width + min(max(x, 0), width - 1)]
    points = ((x, y) for y in range(height) for x in range(width))
    return [sum(at(x + dx, y + dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1)) / 9 for x, y in points]


a, b = ([mix(n + shift) / 4 for n in range(1024)] for shift in (0, 5000))
image = [9.0 * mix(n) for n in range(64 * 48)]
x = [float(mix(n + 9000)) for n in range(2048)]
tensors = {
    "a": a,
    "b": b,
    "sum": [p + q for p, q in zip(a, b)],
    "image": image,
    "blurred": blur(image, 64, 48),
    "x": x,
    "sums": [sum(x[n : n + 256]) for n in range(0, len(x), 256)],
}
header, data = {}, b""
for name, values in tensors.items():
    begin = len(data)
    data += struct.pack(f"<{len(values)}f", *values)
    header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
Path(__file__).with_name("samples.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
