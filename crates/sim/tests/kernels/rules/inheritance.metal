#include <metal_stdlib>
using namespace metal;

enum class Mode : uint { plain, doubled };

struct Base {
    float x;
};

template <typename T>
struct Box {
    T item;
    uint length : 16;
};

struct Derived : Base { // rejected: inheritance
    float y;
};

template <typename T>
struct alignas(16) Wide final : public Box<vec<T, 2>> { // rejected: inheritance
    T more;
};

template <>
struct Box<half> : true_type {}; // rejected: inheritance

#pragma METAL internals : enable
struct yes : bool_constant<true> {};
#pragma METAL internals : disable

kernel void k(device float* out [[buffer(0)]], constant Mode& mode [[buffer(1)]]) {
    struct Base base = {1};
    out[0] = mode == Mode::plain ? base.x : 2 * base.x + yes::value;
}
