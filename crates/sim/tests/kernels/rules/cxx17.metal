#include <metal_stdlib>
using namespace metal;

template <auto N> // rejected: compile
struct Constant {
    static constexpr constant int value = N;
};

kernel void k(device int* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    if constexpr (sizeof(int) == 4) {
        x[i] = Constant<3>::value;
    }
}
