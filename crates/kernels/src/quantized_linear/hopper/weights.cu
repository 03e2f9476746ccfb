// Makes records of the weights of up to three layers. A thread block has the chunks of 64 rows, a warp four of eight rows at a time.

// A plane's words, which are stored together.
template <u32 BITS>
struct __align__(4 * BITS) Words {
    u32 at[BITS];
};

template <u32 BITS>
DEVICE void store_plane(const formats::Plane<BITS>& plane, uchar* to) {
    Words<BITS> words;
#pragma unroll
    for (u32 i = 0; i < BITS; ++i) {
        words.at[i] = plane.words[i];
    }
    *reinterpret_cast<Words<BITS>*>(to) = words;
}
DEVICE void store_plane(const formats::Plane<0>&, uchar*) {}

template <typename Place>
DEVICE void make(const uchar* row, uchar* record, u32 own, u32 chunk, u32 chunks) {
    formats::Packed<F> packed;
    packed.template load<Place>(formats::PackedPlace<F>(row, chunk, chunks), 0);
    store_plane(packed.low, record + own * 4 * F::LOW);
    store_plane(packed.high, record + WeightRecord::HIGH + own * 4 * F::HIGH);
    const formats::Scales scales = packed.scales();
#pragma unroll
    for (u32 part = 0; part < PARTS; ++part) {
        float* const to = reinterpret_cast<float*>(record + WeightRecord::SCALES + (part * WeightRecord::ROWS + own) * WeightRecord::NUMBER);
        if constexpr (F::OFFSETS) {
            *reinterpret_cast<float2*>(to) = make_float2(scales.scale[part], scales.offset[part]);
        } else {
            *to = scales.scale[part];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weight_records(const uchar* w0, const uchar* w1, const uchar* w2, uchar* records, const __grid_constant__ WeightRecords p) {
    const u32 lane = threadIdx.x % 32, own = threadIdx.x / 32 * 8 + lane % 8, chunks = u32(p.chunks);
    const u32 block = blockIdx.x, number = u32(block >= p.ends[0]) + u32(block >= p.ends[1]);
    const uchar* const matrix = number == 0 ? w0 : number == 1 ? w1 : w2;
    const u64 row = u64(block - (number == 0 ? 0 : p.ends[number - 1])) * WeightRecord::ROWS + own;
    const uchar* const from = matrix + min(row, p.n[number] - 1) * p.row_bytes;
    uchar* const to = records + u64(block) * chunks * WeightRecord::BYTES;
    admit_launches();
    await_launches();
    for (u32 chunk = blockIdx.y * 4 + lane / 8; chunk < chunks; chunk += gridDim.y * 4) {
        if ((u64(matrix) & 15) == 0) {
            make<formats::Aligned>(from, to + u64(chunk) * WeightRecord::BYTES, own, chunk, chunks);
        } else {
            make<formats::Anywhere>(from, to + u64(chunk) * WeightRecord::BYTES, own, chunk, chunks);
        }
    }
}
