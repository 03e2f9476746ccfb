// Linked once for each compiler and loaded before any kernel: the functions lowered kernels call, and, for checked ones, the callbacks of
// clang's thread and undefined-behaviour sanitizers, whose own runtimes are not linked. Allocates nothing and takes no lock, so that a fault or
// a timer may end a thread anywhere in here.
#include "access.h"

thread_local Context* context;

EXPORT void elv_enter(Context* now) { context = now; }

// ---- what lowered kernels call ----------------------------------------------------------------------------------------------------------------
EXPORT void elv_barrier(unsigned flags, unsigned scope, const char* file, int line) { context->barrier(flags, scope, file, (u32)line); }
EXPORT void elv_fence(unsigned, unsigned, unsigned, const char*, int) {}
EXPORT void elv_collective(elv_combine combine, void* slot, const char* operation, const char* file, int line) {
  context->collective(combine, slot, operation, file, (u32)line);
}
EXPORT unsigned elv_lane() { return context->thread % 32; }
EXPORT unsigned elv_thread() { return context->thread; }
EXPORT unsigned long elv_threadgroup_variable(int site, const char* function, const char* names, unsigned long size, unsigned long alignment) {
  Context* c = context;
  for (u32 i = 0; i < c->variable_count; i++)
    if (c->variables[i].site == (u64)site && c->variables[i].function == function) return c->variables[i].address;
  return c->threadgroup_variable((u64)site, function, names, size, alignment);
}

// Conversions that clang leaves to a library where the instruction set lacks them (or flushes denormals).
EXPORT __bf16 __truncsfbf2(float value) {
  u32 bits = __builtin_bit_cast(u32, value);
  u32 rounded = (bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return __builtin_bit_cast(__bf16, (u16)rounded);
}

// ---- thread sanitizer -------------------------------------------------------------------------------------------------------------------------
#define READ_WRITE(prefix, n)                                                                       \
  EXPORT void __tsan_##prefix##read##n(void* p) { access<false>(p, n, RETURN_ADDRESS); }            \
  EXPORT void __tsan_##prefix##write##n(void* p) { access<true>(p, n, RETURN_ADDRESS); }
#define BOTH(prefix, n)                                                                             \
  EXPORT void __tsan_##prefix##read_write##n(void* p) {                                             \
    access<false>(p, n, RETURN_ADDRESS);                                                            \
    access<true>(p, n, RETURN_ADDRESS);                                                             \
  }
#define SIZE(n) READ_WRITE(, n) READ_WRITE(unaligned_, n) READ_WRITE(volatile_, n) READ_WRITE(unaligned_volatile_, n) BOTH(, n) BOTH(unaligned_, n)
SIZE(1) SIZE(2) SIZE(4) SIZE(8) SIZE(16)

EXPORT void __tsan_read_range(void* p, u64 n) { access<false>(p, n, RETURN_ADDRESS); }
EXPORT void __tsan_write_range(void* p, u64 n) { access<true>(p, n, RETURN_ADDRESS); }
EXPORT void* __tsan_memcpy(void* to, const void* from, u64 n) {
  if (n) access<false>(from, n, RETURN_ADDRESS), access<true>(to, n, RETURN_ADDRESS);
  return __builtin_memcpy(to, from, n);
}
EXPORT void* __tsan_memmove(void* to, const void* from, u64 n) {
  if (n) access<false>(from, n, RETURN_ADDRESS), access<true>(to, n, RETURN_ADDRESS);
  return __builtin_memmove(to, from, n);
}
EXPORT void* __tsan_memset(void* to, int value, u64 n) {
  if (n) access<true>(to, n, RETURN_ADDRESS);
  return __builtin_memset(to, value, n);
}
EXPORT void __tsan_init() {}
EXPORT void __tsan_func_entry(void*) {}
EXPORT void __tsan_func_exit() {}
EXPORT void __tsan_vptr_update(void*, void*) {}
EXPORT void __tsan_vptr_read(void*) {}
EXPORT void __tsan_atomic_thread_fence(int) {}
EXPORT void __tsan_atomic_signal_fence(int) {}

// Checked dispatches run on one host thread, so plain operations are atomic.
#define UPDATE(bits, T, name, expression)                         \
  EXPORT T __tsan_atomic##bits##_##name(T* p, T v, int) {         \
    access<true>(p, sizeof(T), RETURN_ADDRESS, ATOMIC);           \
    T old = *p;                                                   \
    *p = (T)(expression);                                         \
    return old;                                                   \
  }
#define EXCHANGE_IF(bits, T, strength)                                                      \
  EXPORT int __tsan_atomic##bits##_compare_exchange_##strength(T* p, T* expected, T v, int, int) { \
    access<true>(p, sizeof(T), RETURN_ADDRESS, ATOMIC);                                     \
    bool same = *p == *expected;                                                            \
    *(same ? p : expected) = same ? v : *p;                                                 \
    return same;                                                                            \
  }
#define ATOMICS(bits, T)                                                                                                       \
  EXPORT T __tsan_atomic##bits##_load(const T* p, int) { return access<false>(p, sizeof(T), RETURN_ADDRESS, ATOMIC), *p; }     \
  EXPORT void __tsan_atomic##bits##_store(T* p, T v, int) { access<true>(p, sizeof(T), RETURN_ADDRESS, ATOMIC), *p = v; }      \
  EXPORT T __tsan_atomic##bits##_compare_exchange_val(T* p, T expected, T v, int, int) {                                       \
    access<true>(p, sizeof(T), RETURN_ADDRESS, ATOMIC);                                                                        \
    T old = *p;                                                                                                                \
    if (old == expected) *p = v;                                                                                               \
    return old;                                                                                                                \
  }                                                                                                                            \
  EXCHANGE_IF(bits, T, strong) EXCHANGE_IF(bits, T, weak)                                                                      \
  UPDATE(bits, T, exchange, v) UPDATE(bits, T, fetch_add, old + v) UPDATE(bits, T, fetch_sub, old - v)                         \
  UPDATE(bits, T, fetch_and, old & v) UPDATE(bits, T, fetch_or, old | v) UPDATE(bits, T, fetch_xor, old ^ v)                   \
  UPDATE(bits, T, fetch_nand, ~(old & v))
ATOMICS(8, u8) ATOMICS(16, u16) ATOMICS(32, u32) ATOMICS(64, u64)

// ---- checks that instrument.rs adds -----------------------------------------------------------------------------------------------------------
EXPORT void elv_shift_overflow(u64 amount) { report(SHIFT, RETURN_ADDRESS, 0, amount); }
EXPORT void elv_beyond_array(u64 bytes) { report(BEYOND_ARRAY, RETURN_ADDRESS, 0, 0, bytes); }
EXPORT void elv_division(u64 dividend) { report(DIVISION, RETURN_ADDRESS, 0, dividend); }
EXPORT void elv_misaligned(u64 address) { report(MISALIGNED, RETURN_ADDRESS, 0, address); }

// ---- undefined-behaviour sanitizer ------------------------------------------------------------------------------------------------------------
EXPORT void __ubsan_handle_out_of_bounds(void*, u64 index) { report(ARRAY_BOUNDS, RETURN_ADDRESS, 0, index); }
EXPORT void __ubsan_handle_divrem_overflow(void*, u64 dividend, u64) { report(DIVISION, RETURN_ADDRESS, 0, dividend); }
EXPORT void __ubsan_handle_type_mismatch_v1(void*, u64 address) { report(MISALIGNED, RETURN_ADDRESS, 0, address); }
