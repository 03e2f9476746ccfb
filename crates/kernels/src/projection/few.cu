// Few rows, rounded to the type of the matrices, times the matrices of up to three linear layers: each with a bias or none; of one layer, the residual added; of
// two, gated.
//
// A thread block has 64 rows of matrices, 32 of each where they are gated, and a part of k; the blocks of a cluster put their parts together. Pieces of rows are
// in flight to shared memory while others are multiplied, those of matrices before the launches ahead have ended. A warp has 16 of the 64 rows and half of each
// piece.
//
// Macros: ELEMENT (f16 or bf16), PARTS (thread blocks of a cluster).

constexpr u32 ROWS = 8;
constexpr u32 COLUMNS = 64;
constexpr u32 THREADS = 256;
constexpr u32 PIECE = 128;             // Elements of a row.
constexpr u32 PITCH = 2 * PIECE + 16;  // Bytes between rows, so that eight rows' words are in eight times four banks.
constexpr u32 STAGE = (COLUMNS + ROWS) * PITCH;
constexpr u32 STAGES = 112 * 1024 / STAGE;
constexpr u64 RESIDUAL = 8;            // A bit of FewRows::present, after those of the biases.
constexpr u64 GATED = 16;

union Shared {
    unsigned char stages[STAGES][STAGE];
    float sums[2][ROWS][COLUMNS + 4];
};

struct Layer {
    const ELEMENT* w;
    const void* bias;
    float* y;
    u64 n;
};

// What a thread sends for: 16 bytes of every sixteenth row of a piece.
struct Sender {
    static constexpr u32 LANES = 2 * PIECE / 16, EVERY = THREADS / LANES;

    Shared& shared;
    const ELEMENT* columns[COLUMNS / EVERY];
    // Null where there is no row: what its place holds concerns no result.
    const ELEMENT* rows;
    bool wide;

    DEVICE u32 place(u32 i, u32 row) const { return shared_address(shared.stages[i % STAGES] + row * PITCH + threadIdx.x % LANES * 16); }

    DEVICE void send_columns(u32 i) const {
#pragma unroll
        for (u32 r = 0; r < COLUMNS / EVERY; ++r) {
            const ELEMENT* from = columns[r] + i * PIECE;
            const u32 to = place(i, threadIdx.x / LANES + r * EVERY);
            if (wide) {
                copy_async(to, from, 16);
            } else {
                u32 words[4];
                for (u32 e = 0; e < 4; ++e) {
                    words[e] = from[2 * e].bits | u32(from[2 * e + 1].bits) << 16;
                }
                store_shared(to, words);
            }
        }
    }

    DEVICE void send_rows(u32 i) const {
        if (rows) {
            copy_async(place(i, COLUMNS + threadIdx.x / LANES), rows + i * PIECE, 16);
        }
    }
};

DEVICE void multiply_piece(const unsigned char* piece, float (&sums)[4]) {
    const u32 lane = threadIdx.x % 32, group = threadIdx.x / 32 % 4, half = threadIdx.x / 128;
    const u32 start = shared_address(piece) + half * PIECE;
    const u32 columns = start + (16 * group + lane % 16) * PITCH + lane / 16 * 16;
    const u32 rows = start + (COLUMNS + lane % 8) * PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (u32 step = 0; step < PIECE / 32; ++step) {
        u32 a[4], b[2];
        load_matrices(a, columns + 32 * step);
        load_matrices(b, rows + 32 * step);
        multiply<ELEMENT>(sums, a, b[0], b[1]);
    }
}

// What all have found of four columns of a row.
DEVICE void put_together(const Shared& shared, u32 row, u32 column, float (&total)[4]) {
    for (u32 e = 0; e < 4; ++e) {
        total[e] = 0.0f;
    }
#pragma unroll
    for (u32 part = 0; part < PARTS; ++part) {
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            const float4& here = *reinterpret_cast<const float4*>(&shared.sums[half][row][column]);
            const float4 found = PARTS > 1 ? load_from(part, here) : here;
            total[0] += found.x;
            total[1] += found.y;
            total[2] += found.z;
            total[3] += found.w;
        }
    }
}

