// Keywords, scalar types, and the macros that lowered texts use.
#pragma once

#define METAL_FUNC __forceinline__
#define METAL_CONST constexpr
#define METAL_PURE
#define METAL_VALID_ARGS(...)
#define METAL_ASM(...)
#define METAL_CONVERGENT
#define METAL_ENABLE_IF(...)
#define coherent(...)
#define __extension__
#undef assert
#define assert(...) ((void)0)

// What headers that other devices share say of this one: the namespace they are in, pointers to a thread's own memory, the compiler's question, and
// where a call comes from, which nothing asks.
#define ELV_ROOT ::msl
#define ELV_THREAD
#define ELV_IS_CONVERTIBLE __is_convertible_to
#define ELV_AND_HERE
#define ELV_PASS_HERE

// A constant of constant memory at the scope of the text or of a class.
#define ELV_TABLE constexpr
#define ELV_INLINE __forceinline__


#ifndef NULL
#undef NULL
#define NULL nullptr
#endif
#undef INFINITY
#define INFINITY (__builtin_bit_cast(float, 0x7f800000u))
#undef NAN
#define NAN (__builtin_bit_cast(float, 0x7fc00000u))
#undef HUGE_VALF
#define HUGE_VALF INFINITY
#undef HUGE_VALH
#define HUGE_VALH ((half)INFINITY)
#undef MAXFLOAT
#define MAXFLOAT FLT_MAX
#undef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#undef FLT_MIN
#define FLT_MIN 1.175494351e-38f
#undef FLT_EPSILON
#define FLT_EPSILON 1.192092896e-07f
#undef FLT_DIG
#define FLT_DIG 6
#undef FLT_MANT_DIG
#define FLT_MANT_DIG 24
#undef FLT_MAX_EXP
#define FLT_MAX_EXP 128
#undef FLT_MIN_EXP
#define FLT_MIN_EXP (-125)
#undef FLT_RADIX
#define FLT_RADIX 2
#undef MAXHALF
#define MAXHALF HALF_MAX
#undef HALF_MAX
#define HALF_MAX ((half)65504.0f)
#undef HALF_MIN
#define HALF_MIN ((half)6.103515625e-05f)
#undef HALF_EPSILON
#define HALF_EPSILON ((half)0.0009765625f)
#undef HALF_DIG
#define HALF_DIG 3
#undef HALF_MANT_DIG
#define HALF_MANT_DIG 11
#undef BFLOAT_MAX
#define BFLOAT_MAX ((bfloat)3.38953139e38f)
#undef BFLOAT_MIN
#define BFLOAT_MIN ((bfloat)1.175494351e-38f)
#undef BFLOAT_EPSILON
#define BFLOAT_EPSILON ((bfloat)0.0078125f)
#undef CHAR_BIT
#define CHAR_BIT 8
#undef CHAR_MAX
#define CHAR_MAX 127
#undef CHAR_MIN
#define CHAR_MIN (-128)
#undef SCHAR_MAX
#define SCHAR_MAX 127
#undef SCHAR_MIN
#define SCHAR_MIN (-128)
#undef UCHAR_MAX
#define UCHAR_MAX 255
#undef SHRT_MAX
#define SHRT_MAX 32767
#undef SHRT_MIN
#define SHRT_MIN (-32768)
#undef USHRT_MAX
#define USHRT_MAX 65535
#undef INT_MAX
#define INT_MAX 2147483647
#undef INT_MIN
#define INT_MIN (-2147483647 - 1)
#undef UINT_MAX
#define UINT_MAX 4294967295u
#undef LONG_MAX
#define LONG_MAX 0x7fffffffffffffffl
#undef LONG_MIN
#define LONG_MIN (-LONG_MAX - 1)
#undef ULONG_MAX
#define ULONG_MAX 0xfffffffffffffffful
#undef INT8_MAX
#define INT8_MAX 127
#undef INT8_MIN
#define INT8_MIN (-128)
#undef UINT8_MAX
#define UINT8_MAX 255
#undef INT16_MAX
#define INT16_MAX 32767
#undef INT16_MIN
#define INT16_MIN (-32768)
#undef UINT16_MAX
#define UINT16_MAX 65535
#undef INT32_MAX
#define INT32_MAX INT_MAX
#undef INT32_MIN
#define INT32_MIN INT_MIN
#undef UINT32_MAX
#define UINT32_MAX UINT_MAX
#undef INT64_MAX
#define INT64_MAX LONG_MAX
#undef INT64_MIN
#define INT64_MIN LONG_MIN
#undef UINT64_MAX
#define UINT64_MAX ULONG_MAX
#undef SIZE_MAX
#define SIZE_MAX ULONG_MAX

#include "constants.h"
