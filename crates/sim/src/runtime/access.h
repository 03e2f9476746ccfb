// Checks one access: bounds, write protection, initialisation, races.
#pragma once

#include "context.h"

enum RecordFlags : u64 {
  ATOMIC = 1,
  OTHER_LANES = 2,       // read: other lanes of the simdgroup did too, since its last barrier
  OTHER_SIMDGROUPS = 4,  // read: so did other simdgroups, since the threadgroup's last barrier
  OTHER_GROUPS = 8,      // read: so did other threadgroups
};

static inline u64 group_of(u64 record) { return record >> 41; }
static inline bool same_group(u64 a, u64 b) { return !((a ^ b) >> 41); }
static inline bool same_thread(u64 a, u64 b) { return !(((a ^ b) >> 31) & 0x3ff); }
static inline bool same_simdgroup(u64 a, u64 b) { return !(((a ^ b) >> 36) & 0x1f); }
static inline bool same_epoch(u64 a, u64 b) { return !(((a ^ b) >> 15) & 0xffff); }
static inline bool same_simd_epoch(u64 a, u64 b) { return !(((a ^ b) >> 4) & 0x7ff); }

// Whether the earlier access happened before the current one.
static inline bool ordered(u64 earlier, u64 current) {
  if (!same_group(earlier, current)) return false;
  if (same_thread(earlier, current) || !same_epoch(earlier, current)) return true;
  return same_simdgroup(earlier, current) && !same_simd_epoch(earlier, current);
}

static inline bool readers_ordered(u64 readers, u64 writer) {
  if ((readers & OTHER_GROUPS) || !same_group(readers, writer)) return false;
  if (!same_epoch(readers, writer)) return true;
  if (readers & OTHER_SIMDGROUPS) return false;
  if (readers & OTHER_LANES) return same_simdgroup(readers, writer) && !same_simd_epoch(readers, writer);
  return ordered(readers, writer);
}

static inline u64 join_readers(u64 readers, u64 reader) {
  if (!readers) return reader;
  u64 atomic = readers & reader & ATOMIC, now = reader & ~(u64)ATOMIC, before = readers & ~(u64)ATOMIC;
  if (!same_group(readers, reader)) return before | atomic | OTHER_GROUPS;
  if (!same_epoch(readers, reader)) return reader | (readers & OTHER_GROUPS);
  if (same_thread(readers, reader) && same_simd_epoch(readers, reader)) return now | atomic | (readers & 14);
  if (!same_simdgroup(readers, reader)) return before | atomic | OTHER_SIMDGROUPS;
  if (!same_simd_epoch(readers, reader)) return now | atomic | (readers & (OTHER_SIMDGROUPS | OTHER_GROUPS));
  return before | atomic | OTHER_LANES;
}

// Tells the executor, with the calls that led here. Returns only if the thread goes on.
static __attribute__((noinline, cold)) void report(EventKind kind, u64 pc, u32 region = 0, u64 offset = 0, u64 size = 0, u64 other_record = 0, u32 other_pc = 0) {
  Context* c = context;
  if (!c) return;
  Event event = {kind, region, offset, size, other_record, other_pc, 1, {pc}};
  u64* frame = (u64*)__builtin_frame_address(0);
  while ((u64)frame >= c->stack_low && (u64)frame + 16 <= c->stack_high && event.frame_count < MAX_FRAMES) {
    u64 caller = frame[1];
    if (caller != pc && caller >= c->module_low && caller < c->module_high) event.frames[event.frame_count++] = caller;
    if (frame[0] <= (u64)frame) break;
    frame = (u64*)frame[0];
  }
  c->event(&event);
}

static __attribute__((noinline, cold)) void outside(bool write, u64 address, u64 size, u64 pc) {
  Context* c = context;
  bool stack = address >= c->stack_low && address < c->stack_high, image = address >= c->module_low && address < c->module_high;
  if (!stack && !image) report(write ? WILD_WRITE : WILD_READ, pc, 0, address, size);
}