extern "C" __global__ void __cluster_dims__(PARTS, 1, 1) __launch_bounds__(THREADS, 2) few_rows(
    const ELEMENT* x,
    const ELEMENT* w0,
    const ELEMENT* w1,
    const ELEMENT* w2,
    const void* b0,
    const void* b1,
    const void* b2,
    const float* residual,
    float* y0,
    float* y1,
    float* y2,
    const __grid_constant__ FewRows p) {
    extern __shared__ __align__(128) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Layer layers[3] = {{w0, b0, y0, p.n[0]}, {w1, b1, y1, p.n[1]}, {w2, b2, y2, p.n[2]}};
    const bool gated = (p.present & GATED) != 0;
    const u32 height = gated ? COLUMNS / 2 : COLUMNS, part = blockIdx.x % PARTS;
    u32 tile = blockIdx.x / PARTS, number = 0;
    for (; !gated && number < 2 && tile >= (p.n[number] + height - 1) / height; ++number) {
        tile -= u32((p.n[number] + height - 1) / height);
    }
    const Layer layer = number == 0 ? layers[0] : number == 1 ? layers[1] : layers[2];
    const u64 first = u64(tile) * height;
    const u32 pieces = u32(p.k / PIECE), begin = pieces * part / PARTS, count = pieces * (part + 1) / PARTS - begin;

    Sender sender = {shared, {}, nullptr, true};
    const u64 start = u64(begin) * PIECE + threadIdx.x % Sender::LANES * 8;
#pragma unroll
    for (u32 r = 0; r < COLUMNS / Sender::EVERY; ++r) {
        const u32 column = threadIdx.x / Sender::LANES + r * Sender::EVERY;
        const bool is_up = gated && column >= height;
        sender.columns[r] = (is_up ? w1 : layer.w) + min(first + column - (is_up ? height : 0), layer.n - 1) * p.k + start;
        sender.wide &= (u64(sender.columns[r]) & 15) == 0;
    }
    if (threadIdx.x / Sender::LANES < p.m) {
        sender.rows = x + threadIdx.x / Sender::LANES * p.k + start;
    }
    admit_launches();
    for (u32 i = 0; i < min(count, STAGES - 1); ++i) {
        sender.send_columns(i);
    }
    await_launches();
    for (u32 i = 0; i < STAGES - 1; ++i) {
        if (i < count) {
            sender.send_rows(i);
        }
        end_copies();
    }
    float sums[4] = {};
    for (u32 i = 0; i < count; ++i) {
        await_copies<STAGES - 2>();
        __syncthreads();
        const u32 next = i + STAGES - 1;
        if (next < count) {
            sender.send_columns(next);
            sender.send_rows(next);
        }
        end_copies();
        multiply_piece(shared.stages[i % STAGES], sums);
    }
    __syncthreads();
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        shared.sums[warp / 4][2 * (lane % 4) + i % 2][16 * (warp % 4) + lane / 4 + 8 * (i / 2)] = sums[i];
    }
    if constexpr (PARTS > 1) {
        meet();
    } else {
        __syncthreads();
    }
    const u32 fours = height / 4;
    for (u32 i = part * THREADS + threadIdx.x; i < p.m * fours; i += PARTS * THREADS) {
        const u32 row = i / fours, at = i % fours * 4;
        float total[4], other[4];
        put_together(shared, row, at, total);
        if (gated) {
            put_together(shared, row, at + COLUMNS / 2, other);
        }
#pragma unroll
        for (u32 e = 0; e < 4; ++e) {
            const u64 column = first + at + e, place = row * layer.n + column;
            if (column < layer.n) {
                float value = p.present >> number & 1 ? total[e] + load_as(layer.bias, p.bias, column) : total[e];
                if (gated) {
                    const float up = p.present & 2 ? other[e] + load_as(b1, p.bias, column) : other[e];
                    value = value / (1.0f + exp2_approximate(-LOG2_E * value)) * up;
                }
                layer.y[place] = p.present & RESIDUAL ? residual[place] + value : value;
            }
        }
    }
    if constexpr (PARTS > 1) {
        leave();
    }
}
