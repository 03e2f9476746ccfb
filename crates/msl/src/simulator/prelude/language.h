// Keywords, address spaces, scalar types, and the macros that lowered texts use.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
#pragma OPENCL EXTENSION __cl_clang_bitfields : enable
#pragma OPENCL EXTENSION __cl_clang_variadic_functions : enable

#include "runtime.h"

// OpenCL keywords and types that Metal leaves to the user or defines otherwise.
#define local elv_identifier_local
#define global elv_identifier_global
#define generic elv_identifier_generic
#define pipe elv_identifier_pipe
#define read_only elv_identifier_read_only
#define write_only elv_identifier_write_only
#define read_write elv_identifier_read_write
#define atomic_int elv_identifier_atomic_int
#define atomic_uint elv_identifier_atomic_uint
#define atomic_float elv_identifier_atomic_float
#define atomic_long elv_identifier_atomic_long
#define atomic_ulong elv_identifier_atomic_ulong
#define atomic_bool elv_identifier_atomic_bool

// Address spaces. `thread` is left to clang, for which an unqualified pointer is generic, as `this` is. As a rule `device` is the narrow one and
// `constant` the wide one, so that constant to device is an error; ELV_SWAP_CONSTANT turns that round, and device to constant is.
// ELV_STRICT_THREAD makes `thread` a space of its own: then device to thread is an error too, but so is `this` where Metal takes it for thread.
// A library is compiled in the first way, and its types are checked in the others.
#ifdef ELV_SWAP_CONSTANT
#define device __global
#define constant const __attribute__((opencl_global_device))
#define ELV_TABLE const __constant
#else
#define device __attribute__((opencl_global_device))
#define constant const __global
#define ELV_TABLE const __global
#endif
#define threadgroup __local
#ifdef ELV_STRICT_THREAD
#define thread __private
#define ELV_METHOD_THREAD __private
#else
#define thread
#define ELV_METHOD_THREAD
#endif
#define ELV_METHOD_DEVICE __global
#define ELV_METHOD_THREADGROUP __local
#define ELV_METHOD_CONSTANT __constant

#define kernel
#define METAL_FUNC inline __attribute__((always_inline))
#define METAL_CONST constant constexpr
#define METAL_PURE
#define METAL_VALID_ARGS(...)
#define METAL_ASM(...)
#define METAL_CONVERGENT
#define METAL_ENABLE_IF(...)
#define coherent(...)
#define assert(...) ((void)0)
// What headers that other devices share say of this one: the namespace they are in, pointers to a thread's own memory, the compiler's question.
#define ELV_ROOT
#define ELV_THREAD thread
#define ELV_IS_CONVERTIBLE __is_convertible
#define ray_data thread
#define object_data threadgroup

// Functions of the prelude that no sanitizer may instrument: their accesses are not the kernel's.
#define ELV_PLAIN __attribute__((no_sanitize("thread", "undefined")))
#define ELV_INLINE inline __attribute__((always_inline))
// The caller's place, as the last parameters of a function that waits for others.
#define ELV_HERE elv_text file = __builtin_FILE(), int line = __builtin_LINE()
#define ELV_AND_HERE , ELV_HERE
#define ELV_PASS_HERE , file, line

// Threadgroup variables of a function: see `elv_threadgroup_variable`.
#define ELV_THREADGROUP_VARIABLES(site, names, ...)                                                                                  \
  struct elv_threadgroup_type_##site { __VA_ARGS__ };                                                                                \
  threadgroup elv_threadgroup_type_##site& elv_threadgroup_##site = *(threadgroup elv_threadgroup_type_##site*)elv_threadgroup_variable( \
      site, __PRETTY_FUNCTION__, names, sizeof(elv_threadgroup_type_##site), alignof(elv_threadgroup_type_##site));

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __bf16 bfloat;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef decltype(nullptr) nullptr_t;

#ifndef NULL
#define NULL nullptr
#endif
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF INFINITY
#define HUGE_VALH ((half)INFINITY)
#define MAXFLOAT FLT_MAX
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX_EXP 128
#define FLT_MIN_EXP (-125)
#define FLT_RADIX 2
#define MAXHALF HALF_MAX
#define HALF_MAX 65504.h
#define HALF_MIN 6.103515625e-05h
#define HALF_EPSILON 0.0009765625h
#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define BFLOAT_MAX ((bfloat)3.38953139e38f)
#define BFLOAT_MIN ((bfloat)1.175494351e-38f)
#define BFLOAT_EPSILON ((bfloat)0.0078125f)
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 0x7fffffffffffffffl
#define LONG_MIN (-LONG_MAX - 1)
#define ULONG_MAX 0xfffffffffffffffful
#define INT8_MAX 127
#define INT8_MIN (-128)
#define UINT8_MAX 255
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define UINT16_MAX 65535
#define INT32_MAX INT_MAX
#define INT32_MIN INT_MIN
#define UINT32_MAX UINT_MAX
#define INT64_MAX LONG_MAX
#define INT64_MIN LONG_MIN
#define UINT64_MAX ULONG_MAX
#define SIZE_MAX ULONG_MAX

#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.785398163397448309616f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f
#define M_E_H ((half)M_E_F)
#define M_LOG2E_H ((half)M_LOG2E_F)
#define M_LOG10E_H ((half)M_LOG10E_F)
#define M_LN2_H ((half)M_LN2_F)
#define M_LN10_H ((half)M_LN10_F)
#define M_PI_H ((half)M_PI_F)
#define M_PI_2_H ((half)M_PI_2_F)
#define M_PI_4_H ((half)M_PI_4_F)
#define M_1_PI_H ((half)M_1_PI_F)
#define M_2_PI_H ((half)M_2_PI_F)
#define M_2_SQRTPI_H ((half)M_2_SQRTPI_F)
#define M_SQRT2_H ((half)M_SQRT2_F)
#define M_SQRT1_2_H ((half)M_SQRT1_2_F)
#define M_E_BF ((bfloat)M_E_F)
#define M_LOG2E_BF ((bfloat)M_LOG2E_F)
#define M_LOG10E_BF ((bfloat)M_LOG10E_F)
#define M_LN2_BF ((bfloat)M_LN2_F)
#define M_LN10_BF ((bfloat)M_LN10_F)
#define M_PI_BF ((bfloat)M_PI_F)
#define M_PI_2_BF ((bfloat)M_PI_2_F)
#define M_PI_4_BF ((bfloat)M_PI_4_F)
#define M_1_PI_BF ((bfloat)M_1_PI_F)
#define M_2_PI_BF ((bfloat)M_2_PI_F)
#define M_2_SQRTPI_BF ((bfloat)M_2_SQRTPI_F)
#define M_SQRT2_BF ((bfloat)M_SQRT2_F)
#define M_SQRT1_2_BF ((bfloat)M_SQRT1_2_F)
