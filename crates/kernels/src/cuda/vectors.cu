// What the formats of quantised blocks, written in Metal, take from their language, after what the strict functions take. They are a namespace, which this opens:
// the compiler has other types of these names.

#define device
#define thread

typedef unsigned char uchar;
typedef unsigned short ushort;

#define BYTE_TABLES
namespace elv {
// Of the lower or the upper four bits of a word's bytes, for `half` 0x6420 or 0x7531, which of the sixteen bytes of four words they choose.
DEVICE u32 choose(u32 a, u32 b, u32 c, u32 d, u32 word, u32 half) {
    const u32 selectors = word & 0x77777777u, tables = 0x32103210u | (word & 0x88888888u) >> 1;
    const u32 first = __byte_perm(__byte_perm(a, b, selectors), __byte_perm(c, d, selectors), tables);
    const u32 second = __byte_perm(__byte_perm(a, b, selectors >> 16), __byte_perm(c, d, selectors >> 16), tables >> 16);
    return __byte_perm(first, second, half);
}
}  // namespace elv

namespace formats {

struct uint2 {
    uint x, y;
    DEVICE uint2(uint x, uint y) : x(x), y(y) {}
};

struct uint4 {
    uint words[4];
    DEVICE uint4(::uint4 of) : words{of.x, of.y, of.z, of.w} {}
    DEVICE uint4(uint2 low, uint2 high) : words{low.x, low.y, high.x, high.y} {}
    DEVICE uint operator[](uint i) const { return words[i]; }
};

struct int2 {
    int x, y;
    DEVICE int2(int x, int y) : x(x), y(y) {}
};

struct float2 {
    float x, y;
    DEVICE float2() {}
    DEVICE float2(float of) : x(of), y(of) {}
    DEVICE float2(float x, float y) : x(x), y(y) {}
    DEVICE float operator[](uint i) const { return i == 0 ? x : y; }
};

struct half : f16 {
    DEVICE operator float() const { return widen(f16(*this)); }
};

// Past the first cache.
DEVICE uint4 load_past_cache(const uint4* from) {
    ::uint4 to;
    asm("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "l"(from));
    return to;
}
