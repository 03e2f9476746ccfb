// Which tile of a product a threadgroup has.

// The type of an absent bias.
constant constexpr uint ABSENT = 0xffffffffu;

// Row tiles that are done side by side, so that those who share columns of b run at the same time.
constant constexpr uint STRIP = 16;

// A tile: its first row and column, and the batch.
struct Place {
    uint row;
    uint column;
    uint batch;

    Place(constant Params& p, uint index, uint height, uint width) {
        const uint down = (uint(p.m) + height - 1) / height, across = (uint(p.n) + width - 1) / width;
        // One row of tiles is found without division, which a single row would wait for.
        batch = index < down * across ? 0 : index / (down * across);
        index -= batch * (down * across);
        if (down == 1) {
            row = 0;
            column = index * width;
            return;
        }
        const uint strip = index / (STRIP * across);
        const uint tall = min(STRIP, down - strip * STRIP);
        index %= STRIP * across;
        row = (strip * STRIP + index % tall) * height;
        column = index / tall * width;
    }
};
