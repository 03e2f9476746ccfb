// Barriers and fences.
#pragma once

namespace metal {
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8, mem_object_data = 16 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return (mem_flags)((uint)a & (uint)b); }
#if __METAL_VERSION__ >= 320
enum memory_order { memory_order_relaxed = 0, memory_order_acquire = 2, memory_order_release = 3, memory_order_acq_rel = 4, memory_order_seq_cst = 5 };
#else
enum memory_order { memory_order_relaxed = 0 };
#endif
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

void threadgroup_barrier(mem_flags);
void threadgroup_barrier(mem_flags, thread_scope);
void simdgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags, thread_scope);
#if __METAL_VERSION__ >= 320
void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device);
#endif
} // namespace metal
