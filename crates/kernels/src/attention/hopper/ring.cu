// One warp of the four of a warpgroup that copies: own tiles are shared out by rows, items by turns.
struct Copier {
    Memory memory;
    int warp;
    int lane;
    u32 items;
    // Whether own tiles are in flight whose arrival has not been announced.
    bool pending;

    DEVICE void announce(u32 barrier) {
        if (lane == 0) {
            arrive(barrier);
        }
    }

    // Waits for all that is in flight, and announces own tiles.
    DEVICE void finish() {
        asm volatile("cp.async.wait_all;\nfence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (pending) {
            announce(memory.own_full());
            pending = false;
        }
    }

    // Those who make room may need own tiles first.
    DEVICE void await_room(u32 barrier, u32 parity) {
        if (!__all_sync(~0u, has_passed(barrier, parity))) {
            finish();
            wait(barrier, parity);
        }
    }

    // What `fill` copies to a stage; `beside` works while it is in flight.
    template <typename Fill, typename Beside>
    DEVICE void add_item(Fill fill, Beside beside) {
        if (items % COPYING == warp) {
            await_room(memory.empty(items), items / STAGES % 2 ^ 1);
            fill(memory.stage(items));
            beside();
            finish();
            announce(memory.full(items));
        }
        ++items;
    }

    template <typename Beside>
    DEVICE void copy_item(const KV* rows, i64 stride, int first, KeyRange range, Beside beside) {
        add_item([&](u32 stage) { copy_rows<BLOCK, BLOCK>(lane, stage, rows, stride, first, range); }, beside);
    }

    DEVICE void copy_item(const KV* rows, i64 stride, int first, KeyRange range) {
        copy_item(rows, stride, first, range, [] {});
    }

    DEVICE void await_own(u32 turn) { await_room(memory.own_empty(), turn % 2 ^ 1); }

    // A quarter of a tile, whose arrival is announced with that of the next item.
    template <typename T>
    DEVICE void copy_own(int which, const T* rows, i64 stride, int first, int end) {
        copy_rows<ROWS / 4, ROWS>(lane, memory.own(which) + warp * (ROWS / 4) * 128, rows, stride, first + warp * (ROWS / 4), {0, end});
        pending = true;
    }
};
