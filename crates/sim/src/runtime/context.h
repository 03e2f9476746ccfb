// What the runtime and the executor (abi.rs) know of each other. Sizes are asserted on both sides.
#pragma once

#include "runtime.h"

// No header of the system's is needed, so that a compiler without a library will do.
typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;

// Who touched a granule of memory last. A record is one number, most significant first:
//   threadgroup sequence number 23 | thread 10 | threadgroup barriers 16 | simdgroup barriers 11 | flags 4
struct Cell {
  u64 write, read;
  u32 write_pc, read_pc;  // relative to the module
};

enum Space : u8 { UNBOUND, DEVICE, THREADGROUP, INLINE };

struct Region {
  u64 base, low, size;  // of the buffer; of what the dispatch may touch of it, from the base
  Cell* cells;      // one for each granule; null where nothing can race
  u8* initialised;  // one bit for each byte; null where every byte is
  u8 granule;       // log2 of bytes for each cell
  Space space;
  u8 read_only;
  u8 touched;  // bit 0: read, bit 1: written; kept where there are cells
  u8 padding[4];
};

struct Accesses {
  u64 count, bytes;
};

struct Variable {
  u64 site;
  const char* function;
  u64 address;
};

enum EventKind : u32 {
  REFINE,
  OUT_OF_BOUNDS_READ,
  OUT_OF_BOUNDS_WRITE,
  WILD_READ,
  WILD_WRITE,
  READ_ONLY_WRITE,
  RACE_WRITE_WRITE,
  RACE_READ_WRITE,  // the current write meets an earlier read
  RACE_WRITE_READ,  // the current read meets an earlier write
  UNINITIALISED,
  MISALIGNED,
  ARRAY_BOUNDS,
  BEYOND_ARRAY,
  SHIFT,
  DIVISION,
};

#define MAX_FRAMES 8
struct Event {
  u32 kind, region;
  u64 offset, size;
  u64 other_record;
  u32 other_pc, frame_count;
  u64 frames[MAX_FRAMES];  // return addresses within the module, innermost first
};

struct Context {
  // Of the running thread; a record for each of device and threadgroup memory.
  u64 records[2];
  u64 stack_low, stack_high;
  u32 thread, variable_count;
  // Of the running dispatch.
  u64 arena, arena_size;
  Region* regions;
  u64 oldest_group[2];  // records of earlier threadgroups are forgotten
  u64 module_low, module_high;
  Variable* variables;
  Accesses accesses[3][2];  // of the spaces from DEVICE on: reads, writes
  void (*barrier)(u32 flags, u32 scope, const char* file, u32 line);
  void (*collective)(elv_combine combine, void* slot, const char* operation, const char* file, u32 line);
  u64 (*threadgroup_variable)(u64 site, const char* function, const char* names, u64 size, u64 alignment);
  void (*event)(const Event* event);
};

static_assert(sizeof(Cell) == 24 && sizeof(Region) == 48 && sizeof(Variable) == 24 && sizeof(Event) == 104 && sizeof(Context) == 232, "abi.rs");

extern thread_local Context* context __attribute__((tls_model("initial-exec"), visibility("hidden")));

#define EXPORT extern "C" __attribute__((visibility("default"), used))
#define RETURN_ADDRESS ((u64)__builtin_return_address(0))
