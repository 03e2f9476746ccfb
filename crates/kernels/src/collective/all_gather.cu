// Each rank's part goes to the inboxes of the others, and from a rank's own inbox to its place in the whole: for parts of many pieces. A block writes a piece into
// each peer's inbox, raises its flag there to the number of the exchange, and waits for the flags of all peers in its own inbox.

DEVICE void raise(u32* flag, u32 to) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(to) : "memory"); }

DEVICE u32 raised(const u32* flag) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

// A rank's piece, from byte `start` of its part on, to its place in the whole.
template <typename T>
__device__ void place(unsigned char* whole, const unsigned char* piece, const GatherParams& p, u64 start, u32 bytes, u32 rank) {
    for (u32 i = threadIdx.x * sizeof(T); i < bytes; i += blockDim.x * sizeof(T)) {
        const u64 at = start + i, row = at / p.width;
        *reinterpret_cast<T*>(whole + (row * p.ranks + rank) * p.width + at % p.width) = *reinterpret_cast<const T*>(piece + i);
    }
}

template <typename T>
__device__ void exchange(const unsigned char* part, unsigned char* whole, Inbox* const* inboxes, const GatherParams& p, u32* error_flag) {
    Inbox& own = *inboxes[p.rank];
    const u32 block = blockIdx.x;
    u32 count = own.counts[0][block];
    __shared__ bool is_lost;
    if (threadIdx.x == 0) {
        is_lost = false;
    }
    for (u64 start = u64(block) * PIECE; start < p.bytes; start += u64(gridDim.x) * PIECE) {
        const u32 bytes = u32(p.bytes - start < PIECE ? p.bytes - start : PIECE), slot = ++count % 2;
        for (u32 next = 1; next < p.ranks; ++next) {
            T* to = reinterpret_cast<T*>(inboxes[(p.rank + next) % p.ranks]->pieces[block][slot][p.rank]);
            for (u32 i = threadIdx.x; i < bytes / sizeof(T); i += blockDim.x) {
                to[i] = reinterpret_cast<const T*>(part + start)[i];
            }
        }
        __syncthreads();
        if (threadIdx.x < p.ranks && threadIdx.x != p.rank) {
            __threadfence_system();
            raise(&inboxes[threadIdx.x]->flags[block][p.rank], count);
        }
        place<T>(whole, part + start, p, start, bytes, p.rank);
        if (threadIdx.x < p.ranks && threadIdx.x != p.rank) {
            const u64 asked = nanoseconds();
            while (int(raised(&own.flags[block][threadIdx.x]) - count) < 0) {
                if (nanoseconds() - asked > PATIENCE) {
                    atomicMax(error_flag, ~u32(threadIdx.x));
                    is_lost = true;
                    break;
                }
            }
        }
        __syncthreads();
        if (is_lost) {
            return;
        }
        for (u32 rank = 0; rank < p.ranks; ++rank) {
            if (rank != p.rank) {
                place<T>(whole, own.pieces[block][slot][rank], p, start, bytes, rank);
            }
        }
    }
    if (threadIdx.x == 0) {
        own.counts[0][block] = count;
    }
}

extern "C" __global__ void __launch_bounds__(512)
    all_gather(const unsigned char* part, Inbox* inbox0, Inbox* inbox1, Inbox* inbox2, Inbox* inbox3, Inbox* inbox4, Inbox* inbox5, Inbox* inbox6,
               Inbox* inbox7, unsigned char* whole, const __grid_constant__ GatherParams p, u32* error_flag) {
    Inbox* const inboxes[RANKS] = {inbox0, inbox1, inbox2, inbox3, inbox4, inbox5, inbox6, inbox7};
    if (p.width % 16 == 0) {
        exchange<uint4>(part, whole, inboxes, p, error_flag);
    } else if (p.width % 4 == 0) {
        exchange<u32>(part, whole, inboxes, p, error_flag);
    } else {
        exchange<unsigned char>(part, whole, inboxes, p, error_flag);
    }
}
