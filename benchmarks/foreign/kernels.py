#!/usr/bin/env python3
"""Runs Metal kernels of MLX, candle and ggml by `elinvar`, and compares the results of two devices, and of each with numpy in double precision.

    python kernels.py prepare inputs.safetensors                               # seeded inputs, the same on every machine
    python kernels.py run inputs.safetensors SOURCES --device metal-sim SIM    # results to the folder SIM
    python kernels.py run inputs.safetensors SOURCES --device cuda GPU
    python kernels.py compare SIM GPU                                          # a table

SOURCES holds clones of the three repositories, as `mlx`, `candle` and `ggml`. On the simulator a kernel is run by `elinvar check`, which also tells what is wrong
with it; elsewhere by `elinvar launch` with the same arguments.
"""

import argparse
import json
import os
import struct
import subprocess
import sys

import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16, "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "I32": np.int32, "I64": np.int64, "BF16": np.uint16}


def write_safetensors(path, tensors):
    header, at, blobs = {}, 0, []
    for name, (dtype, array) in tensors.items():
        blob = array.tobytes()
        header[name] = {"dtype": dtype, "shape": [array.size], "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_safetensors(path):
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        a, b = entry["data_offsets"]
        out[name] = (entry["dtype"], np.frombuffer(data[8 + length + a : 8 + length + b], DTYPES[entry["dtype"]]))
    return out


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(dtype, array):
    if dtype == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


class Tensor:
    """Values as a data type's."""

    def __init__(self, dtype, values):
        self.dtype = dtype
        self.shape = np.shape(values)
        self.array = to_bf16(values) if dtype == "BF16" else np.ascontiguousarray(values, DTYPES[dtype])

    def f64(self):
        return wide(self.dtype, self.array).reshape(self.shape)


rng = np.random.default_rng(20261120)


def normal(dtype, *shape, scale=1.0):
    return Tensor(dtype, rng.standard_normal(shape) * scale)


def zeros(dtype, *shape):
    return Tensor(dtype, np.zeros(shape))


def raw(blob):
    """Bytes, whatever they mean."""
    return Tensor("U8", np.frombuffer(blob, np.uint8))


def packed(form, *values):
    """Bytes of a C struct, with its alignment, as the command line takes them."""
    return "u8:" + ",".join(str(b) for b in struct.pack("@" + form, *values))


CASES = {}


def case(name, file, kernel, grid, threadgroup, buffers, values, output, reference, memory=(), constants=()):
    CASES[name] = dict(file=file, kernel=kernel, grid=grid, threadgroup=threadgroup, buffers=buffers, values=values, output=output, reference=reference,
                       memory=dict(memory), constants=dict(constants))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def layer(x, w, b, eps):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * w + b


MLX = "mlx/mlx/backend/metal/kernels/"
CANDLE = "candle/candle-metal-kernels/src/metal_src/"
GGML = "ggml/src/ggml-metal/ggml-metal.metal"
EPS = 1e-5
F32_EPS = np.float64(np.float32(EPS))

# --- MLX ---
x = normal("F32", 8, 1000, scale=3)
case("mlx softmax f32, block", MLX + "softmax.metal", "block_softmax_float32", "8", "256", {"in": x, "out": zeros("F32", 8, 1000)}, {"axis_size": "i32:1000"},
     "out", softmax(x.f64()))
x = normal("BF16", 4, 5000, scale=3)
case("mlx softmax bf16, looped", MLX + "softmax.metal", "looped_softmax_precise_bfloat16", "4", "1024", {"in": x, "out": zeros("BF16", 4, 5000)},
     {"axis_size": "i32:5000"}, "out", softmax(x.f64()))
x, w = normal("F32", 8, 1000), normal("F32", 1000)
case("mlx rms_norm f32", MLX + "rms_norm.metal", "rmsfloat32", "8", "256", {"x": x, "w": w, "out": zeros("F32", 8, 1000)},
     {"eps": f"f32:{EPS}", "axis_size": "u32:1000", "w_stride": "u32:1"}, "out", rms(x.f64(), w.f64(), F32_EPS), constants={"has_w": "true"})
x, w, b = normal("BF16", 8, 1500), normal("BF16", 1500), normal("BF16", 1500)
case("mlx layer_norm bf16", MLX + "layer_norm.metal", "layer_normbfloat16", "8", "384", {"x": x, "w": w, "b": b, "out": zeros("BF16", 8, 1500)},
     {"eps": f"f32:{EPS}", "axis_size": "u32:1500", "w_stride": "u32:1", "b_stride": "u32:1"}, "out", layer(x.f64(), w.f64(), b.f64(), F32_EPS),
     constants={"has_w": "true"})


def gemm(name, dtype, tile, m, n, k, folder):
    bm, bn, bk, wm, wn = tile
    a, b = normal(dtype, m, k), normal(dtype, n, k)
    tn, tm = -(-n // bn), -(-m // bm)
    params = packed("6i2i3q3i", m, n, k, k, k, n, tn, tm, m * k, n * k, m * n, 0, k // bk, 1)
    aligned = {"align_M": str(m % bm == 0).lower(), "align_N": str(n % bn == 0).lower(), "align_K": str(k % bk == 0).lower()}
    constants = {"has_batch": "false", "use_out_source": "false", "do_axpby": "false", **aligned}
    values = {"params": params}
    if folder == "mlx":
        type_ = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype]
        file, kernel = MLX + "steel/gemm/kernels/steel_gemm_fused.metal", f"steel_gemm_fused_nt_{type_}_{type_}_bm{bm}_bn{bn}_bk{bk}_wm{wm}_wn{wn}"
    else:
        file, kernel = CANDLE + "mlx_gemm.metal", f"gemm_nt_{dtype.lower()}_{dtype.lower()}_{bm}_{bn}_{bk}_{wm}_{wn}"
        constants["do_gather"] = "false"
        values |= {"batch_shape": "i32:1", "batch_strides": "u64:0"}
    case(name, file, kernel, f"{tn},{tm},1", f"32,{wn},{wm}", {"A": a, "B": b, "D": zeros(dtype, m, n)}, values, "D", a.f64() @ b.f64().T, constants=constants)


gemm("mlx gemm f32", "F32", (64, 64, 16, 2, 2), 100, 72, 50, "mlx")
gemm("mlx gemm bf16", "BF16", (64, 32, 32, 2, 2), 128, 96, 192, "mlx")

k, n = 1024, 64
q, s, b, x = rng.integers(0, 16, (n, k)), normal("F32", n, k // 64, scale=0.05), normal("F32", n, k // 64), normal("F32", k)
words = (q.reshape(n, k // 8, 8).astype(np.uint64) << (4 * np.arange(8, dtype=np.uint64))).sum(-1).astype(np.uint32)
dense = q * np.repeat(s.f64(), 64, 1) + np.repeat(b.f64(), 64, 1)
strides = {"x_batch_ndims": "i32:0", "x_shape": "i32:0", "x_strides": "i64:0", "w_batch_ndims": "i32:0", "w_shape": "i32:0", "w_strides": "i64:0",
           "s_strides": "i64:0", "b_strides": "i64:0"}
case("mlx quantised matvec, 4 bits", MLX + "quantized.metal", "affine_qmv_fast_float_gs_64_b_4_batch_0", f"1,{n // 8},1", "32,2,1",
     {"w": Tensor("U32", words), "scales": s, "biases": b, "x": x, "y": zeros("F32", n)},
     {"in_vec_size": f"i32:{k}", "out_vec_size": f"i32:{n}", **strides}, "y", dense @ x.f64())

x = Tensor("F32", np.round(rng.standard_normal((4, 900)), 2))
case("mlx arg sort f32", MLX + "sort.metal", "carg_block_sort_float32_uint32_bn256_tn4", "1,4,1", "256", {"inp": x, "out": zeros("U32", 4, 900)},
     {"size_sorted_axis": "i32:900", "in_stride_sorted_axis": "i32:1", "out_stride_sorted_axis": "i32:1", "in_stride_segment_axis": "i32:900",
      "out_stride_segment_axis": "i32:900"}, "out", np.argsort(x.f64(), -1, kind="stable"))
case("mlx sort f32", MLX + "sort.metal", "c_block_sort_float32_float32_bn256_tn4", "1,4,1", "256", {"inp": x, "out": zeros("F32", 4, 900)},
     {"size_sorted_axis": "i32:900", "in_stride_sorted_axis": "i32:1", "out_stride_sorted_axis": "i32:1", "in_stride_segment_axis": "i32:900",
      "out_stride_segment_axis": "i32:900"}, "out", np.sort(x.f64(), -1))


def attention(q, k, v, scale, causal=False, mask=None):
    group = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, 0), np.repeat(v, group, 0)
    s = np.einsum("hqd,hkd->hqk", q, k) * scale
    if mask is not None:
        s = s + mask
    if causal:
        s = np.where(np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1], s, -np.inf)
    return np.einsum("hqk,hkd->hqd", softmax(s), v)


h, kv, d, keys = 8, 2, 128, 200
q, k, v = normal("F32", h, 1, d), normal("F32", kv, keys, d), normal("F32", kv, keys, d)
scale = np.float64(np.float32(d**-0.5))
flags = {c: "false" for c in ["has_mask", "query_transposed", "do_causal", "bool_mask", "float_mask", "has_sinks"]}
case("mlx attention f32, one query", MLX + "scaled_dot_product_attention.metal", "sdpa_vector_float_128_128", f"{h},1,1", "1024",
     {"queries": q, "keys": k, "values": v, "out": zeros("F32", h, 1, d)},
     {"gqa_factor": f"i32:{h // kv}", "N": f"i32:{keys}", "k_head_stride": f"u64:{keys * d}", "k_seq_stride": f"u64:{d}",
      "v_head_stride": f"u64:{keys * d}", "v_seq_stride": f"u64:{d}", "scale": f"f32:{scale}"}, "out", attention(q.f64(), k.f64(), v.f64(), scale), constants=flags | {"blocks": "1"})
case("candle attention f32, one query", CANDLE + "scaled_dot_product_attention.metal", "sdpa_vector_float_128", f"1,{h},1", "1024",
     {"queries": q, "keys": k, "values": v, "out": zeros("F32", h, 1, d)},
     {"gqa_factor": f"i32:{h // kv}", "N": f"i32:{keys}", "k_stride": f"u64:{keys * d}", "v_stride": f"u64:{keys * d}", "scale": f"f32:{scale}",
      "softcapping": "f32:1"}, "out", attention(q.f64(), k.f64(), v.f64(), scale), constants={"sdpa_vector_has_mask": "false"})

h, kv, d, l = 4, 2, 64, 80
for dtype, name, bk in [("F32", "float32", 32), ("F16", "float16", 32)]:
    q, k, v = normal(dtype, h, l, d), normal(dtype, kv, l, d), normal(dtype, kv, l, d)
    scale = np.float64(np.float32(d**-0.5))
    nq, nk = -(-l // 32), -(-l // bk)
    params = packed("6if7i12q", 1, h, d, l, l, h // kv, scale, nq, nk, l // 32, l // bk, l % 32, l % bk, 0, h * l * d, l * d, d, kv * l * d, l * d, d,
                    kv * l * d, l * d, d, h * l * d, l * d, d)
    constants = {"align_Q": str(l % 32 == 0).lower(), "align_K": str(l % bk == 0).lower(), "has_mask": "false", "do_causal": "true", "has_sinks": "false"}
    case(f"mlx flash attention {dtype.lower()}", MLX + "steel/attn/kernels/steel_attention.metal", f"steel_attention_{name}_bq32_bk{bk}_bd64_wm4_wn1_mask{name}",
         f"{nq},{h},1", "32,4,1", {"Q": q, "K": k, "V": v, "O": zeros(dtype, h, l, d)}, {"params": params}, "O",
         attention(q.f64(), k.f64(), v.f64(), scale, causal=True), constants=constants)

# --- candle ---
x, w, b = normal("F32", 6, 777, scale=3), normal("F32", 777), normal("F32", 777)
sizes = {"src_numel": f"u32:{6 * 777}", "el_per_block": "u32:777"}
case("candle softmax f32", CANDLE + "reduce.metal", "softmax_f32", "6", "512", {"src": x, "dst": zeros("F32", 6, 777)}, sizes, "dst", softmax(x.f64()))
case("candle rms_norm f32", CANDLE + "reduce.metal", "rmsnorm_f32", "6", "512", {"src": x, "dst": zeros("F32", 6, 777), "alpha": w},
     {**sizes, "eps": f"f32:{EPS}"}, "dst", rms(x.f64(), w.f64(), F32_EPS))
case("candle layer_norm f32", CANDLE + "reduce.metal", "layernorm_f32", "6", "512", {"src": x, "dst": zeros("F32", 6, 777), "alpha": w, "beta": b},
     {**sizes, "eps": f"f32:{EPS}"}, "dst", layer(x.f64(), w.f64(), b.f64(), F32_EPS))
x = Tensor("F32", np.stack([rng.permutation(500) for _ in range(3)]) / 7 - 30)
case("candle arg sort f32", CANDLE + "sort.metal", "asort_asc_f32", "1,3,1", "512", {"x": x, "dst": zeros("U32", 3, 500)},
     {"ncols": "i64:500", "ncols_pad": "i64:512"}, "dst", np.argsort(x.f64(), -1), memory={"shared_values": 2048})
gemm("candle gemm f32", "F32", (32, 32, 16, 2, 2), 70, 45, 40, "candle")
gemm("candle gemm f16", "F16", (64, 64, 16, 1, 2), 128, 64, 256, "candle")


def halves(n, scale):
    return (rng.random(n) * scale + scale / 4).astype(np.float16)


def q4_0(n, k):
    d, q = halves((n, k // 32), 0.05), rng.integers(0, 16, (n, k // 32, 32))
    dense = (d.astype(np.float64)[..., None] * (q - 8)).reshape(n, k)
    qs = (q[..., :16] | q[..., 16:] << 4).astype(np.uint8)
    return np.concatenate([d[..., None].view(np.uint8), qs], -1), dense


def q8_0(n, k):
    d, q = halves((n, k // 32), 0.01), rng.integers(-127, 128, (n, k // 32, 32)).astype(np.int8)
    return np.concatenate([d[..., None].view(np.uint8), q.view(np.uint8)], -1), (d.astype(np.float64)[..., None] * q).reshape(n, k)


def q4_k(n, k):
    blocks = (n, k // 256)
    d, dmin, sc, mn = halves(blocks, 0.002), halves(blocks, 0.002), rng.integers(0, 64, (*blocks, 8)), rng.integers(0, 64, (*blocks, 8))
    q = rng.integers(0, 16, (*blocks, 8, 32))
    wide_d, wide_m = (d.astype(np.float64)[..., None] * sc)[..., None], (dmin.astype(np.float64)[..., None] * mn)[..., None]
    dense = (wide_d * q - wide_m).reshape(n, k)
    scales = np.concatenate([sc[..., :4] | (sc[..., 4:] >> 4) << 6, mn[..., :4] | (mn[..., 4:] >> 4) << 6, (sc[..., 4:] & 15) | (mn[..., 4:] & 15) << 4], -1)
    qs = (q[..., 0::2, :] | q[..., 1::2, :] << 4).reshape(*blocks, 128)
    return np.concatenate([d[..., None].view(np.uint8), dmin[..., None].view(np.uint8), scales.astype(np.uint8), qs.astype(np.uint8)], -1), dense


def q6_k(n, k):
    blocks = (n, k // 256)
    d, sc, q = halves(blocks, 0.001), rng.integers(-60, 60, (*blocks, 16)).astype(np.int8), rng.integers(0, 64, (*blocks, 2, 4, 32))
    dense = (d.astype(np.float64)[..., None, None] * sc[..., None].astype(np.float64) * (q.reshape(*blocks, 16, 16) - 32)).reshape(n, k)
    low, high = q & 15, q >> 4
    ql = np.concatenate([low[..., 0, :] | low[..., 2, :] << 4, low[..., 1, :] | low[..., 3, :] << 4], -1).reshape(*blocks, 128)
    qh = (high[..., 0, :] | high[..., 1, :] << 2 | high[..., 2, :] << 4 | high[..., 3, :] << 6).reshape(*blocks, 64)
    return np.concatenate([ql.astype(np.uint8), qh.astype(np.uint8), sc.view(np.uint8), d[..., None].view(np.uint8)], -1), dense


n, k = 64, 1024
for name, make, threadgroup, align in [("q4_0", q4_0, "8,8,1", 8), ("q8_0", q8_0, "8,8,1", 8), ("q4_K", q4_k, "4,8,1", 4), ("q6_K", q6_k, "2,32,1", 2)]:
    (blob, dense), x = make(n, k), normal("F32", k)
    zero = {name: "u64:0" for name in ["nb00", "nb01", "nb02", "nb10", "nb11", "nb12"]}
    shape = {"ne00": k, "ne01": n, "ne02": 1, "ne10": k, "ne11": 1, "ne12": 1, "ne0": n, "ne1": 1}
    case(f"candle matvec {name}", CANDLE + "quantized.metal", f"kernel_mul_mv_{name}_f32", f"{n // align},1,1", threadgroup,
         {"src0": raw(blob.tobytes()), "src1": x, "dst": zeros("F32", n)},
         {**{key: f"i64:{value}" for key, value in shape.items()}, **zero, "r2": "u32:1", "r3": "u32:1"}, "dst", dense @ x.f64())

# --- ggml ---
x, mask, sinks = normal("F32", 3, 5, 300, scale=3), normal("F16", 5, 300), normal("F32", 3)
scores = x.f64() * 0.5 + mask.f64()
with_sinks = np.concatenate([scores, np.broadcast_to(sinks.f64()[:, None, None], (3, 5, 1))], -1)
case("ggml soft_max, mask and sinks", GGML, "kernel_soft_max_f16", "5,3,1", "128", {"src0": x, "src1": mask, "src2": sinks, "dst": zeros("F32", 3, 5, 300)},
     {"args": packed("3i3Q3i3Q3Q4fi", 300, 5, 3, 1200, 6000, 18000, 5, 1, 1, 600, 3000, 3000, 1200, 6000, 18000, 0.5, 0.0, 1.0, 1.0, 2)}, "dst",
     softmax(with_sinks)[..., :300], memory={"buf": 128})
x, w, b = normal("F32", 6, 1200), normal("F32", 1200), normal("F32", 1200)
norm = packed("2i3Qf3i3i3i3Q3Q3Q", 1200, 300, 4800, 28800, 28800, EPS, 6, 1, 1, 1, 1, 1, 1, 1, 1, 4800, 4800, 4800, 28800, 4800, 4800, 28800, 4800, 4800)
buffers = lambda: {"src0": x, "src1_0": w, "src1_1": b, "dst": zeros("F32", 6, 1200)}
case("ggml norm, scale and shift", GGML, "kernel_norm_mul_add_f32_4", "6", "320", buffers(), {"args": norm}, "dst", layer(x.f64(), w.f64(), b.f64(), F32_EPS),
     memory={"shmem_f32": 128})
case("ggml rms_norm, scale", GGML, "kernel_rms_norm_mul_f32_4", "6", "320", buffers(), {"args": norm}, "dst", rms(x.f64(), w.f64(), F32_EPS),
     memory={"shmem_f32": 128})
x = Tensor("F32", np.stack([rng.permutation(500) for _ in range(3)]) / 7 - 30)
case("ggml arg sort", GGML, "kernel_argsort_f32_i32_desc", "3", "512", {"src0": x, "dst": zeros("I32", 3, 500)},
     {"args": packed("4i4Q5i", 500, 3, 1, 1, 4, 2000, 6000, 6000, 500, 3, 1, 1, 512)}, "dst", np.argsort(-x.f64(), -1), memory={"shmem_i32": 2048})

k = 1024
fc = {"FC_mul_mv_ne12": "1", "FC_mul_mv_r2": "1", "FC_mul_mv_r3": "1"}
for name, make, nr, nsg in [("q4_K", q4_k, 2, 2), ("q8_0", q8_0, 2, 4)]:
    (blob, dense), x = make(n, k), normal("F32", k)
    row = blob[0].size
    args = packed("3i4Q3i4Q3i2h", k, n, 1, blob.shape[-1], row, row * n, row * n, k, 1, 1, 4, 4 * k, 4 * k, 4 * k, n, 1, nr, 1, 1)
    rows = nr if name == "q8_0" else nr * nsg
    case(f"ggml matvec {name}", GGML, f"kernel_mul_mv_{name}_f32", f"{n // rows},1,1", f"32,{nsg},1", {"src0": raw(blob.tobytes()), "src1": x, "dst": zeros("F32", n)},
         {"args": args}, "dst", dense @ x.f64(), memory={"shmem": 32 * 4 * nr} if name == "q8_0" else {}, constants={**fc, "FC_mul_mv_nsg": str(nsg)})

m, k, cols = 96, 256, 40
x = normal("F32", cols, k)
for name in ["f16", "q4_K"]:
    if name == "f16":
        a = normal("F16", m, k)
        dense, row = a.f64(), 2 * k
    else:
        blob, dense = q4_k(m, k)
        a, row = raw(blob.tobytes()), blob[0].size
    args = packed("2i3Qi4Q2i2h", k, 1, row, row * m, row * m, 1, 4, 4 * k, 4 * k * cols, 4 * k * cols, m, cols, 1, 1)
    fc = {"FC_mul_mm_bc_inp": "false", "FC_mul_mm_bc_out": "true", "FC_mul_mm_ne12": "1", "FC_mul_mm_ne13": "1", "FC_mul_mm_r2": "1", "FC_mul_mm_r3": "1"}
    case(f"ggml matrix product {name}", GGML, f"kernel_mul_mm_{name}_f32", f"{-(-cols // 32)},{-(-m // 64)},1", "32,4,1",
         {"src0": a, "src1": x, "dst": zeros("F32", cols, m)}, {"args": args}, "dst", x.f64() @ dense.T, memory={"shmem": 8192}, constants=fc)

h, kv, d, keys = 8, 2, 128, 192
q, k, v, mask = normal("F32", h, 1, d), normal("F16", kv, keys, d), normal("F16", kv, keys, d), normal("F16", 1, keys)
scale = np.float64(np.float32(d**-0.5))
args = packed("3i3Q3ii3Qi3Q3i3Q3i4fif", 1, h, 1, 4 * d * h, 4 * d, 4 * d * h, keys, kv, 1, d, 2 * d, 2 * d * keys, 2 * d * keys * kv, d, 2 * d, 2 * d * keys,
              2 * d * keys * kv, 1, 1, 1, 2 * keys, 2 * keys, 2 * keys, h, 1, 1, scale, 0.0, 1.0, 1.0, 8, 0.0)
fc = {f"FC_flash_attn_ext_vec_{key}": value for key, value in
      {"has_mask": "true", "has_sinks": "false", "has_bias": "false", "has_scap": "false", "has_kvpad": "false", "ns10": str(d), "ns20": str(d), "nsg": "4", "nwg": "1"}.items()}
case("ggml flash attention f16, one query", GGML, "kernel_flash_attn_ext_vec_f16_dk128_dv128", f"1,{h},1", "32,4,1",
     {"q": q, "k": k, "v": v, "mask": mask, "sinks": zeros("F32", h), "pad": zeros("F16", 64), "dst": zeros("F32", h, d)}, {"args": args}, "dst",
     attention(q.f64(), k.f64(), v.f64(), scale, mask=mask.f64())[:, 0], memory={"shmem_f16": (128 + 4 * 32 + 2 * 128) * 4 * 2}, constants=fc)


def slug(name):
    return "".join(c if c.isalnum() else "_" for c in name)


def prepare(file):
    tensors = {f"{slug(name)}.{buffer}": (t.dtype, t.array) for name, c in CASES.items() for buffer, t in c["buffers"].items()}
    write_safetensors(file, tensors)


def run(inputs, sources, device, out, only):
    os.makedirs(out, exist_ok=True)
    chosen = {name: c for name, c in CASES.items() if only in name}
    failed = 0
    checks = device == "metal-sim"
    for name, c in chosen.items():
        command = [os.environ.get("ELINVAR", "elinvar"), "check" if checks else "launch", f"{sources}/{c['file']}", *([] if checks else ["--device", device]),
                   "--kernel", c["kernel"], "--grid", c["grid"], "--threadgroup", c["threadgroup"], "-I", f"{sources}/mlx", "-I", f"{sources}/ggml/src",
                   "--save", f"{out}/{slug(name)}.safetensors"]
        for buffer in c["buffers"]:
            command += ["--buffer", f"{buffer}={inputs}#{slug(name)}.{buffer}"]
        for flag, given in [("--value", c["values"]), ("--threadgroup-memory", c["memory"]), ("--constant", c["constants"])]:
            for key, value in given.items():
                command += [flag, f"{key}={value}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(f"{name}: {(done.stdout + done.stderr).strip()}", flush=True)
        # A check that finds something ends with 1, and the results are there.
        failed += done.returncode > (1 if checks else 0)
    sys.exit(f"{failed} of {len(chosen)} failed" if failed else 0)


def compare(first, second):
    print("| kernel | | results that differ | by, at most | off f64, first | off f64, second |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for name, c in CASES.items():
        results = [read_safetensors(f"{out}/{slug(name)}.safetensors")[c["output"]] for out in (first, second)]
        one, two = (wide(*result) for result in results)
        reference = c["reference"].ravel()
        size = np.abs(reference).max()
        off = [f"{np.abs(result - reference).max() / size:.1e}" for result in (one, two)]
        same = results[0][1].tobytes() == results[1][1].tobytes()
        differ = ["none", "–"] if same else [f"{(one != two).mean():.1%}", f"{np.abs(one - two).max() / size:.1e}"]
        print(f"| {name} | `{c['kernel']}` | {' | '.join(differ + off)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("prepare")
    verb.add_argument("inputs")
    verb = verbs.add_parser("run")
    verb.add_argument("inputs")
    verb.add_argument("sources")
    verb.add_argument("out")
    verb.add_argument("--device", default="metal-sim")
    verb.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains this")
    verb = verbs.add_parser("compare")
    verb.add_argument("first")
    verb.add_argument("second")
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.inputs)
    elif options.verb == "run":
        run(options.inputs, options.sources, options.device, options.out, options.only)
    else:
        compare(options.first, options.second)


if __name__ == "__main__":
    main()
