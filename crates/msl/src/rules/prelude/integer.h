// <metal_integer>
#pragma once

namespace metal {
#define ELV_INTEGERS(M, name) \
  ELV_INTEGER(M, char, uchar, name) ELV_INTEGER(M, uchar, uchar, name) ELV_INTEGER(M, short, ushort, name) ELV_INTEGER(M, ushort, ushort, name) \
  ELV_INTEGER(M, int, uint, name) ELV_INTEGER(M, uint, uint, name) ELV_INTEGER(M, long, ulong, name) ELV_INTEGER(M, ulong, ulong, name)         \
  M(int8_t, uint8_t, name)
#define ELV_INTEGER(M, T, U, name) M(T, U, name) M(T##2, U##2, name) M(T##3, U##3, name) M(T##4, U##4, name)
#define ELV_I1(V, U, name) constexpr V name(V a) { return a; }
#define ELV_I2(V, U, name) constexpr V name(V a, V b) { return a; }
#define ELV_I3(V, U, name) constexpr V name(V a, V b, V c) { return a; }
#define ELV_U2(V, U, name) constexpr U name(V a, V b) { return U(); }
#define ELV_U1(V, U, name) constexpr U name(V a) { return U(); }
#define ELV_IXX(V, U, name) V name(V, uint, uint);
#define ELV_IIXX(V, U, name) V name(V, V, uint, uint);
ELV_INTEGERS(ELV_U1, abs)
ELV_INTEGERS(ELV_U2, absdiff)
ELV_INTEGERS(ELV_I2, addsat)
ELV_INTEGERS(ELV_I3, clamp)
ELV_INTEGERS(ELV_I1, clz)
ELV_INTEGERS(ELV_I1, ctz)
ELV_INTEGERS(ELV_I1, popcount)
ELV_INTEGERS(ELV_I1, reverse_bits)
ELV_INTEGERS(ELV_IXX, extract_bits)
ELV_INTEGERS(ELV_IIXX, insert_bits)
ELV_INTEGERS(ELV_I2, hadd)
ELV_INTEGERS(ELV_I2, rhadd)
ELV_INTEGERS(ELV_I3, madhi)
ELV_INTEGERS(ELV_I3, madsat)
ELV_INTEGERS(ELV_I2, max)
ELV_INTEGERS(ELV_I2, min)
ELV_INTEGERS(ELV_I3, max3)
ELV_INTEGERS(ELV_I3, median3)
ELV_INTEGERS(ELV_I3, min3)
ELV_INTEGERS(ELV_I2, mulhi)
ELV_INTEGERS(ELV_I2, rotate)
ELV_INTEGERS(ELV_I2, subsat)
ELV_INTEGERS(ELV_I2, mul24)
ELV_INTEGERS(ELV_I3, mad24)
} // namespace metal
