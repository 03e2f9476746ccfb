#include <metal_stdlib>
using namespace metal;

struct Pair {
    float x, y;
};

static float sum(Pair* pair) { return pair->x + pair->y; } // rejected: address-space

kernel void k(device float* a [[buffer(0)]]) {
    Pair pair = {a[0], a[1]};
    Pair* same = &pair; // rejected: address-space
    a[0] = sum(same);
}
