// Barriers and fences.
#pragma once

namespace metal {
enum class mem_flags : uint {
  mem_none = 0,
  mem_device = ELV_DEVICE,
  mem_threadgroup = ELV_THREADGROUP,
  mem_texture = ELV_TEXTURE,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return (mem_flags)((uint)a & (uint)b); }

enum memory_order { memory_order_relaxed = 0, memory_order_acquire = 2, memory_order_release = 3, memory_order_acq_rel = 4, memory_order_seq_cst = 5 };
enum thread_scope {
  thread_scope_thread = ELV_SCOPE_THREAD,
  thread_scope_simdgroup = ELV_SCOPE_SIMDGROUP,
  thread_scope_threadgroup = ELV_SCOPE_THREADGROUP,
  thread_scope_device = ELV_SCOPE_DEVICE
};

inline void threadgroup_barrier(mem_flags flags, ELV_HERE) { elv_barrier((uint)flags, ELV_SCOPE_THREADGROUP, file, line); }
inline void threadgroup_barrier(mem_flags flags, thread_scope, ELV_HERE) { elv_barrier((uint)flags, ELV_SCOPE_THREADGROUP, file, line); }
inline void simdgroup_barrier(mem_flags flags, ELV_HERE) { elv_barrier((uint)flags, ELV_SCOPE_SIMDGROUP, file, line); }
inline void simdgroup_barrier(mem_flags flags, thread_scope, ELV_HERE) { elv_barrier((uint)flags, ELV_SCOPE_SIMDGROUP, file, line); }
inline void atomic_thread_fence(mem_flags flags, memory_order order, thread_scope scope = thread_scope_device, ELV_HERE) {
  elv_fence((uint)flags, (uint)order, (uint)scope, file, line);
}
} // namespace metal
