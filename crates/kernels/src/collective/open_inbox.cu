// A rank makes its inbox ready: everything is missing in its slots, and the host finds the addresses of what the ranks reach.

extern "C" __global__ void __launch_bounds__(512) open_inbox(OF_RANKS(Inbox*, inbox), const __grid_constant__ OpenParams p) {
    Inbox* const inboxes[RANKS] = {LIST_OF_RANKS(inbox)};
    Inbox& own = *inboxes[p.rank];
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < ROW_SLOTS * SLOT_ELEMENTS; i += gridDim.x * blockDim.x) {
        own.rows[i] = MISSING;
    }
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < sizeof(own.results) / 4; i += gridDim.x * blockDim.x) {
        own.results[0][0][i] = MISSING;
    }
    if (blockIdx.x == 0 && threadIdx.x <= RANKS) {
        own.addresses[threadIdx.x] = threadIdx.x == RANKS ? u64(&own.lost) : threadIdx.x < p.ranks ? u64(inboxes[threadIdx.x]->rows) : 0;
    }
}
