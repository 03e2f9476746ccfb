// Each rank's part goes to the inboxes of the others as words that are marked with the number of their exchange, so that no flag follows: for parts of few words.

DEVICE void mark(uint4* to, u32 first, u32 second, u32 number) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(first), "r"(number), "r"(second) : "memory");
}

DEVICE uint4 marked(const uint4* from) {
    uint4 words;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from)
                 : "memory");
    return words;
}

extern "C" __global__ void __launch_bounds__(512)
    all_gather_words(const u32* part, OF_RANKS(Inbox*, inbox), u32* whole, const __grid_constant__ GatherParams p, u32* error_flag) {
    Inbox* const inboxes[RANKS] = {LIST_OF_RANKS(inbox)};
    const u32 block = blockIdx.x, words = u32(p.bytes / 4), width = u32(p.width / 4), at = 2 * (block * blockDim.x + threadIdx.x);
    const auto place = [&](u32 i) {
        const u32 row = i / width;
        return row * p.ranks * width + (i - row * width);
    };
    const u32 to[2] = {place(at), place(at + 1)};
    const bool has[2] = {at < words, at + 1 < words};
    admit_launches();
    await_launches();
    Inbox& own = *inboxes[p.rank];
    const u32 lost = lost_rank(own), count = own.counts[1][block] + 1, slot = count % 2;
    const u32 first = has[0] ? part[at] : 0, second = has[1] ? part[at + 1] : 0;
    if (lost != 0) {
        lose(own, lost - 1, error_flag);
        return;
    }
    const auto keep = [&](u32 rank, u32 one, u32 other) {
        whole[to[0] + rank * width] = one;
        if (has[1]) {
            whole[to[1] + rank * width] = other;
        }
    };
    if (has[0]) {
#pragma unroll
        for (u32 rank = 0; rank < RANKS; ++rank) {
            if (rank < p.ranks && rank != p.rank) {
                mark(&inboxes[rank]->words[block][slot][p.rank][threadIdx.x], first, second, count);
            }
        }
        keep(p.rank, first, second);
#pragma unroll
        for (u32 rank = 0; rank < RANKS; ++rank) {
            if (rank < p.ranks && rank != p.rank) {
                const uint4* from = &own.words[block][slot][rank][threadIdx.x];
                uint4 found = marked(from);
                for (Patience patience; found.y != count || found.w != count; found = marked(from)) {
                    if (patience.ends()) {
                        lose(own, rank, error_flag);
                        return;
                    }
                }
                keep(rank, found.x, found.z);
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        own.counts[1][block] = count;
    }
}
