// Each rank writes its part to its place in the whole of every rank: for parts of many bytes. A block announces to its peers that this GPU is done with what its
// whole held before, writes when they have announced the same, and ends when all parts are there.

constexpr u32 AHEAD = 4;  // Words that a thread has in flight.

template <typename T>
__device__ void exchange(const unsigned char* part, unsigned char* const* wholes, Inbox* const* inboxes, const GatherParams& p, u32* error_flag) {
    Inbox& own = *inboxes[p.rank];
    if (__syncthreads_or(int(lost_rank(own))) != 0) {
        if (threadIdx.x == 0) {
            lose(own, lost_rank(own) - 1, error_flag);
        }
        return;
    }
    const u32 block = blockIdx.x, count = own.counts[0][block] + 1;
    const bool has_peer = threadIdx.x < p.ranks && threadIdx.x != p.rank;
    const auto await = [&](const u32* flags) {
        const u32 lost = has_peer ? await_flag(own, flags + threadIdx.x, count, threadIdx.x) : 0;
        if (lost != 0) {
            lose(own, lost - 1, error_flag);
        }
        return __syncthreads_or(int(lost)) == 0;
    };
    if (has_peer) {
        raise(&inboxes[threadIdx.x]->ready[block][p.rank], count);
    }
    if (!await(own.ready[block])) {
        return;
    }
    const u32 words = u32(p.bytes / sizeof(T)), width = u32(p.width / sizeof(T)), stride = gridDim.x * blockDim.x;
    const T* from = reinterpret_cast<const T*>(part);
    for (u64 first = block * blockDim.x + threadIdx.x; first < words; first += AHEAD * stride) {
        T held[AHEAD];
#pragma unroll
        for (u32 a = 0; a < AHEAD; ++a) {
            if (first + a * stride < words) {
                held[a] = from[first + a * stride];
            }
        }
#pragma unroll
        for (u32 a = 0; a < AHEAD; ++a) {
            if (first + a * stride < words) {
                const u32 i = u32(first) + a * stride, row = i / width;
                const u64 at = (u64(row) * p.ranks + p.rank) * width + (i - row * width);
#pragma unroll
                for (u32 rank = 0; rank < RANKS; ++rank) {
                    if (rank < p.ranks) {
                        reinterpret_cast<T*>(wholes[rank])[at] = held[a];
                    }
                }
            }
        }
    }
    __syncthreads();
    if (has_peer) {
        __threadfence_system();
        raise(&inboxes[threadIdx.x]->done[block][p.rank], count);
    }
    if (await(own.done[block]) && threadIdx.x == 0) {
        own.counts[0][block] = count;
    }
}

extern "C" __global__ void __launch_bounds__(512)
    all_gather(const unsigned char* part, OF_RANKS(Inbox*, inbox), OF_RANKS(unsigned char*, whole), const __grid_constant__ GatherParams p, u32* error_flag) {
    Inbox* const inboxes[RANKS] = {LIST_OF_RANKS(inbox)};
    unsigned char* const wholes[RANKS] = {LIST_OF_RANKS(whole)};
    if (p.unit == 16) {
        exchange<uint4>(part, wholes, inboxes, p, error_flag);
    } else if (p.unit == 4) {
        exchange<u32>(part, wholes, inboxes, p, error_flag);
    } else {
        exchange<unsigned char>(part, wholes, inboxes, p, error_flag);
    }
}
