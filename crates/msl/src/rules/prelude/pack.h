// <metal_pack>
#pragma once

namespace metal {
float4 unpack_unorm4x8_to_float(uint);
float4 unpack_snorm4x8_to_float(uint);
float2 unpack_unorm2x16_to_float(uint);
float2 unpack_snorm2x16_to_float(uint);
half4 unpack_unorm4x8_to_half(uint);
half4 unpack_snorm4x8_to_half(uint);
half2 unpack_unorm2x16_to_half(uint);
half2 unpack_snorm2x16_to_half(uint);
uint pack_float_to_unorm4x8(float4);
uint pack_float_to_snorm4x8(float4);
uint pack_float_to_unorm2x16(float2);
uint pack_float_to_snorm2x16(float2);
uint pack_half_to_unorm4x8(half4);
uint pack_half_to_snorm4x8(half4);
uint pack_half_to_unorm2x16(half2);
uint pack_half_to_snorm2x16(half2);
} // namespace metal
