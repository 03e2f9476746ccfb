// <metal_pack>: normalised integers packed in a word.
#pragma once

namespace elv {
template <class I> inline I quantize(float x, float low, float scale) { return (I)metal::rint(metal::clamp(x, low, 1.0f) * scale); }
} // namespace elv

namespace metal {
inline float4 unpack_unorm4x8_to_float(uint x) { return float4(x & 255, (x >> 8) & 255, (x >> 16) & 255, x >> 24) / 255.0f; }
inline float4 unpack_snorm4x8_to_float(uint x) { return max(float4((char)x, (char)(x >> 8), (char)(x >> 16), (char)(x >> 24)) / 127.0f, -1.0f); }
inline float2 unpack_unorm2x16_to_float(uint x) { return float2(x & 65535, x >> 16) / 65535.0f; }
inline float2 unpack_snorm2x16_to_float(uint x) { return max(float2((short)x, (short)(x >> 16)) / 32767.0f, -1.0f); }
inline half4 unpack_unorm4x8_to_half(uint x) { return half4(unpack_unorm4x8_to_float(x)); }
inline half4 unpack_snorm4x8_to_half(uint x) { return half4(unpack_snorm4x8_to_float(x)); }
inline half2 unpack_unorm2x16_to_half(uint x) { return half2(unpack_unorm2x16_to_float(x)); }
inline half2 unpack_snorm2x16_to_half(uint x) { return half2(unpack_snorm2x16_to_float(x)); }

inline uint pack_float_to_unorm4x8(float4 v) {
  uint r = 0;
  for (int i = 0; i < 4; i++) r |= elv::quantize<uint>(v[i], 0.0f, 255.0f) << (8 * i);
  return r;
}
inline uint pack_float_to_snorm4x8(float4 v) {
  uint r = 0;
  for (int i = 0; i < 4; i++) r |= ((uint)elv::quantize<int>(v[i], -1.0f, 127.0f) & 255) << (8 * i);
  return r;
}
inline uint pack_float_to_unorm2x16(float2 v) { return elv::quantize<uint>(v.x, 0.0f, 65535.0f) | elv::quantize<uint>(v.y, 0.0f, 65535.0f) << 16; }
inline uint pack_float_to_snorm2x16(float2 v) {
  return ((uint)elv::quantize<int>(v.x, -1.0f, 32767.0f) & 65535) | (uint)elv::quantize<int>(v.y, -1.0f, 32767.0f) << 16;
}
inline uint pack_half_to_unorm4x8(half4 v) { return pack_float_to_unorm4x8(float4(v)); }
inline uint pack_half_to_snorm4x8(half4 v) { return pack_float_to_snorm4x8(float4(v)); }
inline uint pack_half_to_unorm2x16(half2 v) { return pack_float_to_unorm2x16(float2(v)); }
inline uint pack_half_to_snorm2x16(half2 v) { return pack_float_to_snorm2x16(float2(v)); }
} // namespace metal
