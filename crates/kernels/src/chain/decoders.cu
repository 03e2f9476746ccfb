// Senders of matrices of quantised elements: they decode them, round them to ELEMENT, and store them where wgmma takes them from.
//
// FORMAT is the format. Rows have whole pairs of panels.

// A warp takes eight rows by four chunks of 32 elements at a time, a lane a row's chunk: so many such units of a piece for each of the warps.
constexpr u32 SENDERS = 256, UNITS = EIGHTS * PANELS / 2, EACH = (UNITS + SENDERS / 32 - 1) / (SENDERS / 32);
// Warps that take some; each reports a piece once.
constexpr u32 REPORTS = (UNITS + EACH - 1) / EACH;

// Bytes of packed rows in flight. A lane has its chunk's planes there, and the words that its subscales and its numbers are in.
constexpr u32 COMING = 48 << 10, LANE = 4 * (FORMAT::LOW + FORMAT::HIGH + (FORMAT::SUBSCALES > 0) + (FORMAT::NUMBERS > 0));
// Pieces in flight.
constexpr u32 AHEAD = COMING / (32 * LANE * EACH * REPORTS);

// So many bytes for each lane, side by side.
template <u32 BYTES>
DEVICE void copy_lane(uchar* to, const uchar* from) {
    copy_bytes<BYTES>(shared_address(to + threadIdx.x % 32 * BYTES), from);
}

// A plane of BITS bits: of each lane as many bytes as an instruction copies, then again.
template <u32 BITS>
struct Lanes {
    static constexpr u32 PART = BITS < 4 ? 4 * BITS : 16;

    static DEVICE void copy(uchar* to, const uchar* from) {
#pragma unroll
        for (u32 part = 0; part < 4 * BITS; part += PART) {
            copy_lane<PART>(to + 32 * part, from + part);
        }
    }

    static DEVICE void load(formats::Plane<BITS>& plane, const uchar* from) {
#pragma unroll
        for (u32 i = 0; i < BITS; ++i) {
            const u32 word = i % (PART / 4), part = i - word;
            plane.words[i] = reinterpret_cast<const u32*>(from + 128 * part + threadIdx.x % 32 * PART)[word];
        }
    }
};
template <>
struct Lanes<0> {
    static DEVICE void copy(uchar*, const uchar*) {}
    static DEVICE void load(formats::Plane<0>&, const uchar*) {}
};

// The word that an address is in.
DEVICE const uchar* word_of(const uchar* at) { return reinterpret_cast<const uchar*>(u64(at) & ~u64(3)); }
DEVICE u32 from_word(const uchar* from, const uchar* at) { return reinterpret_cast<const u32*>(from)[threadIdx.x % 32] >> u32(u64(at) & 3) * 8; }

// A warp's unit in shared memory.
struct Raw {
    typedef FORMAT F;
    uchar* low;

    DEVICE uchar* high() const { return low + 128 * F::LOW; }
    DEVICE uchar* subscales() const { return high() + 128 * F::HIGH; }
    DEVICE uchar* numbers() const { return subscales() + (F::SUBSCALES > 0 ? 128 : 0); }

    DEVICE void send(const formats::PackedPlace<F>& from) const {
        Lanes<F::LOW>::copy(low, from.low);
        Lanes<F::HIGH>::copy(high(), from.high);
        if (F::SUBSCALES > 0) {
            copy_lane<4>(subscales(), word_of(from.subscales));
        }
        if (F::NUMBERS > 0) {
            copy_lane<4>(numbers(), word_of(from.numbers));
        }
    }

    DEVICE void load(formats::Packed<F>& packed, const formats::PackedPlace<F>& from) const {
        Lanes<F::LOW>::load(packed.low, low);
        Lanes<F::HIGH>::load(packed.high, high());
        packed.subscales = F::SUBSCALES > 0 ? from_word(subscales(), from.subscales) & (F::SUBSCALES == 2 ? 0xffffu : 0xffu) : 0;
        packed.numbers = F::NUMBERS > 0 ? from_word(numbers(), from.numbers) : 0;
    }
};

// Elements 4 i … 4 i + 3 of a chunk by their fields, as dequantize gives them: to the bit.
DEVICE void decode_four(float (&values)[4], u32 low, u32 high, float scale, float offset) {
    typedef FORMAT F;
    // Fields of a few bits are had as floats from 128 on, by their bytes; others, as bytes with a sign, from 32768 on.
    const bool is_plain = F::LOW + F::HIGH < 8 && !F::Fields::IS_TABLE;
    const u32 bytes = is_plain ? low | high << F::LOW : formats::signed_bytes<F>(low, high) ^ 0x80808080u;
    const float zero = -(128.0f + F::ZERO) * scale;
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
        float value;
        if (is_plain) {
            value = __fmaf_rn(__uint_as_float(__byte_perm(bytes, 0x43, 0x4055 + 0x100 * e)), scale, zero);
        } else {
            value = (__uint_as_float(__byte_perm(bytes, 0x47, 0x4505 + 0x10 * e)) - 32896.0f) * scale;
        }
        values[e] = F::OFFSETS ? value + offset : value;
    }
}

