// What a lowered kernel and the simulator's runtime know of each other. Included by both: by the prelude, in clang's C++ for OpenCL mode,
// where string literals live in an address space of their own; and by the runtime, as plain C++. Both see the same machine-level functions.
#pragma once

#ifdef __OPENCL_CPP_VERSION__
typedef const __constant char* elv_text;
#else
typedef const char* elv_text;
#endif

// Where a thread is: one row for each position attribute, in the order of `Position` (which Rust defines and thunks refer to by number).
// One-dimensional positions fill the first column, the others hold 1.
#define ELV_POSITIONS 19
struct elv_positions {
  unsigned int values[ELV_POSITIONS][3];
};

// A lowered kernel is entered once for each thread through
//   extern "C" void elv_entry_N(const unsigned long* buffers, const unsigned long* threadgroup, const elv_positions* positions);
// where `buffers` and `threadgroup` hold an address for each index a kernel binds. N counts the wanted kernels; `Entry::symbol` is the name.
//
// A function constant with index 3 takes its value when the lowered text is compiled: -DELV_CONSTANT_3=<expression>, such as true, -1, 0x1p-3f,
// (half)0.5f or metal::vec<uint, 2>(1, 2). Without that macro it is undefined, as Metal's `is_function_constant_defined` reports, and zero.

// Bits of `mem_flags`, as Metal numbers them.
enum elv_flags { ELV_DEVICE = 1, ELV_THREADGROUP = 2, ELV_TEXTURE = 4 };

enum elv_scope { ELV_SCOPE_THREAD, ELV_SCOPE_SIMDGROUP, ELV_SCOPE_THREADGROUP, ELV_SCOPE_DEVICE, ELV_SCOPE_SYSTEM };

// Runs once for each collective operation: `slots[i]` is what lane i handed over, for the lanes whose bit is set in `active`.
typedef void (*elv_combine)(void** slots, unsigned int active);

extern "C" {
// Waits for the threads of `scope` (ELV_SCOPE_SIMDGROUP or ELV_SCOPE_THREADGROUP) and orders the memory that `flags` name.
void elv_barrier(unsigned int flags, unsigned int scope, elv_text file, int line);

// Orders the calling thread's accesses to the memory that `flags` name; waits for no thread. `order` is Metal's memory_order.
void elv_fence(unsigned int flags, unsigned int order, unsigned int scope, elv_text file, int line);

// Parks the lane with its slot; when every lane of the simdgroup has parked, `combine` runs and all go on.
void elv_collective(elv_combine combine, void* slot, elv_text operation, elv_text file, int line);

// The calling thread's lane in its simdgroup, and its number in the threadgroup.
unsigned int elv_lane(void);
unsigned int elv_thread(void);

// The address of threadgroup variables declared in a function: the same for all threads of a threadgroup. `site` numbers the declaration in its
// text and `function` distinguishes instantiations of a template (by address: the literal is one per instantiation).
unsigned long elv_threadgroup_variable(int site, elv_text function, elv_text names, unsigned long size, unsigned long alignment);
}
