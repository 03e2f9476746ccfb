// Barriers and fences.
#pragma once

namespace metal {
enum class mem_flags : uint {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8,
  mem_object_data = 16
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return (mem_flags)((uint)a | (uint)b); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return (mem_flags)((uint)a & (uint)b); }

enum memory_order { memory_order_relaxed = 0, memory_order_acquire = 2, memory_order_release = 3, memory_order_acq_rel = 4, memory_order_seq_cst = 5 };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

// CUDA's barriers order all memory among the threads they wait for.
__forceinline__ void threadgroup_barrier(mem_flags, thread_scope = thread_scope_threadgroup) { ::__syncthreads(); }
__forceinline__ void simdgroup_barrier(mem_flags, thread_scope = thread_scope_simdgroup) { ::__syncwarp(~0u); }
__forceinline__ void simdgroup_barrier(mem_flags, uint among) { ::__syncwarp(among); }
__forceinline__ void atomic_thread_fence(mem_flags, memory_order, thread_scope scope = thread_scope_device) {
  if (scope == thread_scope_device)
    ::__threadfence();
  else if (scope != thread_scope_thread)
    ::__threadfence_block();
}
} // namespace metal