// A warp's units of the pieces of a tile.
struct Units {
    const ChainProduct& p;
    const uchar* matrix;
    const uchar* up;
    u32 height;
    u32 first;
    u32 last;

    DEVICE Units(const ChainProduct& p, const Layer (&layers)[3], u32 index, u32 height) : p(p), height(height) {
        const Tile tile(p, layers, index, height);
        matrix = reinterpret_cast<const uchar*>(tile.layer.w);
        up = reinterpret_cast<const uchar*>(layers[1].w);
        first = tile.first;
        last = u32(tile.layer.n) - 1;
    }

    static DEVICE u32 warp() { return (threadIdx.x - COMPUTERS) / 32; }
    static DEVICE u32 number(u32 i) { return warp() + REPORTS * i; }
    static DEVICE u32 eight(u32 i) { return number(i) / (PANELS / 2); }
    static DEVICE u32 panel(u32 i) { return number(i) % (PANELS / 2) * 2 + threadIdx.x / 16 % 2; }

    DEVICE formats::PackedPlace<FORMAT> place(u32 i, u32 piece) const {
        const u32 column = eight(i) * 8 + threadIdx.x % 8;
        const bool is_up = column >= height;
        const uchar* const row = (is_up ? up : matrix) + u64(min(first + column - (is_up ? height : 0), last)) * u32(p.row_bytes);
        return formats::PackedPlace<FORMAT>(row, (piece * PANELS + panel(i)) * 2 + threadIdx.x / 8 % 2, u32(p.k) / 32);
    }

    DEVICE void send(uchar* raw, u32 slot, u32 piece) const {
#pragma unroll 1
        for (u32 i = 0; i < EACH && piece < p.pieces && number(i) < UNITS; ++i) {
            Raw{raw + (slot * EACH + i) * 32 * LANE}.send(place(i, piece));
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

template <bool WIDE>
DEVICE void send(Place place, const Layer (&layers)[3], u32 height, uchar* all) {
    const ChainProduct& p = place.p;
    if (Units::warp() >= REPORTS) {
        return;
    }
    const u32 row = threadIdx.x % 8, half = threadIdx.x / 8 % 2;
    uchar* const raw = all + Units::warp() * AHEAD * EACH * 32 * LANE;
    for (u32 index = blockIdx.x; index < p.ends[2]; index += gridDim.x) {
        const Units units(p, layers, index, height);
        for (u32 piece = 0; piece < AHEAD && WIDE; ++piece) {
            units.send(raw, piece, piece);
        }
        for (u32 piece = 0, slot = 0; piece < p.pieces; ++piece, place.advance()) {
            if (WIDE) {
                asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
            }
            wait(place.empty(), place.parity ^ 1);
#pragma unroll 1
            for (u32 i = 0; i < EACH && Units::number(i) < UNITS; ++i) {
                formats::Packed<FORMAT> packed;
                if (WIDE) {
                    Raw{raw + (slot * EACH + i) * 32 * LANE}.load(packed, units.place(i, piece));
                } else {
                    packed.template load<formats::Anywhere>(units.place(i, piece), 0);
                }
                const formats::Scales scales = packed.scales();
                const u32 to = place.columns() + (Units::panel(i) * EIGHTS + Units::eight(i)) * ATOM + row * 128;
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    u32 words[4];
#pragma unroll
                    for (u32 four = 0; four < 2; ++four) {
                        float values[4];
                        decode_four(values, packed.low.bytes(2 * j + four), packed.high.bytes(2 * j + four), scales.scale[j / 2], scales.offset[j / 2]);
                        words[2 * four] = pack<ELEMENT>(values[0], values[1]);
                        words[2 * four + 1] = pack<ELEMENT>(values[2], values[3]);
                    }
                    store_shared(to + ((4 * half + j) ^ row) * 16, words);
                }
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            if (threadIdx.x % 32 == 0) {
                arrive(place.full());
            }
            if (WIDE) {
                units.send(raw, slot, piece + AHEAD);
                slot = slot + 1 == AHEAD ? 0 : slot + 1;
            }
        }
    }
}