// Up to 16 bits of the map at once; the map is padded for that.
static inline u32 bits_at(const u8* bits, u64 offset) {
  u32 word;
  __builtin_memcpy(&word, bits + (offset >> 3), 4);
  return word >> (offset & 7);
}
static inline u32 bits_of(u64 size) { return size < 16 ? (1u << size) - 1 : 0xffff; }

static inline bool initialised(const u8* bits, u64 offset, u64 size) {
  for (u64 at = 0; at < size; at += 16)
    if (~bits_at(bits, offset + at) & bits_of(size - at)) return false;
  return true;
}

static inline void initialise(u8* bits, u64 offset, u64 size) {
  for (u64 at = offset; at < offset + size; at += 16) {
    u32 word;
    __builtin_memcpy(&word, bits + (at >> 3), 4);
    word |= bits_of(offset + size - at) << (at & 7);
    __builtin_memcpy(bits + (at >> 3), &word, 4);
  }
}

template <bool WRITE>
static inline void check_cell(Context* c, Region& r, u32 region, u64 index, u64 size, u64 pc, u64 record) {
  Cell& cell = r.cells[index];
  u64 oldest = c->oldest_group[r.space == THREADGROUP], write = cell.write, read = cell.read;
  if (group_of(write) < oldest) write = 0;
  if (group_of(read) < oldest) read = 0;
  if (write && !ordered(write, record) && !(write & record & ATOMIC))
    report(WRITE ? RACE_WRITE_WRITE : RACE_WRITE_READ, pc, region, index << r.granule, size, write, cell.write_pc);
  u32 here = (u32)(pc - c->module_low);
  if (WRITE) {
    if (read && !(read & record & ATOMIC) && !readers_ordered(read, record)) report(RACE_READ_WRITE, pc, region, index << r.granule, size, read, cell.read_pc);
    cell.write = record;
    cell.write_pc = here;
    cell.read = 0;
  } else {
    if (!write && r.space == THREADGROUP) report(UNINITIALISED, pc, region, index << r.granule, size);
    cell.read = join_readers(read, record);
    cell.read_pc = here;
  }
}

template <bool WRITE>
static inline __attribute__((always_inline)) void access(const void* pointer, u64 size, u64 pc, u64 atomic = 0) {
  Context* c = context;
  if (__builtin_expect(!c, 0)) return;
  u64 address = (u64)pointer, in_arena = address - c->arena;
  if (__builtin_expect(in_arena >= c->arena_size, 0)) return outside(WRITE, address, size, pc);
  u32 region = (u32)(in_arena >> 32);
  Region& r = c->regions[region];
  u64 offset = address - r.base;
  u64 within = offset - r.low;
  if (__builtin_expect(within >= r.size || size > r.size - within, 0)) return report(WRITE ? OUT_OF_BOUNDS_WRITE : OUT_OF_BOUNDS_READ, pc, region, offset, size);
  Accesses& accesses = c->accesses[r.space - DEVICE][WRITE];
  accesses.count++;
  accesses.bytes += size;
  if (WRITE && __builtin_expect(r.read_only, 0)) report(READ_ONLY_WRITE, pc, region, offset, size);
  if (__builtin_expect(r.initialised != nullptr, 0)) {
    if (WRITE) initialise(r.initialised, offset, size);
    else if (!initialised(r.initialised, offset, size)) report(UNINITIALISED, pc, region, offset, size);
  }
  if (!r.cells) return;
  r.touched |= WRITE ? 2 : 1;
  u64 low = (offset | size) & 15;
  if (__builtin_expect(low & ((1u << r.granule) - 1), 0)) report(REFINE, pc, region, __builtin_ctzll(low), 0);
  u64 record = c->records[r.space == THREADGROUP] | atomic;
  for (u64 index = offset >> r.granule, last = (offset + size - 1) >> r.granule; index <= last; index++) check_cell<WRITE>(c, r, region, index, size, pc, record);
}
