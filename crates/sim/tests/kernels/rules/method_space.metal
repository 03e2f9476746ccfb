#include <metal_stdlib>
using namespace metal;

struct Range {
    uint start, end;
    bool holds(uint i) const { return start <= i && i < end; }
};

kernel void k(device uint* out [[buffer(0)]], threadgroup Range* ranges [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {
    ranges[i] = Range{i, 2 * i};
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = ranges[0].holds(i); // rejected: method-space
    const Range own = ranges[0];
    out[i] += own.holds(i);
}
