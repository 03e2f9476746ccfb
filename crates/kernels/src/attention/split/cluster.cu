// The parts are the thread blocks of a cluster. Each puts together what its warps found and sends every block that one's share of the elements, of all rows. A barrier
// in shared memory counts what arrives, so that a block waits neither for its stores to device memory nor until others have read what it has.

constexpr int SHARE = WIDTH / PARTS;

// What the parts send to a thread block.
struct __align__(16) Received {
    float bases[PARTS][ROWS];
    float sums_of_weights[PARTS][ROWS];
    float totals[PARTS][ROWS][SHARE];
    u64 barrier;
};
constexpr int RECEIVED = sizeof(Received);

typedef Q Result;
#define CLUSTERED __cluster_dims__(PARTS, 1, 1)
constexpr bool PREFETCHED = true;

// Before anything is sent: the barrier expects all parts of the rows.
template <typename Tile>
DEVICE void expect_parts(Received& received, const Tile& tile) {
    const u32 barrier = shared_address(&received.barrier);
    if (threadIdx.x == 0) {
        init(barrier, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        expect(barrier, PARTS * tile.count() * (SHARE + 2) * 4);
    }
    arrive_at_cluster();
}

template <typename Tile>
DEVICE void finish(Memory& memory, Received& received, const Tile& tile, bool has_newest, Result* result, const Outbox& outbox) {
    await_cluster();
    u32 there[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        there[part] = address_in(part, &received);
    }
    const u32 here = shared_address(&received), barrier = shared_address(&received.barrier) - here;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int r = threadIdx.x / 32; r < tile.count(); r += WARPS) {
        const auto keep_state = [&](float base, float sum) {
            if (lane < PARTS) {
                const u32 to = address_in(lane, &received);
                send(to + (shared_address(&received.bases[blockIdx.x][r]) - here), base, to + barrier);
                send(to + (shared_address(&received.sums_of_weights[blockIdx.x][r]) - here), sum, to + barrier);
            }
        };
        put_together(memory, r, has_newest, keep_state, [&](int i, float total) {
            const u32 to = SHARE >= 32 ? there[32 * i / SHARE] : address_in((32 * i + lane) / SHARE, &received);
            send(to + (shared_address(&received.totals[blockIdx.x][r][(32 * i + lane) % SHARE]) - here), total, to + barrier);
        });
    }
    const int e = blockIdx.x * SHARE + threadIdx.x % SHARE;
    wait(here + barrier, 0);
#pragma unroll 1
    for (int r = threadIdx.x / SHARE; r < tile.count(); r += 32 * WARPS / SHARE) {
        float base = received.bases[0][r], sum = 0.0f, total = 0.0f;
#pragma unroll
        for (int part = 1; part < PARTS; ++part) {
            base = fmaxf(base, received.bases[part][r]);
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            const float factor = exp2_approximate(received.bases[part][r] - Softmax::shift(base));
            sum = fmaf(received.sums_of_weights[part][r], factor, sum);
            total = fmaf(received.totals[part][r][threadIdx.x % SHARE], factor, total);
        }
        const u64 at = row_of(tile.p.y, tile.batch, tile.head(r), tile.query(r)) + e;
        const float y = sum == 0.0f ? 0.0f : __fdividef(total, sum);
        store(result + at, y);
        outbox.send(u32(at), y);
    }
}
