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

// Address spaces. `thread` is left to clang, for which an unqualified pointer is generic, as `this` is. `device` is the narrow one and `constant` the
// wide one, so that constant to device is an error. What Metal's stricter rules reject beyond that, a front end of its own judges (../../rules).
#define device __attribute__((opencl_global_device))
#define constant const __global
#define ELV_TABLE const __global
#define threadgroup __local
#define thread
#define ELV_METHOD_THREAD
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

#include "limit_macros.h"
#include "constants.h"
