// Ends when the thread blocks of all peers have pushed what the launch before this one pushes.

extern "C" __global__ void __launch_bounds__(32)
    await_pushes(OF_RANKS(Inbox*, inbox), void*, const __grid_constant__ AwaitParams p, u32* error_flag) {
    Inbox* const inboxes[RANKS] = {LIST_OF_RANKS(inbox)};
    admit_launches();
    await_launches();
    Inbox& own = *inboxes[p.rank];
    const u32 before = lost_rank(own), blocks = own.blocks + p.blocks;
    const bool has_peer = threadIdx.x < p.ranks && threadIdx.x != p.rank;
    const u32 without = has_peer ? await_flag(own, &own.pushed[threadIdx.x], blocks, threadIdx.x) : 0, lost = before != 0 ? before : without;
    if (lost != 0) {
        lose(own, lost - 1, error_flag);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        own.launches += 1;
        own.blocks = blocks;
    }
}
