// Puts together what two_pass.cu left for the parts of the keys: a thread block for each row and 32 elements, whose warps take parts in turn.
//
// Macros: Q (float, f16 or bf16) and WIDTH.

constexpr int WARPS = 4;
constexpr int TOGETHER = 64;  // Parts whose sums are in flight at once.
constexpr int SHARE = TOGETHER / WARPS;
constexpr int GROUP = 4;  // Of a share: groups without parts are not asked for.

// A part's greatest score, in base 2, and sum of weights.
struct State {
    float base;
    float sum;
};

// Loads in the order of the text, of global memory: what `values` and `states` point to is hidden from the compiler below.
DEVICE float load(const float* from) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}

DEVICE State load(const State* from) {
    State x;
    asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(x.base), "=f"(x.sum) : "l"(from) : "memory");
    return x;
}

// Eight thread blocks to a multiprocessor leave registers for all that is on its way at once. Where as many as possible were to fit, the compiler would load
// one part after another.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 8) attention_combine_fast(const float* found, Q* y,
                                                                                 const __grid_constant__ DELIVERING(AttentionSplitParams) params) {
    __shared__ float totals[WARPS][32];
    const Params& p = params.attention;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, parts = params.split.parts, column = blockIdx.x * 32 + lane;
    const u32 row = blockIdx.y, queries = u32(p.score.queries), heads = u32(p.score.heads);
    const float* values = found + i64(row) * parts * WIDTH + column;
    const State* states = reinterpret_cast<const State*>(found + i64(gridDim.y) * parts * WIDTH) + row * parts;
    Q* to = y + row_of(p.y, row / queries / heads, row / queries % heads, row % queries) + column;
    // As they are now: the compiler would make them anew from the row's number, for each address.
    asm volatile("" : "+l"(values), "+l"(states));
    admit_launches();
    await_launches();

    float base = NEVER, sum = 0.0f, total = 0.0f;
    for (int first = 0; first < parts; first += TOGETHER) {
        // All in flight at once.
        float next[SHARE] = {};
        State own[TOGETHER / 32];
#pragma unroll
        for (int i = 0; i < TOGETHER / 32; ++i) {
            const int part = first + 32 * i + lane;
            own[i] = part < parts ? load(states + part) : State{NEVER, 0.0f};
        }
#pragma unroll
        for (int i = 0; i < SHARE; i += GROUP) {
            if (first + WARPS * i < parts) {
#pragma unroll
                for (int j = i; j < i + GROUP; ++j) {
                    next[j] = load(values + u32(min(first + WARPS * j + warp, parts - 1)) * WIDTH);
                }
            }
        }
        float most = base;
#pragma unroll
        for (int i = 0; i < TOGETHER / 32; ++i) {
            most = fmaxf(most, own[i].base);
        }
#pragma unroll
        for (int lanes = 1; lanes <= 16; lanes *= 2) {
            most = fmaxf(most, __shfl_xor_sync(~0u, most, lanes));
        }
        // Nothing is taken while no part has a key.
        const float shift = most == NEVER ? 0.0f : most, before = exp2_approximate(base - shift);
        base = most;
        sum *= before;
        total *= before;
        float factors[TOGETHER / 32];
#pragma unroll
        for (int i = 0; i < TOGETHER / 32; ++i) {
            factors[i] = exp2_approximate(own[i].base - shift);
            sum = fmaf(own[i].sum, factors[i], sum);
        }
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            total = fmaf(next[i], __shfl_sync(~0u, factors[WARPS * i / 32], (WARPS * i + warp) % 32), total);
        }
    }
#pragma unroll
    for (int lanes = 1; lanes <= 16; lanes *= 2) {
        sum += __shfl_xor_sync(~0u, sum, lanes);
    }
    totals[warp][lane] = total;
    __syncthreads();
    if (warp == 0) {
#pragma unroll
        for (int w = 1; w < WARPS; ++w) {
            total += totals[w][lane];
        }
        const float result = sum == 0.0f ? 0.0f : total / sum;
        store(to, result);
        outbox(params).send(u32(to - y), result);
    }
}
